"""Scale and shift after a convolution, such as batch normalisation, go into its weights.

    y = batch_norm(conv(x, w), scale, bias, mean, var)
 -> y = conv(x, w * f, bias - mean * f)             where f = scale / sqrt(var + epsilon)

A convolution is linear: (s * w) * x + t costs no pass over the image. By the time this runs,
`decompose` has made batch_norm a subtraction, a product and a sum with constants, one number for
each channel; any chain of such steps is taken. Products and sums of constants are computed in f64
and rounded once, so results differ in the last bits: precision="strict" leaves the pass out.
Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from minidlc.expr.types import Array, TensorType, f32, f64
from minidlc.graph.graph import Constant, Graph, Node, Value, build, tensor_type
from minidlc.graph.inline import with_inputs
from minidlc.ops.conv import Conv
from minidlc.support.locations import Derived, written
from minidlc.transform.log import Refusal, permitted, report
from minidlc.transform.pass_ import Pass, register_pass
from minidlc.transform.rebuild import regraph

STEPS = ("add", "sub", "mul", "div")


@dataclass(frozen=True)
class Line:
    """scale * x + shift, one number of each for every channel, in f64."""

    scale: Array
    shift: Array

    def then(self, op: str, number: Array, number_first: bool) -> Line:
        """The line followed by `op` with a number for each channel on its other side."""
        match op, number_first:
            case "add", _:
                return replace(self, shift=self.shift + number)
            case "sub", False:
                return replace(self, shift=self.shift - number)
            case "sub", True:
                return Line(-self.scale, number - self.shift)
            case "mul", _:
                return Line(self.scale * number, self.shift * number)
            case _:
                return Line(self.scale / number, self.shift / number)


@register_pass
@dataclass(frozen=True)
class FoldConvBn(Pass):
    """Fold batch_norm, and any scale and shift by constants, into the convolution before it."""

    name = "fold_conv_bn"
    level = 2
    exact = False
    requires = ("decomposed",)

    def run(self, graph: Graph) -> Graph:
        """The graph in which no constant scale or shift follows a convolution with constants."""
        users, outputs = graph.users(), set(graph.outputs)
        folded: dict[Value, tuple[Node, Line, list[Node]]] = {}  # last step -> where it started
        inside: set[Value] = set()
        for node in graph.nodes:
            if not isinstance(node.op, Conv):
                continue
            line, steps = _steps_after(node, users, outputs)
            reason = _reason_against(node, line) if steps else None
            if reason is not None:
                report(partial(Refusal, "fold into conv", node.name, reason, node.loc))
            elif steps and permitted(_what(steps), steps[-1].name, _place(node, steps)):
                folded[steps[-1]] = (node, line, steps)
                inside |= {node, *steps[:-1]}
        if not folded:
            return graph
        new: dict[Value, Value] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            if node in inside:
                continue
            made = _folded(*folded[node], new) if node in folded else with_inputs(node, new)
            new[node] = made
            nodes.append(made)
        return regraph(graph, nodes, new)


def _what(steps: list[Node]) -> str:
    return f"fold {', '.join(step.op.name for step in steps)} into conv"


def _place(conv: Node, steps: list[Node]) -> Derived:
    return Derived("fold_conv_bn", conv.loc, written(*(s.loc for s in steps)))


def _steps_after(
    conv: Node, users: Mapping[Value, tuple[Node, ...]], outputs: set[Value]
) -> tuple[Line, list[Node]]:
    """What follows the convolution as long as nobody else reads the value, and its steps."""
    channels = tensor_type(conv).shape[1]
    size = channels if isinstance(channels, int) else 0
    line, steps = Line(np.ones(size), np.zeros(size)), list[Node]()
    value: Node = conv
    while value not in outputs and len(readers := users.get(value, ())) == 1:
        (reader,) = readers
        number = _number_for_each_channel(reader, value)
        if number is None or reader.type != conv.type:
            break
        with np.errstate(all="ignore"):
            line = line.then(reader.op.name, number, reader.inputs[1] is value)
        value = reader
        steps.append(reader)
    return line, steps


def _number_for_each_channel(step: Node, value: Node) -> Array | None:
    """The constant of an add, sub, mul or div beside `value`, one f64 for each channel."""
    if step.op.name not in STEPS:
        return None
    left, right = step.inputs
    other = right if left is value else left
    if not isinstance(other, Constant) or (step.op.name == "div" and other is left):
        return None
    spatial = tensor_type(value).rank - 2
    shape = (*[1] * (spatial + 2 - other.array.ndim), *other.array.shape)
    if len(shape) != spatial + 2 or shape[0] != 1 or any(d != 1 for d in shape[2:]):
        return None
    return np.ravel(other.array).astype(np.float64)


def _reason_against(conv: Node, line: Line) -> str | None:
    _, w, *bias = conv.inputs
    if not isinstance(w, Constant) or not all(isinstance(b, Constant | None) for b in bias):
        return "its weights are not constants"
    if w.type.dtype not in (f32, f64):
        return f"weights of {w.type.dtype} would be rounded once more"
    if not isinstance(tensor_type(conv).shape[1], int):
        return "the number of channels is symbolic"
    arrays = _parameters(conv, line)
    if not all(np.isfinite(a).all() for a in arrays):
        return "the new weights would not be finite"
    return None


def _parameters(conv: Node, line: Line) -> tuple[Array, Array]:
    """Weights and bias with the line in them: every output channel has its own weights."""
    _, w, *bias = conv.inputs
    assert isinstance(w, Constant)
    old = bias[0].array if bias and isinstance(bias[0], Constant) else np.zeros(w.array.shape[0])
    column = (-1, *[1] * (w.array.ndim - 1))
    with np.errstate(all="ignore"):
        weights = w.array.astype(np.float64) * line.scale.reshape(column)
        shifts = old.astype(np.float64) * line.scale + line.shift
        return weights.astype(w.array.dtype), shifts.astype(w.array.dtype)


def _folded(conv: Node, line: Line, steps: list[Node], new: Mapping[Value, Value]) -> Node:
    """One convolution, named after the last step, in place of all of them."""
    x, w, *_ = conv.inputs
    assert x is not None
    assert w is not None
    last, loc = steps[-1], _place(conv, steps)
    weights, bias = _parameters(conv, line)
    if not (line.scale == 1).all():
        w = Constant(f"{w.name}_scaled", weights, Derived("fold_conv_bn", w.loc))
    inputs = new.get(x, x), w, Constant(f"{last.name}_bias", bias, loc)
    made = build(conv.op, inputs, name=last.name, loc=loc)
    assert isinstance(made.type, TensorType)
    return made
