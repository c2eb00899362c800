"""Transposed convolution over one, two or three spatial axes: every pixel paints a kernel.

    apply("conv_transpose", x, w, b, strides=(2, 2), pads=(1, 1, 1, 1))

    x f32[n, c, h, w], w f32[c, o / group, kh, kw], b f32[o]  ->  y f32[n, o, h', w']
    h' = s * (h - 1) + output_padding + d * (kh - 1) + 1 - pads, s the stride and d the dilation

A matrix product gives all that the pixels paint; the op `paint` adds it up where it falls, and
nothing is multiplied by a zero that is not in x or w. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from minidlc.expr.index import Cond, Index
from minidlc.expr.nodes import Expr, select
from minidlc.expr.types import Dim, TensorType
from minidlc.graph.graph import Node, Value, apply, tensor_type
from minidlc.graph.op import Example, Op, OpKind, Pattern, register_op
from minidlc.ops import rules, samples
from minidlc.ops.composing import in_wide, narrowed
from minidlc.ops.conv_gradients import bias_gradient
from minidlc.ops.elementwise import widened
from minidlc.ops.gradients import Grads, given
from minidlc.ops.rules import Values
from minidlc.ops.windows import Window, plain, plain_fields, spatial_names
from minidlc.te.tensor import Tensor, compute, reduce_axis, sum


@register_op
@dataclass(frozen=True)
class ConvTranspose(Op):
    """conv_transpose(x, w, b)[n, o, s*i + d*k - p] = b[o] + sum of x[n, c, i] * w[c, o, k].

    The sum is over c and every i and k that meet at this position; in 2-D and 3-D the same along
    each axis. With `group` = g, output channel o reads only the channels of its group.
    `pads` are cut off; `output_padding` is added at the end, where often nothing but b is.
    """

    onnx = "ConvTranspose"
    kind = OpKind.COMPOSITE
    optional = (2,)
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    group: int = 1
    output_padding: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        plain_fields(self)
        object.__setattr__(self, "output_padding", plain(self.output_padding, 0))

    def window(self, w: Iterable[int]) -> Window:
        """Kernel, strides and dilations (the pads are not those of a window: they cut off)."""
        return Window.resolve(self, tuple(w)[2:], self.strides, (), self.dilations)

    def margins(self, rank: int) -> list[tuple[int, int]]:
        """What is cut off at the begin and the end of each spatial axis, of all that is painted."""
        pads, extra = self.pads or (0,) * (2 * rank), self.output_padding or (0,) * rank
        rules.count(self, "pads", pads, 2 * rank, 0)
        rules.count(self, "output_padding", extra, rank, 0)
        return [(pads[a], pads[a + rank] - extra[a]) for a in range(rank)]

    def type_rule(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> TensorType:
        element = rules.elements(self, "float", *((x, w) if b is None else (x, w, b)))
        rules.rank(self, "x", x, 3, 4, 5)
        rules.rank(self, "w", w, x.rank)
        channels, per_group = w.dims[:2]
        if not rules.same_dim(x.shape[1], channels):
            text = f"x has {x.shape[1]} channels, w wants {channels}"
            rules.fail(self, text, rules.DIMS, "w has the shape [c, o / group, …]")
        if self.group < 1 or channels % self.group:
            rules.fail(self, f"group {self.group} does not divide {channels} channels", rules.RANGE)
        outputs = per_group * self.group
        if b is not None and (b.rank != 1 or not rules.same_dim(b.shape[0], outputs)):
            rules.fail(self, f"b must be {element}[{outputs}], got {b}", rules.DIMS)
        return TensorType(element, (x.shape[0], outputs, *self._out(x, w)))

    def _out(self, x: TensorType, w: TensorType) -> list[Dim]:
        window = self.window(w.dims)
        out: list[Dim] = []
        for axis, (begin, end) in enumerate(self.margins(window.rank)):
            size = (x.shape[axis + 2] - 1) * window.strides[axis]
            size += window.extents[axis] - begin - end
            if isinstance(size, int) and (size < 0 or not x.shape[axis + 2]):
                text = f"nothing is left of spatial axis {axis} of {x}: its size would be {size}"
                rules.fail(self, text, rules.DIMS)
            out.append(size)
        return out

    def reference(self, x: Values, w: Values, b: Values | None = None) -> Values:
        window, g = self.window(w.shape), self.group
        sizes = zip(window.strides, x.shape[2:], window.extents, strict=True)
        dims = [s * (n - 1) + e for s, n, e in sizes]
        grouped = widened(x).reshape(x.shape[0], g, w.shape[0] // g, *x.shape[2:])
        weight = widened(w).reshape(g, w.shape[0] // g, *w.shape[1:])
        painted = np.zeros((x.shape[0], g, w.shape[1], *dims), grouped.dtype)
        for offset, place in window.taps(painted, x.shape[2:]):
            place += np.einsum("ngc...,gco->ngo...", grouped, weight[(..., *offset)])
        painted = painted.reshape(x.shape[0], g * w.shape[1], *dims)
        margins = self.margins(window.rank)
        y = np.pad(painted, [(0, 0), (0, 0), *((0, max(-end, 0)) for _, end in margins)])
        kept = (slice(a, n - max(e, 0)) for n, (a, e) in zip(y.shape[2:], margins, strict=True))
        y = y[(..., *kept)]
        if b is not None:
            y = y + widened(b).reshape(-1, *[1] * window.rank)
        return y.astype(x.dtype, copy=False)

    def decompose(self, x: Value, w: Value, b: Value | None = None) -> Value:
        """Every product of a pixel and a tap is an element of a matrix product; `paint` adds them.

        A convolution over zeros put between the pixels or around them would multiply by those
        zeros: of an infinity in w that is NaN where the right value is finite.
        """
        window = self.window(tensor_type(w).dims)
        margins, strides = self.margins(window.rank), window.strides
        y = _products(in_wide(x), in_wide(w), self.group)
        if window.kernel != strides or window.extents != strides:  # else no two products meet
            y = _painted(y, window, margins)
            margins = [(begin % s, 0) for (begin, _), s in zip(margins, strides, strict=True)]
        y = _interleaved(y, window.rank)
        sizes = self._out(tensor_type(x), tensor_type(w))
        begins = [begin for begin, _ in margins]
        ends = [
            n - begin - size
            for n, begin, size in zip(tensor_type(y).dims[2:], begins, sizes, strict=True)
        ]
        if any(begins) or any(ends):
            y = apply("pad", y, pads=(0, 0, *(-v for v in begins), 0, 0, *(-v for v in ends)))
        if b is not None:
            y = y + apply("reshape", in_wide(b), shape=(-1, *[1] * window.rank))
        return narrowed(y, x)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """dx is the convolution of dy with w: each pixel collects from where it has painted."""
        x, w, *bias = y.inputs
        assert x is not None
        assert w is not None
        window = self.window(tensor_type(w).dims)
        margins, sizes = self.margins(window.rank), tensor_type(dy).dims[2:]
        ends = tuple(n + min(end, 0) for n, (_, end) in zip(sizes, margins, strict=True))
        painted = dy  # without what output_padding has put behind it, where no pixel paints
        if ends != sizes:
            axes = tuple(range(2, 2 + window.rank))
            painted = apply("slice", dy, starts=(0,) * window.rank, ends=ends, axes=axes)
        fields = {
            "strides": window.strides,
            "pads": (*(begin for begin, _ in margins), *(max(end, 0) for _, end in margins)),
            "dilations": window.dilations,
            "group": self.group,
        }
        dw = apply("conv_weight_gradient", painted, x, kernel_shape=window.kernel, **fields)
        return apply("conv", painted, w, **fields), dw, *bias_gradient(dy, bias)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """1-D to 3-D, strides, dilations and both, groups, pads of either sign, element types."""
        table: tuple[tuple[tuple[int, ...], tuple[int, ...], ConvTranspose], ...] = (
            ((1, 1, 3, 3), (1, 2, 3, 3), cls()),
            ((2, 3, 4, 5), (3, 4, 2, 2), cls((2, 2))),
            ((1, 4, 5, 4), (4, 3, 3, 2), cls((2, 3), (1, 0, 2, 1), output_padding=(1, 0))),
            ((1, 2, 3, 4), (2, 1, 2, 3), cls((1, 1), (1, 2, 1, 2), (2, 3))),
            ((1, 2, 4, 3), (2, 2, 3, 2), cls((3, 2), (), (2, 5))),
            ((1, 4, 3, 3), (4, 2, 3, 3), cls((2, 2), (1, 1, 1, 1), (), 2, (1, 1))),
            ((2, 3, 2, 2), (3, 1, 4, 4), cls((2, 2), (1, 1, 1, 1), (), 3)),
            ((1, 2, 3, 3), (2, 2, 1, 1), cls((3, 2), output_padding=(2, 1))),
            ((1, 1, 3, 2), (1, 1, 2, 2), cls((2, 2), (1, 0, 3, 0), (), 1, (1, 0))),
            ((1, 1, 1, 1), (1, 1, 1, 1), cls()),
            ((1, 2, 4, 4), (2, 1, 5, 5), cls((1, 1), (4, 2, 0, 3))),
            ((2, 3, 7), (3, 2, 4), cls((3,), (2, 1))),
            ((0, 2, 3), (2, 2, 2), cls((2,))),
            ((1, 2, 3, 2, 3), (2, 2, 2, 3, 2), cls((2, 1, 2), (0, 1, 0, 1, 1, 0))),
        )
        for x, w, op in table:
            inputs = samples.array(x), samples.array(w, seed=1)
            bias = samples.array((w[1] * op.group,), seed=2)
            yield Example(op, (*inputs, bias), 1e-5, 2e-5)
        without_bias = samples.array((1, 2, 3, 3)), samples.array((2, 2, 3, 3))
        yield Example(cls((2, 2)), without_bias, 1e-5, 1e-5)
        for op in (cls((3,), (2, 0), (3,)), cls((2,), (), (3,)), cls((3,)), cls()):
            for where in (0, 1):  # spoils what it paints and nothing else, also at the border
                spoilt = samples.array((1, 1, 4)), samples.array((1, 1, 2))
                spoilt[where][0, 0, 1] = np.inf
                yield Example(op, spoilt, 1e-5, 1e-5)
        for element, bound in (("f64", 1e-11), ("f16", 1e-2), ("bf16", 1e-1)):
            inputs = tuple(samples.array(s, element) for s in ((1, 3, 4, 4), (3, 4, 3, 3), (4,)))
            yield Example(cls((2, 2), (1, 1, 1, 1)), inputs, bound, bound)


@register_op
@dataclass(frozen=True)
class Paint(Op):
    """paint(x)[n, o, r, q] = the sum of x[n, o, k, i] where s*i + d*k = s*(first + q) + r.

    x holds what pixel i paints through tap k, the result what is painted at each position: phase
    r < s of round first + q, for `rounds` rounds. In 2-D and 3-D the same along each axis:
    x[n, o, kh, kw, h, w] -> y[n, o, rh, rw, qh, qw]. Phase by phase, so that the innermost loop
    runs over elements that lie side by side.
    """

    pattern = Pattern.OUT_FUSABLE
    schedule = "pool"
    rounds: tuple[int, ...]
    first: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, default in (("first", 0), ("strides", 1), ("dilations", 1)):
            object.__setattr__(self, name, plain(getattr(self, name), default))

    def window(self, shape: Sequence[int]) -> Window:
        """Kernel, strides and dilations."""
        kernel = shape[2 : 2 + len(self.rounds)]
        return Window.resolve(self, kernel, self.strides, (), self.dilations)

    def type_rule(self, x: TensorType) -> TensorType:
        rules.elements(self, "float", x)
        rules.rank(self, "x", x, 4, 6, 8)
        rank = x.rank // 2 - 1
        rules.count(self, "rounds", self.rounds, rank, 0)
        rules.count(self, "first", self.first or (0,) * rank, rank, 0)
        window = self.window(x.dims)
        return x.with_shape((*x.shape[:2], *window.strides, *self.rounds))

    def reference(self, x: Values) -> Values:
        window, rank = self.window(x.shape), len(self.rounds)
        pixels, first = x.shape[2 + rank :], self.first or (0,) * rank
        ends = [a + n for a, n in zip(first, self.rounds, strict=True)]
        sizes = zip(window.strides, pixels, window.extents, ends, strict=True)
        dims = [max(s * max(n - 1, 0) + e, end * s) for s, n, e, end in sizes]
        painted = np.zeros((*x.shape[:2], *dims), x.dtype)
        if all(pixels):
            for offset, place in window.taps(painted, pixels):
                place += x[(slice(None), slice(None), *offset)]
        cut = (slice(a * s, end * s) for a, s, end in zip(first, window.strides, ends, strict=True))
        pairs = (v for q, s in zip(self.rounds, window.strides, strict=True) for v in (q, s))
        y = painted[(..., *cut)].reshape(*x.shape[:2], *pairs)
        at = range(2, 2 + 2 * rank)
        return np.transpose(y, (0, 1, *at[1::2], *at[::2])).copy()

    def compute(self, x: Tensor) -> Tensor:
        window, rank = self.window(x.shape), len(self.rounds)
        taps = [
            reduce_axis(-(-extent // (s * _step(s, d))), f"k{name}")
            for s, d, extent, name in zip(
                window.strides, window.dilations, window.extents, spatial_names(rank), strict=True
            )
        ]

        def body(n: Index, o: Index, *at: Index) -> Expr:
            where, inside = [n, o, *at], Cond(())
            for a, (s, d) in enumerate(zip(window.strides, window.dilations, strict=True)):
                far = taps[a].index * _step(s, d)  # this tap paints so many rounds further
                offset = far * s + at[a]
                where[2 + a] = offset // d
                where[2 + rank + a] = at[rank + a] + (self.first[a] if self.first else 0) - far
                inside &= where[2 + a] < window.kernel[a]
                inside &= offset % d < 1
                inside &= where[2 + rank + a] >= 0
                inside &= where[2 + rank + a] < x.shape[2 + rank + a]
            return sum(select(inside, x[tuple(where)], 0), *taps)

        names = spatial_names(rank)
        axes = ("n", "o", *(f"r{name}" for name in names), *names)
        return compute(self.type_rule(x.type).dims, body, self.name, axes=axes)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """Each product looks up where it was painted; what lies outside the rounds is 0."""
        (x,) = given(y)
        shape, rank = tensor_type(x).dims, len(self.rounds)
        window, first = self.window(shape), self.first or (0,) * rank
        painted = _interleaved(dy, rank)
        painted = apply("pad", painted, pads=(*[0] * (2 + rank), 0, 0, *[1] * rank))
        for a, (s, d) in enumerate(zip(window.strides, window.dilations, strict=True)):
            taps, pixels, end = (
                np.arange(shape[2 + a]),
                np.arange(shape[2 + rank + a]),
                s * self.rounds[a],
            )
            place = d * taps[:, None] + s * (pixels - first[a])
            inside = np.where((place >= 0) & (place < end), place, end)
            painted = apply("gather", painted, inside, axis=2 + 2 * a)
        order = (0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 3 + 2 * rank, 2))
        return (apply("transpose", painted, perm=order),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Strides, dilations and both; more rounds than are painted, fewer, none."""
        for shape, op in (
            ((1, 1, 3, 4), cls((6,))), ((2, 3, 3, 4), cls((4,), (1,))),
            ((1, 2, 3, 4), cls((8,), (), (2,))), ((1, 2, 5, 3), cls((3,), (1,), (2,))),
            ((1, 2, 1, 3), cls((3,), (), (3,))), ((1, 2, 2, 4), cls((9,), (), (), (3,))),
            ((1, 2, 3, 4), cls((7,), (), (2,), (3,))), ((1, 1, 3, 4), cls((5,), (2,), (4,), (2,))),
            ((1, 2, 3, 2, 4, 5), cls((5, 6), (), (2, 1), (1, 2))), ((1, 1, 2, 3), cls((0,))),
            ((0, 1, 2, 3), cls((4,))), ((1, 1, 2, 1, 3, 2, 2, 3), cls((3, 2, 4), (), (1, 2, 2))),
        ):  # fmt: skip
            yield Example(op, (samples.array(shape),), 1e-6, 1e-6)
        for element, bound in (("f64", 1e-12), ("f16", 1e-2), ("bf16", 1e-1)):
            x = samples.array((1, 2, 3, 4), element)
            yield Example(cls((4,), (), (2,)), (x,), bound, bound)
        unlike = np.array([np.inf, -np.inf, np.nan, 1], np.float32).reshape(1, 1, 1, 4)
        yield Example(cls((5,), (), (2,)), (unlike,), 0, 0)


def _step(stride: int, dilation: int) -> int:
    """How many rounds apart one tap and the next paint, where all taps fall in phase 0; else 1.

    By 1 the holes between taps are visited too: which of them are taps differs from phase to phase.
    """
    return 1 if dilation % stride else dilation // stride


def _products(x: Value, w: Value, group: int) -> Value:
    """x[n, c, i] and w[c, o, k] -> [n, o, k, i]: the sum over c of x * w, o in all groups."""
    channels, o, *kernel = tensor_type(w).dims
    batch, _, *pixels = tensor_type(x).dims
    groups = (group,) if group > 1 else ()
    w = apply("reshape", w, shape=(*groups, channels // group, o * math.prod(kernel)))
    x = apply("reshape", x, shape=(batch, *groups, channels // group, math.prod(pixels)))
    y = apply("matmul", apply("transpose", w, perm=(0, 2, 1) if groups else (1, 0)), x)
    return apply("reshape", y, shape=(batch, group * o, *kernel, *pixels))


def _painted(y: Value, window: Window, margins: Sequence[tuple[int, int]]) -> Value:
    """[n, o, k, i] -> [n, o, r, q]: the rounds of which anything is left between the margins."""
    pixels = tensor_type(y).dims[2 + window.rank :]
    axes = list(zip(window.strides, pixels, window.extents, margins, strict=True))
    first = tuple(begin // s for s, _, _, (begin, _) in axes)
    ends = (-(-(s * (n - 1) + extent - end) // s) for s, n, extent, (_, end) in axes)
    rounds = tuple(max(end - a, 0) for end, a in zip(ends, first, strict=True))
    return apply("paint", y, rounds=rounds, first=first, strides=window.strides,
                 dilations=window.dilations)  # fmt: skip


def _interleaved(y: Value, rank: int) -> Value:
    """[n, o, r, q] as [n, o, q * s]: what each phase holds, side by side."""
    batch, outputs, *dims = tensor_type(y).dims
    counts, rounds = dims[:rank], dims[rank:]
    if max(counts) > 1:
        pairs = (v for a in range(rank) for v in (2 + rank + a, 2 + a))
        y = apply("transpose", y, perm=(0, 1, *pairs))
    sizes = (size * count for size, count in zip(rounds, counts, strict=True))
    return apply("reshape", y, shape=(batch, outputs, *sizes))
