"""Primitives that change where a whole stage is computed and where its elements live.

    ComputeAt("P", "C", "io").apply(state)      # P moves from root into the loop io of C
    CacheWrite("C", "register").apply(state)    # C_c computes, C copies

Treated in course chapter 04_schedule.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from minidlc.expr.index import Cond, Index, Var, substitute
from minidlc.expr.nodes import Expr, Load, Reduce, Select, const
from minidlc.expr.types import TensorType
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
    Refuses: a loop that does not read the stage; another reader outside that loop; a cycle; an
    output; a loop inside a vectorised one.
    """

    target: str
    axis: str

    def apply(self, state: State) -> State:
        stage, target = state.stage(self.stage), state.stage(self.target)
        target.position(self.axis)
        _refuse_output(state, stage, "is computed whole")
        new = state.update(replace(stage, at=Point(self.target, self.axis)))
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
        _refuse_output(state, stage, "must be stored")
        for other in state.attached(stage.name):
            raise ScheduleError(
                f"stage {other.name!r} is computed at {other.at}: it would lose its place",
                code="MDLC0605",
            )
        readers = (replace(s, body=_inline(s.body, stage)) for s in state.readers(stage.name))
        return state.update(replace(stage, inlined=True, at=None), *readers)


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
        _refuse_output(state, stage, "lives in memory of the caller")
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
        if stage.relations or stage.kinds or stage.leaves != _plain_leaves(stage):
            raise ScheduleError(
                f"the loops of {stage.name!r} were changed before: they would belong to no stage",
                hint="cache_write first, then schedule both stages",
                code="MDLC0619",
            )
        for other in state.attached(stage.name):
            raise ScheduleError(
                f"stage {other.name!r} is computed at {other.at}: it would lose its place",
                hint="cache_write first",
                code="MDLC0605",
            )
        name = Names(state.names()).fresh(f"{stage.name}_c")
        cache = replace(stage, name=name, scope=_scope(self.scope), at=None)
        here = tuple(Index.of(Var(a)) for a in stage.axes)
        copy = replace(stage, body=Load(name, here, stage.type.dtype), leaves=stage.axes)
        return state.update(copy).insert(cache, before=stage.name)


@register("cache_read")
@dataclass(frozen=True)
class CacheRead(Primitive):
    """Copy a tensor to a buffer `B_p` in the order it is read in; the readers load from there.

    Before:                               After `cache_read("B", ["C"], tiles=[[1, 32]])`:

        for j in serial(0, 64):               B_p = alloc(f32[2, 8, 32], "arena")
            for k in serial(0, 8):            …  B_p[i1o, i0, i1i] = B[i0, 32*i1o + i1i]
                C[j] = C[j] + B[k, j]         for j in serial(0, 64):
                                                  for k in serial(0, 8):
                                                      C[j] = C[j] + B_p[j//32, k, j%32]

    `tiles` lists (dimension, factor): the copy has the block numbers of those dimensions first,
    then the other dimensions, then the places inside a block; it is padded with zeros to whole
    blocks. Split the reader's loop by the same factor, and `//` and `%` vanish.
    Refuses: a stage that does not read the tensor, a wrong dimension or factor.
    """

    readers: tuple[str, ...]
    tiles: tuple[tuple[int, int], ...] = field(default=())

    def apply(self, state: State) -> State:
        readers = [state.stage(name) for name in self.readers]
        for reader in readers or [None]:
            if reader is None or self.stage not in reader.reads:
                who = f"{reader.name!r} does not read" if reader else "no stage is named to read"
                known = [s.name for s in state.readers(self.stage)]
                raise ScheduleError(
                    f"{who} {self.stage!r}",
                    hint=f"its readers: {', '.join(known)}" if known else None,
                    code="MDLC0620",
                )
        source = state.type_of(self.stage)
        self._check_tiles(source)
        name = Names(state.names()).fresh(f"{self.stage}_p")
        first = min((s.name for s in readers), key=[s.name for s in state.stages].index)
        copy = self._copy(name, source, state)
        changed = (replace(s, body=self._redirect(s.body, name)) for s in readers)
        new = state.update(*changed).insert(copy, before=first)
        check_placement(new)
        return new

    def _check_tiles(self, source: TensorType) -> None:
        dims = [d for d, _ in self.tiles]
        for dim, factor in self.tiles:
            if not 0 <= dim < source.rank or dims.count(dim) > 1 or factor < 1:
                raise ScheduleError(
                    f"a tile of {factor} in dimension {dim} of {source}",
                    notes=("a tile is (dimension, factor >= 1), each dimension once",),
                    code="MDLC0604",
                )

    def _copy(self, name: str, source: TensorType, state: State) -> Stage:
        """The stage that copies, padded with zeros where blocks reach over the edge."""
        tiles = dict(self.tiles)
        sizes, position, inside = source.dims, list[Index](), list[Index]()
        for d, size in enumerate(sizes):
            whole = Index.of(Var(f"i{d}"))
            if d in tiles:
                whole = Index.of(Var(f"i{d}o")) * tiles[d] + Var(f"i{d}i")
                inside += [size - 1 - whole] if size % tiles[d] else []
            position.append(whole)
        body: Expr = Load(self.stage, tuple(position), source.dtype)
        if inside:
            body = Select(Cond(tuple(inside)), body, const(0, source.dtype))
        outer = [(f"i{d}o", -(-sizes[d] // f)) for d, f in sorted(self.tiles)]
        middle = [(f"i{d}", size) for d, size in enumerate(sizes) if d not in tiles]
        inner = [(f"i{d}i", f) for d, f in sorted(self.tiles)]
        axes = tuple(axis for axis, _ in outer + middle + inner)
        type = TensorType(source.dtype, tuple(n for _, n in outer + middle + inner))
        origin = state.stage(self.stage).origin if self.stage in state else self.stage
        return Stage(name, type, axes, body, axes, origin=origin)

    def _redirect(self, body: Expr, name: str) -> Expr:
        """The body with loads of the tensor taken from the copy."""
        tiles = dict(self.tiles)

        def step(e: Expr) -> Expr:
            if not isinstance(e, Load) or e.buffer != self.stage:
                return e
            outer = [e.index[d] // f for d, f in sorted(tiles.items())]
            middle = [i for d, i in enumerate(e.index) if d not in tiles]
            inner = [e.index[d] % f for d, f in sorted(tiles.items())]
            return Load(name, (*outer, *middle, *inner), e.type)

        return rewrite(body, step)


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


def _plain_leaves(stage: Stage) -> tuple[str, ...]:
    return (*stage.axes, *(name for name, _ in stage.reduce_axes))


def _refuse_output(state: State, stage: Stage, why: str) -> None:
    if stage.name in state.outputs:
        raise ScheduleError(f"{stage.name!r} is an output: it {why}", code="MDLC0621")


def _scope(name: str) -> Scope:
    if name not in list(Scope):
        hint = nearest(name, list(Scope))
        raise ScheduleError(f"no scope {name!r}", hint=hint, code="MDLC0604")
    return Scope(name)
