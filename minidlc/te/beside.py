"""An output computed beside another: the part of it that an iteration writes of the other.

    for i in parallel(0, 8):                        # y is computed at z.i
        for j in serial(0, 16): y[i, j] = x[i, j] + 1
        for j in serial(0, 16): z[i, j] = y[i, j] * 2

    part_beside(stmt, y, point, (8, 16), ranges)    # ((i, 1), (0, 16)): what stmt writes of z

Reads loops, writes nothing. All iterations together write all of z, so they write all of y. Treated
in course chapter 04_lowering.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from minidlc.expr.index import Index, Interval, Ranges, Var, simplify, value_range
from minidlc.loop.nodes import Stmt
from minidlc.loop.regions import Box, accesses, regions
from minidlc.support.errors import ScheduleError
from minidlc.te.stage import Point, Stage


def part_beside(
    stmt: Stmt, stage: Stage, point: Point, sizes: tuple[int, ...], around: Ranges
) -> Box:
    """The box of `stage` that belongs to one iteration of `point`.

    `sizes` are those of the other output. Where one of the two has one element along an axis, a
    whole row of the other belongs to it. ScheduleError (MDLC0621) where an iteration writes part of
    such a row, or no box but some elements of one (a fused loop that was split), or reads more of
    `stage` than belongs to it.
    """
    whole = regions(stmt, point.stage, "w", around)
    assert whole is not None, "an output is written inside its own loops"
    if not _is_dense(stmt, point.stage, whole, around):
        raise _refused(stage, point, f"an iteration writes no whole box of {point.stage!r}")
    box: list[tuple[Index, Index]] = []
    for part, own, size in zip(whole, stage.type.dims, sizes, strict=True):
        if own == size:
            box.append(part)
        elif size == 1 or part == (Index.of(0), Index.of(size)):
            box.append((Index.of(0), Index.of(own)))
        else:
            raise _refused(stage, point, f"an iteration writes no whole row of {point.stage!r}")
    read = regions(stmt, stage.name, "r", around)
    if read is not None and not _covers(tuple(box), read, stage, around):
        raise _refused(stage, point, "an iteration reads more than it would compute")
    return tuple(box)


def _is_dense(stmt: Stmt, name: str, box: Box, around: Ranges) -> bool:
    """True if the box has no more elements than the loops that write them have iterations."""
    size = math.prod(_most(extent, around) for _, extent in box)
    writes = (a.loops for a in accesses(stmt) if a.write and a.buffer == name)
    return size <= min(_trips(loops, dict(around)) for loops in writes)


def _trips(loops: Iterable[tuple[Var, Index]], ranges: dict[Var, Interval]) -> int:
    trips = 1
    for var, extent in loops:
        most = _most(extent, ranges)
        ranges[var] = (0, max(most - 1, 0))
        trips *= most
    return trips


def _covers(box: Box, read: Box, stage: Stage, around: Ranges) -> bool:
    for (low, extent), (start, count), size in zip(box, read, stage.type.dims, strict=True):
        before = low - start
        behind = start + count - (low + extent)
        inside = all(_most(simplify(e, around), around) <= 0 for e in (before, behind))
        if not inside and not (_most(low, around) <= 0 and extent == Index.of(size)):
            return False
    return True


def _most(e: Index, around: Ranges) -> int:
    """The largest value; for what has no bound a number beyond all sizes."""
    span = value_range(e, around)
    return 1 << 62 if span is None else span[1]


def _refused(stage: Stage, point: Point, why: str) -> ScheduleError:
    return ScheduleError(
        f"{stage.name!r} is an output: it cannot be computed at {point}, {why}",
        hint="compute it at a loop further out, or by itself",
        code="MDLC0621",
    )
