"""The two moves that matrix products, convolutions and windows share.

1. Everything pointwise around the anchor is inlined, so that one stage remains to be looped over.
2. The anchor's sums are kept in registers for one tile of that stage:

    before                               after (tile 2 x 16, lanes 16)
    for i: for j: for k: C[i, j] += …    for io: for jo:
    for i: for j: D[i, j] = relu(C …)        C = alloc(f32[2, 16], "register")
                                             for k: for i unrolled: for j vectorized: C[i, j] += …
                                             for ii unrolled: for j vectorized: D[…] = relu(C …)

Treated in course chapter 04_schedule.
"""

from __future__ import annotations

from minidlc.expr.index import Cond
from minidlc.expr.nodes import Select
from minidlc.expr.walk import walk
from minidlc.schedules.group import Group, largest_divisor, work
from minidlc.schedules.injective import fuse_and_share, inline_pointwise, vectorize_rows
from minidlc.target import Target
from minidlc.te import Schedule, Tensor

PARALLEL_SUMS = 1 << 18  # multiply-adds: five to fifty microseconds, by where the operands are


def inline_around(sch: Schedule, group: Group, target: Target) -> tuple[Tensor, ...]:
    """Inline pointwise stages, but give a padded copy its own loops; returns what `keep_at` places.

    A border test inside the anchor would run once for each multiply-add; as a stage of its own it
    runs once for each element (SCHEDULE.md pitfall 17 measured both).
    """
    pointwise = [t for t in group.intermediate() if t is not group.anchor and not t.reduce_axes]
    padded = [t for t in pointwise if _has_border(t)]
    kept = inline_pointwise(sch, [t for t in pointwise if t not in padded])
    before = (*padded, *(t for t in kept if t in group.before_anchor()))
    for stage in before:
        vectorize_rows(sch, stage, target)
    return tuple(t for t in kept if t not in before)


def _has_border(stage: Tensor) -> bool:
    assert stage.body is not None
    return any(isinstance(e, Select) and isinstance(e.cond, Cond) for e in walk(stage.body))


def accumulator(sch: Schedule, group: Group) -> str:
    """Name of the stage that holds the sums: the anchor, or a copy of it if it is the output.

    It goes to registers at the very end, when its loops are unrolled: so every prefix is legal.
    """
    assert group.anchor is not None
    if group.anchor is group.last:
        return sch[group.anchor].cache_write("arena").name
    return group.anchor.name


def hold_in_registers(
    sch: Schedule, group: Group, accumulator: str, leaf: str, unrolled: tuple[str, ...], lanes: int
) -> None:
    """Compute the sums of one tile at `leaf` of the last stage, in registers.

    The reduction loops go outside, then the `unrolled` axes, then the last axis as vectors.
    """
    anchor = group.anchor
    assert anchor is not None
    column = anchor.axes[-1]
    sch[accumulator].compute_at(group.last, leaf)
    vector, lane = sch[accumulator].split(column, lanes, names=(f"{column}v", f"{column}l"))
    rest = [a for a in anchor.axes[:-1] if a not in unrolled]
    sums = [name for name, _ in anchor.reduce_axes]
    sch[accumulator].reorder(*rest, *sums, *unrolled, vector, lane)
    for axis in (*unrolled, vector):
        sch[accumulator].unroll(axis)
    sch[accumulator].vectorize(lane)
    sch[accumulator].set_scope("register")


def register_tile(rows: int, columns: int, lanes: int, registers: int) -> tuple[int, int]:
    """(rows, vectors) of the accumulator tile for a rows x columns result.

    Among the tiles that fit the register file, with one register a vector of the right operand and
    one to spare, take the one with the least cost on the whole shape. A tail counts as much as a
    full tile. A step of k costs its multiply-adds and its loads; those of the right operand, whose
    rows lie far apart, come from a farther cache: the weights are a guess that held at 256 and 512.
    """
    best, best_cost = (1, 1), float("inf")
    for vectors in range(1, 9):
        if (vectors - 1) * lanes >= columns and vectors > 1:
            break
        for height in range(1, 15):
            if height > rows or height * vectors + vectors + 1 > registers:
                break
            tiles = -(-rows // height) * -(-columns // (vectors * lanes))
            latency = max(height * vectors, 8)  # two multiply-adds a cycle, four cycles each
            cost = tiles * (latency + 0.25 * height + 1.5 * vectors)
            if cost < best_cost:
                best, best_cost = (height, vectors), cost
    return best


def share_tiles(
    sch: Schedule, group: Group, leaves: tuple[str, ...], trips: tuple[int, ...]
) -> str:
    """Run the tile loops in parallel: fuse outermost leaves until there are enough pieces.

    Returns the innermost of the leaves, which fusing may have renamed. Call it before anything is
    computed at them.
    """
    assert group.anchor is not None
    if work(group.anchor) < PARALLEL_SUMS:
        return leaves[-1]
    return fuse_and_share(sch, group.last, leaves, trips, 8)


def channel_tile(channels: int, vectors: int, registers: int) -> int:
    """How many output channels share the loads of a tile: a divisor, so that none is left over."""
    return largest_divisor(channels, max(1, min(14, (registers - 1 - vectors) // vectors)))
