"""Kernels that reduce rows and use the results: sums, softmax, norms, positions of maxima.

    schedule_rows(sch, group, target)               # y = e / s; e = exp(x - m); s = sum of e; …

    for i in parallel(0, n):                        # a row stays in the first cache till it is done
        m = max of x[i]                             # a reduction: in vector accumulators
        for j in vectors: e[j] = exp(x[i, j] - m)   # dear and read twice: kept for one row
        s = sum of e
        for j in vectors: y[i, j] = e[j] / s

Whatever the ops are, a stage is one of four: a reduction; one value a row (a mean, the root of a
variance), computed once a row; cheap, and inlined; dear, and kept for a row. If memory runs across
the rows instead (a softmax over channels), several vectors of rows are done side by side.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from minidlc.expr.index import Index, Var
from minidlc.expr.nodes import Load
from minidlc.expr.walk import walk
from minidlc.loop.nodes import Alloc
from minidlc.loop.nodes import walk as walk_loops
from minidlc.loop.regions import loads
from minidlc.schedules import injective
from minidlc.schedules.group import Group, work
from minidlc.schedules.implementation import NONE, Implementation, Knobs, Space, default_first
from minidlc.schedules.injective import (
    PIECES,
    collapse,
    fuse_and_share,
    has_functions,
    inline_pointwise,
    is_dear,
    schedule_injective,
    share,
    stream,
    stream_knobs,
    vector_knobs,
    vectorize_row,
    vectorize_rows,
    vectors_in_flight,
)
from minidlc.schedules.offsets import body_of, vector_lanes
from minidlc.schedules.reduction import (
    ACCUMULATORS,
    BLOCKS,
    along_memory,
    hold,
    may_reorder,
    sum_in_blocks,
    sum_in_vectors,
    sum_side_by_side,
)
from minidlc.schedules.variants import with_flat_reductions, with_reciprocals
from minidlc.target import Target
from minidlc.te import Schedule, Tensor, create_schedule, lower

COLUMNS = 8  # vectors of sums side by side
KEPT_COLUMNS = 2  # the same where whole columns are kept: they should stay in the first cache


class Way(StrEnum):
    """How the stages of a group are looped over."""

    ROWS = "rows"  # all in the loop over rows that lie along memory
    COLUMNS = "columns"  # all in a loop over blocks of rows that lie side by side
    WHOLE = "whole"  # one row: one stage after another, its parts to threads
    APART = "apart"  # every stage by itself
    NOTHING = "nothing"  # no elements


@dataclass(frozen=True)
class Plan:
    """The way; pointwise stages with loops of their own; axes that number rows, and the others."""

    way: Way
    reductions: tuple[Tensor, ...]
    kept: tuple[Tensor, ...] = ()
    outer: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()


def schedule_rows(sch: Schedule, group: Group, target: Target, knobs: Knobs = NONE) -> None:
    """All stages at the row they belong to."""
    if not any(t.reduce_axes for t in group.stages()):
        schedule_injective(sch, group, target, knobs)
        return
    plan = make_plan(sch, group)
    match plan.way:
        case Way.ROWS:
            _rows(sch, group, plan, target, knobs)
        case Way.COLUMNS:
            _columns(sch, group, plan, target, knobs)
        case Way.WHOLE:
            _whole(sch, group.last, (*plan.reductions, *plan.kept), target, knobs)
        case Way.APART:
            _apart(sch, group, plan.kept, target)
        case Way.NOTHING:
            pass


def make_plan(sch: Schedule, group: Group) -> Plan:
    """Inline what is cheap, and say how the rest is looped over; there are reductions."""
    reductions = tuple(t for t in group.stages() if t.reduce_axes)
    kept = inline_for_rows(sch, group, reductions)
    if 0 in group.last.shape:
        return Plan(Way.NOTHING, reductions)
    last, row = group.last, group.last.shape[-1:]
    outer = _outer_axes(sch, last, reductions, (*kept, *group.outputs[:-1]))
    if not outer and len(group.outputs) > 1:
        outer = _leading_axes(last, reductions)
    inner = tuple(axis for axis in last.axes if axis not in outer)
    one_number, one_row = is_row_value(last, reductions), len(group.outputs) == 1
    way = Way.APART
    if not all(_fits(output, last) for output in group.outputs):
        pass
    elif not outer and one_row and all(math.prod(r.shape) == 1 for r in reductions):
        way = Way.WHOLE
    elif outer and all(map(along_memory, reductions)) and (one_number or last.axes[-1] in inner):
        way = Way.ROWS
    elif len(group.outputs) > 1:
        pass
    elif last.axes[-1] in outer and all(t.shape[-1:] == row for t in (*reductions, *kept)):
        way = Way.COLUMNS
    return Plan(way, reductions, kept, outer, inner)


def inline_for_rows(
    sch: Schedule, group: Group, reductions: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Inline what is cheap; returns the pointwise stages that keep loops of their own."""

    def has_own_loops(stage: Tensor) -> bool:
        readers = group.readers(stage)
        if is_row_value(stage, reductions):
            return any(not is_row_value(reader, reductions) for reader in readers)
        found = (e for reader in readers for e in loads(body_of(sch, reader)))
        return is_dear(stage) and sum(e.buffer == stage.name for e in found) > 1

    pointwise = [t for t in group.intermediate() if not t.reduce_axes]
    return inline_pointwise(sch, pointwise, has_own_loops)


def is_row_value(stage: Tensor, reductions: Sequence[Tensor]) -> bool:
    """True if a stage has no more elements than there are results of a reduction."""
    return math.prod(stage.shape) <= max(math.prod(r.shape) for r in reductions)


def _outer_axes(
    sch: Schedule, last: Tensor, reductions: Sequence[Tensor], kept: Sequence[Tensor]
) -> tuple[str, ...]:
    """The axes of the last stage that number the rows: those it looks row values up by.

    It, or a kept stage that it reads element by element.
    """
    if is_row_value(last, reductions):
        return tuple(axis for axis, size in zip(last.axes, last.shape, strict=True) if size > 1)
    made = {s.name for s in sch.state.stages}
    rows = math.prod(max((r.shape for r in reductions), key=math.prod))
    own = tuple(Index.of(Var(axis)) for axis in last.axes)
    found: set[Var] = set()
    for e in walk(body_of(sch, last)):
        if not isinstance(e, Load) or e.buffer not in made:
            continue
        if math.prod(sch.state.type_of(e.buffer).dims) <= rows:
            found |= {v for index in e.index for v in index.vars()}
        elif e.index == own:
            for stage in (t for t in kept if t.name == e.buffer):
                outer = _outer_axes(sch, stage, reductions, kept)
                pairs = zip(last.axes, stage.axes, strict=True)
                found |= {Var(axis) for axis, its in pairs if its in outer}
    return tuple(axis for axis in last.axes if Var(axis) in found)


def _leading_axes(last: Tensor, reductions: Sequence[Tensor]) -> tuple[str, ...]:
    """The first axes of a stage that number as many rows as there are sums; () if none do."""
    rows = max(math.prod(r.shape) for r in reductions)
    counts = (math.prod(last.shape[:n]) for n in range(len(last.shape)))
    return last.axes[: next((n for n, count in enumerate(counts) if count == rows), 0)]


def _fits(output: Tensor, last: Tensor) -> bool:
    """True for outputs of the same rows, of which one may have one element for each."""
    pairs = zip(output.shape, last.shape, strict=False)
    return len(output.shape) == len(last.shape) and all(a == b or 1 in (a, b) for a, b in pairs)


# rows along memory


def _rows(sch: Schedule, group: Group, plan: Plan, target: Target, knobs: Knobs) -> None:
    """Every stage in the loop over rows, other outputs too."""
    last, kept, outer, inner = group.last, plan.kept, plan.outer, plan.inner
    accumulators = knobs.get("accumulators", ACCUMULATORS)
    if (*outer, *inner) != last.axes:
        sch[last].reorder(*outer, *inner)
    parts: tuple[str, ...] = ()
    if last.reduce_axes:
        parts = sum_in_vectors(sch, last.name, target, accumulators)
    elif last.axes[-1] in inner:
        _, row, length = collapse(sch, last, inner[-1:] if kept else inner)
        lanes = vector_lanes(sch, last, target)
        vectors = vectors_in_flight(sch, last, target, knobs)
        vectorize_row(sch, last, row, length, lanes, vectors)
    leaf = share(sch, last, outer, max(map(work, group.stages())))
    hold(sch, parts, last.name, leaf)
    assert leaf is not None
    for stage in reversed([t for t in group.stages() if t is not last]):
        if stage.reduce_axes:
            parts = sum_in_vectors(sch, stage.name, target, accumulators)
            sch[stage].compute_at(last, leaf)
            hold(sch, parts, stage.name, stage.axes[-1] if stage.axes else None)
        elif stage in kept or stage in group.outputs:
            vectorize_rows(sch, stage, target, vectors_in_flight(sch, stage, target, knobs))
            sch[stage].compute_at(last, leaf)
        if stage not in group.outputs and (stage.reduce_axes or stage in kept):
            sch[stage].set_scope("stack")
        if stage in kept:
            _fetch_next_row(sch, stage, target, knobs)


def _fetch_next_row(sch: Schedule, stage: Tensor, target: Target, knobs: Knobs) -> None:
    """While a dear stage computes, ask for the next row of what it reads, if that lies far away.

    The pass that will read it first, a maximum, does too little to hide the way: 1.2 times as fast.
    """
    step = vectors_in_flight(sch, stage, target, knobs) * vector_lanes(sch, stage, target)
    row, ahead = stage.shape[-1], knobs.get("rows_ahead", 1)
    for given in far_rows(sch, stage, target) if ahead and row > step else ():
        vectors = sch[stage].loops[len(stage.axes) - 1]
        sch[stage].prefetch(given, vectors, ahead * (row // step))


def far_rows(sch: Schedule, stage: Tensor, target: Target) -> list[Tensor]:
    """What a stage reads element by element from beyond the second cache, which holds two rows."""
    row, read = stage.shape[-1], {e.buffer for e in loads(body_of(sch, stage))}
    return [
        given
        for given in sch.state.placeholders
        if given.name in read and given.shape == stage.shape and given.type.nbytes > target.l2
        if row * given.dtype.itemsize <= target.l2 // 2
    ]


def _whole(
    sch: Schedule, last: Tensor, stages: Sequence[Tensor], target: Target, knobs: Knobs
) -> None:
    """One row: its parts go to threads, one stage after another."""
    accumulators = knobs.get("accumulators", ACCUMULATORS)
    for stage in (*stages, *(() if last in stages else (last,))):
        if not stage.reduce_axes:
            stream(sch, stage, target, knobs)
            continue
        name, extent = stage.reduce_axes[-1]
        step = vector_lanes(sch, stage.name, target) * 64
        blocks = knobs.get("blocks", BLOCKS)
        block = max(-(-extent // (blocks * step)) * step, injective.PARALLEL_WORK // 4)
        sums = sum_in_blocks(sch, stage.name, block, target)
        if sums is None:
            parts = sum_in_vectors(sch, stage.name, target, accumulators)
            hold(sch, parts, stage.name, None)
        else:
            parts = sum_in_vectors(sch, sums, target, accumulators)
            hold(sch, parts, sums, f"{name}b")


# rows across memory


def _columns(sch: Schedule, group: Group, plan: Plan, target: Target, knobs: Knobs) -> None:
    """Every stage in the loop over blocks of rows that lie side by side."""
    last, kept, outer, inner = group.last, plan.kept, plan.outer, plan.inner
    stages = [t for t in group.stages() if t.reduce_axes or t in kept or t is last]
    lanes = min(vector_lanes(sch, t, target) for t in stages)
    block = lanes * knobs.get("columns", KEPT_COLUMNS if kept else COLUMNS)
    placed = {t.name: t for t in reversed(stages) if t is not last}
    if last.reduce_axes:
        placed = {sch[last].cache_write("register").name: last, **placed}
    row, shape = last.axes[-1], dict(zip(last.axes, last.shape, strict=True))
    leaf, jr = sch[last].split(row, block, names=(f"{row}o", f"{row}r"))
    jv, ji = sch[last].split(jr, lanes, names=(f"{row}v", f"{row}i"))
    sch[last].reorder(*outer[:-1], leaf, *inner, jv, ji)
    sch[last].unroll(jv)
    sch[last].vectorize(ji)
    if max(map(work, stages)) >= injective.PARALLEL_WORK:
        trips = (*(shape[axis] for axis in outer[:-1]), -(-shape[row] // block))
        leaf = fuse_and_share(sch, last, (*outer[:-1], leaf), trips, PIECES)
    for name, stage in placed.items():
        if stage.reduce_axes:
            sum_side_by_side(sch, name, stage.axes[-1], vector_lanes(sch, name, target))
            sch[name].compute_at(last, leaf)
            sch[name].set_scope("register" if _is_one_row(sch, name) else "stack")
        else:
            own = vector_lanes(sch, name, target)
            vectorize_row(sch, stage, stage.axes[-1], stage.shape[-1], own, 1)
            if stage.shape[-1] > own:  # what is in registers is read at numbers
                sch[name].unroll(sch[name].loops[-2])
            sch[name].compute_at(last, leaf).set_scope("stack")


def _is_one_row(sch: Schedule, stage: str) -> bool:
    """True if a stage, where it is computed, has one row: registers have numbers as positions.

    A sum of sums needs several rows of the first sums for each row of its own.
    """
    if math.prod(sch.state.type_of(stage).dims[:-1]) == 1:
        return True
    body = lower(sch, partition=False).body
    (made,) = (s for s in walk_loops(body) if isinstance(s, Alloc) and s.buffer == stage)
    return math.prod(made.type.dims[:-1]) == 1


def _apart(sch: Schedule, group: Group, kept: Sequence[Tensor], target: Target) -> None:
    """Every stage by itself: the rows of the stages do not fit each other."""
    for stage in group.stages():
        if stage.reduce_axes or stage in kept or stage in group.outputs:
            vectorize_rows(sch, stage, target)
            share(sch, stage, stage.axes[:-1], work(stage))


def may_round_twice(group: Group, target: Target) -> bool:
    """A quotient may be a product with a reciprocal."""
    return target.precision != "strict"


def faster_rows(group: Group) -> Group:
    """One reduction axis, one division a row."""
    return with_reciprocals(with_flat_reductions(group))


def row_knobs(group: Group, target: Target) -> Space:
    """Vectors of sums and of passes side by side, rows that are asked for ahead, blocks of a sum.

    Of these, those that the way has which the stages are looped over.
    """
    if not any(t.reduce_axes for t in group.stages()):
        return stream_knobs(group, target)
    sch = create_schedule(group.outputs, checked=False)
    plan = make_plan(sch, group)
    match plan.way:
        case Way.ROWS:
            stages = (*plan.kept, *(t for t in group.outputs if not t.reduce_axes))
            passes = [has_functions(body_of(sch, t)) for t in stages]
            is_far = any(far_rows(sch, t, target) for t in plan.kept)
            ahead: Space = {"rows_ahead": (1, 0, 2)} if is_far else {}
            return {**_sum_knobs(sch, plan, target), **vector_knobs(passes, target), **ahead}
        case Way.COLUMNS:
            columns = KEPT_COLUMNS if plan.kept else COLUMNS
            return {"columns": default_first(columns, (1, 2, 4, 8, 16))}
        case Way.WHOLE:
            stages = (*plan.kept, *(t for t in group.outputs if not t.reduce_axes))
            passes = [has_functions(body_of(sch, t)) for t in stages]
            blocks: Space = {"blocks": (BLOCKS, BLOCKS // 4, BLOCKS // 2, 2 * BLOCKS)}
            return {**_sum_knobs(sch, plan, target), **vector_knobs(passes, target), **blocks}
        case Way.APART | Way.NOTHING:
            return {}


def _sum_knobs(sch: Schedule, plan: Plan, target: Target) -> Space:
    """Accumulators, if a sum along memory is longer than a vector and may be reordered."""
    lanes = {t: vector_lanes(sch, t, target) for t in plan.reductions}
    long = [t for t in plan.reductions if t.reduce_axes[-1][1] > 2 * lanes[t]]
    if not any(may_reorder(sch, t.name, target) for t in long):
        return {}
    return {"accumulators": default_first(ACCUMULATORS, (1, 2, 4, 8))}


def registers_hold(group: Group, target: Target, knobs: Knobs) -> bool:
    """True if half of the registers hold the vectors that are summed side by side."""
    return max(knobs.get("columns", 1), knobs.get("accumulators", 1)) <= target.registers // 2


def row_implementations(kind: str) -> tuple[Implementation, Implementation]:
    """How a kind of row kernels is computed: fast, and in strict precision in the given order."""
    common = partial(
        Implementation, kind=kind, schedule=schedule_rows, knobs=row_knobs, allowed=registers_hold
    )
    return (
        common(kind, applies=may_round_twice, compute=faster_rows),
        common(f"{kind}_in_order", compute=with_flat_reductions),
    )


REDUCTION = row_implementations("reduction")
