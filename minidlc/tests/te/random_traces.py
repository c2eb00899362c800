"""Random schedules: primitives drawn at random, those that are refused left out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

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
    RFactor,
    SetScope,
    Split,
    StoreAt,
    Tile,
    TransformLayout,
    Unroll,
    Vectorize,
)
from minidlc.te.stage import SplitRelation, Stage, State
from minidlc.tests.te.programs import Case


def random_schedule(case: Case, rng: random.Random, steps: int) -> tuple[Schedule, int]:
    """A schedule of at most `steps` primitives, and how many more were refused."""
    schedule, refused = Schedule(case.outputs), 0
    first = list(_stored_wide(schedule.state, rng)) if rng.random() < 0.25 else []
    for n in range(steps):
        try:
            schedule.apply(first[n] if n < len(first) else random_step(schedule.state, rng))
        except ScheduleError:
            refused += 1
    return schedule, refused


def _stored_wide(state: State, rng: random.Random) -> Iterator[Primitive]:
    """A stage of two readers stored around both and computed in the loops of the first one."""
    shared = [s for s in state.stages if len(state.readers(s.name)) > 1]
    if not shared:
        return
    stage = rng.choice(shared)
    first, last = state.readers(stage.name)[0], state.readers(stage.name)[-1]
    leaf = rng.choice(first.leaves)
    yield Split(first.name, leaf, rng.randint(1, 5), ("wo", "wi"))
    around = last.leaves[0]
    if rng.random() < 0.5:
        yield Split(last.name, around, rng.randint(1, 5), ("vo", "vi"))
        around = rng.choice(("vo", "vi"))
    yield ComputeAt(first.name, last.name, around)
    yield StoreAt(stage.name, last.name, around)
    yield ComputeAt(stage.name, first.name, rng.choice(("wo", "wo", "wi", *first.leaves)))


def random_step(state: State, rng: random.Random) -> Primitive:
    """Any primitive on any stage: plausible, not always legal."""
    stage = rng.choice([s for s in state.stages if not s.inlined])
    fresh = f"x{sum(len(s.relations) for s in state.stages)}"
    makers: list[tuple[int, Callable[[], Primitive]]] = [
        (6, lambda: _split(stage, rng, fresh)),
        (2, lambda: _fuse(stage, rng, fresh)),
        (4, lambda: Reorder(stage.name, _some(stage, rng))),
        (2, lambda: _around_blocks(state, stage, rng)),
        (1, lambda: _tile(stage, rng, fresh)),
        (1, lambda: Unroll(stage.name, _leaf(stage, rng))),
        (2, lambda: Vectorize(stage.name, _leaf(stage, rng))),
        (1, lambda: Parallel(stage.name, _leaf(stage, rng))),
        (6, lambda: _compute_at(state, stage, rng)),
        (2, lambda: _store_at(state, stage, rng)),
        (1, lambda: ComputeInline(stage.name)),
        (1, lambda: SetScope(stage.name, rng.choice(("arena", "stack", "register")))),
        (1, lambda: CacheWrite(stage.name, rng.choice(("arena", "stack")))),
        (1, lambda: _cache_read(state, stage, rng)),
        (2, lambda: _rfactor(state, stage, rng)),
        (1, lambda: TransformLayout(stage.name, _tiles(stage.type.rank, rng))),
    ]
    weights = [weight for weight, _ in makers]
    return rng.choices([maker for _, maker in makers], weights)[0]()


def _pair(fresh: str) -> tuple[str, str]:
    return f"{fresh}o", f"{fresh}i"


def _split(stage: Stage, rng: random.Random, fresh: str) -> Primitive:
    tail = rng.choice(("cut", "cut", "shift"))
    return Split(stage.name, _leaf(stage, rng), rng.randint(1, 7), _pair(fresh), tail)


def _leaf(stage: Stage, rng: random.Random) -> str:
    return rng.choice(stage.leaves)


def _some(stage: Stage, rng: random.Random) -> tuple[str, ...]:
    return tuple(rng.sample(stage.leaves, rng.randint(1, len(stage.leaves))))


def _around_blocks(state: State, stage: Stage, rng: random.Random) -> Primitive:
    """What blocks that overlap must not bear: a reduction loop around them, threads."""
    shifted = [
        (s, r.outer)
        for s in state.stages
        for r in s.relations
        if isinstance(r, SplitRelation) and r.tail == "shift" and r.outer in s.leaves
    ]
    stage, blocks = rng.choice(shifted or [(stage, _leaf(stage, rng))])
    if rng.random() < 0.3:
        return Parallel(stage.name, blocks)
    order = sorted(stage.leaves, key=lambda leaf: leaf not in stage.reductions)
    return Reorder(stage.name, tuple(order))


def _fuse(stage: Stage, rng: random.Random, fresh: str) -> Primitive:
    place = rng.randrange(len(stage.leaves))
    inner = stage.leaves[min(place + 1, len(stage.leaves) - 1)]
    return Fuse(stage.name, stage.leaves[place], inner, fresh)


def _tile(stage: Stage, rng: random.Random, fresh: str) -> Primitive:
    names = tuple(f"{fresh}{part}" for part in ("io", "jo", "ii", "ji"))
    axes = (_leaf(stage, rng), _leaf(stage, rng))
    return Tile(stage.name, axes, names, rng.randint(1, 5), rng.randint(1, 5))


def _compute_at(state: State, stage: Stage, rng: random.Random) -> Primitive:
    wide = [s for s in state.stages if s.stored is not None and not s.inlined]
    stage = rng.choice(wide) if wide and rng.random() < 0.5 else stage
    readers = state.readers(stage.name) or (stage,)
    placed = [state.stage(r.at.stage) for r in readers if r.at]
    target = rng.choice([*readers, *placed])
    return ComputeAt(stage.name, target.name, _leaf(target, rng))


def _store_at(state: State, stage: Stage, rng: random.Random) -> Primitive:
    """At a loop around all readers, so that `compute_at` may leave some of them outside."""
    readers = [s.name for s in state.readers(stage.name)] or [stage.name]
    target = rng.choice([readers[-1], rng.choice(readers)])
    return StoreAt(stage.name, target, _leaf(state.stage(target), rng))


def _cache_read(state: State, stage: Stage, rng: random.Random) -> Primitive:
    source = rng.choice(sorted(stage.reads))
    readers = [s.name for s in state.readers(source)]
    chosen = tuple(rng.sample(readers, rng.randint(1, len(readers))))
    return CacheRead(source, chosen, _tiles(state.type_of(source).rank, rng))


def _tiles(rank: int, rng: random.Random) -> tuple[tuple[int, int], ...]:
    dims = rng.sample(range(rank), rng.randint(0, min(rank, 2)))
    return tuple((d, rng.randint(1, 5)) for d in sorted(dims))


def _rfactor(state: State, stage: Stage, rng: random.Random) -> Primitive:
    """Of a half, if there is one; else a split of a reduction loop, so that there will be."""
    loops = [(s, x) for s in state.stages for x in s.leaves if x in s.reductions and not s.inlined]
    halves = [(s, x) for s, x in loops if x not in dict(s.reduce_axes)]
    if not halves and loops and rng.random() < 0.7:
        split, leaf = rng.choice(loops)
        return Split(split.name, leaf, rng.randint(2, 5), _pair(f"{leaf}_"))
    chosen, half = rng.choice(halves or [(stage, _leaf(stage, rng))])
    return RFactor(chosen.name, half, rng.choice(("first", "last")))
