"""The loops of one stage over a region: extents of its leaves, values of its axes, guards.

    C[i], split("C", "i", 14, ["io", "ii"]), over all 127 elements:
        extents     io: 10, ii: min(14, 127 - 14*io)
        values      i: 14*io + ii
        guards      none; with ii outside io, which has 14*10 pairs: i <= 126

Reads a Stage, writes a `Nest` for `lower`. Treated in course chapter 04_schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from minidlc.expr.index import Index, Interval, Ranges, Var, minimum, simplify, value_range
from minidlc.support.errors import ScheduleError
from minidlc.te.stage import FuseRelation, SplitRelation, Stage


@dataclass(frozen=True)
class Nest:
    """What the loops of a stage are. Keys are iteration variables of the stage.

    `ranges` are those of the loop variables here and around; `guards` maps a variable that may
    run past its end to `extent - 1 - value`, which must be >= 0.
    """

    loops: Mapping[str, Var]
    extents: Mapping[str, Index]
    values: Mapping[str, Index]
    guards: Mapping[str, Index]
    ranges: Mapping[Var, Interval]


@dataclass
class _Builder:
    """The five steps below, each a walk over the relations; later ones use what earlier found."""

    stage: Stage
    loops: Mapping[str, Var]
    around: Ranges
    extents: dict[str, Index]
    caps: dict[str, int] = field(default_factory=dict[str, int])
    exact: dict[str, bool] = field(default_factory=dict[str, bool])
    fixed: dict[str, int | None] = field(default_factory=dict[str, int | None])
    values: dict[str, Index] = field(default_factory=dict[str, Index])
    guards: dict[str, Index] = field(default_factory=dict[str, Index])


def nest(
    stage: Stage, extents: Mapping[str, Index], loops: Mapping[str, Var], around: Ranges
) -> Nest:
    """The loops of `stage` when its axes run over `extents`, positions in the loops around.

    `loops` gives the variable of each leaf, `around` the ranges of the variables around.
    ScheduleError (MDLC0611) where a fused inner loop has no constant number of iterations.
    """
    b = _Builder(stage, loops, around, dict(extents))
    for axis, extent in extents.items():
        span = value_range(extent, around)
        b.caps[axis] = max(span[1], 0) if span else 0
        b.fixed[axis] = extent.const if extent.is_const else None
    _caps(b)
    own = {loops[leaf]: (0, max(b.caps[leaf], 1) - 1) for leaf in stage.leaves}
    ranges = {**around, **own}
    _values(b, ranges)
    _extents(b, ranges)
    return Nest(loops, b.extents, b.values, b.guards, ranges)


def _caps(b: _Builder) -> None:
    """Constant upper bounds of all extents, and which extents are numbers, in the order made.

    They come first: every range below, also of a variable that was split again, rests on them.
    """
    for relation in b.stage.relations:
        match relation:
            case SplitRelation(a, outer, inner, f):
                cap, whole = b.caps[a], b.fixed[a]
                b.caps[outer], b.caps[inner] = (1, cap) if cap <= f else (-(-cap // f), f)
                b.exact[a] = cap <= f or _all_outside(b.stage, outer, inner)
                if cap <= f:
                    b.fixed[outer], b.fixed[inner] = 1, whole
                elif b.exact[a]:
                    b.fixed[outer] = None if whole is None else -(-whole // f)
                    b.fixed[inner] = f if whole is not None and whole % f == 0 else None
                else:
                    b.fixed[outer], b.fixed[inner] = b.caps[outer], f
            case FuseRelation(outer, inner, fused):
                n = b.fixed[inner]
                if n is None:
                    raise _not_constant(b.stage, inner)
                whole = b.fixed[outer]
                b.caps[fused] = b.caps[outer] * n
                b.fixed[fused] = None if whole is None else whole * n


def _all_outside(stage: Stage, outer: str, inner: str) -> bool:
    """Whether every loop that `outer` has become lies outside every loop of `inner`."""
    last = max(stage.position(leaf) for leaf in stage.leaves_of[outer])
    first = min(stage.position(leaf) for leaf in stage.leaves_of[inner])
    return last < first


def _values(b: _Builder, ranges: Ranges) -> None:
    """Each iteration variable as a position in the leaves, from the last relation to the first."""
    b.values.update({leaf: Index.of(b.loops[leaf]) for leaf in b.stage.leaves})
    for relation in reversed(b.stage.relations):
        match relation:
            case SplitRelation(a, outer, inner, f):
                b.values[a] = simplify(b.values[outer] * f + b.values[inner], ranges)
            case FuseRelation(outer, inner, fused):
                n = max(b.fixed[inner] or 0, 1)
                b.values[outer] = simplify(b.values[fused] // n, ranges)
                b.values[inner] = simplify(b.values[fused] % n, ranges)


def _extents(b: _Builder, ranges: Ranges) -> None:
    """The extents as positions, in the order made, and guards where a pair runs in full."""
    for relation in b.stage.relations:
        match relation:
            case SplitRelation(a, outer, inner, f):
                whole = b.extents[a]
                if b.caps[a] <= f:
                    b.extents[outer], b.extents[inner] = Index.of(1), whole
                elif b.exact[a]:
                    left = whole - b.values[outer] * f
                    b.extents[outer] = simplify((whole + (f - 1)) // f, ranges)
                    b.extents[inner] = simplify(minimum(f, left), ranges)
                else:
                    b.extents[outer] = Index.of(b.caps[outer])
                    b.extents[inner] = Index.of(f)
                    if b.fixed[a] is None or (b.fixed[a] or 0) % f:
                        b.guards[a] = whole - 1 - b.values[a]
            case FuseRelation(outer, inner, fused):
                b.extents[fused] = b.extents[outer] * (b.fixed[inner] or 0)


def _not_constant(stage: Stage, inner: str) -> ScheduleError:
    return ScheduleError(
        f"{inner!r} of stage {stage.name!r} is fused, but runs a different number of times in "
        "different iterations of the loops around",
        hint="split by a factor that divides, or fuse before the split or compute_at",
        code="MDLC0611",
    )
