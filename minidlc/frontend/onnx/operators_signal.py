"""Converters for ops of signals that are made of others: DFT, STFT and Col2Im.

    DFT(x)                       x @ table: cosines and sines, computed in f64
    STFT(x, step, window)        a gather of frames, times the window, then the same
    Col2Im(x)                    scatter_nd into zeros, added up

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import math

import numpy as np

from minidlc.expr.types import Array
from minidlc.frontend.onnx.registry import OnnxNode, onnx_op
from minidlc.frontend.onnx.tensors import element
from minidlc.graph.graph import Constant, Value, apply, tensor_type
from minidlc.ops.composing import in_wide, narrowed
from minidlc.ops.rules import Values

LONGEST = 1 << 11  # a table has up to 4 * length**2 elements
LARGEST = 1 << 32  # elements of one channel of an image, with its padding
MOST_WEIGHTS = 1 << 24  # of a MelWeightMatrix, which becomes a constant


def dft_table(length: int, parts: int, inverse: bool, onesided: bool) -> Array:
    """The matrix from elements (real, imaginary in turn) to the parts of the transform.

    Onesided, a transform gives the first half of the bins; an inverse reads that half, for a
    real result. Rows are the `parts` (1: real, 2: complex) of the elements that are read.
    """
    half = length // 2 + 1
    rows, columns = (half, length) if inverse else (length, half if onesided else length)
    j, k = np.arange(rows)[:, None], np.arange(columns)
    angle = 2 * np.pi * (j * k % length) / length
    cos, sin = np.cos(angle), np.sin(angle)
    if not inverse:
        blocks = [[cos, -sin], [sin, cos]]
    else:  # the half that is not given mirrors the one that is
        twice = np.where((j == 0) | (2 * j == length), 1, 2)
        blocks = [[twice * cos], [-twice * sin]]
    table = np.stack([np.stack(row, -1) for row in blocks[:parts]], 1)
    table = table / length if inverse else table
    return np.asarray(table.reshape(rows * parts, -1))


def transformed(
    node: OnnxNode, x: Value, axis: int, length: int | None, inverse: bool, onesided: bool
) -> Value:
    """The transform of x along `axis`, its last axis being (real) or (real, imaginary)."""
    t = tensor_type(x)
    dims, rank = list(node.dims(x)), t.rank
    if rank < 2 or dims[-1] not in (1, 2) or not -rank <= axis < rank or axis % rank == rank - 1:
        raise node.unsupported(f"a transform of axis {axis} of {t}", "the last axis holds 1 or 2")
    axis, parts = axis % rank, dims[-1]
    if inverse and not onesided:
        raise node.unsupported("an inverse transform to complex elements", "onesided=1 is taken")
    if length is None:
        length = 2 * (dims[axis] - 1) if inverse else dims[axis]
    if length < 1 or (onesided and not inverse and parts == 2):
        what = f"a transform of length {length}" if length < 1 else "onesided of complex elements"
        raise node.unsupported(what)
    if length > LONGEST:
        raise node.unsupported(f"a transform of length {length}", f"at most {LONGEST}")
    table = dft_table(length, parts, inverse, onesided)
    read = table.shape[0] // parts
    if read != dims[axis]:  # cut off, or zeros behind
        ends = [read - d if a == axis else 0 for a, d in enumerate(dims)]
        x = apply("pad", x, pads=(*[0] * rank, *ends))
    perm = list(range(rank))
    perm[axis], perm[-2] = perm[-2], perm[axis]
    x = apply("cast", apply("transpose", x, perm=perm), to="f64")
    outer = [dims[a] for a in perm[:-2]]
    y = apply("matmul", apply("reshape", x, shape=(*outer, read * parts)), table)
    result = 1 if inverse else 2
    y = apply("reshape", y, shape=(*outer, table.shape[1] // result, result))
    return apply("cast", apply("transpose", y, perm=perm), to=t.dtype)


@onnx_op("DFT")
def dft(
    node: OnnxNode, x: Value, dft_length: Value | None = None, axis: Value | None = None
) -> Value:
    """The axis was an attribute before opset 20, and another one by default."""
    place = node.attr_int("axis", 1) if node.opset < 20 else -2
    if axis is not None:
        place = node.constant_int(axis, "axis")
    length = None if dft_length is None else node.constant_int(dft_length, "dft_length")
    inverse, onesided = (bool(node.attr_int(n, 0)) for n in ("inverse", "onesided"))
    return transformed(node, x, place, length, inverse, onesided)


@onnx_op("STFT")
def stft(
    node: OnnxNode,
    signal: Value,
    frame_step: Value,
    window: Value | None = None,
    frame_length: Value | None = None,
) -> Value:
    """Frames, one every `frame_step` elements, that lie inside the signal."""
    t = tensor_type(signal)
    if t.rank != 3:
        raise node.unsupported(f"a signal {t}", "its shape is [batch, length, 1 or 2]")
    step = node.constant_int(frame_step, "frame_step")
    if frame_length is not None:
        length = node.constant_int(frame_length, "frame_length")
    elif window is not None:
        length = math.prod(node.dims(window))
    else:
        raise node.unsupported("neither a window nor a frame_length is given")
    if window is not None and tensor_type(window).shape != (length,):
        raise node.wrong(f"a window {tensor_type(window)} for frames of {length} elements")
    _, total, _ = node.dims(signal)
    if step < 1 or not 1 <= length <= total:
        raise node.unsupported(f"frames of {length} every {step} of {total} elements")
    starts = np.arange((total - length) // step + 1) * step
    frames = apply("gather", signal, starts[:, None] + np.arange(length), axis=1)
    if window is not None:
        frames = frames * apply("unsqueeze", window, axes=(1,))
    onesided = bool(node.attr_int("onesided", 1))
    return transformed(node, frames, 2, length, inverse=False, onesided=onesided)


@onnx_op("Col2Im")
def col2im(node: OnnxNode, x: Value, image_shape: Value, block_shape: Value) -> Value:
    """Each row of a block is added at its place in the padded image; the padding is cut."""
    image = node.constant_ints(image_shape, "image_shape")
    block = node.constant_ints(block_shape, "block_shape")
    n = len(image)
    strides = node.attr_ints("strides") or (1,) * n
    dilations = node.attr_ints("dilations") or (1,) * n
    pads = node.attr_ints("pads") or (0,) * (2 * n)
    lengths = (len(block), len(strides), len(dilations), len(pads) - n)
    if set(lengths) != {n} or min((*strides, *dilations, *block)) < 1:
        raise node.unsupported(f"blocks {block} of an image {image}, strides {strides}")
    node.check_rank(x, "input", 3)
    batch, rows, count = node.dims(x)
    rooms = [image[a] + pads[a] + pads[a + n] - (block[a] - 1) * dilations[a] - 1 for a in range(n)]
    blocks = [room // s + 1 for room, s in zip(rooms, strides, strict=True)]
    size = math.prod(block)
    padded = [image[a] + pads[a] + pads[a + n] for a in range(n)]
    if rows % size or math.prod(blocks) != count or min(rooms) < 0 or math.prod(padded) > LARGEST:
        text = f"{tensor_type(x)} does not hold {tuple(blocks)} blocks of {block} elements"
        raise node.unsupported(text)
    tap, start = np.indices(block).reshape(n, -1, 1), np.indices(blocks).reshape(n, 1, -1)
    places = [tap[a] * dilations[a] + start[a] * strides[a] for a in range(n)]
    at = np.ravel_multi_index(places, padded).reshape(-1, 1)
    images = batch * (rows // size)
    columns = apply("transpose", apply("reshape", in_wide(x), shape=(images, len(at))), perm=(1, 0))
    zero = np.zeros((), tensor_type(columns).dtype.numpy)
    zeros = apply("expand", zero, shape=(math.prod(padded), images))
    added = apply("scatter_nd", zeros, at, columns, reduction="add")
    whole = apply("reshape", apply("transpose", added, perm=(1, 0)), shape=(images, *padded))
    ends = tuple(pads[a] + image[a] for a in range(n))
    cut = apply("slice", whole, starts=pads[:n], ends=ends, axes=tuple(range(1, n + 1)))
    return narrowed(apply("reshape", cut, shape=(batch, rows // size, *image)), x)


@onnx_op("MelWeightMatrix")
def mel_weights(
    node: OnnxNode, bands: Value, length: Value, rate: Value, low: Value, high: Value
) -> Value:
    """Triangles over the bins of a one-sided transform, at equal steps of the mel scale."""
    to = element(node.attr_int("output_datatype", 1), node.loc)
    count, size = node.constant_int(bands, "num_mel_bins"), node.constant_int(length, "dft_length")
    samples_a_second = node.constant_int(rate, "sample_rate")
    if count < 1 or size < 1 or samples_a_second < 1 or max(count, 2) * size > MOST_WEIGHTS:
        raise node.unsupported(f"{count} bands of {size} numbers, {samples_a_second} a second")
    limits = (node.constant(low, "lower_edge_hertz"), node.constant(high, "upper_edge_hertz"))
    first, last = (2595 * np.log10(1 + v.astype(np.float64).item() / 700) for v in limits)
    mels = first + np.arange(count + 2) * (last - first) / (count + 2)
    hertz = 700 * (10 ** (mels / 2595) - 1)
    edges = np.floor((size + 1) * hertz / samples_a_second).astype(np.int64)
    weights = _triangles(edges[:-2], edges[1:-1], edges[2:], size // 2 + 1)
    return Constant("mel", weights.astype(to.numpy), node.loc)


def _triangles(left: Values, middle: Values, right: Values, bins: int) -> Values:
    """Column b rises from left[b] to 1 at middle[b] and falls to 0 at right[b]."""
    place = np.arange(bins).reshape(-1, 1)
    up = (place - left) / np.maximum(middle - left, 1)
    down = (right - place) / np.maximum(right - middle, 1)
    rising = (left <= place) & (place < middle)
    falling = (middle < place) & (place < right)
    return np.where(rising, up, np.where(falling, down, place == middle))
