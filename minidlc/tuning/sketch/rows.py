"""Rows along memory: reductions cut into vectors side by side (rfactor), everything at its row.

    before                               after (lanes 8, sums_0 = 32, row = 32)
    s[i] = sum over k of e[i, k]         for io in parallel: for ii:
    y[i, j] = e[i, j] / s[i]                 s_rf[32] += e[i, 32*ko + kr]    four vectors
                                             s_rf_rf[8] += s_rf[…]           these four become one
                                             s = its lanes, added up
                                             y: four vectors unrolled

One long row is cut into pieces first, for threads: rfactor again.
Knobs: elements added side by side of each reduction, elements of a row in flight, rows of a piece.
In strict precision float terms are added up in order: rfactor is refused, the lanes of a vector are
added one after another. Rows that lie across memory are sums of neighbours: the tiling rule.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from minidlc.expr.index import Index, Var
from minidlc.loop.regions import loads
from minidlc.schedules.group import Group, work
from minidlc.schedules.implementation import Implementation, Knobs, Space
from minidlc.schedules.injective import PARALLEL_WORK
from minidlc.schedules.offsets import vector_lanes
from minidlc.schedules.reduction import may_reorder
from minidlc.schedules.rows import faster_rows, inline_for_rows, is_row_value
from minidlc.schedules.variants import with_flat_reductions
from minidlc.target import Target
from minidlc.te import Schedule, Tensor, create_schedule
from minidlc.tuning.sketch.access import near, reads, stride, variables
from minidlc.tuning.sketch.loops import fuse, split

VECTORS = (4, 1, 2, 3, 6, 8)
PIECES = (16, 2, 4, 8, 32, 64)  # of one long row: each is added up by one thread
ROWS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class RowPlan:
    """`outer` axes of the last stage number the rows; `kept` stages have loops of their own.

    `sums` are the reductions in order, with the lanes they are added up in (0: one after another),
    `across` is the extent of the last stage along a row, 1 if it has one value a row.
    """

    outer: tuple[str, ...]
    rows: int
    kept: tuple[str, ...]
    sums: tuple[tuple[str, int], ...]
    across: int
    lanes: int


def rows(group: Group, kind: str, target: Target) -> tuple[Implementation, ...]:
    """The sketch of row kernels; () where rows do not lie along memory."""
    compute = row_variant(target)
    if isinstance(row_plan(compute(group), target), str):
        return ()
    return (Implementation("sketch_rows", kind, _schedule, knobs=knobs, compute=compute),)


def row_variant(target: Target) -> Callable[[Group], Group]:
    """What gives the expressions that are scheduled; in strict precision no quotient changes."""
    return with_flat_reductions if target.precision == "strict" else faster_rows


@lru_cache(maxsize=256)
def row_plan(group: Group, target: Target) -> RowPlan | str:
    """The plan, or why there is none."""
    reductions = [t for t in group.stages() if t.reduce_axes]
    last = group.last
    why = _refusal(group, reductions)
    if why:
        return why
    sch = create_schedule(group.outputs, constants=group.constants, checked=False)
    kept = inline_for_rows(sch, group, reductions)
    for stage in reductions:
        why = why or _across(sch, stage)
    outer = _outer_axes(sch, last, reductions, kept)
    extents = dict(zip(last.axes, last.shape, strict=True))
    inner = [a for a in last.axes if a not in outer and extents[a] > 1]
    if outer and inner and last.axes.index(outer[-1]) > last.axes.index(inner[0]):
        why = why or f"rows of {last.name} are numbered by {outer[-1]}, inside {inner[0]}"
    if why:
        return why
    return RowPlan(
        outer,
        math.prod(extents[a] for a in outer),
        tuple(t.name for t in kept),
        tuple((t.name, _lanes_of(sch, t, target)) for t in reductions),
        extents[inner[-1]] if inner else 1,
        vector_lanes(sch, last, target),
    )


def _refusal(group: Group, reductions: Sequence[Tensor]) -> str:
    if not reductions:
        return "no stage reduces"
    if len(group.outputs) > 1:
        return "several outputs"
    empty = [t for t in group.stages() if 0 in t.shape or work(t) == 0]
    if empty:
        return f"{empty[0].name} has no elements"
    return ""


def _across(sch: Schedule, stage: Tensor) -> str:
    """Why the terms of a reduction are no row in memory that is read once; "" if they are."""
    name, extent = stage.reduce_axes[-1]
    body = sch.state.stage(stage.name).body
    shapes = reads(sch.state, body)
    used = [e for e, dims in shapes.items() if stride(name, e, dims) == 1]
    if not used:
        return f"terms of {stage.name} along {name} do not lie side by side"
    sizes = dict(zip(stage.axes, stage.shape, strict=True))
    again = [a for a in stage.axes if sizes[a] > 1 and all(a not in variables(e) for e in used)]
    if again:
        return f"{stage.name} reads its rows again along {again[0]}: tiles would share them"
    if extent < 4:
        return f"{name} of {stage.name} runs {extent} times: too few for vectors"
    return ""


def _outer_axes(
    sch: Schedule, stage: Tensor, reductions: Sequence[Tensor], kept: Sequence[Tensor]
) -> tuple[str, ...]:
    """The axes by which a stage, or a kept one that it reads in place, looks up row values."""
    if is_row_value(stage, reductions):
        return tuple(a for a, n in zip(stage.axes, stage.shape, strict=True) if n > 1)
    here = tuple(Index.of(Var(axis)) for axis in stage.axes)
    values = {t.name for t in (*reductions, *kept) if is_row_value(t, reductions)}
    found = set[str]()
    for e in loads(sch.state.stage(stage.name).body):
        if e.buffer in values:
            found |= variables(e)
        for other in (t for t in kept if t.name == e.buffer and e.index == here):
            outer = _outer_axes(sch, other, reductions, kept)
            pairs = zip(stage.axes, other.axes, strict=True)
            found |= {own for own, its in pairs if its in outer}
    return tuple(axis for axis in stage.axes if axis in found)


def _lanes_of(sch: Schedule, stage: Tensor, target: Target) -> int:
    """Lanes to add up in; 0 where terms keep their order or are too few."""
    lanes = vector_lanes(sch, stage, target)
    return lanes if may_reorder(sch, stage.name, target) and stage.reduce_axes[-1][1] > lanes else 0


# sizes


@lru_cache(maxsize=64)
def knobs(group: Group, target: Target) -> Space:
    """Elements side by side of each reduction, of a row in flight, rows of a piece."""
    plan = row_plan(group, target)
    assert isinstance(plan, RowPlan)
    found: dict[str, tuple[int, ...]] = {}
    extents = {t.name: t.reduce_axes[-1][1] for t in group.stages() if t.reduce_axes}
    for number, (name, lanes) in enumerate(plan.sums):
        if lanes:
            found[f"sums_{number}"] = near(VECTORS, lanes, extents[name])
        if lanes and not plan.outer and extents[name] >= PARALLEL_WORK:
            step = lanes * max(VECTORS)
            sizes = (-(-extents[name] // (n * step)) * step for n in PIECES)
            found[f"piece_{number}"] = tuple(dict.fromkeys(sizes))
    if plan.across > 1 and not group.last.reduce_axes:
        found["row"] = near(VECTORS, plan.lanes, plan.across)
    kept = max((n for t in group.stages() if t.name in plan.kept for n in t.shape[-1:]), default=1)
    if kept > 1:
        found["kept"] = near(VECTORS, plan.lanes, kept)
    if plan.outer:
        found["rows"] = tuple(n for n in ROWS if n == 1 or n < plan.rows)
    return found


# the schedule


def _schedule(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    plan = row_plan(group, target)
    assert isinstance(plan, RowPlan)
    reductions = [t for t in group.stages() if t.reduce_axes]
    inline_for_rows(sch, group, reductions)
    _Rows(sch, group, target, knobs, plan).run()


class _Rows:
    """The schedule on its way."""

    def __init__(
        self, sch: Schedule, group: Group, target: Target, knobs: Knobs, plan: RowPlan
    ) -> None:
        self.sch, self.group, self.target = sch, group, target
        self.knobs, self.plan = knobs, plan

    def run(self) -> None:
        """The last stage first: what it reads hangs on its rows."""
        last, plan = self.group.last, self.plan
        numbers = {name: number for number, (name, _) in enumerate(plan.sums)}
        parts = tuple[str, ...]()
        if last.reduce_axes:
            parts = self._sum(last, numbers[last.name])
        elif plan.across > 1:
            axis = next(a for a, n in zip(last.axes[::-1], last.shape[::-1], strict=True) if n > 1)
            self._stream(last, axis, "row")
        leaf = self._rows()
        self._hold(parts, last.name, leaf)
        for stage in reversed(self.group.stages()):
            if stage is last or not (stage.reduce_axes or stage.name in plan.kept):
                continue
            parts = ()
            if stage.reduce_axes:
                parts = self._sum(stage, numbers[stage.name])
            elif stage.shape and stage.shape[-1] > 1:
                self._stream(stage, stage.axes[-1], "kept")
            if leaf is not None:
                self.sch[stage].compute_at(last, leaf)
                self.sch[stage].set_scope("stack")
            own = self.sch.state.stage(stage.name)
            spatial = [x for x in own.leaves if x not in own.reductions]
            self._hold(parts, stage.name, spatial[-1] if spatial else None)

    def _rows(self) -> str | None:
        """Fuse the loops over rows, cut them into pieces; returns the loop of one row."""
        last, plan = self.group.last, self.plan
        if not plan.outer:
            return None
        stage = self.sch[last]
        stage.reorder(*plan.outer, *(x for x in stage.loops if x not in plan.outer))
        row = fuse(self.sch, last.name, plan.outer)
        piece, row = split(self.sch, last.name, row, self.knobs["rows"], "pq")
        if max(map(work, self.group.stages())) >= PARALLEL_WORK:
            stage.parallel(piece)
        return row

    def _sum(self, tensor: Tensor, number: int) -> tuple[str, ...]:
        """Cut the reduction into vectors side by side; returns the stages of partial sums."""
        axis, extent = self.sch.state.stage(tensor.name).reduce_axes[-1]
        if not self.plan.sums[number][1]:
            self._in_order(tensor, axis, extent)
            return ()
        if f"piece_{number}" not in self.knobs:
            return self._side_by_side(tensor.name, axis, number)
        piece, rest = split(self.sch, tensor.name, axis, self.knobs[f"piece_{number}"], "pq")
        sums = self.sch[tensor].rfactor(piece, "first")
        sums.parallel(piece)
        self._hold(self._side_by_side(sums.name, rest, number), sums.name, piece)
        return ()

    def _side_by_side(self, name: str, axis: str, number: int) -> tuple[str, ...]:
        """Several vectors of terms, then those as one, then its lanes: two stages more."""
        stage, lanes = self.sch[name], self.plan.sums[number][1]
        _, part = split(self.sch, name, axis, self.knobs[f"sums_{number}"], "or")
        wide = stage.rfactor(part)
        self._vectors(wide.name, *split(self.sch, wide.name, part, lanes, "vl"))
        vector, lane = split(self.sch, name, part, lanes, "vl")
        narrow = stage.rfactor(lane)
        self._vectors(narrow.name, vector, lane)
        stage.vectorize(lane)
        return narrow.name, wide.name

    def _in_order(self, tensor: Tensor, axis: str, extent: int) -> None:
        """Load vectors, add up their lanes one after another."""
        lanes, stage = vector_lanes(self.sch, tensor, self.target), self.sch[tensor]
        if extent > lanes:
            _, axis = split(self.sch, tensor.name, axis, lanes, "ol")
        stage.vectorize(axis)

    def _vectors(self, name: str, vector: str, lane: str) -> None:
        """Partial sums: steps outside, vectors unrolled inside."""
        stage = self.sch[name]
        stage.reorder(*(x for x in stage.loops if x not in (vector, lane)), vector, lane)
        stage.unroll(vector).vectorize(lane)

    def _stream(self, tensor: Tensor, axis: str, knob: str) -> None:
        """A pointwise stage along a row: vectors in flight unrolled."""
        lanes = vector_lanes(self.sch, tensor, self.target)
        _, tile = split(self.sch, tensor.name, axis, self.knobs[knob], "ot")
        vector, lane = split(self.sch, tensor.name, tile, lanes, "vl")
        self.sch[tensor].unroll(vector).vectorize(lane)

    def _hold(self, parts: tuple[str, ...], stage: str, leaf: str | None) -> None:
        """Partial sums in registers, where their row is."""
        for part in parts:
            if leaf is not None:
                self.sch[part].compute_at(stage, leaf)
            self.sch[part].set_scope("register")
