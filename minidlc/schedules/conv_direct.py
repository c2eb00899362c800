"""Direct convolution of blocked images: f32[n, c / b, h, w, b], vectors along the channels.

    y[n, o, q, l] = sum over c, kh, kw, i of x[n, c, q//W + kh, q%W + kw, i] * f[o, c, kh, kw, i, l]

    step                          loads per multiply-add     what it does
    naive                         2                          each operand fetched for each use
    vectors of l                  2 / lanes                  one instruction, `lanes` channels
    border as a stage of its own  the same                   no test in the loops of the sum
    tile of P pixels, V vectors   (P + V) / (P * V) / lanes  P broadcasts, V weights, P * V sums
    sums in registers             no load or store of y      held over c, kh, kw, i
    pixels as one axis            the same                   one rest an image, not one a line
    unroll i                      the same                   offsets are part of the instructions
    epilogue on the tile          no second pass over y      bias, residual, clip before the store

With 16 registers P = 6 and V = 2: 8 loads for 12 multiply-adds of 8 lanes, 15 registers in use.
With one vector a broadcast, every multiply-add would need a load of its own. A convolution of 1 x 1
is the same without taps. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from minidlc.expr.index import Var
from minidlc.loop.regions import loads
from minidlc.schedules.group import Group, divisors, largest_divisor, work
from minidlc.schedules.implementation import Implementation, Knobs, Space, default_first
from minidlc.schedules.injective import fuse_and_share
from minidlc.schedules.pixels import (
    PIECES,
    UNROLLED,
    Image,
    border_knob,
    copies_at,
    flatten_pixels,
    has_pixels,
    hold_pixels,
    near_registers,
    operand_bytes,
)
from minidlc.schedules.tiles import PARALLEL_SUMS, accumulator, inline_around
from minidlc.target import Target
from minidlc.te import Schedule, Tensor

FEW = 4  # with fewer pieces than that a thread may go without
MAX_PIXELS, MAX_BLOCKS = 8, 4  # each pixel of a tile has an address, in a register of its own
LONGEST = 14  # pixels of one line share an address: there may be more
LATENCY = 8  # multiply-adds that are under way at a time: two a cycle, four cycles each


def schedule_direct(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    """Tile of pixels x channels, sums in registers, on a group with flat pixels."""
    kept = inline_around(sch, group, target)
    tile_pixels(sch, group, target, knobs, Image.blocked(group.last), kept)


def tile_pixels(
    sch: Schedule,
    group: Group,
    target: Target,
    knobs: Knobs,
    image: Image,
    kept: tuple[Tensor, ...],
) -> None:
    """The loops of the output, and at each tile of it the sums, and what was `kept`."""
    last, anchor = group.last, group.anchor
    assert anchor is not None
    lanes = target.lanes(anchor.dtype.bits)
    shared = work(anchor) >= PARALLEL_SUMS
    if not knobs.get("border_at_strip"):
        copies_at(sch, group, None)
    strip, leaf, blocks = _tile_loops(sch, last, image, knobs, lanes, shared=shared)
    sums = accumulator(sch, group)
    if sums == anchor.name:
        sch[last].unroll(blocks)
    else:  # functions need registers of their own: the sums wait on the stack
        kept = (anchor, *kept)
    for stage in reversed(kept):
        near_registers(sch, stage, last, leaf, lanes)
    room = knobs["unroll"] // (knobs["pixels"] * knobs["blocks"] * -(-image.block // lanes))
    if _slides(anchor) and (knobs["lines"] == 1 or image.width % knobs["pixels"] == 0):
        room = 1  # pixels of a line, shared by unrolled taps, would take registers
    hold_pixels(sch, sums, last, leaf, lanes, max(1, room))
    if knobs.get("border_at_strip"):
        copies_at(sch, group, strip)


def _tile_loops(
    sch: Schedule, last: Tensor, image: Image, knobs: Knobs, lanes: int, *, shared: bool
) -> tuple[str, str, str]:
    """The loops of the output in tiles; returns those over strips, tiles, blocks of a tile."""
    n, o, *pixel = last.axes
    stage = sch[last]
    if image.is_plain:
        o, place = stage.split(o, image.block, names=("ob", "ol"))
    else:
        place = pixel.pop()
    oo, oi = stage.split(o, knobs["blocks"], names=("oo", "oi"))
    outer, trips, inner = [n, oo], [image.batch, image.blocks // knobs["blocks"]], list[str]()
    lv, ll = stage.split(place, lanes, names=("lv", "ll"))
    q = pixel[0]
    for axis in pixel[1:]:
        q = stage.fuse(q, axis)
    if knobs["lines"]:  # strips of lines outside: all channels of a strip, then the next
        qs, q = stage.split(q, knobs["lines"] * image.width, names=("qs", "qr"))
        outer, trips, inner = [n, qs], [image.batch, image.lines // knobs["lines"]], [oo]
    qo, qi = stage.split(q, knobs["pixels"], names=("qo", "qi"))
    stage.reorder(*outer, *inner, qo, oi, qi, lv, ll)
    stage.unroll(qi, lv).vectorize(ll)
    strip = outer[-1]
    if shared:
        strip = fuse_and_share(sch, last, tuple(outer), tuple(trips), PIECES)
    return strip, qo, oi


def _slides(anchor: Tensor) -> bool:
    """True if the innermost reduction moves along the pixels: taps of a plain image."""
    assert anchor.body is not None
    pixel, inner = Var(anchor.axes[2]), Var(anchor.reduce_axes[-1][0])
    return any({pixel, inner} <= i.vars() for e in loads(anchor.body) for i in e.index)


def knobs(group: Group, target: Target) -> Space:
    """See `tile_knobs`."""
    return tile_knobs(group, target, Image.blocked(group.last))


def tile_knobs(group: Group, target: Target, image: Image) -> Space:
    """Pixels and blocks of a tile, the cheapest first; lines of a strip, the better order first.

    0 lines: all, for some channels at a time. Then how many multiply-adds are in the innermost
    loop, at most, and whether a border is made strip by strip.
    """
    assert group.anchor is not None
    lines = _lines(group, target, image)
    vectors = -(-image.block // target.lanes(group.anchor.dtype.bits))
    tiles = tuple(_tiles(target, image, vectors))
    pixels, blocks = min(tiles, key=lambda tile: _tile_cost(image, tile, vectors, lines))
    most = min(LONGEST, math.prod(image.pixels))
    return {
        "pixels": default_first(pixels, range(1, most + 1)),
        "blocks": default_first(blocks, divisors(image.blocks, MAX_BLOCKS)),
        "lines": default_first(lines, (0, *divisors(image.lines))),
        "unroll": (UNROLLED, UNROLLED // 4, UNROLLED // 2, 2 * UNROLLED),
        **border_knob(group, 0),
    }


def allowed(group: Group, target: Target, knobs: Knobs) -> bool:
    """See `tile_fits`."""
    return tile_fits(group, target, knobs, Image.blocked(group.last))


def tile_fits(group: Group, target: Target, knobs: Knobs, image: Image) -> bool:
    """True if sums, weights and broadcasts fit the registers, and the sums are enough to be busy.

    A tile that passes the end of a line has an address for each pixel: there are fewer of those.
    """
    assert group.anchor is not None
    pixels, blocks, lines = knobs["pixels"], knobs["blocks"], knobs["lines"]
    vectors = -(-image.block // target.lanes(group.anchor.dtype.bits))
    sums, most = pixels * blocks * vectors, max(p * b for p, b in _tiles(target, image, vectors))
    in_line = pixels <= MAX_PIXELS or image.width % pixels == 0
    busy = sums >= min(LATENCY, most * vectors)
    strips = bool(lines) or not knobs.get("border_at_strip")
    short = sums <= knobs["unroll"]
    return _fits(target, pixels, blocks * vectors) and in_line and busy and strips and short


def cost(group: Group, target: Target) -> float:
    """Cycles of the multiply-adds, two vectors of them a cycle."""
    assert group.anchor is not None
    return work(group.anchor) / target.lanes(group.anchor.dtype.bits) / 2


def _tiles(target: Target, image: Image, vectors: int) -> Iterator[tuple[int, int]]:
    """Every (pixels, blocks) whose sums, weights and broadcasts fit the registers."""
    for blocks in range(min(MAX_BLOCKS, image.blocks), 0, -1):
        for pixels in range(MAX_PIXELS, 0, -1):
            fits = _fits(target, pixels, blocks * vectors) or pixels == blocks == 1
            if image.blocks % blocks == 0 and fits:
                yield pixels, blocks


def _fits(target: Target, pixels: int, vectors: int) -> bool:
    """True if the registers hold sums of so many pixels and vectors, weights and broadcasts.

    x86 takes one broadcast at a time from memory; others load several in one instruction, ahead.
    """
    return (pixels + 1) * vectors + (1 if target.is_x86 else pixels + 2) <= target.registers


def _tile_cost(image: Image, tile: tuple[int, int], vectors: int, lines: int) -> float:
    """Half cycles for one step of the sum over all tiles: multiply-adds, loads or latency."""
    pixels, blocks = tile
    lines = lines or image.lines
    whole, rest = divmod(lines * image.width, pixels)
    wide = blocks * vectors
    cycles = whole * _step(pixels, wide) + (_step(rest, wide) if rest else 0)
    return cycles * image.lines / lines * (image.blocks / blocks)


def _step(pixels: int, vectors: int) -> float:
    """What bounds it; and a little for each load, so that of equal tiles one of few loads wins."""
    loads = pixels + vectors
    return max(pixels * vectors, loads, LATENCY) + 0.1 * loads


def _lines(group: Group, target: Target, image: Image) -> int:
    """Lines of a strip, or 0 for all lines in one: the order that moves fewer bytes into L2.

    Channels outside read the image once for each tile of channels, unless it stays in L2; strips
    outside read the weights once for each strip, unless those stay.
    """
    assert group.anchor is not None
    pixels, weights = operand_bytes(group.anchor)
    vectors = -(-image.block // target.lanes(group.anchor.dtype.bits))
    panels = image.blocks // largest_divisor(image.blocks, max(1, MAX_BLOCKS // 2 // vectors))
    lines = _strip(image)
    strips = image.lines // lines
    channels_outside = weights + pixels * (panels if pixels > target.l2 else 1)
    strips_outside = pixels + weights * (strips if weights > target.l2 // 2 else 1)
    shared = work(group.anchor) >= PARALLEL_SUMS
    if shared and image.batch * panels < FEW <= image.batch * strips:
        return lines
    return lines if strips_outside < channels_outside else 0


def _strip(image: Image) -> int:
    """Lines of a strip: as many as leave enough pieces, or half of that."""
    divisors = [d for d in range(image.lines, 0, -1) if image.lines % d == 0]
    for pieces in (PIECES, PIECES // 2):
        lines = next((d for d in divisors if image.batch * image.lines // d >= pieces), 1)
        if lines > 1:
            return lines
    return 1


DIRECT = Implementation(
    "conv_direct",
    "conv_nchwc",
    schedule_direct,
    applies=has_pixels,
    knobs=knobs,
    cost=cost,
    compute=flatten_pixels,
    allowed=allowed,
)
