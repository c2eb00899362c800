"""Channels in blocks: images as f32[n, c / 8, h, w, 8], and the convolutions of such images.

    y = apply("pack", x, block=8)                   # f32[1, 12, h, w] -> f32[1, 2, h, w, 8]
    z = apply("conv2d_nchwc", y, w, pads=(1, 1, 1, 1))      # w f32[o / 8, 2, 3, 3, 8, 8]
    apply("unpack", z, channels=20)                 # f32[1, 3, h, w, 8] -> f32[1, 20, h, w]

One vector then holds neighbouring channels of one pixel, whatever the width of the image. The last
block is filled up with zeros. Elementwise ops, pools (a kernel of 1 along the last axis) and means
over h and w take a blocked image as it is. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.index import Index
from minidlc.expr.nodes import Expr, const, select
from minidlc.expr.types import Dim, TensorType, bool_
from minidlc.graph.graph import Node, Value, apply, build, tensor_type
from minidlc.graph.op import Example, Op, Pattern, register_op
from minidlc.ops import rules, samples
from minidlc.ops.conv import Conv
from minidlc.ops.elementwise import axis_names, load, rounded
from minidlc.ops.gradients import Grads, given
from minidlc.ops.rules import Values
from minidlc.ops.windows import Window, padded, plain_fields
from minidlc.te.tensor import ReduceAxis, Tensor, compute, reduce_axis, sum

READ_AXES = ("n", "c", "h", "w", "i")  # of a blocked image: c the block, i the place in it
AXES = ("n", "o", "h", "w", "l")  # the same of a result


def pack_array(x: Values, axis: int, block: int) -> Values:
    """NumPy: `axis` in blocks of `block`, the place in the block as a new last axis."""
    rest = -x.shape[axis] % block
    filled = np.pad(x, [(0, rest if a == axis else 0) for a in range(x.ndim)])
    shape = (*x.shape[:axis], (x.shape[axis] + rest) // block, block, *x.shape[axis + 1 :])
    return np.ascontiguousarray(np.moveaxis(filled.reshape(shape), axis + 1, -1))


def unpack_array(x: Values, axis: int, channels: int) -> Values:
    """NumPy: the inverse of `pack_array`, `channels` of them."""
    y = np.moveaxis(x, -1, axis + 1)
    shape = (*y.shape[:axis], y.shape[axis] * y.shape[axis + 1], *y.shape[axis + 2 :])
    keep = (*[slice(None)] * axis, slice(channels))
    return np.ascontiguousarray(y.reshape(shape)[keep])


@register_op
@dataclass(frozen=True)
class Pack(Op):
    """pack(x)[n, o, h, w, l] = x[n, o * block + l, h, w], 0 where there is no such channel.

    Any axis may be the one in blocks: of weights [o, c, kh, kw] first axis 1, then axis 0.
    """

    pattern = Pattern.INJECTIVE
    block: int
    axis: int = 1

    def type_rule(self, x: TensorType) -> TensorType:
        axis = rules.axis(self, self.axis, x.rank)
        size = x.shape[axis]
        if self.block < 1:
            rules.fail(self, f"block must be at least 1, got {self.block}", rules.RANGE)
        if not isinstance(size, int):
            rules.fail(self, f"axis {axis} of {x} must have a known size", rules.SYMBOLIC)
        blocks = -(-size // self.block)
        return x.with_shape((*x.shape[:axis], blocks, *x.shape[axis + 1 :], self.block))

    def reference(self, x: Values) -> Values:
        return pack_array(x, self.axis % x.ndim, self.block)

    def compute(self, x: Tensor) -> Tensor:
        axis = self.axis % len(x.shape)
        channels, zero = x.shape[axis], const(False if x.dtype == bool_ else 0, x.dtype)

        def body(*index: Index) -> Expr:
            channel = index[axis] * self.block + index[-1]
            value = x[(*index[:axis], channel, *index[axis + 1 : -1])]
            return select(channel < channels, value, zero) if channels % self.block else value

        shape = self.type_rule(x.type).dims
        return compute(shape, body, self.name, axes=axis_names(len(shape)))

    def gradient(self, y: Node, dy: Value) -> Grads:
        (x,) = given(y)
        axis = rules.axis(self, self.axis, tensor_type(x).rank)
        return (apply("unpack", dy, channels=tensor_type(x).dims[axis], axis=axis),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Whole blocks, a rest, fewer channels than a block; other axes; element types."""
        for shape, block in (((2, 8, 3, 5), 4), ((1, 6, 2, 3), 4), ((2, 3, 3, 2), 8)):
            yield Example(cls(block), (samples.array(shape),), 0, 0)
        for shape, axis in (((5, 4, 1, 1, 2), 0), ((7,), 0), ((2, 3, 4), -1), ((1, 0, 2, 2), 1)):
            yield Example(cls(4, axis), (samples.array(shape),), 0, 0)
        for element in ("f64", "f16", "bf16", "i8", "u8", "bool"):
            yield Example(cls(2), (samples.array((1, 3, 2, 2), element),), 0, 0)


@register_op
@dataclass(frozen=True)
class Unpack(Op):
    """unpack(x)[n, c, h, w] = x[n, c // b, h, w, c % b] for c below `channels`; b is the block."""

    pattern = Pattern.INJECTIVE
    channels: int
    axis: int = 1

    def type_rule(self, x: TensorType) -> TensorType:
        if x.rank < 2:
            rules.fail(self, f"x must have blocks and places in them, got {x}", rules.RANK)
        axis = rules.axis(self, self.axis, x.rank - 1)
        blocks, block = x.shape[axis], x.shape[-1]
        if not (isinstance(blocks, int) and isinstance(block, int)):
            rules.fail(self, f"the blocks of {x} must have known sizes", rules.SYMBOLIC)
        if not 0 <= self.channels <= blocks * block:
            text = f"{blocks} blocks of {block} do not hold {self.channels} channels"
            rules.fail(self, text, rules.RANGE)
        return x.with_shape((*x.shape[:axis], self.channels, *x.shape[axis + 1 : -1]))

    def reference(self, x: Values) -> Values:
        return unpack_array(x, self.axis % (x.ndim - 1), self.channels)

    def compute(self, x: Tensor) -> Tensor:
        axis, block = self.axis % (len(x.shape) - 1), x.shape[-1]

        def body(*index: Index) -> Expr:
            c = index[axis]
            return x[(*index[:axis], c // block, *index[axis + 1 :], c % block)]

        shape = self.type_rule(x.type).dims
        return compute(shape, body, self.name, axes=axis_names(len(shape)))

    def gradient(self, y: Node, dy: Value) -> Grads:
        """What the channels leave empty of the last blocks gets 0."""
        (x,) = given(y)
        type, axis = tensor_type(x), rules.axis(self, self.axis, tensor_type(x).rank - 1)
        packed = apply("pack", dy, block=type.dims[-1], axis=axis)
        pads = [0] * (2 * type.rank)
        pads[type.rank + axis] = type.dims[axis] - tensor_type(packed).dims[axis]
        return (apply("pad", packed, pads=tuple(pads)) if any(pads) else packed,)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Whole blocks, a rest, part of one block; other axes; element types."""
        for shape, channels in (((2, 2, 3, 5, 4), 8), ((1, 2, 2, 3, 4), 6), ((1, 1, 2, 2, 8), 3)):
            yield Example(cls(channels), (samples.array(shape),), 0, 0)
        for shape, axis in (((2, 4, 4), 0), ((2, 4), 0), ((2, 3, 2, 4), -1)):
            yield Example(cls(5, axis), (samples.array(shape),), 0, 0)
        for element in ("f64", "f16", "bf16", "i8", "u8", "bool"):
            yield Example(cls(3), (samples.array((1, 2, 2, 2, 2), element),), 0, 0)


@dataclass(frozen=True)
class BlockedConv(Op):
    """Base: the geometry of a 2-D convolution; () means ones (strides, dilations) or zeros."""

    pattern = Pattern.OUT_FUSABLE
    optional = (2,)
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        plain_fields(self)

    def window(self, kernel: Iterable[int]) -> Window:
        """The geometry for a kernel of this height and width."""
        return Window.resolve(self, tuple(kernel), self.strides, self.pads, self.dilations)

    def result(
        self, x: TensorType, kernel: tuple[int, ...], outputs: tuple[int, int], b: TensorType | None
    ) -> TensorType:
        """Type of the result: `outputs` are the blocks of channels and their size, as of b."""
        if b is not None and tuple(b.shape) != outputs:
            blocks, block = outputs
            rules.fail(self, f"b must be {x.dtype}[{blocks}, {block}], got {b}", rules.DIMS)
        height, width = self.window(kernel).out_dims(self, x.shape[2:4])
        shape: tuple[Dim, ...] = (x.shape[0], outputs[0], height, width, outputs[1])
        return x.with_shape(shape)

    def bordered(self, x: Tensor, window: Window) -> Tensor:
        """The image with a border of zeros around h and w."""
        if len(x.shape) == 4:
            return padded(x, window.pads, 0)
        top, left, bottom, right = window.pads
        return padded(x, (top, left, 0, bottom, right, 0), 0, axes=READ_AXES)

    def finished(self, sums: Tensor, b: Tensor | None, out: TensorType) -> Tensor:
        """The sums with their bias, in the element type of the result."""

        def biased(*index: Index) -> Expr:
            assert b is not None
            return sums[index] + load(b, (index[1], index[4]))

        y = sums if b is None else compute(out.dims, biased, "bias", axes=AXES)
        return rounded(y, out.dtype, "rounded")

    def _reference(self, conv: Conv, x: Values, w: Values, b: Values | None, block: int) -> Values:
        """What `conv` gives on plain arrays, in blocks."""
        outputs = w.shape[0]
        bias = None if b is None else unpack_array(b, 0, outputs)
        return pack_array(conv.reference(x, w, bias), 1, block)

    def _plain(self, conv: Conv, x: Value, w: Value, b: Value | None, block: int) -> Value:
        """Graph side of `_reference`: what the gradient is made of; runs never take this way."""
        bias = None if b is None else _unpacked(b, 0, tensor_type(w).dims[0])
        return apply("pack", build(conv, [x, w, bias]), block=block)


@register_op
@dataclass(frozen=True)
class Conv2dNchwc(BlockedConv):
    """conv2d_nchwc(x, w, b)[n, o, h, w, l] = b[o, l] + sum over c, kh, kw, i of

    x'[n, c, s*h + d*kh, s*w + d*kw, i] * w[o, c, kh, kw, i, l], where x' is x with a border of
    zeros. A plain x[n, c, h, w], an image of few channels, takes w[o, c, kh, kw, l].
    """

    name = "conv2d_nchwc"
    schedule = "conv_nchwc"

    def type_rule(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> TensorType:
        rules.elements(self, rules.NUMBERS, *((x, w) if b is None else (x, w, b)))
        rules.rank(self, "x", x, 4, 5)
        rules.rank(self, "w", w, x.rank + 1)
        wanted = w.dims[1:2] if x.rank == 4 else (w.dims[1], w.dims[4])
        found = x.shape[1:2] if x.rank == 4 else (x.shape[1], x.shape[4])
        if not all(rules.same_dim(a, b) for a, b in zip(found, wanted, strict=True)):
            text = f"x has {_times(found)} channels, w wants {_times(wanted)}"
            rules.fail(self, text, rules.DIMS)
        return self.result(x, w.dims[2:4], (w.dims[0], w.dims[-1]), b)

    def reference(self, x: Values, w: Values, b: Values | None = None) -> Values:
        block, (blocks, inner) = w.shape[-1], w.shape[:2]
        w = unpack_array(w, 0, blocks * block)
        if x.ndim == 5:
            channels = inner * x.shape[-1]
            x, w = unpack_array(x, 1, channels), unpack_array(w, 1, channels)
        return self._reference(Conv(self.strides, self.pads, self.dilations), x, w, b, block)

    def decompose(self, x: Value, w: Value, b: Value | None = None) -> Value:
        dims = tensor_type(w).dims
        w = _unpacked(w, 0, dims[0] * dims[-1])
        if tensor_type(x).rank == 5:
            channels = dims[1] * tensor_type(x).dims[-1]
            x, w = _unpacked(x, 1, channels), _unpacked(w, 1, channels)
        return self._plain(Conv(self.strides, self.pads, self.dilations), x, w, b, dims[-1])

    def compute(self, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        out = self.type_rule(x.type, w.type, None if b is None else b.type)
        window = self.window(w.shape[2:4])
        border, taps = self.bordered(x, window), window.axes()
        c = reduce_axis(w.shape[1], "c")
        places: tuple[ReduceAxis, ...] = ()
        if len(x.shape) == 5:
            places = (reduce_axis(x.shape[4], "i"),)
        inner = tuple(p.index for p in places)

        def product(n: Index, o: Index, row: Index, column: Index, lane: Index) -> Expr:
            pixel = window.position((row, column), taps)
            value = load(border, (n, c.index, *pixel, *inner))
            weight = load(w, (o, c.index, *(t.index for t in taps), *inner, lane))
            return sum(value * weight, c, *taps, *places)

        y = compute(out.dims, product, self.name, axes=AXES)
        return self.finished(y, b, out)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Blocks of two sizes, strides, dilations, one-sided pads, plain images, element types."""
        pads = (1, 1, 1, 1)
        table: tuple[tuple[tuple[int, ...], tuple[int, ...], Conv2dNchwc], ...] = (
            ((1, 1, 4, 3, 2), (1, 1, 3, 3, 2, 2), cls(pads=pads)),
            ((2, 2, 6, 7, 4), (3, 2, 3, 3, 4, 4), cls(pads=pads)),
            ((1, 2, 7, 9, 4), (2, 2, 3, 2, 4, 8), cls((2, 3), (0, 1, 2, 0))),
            ((1, 1, 9, 9, 8), (2, 1, 3, 3, 8, 8), cls((), (2, 3, 2, 3), (2, 3))),
            ((1, 3, 5, 5, 8), (2, 3, 1, 1, 8, 8), cls()),
            ((1, 2, 1, 1, 4), (1, 2, 1, 1, 4, 4), cls()),
            ((1, 3, 4, 4), (1, 3, 2, 2, 2), cls()),
            ((2, 3, 9, 7), (2, 3, 3, 3, 8), cls((2, 2), pads)),
        )
        for x, w, op in table:
            inputs = samples.array(x), samples.array(w, seed=1)
            yield Example(op, inputs, 1e-5, 2e-5)
            bias = samples.array((w[0], w[-1]), seed=2)
            yield Example(op, (*inputs, bias), 1e-5, 2e-5)
        shapes = (1, 2, 4, 4, 2), (2, 2, 3, 3, 2, 2), (2, 2)
        for element, bound in (("i32", 0), ("f64", 1e-11), ("f16", 1e-2), ("bf16", 1e-1)):
            inputs = tuple(samples.array(s, element) for s in shapes)
            yield Example(cls(pads=pads), inputs, bound, bound)


@register_op
@dataclass(frozen=True)
class DepthwiseNchwc(BlockedConv):
    """depthwise_nchwc(x, w, b)[n, c, h, w, l] = b[c, l] + sum over kh, kw of

    x'[n, c, s*h + d*kh, s*w + d*kw, l] * w[c, kh, kw, l]: each channel by itself.
    """

    schedule = "depthwise_nchwc"

    def type_rule(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> TensorType:
        rules.elements(self, rules.NUMBERS, *((x, w) if b is None else (x, w, b)))
        rules.rank(self, "x", x, 5)
        rules.rank(self, "w", w, 4)
        outputs = w.dims[0], w.dims[-1]
        found = x.shape[1], x.shape[4]
        if not all(rules.same_dim(a, b) for a, b in zip(found, outputs, strict=True)):
            text = f"x has {_times(found)} channels, w wants {_times(outputs)}"
            rules.fail(self, text, rules.DIMS)
        return self.result(x, w.dims[1:3], outputs, b)

    def reference(self, x: Values, w: Values, b: Values | None = None) -> Values:
        channels = w.shape[0] * w.shape[-1]
        conv = Conv(self.strides, self.pads, self.dilations, channels)
        plain = unpack_array(w, 0, channels)[:, np.newaxis]
        return self._reference(conv, unpack_array(x, 1, channels), plain, b, w.shape[-1])

    def decompose(self, x: Value, w: Value, b: Value | None = None) -> Value:
        dims = tensor_type(w).dims
        channels = dims[0] * dims[-1]
        conv = Conv(self.strides, self.pads, self.dilations, channels)
        plain = apply("unsqueeze", _unpacked(w, 0, channels), axes=(1,))
        return self._plain(conv, _unpacked(x, 1, channels), plain, b, dims[-1])

    def compute(self, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        out = self.type_rule(x.type, w.type, None if b is None else b.type)
        window = self.window(w.shape[1:3])
        border, taps = self.bordered(x, window), window.axes()

        def product(n: Index, c: Index, row: Index, column: Index, lane: Index) -> Expr:
            pixel = window.position((row, column), taps)
            weight = load(w, (c, *(t.index for t in taps), lane))
            return sum(load(border, (n, c, *pixel, lane)) * weight, *taps)

        y = compute(out.dims, product, self.name, axes=AXES)
        return self.finished(y, b, out)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Strides, dilations, one-sided pads, one tap, element types."""
        pads = (1, 1, 1, 1)
        table: tuple[tuple[tuple[int, ...], tuple[int, ...], DepthwiseNchwc], ...] = (
            ((1, 1, 4, 3, 2), (1, 3, 3, 2), cls(pads=pads)),
            ((2, 2, 6, 7, 8), (2, 3, 3, 8), cls((2, 2), pads)),
            ((1, 3, 9, 9, 4), (3, 3, 2, 4), cls((1, 2), (2, 0, 1, 3), (2, 3))),
            ((1, 2, 3, 3, 4), (2, 1, 1, 4), cls()),
        )
        for x, w, op in table:
            inputs = samples.array(x), samples.array(w, seed=1)
            yield Example(op, inputs, 1e-5, 1e-5)
            yield Example(op, (*inputs, samples.array((w[0], w[-1]), seed=2)), 1e-5, 1e-5)
        shapes = (1, 2, 4, 4, 2), (2, 3, 3, 2), (2, 2)
        for element, bound in (("i32", 0), ("f64", 1e-11), ("f16", 1e-2), ("bf16", 1e-1)):
            inputs = tuple(samples.array(s, element) for s in shapes)
            yield Example(cls(pads=pads), inputs, bound, bound)


def _unpacked(x: Value, axis: int, channels: int) -> Value:
    return apply("unpack", x, axis=axis, channels=channels)


def _times(sizes: tuple[Dim, ...]) -> str:
    return " x ".join(map(str, sizes))
