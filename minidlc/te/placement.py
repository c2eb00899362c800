"""Where things may be: stages inside loops of others, loops inside vectorised loops.

    check_placement(state)          # None, or a ScheduleError naming the reader in the way

A stage computed inside a loop must have all its readers in there. Reads a State, writes nothing;
run after each primitive that moves a stage, and again by `lower`.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from minidlc.loop.nodes import Kind, Scope
from minidlc.support.errors import ScheduleError
from minidlc.te.stage import Point, Stage, State


def is_inside(state: State, stage: Stage, point: Point) -> bool:
    """Whether `stage` is computed inside the loop `point`, directly or in stages placed there."""
    place = state.stage(point.stage).position(point.axis)
    if stage.name == point.stage:
        return True
    for at in chain(state, stage):
        if at.stage == point.stage:
            return state.stage(at.stage).position(at.axis) >= place
    return False


def chain(state: State, stage: Stage) -> tuple[Point, ...]:
    """The loops a stage is computed at: its own point, that of the stage there, … up to the root.

    ScheduleError (MDLC0616) if the way comes back to a stage it has passed.
    """
    points: list[Point] = []
    passed = [stage.name]
    while stage.at is not None:
        points.append(stage.at)
        if stage.at.stage in passed:
            way = " -> ".join([*passed, stage.at.stage])
            raise ScheduleError(f"stages are computed inside each other: {way}", code="MDLC0616")
        passed.append(stage.at.stage)
        stage = state.stage(stage.at.stage)
    return tuple(points)


def check_placement(state: State) -> None:
    """Refuse a stage at a loop that does not read it, or that not all its readers are inside.

    ScheduleError: no reader inside (MDLC0614), a reader outside (MDLC0615), a cycle (MDLC0616), a
    vectorised loop around (MDLC0609); and what `check_prepacked` and `check_scan` refuse.
    """
    for stage in state.prepacked():
        check_prepacked(state, stage)
    for stage in state.stages:
        if stage.steps:
            check_scan(state, stage)
    for stage in state.stages:
        if stage.at is None or stage.inlined:
            continue
        chain(state, stage)
        if stage.name in state.outputs:
            check_beside(state, stage, stage.at)
        readers = state.readers(stage.name)
        outside = [r for r in readers if not is_inside(state, r, stage.at)]
        if outside and len(outside) < len(readers) and stage.stored is not None:
            outside = [r for r in readers if not is_inside(state, r, stage.stored)]
        if len(outside) == len(readers) and (readers or stage.name not in state.outputs):
            names = ", ".join(r.name for r in readers)
            raise ScheduleError(
                f"nothing inside the loop {stage.at} reads {stage.name!r}",
                hint=f"its readers: {names}; place it, or them, accordingly",
                code="MDLC0614",
            )
        if outside:
            raise ScheduleError(
                f"{outside[0].name!r} reads {stage.name!r} too, outside the loop {stage.at}",
                hint=f"first compute {outside[0].name!r} inside that loop (consumers before "
                "producers), or choose a loop around both",
                code="MDLC0615",
            )
        target = state.stage(stage.at.stage)
        for leaf in target.leaves[: target.position(stage.at.axis) + 1]:
            if target.kind(leaf) is Kind.VECTORIZED:
                check_vector_leaf(state, target, leaf)
        if stage.stored is not None:
            _check_around(state, stage, stage.at, stage.stored)


def _check_around(state: State, stage: Stage, at: Point, stored: Point) -> None:
    """Refuse (MDLC0626) a stage stored at a loop that does not lie around where it is computed."""
    place, target = state.stage(stored.stage).position(stored.axis), state.stage(at.stage)
    around = is_inside(state, target, stored)
    if not around or (at.stage == stored.stage and target.position(at.axis) < place):
        raise ScheduleError(
            f"{stage.name!r} is computed at {at}, which is not inside {stored}, where it is stored",
            hint=f"compute {stage.name!r} further inside",
            code="MDLC0626",
        )


def check_beside(state: State, stage: Stage, point: Point) -> None:
    """Refuse (MDLC0621) an output at a loop that does not write as much of another output."""
    other = state.stage(point.stage)
    place = other.position(point.axis)
    why = None
    if other.name not in state.outputs or not _has_same_rows(stage, other):
        why = f"{other.name!r} is no output of its shape"
    elif _needs(state, stage, other.name):
        why = f"it is computed from {other.name!r}"
    elif other.steps or stage.steps:
        why = "the steps of a scan are those of one output"
    elif any(leaf in other.reductions for leaf in other.leaves[: place + 1]):
        why = f"{point} is inside a reduction: {other.name!r} is not done in there"
    if why is not None:
        raise ScheduleError(
            f"{stage.name!r} is an output: it is computed whole, or beside another one, but {why}",
            hint="cache_write gives it a buffer of its own, which is no output",
            code="MDLC0621",
        )


def _has_same_rows(stage: Stage, other: Stage) -> bool:
    """Whether two stages have the same sizes, but for axes of which one of them has one element."""
    own, dims = stage.type.dims, other.type.dims
    return len(own) == len(dims) and all(
        a == b or 1 in (a, b) for a, b in zip(own, dims, strict=True)
    )


def _needs(state: State, stage: Stage, name: str) -> bool:
    """Whether a stage is computed from another, directly or not."""
    needed = set(stage.reads)
    for other in reversed(state.stages):
        needed |= other.reads if other.name in needed else frozenset()
    return name in needed


def check_prepacked(state: State, stage: Stage) -> None:
    """Refuse a stage that cannot be computed at compile time, once and as a whole.

    ScheduleError: it depends on what only a call knows (MDLC0628), has a place in the loops of a
    call (MDLC0629), or is an output (MDLC0621).
    """
    name = stage.name
    if name in state.outputs:
        raise ScheduleError(
            f"{name!r} is an output: each call writes it anew",
            hint="prepack a stage that it reads",
            code="MDLC0621",
        )
    needed = set(stage.reads)
    for other in reversed(state.stages):
        if other.name in needed:
            needed |= other.reads
    for placeholder in state.placeholders:
        if placeholder.name in needed and placeholder.name not in state.constants:
            known = ", ".join(sorted(state.constants)) or "none"
            raise ScheduleError(
                f"{name!r} depends on {placeholder.name!r}, which is no constant: it is not known "
                "before the call",
                notes=(f"constants: {known}",),
                hint="create_schedule(outputs, constants=(…))",
                code="MDLC0628",
            )
    if stage.at is not None or stage.inlined or stage.scope is not Scope.ARENA:
        place = f"computed at {stage.at}" if stage.at else "inlined"
        place = place if stage.at or stage.inlined else f"kept in scope '{stage.scope}'"
        raise ScheduleError(
            f"{name!r} is prepacked, a parameter of the loops: it cannot be {place} as well",
            hint="leave out prepack, or the step that says so",
            code="MDLC0629",
        )


def check_scan(state: State, scan: Stage) -> None:
    """Refuse a scan whose steps would not run in order, or without what belongs to them.

    ScheduleError: the loops of the steps are not outermost, one after the other (MDLC0632); the
    scan, or a stage that takes part in it, is computed elsewhere (MDLC0633).
    """
    loops = state.step_loops(scan)
    if scan.at is not None or scan.inlined:
        place = f"computed at {scan.at}" if scan.at else "inlined"
        raise ScheduleError(
            f"{scan.name!r} is a scan, each step needs those before: it cannot be {place}",
            hint="schedule the loops over its other axes",
            code="MDLC0633",
        )
    if scan.leaves[: len(loops)] != loops:
        raise ScheduleError(
            f"the steps of the scan {scan.name!r} must run in order, outermost",
            notes=(f"loops: {', '.join(scan.leaves)}; of the steps: {', '.join(loops)}",),
            hint=f"{', '.join(map(repr, loops))} first, then the others",
            code="MDLC0632",
        )
    for leaf in loops:
        if scan.kind(leaf) not in (Kind.SERIAL, Kind.UNROLLED):
            raise ScheduleError(
                f"{leaf!r} runs over the steps of the scan {scan.name!r}: it cannot be "
                f"{scan.kind(leaf)}",
                hint="take a loop over another axis",
                code="MDLC0632",
            )
    point = Point(scan.name, loops[-1])
    for stage in state.within(scan):
        if stage.at is None or not is_inside(state, stage, point):
            raise ScheduleError(
                f"{stage.name!r} takes part in the scan {scan.name!r}: it must be computed inside "
                f"{point}",
                hint="leave out the step that moves it, or move it to a loop inside that one",
                code="MDLC0633",
            )


def check_vector_leaf(state: State, stage: Stage, leaf: str) -> None:
    """Refuse loops other than unrolled ones, and stages, inside a vectorised leaf."""
    inside = stage.leaves[stage.position(leaf) + 1 :]
    for name in inside:
        if stage.kind(name) is not Kind.UNROLLED:
            raise ScheduleError(
                f"{name!r} ({stage.kind(name)}) lies inside {leaf!r}: the vectorised loop must be "
                "innermost",
                notes=(f"loops of {stage.name}, outermost first: {', '.join(stage.leaves)}",),
                hint="reorder first",
                code="MDLC0610",
            )
    for name in (leaf, *inside):
        for other in state.attached(stage.name, name):
            raise ScheduleError(
                f"stage {other.name!r} is computed at {stage.name}.{name}: each lane of {leaf!r} "
                "would need a copy of it",
                hint=f"compute {other.name!r} at a loop outside, or split {leaf!r} and vectorise "
                "the inner part",
                code="MDLC0609",
            )
