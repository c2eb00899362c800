"""The loops of one stage over a region: extents of its leaves, values of its axes, guards.

    C[i], split("C", "i", 14, ["io", "ii"]), over all 127 elements:
        extents     io: 10, ii: min(14, 127 - 14*io)
        values      i: 14*io + ii
        guards      none; with ii outside io, which has 14*10 pairs: i <= 126
    with tail="shift":
        extents     io: 10, ii: 14
        values      i: min(14*io, 113) + ii

Reads a Stage, writes a `Nest` for `lower`. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from minidlc.expr.index import Index, Interval, Ranges, Var, minimum, simplify, value_range
from minidlc.loop.nodes import Kind
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
                if relation.tail == "shift" and cap > f:
                    b.extents[a] = _shiftable(b, relation)
                    b.fixed[outer] = None if whole is None else -(-whole // f)
                    b.fixed[inner] = f
                elif cap <= f:
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


def _shiftable(b: _Builder, split: SplitRelation) -> Index:
    """The extent of a loop whose last block begins early; ScheduleError MDLC0625 if it may not."""
    a, f = split.parent, split.factor
    whole = b.extents.get(a) if b.fixed[a] is None else Index.of(b.fixed[a] or 0)
    span = None if whole is None else value_range(whole - f, b.around)
    if whole is None or span is None or span[0] < 0:
        times = "a varying number of" if whole is None else whole
        raise ScheduleError(
            f'split of {a!r} by {f} with tail="shift": {a!r} runs {times} times, which is not '
            f"proved to be {f} or more",
            hint='use tail="cut", or a smaller factor',
            code="MDLC0625",
        )
    if not (whole.is_const and whole.const % f == 0):
        _check_overlap(b.stage, split)
    return whole


def _check_overlap(stage: Stage, split: SplitRelation) -> None:
    """Refuse blocks that overlap (MDLC0625) unless each stores final values, one after the other.

    Then what two of them cover is stored twice, with the same value.
    """
    outermost = next((x for x in stage.leaves if x in stage.reductions), None)
    for leaf in stage.leaves_of[split.outer]:
        why = ""
        if outermost and stage.position(leaf) > stage.position(outermost):
            why = f"lies inside the reduction loop {outermost!r}: it would add to elements twice"
        if stage.kind(leaf) is Kind.PARALLEL:
            why = "is parallel: two threads would store the same elements"
        if why:
            raise ScheduleError(
                f'split of {split.parent!r} with tail="shift": {leaf!r} {why}',
                hint='use tail="cut", or a factor that divides',
                code="MDLC0625",
            )


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
                start = b.values[outer] * f
                if relation.tail == "shift" and b.caps[a] > f:
                    start = minimum(start, b.extents[a] - f)
                b.values[a] = simplify(start + b.values[inner], ranges)
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
                elif relation.tail == "shift":
                    b.extents[outer] = simplify((whole + (f - 1)) // f, ranges)
                    b.extents[inner] = Index.of(f)
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
