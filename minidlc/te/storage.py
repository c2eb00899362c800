"""Stages stored at a loop further out than they are computed at: what is read was written before.

    for i in serial(0, 8):                          # e is stored here, at y.i
        for ko in serial(0, 4):                     # and computed here, at s.ko
            for j in serial(0, 16): e[16*ko + j] = …
            for ki in serial(0, 16): s[0] = s[0] + e[16*ko + ki]
        for j in serial(0, 64): y[i, j] = e[j] / s[0]           # reads what all ko have written

Reads loops, writes nothing. Reads inside the loop that computes are covered by construction: one
iteration computes all that it reads, halos included, though the one before may have written them.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from minidlc.expr.index import (
    Index,
    Interval,
    Ranges,
    Var,
    bounds,
    loop_ranges,
    maximum,
    minimum,
    simplify,
    substitute,
    value_range,
)
from minidlc.loop.nodes import Alloc, Block, For, If, Kind, Stmt, Store
from minidlc.loop.regions import Access, Box, accesses
from minidlc.support.errors import ScheduleError
from minidlc.te.stage import Stage


@dataclass(frozen=True)
class Computed:
    """Where and how much: in each iteration of the loop over `var`, the elements of `box`."""

    var: Var
    box: Box


@dataclass(frozen=True)
class _Use:
    """An access with the loops around it; two uses are inside one loop if it is one object."""

    access: Access
    loops: tuple[For, ...]


def check_covered(stmt: Stmt, stage: Stage, computed: Computed, around: Ranges) -> None:
    """Refuse (MDLC0626) a stage that `stmt`, which is to hold it, may read where it is not written.

    `stmt` is the body of the loop it is stored at. Conservative: what is not proved is refused.
    """
    uses = list(_uses(stmt, stage.name))
    last = max(n for n, use in enumerate(uses) if use.access.write)
    whole = uses[last].loops
    path = whole[: [loop.var for loop in whole].index(computed.var) + 1]
    for loop in path:
        if loop.kind is Kind.PARALLEL:
            raise _refused(stage, f"{loop.var.name!r} is parallel: all threads would share it")
    for n, use in enumerate(uses):
        if any(loop is path[-1] for loop in use.loops):
            continue
        if n < last:
            raise _refused(stage, f"{_text(use.access)} is read before it is computed")
        common = _common(path, use.loops)
        ranges = loop_ranges(_pairs(path[:common]), around)
        written = _written(computed.box, path[common:], ranges)
        if written is None or not _inside(use, common, written, stage, ranges):
            at = computed.var.name
            raise _refused(stage, f"{_text(use.access)} may be none of what {at!r} computes")


def _refused(stage: Stage, why: str) -> ScheduleError:
    return ScheduleError(
        f"{stage.name!r} is computed at {stage.at} and stored at {stage.stored}, but {why}",
        hint="compute it where it is stored",
        code="MDLC0626",
    )


def _text(access: Access) -> str:
    return f"{access.buffer}[{', '.join(map(str, access.index))}]"


def _uses(s: Stmt, buffer: str, loops: tuple[For, ...] = ()) -> Iterator[_Use]:
    """Every use of a buffer in program order."""
    match s:
        case For(body=body):
            yield from _uses(body, buffer, (*loops, s))
        case Block(stmts):
            for child in stmts:
                yield from _uses(child, buffer, loops)
        case Alloc(body=body) | If(body=body):
            yield from _uses(body, buffer, loops)
        case Store():
            yield from (_Use(a, loops) for a in accesses(s) if a.buffer == buffer)


def _common(path: Sequence[For], loops: Sequence[For]) -> int:
    """How many loops lie around both."""
    same = (a is b for a, b in zip(path, loops, strict=False))
    return next((n for n, equal in enumerate(same) if not equal), min(len(path), len(loops)))


def _pairs(loops: Sequence[For]) -> list[tuple[Var, Index]]:
    return [(loop.var, loop.extent) for loop in loops]


def _written(box: Box, loops: Sequence[For], ranges: Ranges) -> Box | None:
    """A box that is written for certain when `loops` have run; None where none is known.

    Each axis may move with one loop of its own, and must leave no gap between its iterations.
    """
    names = {loop.var for loop in loops}
    if any(names & loop.extent.vars() or not _runs(loop, ranges) for loop in loops):
        return None
    parts: list[tuple[Index, Index]] = []
    moved: list[Var] = []
    for low, extent in box:
        moving = [loop for loop in loops if loop.var in low.vars() | extent.vars()]
        if len(moving) > 1:
            return None
        part = _joined(low, extent, moving[0], ranges) if moving else (low, extent)
        if part is None:
            return None
        moved += [loop.var for loop in moving]
        parts.append(part)
    return tuple(parts) if len(set(moved)) == len(moved) else None


def _runs(loop: For, ranges: Ranges) -> bool:
    """Whether a loop runs at least once."""
    span = value_range(loop.extent, ranges)
    return span is not None and span[0] >= 1


def _joined(low: Index, extent: Index, loop: For, ranges: Ranges) -> tuple[Index, Index] | None:
    """The interval that all iterations of `loop` cover together, if each touches the next one."""
    v, span = loop.var, value_range(loop.extent, ranges)
    end = low + extent
    if span is not None and span[1] > 1:
        steps: dict[Var, Interval] = {**ranges, v: (0, span[1] - 2)}
        later = {v: v + 1}
        gaps = (substitute(low, later) - end, low - substitute(end, later))
        if not all(_never_positive(gap, steps) for gap in gaps):
            return None
    first, last = {v: Index.of(0)}, {v: loop.extent - 1}
    start = minimum(substitute(low, first), substitute(low, last))
    stop = maximum(substitute(end, first), substitute(end, last))
    return simplify(start, ranges), simplify(stop - start, ranges)


def _inside(use: _Use, common: int, written: Box, stage: Stage, ranges: Ranges) -> bool:
    """Whether a use lies inside the box `written`, or outside the tensor: that never happens."""
    loops = _pairs(use.loops[common:])
    sizes = stage.type.dims
    for e, (start, extent), size in zip(use.access.index, written, sizes, strict=True):
        low, high = bounds(e, loops, ranges)
        before = start - maximum(low, 0)
        behind = minimum(high, size - 1) - (start + extent - 1)
        if not (_never_positive(before, ranges) and _never_positive(behind, ranges)):
            return False
    return True


def _never_positive(e: Index, ranges: Ranges) -> bool:
    span = value_range(simplify(e, ranges), ranges)
    return span is not None and span[1] <= 0
