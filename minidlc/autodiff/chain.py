"""The chain rule: the gradient of one node, and how gradients flow back through many.

    local_gradient(y, dy)                           # one value or None for each input of y
    backward(g.nodes, [loss], [one], [x, w])        # [dx, dw]: None where the loss does not depend

What a value contributes to the loss is the sum over the nodes that read it. Walking the nodes from
the last to the first, every dy is complete when its node is reached. Reads nodes, makes nodes.
Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

from minidlc.expr.types import TensorType
from minidlc.graph.fused import Fused
from minidlc.graph.graph import Constant, Graph, Input, Node, Value, apply, located
from minidlc.graph.inline import inlined, nodes_made
from minidlc.graph.op import Op, registered_ops
from minidlc.graph.types import TupleType, result_types
from minidlc.support import extension
from minidlc.support.errors import GradientError
from minidlc.support.locations import Derived

Dy: TypeAlias = Value | tuple[Value | None, ...]
"""How the loss changes with a node: a value, or for several results one each (None: not at all)."""

RULES: dict[str, Callable[..., Any]] = {}
"""Rules that need `backward` over the graphs that an op holds: control_flow.py fills it.

They are called with `wanted` too: what a loop computes for nobody, no pass takes out of it.
"""

extension.declare(
    "gradient.OP",
    "(op, y: Node, dy) -> a value or None for each input of y",
    "gradient of one op: how the loss changes with its inputs, given how it changes with y",
    lambda: list(registered_ops()),
    returns=extension.items(Input, Constant, Node, type(None)),
)


def backward(
    nodes: Iterable[Node],
    outputs: Sequence[Value],
    dys: Sequence[Value | None],
    wrt: Sequence[Value],
    names: dict[Value, str] | None = None,
) -> list[Value | None]:
    """How the loss changes with each of `wrt`, given how it changes with each output.

    `nodes` are those between, inputs first. None where no output depends on a value. `names` gets
    a name for what flows into each node: `d` and that of the node. Raises GradientError as
    `local_gradient` does.
    """
    order = _depending(nodes, wrt)
    reached = {*wrt, *order}
    sums: dict[Value | tuple[Value, int], list[Value]] = {}
    for output, dy in zip(outputs, dys, strict=True):
        if dy is not None and output in reached:
            sums.setdefault(output, []).append(dy)
    for y in reversed(order):
        dy = _of_results(sums, y)
        if dy is None:
            continue
        if names is not None and not isinstance(dy, tuple):
            names.setdefault(dy, f"d{y.name}")
        if y.op.name == "getitem":
            assert isinstance(dy, (Input, Constant, Node))
            assert y.inputs[0] is not None
            place = (y.inputs[0], cast(int, y.op.attributes()["index"]))
            sums.setdefault(place, []).append(dy)
            continue
        wanted = [x is not None and x in reached for x in y.inputs]
        for n, dx in enumerate(local_gradient(y, dy, wanted)):
            if wanted[n] and dx is not None:
                sums.setdefault(cast(Value, y.inputs[n]), []).append(dx)
    return [_total(sums, x, x) for x in wrt]


def _depending(nodes: Iterable[Node], wrt: Iterable[Value]) -> list[Node]:
    """The nodes through which a change of `wrt` gets further: of real numbers, in order."""
    reached: set[Value | None] = set(wrt)
    order: list[Node] = []
    for node in nodes:
        smooth = any(t.dtype.is_float for t in result_types(node.type))
        if smooth and any(v in reached for v in node.inputs):
            reached.add(node)
            order.append(node)
    return order


def _of_results(sums: dict[Value | tuple[Value, int], list[Value]], y: Node) -> Dy | None:
    """All that flows into a node, None if nothing does."""
    if not isinstance(y.type, TupleType):
        return _total(sums, y, y)
    parts = tuple(_total(sums, (y, n), y) for n in range(len(y.type.items)))
    return parts if any(part is not None for part in parts) else None


def _total(
    sums: dict[Value | tuple[Value, int], list[Value]], key: Value | tuple[Value, int], of: Value
) -> Value | None:
    """The sum of what was found for a value; made once, the first contributions first."""
    parts = sums.get(key, [])
    if not parts:
        return None
    total = parts[0]
    with located(Derived("gradient", of.loc)):
        for part in parts[1:]:
            total = apply("add", total, part)
    sums[key] = [total]
    return total


def local_gradient(
    y: Node, dy: Dy, wanted: Sequence[bool] | None = None
) -> tuple[Value | None, ...]:
    """How the loss changes with each input of `y` (extension point `gradient.OP`).

    None where it does not change with it; it may be None too where the answer is not `wanted`
    (default: all are). Raises GradientError: MDLC1201 if the op has neither a gradient nor simpler
    parts, MDLC1204 if a rule returns what does not fit the inputs.
    """
    if wanted is None:
        wanted = [True] * len(y.inputs)
    rule = extension.dispatch(f"gradient.{y.op.name}", _rule(y.op, wanted))
    with located(Derived("gradient", y.loc)):
        grads = tuple(cast("Iterable[Value | None]", rule(y.op, y, dy)))
    _check(y, grads)
    return grads


def _rule(op: Op, wanted: Sequence[bool]) -> Callable[..., Any]:
    if hasattr(type(op), "gradient"):
        return type(op).gradient
    if op.name in RULES:
        return partial(RULES[op.name], wanted=wanted)
    if hasattr(type(op), "decompose") or isinstance(op, Fused):
        return partial(_by_parts, wanted=wanted)
    return _none


def _none(op: Op, y: Node, dy: Dy) -> tuple[Value | None, ...]:
    raise GradientError(
        f"{op.name} has no gradient",
        loc=y.loc,
        hint="stop_gradient(x) says that none is meant; mc.custom_gradient gives a function one",
        code="MDLC1201",
    )


def _by_parts(op: Op, y: Node, dy: Dy, *, wanted: Sequence[bool]) -> tuple[Value | None, ...]:
    """Of an op that is made of others: the chain rule through these.

    Stand-ins for the inputs tell apart two inputs that are one value. Constants stay what they are:
    they may say how often a loop runs.
    """
    dys = dy if isinstance(dy, tuple) else (dy,)
    inputs = [
        v if v is None or (isinstance(v, Constant) and not asked) else _stand_in(v)
        for v, asked in zip(y.inputs, wanted, strict=True)
    ]
    seeds = [None if d is None else _stand_in(d) for d in dys]
    leaves = [v for v, asked in zip(inputs, wanted, strict=True) if v is not None and asked]
    results = _parts(op, inputs)
    made: dict[Node, None] = {}
    for result in results:
        made |= dict.fromkeys(nodes_made(result, made))
    grads = backward(made, results, seeds, leaves)
    found = [g for g in grads if g is not None]
    actual: dict[Value, Value] = {}
    for stand_in, value in zip((*inputs, *seeds), (*y.inputs, *dys), strict=True):
        if stand_in is not None and value is not None:
            actual[stand_in] = value
    values = iter(inlined(Graph.of(y.name, [], found), actual))
    by_leaf = {v: next(values) for v, g in zip(leaves, grads, strict=True) if g is not None}
    return tuple(None if v is None else by_leaf.get(v) for v in inputs)


def _stand_in(v: Value) -> Input:
    return Input(v.name, cast(TensorType, v.type), v.loc)


def _parts(op: Op, inputs: Sequence[Value | None]) -> tuple[Value, ...]:
    """The results of an op, as values of simpler ones."""
    if isinstance(op, Fused):
        given = cast("Sequence[Value]", inputs)
        return inlined(op.body, dict(zip(op.body.inputs, given, strict=True)))
    found = op.decompose(*inputs)
    return cast("tuple[Value, ...]", found) if isinstance(found, tuple) else (found,)


def _check(y: Node, grads: tuple[Value | None, ...]) -> None:
    """Refuse a rule that does not give each input a gradient of its type."""
    if len(grads) != len(y.inputs):
        text = f"the gradient of {y.op.name} has {len(grads)} values for {len(y.inputs)} inputs"
        hint = "None says that the result does not depend on an input"
        raise GradientError(text, loc=y.loc, hint=hint, code="MDLC1204")
    for n, (x, dx) in enumerate(zip(y.inputs, grads, strict=True)):
        if dx is not None and (x is None or dx.type != x.type):
            wanted = "is left out" if x is None else f"is {x.type}"
            text = f"the gradient of {y.op.name} gives {dx.type} for input {n}, which {wanted}"
            hint = "of a broadcast input it is summed back: minidlc.ops.gradients.summed_to"
            raise GradientError(text, loc=y.loc, hint=hint, code="MDLC1204")
