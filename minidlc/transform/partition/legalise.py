"""Ops that a back end lacks, said in those that it has; what remains is named with the reason.

    g = Legalise(backend="npu")(g)
    [f"{n.name}: {why}" for n, why in illegal(g, backend_of("npu"))]    # ['p: npu has no softmax']

The forms below are what back ends choose from. `integers` turns products of dequantized values into
products of the integers themselves, by the scales that the model gives: nothing is quantized that
was not. It sums exactly where floats were rounded, so it is not exact. Treated in course chapter
02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np

from minidlc.expr.types import Array, f32, i32
from minidlc.graph.graph import Constant, Graph, Node, Value, apply, located, tensor_type
from minidlc.graph.op import OpKind
from minidlc.support.errors import PassError
from minidlc.support.locations import Derived
from minidlc.transform.expand import expand
from minidlc.transform.log import Refusal, permitted, report
from minidlc.transform.partition.backend import BackEnd, Form, backend_of
from minidlc.transform.pass_ import Pass, register_pass
from minidlc.transform.rebuild import live_nodes

MAX_ROUNDS = 20  # forms of forms
MOVES = ("transpose", "reshape", "flatten")  # what may stand between integers and their product


@register_pass
@dataclass(frozen=True)
class Legalise(Pass):
    """Apply the forms of a back end to nodes that it does not take alone; none without a name."""

    name = "legalise"
    exact = False
    backend: str = ""

    def run(self, graph: Graph) -> Graph:
        """The graph with more nodes that the back end takes; the others are reported."""
        if not self.backend:
            return graph
        backend = backend_of(self.backend)
        refused: dict[str, str] = {}
        for _ in range(MAX_ROUNDS):
            simpler = expand(graph, lambda node: _legal(node, backend, refused))
            if simpler is graph:
                break
            graph = simpler
        else:
            text = f"forms of {backend.name} still apply after {MAX_ROUNDS} rounds"
            raise PassError(text, hint="a form leads back to itself", code="MDLC0560")
        live = set(live_nodes(graph.nodes, graph.outputs))  # forms leave others dead
        for node, reason in illegal(graph, backend):
            if node not in live:
                continue
            why = refused.get(node.name, reason)
            report(partial(Refusal, "legalise", node.name, why, node.loc))
        return graph


def illegal(graph: Graph, backend: BackEnd) -> tuple[tuple[Node, str], ...]:
    """The nodes that the back end does not take, each with the reason."""
    return tuple(backend.taken(graph)[1].items())


def _legal(node: Node, backend: BackEnd, refused: dict[str, str]) -> tuple[Value, ...] | None:
    """What stands in place of a node that is not taken; None if there is nothing."""
    if backend.reason_against(node) is None:
        return None
    for form in backend.forms:
        if form.op != node.op.name:
            continue
        with located(Derived(f"legalise {form.name}", node.loc)):
            made = form.build(node)
        if isinstance(made, str):
            refused[node.name] = f"{backend.reason_against(node)}; {form.name}: {made}"
            continue
        if made.type != node.type:
            text = f"form {form.name!r} gives {made.type} for {node.name}: {node.type}"
            raise PassError(text, loc=node.loc, code="MDLC0561")
        if not permitted(form.name, node.name, node.loc):
            return None
        named = isinstance(made, Node) and made not in node.inputs
        return (replace(made, name=node.name) if named else made,)
    return None


# ---- forms -----------------------------------------------------------------------------------


def opened(op: str) -> Form:
    """A composite op as what it is made of."""

    def build(node: Node) -> Value | str:
        if node.op.kind is not OpKind.COMPOSITE:
            return f"{node.op.name} is made of nothing simpler"
        made: object = node.op.decompose(*node.inputs)
        return "it has several results" if isinstance(made, tuple) else cast(Value, made)

    return Form(f"{op} opened", op, build)


def _sub_as_add(node: Node) -> Value | str:
    x, y = _two(node)
    if tensor_type(y).dtype.kind == "uint":
        return "an unsigned number has no negative"
    return x + (Constant(f"minus_{y.name}", -y.array) if isinstance(y, Constant) else -y)


def _clip_as_bounds(node: Node) -> Value | str:
    x, bounds = node.inputs[0], node.op.attributes()
    assert x is not None
    for name, op in (("min", "maximum"), ("max", "minimum")):
        if bounds[name] is not None:
            x = apply(op, x, bounds[name])
    return x


def _conv_as_matmul(node: Node) -> Value | str:
    x, w, *bias = node.inputs
    assert x is not None
    assert w is not None
    op = node.op.attributes()
    (n, c, *pixels), (out, _, *kernel) = tensor_type(x).dims, tensor_type(w).dims
    steps = (*kernel, *op["strides"], *op["dilations"])
    if op["group"] != 1 or any(op["pads"]) or any(s != 1 for s in steps):
        return "its window is not one pixel"
    rows = apply("reshape", x, shape=(n, c, int(np.prod(pixels))))
    y = apply("reshape", w, shape=(out, c)) @ rows
    if bias and bias[0] is not None:
        y = y + apply("reshape", bias[0], shape=(out, 1))
    return apply("reshape", y, shape=(n, out, *pixels))


def _two(node: Node) -> tuple[Value, Value]:
    x, y = node.inputs
    assert x is not None
    assert y is not None
    return x, y


sub_as_add = Form("sub as add", "sub", _sub_as_add)
clip_as_bounds = Form("clip as bounds", "clip", _clip_as_bounds)
conv1x1_as_matmul = Form("conv of one pixel as matmul", "conv", _conv_as_matmul)


# ---- products of dequantized values ------------------------------------------------------------


@dataclass(frozen=True)
class Quantised:
    """(value - zero) * scale: what a dequantize_linear gives. `scale` is one number or one for each
    index of `axis`."""

    value: Value
    scale: Array
    zero: Constant | None
    axis: int


def _quantised(x: Value | None) -> Quantised | None:
    """The integers behind a value, also behind what only moves them; None if there are none."""
    if not isinstance(x, Node):
        return None
    if x.op.name in MOVES:
        source = _quantised(x.inputs[0])
        return None if source is None else _moved(x, source)
    if x.op.name != "dequantize_linear":
        return None
    value, scale, *zeros = x.inputs
    zero = zeros[0] if zeros else None
    if not isinstance(scale, Constant) or not isinstance(zero, Constant | None):
        return None
    if value is None or x.op.attributes()["block_size"] or tensor_type(x).dtype != f32:
        return None
    axis = x.op.attributes()["axis"] % max(1, tensor_type(x).rank)
    return Quantised(value, scale.array.astype(np.float32), _one_number(zero), axis)


def _moved(x: Node, source: Quantised) -> Quantised | None:
    """The integers moved as `x` moves the values; the scales of an axis go with a transposition."""
    if x.op.name != "transpose":
        moved = apply(x.op.name, source.value, **x.op.attributes())
        return replace(source, value=moved) if source.scale.size == 1 else None
    perm = x.op.attributes()["perm"] or tuple(reversed(range(tensor_type(x).rank)))
    if isinstance(source.value, Constant):
        value: Value = Constant(x.name, source.value.array.transpose(perm), x.loc)
    else:
        value = apply("transpose", source.value, perm=perm)
    return replace(source, value=value, axis=perm.index(source.axis))


def _as_integers(node: Node, channel: int, weight_axis: int) -> Value | str:
    """The product of integers, as floats by the scales; `channel`: the axis of the result that
    belongs to `weight_axis` of the second input."""
    left, right = _quantised(node.inputs[0]), _quantised(node.inputs[1])
    if left is None or right is None:
        which = "first" if left is None else "second"
        return f"its {which} input is not dequantized by constants"
    if left.scale.size != 1:
        return "its first input has a scale for each index of an axis"
    if right.scale.size != 1 and right.axis != weight_axis:
        return f"the scales of its second input belong to axis {right.axis}"
    bytes_ = ("i8", "u8")
    for part in (left, right):
        if (element := tensor_type(part.value).dtype).name not in bytes_:
            return f"its integers are {element}, not i8 or u8"
    rank = tensor_type(node).rank
    column = [1] * rank
    column[channel] = -1
    scale = left.scale.reshape(()) * right.scale
    inputs = [left.value, right.value, left.zero, right.zero]
    while inputs[-1] is None:
        inputs.pop()
    kept = ("strides", "pads", "dilations", "group") if node.op.name == "conv" else ()
    attributes = {name: node.op.attributes()[name] for name in kept}
    product: Value = apply(f"{node.op.name}_integer", *inputs, **attributes)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    counts = _integer_bias(bias, scale)
    if counts is not None:
        product = product + Constant("bias", counts.reshape(column))
    y: Value = apply("cast", product, to=f32)
    y = y * Constant("scale", scale if scale.size == 1 else scale.reshape(column))
    if bias is None or counts is not None:
        return y
    if isinstance(bias, Constant):
        return y + Constant(bias.name, bias.array.reshape(column), bias.loc)
    return y + apply("reshape", bias, shape=column)


def _one_number(zero: Constant | None) -> Constant | None:
    """A zero point that is everywhere the same as one number, 0 as none."""
    if zero is None or not zero.array.any():
        return None
    same = (zero.array == zero.array.flat[0]).all()
    return Constant(zero.name, zero.array.reshape(-1)[0], zero.loc) if same else zero


def _integer_bias(bias: Value | None, scale: Array) -> Array | None:
    """The bias as i32 numbers of the product's scale, if it is stored so."""
    found = _quantised(bias)
    if found is None or not isinstance(found.value, Constant) or found.zero is not None:
        return None
    same = tensor_type(found.value).dtype == i32 and bool(np.allclose(found.scale, scale, 1e-6, 0))
    return found.value.array if same else None


def _conv_as_integers(node: Node) -> Value | str:
    return _as_integers(node, 1, 0)


def _matmul_as_integers(node: Node) -> Value | str:
    ranks = [tensor_type(v).rank for v in _two(node)]
    if min(ranks) < 2:
        return "an input has one axis"
    return _as_integers(node, -1, ranks[1] - 1)


_BUILDERS: dict[str, Callable[[Node], Value | str]] = {
    "conv": _conv_as_integers,
    "matmul": _matmul_as_integers,
}
integers = tuple(Form(f"{op} of integers", op, build) for op, build in _BUILDERS.items())
