"""Gradients of the weights of a convolution: a product whose sums run over the pixels.

    dw[o, c, kh, kw] = sum over n, h, w of x[n, c, h + kh, w + kw] * dy[n, o, h, w]

    step                       loads per multiply-add     what it does
    naive                      2, and dw
    border of x once           the same                   no test in the loops
    lanes along w              2 / lanes, and dw          rows of x and dy are read as they lie;
                                                          `lanes` partial sums for each weight
    tile of O outputs, K taps  (O + K) / (O * K) / lanes  a vector of x serves O outputs, one of dy
                                                          K taps: the windows overlap
    sums in registers          the same                   held over all pixels of all images
    lanes added up at the end  the same                   once for each weight

With 32 registers, O = 5 and K = 5: 10 loads for 25 multiply-adds of vectors. No patch of x is
copied (im2col): the vectors of the K taps are a row of x from K places. Where one row goes on in
the next, in a convolution of 1 x 1, the pixels are one axis, and channels take the place of taps.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from minidlc.expr.index import Cond, FloorDiv, Index, Var, atoms, simplify, substitute
from minidlc.expr.nodes import Expr, Load, Reduce, select
from minidlc.expr.walk import map_indices, rewrite
from minidlc.loop.regions import loads
from minidlc.schedules.conv import one_a_cycle, pool_knobs, schedule_pool
from minidlc.schedules.group import Group, divisors, largest_divisor, work
from minidlc.schedules.implementation import Implementation, Knobs, Space, default_first
from minidlc.schedules.injective import fuse_and_share, keep_at
from minidlc.schedules.pixels import share_copies
from minidlc.schedules.tiles import PARALLEL_SUMS, inline_around
from minidlc.schedules.variants import rebuilt, with_flat_reductions
from minidlc.support.names import Names
from minidlc.target import Target
from minidlc.te import Schedule, Tensor

PIECES = 8  # of a parallel loop: enough for each thread to get several
WIDTHS = (16, 8, 4)  # lanes of a vector: the expressions differ, so there are as many ways
TESTED = 1.25  # times as long: loads under a mask
LATENCY = 8  # sums that are under way at a time: two multiply-adds a cycle, four cycles each


def schedule_weights(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    """Tiles of outputs x channels x taps, their sums in registers, on a group in lanes."""
    last, anchor = group.last, group.anchor
    assert anchor is not None
    kept = inline_around(sch, group, target)
    leaf, inner = _tile_loops(sch, group, knobs)
    keep_at(sch, kept, last, leaf, target)
    if anchor is last:
        sch[last].unroll(*inner)
    else:
        sch[anchor].compute_at(last, leaf).set_scope("stack")
        sch[anchor].unroll(*anchor.axes)
    sch[anchor].vectorize(anchor.reduce_axes[0][0])
    _hold(sch, group, leaf)
    share_copies(sch, replace(group, anchor=_parts(group)))


def _tile_loops(sch: Schedule, group: Group, knobs: Knobs) -> tuple[str, tuple[str, ...]]:
    """The loops of the output in tiles; returns the innermost over tiles, and those of a tile."""
    last = group.last
    tiles = dict.fromkeys(last.axes, 1)
    tiles |= dict(zip(last.axes, (knobs["outputs"], knobs["channels"]), strict=False))
    tiles |= dict(zip(last.axes[:1:-1], (knobs["taps"], knobs["rows"]), strict=False))
    loops = [sch[last].split(axis, tiles[axis], names=(f"{axis}o", f"{axis}i")) for axis in tiles]
    trips = [-(-n // tiles[axis]) for axis, n in zip(last.axes, last.shape, strict=True)]
    outer, inner = zip(*loops, strict=True)
    if _reads_x_less_often(group, knobs):
        outer, trips = (*outer[1::-1], *outer[2:]), [*trips[1::-1], *trips[2:]]
    sch[last].reorder(*outer, *inner)
    if work(_parts(group)) < PARALLEL_SUMS:
        return outer[-1], inner
    return fuse_and_share(sch, last, outer, tuple(trips), PIECES), inner


def _hold(sch: Schedule, group: Group, leaf: str) -> None:
    """Compute the partial sums of a tile at `leaf`, in registers, over all pixels."""
    parts = _parts(group)
    *spatial, lane = parts.axes
    sums = [name for name, _ in parts.reduce_axes]
    sch[parts].compute_at(group.last, leaf)
    sch[parts].reorder(*sums, *spatial, lane).unroll(*spatial)
    sch[parts].vectorize(lane)
    sch[parts].set_scope("register")


def _reads_x_less_often(group: Group, knobs: Knobs) -> bool:
    """True if channels outside, outputs inside move fewer bytes: x once, dy for each channel tile.

    The other way dy is read once, and all of x for each tile of outputs.
    """
    parts = _parts(group)
    channel = Var(parts.axes[1])
    assert parts.body is not None
    of_x = {e.buffer for e in loads(parts.body) if any(channel in i.vars() for i in e.index)}
    sizes = {t.name: t.type.nbytes for t in parts.inputs}
    x = sum(size for name, size in sizes.items() if name in of_x)
    dy = sum(sizes.values()) - x
    outputs, channels = parts.shape[:2]
    return x * (outputs // knobs["outputs"]) > dy * (channels // knobs["channels"])


def _parts(group: Group) -> Tensor:
    """The stage of the partial sums: what the anchor, in lanes, adds up."""
    assert group.anchor is not None
    (parts,) = group.anchor.inputs
    return parts


def in_lanes(group: Group, widest: int) -> Group:
    """The same results by partial sums: parts[…, l] is that of the pixels whose lane is l."""
    flat = with_flat_reductions(group)
    assert flat.anchor is not None
    name = flat.anchor.name

    def change(tensor: Tensor, names: Names) -> Tensor:
        return _from_parts(tensor, names, widest) if tensor.name == name else tensor

    return rebuilt(flat, change)


def _in_phases(anchor: Tensor, names: Names) -> Tensor:
    """The anchor on copies in which every s-th pixel of a row, as a stride of s reads it, is next.

    Pixel s*q + r of a row is element [r, q] of the copy, which may be that with a border.
    """
    assert isinstance(anchor.body, Reduce)
    pixel = Var(anchor.body.axes[-1][0])
    made: dict[str, Tensor] = {}

    def turned(e: Expr) -> Expr:
        stride = e.index[-1].coefficient(pixel) if isinstance(e, Load) and e.index else 0
        if not isinstance(e, Load) or stride <= 1:
            return e
        if e.buffer not in made:
            source = next(t for t in anchor.inputs if t.name == e.buffer)
            made[e.buffer] = _phases(source, stride, names)
        column = e.index[-1]
        index = (*e.index[:-1], simplify(column % stride, {}), simplify(column // stride, {}))
        return Load(made[e.buffer].name, index, e.type)

    body = rewrite(anchor.body, turned)
    return replace(anchor, body=body, inputs=tuple(made.get(t.name, t) for t in anchor.inputs))


def _phases(source: Tensor, stride: int, names: Names) -> Tensor:
    """The copy: the body of `source` if it is computed, at the pixels of each phase."""
    *rest, width = source.shape
    *axes, column = source.axes or tuple(f"x{d}" for d in range(len(source.shape)))
    phase = Names((*axes, column)).fresh("r")
    where = Index.of(Var(column)) * stride + Var(phase)
    if source.body is None:
        body: Expr = source[(*(Index.of(Var(a)) for a in axes), where)]
    else:
        body = map_indices(source.body, lambda e: substitute(e, {Var(column): where}))
    return Tensor(
        names.fresh(f"{source.name}_phases"),
        source.type.with_shape((*rest, stride, -(-width // stride))),
        (*axes, phase, column),
        select(where < width, body, 0),
        (source,) if source.body is None else source.inputs,
    )


def _from_parts(anchor: Tensor, names: Names, widest: int) -> Tensor:
    """The anchor as the sum over the lanes of a new stage; of a row's rest both factors are 0."""
    anchor = _in_phases(anchor, names)
    body = anchor.body
    assert isinstance(body, Reduce)
    pixel, width = body.axes[-1]
    lanes = _lanes(width, widest)
    taken = Names((*anchor.axes, *dict(body.axes)))
    block, lane = taken.fresh(f"{pixel}o"), taken.fresh("l")
    where = Index.of(Var(block)) * lanes + Var(lane)
    inside = Cond(()) if width % lanes == 0 else where < width

    def guarded(e: Expr) -> Expr:
        if isinstance(e, Load) and any(Var(block) in i.vars() for i in e.index):
            return select(inside, e, 0)
        return e

    element = map_indices(body.body, lambda e: substitute(e, {Var(pixel): where}))
    element = rewrite(element, guarded) if inside.ge else element
    parts = replace(
        anchor,
        name=names.fresh(f"{anchor.name}_lanes"),
        type=anchor.type.with_shape((*anchor.shape, lanes)),
        axes=(*anchor.axes, lane),
        body=Reduce(body.op, element, (*body.axes[:-1], (block, -(-width // lanes)))),
    )
    here = tuple(Index.of(Var(axis)) for axis in parts.axes)
    total = Reduce(body.op, Load(parts.name, here, body.dtype), ((lane, lanes),))
    return replace(anchor, body=total, inputs=(parts,))


def _lanes(width: int, widest: int) -> int:
    """Lanes for a row of this width: if possible such that no vector reaches over the end of a row.

    More than eight count twice: they are two registers, or one that takes as long as two.
    """
    return min(range(1, widest + 1), key=lambda lanes: (_row(width, lanes), -lanes))


def _row(width: int, lanes: int) -> float:
    """Multiply-adds of eight lanes, or fewer, for a row."""
    tested = width % lanes != 0
    return -(-width // lanes) * -(-lanes // 8) * (TESTED if tested else 1)


def knobs(group: Group, target: Target) -> Space:
    """First the tile of the fewest loads for a multiply-add that fits the registers."""
    parts = _parts(group)
    channels, *taps = parts.shape[1:-1]
    room = _room(parts, target)
    each = outputs_of_a_group(parts)
    column = largest_divisor(taps[-1], max(1, room // 3))
    rows = taps[-2] if each == 1 and len(taps) > 1 and taps[-2] * column * 2 <= room else 1
    found = {
        (o, c): loads_each(o, c * rows * column)
        for o in range(1, min(each, room) + 1)
        for c in range(1, min(channels, room) + 1)
        if each % o == 0 and channels % c == 0 and (o + 1) * c * rows * column <= room
    }
    o, c = min(found, key=lambda tile: found[tile], default=(1, 1))
    return {
        "outputs": default_first(o, divisors(each, room)),
        "channels": default_first(c, divisors(channels, room)),
        "rows": default_first(rows, divisors(taps[-2], room) if len(taps) > 1 else ()),
        "taps": default_first(column, divisors(taps[-1], room)),
    }


def _room(parts: Tensor, target: Target) -> int:
    """Sums, and vectors of x, that the registers hold."""
    return target.registers // -(-parts.shape[-1] // target.lanes(parts.dtype.bits)) - 1


def tile_fits(group: Group, target: Target, knobs: Knobs) -> bool:
    """True if the registers hold the sums of a tile and the vectors of x that they share."""
    taps = knobs["channels"] * knobs["rows"] * knobs["taps"]
    return (knobs["outputs"] + 1) * taps <= _room(_parts(group), target) or taps == 1


def loads_each(outputs: int, taps: int) -> float:
    """Loads for a multiply-add; more where sums are so few that each waits for the one before."""
    sums = outputs * taps
    return (outputs + taps) / sums * max(1.0, LATENCY / sums)


def outputs_of_a_group(parts: Tensor) -> int:
    """How many neighbouring outputs read the same channels of x."""
    assert parts.body is not None
    output = Var(parts.axes[0])
    return math.gcd(parts.shape[0], *_steps(parts.body, output))


def _steps(body: Expr, output: Var) -> Iterator[int]:
    """After how many outputs a load moves to the next channel; dy, read for each, apart."""
    for load in loads(body):
        for index in load.index:
            if index == Index.of(output):
                continue
            for atom in atoms(index):
                if isinstance(atom, FloorDiv) and atom.a == Index.of(output):
                    yield atom.c
            if index.coefficient(output):
                yield 1


def may_reorder(group: Group, target: Target) -> bool:
    """Sums may be added up in lanes; in strict precision they keep the order of the plain loops."""
    known = group.anchor is not None and 0 not in (*group.last.shape, work(group.anchor))
    return known and target.precision != "strict"


def _in_order(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    """A line of taps at a time, in vectors; the sums in the order of the plain loops."""
    schedule_pool(sch, group, target, knobs)


def _cost(group: Group, widest: int) -> float:
    """Cycles of the multiply-adds, two a cycle: lanes that a row leaves empty take as long."""
    anchor = with_flat_reductions(group).anchor
    assert anchor is not None
    assert isinstance(anchor.body, Reduce)
    width = anchor.body.axes[-1][1]
    return work(anchor) / width * _row(width, _lanes(width, widest)) / 2


def _implementation(widest: int) -> Implementation:
    """For machines whose vectors have so many lanes."""

    def applies(group: Group, target: Target) -> bool:
        assert group.anchor is not None
        lanes = max(WIDTHS[-1], min(WIDTHS[0], target.lanes(group.anchor.dtype.bits)))
        return may_reorder(group, target) and lanes == widest

    return Implementation(
        f"conv_weight_{widest}",
        "conv_weight",
        schedule_weights,
        applies=applies,
        knobs=knobs,
        cost=lambda group, target: _cost(group, widest),
        compute=partial(in_lanes, widest=widest),
        allowed=tile_fits,
    )


WEIGHTS = (
    *map(_implementation, WIDTHS),
    Implementation(
        "conv_weight_in_order", "conv_weight", _in_order, knobs=pool_knobs, cost=one_a_cycle
    ),
)
