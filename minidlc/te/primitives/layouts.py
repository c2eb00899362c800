"""Primitives that give a tensor a blocked layout: a copy of it, or the tensor itself.

    CacheRead("B", ("C",), ((1, 32),)).apply(state)     # C reads B_p[j//32, k, j%32]
    TransformLayout("p", ((0, 16),)).apply(state)       # p itself is computed in that order

A blocked layout with tiles {d: f} has the block numbers d//f first, then the other dimensions, then
the places d%f inside a block. It holds each element once, and whole blocks: what they reach over
the edge is padding that nobody reads. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from minidlc.expr.index import Cond, Index, Var, substitute
from minidlc.expr.nodes import Expr, Load, Reduce, Select, const
from minidlc.expr.types import TensorType
from minidlc.expr.walk import map_indices, rewrite
from minidlc.support.errors import ScheduleError
from minidlc.support.names import Names
from minidlc.te.placement import check_placement
from minidlc.te.primitive import Primitive, register
from minidlc.te.primitives.stages import refuse_output, refuse_scheduled
from minidlc.te.stage import Stage, State
from minidlc.te.tensor import identity

T = TypeVar("T")


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
        blocks = _blocked(source, self.tiles)
        name = Names(state.names()).fresh(f"{self.stage}_p")
        first = min((s.name for s in readers), key=[s.name for s in state.stages].index)
        copy = self._copy(name, source, blocks, state)
        changed = (redirect(s, self.stage, name, blocks) for s in readers)
        new = state.update(*changed).insert(copy, before=first)
        check_placement(new)
        return new

    def _copy(self, name: str, source: TensorType, blocks: Blocks, state: State) -> Stage:
        """The stage that copies, padded with zeros where blocks reach over the edge."""
        axes, position = blocks.axes([f"i{d}" for d in range(source.rank)])
        body: Expr = Load(self.stage, position, source.dtype)
        inside = blocks.inside(position)
        if inside.ge:
            body = Select(inside, body, const(0, source.dtype))
        origin = state.stage(self.stage).origin if self.stage in state else self.stage
        return Stage(name, blocks.type(source), axes, body, axes, origin=origin)


@register("transform_layout")
@dataclass(frozen=True)
class TransformLayout(Primitive):
    """Compute a stage in a blocked layout; its readers load from there.

    Before:                               After `transform_layout("P", tiles=[[0, 16]])`:

        for i in serial(0, 40):               for io in serial(0, 3):
            for j in serial(0, 9):                for j in serial(0, 9):
                P[i, j] = A[i, j] + 1.0               for ii in serial(0, 16):
        for i in serial(0, 40):                           P[io, j, ii] = select(…, A[16*io + ii,
            for j in serial(0, 9):                                              j] + 1.0, 0.0)
                C[i, j] = P[i, j] * 2.0       for i in serial(0, 40):
                                                  for j in serial(0, 9):
                                                      C[i, j] = P[i//16, j, i%16] * 2.0

    `tiles` as for cache_read, without the copy: what the stage computes is stored in the order its
    readers want. Every element keeps one place; padding is zero, or what a reduction starts from.
    Refuses: an output (its layout is the caller's), a stage whose loops were changed before or that
    others are computed at, a scan, a wrong dimension or factor, a dimension tiled twice.
    """

    tiles: tuple[tuple[int, int], ...]

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        refuse_output(state, stage, "has the layout that the caller expects")
        refuse_scheduled(state, stage, "transform_layout")
        if stage.steps:
            raise ScheduleError(
                f"{stage.name!r} is a scan: its steps read it in the layout they were written in",
                hint="copy it with cache_read, and block the copy",
                code="MDLC0633",
            )
        blocks = _blocked(stage.type, self.tiles)
        taken = {name for name, _ in stage.reduce_axes}
        axes, position = blocks.axes(stage.axes, taken)
        values = {Var(axis): e for axis, e in zip(stage.axes, position, strict=True)}
        changed = replace(
            stage,
            type=blocks.type(stage.type),
            axes=axes,
            leaves=(*axes, *(name for name, _ in stage.reduce_axes)),
            body=_padded(
                map_indices(stage.body, lambda e: substitute(e, values)), blocks.inside(position)
            ),
        )
        readers = (
            redirect(reader, stage.name, stage.name, blocks) for reader in state.readers(stage.name)
        )
        new = state.update(changed, *readers)
        check_placement(new)
        return new


@dataclass(frozen=True)
class Blocks:
    """A blocked layout of a tensor of `dims`: `tiles` are (dimension, factor) in order."""

    dims: tuple[int, ...]
    tiles: tuple[tuple[int, int], ...]

    def _arranged(
        self, outer: Sequence[T], middle: Sequence[T], inner: Sequence[T]
    ) -> tuple[T, ...]:
        """Things of each dimension in the order of the layout: blocks, the rest, places inside."""
        tiled = [d for d, _ in self.tiles]
        rest = [d for d in range(len(self.dims)) if d not in tiled]
        return (
            *(outer[d] for d in tiled),
            *(middle[d] for d in rest),
            *(inner[d] for d in tiled),
        )

    @property
    def factors(self) -> list[int]:
        """The factor of each dimension, 1 where it is not tiled."""
        found = dict(self.tiles)
        return [found.get(d, 1) for d in range(len(self.dims))]

    def type(self, plain: TensorType) -> TensorType:
        """The type in this layout."""
        blocks = [-(-n // f) for n, f in zip(self.dims, self.factors, strict=True)]
        return plain.with_shape(self._arranged(blocks, self.dims, self.factors))

    def index(self, plain: tuple[Index, ...]) -> tuple[Index, ...]:
        """Where the element at position `plain` of the tensor lies."""
        pairs = list(zip(plain, self.factors, strict=True))
        return self._arranged([e // f for e, f in pairs], plain, [e % f for e, f in pairs])

    def axes(
        self, plain: Sequence[str], taken: Iterable[str] = ()
    ) -> tuple[tuple[str, ...], tuple[Index, ...]]:
        """Names of axes in this layout, and the position in the tensor that they stand for."""
        names = Names({*plain, *taken})
        tiled = {d for d, _ in self.tiles}
        outer, inner = (
            [names.fresh(f"{x}{part}") if d in tiled else x for d, x in enumerate(plain)]
            for part in "oi"
        )
        position = tuple(
            f * Index.of(Var(o)) + Var(i) if d in tiled else Index.of(Var(o))
            for d, (o, i, f) in enumerate(zip(outer, inner, self.factors, strict=True))
        )
        return self._arranged(outer, plain, inner), position

    def inside(self, position: tuple[Index, ...]) -> Cond:
        """Where a position is no padding."""
        parts = zip(position, self.dims, self.factors, strict=True)
        return Cond(tuple(n - 1 - e for e, n, f in parts if n % f))


def _blocked(type: TensorType, tiles: tuple[tuple[int, int], ...]) -> Blocks:
    """The layout; ScheduleError (MDLC0604) unless it gives each element a place of its own."""
    dims = [d for d, _ in tiles]
    for dim, factor in tiles:
        if not 0 <= dim < type.rank or dims.count(dim) > 1 or factor < 1:
            raise ScheduleError(
                f"a tile of {factor} in dimension {dim} of {type}",
                notes=("a tile is (dimension, factor >= 1), each dimension once",),
                code="MDLC0604",
            )
    blocks = Blocks(type.dims, tuple(sorted(tiles)))
    if blocks.type(type).nbytes >= 1 << 63:
        raise ScheduleError(f"no memory holds {blocks.type(type)}", code="MDLC0604")
    return blocks


def redirect(reader: Stage, old: str, new: str, blocks: Blocks) -> Stage:
    """The reader with its loads of `old` taken from `new`, which is blocked."""

    def step(e: Expr) -> Expr:
        if not isinstance(e, Load) or e.buffer != old:
            return e
        return Load(new, blocks.index(e.index), e.type)

    return replace(reader, body=rewrite(reader.body, step))


def _padded(body: Expr, inside: Cond) -> Expr:
    """The body under the condition that the place is no padding."""
    if not inside.ge:
        return body
    if isinstance(body, Reduce):
        element = Select(inside, body.body, identity(body.op, body.dtype))
        return replace(body, body=element)
    return Select(inside, body, const(0, body.dtype))
