"""The primitive that cuts a reduction in two: partial results, then their sum.

    Split("s", "k", 16, ("ko", "ki")).apply(state)
    RFactor("s", "ki").apply(state)             # s_rf[ki] = sum over ko, s = sum of s_rf over ki

Reads and writes `State`. Adding floats in another order rounds otherwise: schedules for a target of
precision "strict", whose results are those of the plain loops, do not use it.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from minidlc.expr.index import Cond, Index, Var, substitute
from minidlc.expr.nodes import Load, Reduce, Select
from minidlc.expr.walk import map_indices
from minidlc.support.errors import ScheduleError, nearest
from minidlc.support.names import Names
from minidlc.te.placement import check_placement
from minidlc.te.primitive import Primitive, register
from minidlc.te.stage import SplitRelation, Stage, State, children, parents
from minidlc.te.tensor import identity

POSITIONS = ("first", "last")
T = TypeVar("T")


@register("rfactor")
@dataclass(frozen=True)
class RFactor(Primitive):
    """Reduce in two steps: `S_rf` keeps a partial result for each iteration of `half`.

    Before:                               After `rfactor("S", "ki", position="last")`:

        S[0] = 0.0                            for ki in serial(0, 4):
        for ko in serial(0, 3):                   S_rf[0, ki] = 0.0
            for ki in serial(0, …):               for ko in serial(0, 3):
                S[0] = S[0] + A[4*ko + ki]            if 9 - 4*ko - ki >= 0:
                                                          S_rf[0, ki] = S_rf[0, ki] + …
                                              S[0] = 0.0
                                              for ki in serial(0, 4):
                                                  S[0] = S[0] + S_rf[0, ki]

    The iterations of `half` are independent now: lanes of a vector (position="last": neighbours in
    memory) or blocks (position="first"). What runs past the end adds nothing: the identity of the
    reduction. The reduction loops other than `half` move to S_rf, which starts at root with plain
    spatial loops. Float sums and products are added up in another order.
    Refuses: a loop that no split of a reduction loop made, a loop at which a stage is computed.
    """

    half: str
    position: str = "last"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        self._check(state, stage)
        partial = self._partial(stage, Names(state.names()).fresh(f"{stage.name}_rf"))
        new = state.update(self._total(stage, partial)).insert(partial, before=stage.name)
        check_placement(new)
        return new

    def _check(self, state: State, stage: Stage) -> None:
        stage.position(self.half)
        if self.position not in POSITIONS:
            raise ScheduleError(
                f"no position {self.position!r} of the new axis",
                hint=nearest(self.position, POSITIONS) or 'it is "first" or "last"',
                code="MDLC0604",
            )
        spatial = self.half not in stage.reductions
        path = () if spatial else _path(stage, self.half)
        if not path or path[0].parent not in dict(stage.reduce_axes):
            raise ScheduleError(
                f"{self.half!r} is a {'spatial' if spatial else 'reduction'} loop of "
                f"{stage.name!r}, but no half of a split reduction loop",
                notes=(f"reduction loops: {', '.join(sorted(stage.reductions)) or 'none'}",),
                hint=None if spatial else f"split {self.half!r} first, then rfactor one half",
                code="MDLC0623",
            )
        for leaf in stage.leaves:
            for other in state.attached(stage.name, leaf) if leaf in stage.reductions else ():
                raise ScheduleError(
                    f"stage {other.name!r} is computed at {other.at}: it would lose its place",
                    hint=f"do this before compute_at of {other.name!r}",
                    code="MDLC0605",
                )

    def _partial(self, stage: Stage, name: str) -> Stage:
        """The stage with `half` as an axis of its own."""
        assert isinstance(stage.body, Reduce)
        path = _path(stage, self.half)
        sizes = _sizes(stage.body, path)
        axes = self._with_half(stage.axes, self.half)
        moved = tuple(x for x in stage.leaves if x in stage.reductions and x != self.half)
        others = tuple(r for r in stage.relations if r not in path)
        return Stage(
            name,
            stage.type.with_shape(self._with_half(stage.type.dims, sizes[self.half])),
            axes,
            _partial_body(stage.body, path, sizes, self.half),
            (*axes, *moved),
            tuple(r for r in others if stage.reductions.issuperset(parents(r))),
            tuple(pair for pair in stage.kinds if pair[0] in moved),
            origin=stage.origin,
        )

    def _total(self, stage: Stage, partial: Stage) -> Stage:
        """The stage as the reduction of the partial results."""
        assert isinstance(stage.body, Reduce)
        size = partial.type.dims[partial.axes.index(self.half)]
        index = tuple(Index.of(Var(axis)) for axis in partial.axes)
        element = Load(partial.name, index, stage.type.dtype)
        kept = tuple(x for x in stage.leaves if x == self.half or x not in stage.reductions)
        return replace(
            stage,
            body=Reduce(stage.body.op, element, ((self.half, size),)),
            leaves=kept,
            relations=tuple(r for r in stage.relations if stage.reductions.isdisjoint(parents(r))),
            kinds=tuple(pair for pair in stage.kinds if pair[0] in kept),
        )

    def _with_half(self, items: tuple[T, ...], half: T) -> tuple[T, ...]:
        return (half, *items) if self.position == "first" else (*items, half)


def _path(stage: Stage, half: str) -> tuple[SplitRelation, ...]:
    """The splits that made `half` of a reduction axis, outermost first."""
    path: list[SplitRelation] = []
    for relation in reversed(stage.relations):
        if half in children(relation) and isinstance(relation, SplitRelation):
            path.append(relation)
            half = relation.parent
    return tuple(reversed(path))


def _sizes(body: Reduce, path: tuple[SplitRelation, ...]) -> dict[str, int]:
    """The number of iterations of each variable on the path."""
    sizes = dict(body.axes)
    for split in path:
        whole = sizes[split.parent]
        blocks = max(-(-whole // split.factor), 1)
        sizes[split.outer], sizes[split.inner] = blocks, split.factor if blocks > 1 else whole
    return sizes


def _partial_body(
    body: Reduce, path: tuple[SplitRelation, ...], sizes: dict[str, int], half: str
) -> Reduce:
    """The reduction over all but `half`; what lies past an end counts as the identity."""
    axis, split_up = path[0].parent, {split.parent for split in path}
    values: dict[str, Index] = {}
    inside: list[Index] = []
    for split in reversed(path):
        outer, inner = (values.get(x, Index.of(Var(x))) for x in (split.outer, split.inner))
        values[split.parent] = value = split.factor * outer + inner
        if sizes[split.outer] > 1 and sizes[split.parent] % split.factor:
            inside.append(sizes[split.parent] - 1 - value)
    element = map_indices(body.body, lambda e: substitute(e, {Var(axis): values[axis]}))
    if inside:
        element = Select(Cond(tuple(inside)), element, identity(body.op, element.dtype))
    rest = [x for split in path for x in (split.outer, split.inner) if x not in {half, *split_up}]
    others = (pair for pair in body.axes if pair[0] != axis)
    return Reduce(body.op, element, (*others, *((x, sizes[x]) for x in rest)))
