"""Converters for ops that read images at computed positions: all by grid_sample.

    DeformConv(x, w, offset)     grid_sample(x, base + offset), a matmul with w
    RoiAlign(x, rois, batch)     grid_sample(gather(x, batch), points in each region), a mean

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from minidlc.expr.types import Array
from minidlc.frontend.onnx.registry import OnnxNode, onnx_op
from minidlc.graph.graph import Value, apply, tensor_type

MOST_POINTS = 1 << 16  # along one axis of a region


def sampled(x: Value, rows: Value, columns: Value, padding: str) -> Value:
    """x[n, c, y, x], linear, at y = rows[n, i, j] and x = columns[n, i, j], counted in elements.

    The grid is f64: there and back through [-1, 1] a whole position stays whole.
    """
    height, width = tensor_type(x).dims[2:]

    def normal(position: Value, size: int) -> Value:
        """Positions from -1 to 1, the outer edges of the image."""
        position = apply("cast", position, to="f64")
        return apply("unsqueeze", (position * 2.0 + 1.0) / float(size) - 1.0, axes=(3,))

    grid = apply("concat", normal(columns, width), normal(rows, height), axis=3)
    return apply("grid_sample", x, grid, padding_mode=padding)


@onnx_op("DeformConv")
def deform_conv(
    node: OnnxNode,
    x: Value,
    w: Value,
    offset: Value,
    b: Value | None = None,
    mask: Value | None = None,
) -> Value:
    """A convolution in two dimensions each tap of which is moved by an offset (y, x)."""
    node.check_rank(x, "x", 4)
    node.check_rank(w, "w", 4)
    batch, channels, *image = node.dims(x)
    outputs, per_group, *kernel = tensor_type(w).dims
    group, parts = node.attr_int("group", 1), node.attr_int("offset_group", 1)
    if (
        min(group, parts) < 1
        or channels % parts
        or channels != per_group * group
        or outputs % group
    ):
        raise node.unsupported(f"{channels} channels in {group} groups, {parts} groups of offsets")
    windows = _windows(node, image, kernel)
    out, taps = windows.out, math.prod(kernel)
    if min(out) < 1 or tensor_type(offset).shape != (batch, parts * taps * 2, *out):
        wanted = (batch, parts * taps * 2, *out)
        raise node.unsupported(f"offsets {tensor_type(offset)}, expected the shape {wanted}")
    moved = apply("reshape", offset, shape=(batch * parts, taps, 2, *out))
    split = apply("reshape", x, shape=(batch * parts, channels // parts, *image))
    values = sampled(split, windows.moved(moved, 0), windows.moved(moved, 1), "zeros")
    if mask is not None:
        weights = apply("reshape", mask, shape=(batch * parts, 1, taps * out[0], out[1]))
        values = values * weights
    columns = apply("reshape", values, shape=(batch, group, per_group * taps, math.prod(out)))
    kernels = apply("reshape", w, shape=(group, outputs // group, per_group * taps))
    y = apply("reshape", apply("matmul", kernels, columns), shape=(batch, outputs, *out))
    return y if b is None else y + apply("reshape", b, shape=(outputs, 1, 1))


@dataclass(frozen=True)
class _Windows:
    """Where an ordinary convolution in two dimensions reads."""

    kernel: Sequence[int]
    out: Sequence[int]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    def places(self, a: int) -> Array:
        """[tap, 1, i, j] -> where along axis `a` the tap lies."""
        tap = np.indices(self.kernel)[a].reshape(-1, 1, 1, 1) * self.dilations[a]
        return np.asarray(tap + np.indices(self.out)[a] * self.strides[a] - self.pads[a])

    def moved(self, offsets: Value, a: int) -> Value:
        """The places along axis `a` with offsets[n, tap, axis, i, j], as [n, tap * i, j]."""
        batch, taps, _, height, width = tensor_type(offsets).dims
        here = apply("slice", offsets, starts=(a,), ends=(a + 1,), axes=(2,))
        places = here + self.places(a).astype(tensor_type(offsets).dtype.numpy)
        return apply("reshape", places, shape=(batch, taps * height, width))


def _windows(node: OnnxNode, image: Sequence[int], kernel: Sequence[int]) -> _Windows:
    strides, dilations = node.attr_ints("strides", (1, 1)), node.attr_ints("dilations", (1, 1))
    pads = node.attr_ints("pads", (0, 0, 0, 0))
    two = (len(strides), len(dilations), len(pads)) == (2, 2, 4)
    same = tuple(kernel) == node.attr_ints("kernel_shape", tuple(kernel))
    if not two or not same or min((*strides, *dilations)) < 1:
        text = (
            f"a kernel {tuple(kernel)} with strides {strides}, dilations {dilations}, pads {pads}"
        )
        raise node.unsupported(text, "two spatial axes")
    out = [
        (image[a] + pads[a] + pads[a + 2] - (kernel[a] - 1) * dilations[a] - 1) // strides[a] + 1
        for a in (0, 1)
    ]
    return _Windows(kernel, out, strides, dilations, pads)


@onnx_op("RoiAlign")
def roi_align(node: OnnxNode, x: Value, rois: Value, batch_indices: Value) -> Value:
    """The mean of `sampling_ratio` squared points in each part of each region (x1, y1, x2, y2)."""
    mode, ratio = node.attr_str("mode", "avg"), node.attr_int("sampling_ratio", 0)
    if mode != "avg":
        raise node.unsupported(f"mode {mode!r}", "avg")
    if ratio < 1:
        what = "sampling_ratio 0: how many points are read depends on the regions"
        raise node.unsupported(what, "export the model with a sampling_ratio, such as 2")
    centred = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    centred = node.attr_str("coordinate_transformation_mode", centred) == "half_pixel"
    scale = node.attr_float("spatial_scale", 1.0)
    out = node.attr_int("output_height", 1), node.attr_int("output_width", 1)
    node.check_rank(x, "x", 4)
    node.check_rank(rois, "rois", 2)
    regions, corners = node.dims(rois)
    fits = corners == 4 and tensor_type(batch_indices).shape == (regions,)
    if not fits or min(out) < 1 or max(out) * ratio > MOST_POINTS:
        given = f"{tensor_type(rois)} of the images {tensor_type(batch_indices)}"
        raise node.wrong(f"regions {given}, in {out} parts of {ratio} x {ratio} points")
    _, channels, *image = node.dims(x)
    kind = tensor_type(rois).dtype.numpy
    at: list[Value] = []
    near: list[Value] = []
    for axis, column in ((0, 1), (1, 0)):
        begin, end = (
            apply("slice", rois, starts=(c,), ends=(c + 1,), axes=(1,)) * scale
            for c in (column, column + 2)
        )
        begin, end = (begin - 0.5, end - 0.5) if centred else (begin, end)
        extent = end - begin if centred else apply("maximum", end - begin, kind.type(1))
        points = (np.arange(out[axis] * ratio) + 0.5) / (out[axis] * ratio)
        position = begin + extent * points.astype(kind)
        shape = (regions, -1, 1) if axis == 0 else (regions, 1, -1)
        position = apply("reshape", position, shape=shape)
        at.append(apply("expand", position, shape=(regions, out[0] * ratio, out[1] * ratio)))
        near += [position >= -1.0, position <= float(image[axis])]
    inside = apply("unsqueeze", reduce(partial(apply, "logical_and"), near), axes=(1,))
    values = sampled(apply("gather", x, batch_indices, axis=0), at[0], at[1], "border")
    values = apply("where", inside, values, kind.type(0))
    parts = (regions, channels, out[0], ratio, out[1], ratio)
    return apply("mean", apply("reshape", values, shape=parts), axes=(3, 5), keepdims=False)
