"""What may be chosen for a tiled matrix product: the tile, unrolling, packing, the order of loops.

    tile_knobs(Product.of(group, target))           # {"rows": (6, 1, 2, …), "columns": (16, 8, …)}
    tile_fits(group, target, {"rows": 9, "columns": 16})        # False: 18 sums, 16 registers

The first candidate is what the estimates say (tiles.register_tile, tiled.reads_left_far), so the
space holds the compiler's own choice. What is left out cannot be good: a tile larger than the
register file spills in each step of k, and with few sums each multiply-add waits for another.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from minidlc.schedules.group import Group
from minidlc.schedules.implementation import Knobs, Space, default_first
from minidlc.schedules.product import Product, tile_registers
from minidlc.schedules.tiled import PIECES, reads_left_far
from minidlc.schedules.tiles import is_shared
from minidlc.target import Target

MAX_ROWS, MAX_VECTORS = 14, 8
LATENCY = 8  # multiply-adds that are under way at a time: two a cycle, four cycles each
UNROLLED = 128  # multiply-adds in the innermost loop, at most


def tile_knobs(product: Product, steps: tuple[int, ...]) -> Space:
    """Rows and columns of a tile; `steps` of k that are unrolled, the default first."""
    tile = product.tile
    rows = range(1, min(MAX_ROWS, product.rows) + 1)
    vectors = range(1, min(MAX_VECTORS, -(-product.columns // tile.lanes)) + 1)
    return {
        "rows": default_first(tile.rows, rows),
        "columns": default_first(tile.columns, (v * tile.lanes for v in vectors)),
        "unroll": default_first(steps[0], (*steps, 1, 2, 4, 8)),
    }


def few_steps(product: Product) -> tuple[int, ...]:
    """How many steps of k are unrolled: a large tile hides the counting by itself."""
    return (2, 4, 1) if product.tile.sums <= 16 else (1, 2)


def pack_knob(product: Product) -> Space:
    """Whether the left operand is packed too, if it is a tensor."""
    if product.left is None:
        return {}
    packed = int(reads_left_far(product))
    return {"pack_left": (packed, 1 - packed)}


def order_knob(default: bool) -> Space:
    """Whether the loop over columns of tiles is outside that over rows of tiles."""
    return {"columns_outside": (int(default), int(not default))}


def has_enough_columns(product: Product) -> bool:
    """True if the columns of tiles are enough pieces for all threads, or one does it all."""
    return not is_shared(product.group) or product.repeats * product.column_tiles >= PIECES


def tile_fits(group: Group, target: Target, knobs: Knobs) -> bool:
    """True if the sums fit the registers, beside a row of the right operand and a broadcast.

    And if they are enough to be busy with, or as many as the default has, in a short inner loop.
    """
    product = Product.of(group, target)
    tile = product.with_tile(knobs).tile
    fits = tile.sums + tile.vectors + 1 <= tile_registers(target) or tile.sums == 1
    busy = tile.sums >= min(LATENCY, product.tile.sums)
    return fits and busy and tile.sums * knobs["unroll"] <= UNROLLED
