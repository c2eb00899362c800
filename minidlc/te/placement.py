"""Where things may be: stages inside loops of others, loops inside vectorised loops.

    check_placement(state)          # None, or a ScheduleError naming the reader in the way

A stage computed inside a loop must have all its readers in there. Reads a State, writes nothing;
run after each primitive that moves a stage, and again by `lower`.
Treated in course chapter 04_schedule.
"""

from __future__ import annotations

from minidlc.loop.nodes import Kind
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
    vectorised loop around (MDLC0609).
    """
    for stage in state.stages:
        if stage.at is None or stage.inlined:
            continue
        chain(state, stage)
        readers = state.readers(stage.name)
        outside = [r for r in readers if not is_inside(state, r, stage.at)]
        if len(outside) == len(readers):
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
