"""Convolution of plain images with vectors along the output channels: no relayout of the image.

    y[n, o, h, w] = sum over c, kh, kw of x[n, c, h + kh, w + kw] * f[o, c, kh, kw]

    step                          loads per multiply-add     what it does
    naive                         2
    weights in blocks f_p[o, …, l]  2 / lanes                vectors of `lanes` output channels
    tile, registers, flat pixels  (P + V) / (P * V) / lanes  as in conv_direct.py
    results lane by lane          a store for each           neighbouring channels lie far apart

Along the pixels of a line (conv.py) a stride of 2 makes every load of x two loads and a shuffle,
and a line of 28 leaves half a vector over; here a pixel of x is a broadcast wherever it lies. What
it costs is the copy of the weights, made at compile time if they are constants, and the scattered
stores: one for each result, against the multiply-adds of a whole window. Groups of channels are
whole blocks.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from minidlc.expr.index import FloorDiv, Index, Var
from minidlc.loop.regions import loads
from minidlc.schedules.conv_direct import tile_fits, tile_knobs, tile_pixels
from minidlc.schedules.group import Group, work
from minidlc.schedules.implementation import Implementation, Knobs, Space
from minidlc.schedules.injective import PARALLEL_WORK
from minidlc.schedules.pixels import (
    Image,
    can_flatten,
    flattened,
    is_flat,
    operand_bytes,
    same_for_all_pixels,
)
from minidlc.schedules.tiles import inline_around
from minidlc.target import Target
from minidlc.te import Schedule, Tensor

RANKS = (3, 4)  # n, o, and one axis of pixels or two
BLOCKS = (16, 8, 4)  # channels in a block: whole vectors, of as many machines as possible
# Cycles, fitted with those of conv.py:
STEP = 0.6  # for a multiply-add of vectors: two start in a cycle, loads take some of the rest
STORE = 2  # for each result
COPY = 2  # for each weight that is copied in every call


def schedule_channels(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    """Tile of pixels x channels on a group in the flat form, its weights in blocks."""
    anchor, image = group.anchor, _image(group)
    assert anchor is not None
    kept = inline_around(sch, group, target)
    for weights in same_for_all_pixels(anchor, sch.state.stage(anchor.name).body):
        _pack(sch, anchor, weights, group, image.block, target)
    tile_pixels(sch, group, target, knobs, image, kept)


def _pack(
    sch: Schedule, anchor: Tensor, weights: str, group: Group, block: int, target: Target
) -> None:
    """Read the weights from a copy whose vectors are output channels."""
    packed = sch[anchor].cache_read(weights, {0: block})
    if weights in group.constants:
        packed.prepack()
        return
    outer, place = packed.loops[0], packed.loops[-1]
    _, lane = packed.split(place, target.lanes(anchor.dtype.bits))
    packed.vectorize(lane)
    if sch.state.type_of(weights).size >= PARALLEL_WORK:
        packed.parallel(outer)


def in_flat_form(group: Group) -> Group:
    """The same results by stages in blocks of channels and with flat pixels."""
    return flattened(group, _image(group))


def has_blocks(group: Group, target: Target) -> bool:
    """True if the output channels are whole vectors, in each group of channels."""
    if group.anchor is None or len(group.last.shape) not in RANKS or 0 in group.last.shape:
        return False
    block = _block(group)
    if not block or block % target.lanes(group.anchor.dtype.bits):
        return False
    return is_flat(group, _image(group)) or can_flatten(group)


def knobs(group: Group, target: Target) -> Space:
    """Those of conv_direct.py."""
    return tile_knobs(group, target, _image(group))


def allowed(group: Group, target: Target, knobs: Knobs) -> bool:
    """As in conv_direct.py."""
    return tile_fits(group, target, knobs, _image(group))


def cost(group: Group, target: Target) -> float:
    """Cycles of the multiply-adds, of the stores, and of copies."""
    assert group.anchor is not None
    lanes = target.lanes(group.anchor.dtype.bits)
    _, weights = operand_bytes(group.anchor)
    variable = [t for t in group.anchor.inputs if t.name not in group.constants]
    copied = weights // group.anchor.dtype.itemsize if len(variable) > 1 else 0
    results = math.prod(group.last.shape)
    return work(group.anchor) / lanes * STEP + STORE * results + COPY * copied


def _image(group: Group) -> Image:
    return Image.plain(group.last, _block(group))


def _block(group: Group) -> int:
    """Channels of a block: the most that divide the outputs of each group; 0 if none do."""
    anchor = group.anchor
    assert anchor is not None
    if len(anchor.shape) == 4 and anchor is not group.last and anchor.shape != group.last.shape:
        return anchor.shape[3]
    outputs = math.gcd(anchor.shape[1], *_divisors(anchor))
    return next((block for block in BLOCKS if outputs % block == 0), 0)


def _divisors(anchor: Tensor) -> Iterator[int]:
    """What the output channel is divided by to find the channels that it reads; 1: its own."""
    assert anchor.body is not None
    channel = Var(anchor.axes[1])
    weights = same_for_all_pixels(anchor, anchor.body)
    for load in loads(anchor.body):
        for atom, _ in (term for index in load.index for term in index.terms):
            match atom:
                case FloorDiv(a, c) if a == Index.of(channel):
                    yield c
                case Var() if atom == channel and load.buffer not in weights:
                    yield 1
                case _:
                    pass


CHANNELS = Implementation(
    "conv_channels",
    "conv",
    schedule_channels,
    applies=has_blocks,
    knobs=knobs,
    cost=cost,
    compute=in_flat_form,
    allowed=allowed,
)
