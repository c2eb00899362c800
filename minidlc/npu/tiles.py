"""Tiles: a box of a result, and the boxes of the operands that it is made of.

    box = ((0, 1), (0, 8), (4, 6), (0, 14))         # of f32[1, 32, 14, 14]: 8 channels, 2 rows
    operand_box(conv, 0, box)                       # ((0, 1), (0, 16), (3, 7), (0, 14)): halo rows
    part_of(conv, box, arrays)                      # that part of the result, by the op's reference

A tile of a part of a node is computed by the same NumPy meaning as the whole, on parts of its
operands, so that the simulator gives the bits of the interpreter. Treated in course chapter
02_frontend_opt.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from minidlc.expr.types import Array
from minidlc.graph.graph import Node, Value, tensor_type
from minidlc.graph.op import evaluate
from minidlc.npu.machine import VIEWS
from minidlc.ops.windows import Window

Box: TypeAlias = tuple[tuple[int, int], ...]  # low and high of each axis

TILED = {"conv_integer": (1, 2), "matmul_integer": (-1, -2), "max_pool": (1, 0)}


def tiled_axes(node: Node) -> tuple[int, ...]:
    """The axes of the result that may be cut, the outer loop first; none of a view."""
    rank = tensor_type(node).rank
    if node.op.name in VIEWS or not rank:
        return ()
    outer, inner = TILED.get(node.op.name, (1, 2) if rank > 2 else (0, rank - 1))
    return outer % rank, inner % rank


def whole(node: Value) -> Box:
    """All of a value."""
    return tuple((0, n) for n in tensor_type(node).dims)


def smallest_tile(node: Node) -> Box:
    """The first element along the axes that may be cut."""
    axes = tiled_axes(node)
    return tuple((0, min(1, n) if a in axes else n) for a, n in enumerate(tensor_type(node).dims))


def size_of(box: Box) -> int:
    """Elements in a box."""
    return math.prod(high - low for low, high in box)


def nbytes(value: Value, box: Box) -> int:
    """Bytes of a part of a value."""
    return size_of(box) * tensor_type(value).dtype.itemsize


def operand_box(node: Node, place: int, box: Box) -> Box:
    """What the part `box` of the node's result reads of its input `place`."""
    value = node.inputs[place]
    assert value is not None
    dims = tensor_type(value).dims
    if node.op.name in VIEWS or (place >= 2 and node.op.name in TILED):
        return whole(value)
    if node.op.name == "matmul_integer":
        kept = [(0, n) for n in dims]
        kept[-2 + place] = box[-2 + place]
        return tuple(kept)
    if node.op.name == "conv_integer" and place:
        return (box[1], *((0, n) for n in dims[1:]))
    if node.op.name == "conv_integer":
        low, high = (min(max(0, row), dims[2]) for row in _rows(node, box))
        return (box[0], (0, dims[1]), (low, high), (0, dims[3]))
    if node.op.name == "max_pool":
        return (*box[:2], (0, dims[2]), (0, dims[3]))
    shift = len(box) - len(dims)  # element by element, broadcast
    return tuple((0, 1) if n == 1 else box[a + shift] for a, n in enumerate(dims))


def _rows(node: Node, box: Box) -> tuple[int, int]:
    """The rows of its input that a convolution reads for some of its result, with the border."""
    window = _window(node)
    low = box[2][0] * window.strides[0] - window.pads[0]
    reach = (window.kernel[0] - 1) * window.dilations[0] + 1
    return low, (box[2][1] - 1) * window.strides[0] - window.pads[0] + reach


def _window(node: Node) -> Window:
    op, w = node.op.attributes(), node.inputs[1]
    assert w is not None
    kernel = tensor_type(w).dims[2:]
    return Window.resolve(node.op, kernel, op["strides"], op["pads"], op["dilations"])


def part_of(node: Node, box: Box, arrays: Sequence[Array | None]) -> Array:
    """The part `box` of the result, `arrays` being the parts of the operands that it reads."""
    op = node.op
    if op.name == "conv_integer":
        low, high = _rows(node, box)
        x, pads = arrays[0], list(_window(node).pads)
        assert x is not None
        pads[0] = min(max(0, -low), high - low)  # less where the window lies in the border
        pads[2] = high - low - x.shape[2] - pads[0]
        op = replace(op, pads=tuple(pads))
    result = evaluate(op, arrays)
    assert isinstance(result, np.ndarray)
    return result


def footprint(nodes: Sequence[Node], box: Box, held: Mapping[Value, object] | None = None) -> int:
    """Bytes on the chip while tiles of this size are computed, two at a time.

    `nodes`: one and what follows it element by element; `held`: what lies on the chip anyway.
    """
    inside, held = set(nodes), held or {}
    total = sum(
        nbytes(v, operand_box(node, place, box))
        for node in nodes
        for place, v in enumerate(node.inputs)
        if v is not None and v not in inside and v not in held
    )
    widest = max(nbytes(node, box) for node in nodes)  # sums, before they are made narrow
    aside = sum(nbytes(n, box) for n, after in pairwise(nodes) if n not in after.inputs)
    return 2 * (total + widest + aside)


def boxes(dims: Sequence[int], axes: Sequence[int], sizes: Sequence[int]) -> Iterator[Box]:
    """The result cut along two axes into tiles of these sizes, the last ones smaller."""
    if not axes:
        yield tuple((0, n) for n in dims)
        return
    (outer, inner), (step, small) = axes, sizes
    for a in range(0, dims[outer], step):
        for b in range(0, dims[inner] if inner != outer else 1, small):
            box = [(0, n) for n in dims]
            box[outer] = (a, min(a + step, dims[outer]))
            if inner != outer:
                box[inner] = (b, min(b + small, dims[inner]))
            yield tuple(box)


def taken(array: Array, box: Box) -> Array:
    """A part of an array."""
    return array[tuple(slice(low, high) for low, high in box)]
