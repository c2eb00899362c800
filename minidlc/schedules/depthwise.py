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
from minidlc.schedules.group import Group, largest_divisor, work
from minidlc.schedules.implementation import Implementation, Knobs, Space
from minidlc.schedules.injective import fuse_and_share
from minidlc.schedules.pixels import (
    PIECES,
    Image,
    copies,
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
    sch[last].reorder(n, o, strip, qo, qi, lv, ll).vectorize(ll)
    sch[last].unroll(qi, lv)
    if work(anchor) >= PARALLEL_SUMS:
        trips = image.batch, image.blocks, image.lines // knobs["lines"]
        strip = fuse_and_share(sch, last, (n, o, strip), trips, PIECES)
    sums = accumulator(sch, group)
    if sums != anchor.name:  # functions need registers of their own: the sums wait on the stack
        kept = (anchor, *kept)
    for stage in reversed(kept):
        near_registers(sch, stage, last, qo, lanes)
    sliding, _ = _sliding(group)
    hold_pixels(sch, sums, last, qo, lanes, knobs["pixels"], sliding=sliding)
    for stage in reversed(copies(sch, group)):
        sch[stage].compute_at(last, strip)


def knobs(group: Group, target: Target) -> Space:
    """Pixels of a tile; lines of a strip, whose pixels with their border stay in part of L2.

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
    return {
        "pixels": (in_line, across) if in_line >= min(4, image.width) else (across, in_line),
        "lines": tuple(dict.fromkeys((lines, image.lines))),
    }


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
)

POOL = replace(DEPTHWISE, name="pool_blocked", kind="pool")
