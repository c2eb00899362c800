"""A matrix product of many terms: k in blocks, so that what is packed stays in the second cache.

    C[i, j] = sum over blocks ko of (sum over k in the block of A[i, k] * B[k, j])

    step                      bytes from beyond the second cache for a tile of MR x NR
    strips (gemm.py)          all of a strip of B, K * NR elements, if K is large
    block k by KC             none of B: a piece KC * NR is packed and used for all rows
    rfactor the blocks        the tile of C, read and stored once a block, in place of each k
    pack A, if it is wide     none of A for all but the first of the columns of tiles

The sum of a block is a stage of its own, in registers; C adds them up in memory. That is another
order of the terms, so strict code keeps to the strips. What follows the product reads C after that.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import math

from minidlc.schedules.gemm import COPIED, FAR, copied
from minidlc.schedules.group import Group
from minidlc.schedules.implementation import Implementation, Knobs, Space
from minidlc.schedules.injective import inline_pointwise, stream, vectorize_rows
from minidlc.schedules.product import Product
from minidlc.schedules.product_knobs import few_steps, tile_fits, tile_knobs
from minidlc.schedules.tiled import WIDE
from minidlc.schedules.tiles import is_shared, unroll_tile
from minidlc.target import Target
from minidlc.te import Schedule
from minidlc.te.schedule import StageHandle

DEPTH = (1024, 512, 2048, 256)  # terms of a block


def schedule_deep(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    """Blocks of k outermost; in each, strips of columns, packed, for all rows."""
    product = Product.of(group, target).with_tile(knobs)
    anchor, tile = product.anchor, product.tile
    _separate(sch, group, target)
    total = sch[anchor]
    total.split(anchor.reduce_axes[0][0], knobs["depth"], names=("ko", "ki"))
    partial = total.rfactor("ko", position="first")
    right, left = _pack(product, partial, knobs.get("pack_left", is_wide(product)))
    total.split(anchor.axes[-1], tile.columns, names=("jo", "ji"))
    total.split("ji", tile.lanes, names=("jv", "jl"))
    total.split(anchor.axes[-2], tile.rows, names=("io", "ii"))
    total.reorder("ko", *anchor.axes[:-2], "jo", "io", "ii", "jv", "jl")
    total.unroll("ii", "jv")
    total.vectorize("jl")
    if is_shared(group):
        total.parallel("jo")
    partial.compute_at(anchor, "io")
    steps = partial.split("ki", knobs["unroll"], names=("ks", "ku"))
    unroll_tile(
        sch,
        partial.name,
        ("ko", *anchor.axes[:-1]),
        steps[:1],
        (steps[1], anchor.axes[-2]),
        tile.lanes,
    )
    partial.set_scope("register")
    if product.right_is_constant:
        right.prepack()
    else:
        right.compute_at(anchor, "jo")
    if left is not None:
        left.compute_at(anchor, "ko")


def _separate(sch: Schedule, group: Group, target: Target) -> None:
    """What comes after the product runs after it, as a pass over memory of its own."""
    pointwise = [t for t in group.intermediate() if t is not group.anchor]
    for stage in inline_pointwise(sch, pointwise):
        vectorize_rows(sch, stage, target)
    if group.last is not group.anchor:
        stream(sch, group.last, target)


def _pack(
    product: Product, partial: StageHandle, both: int
) -> tuple[StageHandle, StageHandle | None]:
    """Copies of the operands in strips of the tile, or of the right one only."""
    tile, sides = product.tile, (product.right, product.left)
    assert sides[0] is not None
    assert sides[1] is not None
    right = partial.cache_read(sides[0].name, {sides[0].across: tile.columns})
    strip, *rest, column = right.loops
    vector, lane = right.split(column, tile.lanes)
    right.reorder(*rest, strip, vector, lane)
    right.unroll(vector)
    right.vectorize(lane)
    if not both:
        return right, None
    left = partial.cache_read(sides[1].name, {sides[1].across: tile.rows})
    left.unroll(left.loops[-1])
    return right, left


def can_be_cut(group: Group, target: Target) -> bool:
    """One product of tensors, of more terms than a block has; they may be added in any order."""
    product = Product.of(group, target)
    known = product.left is not None and product.right is not None and product.repeats == 1
    ordered = target.precision == "strict" and product.anchor.dtype.is_float
    plain = product.anchor.shape == group.last.shape and len(product.anchor.reduce_axes) == 1
    return known and plain and not ordered and (product.is_deep or product.depth > min(DEPTH))


def deep_cost(group: Group, target: Target) -> float:
    """The tiles, the copies, and C once more for each block: only where strips are too long.

    Of shorter ones the estimate knows too little; a measurement may find that blocks are faster.
    """
    product = Product.of(group, target)
    if not product.is_deep:
        return math.inf
    blocks = -(-product.depth // DEPTH[0])
    again = 2 * blocks * product.rows * product.columns * product.anchor.dtype.itemsize
    left = product.left_bytes * COPIED if is_wide(product) else 0
    return product.cycles + copied(product) + left + again * FAR


def is_wide(product: Product) -> bool:
    """True if a strip of the left operand is used for so many columns that a copy pays."""
    return product.column_tiles >= WIDE


def deep_knobs(group: Group, target: Target) -> Space:
    """The tile, unrolling, the terms of a block, and whether the left operand is packed."""
    product = Product.of(group, target)
    packed = int(is_wide(product))
    tile = tile_knobs(product, few_steps(product))
    depth = tuple(d for d in DEPTH if d < product.depth or product.is_deep)
    return {**tile, "depth": depth, "pack_left": (packed, 1 - packed)}


DEEP = Implementation(
    "gemm_deep", "matmul", schedule_deep, can_be_cut, deep_knobs, deep_cost, allowed=tile_fits
)
