"""Transposed convolution over one, two or three spatial axes: every pixel paints a kernel.

    apply("conv_transpose", x, w, b, strides=(2, 2), pads=(1, 1, 1, 1))

    x f32[n, c, h, w], w f32[c, o / group, kh, kw], b f32[o]  ->  y f32[n, o, h', w']
    h' = s * (h - 1) + output_padding + d * (kh - 1) + 1 - pads, s the stride and d the dilation

It is an ordinary convolution in disguise, so the schedule of `conv` serves it. Treated in course
chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import Dim, TensorType
from minidlc.graph.graph import Value, apply, tensor_type
from minidlc.graph.op import Example, Op, OpKind, register_op
from minidlc.ops import rules, samples
from minidlc.ops.composing import in_wide, narrowed
from minidlc.ops.elementwise import widened
from minidlc.ops.rules import Values
from minidlc.ops.slicing import INT64
from minidlc.ops.windows import Window, plain, plain_fields


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
        """A convolution for each phase o % s of the result, all in one; then they are interleaved.

        y[s*q + r] = sum over j of w[s*j + r] * x[q - j]: for each r < s an ordinary convolution
        with every s-th tap, which no inserted zero is multiplied in.
        """
        window = self.window(tensor_type(w).dims)
        axes = [
            _Phases.of(s, d, k, begin, end)
            for s, d, k, (begin, end) in zip(
                window.strides, window.dilations, window.kernel, self.margins(window.rank),
                strict=True,
            )
        ]  # fmt: skip
        pads = tuple(a.reach - a.lead for a in axes) + tuple(a.reach - a.tail for a in axes)
        dilations = tuple(a.dilation for a in axes)
        kernel = _kernel_of_phases(in_wide(w), window, axes, self.group)
        y = apply("conv", in_wide(x), kernel, pads=pads, dilations=dilations, group=self.group)
        y = _interleaved(y, axes)
        rest = [a.begin for a in axes] + [a.end for a in axes]
        if any(rest):
            n = len(axes)
            y = apply("pad", y, pads=(0, 0, *(-v for v in rest[:n]), 0, 0, *(-v for v in rest[n:])))
        if b is not None:
            y = y + apply("reshape", in_wide(b), shape=(-1, *[1] * window.rank))
        return narrowed(y, x)

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
        for element, bound in (("f64", 1e-11), ("f16", 1e-2), ("bf16", 1e-1)):
            inputs = tuple(samples.array(s, element) for s in ((1, 3, 4, 4), (3, 4, 3, 3), (4,)))
            yield Example(cls((2, 2), (1, 1, 1, 1)), inputs, bound, bound)


@dataclass(frozen=True)
class _Phases:
    """One spatial axis: `count` phases with `taps` taps each, and what is cut off around them.

    The convolution pads `reach - lead` and `reach - tail`: those positions of which whole rounds of
    phases are cut off are not computed. `begin` and `end` are then left to be cut.
    """

    count: int
    taps: int
    dilation: int
    lead: int
    tail: int
    begin: int
    end: int

    @property
    def reach(self) -> int:
        """How far taps lie apart."""
        return (self.taps - 1) * self.dilation

    @staticmethod
    def of(stride: int, dilation: int, kernel: int, begin: int, end: int) -> _Phases:
        extent = (kernel - 1) * dilation + 1
        taps, dilation = (kernel, dilation) if stride == 1 else (-(-extent // stride), 1)
        reach = (taps - 1) * dilation
        end += (reach + 1) * stride - extent  # the last round of phases may hang over
        lead, tail = (min(max(v, 0) // stride, reach) for v in (begin, end))
        return _Phases(
            stride, taps, dilation, lead, tail, begin - lead * stride, end - tail * stride
        )


def _kernel_of_phases(w: Value, window: Window, axes: Sequence[_Phases], group: int) -> Value:
    """w[c, o, k] as a kernel [o * s, c, taps] of `conv`, o and s within each group."""
    n = len(axes)
    c, o = tensor_type(w).dims[:2]
    for axis, (a, dilation) in enumerate(zip(axes, window.dilations, strict=True)):
        if a.count > 1 and dilation > 1:
            w = _with_holes(w, axis + 2, dilation)
    missing = (a.taps * a.count - k for a, k in zip(axes, tensor_type(w).dims[2:], strict=True))
    w = apply("pad", w, pads=(*[0] * (n + 2), 0, 0, *missing))
    split = tuple(v for a in axes for v in (a.taps, a.count))
    w = apply("reshape", w, shape=(group, c // group, o, *split))
    taps, phases = (tuple(range(3 + first, 3 + 2 * n, 2)) for first in (0, 1))
    w = apply("transpose", w, perm=(0, 2, *phases, 1, *taps))
    rows = group * o * math.prod(a.count for a in axes)
    w = apply("reshape", w, shape=(rows, c // group, *(a.taps for a in axes)))
    back = (-1,) * n
    return apply("slice", w, starts=back, ends=(INT64[0],) * n, axes=tuple(range(2, n + 2)),
                 steps=back)  # fmt: skip


def _with_holes(w: Value, axis: int, dilation: int) -> Value:
    """A dilated kernel as an ordinary one: zeros between its taps."""
    dims = tensor_type(w).dims
    before, k, after = dims[:axis], dims[axis], dims[axis + 1 :]
    w = apply("reshape", w, shape=(*before, k, 1, *after))
    rank = len(dims) + 1
    w = apply("pad", w, pads=(*[0] * (rank + axis + 1), dilation - 1, *[0] * (rank - axis - 2)))
    w = apply("reshape", w, shape=(*before, k * dilation, *after))
    return apply("slice", w, starts=(0,), ends=((k - 1) * dilation + 1,), axes=(axis,))


def _interleaved(y: Value, axes: Sequence[_Phases]) -> Value:
    """[n, o * s, q] as [n, o, q * s]: what each phase computed, side by side."""
    counts, n = tuple(a.count for a in axes), len(axes)
    if max(counts) == 1:
        return y
    batch, rows, *q = tensor_type(y).dims
    outputs = rows // math.prod(counts)
    y = apply("reshape", y, shape=(batch, outputs, *counts, *q))
    pairs = (v for a in range(n) for v in (2 + n + a, 2 + a))
    y = apply("transpose", y, perm=(0, 1, *pairs))
    dims = (size * count for size, count in zip(q, counts, strict=True))
    return apply("reshape", y, shape=(batch, outputs, *dims))
