"""Matrix multiplication and what hangs on it: bias, activation, residual.

    D[i, j] = relu(sum over k of A[i, k] * B[k, j] + bias[j])

    step                         loads per multiply-add     what it does
    naive i j k                  2                          each operand fetched for each use
    tile i by MR, j by NR        1/MR + 1/NR                one tile of C is finished at a time
    vectorise j                  … / lanes                  one instruction, `lanes` columns
    accumulators in registers    no load or store of C      MR * NV vectors live over all of k
    epilogue on the tile         no second pass over C      bias and relu before the store

The tile is chosen per shape (tiles.register_tile): MR * NV + NV vectors must fit the register file
(SCHEDULE.md 3.7), else the accumulators spill and a factor two is lost.
Treated in course chapter 04_schedule.
"""

from __future__ import annotations

from minidlc.schedules.group import Group
from minidlc.schedules.injective import keep_at
from minidlc.schedules.tiles import (
    accumulator,
    hold_in_registers,
    inline_around,
    register_tile,
    share_tiles,
)
from minidlc.target import Target
from minidlc.te import Schedule


def schedule_matmul(sch: Schedule, group: Group, target: Target) -> None:
    """Register-tiled product over the last two axes; leading axes are batch."""
    last = group.last
    kept = inline_around(sch, group, target)
    sums = accumulator(sch, group)
    lanes = target.lanes(last.dtype.bits)
    batch, row, column = last.axes[:-2], last.axes[-2:-1], last.axes[-1]
    rows = last.shape[-2] if row else 1
    height, vectors = register_tile(rows, last.shape[-1], lanes, target.registers)
    jo, ji = sch[last].split(column, vectors * lanes, names=("jo", "ji"))
    jv, jl = sch[last].split(ji, lanes, names=("jv", "jl"))
    trips = [*last.shape[:-2]]
    outer, inner = [*batch], [jv, jl]
    if row:
        io, ii = sch[last].split(row[0], height, names=("io", "ii"))
        outer.append(io)
        inner.insert(0, ii)
        trips.append(-(-rows // height))
    trips.append(-(-last.shape[-1] // (vectors * lanes)))
    sch[last].reorder(*outer, jo, *inner)
    for axis in inner[:-1]:
        sch[last].unroll(axis)
    sch[last].vectorize(jl)
    leaf = share_tiles(sch, group, (*outer, jo), tuple(trips))
    keep_at(sch, kept, last, leaf, target, unrolled=True)
    assert group.anchor is not None
    hold_in_registers(sch, group, sums, leaf, group.anchor.axes[-2:-1], lanes)
