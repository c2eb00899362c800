"""Gradients of the weights of a convolution whose rows are short: vectors along the outputs.

    dw[o, c, kh, kw] = sum over n, h, w of x[n, c, h + kh, w + kw] * dy[n, o, h, w]

    step                        loads per multiply-add     what it does
    naive                       2, and dw
    dy with o last              2 / lanes, and dw          vectors of outputs, however short a row
                                                           is; one copy of dy, pixel by pixel
    tile of V vectors, K taps   (V + K) / (V * K) / lanes  a broadcast of x serves V vectors
    sums in registers           the same                   held over all pixels of all images

With rows of 4 pixels the lanes of conv_weight.py are half empty. Here what is lost is the copy, and
the scattered stores of dw, once for each weight. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import math
from dataclasses import replace

from minidlc.expr.index import Index, Var
from minidlc.expr.nodes import Expr, Load, Reduce, select
from minidlc.expr.walk import rewrite
from minidlc.schedules.conv_weight import PIECES, loads_each, may_reorder, outputs_of_a_group
from minidlc.schedules.group import Group, divisors, largest_divisor, work
from minidlc.schedules.implementation import Implementation, Knobs, Space, default_first
from minidlc.schedules.injective import fuse_and_share, keep_at
from minidlc.schedules.pixels import share_copies
from minidlc.schedules.tiles import PARALLEL_SUMS, hold_in_registers, inline_around
from minidlc.schedules.variants import rebuilt
from minidlc.support.names import Names
from minidlc.target import Target
from minidlc.te import Schedule, Tensor

COPY = 4  # cycles for an element of dy


def schedule_outputs(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    """Tiles of vectors of outputs x channels x taps, on a group with o last."""
    last, anchor = group.last, group.anchor
    assert anchor is not None
    kept = inline_around(sch, group, target)
    share_copies(sch, group)
    lanes = _lanes(group, target)
    sums = sch[anchor].cache_write("arena").name
    tiles = dict.fromkeys(last.axes, 1)
    tiles |= dict(zip(last.axes, (knobs["vectors"] * lanes, knobs["channels"]), strict=False))
    tiles[last.axes[-1]] = knobs["taps"]
    loops = [sch[last].split(axis, tiles[axis], names=(f"{axis}o", f"{axis}i")) for axis in tiles]
    outer, inner = zip(*loops, strict=True)
    sch[last].reorder(*outer, *inner)
    leaf = outer[-1]
    if work(anchor) >= PARALLEL_SUMS:
        trips = tuple(-(-n // tiles[axis]) for axis, n in zip(last.axes, last.shape, strict=True))
        leaf = fuse_and_share(sch, last, outer, trips, PIECES)
    keep_at(sch, kept, last, leaf, target)
    channel, *taps = anchor.axes[:-1]
    hold_in_registers(sch, group, sums, leaf, (channel, taps[-1]), lanes)


def with_outputs_last(group: Group) -> Group:
    """The same results by sums [c, kh, kw, o], the anchor then, over a copy of dy with o last."""
    assert group.anchor is not None
    name, found = group.anchor.name, list[Tensor]()

    def change(tensor: Tensor, names: Names) -> Tensor:
        if tensor.name != name:
            return tensor
        found.append(_outputs_last(tensor, names))
        index = tuple(Index.of(Var(axis)) for axis in found[0].axes)
        return replace(tensor, body=Load(found[0].name, index, tensor.dtype), inputs=(found[0],))

    return replace(rebuilt(group, change), anchor=found[0])


def _outputs_last(anchor: Tensor, names: Names) -> Tensor:
    """The sums in the order of a vector of outputs."""
    assert isinstance(anchor.body, Reduce)
    output, *others = anchor.axes
    made: dict[str, Tensor] = {}

    def turned(e: Expr) -> Expr:
        if not isinstance(e, Load) or not any(Var(output) in i.vars() for i in e.index):
            return e
        if e.buffer not in made:
            source = next(t for t in anchor.inputs if t.name == e.buffer)
            made[e.buffer] = _turned(source, names)
        n, o, *pixel = e.index
        return Load(made[e.buffer].name, (n, *pixel, o), e.type)

    body = rewrite(anchor.body, turned)
    return replace(
        anchor,
        name=names.fresh(f"{anchor.name}_turned"),
        type=anchor.type.with_shape((*anchor.shape[1:], anchor.shape[0])),
        axes=(*others, output),
        body=body,
        inputs=tuple(made.get(t.name, t) for t in anchor.inputs),
    )


def _turned(source: Tensor, names: Names) -> Tensor:
    """A copy with axis 1 last. It says so with a test, as a border does: it is not inlined."""
    batch, outputs, *pixels = source.shape
    axes = ("n", *(f"p{d}" for d in range(len(pixels))), "o")
    n, *pixel, o = (Index.of(Var(axis)) for axis in axes)
    body = select(o < outputs, source[(n, o, *pixel)], 0)
    type = source.type.with_shape((batch, *pixels, outputs))
    return Tensor(names.fresh(f"{source.name}_turned"), type, axes, body, (source,))


def has_vectors(group: Group, target: Target) -> bool:
    """True if one group of channels has whole vectors of outputs."""
    if group.anchor is None or not may_reorder(group, target):
        return False
    outputs = group.anchor.shape[0]
    whole = outputs % min(8, target.lanes(group.anchor.dtype.bits)) == 0
    return whole and outputs_of_a_group(group.anchor) == outputs


def _lanes(group: Group, target: Target) -> int:
    """As many as divide the outputs."""
    assert group.anchor is not None
    return largest_divisor(group.last.shape[0], target.lanes(group.anchor.dtype.bits))


def knobs(group: Group, target: Target) -> Space:
    """First the tile of the fewest loads for a multiply-add that fits the registers."""
    outputs, channels, *taps = group.last.shape
    lanes = _lanes(group, target)
    column = largest_divisor(taps[-1], 8)
    found = {
        (v, c): loads_each(v, c * column)
        for v in range(1, 5)
        for c in range(1, min(channels, target.registers) + 1)
        if (outputs // lanes) % v == 0 and channels % c == 0
        and v * c * column + v + 1 < target.registers
    }  # fmt: skip
    v, c = min(found, key=lambda tile: found[tile], default=(1, 1))
    return {
        "vectors": default_first(v, divisors(outputs // lanes, 4)),
        "channels": default_first(c, divisors(channels, target.registers)),
        "taps": default_first(column, divisors(taps[-1], 8)),
    }


def tile_fits(group: Group, target: Target, knobs: Knobs) -> bool:
    """True if the registers hold the sums of a tile, the vectors of dy and a broadcast."""
    vectors, taps = knobs["vectors"], knobs["channels"] * knobs["taps"]
    return vectors * taps + vectors + 1 < target.registers or vectors == knobs["channels"] == 1


def cost(group: Group, target: Target) -> float:
    """Cycles of the multiply-adds, and of the copy of dy."""
    anchor = group.anchor
    assert anchor is not None
    dy = math.prod(n for _, n in anchor.reduce_axes) * group.last.shape[0]
    eights = 8 * -(-_lanes(group, target) // 8) / _lanes(group, target)
    return work(anchor) * eights / 8 / 2 + COPY * dy


CHANNELS = Implementation(
    "conv_weight_channels",
    "conv_weight",
    schedule_outputs,
    applies=has_vectors,
    knobs=knobs,
    cost=cost,
    compute=with_outputs_last,
    allowed=tile_fits,
)
