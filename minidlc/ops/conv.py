"""Convolution over one, two or three spatial axes, as ONNX and every framework means it.

    apply("conv", x, w, b, strides=(2, 2), pads=(1, 1, 1, 1))

    x f32[n, c, h, w], w f32[o, c / group, kh, kw], b f32[o]  ->  y f32[n, o, h', w']

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.index import Index
from minidlc.expr.nodes import Expr
from minidlc.expr.types import TensorType
from minidlc.graph.graph import Node, Value, apply, tensor_type
from minidlc.graph.op import Example, Op, Pattern, register_op
from minidlc.ops import rules, samples
from minidlc.ops.conv_gradients import bias_gradient, input_gradient
from minidlc.ops.elementwise import load, rounded, widened
from minidlc.ops.gradients import Grads
from minidlc.ops.rules import Values
from minidlc.ops.windows import Window, pad_array, padded, plain_fields, spatial_names
from minidlc.te.tensor import Tensor, compute, reduce_axis, sum


@register_op
@dataclass(frozen=True)
class Conv(Op):
    """conv(x, w, b)[n, o, h] = b[o] + sum over c, kh of x'[n, c, s*h + d*kh] * w[o, c, kh].

    In 2-D and 3-D the same along w and d. x' is x with a border of zeros (`pads`: begins, then
    ends), s the strides, d the dilations. With `group` = g, output channel o reads only the
    channels of its group. () means ones (strides, dilations) or zeros (pads).
    """

    onnx = "Conv"
    pattern = Pattern.OUT_FUSABLE
    schedule = "conv"
    optional = (2,)
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    group: int = 1

    def __post_init__(self) -> None:
        plain_fields(self)

    def window(self, w: Iterable[int]) -> Window:
        """The geometry for a weight of this shape."""
        kernel = tuple(w)[2:]
        return Window.resolve(self, kernel, self.strides, self.pads, self.dilations)

    def type_rule(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> TensorType:
        element = rules.elements(self, rules.NUMBERS, *((x, w) if b is None else (x, w, b)))
        rules.rank(self, "x", x, 3, 4, 5)
        rules.rank(self, "w", w, x.rank)
        outputs, per_group = w.dims[:2]
        if self.group < 1 or outputs % self.group:
            rules.fail(self, f"group {self.group} does not divide {outputs} outputs", rules.RANGE)
        if not rules.same_dim(x.shape[1], per_group * self.group):
            text = (
                f"x has {x.shape[1]} channels, w wants {per_group} for each of {self.group} groups"
            )
            hint = None
            if isinstance(x.shape[1], int) and x.shape[1] % per_group == 0:
                hint = f"group={x.shape[1] // per_group} would fit"
            rules.fail(self, text, rules.DIMS, hint)
        if b is not None and (b.rank != 1 or not rules.same_dim(b.shape[0], outputs)):
            rules.fail(self, f"b must be {element}[{outputs}], got {b}", rules.DIMS)
        spatial = self.window(w.dims).out_dims(self, x.shape[2:])
        return TensorType(element, (x.shape[0], outputs, *spatial))

    def reference(self, x: Values, w: Values, b: Values | None = None) -> Values:
        window, g = self.window(w.shape), self.group
        border = pad_array(widened(x), window.pads, 0)
        out = tuple(int(d) for d in window.out_dims(self, x.shape[2:]) if isinstance(d, int))
        weight = widened(w).reshape(g, w.shape[0] // g, w.shape[1], *window.kernel)
        y = np.zeros((x.shape[0], g, w.shape[0] // g, *out), border.dtype)
        for offset, tap in window.taps(border, out):
            grouped = tap.reshape(x.shape[0], g, w.shape[1], *out)
            y += np.einsum("ngc...,goc->ngo...", grouped, weight[(..., *offset)])
        y = y.reshape(x.shape[0], w.shape[0], *out)
        if b is not None:
            y = y + widened(b).reshape(-1, *[1] * window.rank)
        return y.astype(x.dtype, copy=False)

    def compute(self, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        out = self.type_rule(x.type, w.type, None if b is None else b.type)
        window = self.window(w.shape)
        border = padded(x, window.pads, 0)
        per_group, outputs = w.shape[1], w.shape[0] // self.group
        c = reduce_axis(per_group, "c")
        taps = window.axes()
        axes = ("n", "o", *spatial_names(window.rank))

        def product(n: Index, o: Index, *at: Index) -> Expr:
            channel = c.index if self.group == 1 else o // outputs * per_group + c.index
            value = load(border, (n, channel, *window.position(at, taps)))
            weight = load(w, (o, c.index, *(t.index for t in taps)))
            return sum(value * weight, c, *taps)

        y = compute(out.dims, product, self.name, axes=axes)
        if b is not None:
            y = _with_bias(y, b)
        return rounded(y, out.dtype, "rounded")

    def gradient(self, y: Node, dy: Value) -> Grads:
        """dx is the transposed convolution of dy with w, db the sum of dy over the pixels."""
        x, w, *bias = y.inputs
        assert x is not None
        assert w is not None
        window = self.window(tensor_type(w).dims)
        fields = {**self.attributes(), "kernel_shape": window.kernel}
        dw = apply("conv_weight_gradient", x, dy, **fields)
        return input_gradient(x, w, dy, window, self.group), dw, *bias_gradient(dy, bias)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """1-D to 3-D, strides, dilations, groups, one-sided pads, size 1, element types."""
        table: tuple[tuple[tuple[int, ...], tuple[int, ...], Conv], ...] = (
            ((1, 1, 8, 8), (1, 1, 3, 3), cls()),
            ((2, 3, 9, 7), (5, 3, 3, 3), cls(pads=(1, 1, 1, 1))),
            ((1, 4, 7, 9), (6, 4, 3, 2), cls(strides=(2, 3), pads=(0, 1, 2, 0))),
            ((1, 2, 9, 9), (3, 2, 3, 3), cls(dilations=(2, 3), pads=(2, 3, 2, 3))),
            ((1, 6, 5, 5), (4, 3, 2, 2), cls(group=2)),
            ((1, 4, 6, 6), (4, 1, 3, 3), cls(group=4, pads=(1, 1, 1, 1))),
            ((1, 3, 4, 5), (18, 1, 1, 1), cls(group=3)),
            ((1, 1, 1, 1), (1, 1, 1, 1), cls()),
            ((2, 3, 11), (4, 3, 5), cls(strides=(2,), pads=(2, 2), dilations=(2,))),
            ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), cls(pads=(1, 0, 1, 0, 1, 0))),
        )
        for x, w, op in table:
            inputs = samples.array(x), samples.array(w, seed=1)
            yield Example(op, (*inputs, samples.array(w[:1], seed=2)), 1e-5, 2e-5)
        without_bias = samples.array((1, 2, 5, 5)), samples.array((2, 2, 3, 3))
        yield Example(cls(), without_bias, 1e-5, 1e-5)
        for element, bound in (("i32", 0), ("f64", 1e-11), ("f16", 1e-2), ("bf16", 1e-1)):
            inputs = tuple(samples.array(s, element) for s in ((1, 3, 6, 6), (4, 3, 3, 3), (4,)))
            yield Example(cls(pads=(1, 1, 1, 1)), inputs, bound, bound)


def _with_bias(sums: Tensor, b: Tensor) -> Tensor:
    def body(*index: Index) -> Expr:
        return sums[index] + load(b, index[1:2])

    return compute(sums.shape, body, "bias", axes=sums.axes)
