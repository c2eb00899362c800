"""Matrix multiplication and what hangs on it: bias, activation, residual.

    D[i, j] = relu(sum over k of A[i, k] * B[k, j] + bias[j])

    step                        loads per multiply-add          what it does
    naive i j k                 2, and C                        each operand fetched for each use
    tile i by MR, j by NR       1/MR + 1/NR, and C              one tile of C is finished at a time
    vectorise j                 (1/MR + 1/NV) / lanes, and C    one instruction, `lanes` columns;
                                                                NR is NV vectors
    sums in registers           (1/MR + 1/NV) / lanes           MR * NV vectors live over all of k
    unroll k by 2               the same                        half the counting and jumping
    pack B in strips            the same                        a strip is NR wide: its rows lie one
                                                                after another, not 2**n apart
    pack A, block j             the same                        the strip of A stays in the first
                                                                cache, the block of B in the last
    epilogue on the tile        no second pass over C           bias and relu before the store

With eight lanes and 16 registers the tile is 6 x 16: a step of k is 12 multiply-adds of vectors, 2
loads of B and 6 broadcasts of A. MR * NV + NV + 1 vectors must fit the register file, else the sums
spill and a factor two is lost. Leading axes are batch: the same tiles for each product.

Where to stop depends on the sizes, as a copy costs as much as a few rows of the product. `gemm`
packs nothing; `gemm_packed` all of B, if the second cache holds it; `gemm_strips` a strip of B at a
time; `gemm_blocks` strips of A too. A constant B is packed at compile time, whatever the rows. If k
is so long that the second cache holds no strip, gemm_deep.py cuts it.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import math

from minidlc.schedules.group import Group
from minidlc.schedules.implementation import Implementation, Knobs, Space, always
from minidlc.schedules.product import Product
from minidlc.schedules.product_knobs import (
    few_steps,
    has_enough_columns,
    order_knob,
    pack_knob,
    tile_fits,
    tile_knobs,
)
from minidlc.schedules.tiled import Tiled
from minidlc.schedules.tiles import is_shared
from minidlc.target import Target
from minidlc.te import Schedule

LARGE = 6  # second caches: both operands are larger than that where `gemm_blocks` gains
# Cycles for a byte: of rows that are read in short pieces, copied into strips, fetched from beyond
# the second cache. Fitted to times on a Zen 3, eight lanes: of 64 x 64 x 64 to 512 x 4096 x 256 the
# implementation of the least cost took no more than a twentieth longer than the fastest.
UNPACKED, COPIED, FAR = 1 / 40, 1 / 8, 1 / 32
BLOCK = (512, 256, 1024, 2048)  # columns


def schedule_gemm(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    """Tiles of the result, straight from memory."""
    product = Product.of(group, target).with_tile(knobs)
    tiled = Tiled(sch, product, knobs)
    outside = knobs.get("columns_outside", has_enough_columns(product))
    inner = ("jo", "io") if outside else ("io", "jo")
    tiled.loops(*product.batch, *inner)
    tiled.share(inner[1])
    tiled.hold()


def schedule_packed(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    """Rows of tiles; for each, all of the packed right operand, from the second cache.

    With columns outside, for each strip of the right operand all rows.
    """
    product = Product.of(group, target).with_tile(knobs)
    tiled = Tiled(sch, product, knobs)
    right, left = tiled.pack_right(), tiled.pack_left()
    own, common = tiled.batches()
    outside, inside = ("jo", "io") if knobs.get("columns_outside") else ("io", "jo")
    tiled.loops(*own, *common, outside, inside)
    if own and not product.right_is_constant and tiled.is_enough(*own):
        at, row = tiled.share(own[-1]), "io"
    else:
        at, row = None, tiled.share(inside if left is None else outside)
    if outside == "jo":  # each strip reads all of the left operand
        row = at
    tiled.hold()
    tiled.copy_right(right, at)
    tiled.copy_left(left, row)


def schedule_strips(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    """Columns of tiles; the strip of the right operand is packed just before it is used."""
    product = Product.of(group, target).with_tile(knobs)
    tiled = Tiled(sch, product, knobs)
    right, left = tiled.pack_right(), tiled.pack_left()
    own, common = tiled.batches()
    if tiled.is_enough(*own, "jo"):
        tiled.loops(*own, "jo", *common, "io")
        strip = tiled.share("io" if product.right_is_constant else "jo")
    else:
        tiled.loops(*own, *common, "io", "jo")
        strip = None
        tiled.share("jo")
    tiled.hold()
    tiled.copy_right(right, strip)
    tiled.copy_left(left)


def schedule_blocks(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    """Blocks of columns that the last cache holds; in each, strips of rows; both packed."""
    product = Product.of(group, target).with_tile(knobs)
    tiled = Tiled(sch, product, knobs)
    right, left = tiled.pack_right(), tiled.pack_left(always=True)
    tiled.loops("jc", "io", "jr")
    if is_shared(group):
        sch[group.last].parallel("io")
    tiled.hold()
    tiled.copy_right(right, "jc")
    tiled.copy_left(left, "io")


def has_small_right(group: Group, target: Target) -> bool:
    """The right operand is a tensor that fits half of the second cache."""
    product = Product.of(group, target)
    return product.right is not None and 0 < product.right_bytes <= target.l2 // 2


def has_right(group: Group, target: Target) -> bool:
    """The right operand is a tensor."""
    product = Product.of(group, target)
    return product.right is not None and product.right_bytes > 0


def has_large_operands(group: Group, target: Target) -> bool:
    """One product, of two tensors that are far larger than the second cache."""
    product = Product.of(group, target)
    known = product.left is not None and product.right is not None and product.repeats == 1
    return known and min(product.left_bytes, product.right_bytes) > LARGE * target.l2


def unpacked_cost(group: Group, target: Target) -> float:
    """Each row of tiles reads the right operand from the second cache, in short pieces."""
    product = Product.of(group, target)
    fetched = product.row_tiles * product.right_bytes
    again = fetched * UNPACKED if product.right_bytes > target.l1 else 0
    slow = product.tile.lanes if product.is_gathered else 1
    tiles = (product.cycles + again + _far(product)) * slow
    return product.repeats * tiles + product.right_is_constant


def packed_cost(group: Group, target: Target) -> float:
    """The tiles and the copy; each column of tiles reads the left operand, however far it is."""
    product = Product.of(group, target)
    return product.repeats * (product.cycles + _far(product)) + copied(product)


def blocks_cost(group: Group, target: Target) -> float:
    """The tiles and the copies; the left operand is copied for each block of columns."""
    product = Product.of(group, target)
    blocks = -(-product.columns // BLOCK[0])
    again = product.row_tiles * product.right_bytes * FAR if product.is_deep else 0
    return product.cycles + again + copied(product) + blocks * product.left_bytes * COPIED


def _far(product: Product) -> float:
    """Cycles for what comes from beyond the second cache again and again.

    The left operand for each column of tiles, if it is large; the right one for each row of tiles,
    if the cache does not even hold the columns of one tile.
    """
    large = product.left_bytes > LARGE * product.target.l2
    left = product.column_tiles * product.left_bytes if large else 0
    right = product.row_tiles * product.right_bytes if product.is_deep else 0
    return (left + right) * FAR


def copied(product: Product) -> float:
    """Cycles to pack the right operand in each call."""
    if product.right is None or product.right_is_constant:
        return 0
    sizes = product.group.last.shape
    times = [sizes[place] for place in product.right.batch]
    slow = product.tile.lanes if product.is_gathered else 1
    return math.prod(times) * product.right_bytes * COPIED * slow


def unpacked_knobs(group: Group, target: Target) -> Space:
    """The tile, unrolling, and the order of the loops."""
    product = Product.of(group, target)
    order = order_knob(has_enough_columns(product))
    return {**tile_knobs(product, few_steps(product)), **order}


def packed_knobs(group: Group, target: Target) -> Space:
    """The tile, unrolling, whether the left operand is packed, and the order of the loops."""
    return {**strip_knobs(group, target), **order_knob(False)}


def strip_knobs(group: Group, target: Target) -> Space:
    """The tile, unrolling, and whether the left operand is packed."""
    product = Product.of(group, target)
    return {**tile_knobs(product, few_steps(product)), **pack_knob(product)}


def block_knobs(group: Group, target: Target) -> Space:
    """The tile, unrolling, and the columns of a block."""
    product = Product.of(group, target)
    return {**tile_knobs(product, few_steps(product)), "block": BLOCK}


GEMM = tuple(
    Implementation(name, "matmul", schedule, applies, knobs, cost, allowed=tile_fits)
    for name, schedule, applies, knobs, cost in (
        ("gemm", schedule_gemm, always, unpacked_knobs, unpacked_cost),
        ("gemm_packed", schedule_packed, has_small_right, packed_knobs, packed_cost),
        ("gemm_strips", schedule_strips, has_right, strip_knobs, packed_cost),
        ("gemm_blocks", schedule_blocks, has_large_operands, block_knobs, blocks_cost),
    )
)
