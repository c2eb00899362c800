"""What ops do on blocked images: which take them as they are, and with which attributes.

    in_blocks(max_pool with kernel (3, 3))          # max_pool with kernel (3, 3, 1)
    in_blocks(relu)                                 # relu
    in_blocks(softmax)                              # None: it mixes channels

An image [n, c, h, w] in blocks is [n, c / b, h, w, b]: one axis more, at the end. Treated in course
chapter 02_frontend_opt.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Node, Value, tensor_type
from minidlc.graph.op import Op
from minidlc.ops import rules
from minidlc.ops.conv import Conv
from minidlc.ops.elementwise import Elementwise
from minidlc.ops.movement import Concat
from minidlc.ops.padding import Pad
from minidlc.ops.pool import AveragePool, LpPool, MaxPool
from minidlc.ops.reduction import Reduction
from minidlc.ops.resize import Resample

ROWS, COLUMNS = 2, 3  # axes of an image
WASTE = 2  # work on zeros: a blocked convolution may have so many times the multiply-adds


def is_image(value: Value | None) -> bool:
    """True for [n, c, h, w] of known sizes, none of them 0."""
    t = None if value is None else value.type
    return isinstance(t, TensorType) and t.rank == 4 and t.is_static and t.size != 0


def shape_of(value: Value) -> tuple[int, ...]:
    """The sizes of an image."""
    return tensor_type(value).dims


def filled_up(channels: int, block: int) -> int:
    """The channels with those that fill up the last block."""
    return -(-channels // block) * block


def in_blocks(node: Node) -> Op | None:
    """The op that does on blocked images what the node does on plain ones; None if none does."""
    match node.op:
        case Elementwise() as op:
            return op
        case (MaxPool() | AveragePool() | LpPool()) as op if len(op.kernel_shape) == 2:
            return replace(
                op,
                kernel_shape=(*op.kernel_shape, 1),
                strides=op.strides and (*op.strides, 1),
                pads=op.pads and _longer(op.pads),
                dilations=op.dilations and (*op.dilations, 1),
            )
        case Pad(pads=(0, 0, _, _, 0, 0, _, _)) as op:
            return replace(op, pads=_longer(op.pads))
        case Resample() as op if op.axis % 4 in (ROWS, COLUMNS):
            return replace(op, axis=op.axis % 4)
        case Concat() as op if op.axis % 4 == 1:
            return replace(op, axis=1)
        case Reduction() as op if is_image(node.inputs[0]):
            axes = rules.axes(op, op.axes, 4)
            if set(axes) <= {ROWS, COLUMNS} and (op.keepdims or len(axes) == 2):
                return replace(op, axes=axes, keepdims=True)  # f32[n, c] is a view of the result
            return None
        case _:
            return None


def _longer(pads: tuple[int, ...]) -> tuple[int, ...]:
    half = len(pads) // 2
    return (*pads[:half], 0, *pads[half:], 0)


def is_depthwise(conv: Conv, w: Value) -> bool:
    """True if each channel of the image has one filter of its own."""
    outputs, per_group = tensor_type(w).dims[:2]
    return conv.group == outputs > 1 and per_group == 1


def work(node: Node) -> int:
    """Multiply-adds of a convolution."""
    w = node.inputs[1]
    assert w is not None
    _, per_group, *kernel = shape_of(w)
    n, outputs, height, width = shape_of(node)
    return n * outputs * height * width * per_group * kernel[0] * kernel[1]


def blocked_work(node: Node, block: int, reads_blocks: bool = False) -> int:
    """The same in blocks, with the work on channels that only fill them up.

    An image of few channels is read plain, unless it arrives in blocks (`reads_blocks`).
    """
    conv, x, w = cast(Conv, node.op), node.inputs[0], node.inputs[1]
    assert x is not None
    assert w is not None
    outputs, channels = shape_of(node)[1], shape_of(x)[1]
    every = work(node) * filled_up(outputs, block) // outputs
    if is_depthwise(conv, w) or (is_stem(x, block) and not reads_blocks):
        return every
    return every * filled_up(channels, block) // channels


def is_stem(x: Value, block: int) -> bool:
    """True for an image of few channels: a convolution reads it plain, nothing is filled up."""
    return shape_of(x)[1] < block
