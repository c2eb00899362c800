"""Tensor expressions: what each element of a tensor is, with no word on loops.

    A, B = placeholder(f32[4, 8], "A"), placeholder(f32[8, 3], "B")
    k = reduce_axis(8, "k")
    C = compute((4, 3), lambda i, j: sum(A[i, k] * B[k, j], k), name="C")
    str(C)              # 'C = compute(f32[4, 3], lambda i, j: sum(A[i, k] * B[k, j], k=8))'

Bodies name the tensors they read; `inputs` holds them. Tensors are immutable: a schedule never
changes one. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from minidlc.expr.functions import FUNCTIONS
from minidlc.expr.index import Axis, Index, Var
from minidlc.expr.nodes import REDUCTIONS, Binary, Const, Expr, Load, Reduce, const, wrap
from minidlc.expr.printing import print_expr
from minidlc.expr.types import DTYPES, DType, TensorType, dtype
from minidlc.expr.walk import walk
from minidlc.loop.regions import loads
from minidlc.support.arguments import expect, expect_each, expect_name, plain_int
from minidlc.support.errors import LoweringError
from minidlc.support.names import Names

# names that the texts of tensor expressions and loops give a meaning: no tensor takes one
WORDS = (
    *FUNCTIONS,
    *DTYPES,
    *REDUCTIONS,
    "select",
    "where",
    "cast",
    "index",
    "at",
    "alloc",
    "range",
)


@dataclass(frozen=True)
class ReduceAxis(Axis):
    """An axis reduced over; inside a body it stands for the position along it."""

    name: str
    extent: int

    @property
    def index(self) -> Index:
        """The axis as an index expression."""
        return Index.of(Var(self.name))


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor given (`body` is None: a placeholder) or computed element by element.

    `axes` names the spatial axes; `body` gives the element there, a `Reduce` at its root or none.
    `inputs` are the tensors the body reads, each once, in order of first use.
    """

    name: str
    type: TensorType
    axes: tuple[str, ...]
    body: Expr | None = None
    inputs: tuple[Tensor, ...] = field(default=(), repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Static shape."""
        return self.type.dims

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.type.dtype

    @property
    def reduce_axes(self) -> tuple[tuple[str, int], ...]:
        """(name, extent) of each reduction axis; empty if the body does not reduce."""
        return self.body.axes if isinstance(self.body, Reduce) else ()

    def __str__(self) -> str:
        if self.body is None:
            return f"{self.name} = placeholder({self.type})"
        head = "lambda" + "".join(f"{',' if n else ''} {a}" for n, a in enumerate(self.axes))
        return f"{self.name} = compute({self.type}, {head}: {print_expr(self.body)})"

    def __getitem__(self, index: object) -> Expr:
        """The element at `index`: ints, index expressions and reduce axes."""
        given: tuple[object, ...] = index if isinstance(index, tuple) else (index,)  # pyright: ignore[reportUnknownVariableType]
        if len(given) != len(self.axes):
            raise LoweringError(
                f"{self.name} has {len(self.axes)} axes, got {len(given)} indices", code="MDLC0703"
            )
        reads = _reads.get()
        if reads is not None:
            other = reads.setdefault(self.name, self)
            if other is not self:
                raise LoweringError(
                    f"two different tensors named {self.name!r} in one expression",
                    hint="give one another name=",
                    code="MDLC0704",
                )
        positions = tuple(Index.of(i) for i in given)  # pyright: ignore[reportArgumentType]
        return Load(self.name, positions, self.dtype)


@dataclass(frozen=True, eq=False)
class Filled(Tensor):
    """A tensor that holds one known number everywhere: reading it gives the number, no load."""

    value: Const = field(kw_only=True)

    def __getitem__(self, index: object) -> Expr:
        return self.value


def filled(type: TensorType, value: float | int | bool, name: str = "c") -> Filled:
    """A tensor of `type` whose every element is `value`."""
    axes = tuple(f"i{d}" for d in range(type.rank))
    return Filled(name, type, axes, value=const(value, type.dtype))


_reads: ContextVar[dict[str, Tensor] | None] = ContextVar("reads", default=None)
_names: ContextVar[Names | None] = ContextVar("names", default=None)


@contextmanager
def unique_names() -> Generator[Names, None, None]:
    """Inside the block no two tensors get the same name: `matmul`, `matmul_1`, …"""
    names = Names(WORDS)
    token = _names.set(names)
    try:
        yield names
    finally:
        _names.reset(token)


def _name(wanted: str) -> str:
    """`wanted`, or one like it that is free; `exp[i] = exp(x[i])` would be no Python."""
    expect_name("a tensor", wanted)
    names = _names.get()
    return (Names(WORDS) if names is None else names).fresh(wanted)


def placeholder(type: TensorType, name: str = "A") -> Tensor:
    """A tensor whose elements are given by the caller."""
    expect("placeholder", "type", type, TensorType, hint="te.placeholder(f32[4, 8], 'A')")
    return Tensor(_name(name), type, tuple(f"i{d}" for d in range(type.rank)))


def reduce_axis(extent: int, name: str = "k") -> ReduceAxis:
    """An axis of `extent` steps to reduce over."""
    expect_name("reduce_axis", name)
    return ReduceAxis(name, _extent("reduce_axis", extent))


def _extent(function: str, given: object) -> int:
    """The number of positions along an axis; OptionError (MDLC1001), LoweringError (MDLC0730)."""
    extent = plain_int(given)
    expect(function, "an extent", extent, int, hint="tensor expressions have sizes that are known")
    assert isinstance(extent, int)
    if not 0 <= extent < 1 << 63:
        raise LoweringError(f"{function}: no axis has {extent} positions", code="MDLC0730")
    return extent


def compute(
    shape: Sequence[int],
    body: Callable[..., object],
    name: str = "T",
    *,
    axes: Sequence[str] | None = None,
    element: DType | str | None = None,
) -> Tensor:
    """The tensor whose element at (i, j, …) is `body(i, j, …)`.

    Axis names are the parameters of `body` unless `axes` gives them; the element type is that of
    the body (`element` types a body that is a plain number).
    Raises LoweringError (MDLC0705) if body and shape disagree in rank, or (MDLC0702) for elements
    that were not taken inside of the body.
    """
    expect("compute", "shape", shape, list, tuple, hint="compute((4, 8), …)")
    expect("compute", "body", body, Callable, hint="lambda i, j: A[i, j] + 1.0")  # pyright: ignore[reportArgumentType]
    dims = tuple(_extent("compute", n) for n in shape)
    names = _axes(name, len(dims), _parameters(body, len(dims)) if axes is None else axes)
    like = None if element is None else dtype(element)
    reads: dict[str, Tensor] = {}
    token = _reads.set(reads)
    try:
        value = wrap(body(*(Index.of(Var(n)) for n in names)), like)
    finally:
        _reads.reset(token)
    _check_reduction(name, names, value)
    type = TensorType(value.dtype, dims)
    used = dict.fromkeys(load.buffer for load in loads(value))  # in the order of the text
    for unknown in (source for source in used if source not in reads):
        raise LoweringError(
            f"{name}: an element of {unknown!r} was taken outside of the body",
            hint="write the body as a function that reads its tensors itself",
            code="MDLC0702",
        )
    return Tensor(_name(name), type, names, value, tuple(reads[name] for name in used))


def _check_reduction(name: str, axes: tuple[str, ...], value: Expr) -> None:
    """Refuse a reduction that is not the whole body (MDLC0706), an axis bound twice (MDLC0705)."""
    inner = value.body if isinstance(value, Reduce) else value
    if any(isinstance(e, Reduce) for e in walk(inner)):
        raise LoweringError(
            f"{name}: a reduction stands inside a larger expression",
            hint="compute the reduction as a tensor of its own",
            code="MDLC0706",
        )
    reduced = [axis for axis, _ in value.axes] if isinstance(value, Reduce) else []
    for axis in reduced:
        if axis in axes or reduced.count(axis) > 1:
            raise LoweringError(
                f"{name}: axis {axis!r} is bound twice",
                hint=f"give reduce_axis another name than {axis!r}",
                code="MDLC0705",
            )


def _axes(name: str, rank: int, given: Sequence[str]) -> tuple[str, ...]:
    """The names of the axes; LoweringError (MDLC0705) for too few, too many or one twice."""
    names = expect_each("compute", "axes", given, str)
    if len(names) != rank:
        raise LoweringError(
            f"{name}: {len(names)} axes {names} for a shape of rank {rank}", code="MDLC0705"
        )
    for axis in names:
        if names.count(axis) > 1:
            raise LoweringError(f"{name}: axis {axis!r} is bound twice", code="MDLC0705")
    return names


def _parameters(body: Callable[..., object], rank: int) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(body).parameters.values()
    except (TypeError, ValueError):  # a function written in C
        return tuple(f"i{d}" for d in range(rank))
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return tuple(f"i{d}" for d in range(rank))
    return tuple(p.name for p in parameters if p.default is p.empty)


def _reduce(op: str, value: object, axes: tuple[ReduceAxis, ...]) -> Reduce:
    over = expect_each(op, "axes", axes, ReduceAxis, hint='k = te.reduce_axis(8, "k")')
    return Reduce(op, wrap(value), tuple((a.name, a.extent) for a in over))


def sum(value: object, *axes: ReduceAxis) -> Reduce:
    """Sum over axes; of nothing it is 0."""
    return _reduce("sum", value, axes)


def max(value: object, *axes: ReduceAxis) -> Reduce:
    """Maximum over axes, NaN if any is NaN; of nothing it is the lowest value."""
    return _reduce("max", value, axes)


def min(value: object, *axes: ReduceAxis) -> Reduce:
    """Minimum over axes, NaN if any is NaN; of nothing it is the highest value."""
    return _reduce("min", value, axes)


def prod(value: object, *axes: ReduceAxis) -> Reduce:
    """Product over axes; of nothing it is 1."""
    return _reduce("prod", value, axes)


def combine(op: str, so_far: Expr, value: Expr) -> Expr:
    """One step of a reduction."""
    return Binary({"sum": "+", "prod": "*"}.get(op, op), so_far, value)


def identity(op: str, type: DType) -> Const:
    """What a reduction starts from: combined with it, a value stays itself."""
    if op in ("sum", "prod"):
        return const(0 if op == "sum" else 1, type)
    if type.is_float:
        return const(float("-inf") if op == "max" else float("inf"), type)
    if type.kind == "bool":
        return const(op == "min", type)
    signed = type.kind == "int"
    least = -(1 << (type.bits - 1)) if signed else 0
    return const(least if op == "max" else least + (1 << type.bits) - 1, type)


def stages(outputs: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Every tensor the outputs need, inputs before their readers (placeholders included)."""
    order: list[Tensor] = []
    seen: set[int] = set()
    wanted = expect_each("stages", "outputs", outputs, Tensor)
    stack: list[tuple[Tensor, bool]] = [(t, False) for t in reversed(wanted)]
    while stack:
        tensor, expanded = stack.pop()
        if expanded:
            order.append(tensor)
        elif id(tensor) not in seen:
            seen.add(id(tensor))
            stack.append((tensor, True))
            stack += [(t, False) for t in reversed(tensor.inputs) if id(t) not in seen]
    return tuple(order)
