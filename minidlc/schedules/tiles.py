"""The two moves that matrix products, convolutions and windows share.

1. Everything pointwise around the anchor is inlined, so that one stage remains to be looped over.
2. The anchor's sums are kept in registers for one tile of that stage:

    before                               after (tile 2 x 16, lanes 16)
    for i: for j: for k: C[i, j] += …    for io: for jo:
    for i: for j: D[i, j] = relu(C …)        C = alloc(f32[2, 16], "register")
                                             for k: for i unrolled: for j vectorized: C[i, j] += …
                                             for ii unrolled: for j vectorized: D[…] = relu(C …)

Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from functools import cache

from minidlc.expr.index import Cond
from minidlc.expr.nodes import Call, Select
from minidlc.expr.walk import walk
from minidlc.schedules.group import Group, largest_divisor, work
from minidlc.schedules.injective import CHEAP, fuse_and_share, inline_pointwise, vectorize_rows
from minidlc.target import Target
from minidlc.te import Schedule, Tensor

PARALLEL_SUMS = 1 << 18  # multiply-adds: five to fifty microseconds, by where the operands are
PIECES = 8  # of a parallel loop over tiles


def inline_around(sch: Schedule, group: Group, target: Target) -> tuple[Tensor, ...]:
    """Inline pointwise stages, but give a padded copy its own loops; returns what `keep_at` places.

    Those are stages too dear to inline, and outputs that are computed beside the last. A border
    test inside the anchor would run once for each multiply-add; as a stage of its own it runs once
    for each element (docs/schedule_pitfalls.md, 17).
    """
    pointwise = [t for t in group.intermediate() if t is not group.anchor and not t.reduce_axes]
    padded = [t for t in pointwise if has_border(t)]
    kept = inline_pointwise(sch, [t for t in pointwise if t not in padded])
    before = (*padded, *(t for t in kept if t in group.before_anchor()))
    for stage in before:
        vectorize_rows(sch, stage, target)
    beside = [t for t in group.outputs if t not in (group.anchor, group.last)]
    return tuple(t for t in group.stages() if t in beside or (t in kept and t not in before))


def has_border(stage: Tensor) -> bool:
    """True if a stage tests where an element lies: a copy with a border."""
    assert stage.body is not None
    return any(isinstance(e, Select) and isinstance(e.cond, Cond) for e in walk(stage.body))


def accumulator(sch: Schedule, group: Group) -> str:
    """Name of the stage that holds the sums: the anchor, or a copy of it.

    A copy if the anchor is an output; and if polynomials follow: those need the registers that
    the sums are in, so they read a tile on the stack (docs/schedule_pitfalls.md, 14).
    It goes to registers at the very end, when its loops are unrolled: so every prefix is legal.
    """
    assert group.anchor is not None
    if group.anchor in group.outputs or has_functions_after(group):
        return sch[group.anchor].cache_write("arena").name
    return group.anchor.name


def has_functions_after(group: Group) -> bool:
    """True if what comes after the anchor is more than a few instructions for an element."""
    if group.anchor is group.last:
        return False
    bodies = (t.body for t in (*group.after_anchor(), group.last) if t.body is not None)
    nodes = (e for body in bodies for e in walk(body))
    return any(isinstance(e, Call) and e.fn not in (*CHEAP, "sqrt") for e in nodes)


def hold_in_registers(
    sch: Schedule,
    group: Group,
    accumulator: str,
    leaf: str,
    unrolled: tuple[str, ...],
    lanes: int,
    *,
    steps: int = 1,
) -> None:
    """Compute the sums of one tile at `leaf` of the last stage, in registers.

    The reduction loops go outside, the innermost unrolled by `steps`; then the `unrolled` axes,
    then the last axis as vectors. If the anchor is a copy of the sums, it is an output, or a tile
    on the stack.
    """
    anchor = group.anchor
    assert anchor is not None
    if anchor is not group.last and accumulator != anchor.name:
        sch[anchor].compute_at(group.last, leaf)
        unroll_tile(sch, anchor.name, anchor.axes[:-1], (), unrolled, lanes)
        if anchor not in group.outputs:
            sch[anchor].set_scope("stack")
    sch[accumulator].compute_at(group.last, leaf)
    sums = [name for name, _ in anchor.reduce_axes]
    if steps > 1 and sums:
        sums[-1:] = sch[accumulator].split(sums[-1], steps)
        unrolled = (sums.pop(), *unrolled)
    unroll_tile(sch, accumulator, anchor.axes[:-1], tuple(sums), unrolled, lanes)
    sch[accumulator].set_scope("register")


def unroll_tile(
    sch: Schedule,
    stage: str,
    axes: tuple[str, ...],
    sums: tuple[str, ...],
    unrolled: tuple[str, ...],
    lanes: int,
) -> None:
    """The loops of a tile: what stays serial, the sums, `unrolled`, and the columns in vectors."""
    column = sch[stage].loops[len(axes)]
    vector, lane = sch[stage].split(column, lanes, names=(f"{column}v", f"{column}l"))
    rest = [axis for axis in axes if axis not in unrolled]
    sch[stage].reorder(*rest, *sums, *unrolled, vector, lane)
    for axis in (*unrolled, vector):
        sch[stage].unroll(axis)
    sch[stage].vectorize(lane)


@cache
def register_tile(rows: int, columns: int, lanes: int, registers: int) -> tuple[int, int]:
    """(rows, vectors) of the accumulator tile for a rows x columns result.

    Among the tiles that fit the register file, with one register a vector of the right operand and
    one to spare, take the one with the least cost on the whole shape. A tail counts as much as a
    full tile. A step of k takes as long as its multiply-adds or its loads, two of each in a cycle;
    the loads of the right operand, from a farther cache, come on top: the weights are a guess that
    held from 128 to 2048.
    """
    best, best_cost = (1, 1), float("inf")
    for vectors in range(1, 9):
        if (vectors - 1) * lanes >= columns and vectors > 1:
            break
        for height in range(1, 15):
            if height > rows or height * vectors + vectors + 1 > registers:
                break
            tiles = -(-rows // height) * -(-columns // (vectors * lanes))
            step = max(height * vectors, height + vectors, 8)  # a multiply-add takes four cycles
            cost = tiles * (step + 0.25 * height + 1.5 * vectors)
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
    return (
        fuse_and_share(sch, group.last, leaves, trips, PIECES) if is_shared(group) else leaves[-1]
    )


def is_shared(group: Group) -> bool:
    """True if the anchor is work enough for several threads."""
    assert group.anchor is not None
    return work(group.anchor) >= PARALLEL_SUMS


def computing_bits(group: Group) -> int:
    """Size of the widest element that the anchor and what follows compute with, at least 32.

    f16 and bf16 are computed as f32, and code generation works on vectors of 32-bit lanes.
    """
    assert group.anchor is not None
    stages = (group.anchor, *group.after_anchor(), group.last)
    return max(32, *(t.dtype.bits for t in stages))


def channel_tile(channels: int, vectors: int, registers: int) -> int:
    """How many output channels share the loads of a tile: a divisor, so that none is left over."""
    return largest_divisor(channels, max(1, min(14, (registers - 1 - vectors) // vectors)))
