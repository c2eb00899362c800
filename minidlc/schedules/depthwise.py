"""Windows over the pixels of each channel: depthwise convolution and pools of blocked images.

    y[n, o, q, l] = sum over kh, kw of x[n, o, q//W + kh, q%W + kw, l] * f[o, kh, kw, l]
    y[n, o, q, l] = max over kh, kw of x[n, o, q//W + kh, q%W + kw, l]

    step                        loads per multiply-add       what it does
    naive                       2
    vectors of l                2 / lanes                    one instruction, `lanes` channels
    tile of P pixels            (P + 1) / P / lanes          a weight is loaded once for P pixels
    sums in registers           no load or store of y        held over the taps, all unrolled
    kw inside the pixels        (P + 2K - 1) / P / K / lanes a pixel serves the K windows over it
    border strip by strip       the same                     the padded lines stay in L1 or L2

With K = 3 and P = 8 that is 13 loads for 24 multiply-adds of vectors. A pool is the same without
weights. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from dataclasses import replace

from minidlc.expr.index import Index, Var
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
from minidlc.te import Schedule

MAX_PIXELS = 14
ACROSS = 8  # pixels of a tile that passes the end of a line: an address for each


def schedule_window(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    """Tiles of pixels of one block of channels, on a group with flat pixels."""
    last, anchor = group.last, group.anchor
    assert anchor is not None
    kept = inline_around(sch, group, target)
    n, o, h, w, place = last.axes
    lanes, image = target.lanes(anchor.dtype.bits), Image.blocked(last)
    q = sch[last].fuse(h, w, "q")
    strip, q = sch[last].split(q, knobs["lines"] * image.width, names=("qs", "qr"))
    qo, qi = sch[last].split(q, knobs["pixels"], names=("qo", "qi"))
    lv, ll = sch[last].split(place, lanes, names=("lv", "ll"))
    strips = image.lines // knobs["lines"]
    outer, trips = (n, o, strip), (image.batch, image.blocks, strips)
    if knobs["strips_outside"]:
        outer, trips = (n, strip, o), (image.batch, strips, image.blocks)
    sch[last].reorder(*outer, qo, qi, lv, ll).vectorize(ll)
    sch[last].unroll(qi, lv)
    piece = outer[-1]
    if work(anchor) >= PARALLEL_SUMS:
        piece = fuse_and_share(sch, last, outer, trips, PIECES)
    sums = accumulator(sch, group)
    if sums != anchor.name:  # functions need registers of their own: the sums wait on the stack
        kept = (anchor, *kept)
    for stage in reversed(kept):
        near_registers(sch, stage, last, qo, lanes)
    sliding, _ = _sliding(group)
    room = max(1, knobs["unroll"] // knobs["pixels"])
    hold_pixels(sch, sums, last, qo, lanes, room, sliding=sliding)
    copies_at(sch, group, piece if knobs.get("border_at_strip", 1) else None)


def knobs(group: Group, target: Target) -> Space:
    """Pixels of a tile; lines of a strip, whose pixels with their border stay in part of L2.

    And the order of strips and channels, how many multiply-adds are in the innermost loop, whether
    a border is made strip by strip.

    Pixels of one line lie side by side and share an address; a tile that passes the end of a line
    has an address for each pixel, more than the machine has registers for.
    """
    assert group.anchor is not None
    image = Image.blocked(group.last)
    vectors = -(-image.block // target.lanes(group.anchor.dtype.bits))
    _, taps = _sliding(group)
    most = max(1, min(MAX_PIXELS, (target.registers - 2 * taps - 1) // vectors))
    in_line = largest_divisor(image.width, most)
    across = min(6, most, image.lines * image.width)
    source, _ = operand_bytes(group.anchor)
    line = source // (image.batch * image.blocks * image.lines)
    lines = largest_divisor(image.lines, max(1, target.l2 // 8 // line))
    pixels = in_line if in_line >= min(4, image.width) else across
    longest = min(MAX_PIXELS, image.lines * image.width)
    return {
        "pixels": default_first(pixels, range(1, longest + 1)),
        "lines": default_first(lines, divisors(image.lines)),
        "strips_outside": (0, 1),
        "unroll": (UNROLLED, UNROLLED // 4, UNROLLED // 2, 2 * UNROLLED),
        **border_knob(group, 1),
    }


def allowed(group: Group, target: Target, knobs: Knobs) -> bool:
    """True if sums, a row of weights and a pixel fit the registers, and pixels share addresses."""
    assert group.anchor is not None
    image = Image.blocked(group.last)
    vectors = -(-image.block // target.lanes(group.anchor.dtype.bits))
    pixels, (_, taps) = knobs["pixels"], _sliding(group)
    fits = pixels * vectors + taps + 1 <= target.registers or pixels == 1
    return fits and (pixels <= ACROSS or image.width % pixels == 0)


def _sliding(group: Group) -> tuple[str, int]:
    """The axis of the taps in a line, and how many there are: so many pixels and weights live."""
    assert group.anchor is not None
    axes = group.anchor.reduce_axes
    return next((axis for axis in reversed(axes) if axis[1] > 1), axes[-1])


def cost(group: Group, target: Target) -> float:
    """Cycles of the loads, two vectors of them a cycle."""
    assert group.anchor is not None
    return work(group.anchor) / target.lanes(group.anchor.dtype.bits) / 2


def slides_over_pixels(group: Group, target: Target) -> bool:
    """True if each vector of results needs whole vectors of what lies in memory."""
    if not has_pixels(group, target):
        return False
    anchor = group.anchor
    assert anchor is not None
    assert anchor.body is not None
    place = Index.of(Var(anchor.axes[-1]))
    single = {Var(name) for name, extent in anchor.reduce_axes if extent == 1}
    return all(
        e.index[-1] - place == Index.of(0) or (e.index[-1] - place).vars() <= single
        for e in loads(anchor.body)
    )


DEPTHWISE = Implementation(
    "depthwise",
    "depthwise_nchwc",
    schedule_window,
    applies=slides_over_pixels,
    knobs=knobs,
    cost=cost,
    compute=flatten_pixels,
    allowed=allowed,
)

POOL = replace(DEPTHWISE, name="pool_blocked", kind="pool")
