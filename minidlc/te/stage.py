"""What a schedule has decided so far: one `Stage` a computed tensor, all of them in a `State`.

A primitive is a function from State to State; `lower` reads a State. All records are frozen.

    state = initial_state([C])
    state.stage("C").leaves                         # ('i', 'j', 'k'): the loops, outermost first
    state.stage("C").relations                      # () before any split or fuse

Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from minidlc.expr.nodes import Expr, Reduce
from minidlc.expr.types import TensorType
from minidlc.loop.nodes import Kind, Scope
from minidlc.loop.regions import loads
from minidlc.support.arguments import expect_each
from minidlc.support.errors import LoweringError, ScheduleError, nearest
from minidlc.te.scan import Recurrent, Scan, check_scans
from minidlc.te.tensor import Tensor, stages


@dataclass(frozen=True)
class SplitRelation:
    """`parent = factor * outer + inner`; the last inner loop is cut short where it must be.

    With tail "shift" it is not: the last block begins earlier, so that it ends at the end.
    """

    parent: str
    outer: str
    inner: str
    factor: int
    tail: str = "cut"


@dataclass(frozen=True)
class FuseRelation:
    """`outer = fused // n` and `inner = fused % n`, n the extent of `inner`."""

    outer: str
    inner: str
    fused: str


Relation: TypeAlias = SplitRelation | FuseRelation


def parents(relation: Relation) -> tuple[str, ...]:
    """The iteration variables a relation replaced."""
    match relation:
        case SplitRelation(parent=parent):
            return (parent,)
        case FuseRelation(outer=outer, inner=inner):
            return (outer, inner)


def children(relation: Relation) -> tuple[str, ...]:
    """The iteration variables a relation made."""
    match relation:
        case SplitRelation(outer=outer, inner=inner):
            return (outer, inner)
        case FuseRelation(fused=fused):
            return (fused,)


@dataclass(frozen=True)
class Point:
    """A loop of a stage, as a place: what is computed there comes first in the loop's body."""

    stage: str
    axis: str

    def __str__(self) -> str:
        return f"{self.stage}.{self.axis}"


@dataclass(frozen=True)
class Stage:
    """One tensor to compute, and how: its loops, where it is placed, where its elements live.

    `axes` and the axes of a Reduce body are the root iteration variables; `relations` made others
    of them; `leaves` are those that are loops now, outermost first. `kinds` lists the leaves that
    are not serial. `at` is None at root. `origin` names the tensor of the program that it
    serves: C for C and for C_c. A `prepacked` stage is computed once, at compile time. `stored` is
    the loop that holds the elements if that is not `at` itself but one around it. `steps` is the
    axis of a scan: its iterations run in order. `intrinsic` is a leaf and what computes it,
    `prefetches` are (leaf, tensor, iterations ahead).
    """

    name: str
    type: TensorType
    axes: tuple[str, ...]
    body: Expr
    leaves: tuple[str, ...]
    relations: tuple[Relation, ...] = ()
    kinds: tuple[tuple[str, Kind], ...] = ()
    at: Point | None = None
    inlined: bool = False
    scope: Scope = Scope.ARENA
    origin: str = ""
    prepacked: bool = False
    stored: Point | None = None
    steps: str = ""
    intrinsic: tuple[str, str] | None = None
    prefetches: tuple[tuple[str, str, int], ...] = ()

    @property
    def reduce_axes(self) -> tuple[tuple[str, int], ...]:
        """(name, extent) of each reduction axis."""
        return self.body.axes if isinstance(self.body, Reduce) else ()

    @cached_property
    def reads(self) -> frozenset[str]:
        """Names of the tensors the body loads."""
        return frozenset(load.buffer for load in loads(self.body))

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """Every iteration variable: the axes, then what the relations made."""
        made = (name for relation in self.relations for name in children(relation))
        return (*self.axes, *(name for name, _ in self.reduce_axes), *made)

    @cached_property
    def reductions(self) -> frozenset[str]:
        """The iteration variables that come from reduction axes."""
        names = {name for name, _ in self.reduce_axes}
        for relation in self.relations:
            if not names.isdisjoint(parents(relation)):
                names.update(children(relation))
        return frozenset(names)

    @cached_property
    def leaves_of(self) -> Mapping[str, frozenset[str]]:
        """The leaves each iteration variable has become."""
        leaves = {leaf: frozenset((leaf,)) for leaf in self.leaves}
        for relation in reversed(self.relations):
            made = frozenset[str]().union(*(leaves[name] for name in children(relation)))
            leaves.update(dict.fromkeys(parents(relation), made))
        return leaves

    def kind(self, leaf: str) -> Kind:
        """How the iterations of a leaf run."""
        return next((kind for name, kind in self.kinds if name == leaf), Kind.SERIAL)

    def position(self, leaf: str) -> int:
        """Place of a leaf, 0 outermost; ScheduleError (MDLC0603) if there is no such loop."""
        if leaf in self.leaves:
            return self.leaves.index(leaf)
        gone = f"{leaf!r} of stage {self.name!r} is no loop any more: it was split or fused"
        known = f"no loop {leaf!r} in stage {self.name!r}"
        raise ScheduleError(
            gone if leaf in self.variables else known,
            notes=(f"loops of {self.name}, outermost first: {', '.join(self.leaves) or 'none'}",),
            hint=nearest(leaf, self.leaves),
            code="MDLC0603",
        )

    def with_kind(self, leaf: str, kind: Kind) -> Stage:
        """The stage with one leaf's kind set."""
        others = tuple(pair for pair in self.kinds if pair[0] != leaf)
        return replace(self, kinds=(*others, (leaf, kind)))


def stage_of(tensor: Tensor) -> Stage:
    """The unscheduled stage of a computed tensor: its axes as loops, then the reduction axes."""
    assert tensor.body is not None
    leaves = (*tensor.axes, *(name for name, _ in tensor.reduce_axes))
    made = Stage(tensor.name, tensor.type, tensor.axes, tensor.body, leaves, origin=tensor.name)
    return replace(made, steps=tensor.axes[0]) if isinstance(tensor, Scan) else made


@dataclass(frozen=True)
class State:
    """The program under a schedule: stages in topological order, each before its readers.

    `constants` names the placeholders whose elements are known at compile time.
    """

    placeholders: tuple[Tensor, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]
    constants: frozenset[str] = frozenset()

    @cached_property
    def _by_name(self) -> Mapping[str, Stage]:
        return {s.name: s for s in self.stages}

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def stage(self, name: str) -> Stage:
        """The stage of a name; ScheduleError (MDLC0602) if there is none or it was inlined."""
        found = self._by_name.get(name)
        if found is not None and not found.inlined:
            return found
        if found is not None:
            raise ScheduleError(f"stage {name!r} was inlined and has no loops", code="MDLC0602")
        if any(p.name == name for p in self.placeholders):
            raise ScheduleError(
                f"{name!r} is a placeholder: it has no loops to schedule", code="MDLC0602"
            )
        known = [s.name for s in self.stages if not s.inlined]
        raise ScheduleError(f"no stage {name!r}", hint=nearest(name, known), code="MDLC0602")

    def type_of(self, name: str) -> TensorType:
        """Type of a stage or placeholder."""
        for placeholder in self.placeholders:
            if placeholder.name == name:
                return placeholder.type
        return self.stage(name).type

    def readers(self, name: str) -> tuple[Stage, ...]:
        """The stages whose bodies load `name`, in order."""
        return tuple(s for s in self.stages if name in s.reads and not s.inlined)

    def attached(self, name: str, axis: str | None = None) -> tuple[Stage, ...]:
        """The stages computed or stored at a loop of stage `name` (at that one loop)."""
        return tuple(
            s
            for s in self.stages
            for point in dict.fromkeys((s.at, s.stored))
            if point and not s.inlined and point.stage == name and axis in (None, point.axis)
        )

    def names(self) -> set[str]:
        """Every buffer name in use."""
        return {p.name for p in self.placeholders} | {s.name for s in self.stages}

    def prepacked(self) -> tuple[Stage, ...]:
        """The stages that are computed at compile time, in order."""
        return tuple(s for s in self.stages if s.prepacked)

    def part(self, outputs: tuple[str, ...]) -> State:
        """What it takes to compute `outputs`, given the placeholders and the prepacked stages."""
        if not self.prepacked():
            return self
        needed = set(outputs)
        for stage in reversed(self.stages):
            if stage.name in outputs or (stage.name in needed and not stage.prepacked):
                needed |= stage.reads
        found = [s for s in self.stages if s.name in needed and not s.inlined]
        made = tuple(s for s in found if s.name in outputs or not s.prepacked)
        given = (Tensor(s.name, s.type, s.axes) for s in found if s not in made)
        read = (p for p in self.placeholders if p.name in needed)
        return replace(self, placeholders=(*read, *given), stages=made, outputs=outputs)

    def update(self, *changed: Stage) -> State:
        """The state with stages replaced by those of the same names."""
        new = {s.name: s for s in changed}
        return replace(self, stages=tuple(new.get(s.name, s) for s in self.stages))

    def insert(self, stage: Stage, before: str) -> State:
        """The state with a new stage placed before another in topological order."""
        place = next(n for n, s in enumerate(self.stages) if s.name == before)
        new = replace(self, stages=(*self.stages[:place], stage, *self.stages[place:]))
        return new.placed_in_scans() if stage.at is None else new

    def step_loops(self, scan: Stage) -> tuple[str, ...]:
        """The loops that the steps of a scan are, in the order in which they must run."""
        loops = [scan.steps]
        for relation in scan.relations:
            old, new = parents(relation), children(relation)
            if old[0] in loops:
                start = loops.index(old[0])
                loops[start : start + len(old)] = new
        return tuple(loops)

    def within(self, scan: Stage) -> tuple[Stage, ...]:
        """The stages that a step of a scan needs and that need earlier steps."""
        needed, depending = {scan.name}, {scan.name}
        for stage in reversed(self.stages):
            needed |= stage.reads if stage.name in needed else frozenset()
        for stage in self.stages:
            if not stage.reads.isdisjoint(depending):
                depending.add(stage.name)
        names = needed & depending - {scan.name}
        return tuple(s for s in self.stages if s.name in names and not s.inlined)

    def placed_in_scans(self) -> State:
        """The state with stages that take part in a scan computed in its steps."""
        state = self
        for scan in self.stages:
            if scan.steps and not scan.inlined:
                at = Point(scan.name, self.step_loops(scan)[-1])
                inside = [s for s in state.within(scan) if s.at is None]
                state = state.update(*(replace(s, at=at) for s in inside))
        return state


def initial_state(outputs: Iterable[Tensor], constants: Iterable[str] = ()) -> State:
    """The state of an empty trace: every tensor computed whole, at root, in plain loops.

    Raises LoweringError for two tensors of one name (MDLC0704) or an output that nothing computes
    (MDLC0723), ScheduleError (MDLC0602) for a constant that is no placeholder.
    """
    wanted = expect_each("schedule", "outputs", outputs, Tensor)
    order = stages(wanted)
    check_scans(order)
    order = tuple(t for t in order if not isinstance(t, Recurrent))
    seen: dict[str, Tensor] = {}
    for tensor in order:
        if seen.setdefault(tensor.name, tensor) is not tensor:
            raise LoweringError(
                f"two different tensors named {tensor.name!r}",
                hint="give one another name=, or build them inside te.unique_names()",
                code="MDLC0704",
            )
    for tensor in wanted:
        if tensor.body is None:
            raise LoweringError(
                f"output {tensor.name!r} is a placeholder: nothing computes it", code="MDLC0723"
            )
    given = tuple(t for t in order if t.body is None)
    known = frozenset(expect_each("schedule", "constants", constants, str))
    names = [t.name for t in given]
    for name in sorted(known.difference(names)):
        raise ScheduleError(
            f"constant {name!r} is no placeholder", hint=nearest(name, names), code="MDLC0602"
        )
    return State(
        given,
        tuple(stage_of(t) for t in order if t.body is not None),
        tuple(dict.fromkeys(t.name for t in wanted)),
        known,
    ).placed_in_scans()
