"""Primitives that change the loops of one stage: split, fuse, reorder, tile, and kinds of loops.

Stages are pure and write each element once, so reshaping spatial loops is always legal; reordering
reduction loops is legal up to the rounding of float sums. What is refused is listed per class.

    Split("C", "i", 14, ("io", "ii")).apply(state)      # loops i, j -> io, ii, j

Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from minidlc.loop.nodes import Kind
from minidlc.support.errors import ScheduleError, nearest
from minidlc.support.names import is_name
from minidlc.te.placement import check_vector_leaf
from minidlc.te.primitive import Primitive, register
from minidlc.te.stage import FuseRelation, Relation, SplitRelation, Stage, State

TAILS = ("cut", "shift")


@register("split")
@dataclass(frozen=True)
class Split(Primitive):
    """Cut one loop into blocks of `factor` iterations: `axis = factor * outer + inner`.

    Before:                               After `split("C", "i", 14, ["io", "ii"])`:

        for i in serial(0, 127):              for io in serial(0, 10):
            C[i] = …                              for ii in serial(0, min(14, 127 - 14*io)):
                                                      C[14*io + ii] = …

    tail="cut": the last block runs fewer iterations. If `outer` is then moved inside `inner`, both
    run in full under `if 14*io + ii < 127`. Either way `partition` frees the main part of it.
    tail="shift": all blocks are full; the last one begins at 127 - 14, so that it overlaps the one
    before, and what both cover is computed and stored twice: `C[min(14*io, 113) + ii] = …`.
    Refuses: an unknown loop, a factor below 1, a name that is taken, a loop at which a stage is
    computed (it would lose its place), a loop that is already unrolled, vectorised or parallel.
    Refuses tail="shift" where storing twice is not storing once: of a reduction loop, with a
    reduction loop around the blocks, with parallel blocks; and where fewer than `factor` iterations
    may be left.
    """

    axis: str
    factor: int
    names: tuple[str, str]
    tail: str = "cut"

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        place = stage.position(self.axis)
        if self.factor < 1:
            raise ScheduleError(f"the factor is {self.factor}, expected 1 or more", code="MDLC0604")
        if self.tail not in TAILS:
            raise ScheduleError(
                f"no tail {self.tail!r}", hint=nearest(self.tail, TAILS), code="MDLC0604"
            )
        if self.tail == "shift" and self.axis in stage.reductions:
            raise ScheduleError(
                f"{self.axis!r} is a reduction loop: what two blocks cover would be added twice",
                hint='use tail="cut"',
                code="MDLC0625",
            )
        _check_free(state, stage, self.axis)
        relation = SplitRelation(self.axis, *self.names, self.factor, self.tail)
        return state.update(_replace_leaves(stage, place, 1, self.names, relation))


@register("fuse")
@dataclass(frozen=True)
class Fuse(Primitive):
    """Make one loop of two loops, one right inside the other.

    Before:                               After `fuse("C", "i", "j", "ij")`:

        for i in serial(0, 4):                for ij in serial(0, 12):
            for j in serial(0, 3):                C[ij//3, ij%3] = …
                C[i, j] = …

    Refuses: loops that are not adjacent; one spatial, one reduction loop; an inner loop whose
    number of iterations is not constant; loops at which a stage is computed.
    """

    outer: str
    inner: str
    fused: str

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        place = stage.position(self.outer)
        if stage.position(self.inner) != place + 1:
            raise ScheduleError(
                f"{self.inner!r} is not the loop right inside {self.outer!r}",
                notes=(f"loops of {stage.name}, outermost first: {', '.join(stage.leaves)}",),
                hint="reorder first",
                code="MDLC0606",
            )
        if (self.outer in stage.reductions) != (self.inner in stage.reductions):
            red = self.outer if self.outer in stage.reductions else self.inner
            raise ScheduleError(
                f"{red!r} is a reduction loop, the other is not: their iterations mean "
                "different things",
                code="MDLC0606",
            )
        _check_free(state, stage, self.outer)
        _check_free(state, stage, self.inner)
        relation = FuseRelation(self.outer, self.inner, self.fused)
        return state.update(_replace_leaves(stage, place, 2, (self.fused,), relation))


@register("reorder")
@dataclass(frozen=True)
class Reorder(Primitive):
    """Put the named loops in this order, outermost first; the others keep their places.

    Before:                               After `reorder("C", ["k", "i"])`:

        for i in serial(0, 4):                for j in serial(0, 3):     # C[…] = 0 for each i, j
            for j in serial(0, 3):            for k in serial(0, 8):
                for k in serial(0, 8):            for j in serial(0, 3):
                    C[i, j] += …                      for i in serial(0, 4):
                                                          C[i, j] += …

    Any order is legal: what a reduction starts from is stored right outside its outermost loop.
    Refuses: an unknown or repeated loop, loops inside a vectorised one.
    """

    names: tuple[str, ...]

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        places = sorted(stage.position(name) for name in self.names)
        twice = {name for name in self.names if self.names.count(name) > 1}
        if twice:
            raise ScheduleError(f"loop {min(twice)!r} is named twice", code="MDLC0608")
        leaves = list(stage.leaves)
        for place, name in zip(places, self.names, strict=True):
            leaves[place] = name
        changed = replace(stage, leaves=tuple(leaves))
        for leaf in leaves:
            if changed.kind(leaf) is Kind.VECTORIZED:
                check_vector_leaf(state, changed, leaf)
        return state.update(changed)


@register("tile")
@dataclass(frozen=True)
class Tile(Primitive):
    """Split two loops and bring the two block loops outside: split, split, reorder.

    Before:                               After `tile("C", ["i", "j"], ["io", "jo", "ii", "ji"],
                                                      14, 32)`:
        for i in serial(0, 140):              for io in serial(0, 10):
            for j in serial(0, 64):               for jo in serial(0, 2):
                C[i, j] = …                           for ii in serial(0, 14):
                                                          for ji in serial(0, 32):
                                                              C[14*io + ii, 32*jo + ji] = …

    Refuses what split and reorder refuse.
    """

    axes: tuple[str, str]
    names: tuple[str, ...]
    rows: int
    columns: int

    def apply(self, state: State) -> State:
        if len(self.names) != 4:
            raise ScheduleError(
                f"tile names four loops (io, jo, ii, ji), got {len(self.names)}", code="MDLC0604"
            )
        (i, j), (io, jo, ii, ji) = self.axes, self.names
        state = Split(self.stage, i, self.rows, (io, ii)).apply(state)
        state = Split(self.stage, j, self.columns, (jo, ji)).apply(state)
        return Reorder(self.stage, (io, jo, ii, ji)).apply(state)


@register("unroll")
@dataclass(frozen=True)
class Unroll(Primitive):
    """Repeat the body once an iteration, with numbers for the loop variable.

    Before:                               After `unroll("C", "ii")`:

        for ii in serial(0, 4):               for ii in unrolled(0, 4):
            C[ii] = …                             C[ii] = …

    It stays a loop in the text; code generation replays the body.
    Refuses: an unknown loop, a number of iterations that is not constant.
    """

    axis: str

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        return state.update(_annotate(stage, self.axis, Kind.UNROLLED))


@register("vectorize")
@dataclass(frozen=True)
class Vectorize(Primitive):
    """Run the iterations of a loop as the lanes of vector instructions.

    Before:                               After `vectorize("C", "ji")`:

        for ji in serial(0, 16):              for ji in vectorized(0, 16):
            C[ji] = A[ji] + B[0]                  C[ji] = A[ji] + B[0]

    A reduction loop becomes a horizontal reduction: all lanes added up at once.
    Refuses: a loop with loops inside that are not unrolled, a stage computed inside it, more
    iterations than the target has lanes, stores that do not go to neighbouring elements.
    """

    axis: str

    def apply(self, state: State) -> State:
        stage = _annotate(state.stage(self.stage), self.axis, Kind.VECTORIZED)
        check_vector_leaf(state, stage, self.axis)
        return state.update(stage)


@register("parallel")
@dataclass(frozen=True)
class Parallel(Primitive):
    """Give the iterations of a loop to several threads.

    Before:                               After `parallel("C", "io")`:

        for io in serial(0, 10):              for io in parallel(0, 10):
            C[io] = …                             C[io] = …

    Refuses: a reduction loop (all its iterations add to the same elements), a loop inside or
    around another parallel loop.
    """

    axis: str

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        stage.position(self.axis)
        if self.axis in stage.reductions:
            raise ScheduleError(
                f"{self.axis!r} is a reduction loop: threads would add to the same elements",
                hint="make a spatial loop parallel, or one by rfactor",
                code="MDLC0613",
            )
        return state.update(_annotate(stage, self.axis, Kind.PARALLEL))


def _annotate(stage: Stage, leaf: str, kind: Kind) -> Stage:
    stage.position(leaf)
    if stage.kind(leaf) not in (Kind.SERIAL, kind):
        raise ScheduleError(f"loop {leaf!r} is {stage.kind(leaf)} already", code="MDLC0607")
    return stage.with_kind(leaf, kind)


def _check_free(state: State, stage: Stage, leaf: str) -> None:
    """Refuse to replace a loop that something hangs on."""
    for other in state.attached(stage.name, leaf):
        raise ScheduleError(
            f"stage {other.name!r} is computed at {stage.name}.{leaf}: it would lose its place",
            hint=f"do this before compute_at of {other.name!r}",
            code="MDLC0605",
        )
    if stage.kind(leaf) is not Kind.SERIAL:
        raise ScheduleError(
            f"loop {leaf!r} is {stage.kind(leaf)} already",
            hint=f"do this before making it {stage.kind(leaf)}",
            code="MDLC0607",
        )


def _replace_leaves(
    stage: Stage, place: int, count: int, names: Iterable[str], relation: Relation
) -> Stage:
    made = tuple(names)
    for name in made:
        if name in stage.variables or made.count(name) > 1 or not is_name(name):
            why = "is taken" if is_name(name) else "is not a name"
            raise ScheduleError(
                f"loop name {name!r} {why} in stage {stage.name!r}",
                notes=(f"taken: {', '.join(stage.variables)}",),
                code="MDLC0604",
            )
    leaves = (*stage.leaves[:place], *made, *stage.leaves[place + count :])
    kinds = tuple(pair for pair in stage.kinds if pair[0] in leaves)
    return replace(stage, leaves=leaves, relations=(*stage.relations, relation), kinds=kinds)
