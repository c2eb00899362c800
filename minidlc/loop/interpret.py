"""Run loop IR by letting Python run its printed text: the slow, obvious meaning of every kernel.

    arrays = {"A": a, "B": b, "C": np.zeros((4, 3), np.float32)}
    interpret(matmul, arrays)                       # fills arrays["C"]
    interpret(matmul, arrays, check_parallel=True)  # and proves that parallel iterations are apart

Allocations are filled with NaN (integers: an odd number), indices are bounds-checked, negative ones
refused, parallel loops run in shuffled order. Arithmetic is NumPy's on scalars of the element type.
Reads a LoopFunction and arrays, writes the arrays. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from minidlc.expr.functions import FUNCTIONS
from minidlc.expr.index import Index
from minidlc.expr.types import DTYPES, Array, DType, TensorType, dtype
from minidlc.loop.nodes import Kind, LoopFunction
from minidlc.support.errors import CallError, CompileError, VerifyError
from minidlc.support.locations import FileLoc


def interpret(fn: LoopFunction, arrays: Mapping[str, Array], check_parallel: bool = False) -> None:
    """Run `fn` on `arrays` (one per parameter, of its dtype and shape), which it fills in place.

    Raises VerifyError for an access outside a buffer (MDLC0460) and, with `check_parallel`, for an
    element that one iteration of a parallel loop writes and another touches (MDLC0461);
    CallError (MDLC0907) for arrays that do not fit the parameters.
    """
    sizes = _bind(fn, arrays)
    text = str(fn)
    tree = ast.fix_missing_locations(_Lazy().visit(ast.parse(text)))
    machine = _Machine(check_parallel)
    known: dict[str, Any] = {**machine.names(), **sizes}
    names = dict(known)
    buffers = {p.name: _Buffer(machine, p.name, arrays[p.name], 0) for p in fn.params}
    file = f"<loops {fn.name}>"
    try:
        with np.errstate(all="ignore"):
            exec(compile(tree, file, "exec"), names)
            run: Callable[..., None] = names[fn.name]
            names.update(known)  # a kernel may be called exp, and use exp
            run(**buffers)
    except CompileError as error:
        raise error.at(_place(error, file, text)) from None


def _place(error: CompileError, file: str, text: str) -> FileLoc:
    """The line of the printed text that was running."""
    line, trace = 1, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    source = text.splitlines()[line - 1]
    start = len(source) - len(source.lstrip())
    return FileLoc(file, line, start + 1, len(source) + 1, source)


def _bind(fn: LoopFunction, arrays: Mapping[str, Array]) -> dict[str, int]:
    """Check the arrays against the parameters; the values of symbolic sizes."""
    sizes: dict[str, int] = {}
    if set(arrays) != {p.name for p in fn.params}:
        wanted, given = ", ".join(p.name for p in fn.params), ", ".join(arrays)
        raise CallError(f"{fn.name} takes ({wanted}), got ({given})", code="MDLC0907")
    for p in fn.params:
        array = arrays[p.name]
        fits = array.dtype == p.type.dtype.numpy and array.ndim == p.type.rank
        for dim, size in zip(p.type.shape, array.shape, strict=False):
            if isinstance(dim, int):
                fits = fits and dim == size
            elif len(dim.terms) == 1 and dim == Index.of(dim.terms[0][0]):
                fits = fits and sizes.setdefault(str(dim), size) == size
        if not fits:
            got = f"{dtype(array.dtype)}{list(array.shape)}"
            raise CallError(f"{fn.name}: {p.name} is {p.type}, got {got}", code="MDLC0907")
    return sizes


class _Lazy(ast.NodeTransformer):
    """Where Python means something else: select is lazy, floats are f32, loops have names.

    Python allows 20 nested blocks, so each tenth loop inward starts a function of its own.
    """

    def __init__(self) -> None:
        self.depth = 0

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id in DTYPES:
            return node  # f64(0.1) is no f32
        self.generic_visit(node)
        match node:
            case ast.Call(ast.Name("select"), [cond, a, b]):
                return ast.IfExp(cond, a, b)
            case _:
                return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, float):
            return ast.Call(ast.Name("f32", ast.Load()), [node], [])
        return node

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1
        if isinstance(node.iter, ast.Call) and isinstance(node.target, ast.Name):
            node.iter.args.append(ast.Constant(node.target.id))
        if self.depth % 10 < 9:
            return node
        inner = ast.parse("def inner_loops():\n    pass\ninner_loops()").body
        assert isinstance(inner[0], ast.FunctionDef)
        inner[0].body = [node]
        return inner

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Assign([ast.Name(buffer)], ast.Call(ast.Name("alloc"), args)):
                args.append(ast.Constant(buffer))
            case _:
                pass
        return node


_Element: TypeAlias = tuple[int, tuple[int, ...]]
"""Identity of a buffer and a place in it."""


@dataclass
class _Run:
    """One execution of a parallel loop: which iteration touched which element."""

    loop: str
    iteration: int = 0
    writers: dict[_Element, int] = field(default_factory=dict["_Element", int])
    readers: dict[_Element, set[int]] = field(default_factory=dict["_Element", set[int]])

    def touch(self, buffer: _Buffer, index: tuple[int, ...], write: bool) -> None:
        """Record an access; refuse it if another iteration has a conflicting one."""
        key = (id(buffer), index)
        writer = self.writers.get(key, self.iteration)
        readers = self.readers.setdefault(key, set())
        others = {writer} | readers if write else {writer}
        for other in sorted(others - {self.iteration}):
            how = "written" if writer == other else "read"
            again = "writes" if write else "reads"
            raise VerifyError(
                f"iterations of parallel loop {self.loop} meet at {buffer.name}{list(index)}: "
                f"{how} by iteration {other}, iteration {self.iteration} {again} it",
                hint="make the loop serial, or give each iteration its own buffer",
                code="MDLC0461",
            )
        if write:
            self.writers[key] = self.iteration
        elif len(readers) < 2:  # two different readers are enough to refuse any writer
            readers.add(self.iteration)


class _Machine:
    """The words of loop IR as Python objects, and the parallel loops that run now."""

    def __init__(self, check_parallel: bool) -> None:
        self.check_parallel = check_parallel
        self.runs: list[_Run] = []
        self.order = random.Random(0)
        self.allocated: list[_Buffer] = []  # kept alive: their id() are keys of the runs

    def names(self) -> dict[str, Any]:
        """Everything the text may name."""
        loops: dict[str, Callable[..., Iterator[int] | range]] = {
            kind.value: _iterations for kind in Kind
        }
        loops[Kind.PARALLEL.value] = self.parallel
        return {
            **{name: _ElementType(type) for name, type in DTYPES.items()},
            **{name: f.numpy for name, f in FUNCTIONS.items()},
            **loops,
            "alloc": self.alloc,
            "min": _extremum(min, np.minimum),
            "max": _extremum(max, np.maximum),
            "where": _where,
            "index": np.int64,
            "at": _at,
            "cast": _cast,
        }

    def parallel(self, start: int, stop: int, loop: str, prefetch: object = None) -> Iterator[int]:
        """The iterations in an order that is never the written one, the same in each run."""
        order = list(range(start, stop))
        self.order.shuffle(order)
        run = _Run(loop)
        self.runs.append(run)
        for run.iteration in order:
            yield run.iteration
        self.runs.pop()

    def alloc(self, type: TensorType, scope: str, name: str) -> _Buffer:
        """A buffer of a value that shows: NaN, or an odd number."""
        array = np.empty(type.dims, type.dtype.numpy)
        array.fill(np.nan if type.dtype.is_float else True if type.dtype.kind == "bool" else 85)
        buffer = _Buffer(self, name, array, len(self.runs))
        if self.check_parallel:
            self.allocated.append(buffer)
        return buffer


class _Buffer:
    """An array with checked indices; `depth` parallel loops run around its allocation."""

    def __init__(self, machine: _Machine, name: str, array: Array, depth: int) -> None:
        self.machine, self.name, self.array, self.depth = machine, name, array, depth

    def check(self, index: Any, write: bool) -> tuple[int, ...]:
        place: tuple[int, ...] = index if isinstance(index, tuple) else (index,)  # pyright: ignore[reportUnknownVariableType]
        shape = self.array.shape
        if len(place) != len(shape) or not all(
            0 <= i < n for i, n in zip(place, shape, strict=False)
        ):
            raise VerifyError(
                f"{self.name}{list(place)} is outside {self.name}: "
                f"{TensorType(dtype(self.array.dtype), shape)}",
                code="MDLC0460",
            )
        if self.machine.check_parallel:
            for run in self.machine.runs[self.depth :]:
                run.touch(self, place, write)
        return place

    def __getitem__(self, index: Any) -> Any:
        return self.array[self.check(index, False)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.array[self.check(index, True)] = value


@dataclass(frozen=True)
class _ElementType:
    """`f32[4, 8]` is a type, `f32(0.5)` and `f32("inf")` are constants."""

    type: DType

    def __call__(self, value: float | str) -> Any:
        return self.type.numpy.type(float(value) if self.type.is_float else value)

    def __getitem__(self, dims: Any) -> TensorType:
        return self.type[dims]


def _iterations(start: int, stop: int, loop: str, prefetch: object = None) -> range:
    return range(start, stop)


def _where(test: Any, a: Any, b: Any) -> Any:
    return a if test else b


def _at(value: Any, extent: int) -> int:
    """A value as a position, clamped into an axis."""
    return min(max(int(value), 0), extent - 1)


def _cast(name: str, x: Any) -> Any:
    return convert(x, DTYPES[name])


def _extremum(
    of_positions: Callable[[int, int], int], of_values: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
    """min or max of two positions, or of two values (NaN wins)."""

    def extremum(a: Any, b: Any) -> Any:
        both = isinstance(a, int) and isinstance(b, int)
        return of_positions(a, b) if both else of_values(a, b)

    return extremum


def convert(x: Any, to: DType) -> Any:
    """A NumPy scalar as an element of another type, as expr.nodes.Cast defines it."""
    if to.is_integer and dtype(x.dtype).is_float:
        wide = float(x)  # Python compares a float with any int exactly; bfloat16 does not
        if np.isnan(wide):
            return to.numpy.type(0)
        limits = np.iinfo(to.numpy.name)
        if wide <= limits.min:
            return to.numpy.type(limits.min)
        if wide >= limits.max:
            return to.numpy.type(limits.max)
        return to.numpy.type(int(wide))
    return x.astype(to.numpy)
