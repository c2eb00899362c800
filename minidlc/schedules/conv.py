"""Direct convolution and pooling on plain NCHW: vectors along the output row.

    y[n, o, h, w] = relu(sum over c, kh, kw of x[n, c, h + kh, w + kw] * f[o, c, kh, kw] + b[o])

    step                       loads per multiply-add         what it does
    naive                      2
    pad x once                 the same                       no border test in the loops
    vectorise w                2 / lanes                      a row of outputs at a time
    tile o by OT, w by WV      (OT + WV) / (OT * WV) / lanes  OT channels share the loads of x,
                                                              WV vectors those of f
    accumulators in registers  no load or store of y          held over c, kh, kw
    epilogue on the tile       no second pass over y          bias and relu before the store

With 64 channels and 16 registers OT = 4 and WV = 2: 6 loads for 8 multiply-adds of vectors.

A pool is the same with one channel at a time. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from minidlc.expr.index import Var
from minidlc.loop.regions import loads
from minidlc.schedules.group import Group, divisors, largest_divisor, work
from minidlc.schedules.implementation import Implementation, Knobs, Space, default_first
from minidlc.schedules.injective import keep_at
from minidlc.schedules.pixels import share_copies
from minidlc.schedules.tiles import (
    accumulator,
    channel_tile,
    hold_in_registers,
    inline_around,
    share_tiles,
)
from minidlc.target import Target
from minidlc.te import Schedule, Tensor

Schedules: TypeAlias = Callable[[Schedule, Group, Target, Knobs], None]

ROW_VECTORS, MAX_VECTORS = 2, 4
UNROLLED, LONGEST = 64, 256  # multiply-adds in the innermost loop: by default, and at most
# Cycles for a multiply-add of vectors. Fitted on a Zen 3 with eight lanes, from 3 x 224 x 224 to
# 512 x 7 x 7: with those of conv_channels.py the estimates are within a fifth of the cycles.
TAPS_UNROLLED, TAPS_ROLLED = 0.8, 1.1
STRIDED = 1.6  # pixels that a stride skips are loaded too, and shuffled out


def schedule_conv(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    """Tile of output channels x output row, sums in registers."""
    _window(sch, group, target, knobs, knobs["channels"])


def schedule_pool(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    """One channel at a time, vectors along the output row, the running value in registers."""
    _window(sch, group, target, knobs, 1)


def conv_knobs(group: Group, target: Target) -> Space:
    """Channels of a tile, vectors of a row in it, and how many taps of a line are unrolled."""
    channels, vectors = group.last.shape[1], _row_vectors(group, target)
    tile = channel_tile(channels, vectors, target.registers)
    return {
        "channels": default_first(tile, divisors(channels, 14)),
        **_row_knobs(group, target, tile),
    }


def pool_knobs(group: Group, target: Target) -> Space:
    """Vectors of a row in a tile, and how many taps of a line are unrolled."""
    return _row_knobs(group, target, 1)


def _row_knobs(group: Group, target: Target, tile: int) -> Space:
    assert group.anchor is not None
    vectors, taps = _row_vectors(group, target), group.anchor.reduce_axes[-1][1]
    steps = largest_divisor(taps, max(1, UNROLLED // (tile * vectors)))
    longest = -(-group.last.shape[-1] // target.lanes(group.last.dtype.bits))
    return {
        "vectors": default_first(vectors, range(1, min(MAX_VECTORS, longest) + 1)),
        "unroll": default_first(steps, divisors(taps, UNROLLED)),
    }


def row_fits(group: Group, target: Target, knobs: Knobs) -> bool:
    """True if the sums of a tile fit the registers, and the inner loop stays of some length."""
    channels, vectors = knobs.get("channels", 1), knobs["vectors"]
    fits = channels * vectors + vectors + 1 <= target.registers or channels == 1
    return fits and (knobs["unroll"] == 1 or channels * vectors * knobs["unroll"] <= LONGEST)


def one_a_cycle(group: Group, target: Target) -> float:
    """Cycles at one multiply-add each: what runs where no faster way applies."""
    assert group.anchor is not None
    return work(group.anchor)


def has_lines(group: Group, target: Target) -> bool:
    """True if the anchor has the axes of the result: no other expressions were put in its place."""
    return group.anchor is not None and group.anchor.shape == group.last.shape


def row_cost(group: Group, target: Target) -> float:
    """Cycles of `schedule_conv`: whole vectors of each line, and shuffles where a stride is."""
    anchor = group.anchor
    assert anchor is not None
    width, lanes = max(1, group.last.shape[-1]), target.lanes(anchor.dtype.bits)
    unrolled = anchor.reduce_axes[-1][1] > 1
    step = TAPS_UNROLLED if unrolled else TAPS_ROLLED
    step = step if _is_contiguous(anchor) else STRIDED
    return work(anchor) / width * -(-width // lanes) * step


def _is_contiguous(anchor: Tensor) -> bool:
    assert anchor.body is not None
    column = Var(anchor.axes[-1])
    return all(e.index[-1].coefficient(column) in (0, 1) for e in loads(anchor.body) if e.index)


def _row_vectors(group: Group, target: Target) -> int:
    lanes = target.lanes(group.last.dtype.bits)
    return max(1, min(ROW_VECTORS, -(-group.last.shape[-1] // lanes)))  # 1 also of no elements


def _window(sch: Schedule, group: Group, target: Target, knobs: Knobs, tile: int) -> None:
    last, anchor = group.last, group.anchor
    assert anchor is not None
    kept = inline_around(sch, group, target)
    share_copies(sch, group)
    sums = accumulator(sch, group)
    lanes, vectors = target.lanes(last.dtype.bits), knobs["vectors"]
    batch, channel, *lines, column = last.axes
    oo, oi = sch[last].split(channel, tile, names=("oo", "oi"))
    wo, wi = sch[last].split(column, vectors * lanes, names=("wo", "wi"))
    wv, wl = sch[last].split(wi, lanes, names=("wv", "wl"))
    sch[last].reorder(batch, oo, *lines, wo, oi, wv, wl)
    sch[last].unroll(oi)
    sch[last].unroll(wv)
    sch[last].vectorize(wl)
    trips = (last.shape[0], -(-last.shape[1] // tile), *last.shape[2:-1])
    share_tiles(sch, group, (batch, oo, *lines), trips)
    keep_at(sch, kept, last, wo, target, unrolled=True)
    unrolled = (anchor.axes[1],)
    hold_in_registers(sch, group, sums, wo, unrolled, lanes, steps=knobs["unroll"])


def _any(kind: str, schedule: Schedules, knobs: Callable[[Group, Target], Space]) -> Implementation:
    """What takes every group of a kind, where no faster way applies."""
    return Implementation(kind, kind, schedule, knobs=knobs, cost=one_a_cycle, allowed=row_fits)


ROWS = Implementation(
    "conv", "conv", schedule_conv, has_lines, conv_knobs, row_cost, allowed=row_fits
)
CONV_NCHWC = _any("conv_nchwc", schedule_conv, conv_knobs)
DEPTHWISE_NCHWC = _any("depthwise_nchwc", schedule_pool, pool_knobs)
POOL = _any("pool", schedule_pool, pool_knobs)
