"""Lowering: from a scheduled program to loops, built inside out.

    fn = lower(schedule, "matmul")                  # LoopFunction: params and loops
    print(fn)                                       # def matmul(A: f32[4, 8], …): for io in …

Reads a State, writes loop IR. A stage's statement is built first, then wrapped in its loops from
the innermost outwards; where a loop has producers computed at it, the region of them that the
statement so far reads tells how much to compute. So several readers, halos and tails need no
special case. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, runtime_checkable

from minidlc.expr.index import (
    Cond,
    Index,
    Interval,
    Ranges,
    Var,
    maximum,
    minimum,
    simplify,
    substitute,
    value_range,
)
from minidlc.expr.nodes import Expr, Load, Reduce, Select
from minidlc.expr.walk import map_indices, map_values
from minidlc.expr.walk import rewrite as rewrite_expr
from minidlc.loop.nodes import (
    Alloc,
    For,
    If,
    Kind,
    LoopFunction,
    Param,
    Stmt,
    Store,
    block,
    rewrite,
)
from minidlc.loop.partition import partition as partition_stmt
from minidlc.loop.regions import Box, regions
from minidlc.loop.simplify import simplify_stmt
from minidlc.support.arguments import expect, expect_each, expect_name
from minidlc.support.errors import LoweringError, ScheduleError, nearest
from minidlc.support.extension import declare, dispatch, instance
from minidlc.support.names import Names
from minidlc.te.beside import part_beside
from minidlc.te.intrinsics import hinted
from minidlc.te.iteration import Nest, nest
from minidlc.te.legality import check_lanes, check_nesting, check_registers
from minidlc.te.placement import check_placement
from minidlc.te.stage import Point, Stage, State
from minidlc.te.storage import Computed, check_covered
from minidlc.te.tensor import WORDS, combine, identity

declare(
    "lower",
    "(schedule: Schedule, name: str) -> LoopFunction",
    "from a schedule to loops",
    returns=instance(LoopFunction),
)


@runtime_checkable
class Lowerable(Protocol):
    """What lowering needs of a schedule."""

    @property
    def state(self) -> State:
        """The stages as scheduled."""
        ...

    def blame(self, error: ScheduleError) -> ScheduleError:
        """The error with the step that is at fault."""
        ...


def lower(
    schedule: Lowerable,
    name: str = "kernel",
    params: Sequence[str] | None = None,
    *,
    partition: bool = True,
    lanes: int | None = None,
) -> LoopFunction:
    """The loops of a schedule as a function of its placeholders, then its outputs.

    `params` gives another order. partition=False leaves the loops as scheduled, with `min` in
    extents and conditions; otherwise they are cut so that the main parts are free of both, and
    checked for what code generation cannot take (`lanes`: elements of a vector on the target).
    Raises ScheduleError naming the step at fault, LoweringError (MDLC0724) for wrong `params`.
    The loops as scheduled are the extension point `lower`.
    """
    _check_arguments(schedule, name, lanes)
    try:
        fn = dispatch("lower", _lower)(schedule, name)
        check_nesting(fn)
        fn = _with_params(fn, params)
        if not partition:
            return fn
        fn = cut(fn)
        check_registers(fn)
        if lanes is not None:
            check_lanes(fn, lanes)
        return fn
    except ScheduleError as error:
        raise schedule.blame(error) from None


def _check_arguments(schedule: Lowerable, name: str, lanes: int | None) -> None:
    expect("lower", "schedule", schedule, Lowerable)
    expect_name("lower", name)
    expect("lower", "lanes", lanes, int, type(None))


def _lower(schedule: Lowerable, name: str) -> LoopFunction:
    return lower_state(schedule.state, name)


def lower_state(state: State, name: str = "kernel") -> LoopFunction:
    """The loops of a state, as scheduled: not yet cut, not yet checked for code generation."""
    check_placement(state)
    return _lower_part(state.part(state.outputs), name)


def lower_init(
    schedule: Lowerable, name: str = "kernel", *, lanes: int | None = None
) -> tuple[LoopFunction, ...]:
    """The loops that run once, at compile time: a function for each prepacked stage, in order.

    Its parameters are the constants and prepacked stages that are read, then the stage itself.
    Raises ScheduleError as `lower` does.
    """
    _check_arguments(schedule, name, lanes)
    try:
        made = tuple(map(cut, init_loops(schedule.state, name)))
        for fn in made:
            check_nesting(fn)
            check_registers(fn)
            if lanes is not None:
                check_lanes(fn, lanes)
        return made
    except ScheduleError as error:
        raise schedule.blame(error) from None


def init_loops(state: State, name: str = "kernel") -> tuple[LoopFunction, ...]:
    """The loops that run once, as scheduled."""
    check_placement(state)
    return tuple(
        _lower_part(state.part((stage.name,)), f"{name}_init_{stage.name}")
        for stage in state.prepacked()
    )


def _lower_part(state: State, name: str) -> LoopFunction:
    lowering = _Lowering(state)
    body: Stmt = block()
    for stage in reversed(state.stages):
        if stage.inlined or stage.at is not None:
            continue
        whole = tuple((Index.of(0), Index.of(n)) for n in stage.type.dims)
        body = block(lowering.realize(stage, whole, {}), body)
        if stage.name not in state.outputs:
            body = Alloc(stage.name, stage.type, stage.scope, body)
    inputs = (Param(p.name, p.type) for p in state.placeholders)
    outputs = (Param(n, state.stage(n).type) for n in state.outputs)
    return LoopFunction(name, (*inputs, *outputs), simplify_stmt(body, {}))


def cut(fn: LoopFunction) -> LoopFunction:
    """The function with its loops cut where a `min` or a condition becomes decided."""
    return replace(fn, body=simplify_stmt(partition_stmt(fn.body), {}))


def _with_params(fn: LoopFunction, names: Sequence[str] | None) -> LoopFunction:
    if names is None:
        return fn
    expect_each("lower", "params", names, str)
    known = {p.name: p for p in fn.params}
    if sorted(names) != sorted(known):
        odd = next((n for n in names if n not in known), None)
        raise LoweringError(
            f"params {list(names)} are not the parameters of {fn.name!r}",
            notes=(f"its parameters: {', '.join(known)}",),
            hint=nearest(odd, known) if odd else None,
            code="MDLC0724",
        )
    return replace(fn, params=tuple(known[n] for n in names))


@dataclass(frozen=True)
class _Lowering:
    """`realize` and `attach`, which call each other from the consumers to the producers.

    `around` holds the range of every loop variable around the place in question. `computed` says
    what was computed at each loop of the stages that are stored further out.
    """

    state: State
    computed: dict[str, Computed] = field(default_factory=dict[str, Computed])

    @cached_property
    def producers(self) -> dict[Point, list[Stage]]:
        """The stages computed at each loop, consumers first."""
        found: dict[Point, list[Stage]] = {}
        for stage in reversed(self.state.stages):
            if stage.at is not None and not stage.inlined:
                found.setdefault(stage.at, []).append(stage)
        return found

    @cached_property
    def stored(self) -> dict[Point, list[Stage]]:
        """The stages stored at each loop that are computed further inside."""
        found: dict[Point, list[Stage]] = {}
        for stage in reversed(self.state.stages):
            if stage.stored is not None and stage.stored != stage.at and not stage.inlined:
                found.setdefault(stage.stored, []).append(stage)
        return found

    def realize(self, stage: Stage, region: Box, around: Ranges) -> Stmt:
        """Loops that compute `region` of a stage: (lowest position, extent) an axis."""
        loops = self._loop_names(stage, around)
        extents = dict(zip(stage.axes, (extent for _, extent in region), strict=True))
        extents |= {axis: Index.of(n) for axis, n in stage.reduce_axes}
        built = nest(stage, extents, loops, around)
        index = tuple(
            simplify(low + built.values[axis], built.ranges)
            for axis, (low, _) in zip(stage.axes, region, strict=True)
        )
        values = {Var(axis): e for axis, e in zip(stage.axes, index, strict=True)}
        values |= {Var(axis): built.values[axis] for axis, _ in stage.reduce_axes}

        def position(e: Index) -> Index:
            return simplify(substitute(e, values), built.ranges)

        body = map_indices(stage.body, position)
        return self._loops(stage, built, index, body, dict(around))

    def _loop_names(self, stage: Stage, around: Ranges) -> dict[str, Var]:
        """A variable a leaf: the author's name, with the stage's added if it is in use around."""
        taken = Names({v.name for v in around} | self.state.names() | set(WORDS) | set(Kind))
        return {
            leaf: Var(taken.fresh(f"{leaf}_{stage.name}" if leaf in taken else leaf))
            for leaf in stage.leaves
        }

    def _loops(
        self,
        stage: Stage,
        built: Nest,
        index: tuple[Index, ...],
        body: Expr,
        around: dict[Var, Interval],
    ) -> Stmt:
        reduction = [leaf for leaf in stage.leaves if leaf in stage.reductions]
        lanes = {built.loops[x] for x in stage.leaves if stage.kind(x) is Kind.VECTORIZED}
        step = _step(stage, index, body, lanes) if reduction else _first(stage, index, body)
        stmt: Stmt = _guarded(step, built, built.guards)
        for place in reversed(range(len(stage.leaves))):
            leaf = stage.leaves[place]
            outside = stage.leaves[: place + 1]
            inside = {**around, **{built.loops[x]: built.ranges[built.loops[x]] for x in outside}}
            stmt = self.attach(Point(stage.name, leaf), built.loops[leaf], stmt, inside)
            loop = For(built.loops[leaf], built.extents[leaf], stage.kind(leaf), stmt)
            stmt = hinted(stage, leaf, loop)
            if isinstance(body, Reduce) and reduction and leaf == reduction[0]:
                stmt = block(_init(stage, built, index, body, place), stmt)
        return stmt

    def attach(self, point: Point, var: Var, stmt: Stmt, around: Ranges) -> Stmt:
        """`stmt`, before it what it reads of stages computed at `point`, the loop over `var`."""
        for producer in self.producers.get(point, ()):
            if producer.name in self.state.outputs:
                sizes = self.state.type_of(point.stage).dims
                part = part_beside(stmt, producer, point, sizes, around)
                part = _clamped(part, producer.type.dims, around)
                stmt = block(self.realize(producer, part, around), stmt)
                continue
            box = regions(stmt, producer.name, "r", around)
            if box is None:
                raise ScheduleError(
                    f"nothing inside the loop {point} reads {producer.name!r}", code="MDLC0614"
                )
            box = _clamped(box, producer.type.dims, around)
            stmt = block(self.realize(producer, box, around), stmt)
            if producer.stored in (None, point):
                stmt = _allocated(producer, box, stmt, around)
            else:
                self.computed[producer.name] = Computed(var, box)
        for producer in self.stored.get(point, ()):
            check_covered(stmt, producer, self.computed[producer.name], around)
            hull = regions(stmt, producer.name, "rw", around)
            assert hull is not None
            stmt = _allocated(producer, _clamped(hull, producer.type.dims, around), stmt, around)
        return stmt


def _allocated(stage: Stage, box: Box, stmt: Stmt, around: Ranges) -> Stmt:
    """`stmt` with a local buffer for the elements of `stage` in `box`, all that it touches."""
    caps = [value_range(extent, around) for _, extent in box]
    shape = tuple(max(span[1], 1) if span else 1 for span in caps)
    lows = tuple(low for low, _ in box)
    type = stage.type.with_shape(shape)
    return Alloc(stage.name, type, stage.scope, _shifted(stmt, stage.name, lows))


def _first(stage: Stage, index: tuple[Index, ...], body: Expr) -> Store:
    """The store of a stage without reduction loops."""
    value = body.body if isinstance(body, Reduce) else body
    return Store(stage.name, index, value, stage.origin)


def _step(stage: Stage, index: tuple[Index, ...], body: Expr, lanes: set[Var]) -> Stmt:
    """One iteration of a reduction: `S = S + e`.

    Adding the identity changes nothing: `S = S + select(k < 10, e, 0)` runs under `if k < 10`,
    unless that would need a masked store, which is dearer than a masked value.
    """
    assert isinstance(body, Reduce)
    value, cond = body.body, Cond(())
    if isinstance(value, Select) and isinstance(value.cond, Cond):
        nothing = value.b == identity(body.op, stage.type.dtype)
        if nothing and lanes.isdisjoint(value.cond.vars()):
            value, cond = value.a, value.cond
    value = combine(body.op, Load(stage.name, index, stage.type.dtype), value)
    store = Store(stage.name, index, value, stage.origin)
    return If(cond, store) if cond.ge else store


def _init(stage: Stage, built: Nest, index: tuple[Index, ...], body: Reduce, place: int) -> Stmt:
    """The nest that stores the identity: copies of the spatial loops inside the first reduction."""
    start = Store(stage.name, index, identity(body.op, stage.type.dtype), stage.origin)
    guards = {v: e for v, e in built.guards.items() if v not in stage.reductions}
    stmt = _guarded(start, built, guards)
    for leaf in reversed(stage.leaves[place:]):
        if leaf not in stage.reductions:
            stmt = For(built.loops[leaf], built.extents[leaf], stage.kind(leaf), stmt)
    return stmt


def _guarded(stmt: Stmt, built: Nest, guards: Mapping[str, Index]) -> Stmt:
    """The statement under the condition that no guarded variable runs past its end."""
    parts = tuple(simplify(e, built.ranges) for e in guards.values())
    return If(Cond(parts), stmt) if parts else stmt


def _clamped(box: Box, shape: tuple[int, ...], around: Ranges) -> Box:
    """The part of a box inside the tensor: regions ignore conditions, so it may reach over."""
    parts: list[tuple[Index, Index]] = []
    for (low, extent), size in zip(box, shape, strict=True):
        start = simplify(maximum(low, 0), around)
        end = simplify(minimum(low + extent, size), around)
        parts.append((start, simplify(end - start, around)))
    return tuple(parts)


def _shifted(stmt: Stmt, buffer: str, lows: tuple[Index, ...]) -> Stmt:
    """Positions in `buffer` counted from `lows`: the local buffer holds just the region."""
    if all(low == Index.of(0) for low in lows):
        return stmt

    def shift(index: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(e - low for e, low in zip(index, lows, strict=True))

    def load(e: Expr) -> Expr:
        if not isinstance(e, Load) or e.buffer != buffer:
            return e
        return Load(buffer, shift(e.index), e.type)

    def store(s: Stmt) -> Stmt:
        if not isinstance(s, Store):
            return s
        index = tuple(map_values(e, lambda x: rewrite_expr(x, load)) for e in s.index)
        index = shift(index) if s.buffer == buffer else index
        value = rewrite_expr(s.value, load)
        return s if index == s.index and value is s.value else replace(s, index=index, value=value)

    return rewrite(stmt, store)
