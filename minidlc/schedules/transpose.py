"""Transposes: memory runs along one axis where it is read, along another where it is written.

    y[i, j] = x[j, i]

    step                      8 x 8 elements of f32: memory instructions, others
    naive                     64 loads, 64 stores
    vectorise j               8 gathers of 8 elements, 8 stores      a gather is 8 loads inside
    tile in registers         8 loads, 8 stores, 24 to 32 shuffles   rows of x are loaded, columns
                                                                     taken out of the registers
    two tiles along j         the same                               a cache line of y is written
                                                                     whole before it is left

The tile is a copy of x (`cache_read`) in registers: its rows are stored as vectors, and a vector
of the reader takes one lane out of each, for which code generation writes shuffles
(codegen/shuffles.py). Where the innermost axis stays innermost (heads of an attention) nothing is
turned: rows are copied, see injective.py. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from minidlc.expr.index import FloorDiv, Index, Mod, Var, atoms, simplify, substitute
from minidlc.expr.nodes import Load
from minidlc.expr.walk import walk
from minidlc.schedules import injective
from minidlc.schedules.group import Group, work
from minidlc.schedules.implementation import Implementation, Knobs, Space, default_first
from minidlc.schedules.injective import PIECES, fuse_and_share, inline_pointwise
from minidlc.schedules.offsets import body_of, offset, vector_lanes
from minidlc.target import Target
from minidlc.te import Schedule, Tensor, create_schedule

LINE = 64  # bytes of a cache line


@dataclass(frozen=True)
class Turn:
    """The axis of a stage along which `buffers` are read, which is not the last one.

    `block` is what the axis must be split by so that it is (a layout of blocks), 0 for any.
    """

    axis: str
    block: int
    buffers: tuple[str, ...]


def find_turn(sch: Schedule, stage: Tensor, target: Target) -> Turn | None:
    """How a stage turns what it reads, if it does and both its axes are as long as a vector."""
    least = target.lanes(32)
    if len(stage.axes) < 2 or stage.shape[-1] < least:
        return None
    shape = dict(zip(stage.axes, stage.shape, strict=True))
    reads = dict.fromkeys(e for e in walk(body_of(sch, stage)) if isinstance(e, Load))
    turns = [t for e in reads if (t := _turn_of(sch, stage, e)) is not None]
    found = list(dict.fromkeys((t.axis, t.block) for t in turns))
    if len(found) != 1 or shape[found[0][0]] < least:
        return None
    buffers = dict.fromkeys(t.buffers[0] for t in turns)
    places = [e.buffer for e in reads]
    if any(places.count(name) > 1 for name in buffers):
        return None  # a tile in registers is of one place: a concat may read x at two
    return Turn(*found[0], tuple(buffers))


def _turn_of(sch: Schedule, stage: Tensor, load: Load) -> Turn | None:
    dims = sch.state.type_of(load.buffer).dims
    last = Var(stage.axes[-1])
    if not load.index or last in load.index[-1].vars():
        return None
    for axis in stage.axes[:-1]:
        block = _block(load, Var(axis))
        inner = Var(f"{axis}_")
        whole = Index.of(Var(f"{axis}__")) * block + inner if block else Index.of(inner)
        ranges = {inner: (0, block - 1)} if block else {}
        index = tuple(simplify(substitute(e, {Var(axis): whole}), ranges) for e in load.index)
        where = offset(Load(load.buffer, index, load.type), dims)
        plain = all(isinstance(atom, Var) for atom, _ in where.terms)
        if plain and where.coefficient(inner) == 1 and where.coefficient(last) > 1:
            return Turn(axis, block, (load.buffer,))
    return None


def _block(load: Load, axis: Var) -> int:
    """The one number that an axis is divided by in the position of a load; 0 if there is none."""
    parts = [a for e in load.index for a in atoms(e) if isinstance(a, FloorDiv | Mod)]
    blocks = {a.c for a in parts if a.a == Index.of(axis)}
    return blocks.pop() if len(blocks) == 1 else 0


def turns(group: Group, target: Target) -> bool:
    """True if the one output of a pointwise group reads something the other way round."""
    if len(group.outputs) != 1 or 0 in group.last.shape:
        return False
    sch = create_schedule(group.outputs, checked=False)
    if inline_pointwise(sch, group.intermediate()):
        return False
    return find_turn(sch, group.last, target) is not None


def schedule_transpose(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    """Tiles of registers, two along the last axis."""
    inline_pointwise(sch, group.intermediate())
    last = group.last
    turn = find_turn(sch, last, target)
    assert turn is not None
    lanes = _lanes(sch, last, target)
    copies = [sch[last].cache_read(name).name for name in turn.buffers]
    column, shape = last.axes[-1], dict(zip(last.axes, last.shape, strict=True))
    width = knobs["columns"]
    height = math.gcd(lanes, turn.block) if turn.block else lanes
    jo, jr = sch[last].split(column, width, names=(f"{column}o", f"{column}r"))
    jv, ji = sch[last].split(jr, lanes, names=(f"{column}v", f"{column}i"))
    co, ci = sch[last].split(turn.axis, height, names=(f"{turn.axis}o", f"{turn.axis}i"))
    outer = [axis for axis in last.axes[:-1] if axis != turn.axis]
    first, second = (jo, co) if knobs["columns_outside"] else (co, jo)
    sch[last].reorder(*outer, first, second, jv, ci, ji)
    sch[last].unroll(ci)
    sch[last].vectorize(ji)
    if work(last) >= injective.PARALLEL_WORK:
        counts = {jo: -(-shape[column] // width), co: -(-shape[turn.axis] // height)}
        trips = (*(shape[a] for a in outer), counts[first])
        fuse_and_share(sch, last, (*outer, first), trips, PIECES)
    for name in copies:
        *rows, along = sch[name].loops
        sch[name].unroll(*rows)
        sch[name].vectorize(along)
        sch[name].compute_at(last, jv)
        sch[name].set_scope("register")


def _lanes(sch: Schedule, stage: Tensor, target: Target) -> int:
    """Rows and columns of a tile in registers."""
    return min(vector_lanes(sch, stage, target), target.lanes(32))


def tile_knobs(group: Group, target: Target) -> Space:
    """Columns of tiles side by side, a cache line by default; which way to go on from there."""
    sch = create_schedule(group.outputs, checked=False)
    inline_pointwise(sch, group.intermediate())
    lanes = _lanes(sch, group.last, target)
    line = max(lanes, LINE // group.last.dtype.itemsize)
    columns = default_first(line, (lanes, 2 * lanes, 4 * lanes, 8 * lanes))
    return {"columns": columns, "columns_outside": (1, 0)}


TRANSPOSE = Implementation("transpose", "injective", schedule_transpose, turns, tile_knobs)
