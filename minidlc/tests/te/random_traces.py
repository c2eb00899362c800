"""Random schedules: primitives drawn at random, those that are refused left out."""

from __future__ import annotations

import random
from collections.abc import Callable

from minidlc.support.errors import ScheduleError
from minidlc.te import Schedule
from minidlc.te.primitive import Primitive
from minidlc.te.primitives import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    ComputeInline,
    Fuse,
    Parallel,
    Reorder,
    SetScope,
    Split,
    Tile,
    Unroll,
    Vectorize,
)
from minidlc.te.stage import Stage, State
from minidlc.tests.te.programs import Case


def random_schedule(case: Case, rng: random.Random, steps: int) -> tuple[Schedule, int]:
    """A schedule of at most `steps` primitives, and how many more were refused."""
    schedule, refused = Schedule(case.outputs), 0
    for _ in range(steps):
        try:
            schedule.apply(random_step(schedule.state, rng))
        except ScheduleError:
            refused += 1
    return schedule, refused


def random_step(state: State, rng: random.Random) -> Primitive:
    """Any primitive on any stage: plausible, not always legal."""
    stage = rng.choice([s for s in state.stages if not s.inlined])
    fresh = f"x{sum(len(s.relations) for s in state.stages)}"
    makers: list[tuple[int, Callable[[], Primitive]]] = [
        (6, lambda: Split(stage.name, _leaf(stage, rng), rng.randint(1, 7), _pair(fresh))),
        (2, lambda: _fuse(stage, rng, fresh)),
        (4, lambda: Reorder(stage.name, _some(stage, rng))),
        (1, lambda: _tile(stage, rng, fresh)),
        (1, lambda: Unroll(stage.name, _leaf(stage, rng))),
        (2, lambda: Vectorize(stage.name, _leaf(stage, rng))),
        (1, lambda: Parallel(stage.name, _leaf(stage, rng))),
        (6, lambda: _compute_at(state, stage, rng)),
        (1, lambda: ComputeInline(stage.name)),
        (1, lambda: SetScope(stage.name, rng.choice(("arena", "stack", "register")))),
        (1, lambda: CacheWrite(stage.name, rng.choice(("arena", "stack")))),
        (1, lambda: _cache_read(state, stage, rng)),
    ]
    weights = [weight for weight, _ in makers]
    return rng.choices([maker for _, maker in makers], weights)[0]()


def _pair(fresh: str) -> tuple[str, str]:
    return f"{fresh}o", f"{fresh}i"


def _leaf(stage: Stage, rng: random.Random) -> str:
    return rng.choice(stage.leaves)


def _some(stage: Stage, rng: random.Random) -> tuple[str, ...]:
    return tuple(rng.sample(stage.leaves, rng.randint(1, len(stage.leaves))))


def _fuse(stage: Stage, rng: random.Random, fresh: str) -> Primitive:
    place = rng.randrange(len(stage.leaves))
    inner = stage.leaves[min(place + 1, len(stage.leaves) - 1)]
    return Fuse(stage.name, stage.leaves[place], inner, fresh)


def _tile(stage: Stage, rng: random.Random, fresh: str) -> Primitive:
    names = tuple(f"{fresh}{part}" for part in ("io", "jo", "ii", "ji"))
    axes = (_leaf(stage, rng), _leaf(stage, rng))
    return Tile(stage.name, axes, names, rng.randint(1, 5), rng.randint(1, 5))


def _compute_at(state: State, stage: Stage, rng: random.Random) -> Primitive:
    readers = state.readers(stage.name) or (stage,)
    placed = [state.stage(r.at.stage) for r in readers if r.at]
    target = rng.choice([*readers, *placed])
    return ComputeAt(stage.name, target.name, _leaf(target, rng))


def _cache_read(state: State, stage: Stage, rng: random.Random) -> Primitive:
    source = rng.choice(sorted(stage.reads))
    readers = [s.name for s in state.readers(source)]
    chosen = tuple(rng.sample(readers, rng.randint(1, len(readers))))
    rank = state.type_of(source).rank
    dims = rng.sample(range(rank), rng.randint(0, min(rank, 2)))
    return CacheRead(source, chosen, tuple((d, rng.randint(1, 5)) for d in sorted(dims)))


def specialise(schedule: Schedule, rng: random.Random) -> None:
    """Vectorise innermost loops, unroll others and move buffers near, wherever that is legal."""
    for stage in schedule.state.stages:
        if stage.inlined or not stage.leaves:
            continue
        steps: list[Primitive] = [Unroll(stage.name, x) for x in stage.leaves if rng.random() < 0.3]
        if rng.random() < 0.8:
            steps.insert(0, Vectorize(stage.name, stage.leaves[-1]))
        steps.append(SetScope(stage.name, rng.choice(("stack", "register"))))
        for step in steps:
            before = Schedule(schedule.outputs, schedule.trace, checked=False)
            try:
                before.apply(step).lower()
                schedule.apply(step)
            except ScheduleError:
                continue
