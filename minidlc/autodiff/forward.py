"""Forward mode: how the outputs move when the inputs move; and Hessian-vector products.

    g = mc.jvp(f, ["x"])                            # inputs: x, dx; outputs: y, dy
    h = mc.hvp(loss, ["w"])                         # inputs: w, dw; output: the Hessian times dw

A tangent needs no rule of its own: the gradient of a node is linear in dy, and its tangent is the
same linear map the other way round, which is the gradient of the gradient with respect to dy. So
both modes take the same slopes at kinks, such as relu at 0. Only NaN may part them: in where(x > 0,
sqrt(x), x) at 0 reverse mode multiplies 0, what comes through the mask, by the infinite slope of
sqrt; forward mode meets the mask last, and takes x. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, cast

from minidlc.autodiff.chain import Dy, backward, local_gradient
from minidlc.autodiff.dependence import depending
from minidlc.autodiff.reverse import assembled, grad, inputs_named, is_loss
from minidlc.expr.types import DType, TensorType
from minidlc.graph.graph import Constant, Graph, Input, Node, Value, located
from minidlc.graph.inline import nodes_made, with_inputs
from minidlc.graph.types import TupleType, result_types
from minidlc.graph.value_ops import equality
from minidlc.ops.gradients import zeros_like
from minidlc.support.errors import GradientError
from minidlc.support.locations import Derived
from minidlc.support.names import Names

Tangent: TypeAlias = Dy
"""How a node moves: a value, or for several results one each (None: not at all)."""


@equality(of_elements=False)
def jvp(graph: Graph, wrt: str | Sequence[str] | None = None) -> Graph:
    """The graph of the outputs and of how they move when the inputs `wrt` move.

    It takes the inputs, then `d` and the name of each of `wrt` (default: all inputs of real
    numbers): how much that moves. It gives the outputs, then how each output of real numbers moves:
    the Jacobian times the tangent. Raises GradientError as `grad` does, and MDLC1214 for a gradient
    whose slope depends on dy, or that steps: that of a `custom_gradient` which clips dy has no
    forward mode, nor has one with a part that does not follow dy, such as `x` in `dy + x`. (Such a
    part inside a branch or a loop is not seen: there the slope is taken.)
    Algorithm: Wengert, 1964, with rules from reverse mode (Radul et al., "You Only Linearize Once",
    2022).
    """
    inputs = inputs_named("jvp", graph, wrt)
    taken = Names(i.name for i in graph.inputs)
    given = [Input(taken.fresh(f"d{x.name}"), x.type) for x in inputs]
    tangents: dict[Value, Tangent] = dict(zip(inputs, given, strict=True))
    order: list[Value] = []
    for node in graph.nodes:
        order.append(node)
        if (found := _tangent_of(node, tangents)) is not None:
            tangents[node] = found
            parts = found if isinstance(found, tuple) else (found,)
            order += [t for t in parts if t is not None]
    smooth = [o for o in graph.outputs if _element(o).is_float]
    moved = [cast("Value", tangents[o]) if o in tangents else zeros_like(o) for o in smooth]
    names: dict[Value, str] = {}
    for value, tangent in tangents.items():
        if isinstance(tangent, Node):
            names[tangent] = f"d{value.name}"
    outputs = (*graph.outputs, *moved)
    return assembled(f"{graph.name}_jvp", (*graph.inputs, *given), order, outputs, names)


def _element(value: Value) -> DType:
    return cast(TensorType, value.type).dtype


def _tangent_of(node: Node, tangents: dict[Value, Tangent]) -> Tangent | None:
    if node.op.name == "getitem":
        parts = tangents.get(cast(Value, node.inputs[0]))
        index = cast(int, node.op.attributes()["index"])
        return parts[index] if isinstance(parts, tuple) else None
    dxs = [None if v is None else tangents.get(v) for v in node.inputs]
    if all(dx is None for dx in dxs):
        return None
    return local_tangent(node, cast("Sequence[Value | None]", dxs))


def local_tangent(y: Node, dxs: Sequence[Value | None]) -> Tangent | None:
    """How `y` moves when its inputs move by `dxs` (None: that input does not move).

    None if it does not move, or is not of real numbers. Raises GradientError as `local_gradient`,
    and MDLC1214 if the gradient is not linear in dy.
    """
    types = y.type.items if isinstance(y.type, TupleType) else (y.type,)
    us = [Input("u", t) if t.dtype.is_float else None for t in types]
    asked = [u for u in us if u is not None]
    if not asked:
        return None
    dy = tuple(us) if isinstance(y.type, TupleType) else asked[0]
    grads = local_gradient(y, dy, [dx is not None for dx in dxs])
    used = [(g, dx) for g, dx in zip(grads, dxs, strict=True) if g is not None and dx is not None]
    known = {y, *y.inputs, *dxs}  # what led to these does not depend on u: nobody looks there
    with located(Derived("tangent", y.loc)):
        made = _made([g for g, _ in used], known)
        found = backward(made, [g for g, _ in used], [dx for _, dx in used], asked)
        if y.op.name == "custom_gradient" and _stands_still(made, [g for g, _ in used], asked):
            raise _not_linear(y)
        parts = iter(_at_any_point(y, made, _made(found, known), found, asked))
    result = tuple(next(parts) if u is not None else None for u in us)
    if all(part is None for part in result):
        return None
    return result if isinstance(y.type, TupleType) else result[0]


def _made(results: Iterable[Value | None], known: Iterable[Value | None]) -> list[Node]:
    """The nodes under these results, inputs first, down to what was there before."""
    placed, made = {*known}, list[Node]()
    for result in results:
        if result is not None:
            made += nodes_made(result, placed)
            placed.update(made)
    return made


def _at_any_point(
    y: Node,
    gradient: Iterable[Node],
    derivative: Iterable[Node],
    found: Sequence[Value | None],
    us: Sequence[Input],
) -> list[Value | None]:
    """The derivatives `found`, which do not depend on `us`: those of a linear map are constant.

    Where a loop computes what depends on `us` beside what is read, 0 is as good as any other. A
    gradient with a step on the way from `us`, such as the sign of dy, is refused too: it has the
    derivative 0 wherever there is one.
    """
    on_the_way = depending(gradient, us)
    steps = any(_is_flat(node) for node in gradient if node in on_the_way)
    reading = depending(derivative, us)
    if steps or any(v in reading for v in found if v is not None):
        raise _not_linear(y)
    new: dict[Value, Value] = {u: zeros_like(u) for u in us}
    for node in derivative:
        new[node] = with_inputs(node, new)
    return [None if v is None else new.get(v, v) for v in found]


def _not_linear(y: Node) -> GradientError:
    text = f"{y.op.name}: forward mode needs a gradient that is linear in dy, and this is not"
    hint = "mc.grad takes it, mc.jvp and mc.hvp do not; change what mc.grad gives, not dy"
    return GradientError(text, loc=y.loc, hint=hint, code="MDLC1214")


def _stands_still(gradient: Iterable[Node], results: Iterable[Value], us: Iterable[Input]) -> bool:
    """True if a part of a result does not follow `us`: dy + x is not linear, though its slope is 1.

    A part is a whole result or a side of a sum; what is 0 may stand still. Only a gradient that a
    user states is asked, and not in its loops: those of ops are linear by their tests.
    """
    moving = depending(gradient, us)
    parts = list(results)
    for node in gradient:
        if node in moving and node.op.name in ("add", "sub"):
            parts += [v for v in node.inputs if v is not None]
    return any(v not in moving and not _is_zero(v) for v in parts)


def _is_zero(value: Value) -> bool:
    """True for zeros that show it: a constant, also expanded or times something."""
    parts: Sequence[Value | None] = (value,)
    if isinstance(value, Node) and value.op.name in ("expand", "mul"):
        parts = value.inputs
    return any(isinstance(v, Constant) and not v.array.any() for v in parts)


def _is_flat(node: Node) -> bool:
    """True for what steps: a function of one value without a slope, such as a sign; and mod."""
    if node.op.name == "mod":  # its slope between the steps is 1
        return True
    if not any(t.dtype.is_float for t in result_types(node.type)):
        return True
    if len(node.inputs) != 1 or not isinstance(node.type, TensorType) or node.op.name == "getitem":
        return False
    return local_gradient(node, Input("dy", node.type)) == (None,)


@equality(of_elements=False)
def hvp(graph: Graph, wrt: str | Sequence[str] | None = None) -> Graph:
    """The graph of the Hessian of a loss times a vector, without the Hessian.

    It takes the inputs, then `d` and the name of each of `wrt`: the vector. It gives one output for
    each of `wrt`: how the gradient moves along that vector, the forward mode of the reverse mode
    (Pearlmutter, 1994). Raises GradientError as `jvp` does, and MDLC1213 if the graph has not one
    output, of one real number.
    """
    names = [i.name for i in inputs_named("hvp", graph, wrt)]
    if not is_loss(graph):
        types = ", ".join(str(o.type) for o in graph.outputs) or "nothing"
        text = f"hvp: {graph.name} returns {types}, no loss: only a single number has a Hessian"
        hint = "return a sum or a mean; mc.jvp(mc.grad(g)) moves the gradients of several numbers"
        raise GradientError(text, hint=hint, code="MDLC1213")
    gradient = grad(graph, names)
    both = jvp(gradient, names)
    products = both.outputs[len(names) :]
    named = {p: f"h{name}" for name, p in zip(names, products, strict=True)}
    return assembled(f"{graph.name}_hvp", both.inputs, both.nodes, products, named)
