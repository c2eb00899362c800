"""Sliding windows over the last axes: what convolutions and pools share.

    w = Window(kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), dilations=(1, 1))
    w.out_dims(op, (28, 28))                        # (14, 14)
    padded(x, w.pads, 0.0)                         # te: x with a border, or x where there is none

Pads are given as in ONNX: all begins, then all ends. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from minidlc.expr.index import Cond, Index
from minidlc.expr.nodes import Expr, select
from minidlc.expr.types import Dim
from minidlc.graph.op import Op
from minidlc.ops import rules
from minidlc.ops.rules import Values
from minidlc.te.tensor import ReduceAxis, Tensor, compute, reduce_axis

NAMES = ("d", "h", "w")  # the last axis is w, also in one dimension


@dataclass(frozen=True)
class Window:
    """Geometry of a window; `resolve` fills in the defaults and checks the attributes."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil_mode: bool = False

    @staticmethod
    def resolve(
        op: Op,
        kernel: Sequence[int],
        strides: Sequence[int],
        pads: Sequence[int],
        dilations: Sequence[int],
        ceil_mode: bool = False,
    ) -> Window:
        """The window with () replaced by ones and zeros; raises TypeRuleError (MDLC0209)."""
        n = len(kernel)
        strides = tuple(strides) or (1,) * n
        dilations = tuple(dilations) or (1,) * n
        pads = tuple(pads) or (0,) * (2 * n)
        rules.count(op, "kernel_shape", kernel, n, 1)
        rules.count(op, "strides", strides, n, 1)
        rules.count(op, "dilations", dilations, n, 1)
        rules.count(op, "pads", pads, 2 * n, 0)
        return Window(tuple(kernel), strides, pads, dilations, ceil_mode)

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.kernel)

    @property
    def extents(self) -> tuple[int, ...]:
        """Elements from the first tap to the last, holes of the dilation included."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def out_dims(self, op: Op, dims: Sequence[Dim]) -> tuple[Dim, ...]:
        """Spatial result; with ceil_mode no window starts in the padding at the end."""
        return tuple(self._out(op, axis, dim) for axis, dim in enumerate(dims))

    def _out(self, op: Op, axis: int, dim: Dim) -> Dim:
        begin, end = self.pads[axis], self.pads[axis + self.rank]
        extent, stride = self.extents[axis], self.strides[axis]
        room = dim + (begin + end - extent)
        if not isinstance(room, int):
            if self.ceil_mode:
                rules.fail(op, "ceil_mode needs sizes, not symbols", rules.SYMBOLIC)
            return room // stride + 1
        if room < 0:
            text = f"a window of {extent} does not fit in {dim} + {begin} + {end} of padding"
            rules.fail(op, f"{text} (spatial axis {axis})", rules.DIMS)
        out = -(-room // stride) + 1 if self.ceil_mode else room // stride + 1
        assert isinstance(dim, int)
        return out - 1 if self.ceil_mode and (out - 1) * stride >= dim + begin else out

    def reach(self, dims: Sequence[int], out: Sequence[int]) -> tuple[int, ...]:
        """Pads that the windows really touch: with ceil_mode they may hang over the end."""
        ends = tuple(
            max(self.pads[self.rank + a], (out[a] - 1) * self.strides[a] + self.extents[a] - dims[a]
                - self.pads[a])
            for a in range(self.rank)
        )  # fmt: skip
        return self.pads[: self.rank] + ends

    def taps(self, x: Values, out: Sequence[int]) -> Iterator[tuple[tuple[int, ...], Values]]:
        """NumPy: each offset in the kernel with the elements of padded `x` that it meets."""
        for offset in np.ndindex(*self.kernel):
            cut = tuple(
                slice(o * d, o * d + s * (n - 1) + 1, s)
                for o, d, s, n in zip(offset, self.dilations, self.strides, out, strict=True)
            )
            yield offset, x[(..., *cut)]

    def axes(self) -> tuple[ReduceAxis, ...]:
        """Reduction axes kd, kh, kw over the taps."""
        return tuple(
            reduce_axis(k, f"k{n}")
            for k, n in zip(self.kernel, spatial_names(self.rank), strict=True)
        )

    def position(self, index: Sequence[Index], taps: Sequence[ReduceAxis]) -> tuple[Index, ...]:
        """Where in the padded input tap `taps` of the window at `index` lies."""
        return tuple(
            i * s + t.index * d
            for i, t, s, d in zip(index, taps, self.strides, self.dilations, strict=True)
        )


def plain(values: Sequence[int], default: int) -> tuple[int, ...]:
    """The attribute, or () where every entry is the default: one text for one meaning."""
    return () if all(v == default for v in values) else tuple(values)


def plain_fields(op: Op) -> None:
    """`__post_init__` of an op with windows: strides, dilations and pads made plain."""
    for name, default in (("strides", 1), ("dilations", 1), ("pads", 0)):
        object.__setattr__(op, name, plain(getattr(op, name), default))


def spatial_names(rank: int) -> tuple[str, ...]:
    """w, then h, then d, counted from the last axis."""
    return NAMES[-rank:] if rank <= len(NAMES) else tuple(f"s{d}" for d in range(rank))


def pad_array(x: Values, pads: Sequence[int], value: float) -> Values:
    """NumPy: `x` with a border around its last axes."""
    n = len(pads) // 2
    widths = [(0, 0)] * (x.ndim - n) + list(zip(pads[:n], pads[n:], strict=True))
    return np.pad(x, widths, constant_values=value)


def padded(
    x: Tensor,
    pads: Sequence[int],
    value: float,
    name: str = "pad",
    axes: tuple[str, ...] | None = None,
) -> Tensor:
    """te: `x` with a border of `value` around its last axes; `x` itself if no pad is above 0.

    `axes` names the axes: n, c and the spatial names if it is None.
    """
    if not any(pads):
        return x
    n = len(pads) // 2
    skip = len(x.shape) - n
    shape = (*x.shape[:skip], *(x.shape[skip + a] + pads[a] + pads[n + a] for a in range(n)))

    def body(*index: Index) -> Expr:
        where, inside = list(index), Cond(())
        for a in range(n):
            where[skip + a] = index[skip + a] - pads[a]
            if pads[a]:
                inside &= where[skip + a] >= 0
            if pads[n + a]:
                inside &= where[skip + a] < x.shape[skip + a]
        return select(inside, x[tuple(where)], value)

    if axes is None and skip == 2:
        axes = ("n", "c", *spatial_names(n))
    return compute(shape, body, name, axes=axes)
