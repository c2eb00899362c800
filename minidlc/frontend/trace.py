"""Tracing: run a Python function once on stand-ins for its tensors; what it computes is the graph.

    def layer(x, p): return {"y": relu(x @ p["w"] + p["b"])}
    g = trace(layer, f32[4, 8], {"w": f32[8, 3], "b": f32[3]})
    [i.name for i in g.inputs]                      # ['x', 'p_w', 'p_b'];  the output is named 'y'

Reads a function and the types of its parameters, makes a graph. Python itself runs at tracing time:
an `if` or `for` over Python values leaves only what it chose, and `==` of two tensors says whether
they are one value (`mc.equal` compares elements). Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Never, cast

import numpy as np

from minidlc.expr.types import DType, TensorType
from minidlc.frontend.pytree import Path, check_depth, items, like, shown
from minidlc.graph import Constant, Graph, Input, Node, TupleType, Value, getitem, toposort, verify
from minidlc.graph.eager import Tensor
from minidlc.graph.graph import building
from minidlc.graph.value_ops import equality
from minidlc.support import extension
from minidlc.support.arguments import expect
from minidlc.support.errors import TypeRuleError
from minidlc.support.locations import PyLoc, caller
from minidlc.support.names import Names, identifier

extension.declare(
    "trace",
    "(fn, types) -> Graph",
    "from a Python function and `types` (parameter name → type) to a graph",
    returns=extension.instance(Graph),
)


_watchers: ContextVar[tuple[list[object], ...]] = ContextVar("watchers", default=())


@contextmanager
def watching() -> Generator[list[object], None, None]:
    """Collect what each function traced in the block returned, containers and all (for jit)."""
    results: list[object] = []
    token = _watchers.set((*_watchers.get(), results))
    try:
        yield results
    finally:
        _watchers.reset(token)


def trace(fn: Callable[..., object], /, *types: object, **named: object) -> Graph:
    """The graph of what `fn` returns when called with tensors of these types (extension `trace`).

    A type is a `TensorType` or a tuple, list or dict of such; numbers, arrays, strings and None in
    their place are handed to `fn` as they are and become constants. Results nest in the same way
    and are flattened in order. Raises TypeRuleError: MDLC0213 for types that do not fit the
    parameters, MDLC0214 for a result that is no tensor or reads a tensor of another trace; what
    an op inside `fn` raises has the line that built it. Other exceptions of `fn` pass as they are.
    """
    expect("trace", "fn", fn, Callable)  # pyright: ignore[reportArgumentType]
    arguments = dict(_bound(fn, types, named).arguments)
    return extension.dispatch("trace", _trace)(fn, arguments)


def _trace(fn: Callable[..., object], types: Mapping[str, object]) -> Graph:
    call = inspect.BoundArguments(inspect.signature(fn), cast(Any, {}))
    inputs = _Inputs(_place(fn))
    for name, type in types.items():
        call.arguments[name] = inputs.stand_in(type, (name,))
    with building():
        with equality(of_elements=True):
            result = fn(*call.args, **call.kwargs)
        outputs = list(_flatten(result, (), _place(fn)))
    for watcher in _watchers.get():
        watcher.append(result)
    if not outputs:
        _no_output("an empty container", (), _place(fn))
    _check_inputs([value for _, value in outputs], inputs.made)
    graph = Graph.of(_name(fn), inputs.made, _named(outputs, inputs.names))
    verify(graph)
    return graph


def _bound(
    fn: Callable[..., object], types: tuple[object, ...], named: dict[str, object]
) -> inspect.BoundArguments:
    """The types by parameter, as a call would bind them."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError) as e:
        hint = "wrap it: lambda x: fn(x)"
        raise TypeRuleError(f"trace: {e}", loc=caller(), hint=hint, code="MDLC0213") from None
    try:
        return signature.bind(*types, **named)
    except TypeError as e:
        raise TypeRuleError(
            f"trace: {e}",
            loc=caller(),
            notes=(f"{_name(fn)}{signature}", f"{len(types) + len(named)} types are given"),
            hint="one type for each parameter without a default",
            code="MDLC0213",
        ) from None


@dataclass
class _Inputs:
    """Makes an input for every type, in order, each with a name of its own."""

    loc: PyLoc | None
    made: list[Input] = field(default_factory=list[Input])
    names: Names = field(default_factory=Names)

    def stand_in(self, tree: object, path: Path) -> object:
        """The same containers with inputs in place of types; data stays."""
        check_depth(path)
        if isinstance(tree, TensorType):
            name = self.names.fresh(identifier("_".join(path)))
            self.made.append(Input(name, tree, self.loc))
            return self.made[-1]
        if isinstance(tree, (tuple, list, dict)):
            inner = {k: self.stand_in(v, (*path, str(k))) for k, v in items(cast(object, tree))}
            return like(cast(object, tree), inner)
        if tree is None or isinstance(
            tree, (bool, int, float, str, np.ndarray, np.generic, Tensor)
        ):
            return cast(object, tree)
        raise TypeRuleError(
            f"trace: {shown(path)} is {_kind(tree)}, expected a tensor type such as f32[4, 8]",
            loc=caller(),
            hint=f"with its shape: {tree}[4, 8], a scalar: {tree}[()]"
            if isinstance(tree, DType)
            else "other objects reach fn through a closure: lambda x: fn(x, thing)",
            code="MDLC0213",
        )


def _flatten(tree: object, path: Path, loc: PyLoc | None) -> Iterator[tuple[Path, Value]]:
    """Every tensor of a result with its place in it, in order."""
    check_depth(path)
    if isinstance(tree, Tensor):
        tree = tree.elements
    if isinstance(tree, Node) and isinstance(tree.type, TupleType):
        for index in range(len(tree.type.items)):
            yield (*path, str(index)), getitem(tree, index)
    elif isinstance(tree, (Input, Constant, Node)):
        yield path, tree
    elif isinstance(tree, (tuple, list, dict)):
        for key, part in items(cast(object, tree)):
            yield from _flatten(part, (*path, str(key)), loc)
    elif isinstance(tree, (bool, int, float, np.ndarray, np.generic)):
        yield path, Constant("c", np.asarray(tree))
    else:
        _no_output(_kind(tree), path, loc)


def _no_output(what: str, path: Path, loc: PyLoc | None) -> Never:
    place = f" as result {shown(path)}" if path else ""
    raise TypeRuleError(
        f"trace: the function returned {what}{place}, no tensor",
        loc=loc,
        hint="return tensors, or a tuple, list or dict of them",
        code="MDLC0214",
    )


def _check_inputs(outputs: list[Value], inputs: list[Input]) -> None:
    """Whatever is read is an input of this trace."""
    own = {id(i) for i in inputs}
    reads: list[tuple[Value | None, Node | None]] = [(v, None) for v in outputs]
    reads += [(v, node) for node in toposort(outputs) for v in node.inputs]
    for value, node in reads:
        if isinstance(value, Input) and id(value) not in own:
            use = "returned" if node is None else f"read by {node.op.name}"
            raise TypeRuleError(
                f"trace: {value.name!r}: {value.type}, {use}, is no input of this trace",
                loc=value.loc if node is None else node.loc,
                notes=() if value.loc is None else (f"it was made for {value.loc}",),
                hint="give it to the function as a parameter",
                code="MDLC0214",
            )


def _named(outputs: list[tuple[Path, Value]], taken: Names) -> list[Value]:
    """Outputs named by their place in the result: 'out', 'out_1', 'loss', 'out_0_mean'.

    An input or constant keeps its name, and so does a value that is returned a second time.
    """
    names: dict[Value, str] = {}
    for path, value in outputs:
        if value not in names and not isinstance(value, Input):
            first = path[0] if path else ""
            wanted = path if first.isidentifier() else ("out", *path)
            names[value] = taken.fresh(identifier("_".join(wanted)))
    values = [value for _, value in outputs]
    new: dict[Value, Value] = {}
    for node in toposort(values):
        inputs = tuple(None if v is None else new.get(v, v) for v in node.inputs)
        new[node] = replace(node, inputs=inputs, name=names.get(node, node.name))
    for value in values:
        if isinstance(value, Constant):
            new[value] = replace(value, name=names[value])
    return [new.get(value, value) for value in values]


def _kind(thing: object) -> str:
    return "None" if thing is None else f"a {type(thing).__name__}"


def _name(fn: object) -> str:
    name = getattr(fn, "__name__", "traced")
    return "traced" if name == "<lambda>" else identifier(name)


def _place(fn: object) -> PyLoc | None:
    """The line where a function is defined."""
    code = getattr(inspect.unwrap(cast(Any, getattr(fn, "func", fn))), "__code__", None)
    return PyLoc(code.co_filename, code.co_firstlineno) if code else caller()
