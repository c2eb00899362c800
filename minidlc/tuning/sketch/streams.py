"""Kernels without an anchor: all stages fused into the loops of the last, which stream or turn.

    y[i, j] = exp(x[i, j]) + b[i]           y[i, j] = x[j, i]
    for io in parallel: for ii:             for io in parallel: for jo:     a block of both,
      for jo: for jv unrolled: for jl         for ii: for jv: for jl        read and written whole

Axes that memory runs on in become one. Vectors go along the last axis: what they store lies side by
side. If something is read side by side along another axis only, blocks of both axes keep its cache
lines till all of them was read; where both are long, `sketch_turn_held` loads rows of a square into
registers and takes columns out of them. Knobs: elements in flight, rows or elements of a piece,
blocks.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from minidlc.expr.index import Index, Var
from minidlc.schedules.group import Group, work
from minidlc.schedules.implementation import Implementation, Knobs, Space
from minidlc.schedules.injective import PARALLEL_WORK, collapse, inline_pointwise, keep_at
from minidlc.schedules.offsets import vector_lanes
from minidlc.target import Target
from minidlc.te import Schedule, create_schedule
from minidlc.te.stage import State
from minidlc.tuning.sketch.access import near, reads, stride
from minidlc.tuning.sketch.loops import fuse, split

VECTORS = (4, 1, 2, 3, 6, 8, 16)
PIECES = (1, 2, 4, 8, 16, 32, 64, 128)  # of one long row
ROWS = (1, 2, 4, 8, 16, 32, 64)
BLOCKS = (8, 1, 2, 4, 16, 32, 64)


@dataclass(frozen=True)
class Stream:
    """The loops of the last stage: `outer` with their extents, the row; `turned`: the axis, one of
    `outer`, along which something else is read side by side, "" if none."""

    outer: tuple[tuple[str, int], ...]
    row: str
    length: int
    lanes: int
    turned: str
    held: tuple[str, ...] = ()  # what is turned, if squares of it can be held in registers

    @property
    def pieces(self) -> int:
        """Rows in all, those of the turned axis left out."""
        return math.prod(n for axis, n in self.outer if axis != self.turned)


def streams(group: Group, kind: str, target: Target) -> tuple[Implementation, ...]:
    """The sketches of pointwise kernels; () for others."""
    plan = stream_of(group, target)
    if isinstance(plan, str):
        return ()
    name = "sketch_turn" if plan.turned else "sketch_stream"
    found = [Implementation(name, kind, _schedule, knobs=knobs)]
    if plan.held:
        found.append(Implementation("sketch_turn_held", kind, _schedule_held, knobs=held_knobs))
    return tuple(found)


@lru_cache(maxsize=256)
def stream_of(group: Group, target: Target) -> Stream | str:
    """The loops, or why there are none."""
    reducing = [t for t in group.stages() if t.reduce_axes]
    if reducing:
        return f"{reducing[0].name} reduces"
    if len(group.outputs) > 1:
        return "several outputs"
    if math.prod(group.last.shape) < 2:
        return f"{group.last.name} has no two elements"
    sch = create_schedule(group.outputs, constants=group.constants, checked=False)
    kept = inline_pointwise(sch, group.intermediate())
    turned = turned_axis(sch.state, group)
    outer, row, length = _loops(sch, group, turned)
    lanes = vector_lanes(sch, group.last, target)
    held = () if kept or not turned else _held(sch.state, group, turned, row)
    lanes = min(lanes, target.lanes(32)) if held else lanes
    if held and min(length, outer[turned]) < lanes:
        held = ()
    return Stream(tuple(outer.items()), row, length, lanes, turned, held)


def _held(state: State, group: Group, turned: str, row: str) -> tuple[str, ...]:
    """What is turned: read once, side by side along `turned`, apart along the row; () if odd."""
    found = list(reads(state, state.stage(group.last.name).body).items())
    names = [e.buffer for e, _ in found]
    far = [e for e, dims in found if abs(stride(row, e, dims) or 0) > 1]
    plain = all(e.index[-1] == Index.of(Var(turned)) for e in far)
    return tuple(e.buffer for e in far) if plain and len(set(names)) == len(names) else ()


def _stream(group: Group, target: Target) -> Stream:
    found = stream_of(group, target)
    assert isinstance(found, Stream)
    return found


def turned_axis(state: State, group: Group) -> str:
    """The axis, not the last, along which something is read side by side; "" if there is none."""
    last = group.last
    sizes = dict(zip(last.axes, last.shape, strict=True))
    *others, row = [a for a in last.axes if sizes[a] > 1]
    for load, dims in reads(state, state.stage(last.name).body).items():
        far = abs(stride(row, load, dims) or 0) > 1
        along = [a for a in others if stride(a, load, dims) == 1]
        if far and along:
            return along[-1]
    return ""


def _loops(sch: Schedule, group: Group, turned: str) -> tuple[dict[str, int], str, int]:
    """Axes that memory runs on in become one, but not where two of them get blocks."""
    last = group.last
    sizes = dict(zip(last.axes, last.shape, strict=True))
    if not turned:
        outer, row, length = collapse(sch, last)
        return {a: n for a, n in outer.items() if n > 1}, row, length
    *others, row = [a for a in last.axes if sizes[a] > 1]
    return {a: sizes[a] for a in others}, row, sizes[row]


@lru_cache(maxsize=64)
def knobs(group: Group, target: Target) -> Space:
    """Elements in flight; rows of a piece, or elements of one of a long row; the block turned."""
    plan = _stream(group, target)
    found = {"row": near(VECTORS, plan.lanes, plan.length)}
    if plan.turned:
        extent = dict(plan.outer)[plan.turned]
        found["block"] = tuple(n for n in BLOCKS if n == 1 or n < extent)
    elif plan.pieces > 1:
        found["rows"] = tuple(n for n in ROWS if n == 1 or n < plan.pieces)
    else:
        step = max(found["row"])
        sizes = (-(-plan.length // (n * step)) * step for n in PIECES)
        found["piece"] = tuple(dict.fromkeys(sizes))
    return found


def _schedule(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    """Inline; one loop over pieces, which may be parallel; vectors unrolled."""
    plan, last = _stream(group, target), group.last
    kept = inline_pointwise(sch, group.intermediate())
    outer, row, leaf = [axis for axis, _ in plan.outer], plan.row, None
    if plan.turned:
        pieces, block = split(sch, last.name, plan.turned, knobs["block"], "ob")
        outer, inside = [axis for axis in outer if axis != plan.turned], [block]
    else:
        collapse(sch, last)
        pieces, inside = "", []
    if "piece" in knobs:
        pieces, row = split(sch, last.name, row, knobs["piece"], "pq")
    step, tile = split(sch, last.name, row, knobs["row"], "ot")
    vector, lane = split(sch, last.name, tile, plan.lanes, "vl")
    inner = [step, *inside, vector, lane]
    around = [*([pieces] if pieces else []), *outer]
    single = [x for x in sch[last].loops if x not in {*around, *inner}]
    sch[last].reorder(*single, *around, *inner)
    if "rows" in knobs:
        rows = fuse(sch, last.name, outer)
        pieces, leaf = split(sch, last.name, rows, knobs["rows"], "pq")
    sch[last].unroll(vector).vectorize(lane)
    if work(last) >= PARALLEL_WORK:
        sch[last].parallel(pieces)
    keep_at(sch, kept, last, leaf, target)


def held_knobs(group: Group, target: Target) -> Space:
    """Elements of a row that are written before the next square; the block turned, in squares."""
    plan = _stream(group, target)
    extent = dict(plan.outer)[plan.turned]
    blocks = (n * plan.lanes for n in BLOCKS if n == 1 or n * plan.lanes < extent)
    return {"row": near(VECTORS, plan.lanes, plan.length), "block": tuple(blocks)}


def _schedule_held(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    """Squares in registers: loaded as rows, stored as columns."""
    plan, last = _stream(group, target), group.last
    inline_pointwise(sch, group.intermediate())
    copies = [sch[last].cache_read(name) for name in plan.held]
    stage = sch[last]
    step, tile = split(sch, last.name, plan.row, knobs["row"], "ot")
    vector, lane = split(sch, last.name, tile, plan.lanes, "vl")
    first, block = split(sch, last.name, plan.turned, knobs["block"], "ob")
    square, line = split(sch, last.name, block, plan.lanes, "qu")
    inner = (step, square, vector, line, lane)
    stage.reorder(first, *(x for x in stage.loops if x not in {first, *inner}), *inner)
    stage.unroll(line).vectorize(lane)
    if work(last) >= PARALLEL_WORK:
        stage.parallel(first)
    for copy in copies:
        *lines, along = copy.loops
        copy.unroll(*lines).vectorize(along)
        copy.compute_at(last, vector).set_scope("register")
