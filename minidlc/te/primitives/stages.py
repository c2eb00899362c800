"""Primitives that change where a whole stage is computed and where its elements live.

    ComputeAt("P", "C", "io").apply(state)      # P moves from root into the loop io of C
    CacheWrite("C", "register").apply(state)    # C_c computes, C copies

Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from minidlc.expr.index import Index, Var, substitute
from minidlc.expr.nodes import Expr, Load, Reduce
from minidlc.expr.walk import map_indices, rewrite
from minidlc.loop.nodes import Scope
from minidlc.support.errors import ScheduleError, nearest
from minidlc.support.names import Names
from minidlc.te.placement import check_placement
from minidlc.te.primitive import Primitive, register
from minidlc.te.stage import Point, Stage, State


@register("compute_at")
@dataclass(frozen=True)
class ComputeAt(Primitive):
    """Compute a stage inside a loop of another: the part of it that one iteration reads.

    Before:                               After `compute_at("P", "C", "i")`:

        for i in serial(0, 9):                for i in serial(0, 8):
            P[i] = …                              P = alloc(f32[2], "arena")
        for i in serial(0, 8):                    for i_P in serial(0, 2):
            C[i] = P[i] + P[i + 1]                    P[i_P] = …      # P's elements i, i + 1
                                                  C[i] = P[0] + P[1]

    Nearby, so it stays in cache or registers; what two iterations both read is computed twice.
    An output may be computed beside another one of its shape, or with one element for each of its
    rows: the part of it that one iteration writes of that. So one pass stores both.
    Refuses: a loop that does not read the stage; another reader outside that loop; a cycle; an
    output, where the loop is not one of an output of its shape, or of one that it is computed
    from, or lies inside a reduction; a loop inside a vectorised one.
    """

    target: str
    axis: str

    def apply(self, state: State) -> State:
        stage, target = state.stage(self.stage), state.stage(self.target)
        target.position(self.axis)
        new = state.update(replace(stage, at=Point(self.target, self.axis)))
        check_placement(new)
        return new


@register("store_at")
@dataclass(frozen=True)
class StoreAt(Primitive):
    """Keep the elements of a stage at a loop around the one it is computed at.

    Before:                               After `store_at("e", "y", "i")`, and then
                                          `compute_at("e", "s", "ko")`:
        for i in serial(0, 8):
            e = alloc(f32[1, 64])             for i in serial(0, 8):
            for j in serial(0, 64):               e = alloc(f32[1, 64])
                e[0, j] = …                       for ko in serial(0, 4):
            for k in serial(0, 64):                   for j in serial(0, 16):
                s[0] = s[0] + e[0, k]                     e[0, 16*ko + j] = …
            for j in serial(0, 64):                   for ki in serial(0, 16):
                y[i, j] = e[0, j] / s[0]                  s[0] = s[0] + e[0, 16*ko + ki]
                                                  for j in serial(0, 64):
                                                      y[i, j] = e[0, j] / s[0]

    So readers after the loop that computes can have the elements too. Each iteration computes all
    that it reads: rows that two iterations need, a halo, are computed again, not kept.
    A stage that has no place yet is computed at the same loop.
    Refuses: a loop that is not around where the stage is computed; a reader outside it; elements
    that are not proved to be computed before they are read; a parallel loop between the two.
    """

    target: str
    axis: str

    def apply(self, state: State) -> State:
        stage, target = state.stage(self.stage), state.stage(self.target)
        target.position(self.axis)
        refuse_output(state, stage, "lives in memory of the caller")
        point = Point(self.target, self.axis)
        new = state.update(replace(stage, at=stage.at or point, stored=point))
        check_placement(new)
        return new


@register("compute_inline")
@dataclass(frozen=True)
class ComputeInline(Primitive):
    """Compute a stage where it is read, element by element; it has no buffer any more.

    Before:                               After `compute_inline("P")`:

        for i in serial(0, 8):                for i in serial(0, 8):
            P[i] = A[i] * 2                       C[i] = A[i] * 2 + 1
        for i in serial(0, 8):
            C[i] = P[i] + 1

    Refuses: a stage that reduces, an output, a stage at whose loops others are computed.
    """

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        if isinstance(stage.body, Reduce):
            raise ScheduleError(
                f"stage {stage.name!r} reduces over {', '.join(a for a, _ in stage.reduce_axes)}: "
                "its elements are no single expression",
                hint="compute_at places it near its reader instead",
                code="MDLC0617",
            )
        refuse_output(state, stage, "must be stored")
        for other in state.attached(stage.name):
            raise ScheduleError(
                f"stage {other.name!r} is computed at {other.at}: it would lose its place",
                hint=f"do this before compute_at of {other.name!r}",
                code="MDLC0605",
            )
        readers = (replace(s, body=_inline(s.body, stage)) for s in state.readers(stage.name))
        return state.update(*readers, replace(stage, inlined=True, at=None, stored=None))


@register("set_scope")
@dataclass(frozen=True)
class SetScope(Primitive):
    """Say where the elements of a stage live: "arena", "stack" or "register".

    Before:                               After `set_scope("C_c", "register")`:

        C_c = alloc(f32[14, 32], "arena")     C_c = alloc(f32[14, 32], "register")

    Refuses: an output (the caller gives its memory). Lowering refuses a register buffer whose
    positions do not become numbers: all loops around its uses must be unrolled or vectorised.
    """

    scope: str

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        refuse_output(state, stage, "lives in memory of the caller")
        return state.update(replace(stage, scope=_scope(self.scope)))


@register("cache_write")
@dataclass(frozen=True)
class CacheWrite(Primitive):
    """Compute a stage in a buffer of its own, named `C_c`; the stage copies it.

    Before:                               After `cache_write("C", "register")`:

        for i in serial(0, 4):                C_c = alloc(f32[4], "register")
            C[i] = 0.0                        for i in serial(0, 4):
            for k in serial(0, 8):                C_c[i] = 0.0
                C[i] = C[i] + A[i, k]             for k in serial(0, 8):
                                                      C_c[i] = C_c[i] + A[i, k]
                                              for i in serial(0, 4):
                                                  C[i] = C_c[i]

    Then `compute_at` places C_c inside C's loops: it holds one tile.
    Refuses: a stage whose loops were changed before, or that others are computed at.
    """

    scope: str

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        refuse_scheduled(state, stage, "cache_write")
        name = Names(state.names()).fresh(f"{stage.name}_c")
        cache = replace(stage, name=name, scope=_scope(self.scope), at=None, stored=None)
        cache = replace(cache, prepacked=False, steps="")
        here = tuple(Index.of(Var(a)) for a in stage.axes)
        copy = replace(stage, body=Load(name, here, stage.type.dtype), leaves=stage.axes)
        return state.update(copy).insert(cache, before=stage.name)


def _inline(body: Expr, stage: Stage) -> Expr:
    """`body` with loads of `stage` replaced by the stage's own body at that position."""
    known: dict[tuple[Index, ...], Expr] = {}  # equal loads share one object, as codegen likes

    def step(e: Expr) -> Expr:
        if not isinstance(e, Load) or e.buffer != stage.name:
            return e
        if e.index not in known:
            values = dict(zip(map(Var, stage.axes), e.index, strict=True))
            known[e.index] = map_indices(stage.body, lambda i: substitute(i, values))
        return known[e.index]

    return rewrite(body, step)


def refuse_scheduled(state: State, stage: Stage, step: str) -> None:
    """Refuse a stage whose loops were changed, or that others are computed at."""
    plain = (*stage.axes, *(name for name, _ in stage.reduce_axes))
    if stage.relations or stage.kinds or stage.leaves != plain:
        raise ScheduleError(
            f"the loops of {stage.name!r} were changed before: they would belong to no stage",
            hint=f"{step} first, then schedule the loops",
            code="MDLC0619",
        )
    for other in state.attached(stage.name):
        raise ScheduleError(
            f"stage {other.name!r} is computed at {other.at}: it would lose its place",
            hint=f"{step} first",
            code="MDLC0605",
        )


def refuse_output(state: State, stage: Stage, why: str) -> None:
    """Refuse an output of the program."""
    if stage.name in state.outputs:
        raise ScheduleError(
            f"{stage.name!r} is an output: it {why}",
            hint="cache_write gives it a buffer of its own, which is no output",
            code="MDLC0621",
        )


def _scope(name: str) -> Scope:
    if name not in list(Scope):
        hint = nearest(name, list(Scope))
        raise ScheduleError(f"no scope {name!r}", hint=hint, code="MDLC0604")
    return Scope(name)
