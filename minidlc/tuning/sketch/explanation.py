"""Why the sketches of a kernel are what they are: each rule, where it was taken, where refused.

    print(explain_sketches(group, "matmul", target))
    rule       stage   axis  taken  why
    vectorize  relu    i     no     neighbours lie 512 elements apart
    vectorize  relu    j     yes    neighbours lie side by side

Reads what the rules found (plan.py, rows.py, streams.py), changes nothing.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from minidlc.schedules.group import Group, work
from minidlc.schedules.injective import PARALLEL_WORK, inline_pointwise
from minidlc.schedules.rows import inline_for_rows
from minidlc.schedules.tiles import PARALLEL_SUMS, accumulator, inline_around
from minidlc.target import Target
from minidlc.te import Schedule, create_schedule
from minidlc.te.stage import Stage
from minidlc.tuning.sketch.access import (
    distance,
    reads,
    stored_apart,
    stride,
    variables,
)
from minidlc.tuning.sketch.intrinsics import Match
from minidlc.tuning.sketch.plan import Plan, block_of, pack_refusal, plan_of
from minidlc.tuning.sketch.rows import RowPlan, row_plan, row_variant
from minidlc.tuning.sketch.streams import Stream, stream_of


@dataclass(frozen=True)
class Row:
    """What a rule says of a stage, or of one axis or operand of it ("": of all)."""

    rule: str
    stage: str
    axis: str
    taken: bool
    why: str


@dataclass(frozen=True)
class Explanation:
    """Every rule that was tried, in the order they are tried in, and the sketches that came out."""

    rows: tuple[Row, ...]
    sketches: tuple[str, ...]

    def of(self, rule: str) -> tuple[Row, ...]:
        """The rows of one rule."""
        return tuple(row for row in self.rows if row.rule == rule)

    def __str__(self) -> str:
        head = ("rule", "stage", "axis", "taken", "why")
        lines = [
            head,
            *((r.rule, r.stage, r.axis, "yes" if r.taken else "no", r.why) for r in self.rows),
        ]
        widths = [max(len(line[n]) for line in lines) for n in range(len(head) - 1)]
        texts = (
            "  ".join((*(x.ljust(w) for x, w in zip(line, widths, strict=False)), line[-1]))
            for line in lines
        )
        return "\n".join((*texts, f"sketches: {', '.join(self.sketches) or 'none'}"))


def explained(group: Group, target: Target, sketches: tuple[str, ...]) -> Explanation:
    """The explanation of the sketches that have these names."""
    plan, stream = plan_of(group, target), stream_of(group, target)
    row = row_plan(row_variant(target)(group), target)
    sch = create_schedule(group.outputs, constants=group.constants, checked=False)
    reducing = [t for t in group.stages() if t.reduce_axes]
    by_rows = isinstance(plan, str) and isinstance(row, RowPlan)
    if isinstance(plan, Plan):
        inline_around(sch, group, target)
    elif by_rows:
        inline_for_rows(sch, group, reducing)
    else:
        inline_pointwise(sch, [t for t in group.intermediate() if not t.reduce_axes])
    found = [*_inlined(sch, group), *_vectors(sch, by_rows)]
    if isinstance(plan, Plan):
        found += _tiles(sch, group, plan)
        found += _packs(sch, group, plan)
        found += _places(plan)
    else:
        found.append(Row("tile", _anchor(group), "", False, plan))
    found += _sums(group, row, target)
    found += _fused(group, stream)
    found += _dot4(group, plan)
    found.append(_parallel(group, isinstance(plan, Plan)))
    return Explanation(tuple(found), sketches)


def _anchor(group: Group) -> str:
    return group.last.name if group.anchor is None else group.anchor.name


def _inlined(sch: Schedule, group: Group) -> Iterator[Row]:
    """Stages computed where they are read."""
    loops = {s.name for s in sch.state.stages if not s.inlined}
    for stage in group.intermediate():
        if stage.reduce_axes:
            why = "it reduces: its elements are no single expression"
        elif stage.name not in loops:
            why = "pointwise: computed where it is read"
        else:
            why = "a border, or dear and read more than once: loops of its own"
        yield Row("inline", stage.name, "", stage.name not in loops, why)


def _vectors(sch: Schedule, by_rows: bool) -> Iterator[Row]:
    """The axes of each stage that has loops: which are contiguous for its store and its loads."""
    for stage in sch.state.stages:
        if not stage.inlined and by_rows and stage.reductions:
            yield from _along_rows(sch, stage)
        elif not stage.inlined:
            for place, axis in enumerate(stage.axes):
                yield _vector(sch, stage, place, axis)


def _vector(sch: Schedule, stage: Stage, place: int, axis: str) -> Row:
    """One axis of a stage: its store says whether, its loads how fast."""
    size, apart = stage.type.dims[place], stored_apart(stage.type.dims, place)
    if size < 2:
        return Row("vectorize", stage.name, axis, False, f"it runs {size} times")
    if apart != 1:
        return Row("vectorize", stage.name, axis, False, f"neighbours lie {apart} elements apart")
    why = f"neighbours lie side by side; {_steps(sch, stage, axis)}"
    return Row("vectorize", stage.name, axis, True, why)


def _along_rows(sch: Schedule, stage: Stage) -> Iterator[Row]:
    """A reduction along memory: lanes are terms, not results."""
    terms = stage.reduce_axes[-1][0]
    for axis in (*stage.axes, *(name for name, _ in stage.reduce_axes)):
        taken = axis == terms
        yield Row("vectorize", stage.name, axis, taken, f"along it {_steps(sch, stage, axis)}")


def _steps(sch: Schedule, stage: Stage, axis: str) -> str:
    """How far neighbours along an axis are apart in what a stage reads."""
    shapes = reads(sch.state, stage.body)
    steps = (f"{e.buffer}: {distance(stride(axis, e, dims))}" for e, dims in shapes.items())
    return "; ".join(dict.fromkeys(steps))


def _tiles(sch: Schedule, group: Group, plan: Plan) -> Iterator[Row]:
    """The axes of the anchor: what a tile of them saves."""
    name = _anchor(group)
    shapes = reads(sch.state, sch.state.stage(name).body)
    for axis in plan.axes:
        free = list(dict.fromkeys(e.buffer for e in shapes if axis not in variables(e)))
        if plan.extents[axis] < 2:
            why = f"it runs {plan.extents[axis]} times"
        elif axis == plan.vector:
            why = f"whole vectors of {plan.lanes}"
        elif axis not in plan.tiled:
            why = "nothing that is read is used again along it"
            why = f"three axes inside it are tiled; {', '.join(free)} is outside" if free else why
        else:
            why = f"{', '.join(free)} is used again" if free else "sums that wait for no other"
        yield Row("tile", name, axis, axis in plan.tiled, why)
    copy = accumulator(sch, group)
    why = "sums of a tile stay in registers"
    if copy != name and name not in {t.name for t in group.outputs}:
        why += "; functions need those: they are read from the stack"
    yield Row("cache_write", name, "", True, why)


def _packs(sch: Schedule, group: Group, plan: Plan) -> Iterator[Row]:
    """What the anchor reads: packed by tiles, or why not."""
    name = _anchor(group)
    # accumulator may have moved the body to a copy of the anchor, which is read first of all
    body = next(s.body for s in sch.state.stages if s.name in (name, f"{name}_c") and s.reduce_axes)
    packed = {o.name: o for o in plan.operands}
    for buffer in dict.fromkeys(e.buffer for e in reads(sch.state, body)):
        if buffer in packed:
            tiles = ", ".join(axis for _, axis in packed[buffer].tiles)
            when = "at compile time" if packed[buffer].is_constant else "in each call"
            yield Row("pack", name, buffer, True, f"by tiles of {tiles}, {when}")
        else:
            why = pack_refusal(buffer, list(reads(sch.state, body)), group, plan.tiled)
            yield Row("pack", name, buffer, False, why)


def _places(plan: Plan) -> Iterator[Row]:
    """Where copies can be made: at the loops over blocks of what they depend on."""
    for name, axes in plan.copies.items():
        axis = axes[-1] if axes else ""
        why = f"blocks of {axis} need a part of it" if axis else "every tile reads all of it"
        yield Row("compute_at", name, axis, bool(axis), why)
    for operand in plan.operands:
        axis = block_of(operand, plan)
        if operand.is_constant:
            why = "it is constant: packed once, at compile time"
            yield Row("compute_at", operand.name, axis, False, why)
        else:
            why = f"blocks of {axis} need a part of its copy"
            yield Row("compute_at", operand.name, axis, True, why)


def _sums(group: Group, row: RowPlan | str, target: Target) -> Iterator[Row]:
    """Reductions as vectors side by side."""
    lanes = {} if isinstance(row, str) else dict(row.sums)
    for stage in (t for t in group.stages() if t.reduce_axes):
        axis, extent = stage.reduce_axes[-1]
        if isinstance(row, str):
            yield Row("rfactor", stage.name, axis, False, row)
        elif lanes.get(stage.name):
            why = f"terms lie side by side: vectors of {lanes[stage.name]} are added up apart"
            yield Row("rfactor", stage.name, axis, True, why)
        elif target.precision == "strict" and stage.dtype.is_float:
            why = "strict precision: terms are added up in order"
            yield Row("rfactor", stage.name, axis, False, why)
        else:
            yield Row("rfactor", stage.name, axis, False, f"{extent} terms are one vector or less")


def _fused(group: Group, stream: Stream | str) -> Iterator[Row]:
    """Loops of a kernel without an anchor."""
    last = group.last.name
    if isinstance(stream, str):
        yield Row("stream", last, "", False, stream)
    elif stream.turned:
        why = "something is read side by side along it: blocks of it and of the last axis"
        yield Row("stream", last, stream.turned, True, why)
    else:
        yield Row("stream", last, stream.row, True, f"memory runs on for {stream.length} elements")


def _dot4(group: Group, plan: Plan | str) -> Iterator[Row]:
    """Whether an instruction computes the anchor."""
    if isinstance(plan, str):
        yield Row("tensorize", _anchor(group), "", False, plan)
    elif isinstance(plan.dot4, Match):
        why = "dot4: four products of a u8 and an i8, added to an i32"
        yield Row("tensorize", _anchor(group), plan.dot4.axis, True, why)
    else:
        yield Row("tensorize", _anchor(group), "", False, f"dot4: {plan.dot4}")


def _parallel(group: Group, is_tiled: bool) -> Row:
    """Whether threads pay."""
    if is_tiled and group.anchor is not None:
        amount, enough, what = work(group.anchor), PARALLEL_SUMS, "steps of sums"
    else:
        amount = max(map(work, group.stages()), default=0)
        enough, what = PARALLEL_WORK, "elements"
    why = f"{amount} {what}, worth a fork from {enough}"
    return Row("parallel", group.last.name, "", amount >= enough, why)
