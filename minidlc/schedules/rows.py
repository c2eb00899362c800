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

from minidlc.expr.index import Index, Var
from minidlc.expr.nodes import Load
from minidlc.expr.walk import walk
from minidlc.loop.nodes import Alloc
from minidlc.loop.nodes import walk as walk_loops
from minidlc.loop.regions import loads
from minidlc.schedules import injective
from minidlc.schedules.group import Group, work
from minidlc.schedules.implementation import Implementation, Knobs
from minidlc.schedules.injective import (
    PIECES,
    collapse,
    fuse_and_share,
    inline_pointwise,
    is_dear,
    schedule_injective,
    share,
    stream,
    vectorize_row,
    vectorize_rows,
    vectors_in_flight,
)
from minidlc.schedules.offsets import body_of, vector_lanes
from minidlc.schedules.reduction import (
    BLOCKS,
    along_memory,
    hold,
    sum_in_blocks,
    sum_in_vectors,
    sum_side_by_side,
)
from minidlc.schedules.variants import with_flat_reductions, with_reciprocals
from minidlc.target import Target
from minidlc.te import Schedule, Tensor, lower

COLUMNS = 8  # vectors of sums side by side
KEPT_COLUMNS = 2  # the same where whole columns are kept: they should stay in the first cache


def schedule_rows(sch: Schedule, group: Group, target: Target) -> None:
    """All stages at the row they belong to."""
    reductions = [t for t in group.stages() if t.reduce_axes]
    if not reductions:
        schedule_injective(sch, group, target)
        return
    kept = _inline(sch, group, reductions)
    if 0 in group.last.shape:
        return
    last, row = group.last, group.last.shape[-1:]
    outer = _outer_axes(sch, last, reductions, (*kept, *group.outputs[:-1]))
    if not outer and len(group.outputs) > 1:
        outer = _leading_axes(last, reductions)
    inner = tuple(axis for axis in last.axes if axis not in outer)
    one_number = _is_row_value(last, reductions)
    if not all(_fits(output, last) for output in group.outputs):
        _apart(sch, group, kept, target)
    elif not outer and len(group.outputs) == 1 and all(math.prod(r.shape) == 1 for r in reductions):
        _whole(sch, last, (*reductions, *kept), target)
    elif not outer:
        _apart(sch, group, kept, target)
    elif all(map(along_memory, reductions)) and (one_number or last.axes[-1] in inner):
        _rows(sch, group, kept, target, outer, inner)
    elif len(group.outputs) > 1:
        _apart(sch, group, kept, target)
    elif last.axes[-1] in outer and all(t.shape[-1:] == row for t in (*reductions, *kept)):
        _columns(sch, group, kept, target, outer, inner)
    else:
        _apart(sch, group, kept, target)


def _inline(sch: Schedule, group: Group, reductions: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Inline what is cheap; returns the pointwise stages that keep loops of their own."""

    def has_own_loops(stage: Tensor) -> bool:
        readers = group.readers(stage)
        if _is_row_value(stage, reductions):
            return any(not _is_row_value(reader, reductions) for reader in readers)
        found = (e for reader in readers for e in loads(body_of(sch, reader)))
        return is_dear(stage) and sum(e.buffer == stage.name for e in found) > 1

    pointwise = [t for t in group.intermediate() if not t.reduce_axes]
    return inline_pointwise(sch, pointwise, has_own_loops)


def _is_row_value(stage: Tensor, reductions: Sequence[Tensor]) -> bool:
    """True if a stage has no more elements than there are results of a reduction."""
    return math.prod(stage.shape) <= max(math.prod(r.shape) for r in reductions)


def _outer_axes(
    sch: Schedule, last: Tensor, reductions: Sequence[Tensor], kept: Sequence[Tensor]
) -> tuple[str, ...]:
    """The axes of the last stage that number the rows: those it looks row values up by.

    It, or a kept stage that it reads element by element.
    """
    if _is_row_value(last, reductions):
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


def _rows(
    sch: Schedule,
    group: Group,
    kept: Sequence[Tensor],
    target: Target,
    outer: tuple[str, ...],
    inner: tuple[str, ...],
) -> None:
    """Every stage in the loop over rows, other outputs too."""
    last = group.last
    if (*outer, *inner) != last.axes:
        sch[last].reorder(*outer, *inner)
    parts: tuple[str, ...] = ()
    if last.reduce_axes:
        parts = sum_in_vectors(sch, last.name, target)
    elif last.axes[-1] in inner:
        _, row, length = collapse(sch, last, inner[-1:] if kept else inner)
        lanes, vectors = vector_lanes(sch, last, target), vectors_in_flight(sch, last, target)
        vectorize_row(sch, last, row, length, lanes, vectors)
    leaf = share(sch, last, outer, max(map(work, group.stages())))
    hold(sch, parts, last.name, leaf)
    assert leaf is not None
    for stage in reversed([t for t in group.stages() if t is not last]):
        if stage.reduce_axes:
            parts = sum_in_vectors(sch, stage.name, target)
            sch[stage].compute_at(last, leaf)
            hold(sch, parts, stage.name, stage.axes[-1] if stage.axes else None)
        elif stage in kept or stage in group.outputs:
            vectorize_rows(sch, stage, target, vectors_in_flight(sch, stage, target))
            sch[stage].compute_at(last, leaf)
        if stage not in group.outputs and (stage.reduce_axes or stage in kept):
            sch[stage].set_scope("stack")
        if stage in kept:
            _fetch_next_row(sch, stage, target)


def _fetch_next_row(sch: Schedule, stage: Tensor, target: Target) -> None:
    """While a dear stage computes, ask for the next row of what it reads, if that lies far away.

    The pass that will read it first, a maximum, does too little to hide the way: 1.2 times as fast.
    """
    step = vectors_in_flight(sch, stage, target) * vector_lanes(sch, stage, target)
    row = stage.shape[-1]
    read = {e.buffer for e in loads(body_of(sch, stage))}
    for given in sch.state.placeholders:
        if given.name not in read or given.shape != stage.shape or row <= step:
            continue
        if given.type.nbytes > target.l2 and row * given.dtype.itemsize <= target.l2 // 2:
            vectors = sch[stage].loops[len(stage.axes) - 1]
            sch[stage].prefetch(given, vectors, row // step)


def _whole(sch: Schedule, last: Tensor, stages: Sequence[Tensor], target: Target) -> None:
    """One row: its parts go to threads, one stage after another."""
    for stage in (*stages, *(() if last in stages else (last,))):
        if not stage.reduce_axes:
            stream(sch, stage, target)
            continue
        name, extent = stage.reduce_axes[-1]
        step = vector_lanes(sch, stage.name, target) * 64
        block = max(-(-extent // (BLOCKS * step)) * step, injective.PARALLEL_WORK // 4)
        sums = sum_in_blocks(sch, stage.name, block, target)
        if sums is None:
            hold(sch, sum_in_vectors(sch, stage.name, target), stage.name, None)
        else:
            parts = sum_in_vectors(sch, sums, target)
            hold(sch, parts, sums, f"{name}b")


# rows across memory


def _columns(
    sch: Schedule,
    group: Group,
    kept: Sequence[Tensor],
    target: Target,
    outer: tuple[str, ...],
    inner: tuple[str, ...],
) -> None:
    """Every stage in the loop over blocks of rows that lie side by side."""
    last = group.last
    stages = [t for t in group.stages() if t.reduce_axes or t in kept or t is last]
    lanes = min(vector_lanes(sch, t, target) for t in stages)
    block = lanes * (KEPT_COLUMNS if kept else COLUMNS)
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


def _schedule(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    schedule_rows(sch, group, target)


def row_implementations(kind: str) -> tuple[Implementation, Implementation]:
    """How a kind of row kernels is computed: fast, and in strict precision in the given order."""
    return (
        Implementation(kind, kind, _schedule, applies=may_round_twice, compute=faster_rows),
        Implementation(f"{kind}_in_order", kind, _schedule, compute=with_flat_reductions),
    )


REDUCTION = row_implementations("reduction")
