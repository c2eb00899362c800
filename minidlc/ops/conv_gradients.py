"""How a loss changes with the weights of a convolution; with its input: a transposed convolution.

    apply("conv_weight_gradient", x, dy, kernel_shape=(3, 3), pads=(1, 1, 1, 1))

    x f32[n, c, h, w], dy f32[n, o, h', w']  ->  dw f32[o, c / group, kh, kw]

A convolution is linear in its input and in its weights. So three ops are closed under gradients:
conv(x, w), conv_transpose(dy, w), which is its transpose in x, and this one, which is that in w.
Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from minidlc.expr.index import Index
from minidlc.expr.nodes import Expr
from minidlc.expr.types import TensorType
from minidlc.graph.graph import Node, Value, apply, tensor_type
from minidlc.graph.op import Example, Op, Pattern, register_op
from minidlc.ops import rules, samples
from minidlc.ops.elementwise import load, rounded, widened
from minidlc.ops.gradients import Grads, given
from minidlc.ops.rules import Values
from minidlc.ops.windows import Window, pad_array, padded, plain_fields, spatial_names
from minidlc.te.tensor import Tensor, compute, reduce_axis, sum

BORDER = 1.5  # times as many products as windows ask for, at most, with a border of zeros


@register_op
@dataclass(frozen=True)
class ConvWeightGradient(Op):
    """conv_weight_gradient(x, dy)[o, c, kh] = sum over n, h of x'[n, c, s*h + d*kh] * dy[n, o, h].

    In 2-D and 3-D the same along w and d. x' is x with a border of zeros; `strides`, `pads`,
    `dilations` and `group` are those of the convolution, dy has the shape of its result, and
    `kernel_shape` that of its window, which strides larger than 1 leave open.
    """

    pattern = Pattern.OUT_FUSABLE
    schedule = "conv_weight"
    kernel_shape: tuple[int, ...]
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    group: int = 1

    def __post_init__(self) -> None:
        plain_fields(self)

    @property
    def window(self) -> Window:
        """The geometry."""
        return Window.resolve(self, self.kernel_shape, self.strides, self.pads, self.dilations)

    def type_rule(self, x: TensorType, dy: TensorType) -> TensorType:
        element = rules.elements(self, "float", x, dy)
        rules.rank(self, "x", x, 3, 4, 5)
        rules.rank(self, "dy", dy, x.rank)
        rules.count(self, "kernel_shape", self.kernel_shape, x.rank - 2, 1)
        channels, outputs = x.dims[1], dy.dims[1]
        if self.group < 1 or outputs % self.group or channels % self.group:
            text = f"group {self.group} does not divide {channels} channels and {outputs} outputs"
            rules.fail(self, text, rules.RANGE)
        wanted = (x.shape[0], outputs, *self.window.out_dims(self, x.shape[2:]))
        if not all(map(rules.same_dim, dy.shape, wanted)):
            text = f"the windows over {x} give {x.with_shape(wanted)}, got dy {dy}"
            rules.fail(self, text, rules.DIMS)
        return TensorType(element, (outputs, channels // self.group, *self.kernel_shape))

    def reference(self, x: Values, dy: Values) -> Values:
        window, g, n = self.window, self.group, x.shape[0]
        border, out = pad_array(widened(x), window.pads, 0), dy.shape[2:]
        dy = widened(dy).reshape(n, g, dy.shape[1] // g, math.prod(out))
        dw = np.zeros((g, dy.shape[2], x.shape[1] // g, *window.kernel), border.dtype)
        for offset, tap in window.taps(border, out):
            grouped = tap.reshape(n, g, x.shape[1] // g, math.prod(out))
            dw[(..., *offset)] = np.einsum("ngcp,ngop->goc", grouped, dy)
        return dw.reshape(-1, *dw.shape[2:]).astype(x.dtype, copy=False)

    def compute(self, x: Tensor, dy: Tensor) -> Tensor:
        out, window = self.type_rule(x.type, dy.type), self.window
        border = padded(x, window.pads, 0)
        per_group, outputs = out.dims[1], out.dims[0] // self.group
        names = spatial_names(window.rank)
        n = reduce_axis(x.shape[0], "n")
        pixel = tuple(reduce_axis(size, a) for size, a in zip(dy.shape[2:], names, strict=True))
        steps = list(zip(pixel, window.strides, window.dilations, strict=True))

        def product(o: Index, c: Index, *tap: Index) -> Expr:
            channel = c if self.group == 1 else o // outputs * per_group + c
            where = tuple(p.index * s + k * d for k, (p, s, d) in zip(tap, steps, strict=True))
            value = load(border, (n.index, channel, *where))
            return sum(value * load(dy, (n.index, o, *(p.index for p in pixel))), n, *pixel)

        axes = ("o", "c", *(f"k{name}" for name in names))
        return rounded(compute(out.dims, product, self.name, axes=axes), out.dtype, "rounded")

    def gradient(self, y: Node, dy: Value) -> Grads:
        """dy takes the place of the weights: linear in x and in what came from above."""
        x, above = given(y)
        fields = self.attributes()
        del fields["kernel_shape"]
        dx = input_gradient(x, dy, above, self.window, self.group)
        return dx, apply("conv", x, dy, **fields)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """1-D to 3-D, strides that skip pixels, dilations, groups, one-sided pads, types."""
        table: tuple[tuple[tuple[int, ...], int, ConvWeightGradient], ...] = (
            ((1, 1, 8, 8), 1, cls((3, 3))),
            ((2, 3, 9, 7), 5, cls((3, 3), pads=(1, 1, 1, 1))),
            ((1, 4, 7, 9), 6, cls((3, 2), (2, 3), (0, 1, 2, 0))),
            ((1, 2, 9, 9), 3, cls((3, 3), (), (2, 3, 2, 3), (2, 3))),
            ((2, 6, 5, 5), 4, cls((2, 2), group=2)),
            ((3, 4, 6, 6), 4, cls((3, 3), pads=(1, 1, 1, 1), group=4)),
            ((1, 3, 4, 5), 18, cls((1, 1), group=3)),
            ((1, 1, 1, 1), 1, cls((1, 1))),
            ((0, 2, 4, 4), 3, cls((2, 2))),
            ((2, 3, 11), 4, cls((5,), (2,), (2, 2), (2,))),
            ((1, 2, 4, 5, 6), 3, cls((2, 3, 2), pads=(1, 0, 1, 0, 1, 0))),
        )
        for shape, outputs, op in table:
            yield Example(op, op.sample(shape, outputs), 1e-5, 5e-5)
        op = cls((3, 3), pads=(1, 1, 1, 1))
        for element, bound in (("f64", 1e-11), ("f16", 1e-2), ("bf16", 1e-1)):
            yield Example(op, op.sample((1, 3, 6, 6), 4, element), bound, bound)

    def sample(
        self, shape: Sequence[int], outputs: int, element: str = "f32"
    ) -> tuple[Values, Values]:
        """An x of this shape, and a dy of so many channels that fits it."""
        x = samples.array(shape, element)
        pixels = (d for d in self.window.out_dims(self, shape[2:]) if isinstance(d, int))
        return x, samples.array((shape[0], outputs, *pixels), element, seed=1)


def bias_gradient(dy: Value, bias: Sequence[Value | None]) -> Grads:
    """Of an input that is added to every pixel of its channel, or left out: the sum of their dy."""
    axes = tuple(axis for axis in range(tensor_type(dy).rank) if axis != 1)
    return tuple(None if b is None else apply("sum", dy, axes=axes, keepdims=False) for b in bias)


def input_gradient(x: Value, w: Value, dy: Value, window: Window, group: int) -> Value:
    """How the loss changes with the input of conv(x, w), given how it changes with the result.

    Pixel i of x is read through tap k by the window at h where s*h + d*k - p = i: dx[i] is the sum
    of w[k] * dy[h]. With s = 1 that is a convolution of dy with the taps in reverse. In general it
    is a transposed one, which multiplies by no border: it is also taken where that would be large.
    """
    axes = list(
        zip(
            tensor_type(x).dims[2:], tensor_type(dy).dims[2:], window.strides, window.extents,
            window.pads[: window.rank], window.pads[window.rank :], strict=True,
        )
    )  # fmt: skip
    begins = tuple(e - 1 - begin for _, _, _, e, begin, _ in axes)
    ends = tuple(e - 1 - end for _, _, _, e, _, end in axes)
    small = math.prod(n for n, *_ in axes) <= BORDER * math.prod(m for _, m, *_ in axes)
    if max(window.strides) == 1 and min(*begins, *ends) >= 0 and small:
        fields = {"pads": (*begins, *ends), "dilations": window.dilations, "group": group}
        return apply("conv", dy, reversed_taps(w, group), **fields)
    rest = tuple(n - (s * (m - 1) + e - begin - end) for n, m, s, e, begin, end in axes)
    return apply(
        "conv_transpose", dy, w, strides=window.strides, pads=window.pads,
        dilations=window.dilations, group=group, output_padding=rest,
    )  # fmt: skip


def reversed_taps(w: Value, group: int) -> Value:
    """w[o, c, k] as [c, o, K - 1 - k] for each group: inputs and outputs change places."""
    outputs, channels, *kernel = tensor_type(w).dims
    taps = tuple(range(2, 2 + len(kernel)))
    turned = tuple(axis for axis, size in zip(taps, kernel, strict=True) if size > 1)
    if turned:
        last, before = (-1,) * len(turned), (-(2**31),) * len(turned)
        w = apply("slice", w, starts=last, ends=before, axes=turned, steps=last)
    if group > 1:
        w = apply("reshape", w, shape=(group, outputs // group, channels, *kernel))
        w = apply("transpose", w, perm=(0, 2, 1, *(axis + 1 for axis in taps)))
        return apply("reshape", w, shape=(group * channels, outputs // group, *kernel))
    return apply("transpose", w, perm=(1, 0, *taps))
