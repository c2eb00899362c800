"""Matrix times vector: each element of the matrix is used once, so memory sets the pace.

    y[j] = sum over k of x[k] * W[k, j]             # gemv: columns side by side
    y[i] = sum over k of W[i, k] * x[k]             # dots: along the rows, as memory runs

    step of gemv                 loads per multiply-add   what it does
    naive                        2, and y                 y[j] is fetched and stored for each k
    vectorise j                  … / lanes                one instruction, `lanes` columns
    NV vectors in registers      (1 + 1/NV) / lanes       y is stored once; NV chains of sums
    unroll k by 4                the same                 less counting between the loads
    pack W, if it is constant    the same                 memory is read from one end to the other

NV is at most 7 with 16 registers, 8 with 32. The dots are what the schedule of reductions does:
vectors of partial sums, added up at the end. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from minidlc.schedules.group import Group, work
from minidlc.schedules.implementation import Implementation, Knobs, Space
from minidlc.schedules.product import Product
from minidlc.schedules.product_knobs import tile_fits, tile_knobs
from minidlc.schedules.rows import row_knobs, schedule_rows
from minidlc.schedules.tiled import Tiled
from minidlc.target import Target
from minidlc.te import Schedule


def schedule_gemv(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    """Blocks of columns, each as many vectors as registers allow."""
    product = Product.of(group, target).with_tile(knobs)
    tiled = Tiled(sch, product, knobs)
    packed = tiled.pack_right() if product.right_is_constant else None
    own, common = tiled.batches()
    tiled.loops(*own, "jo", *common, "io")
    tiled.share("io")
    tiled.hold()
    if packed is not None:
        tiled.copy_right(packed)


def is_one_row(group: Group, target: Target) -> bool:
    """One row times a matrix that is a tensor, its columns side by side in memory."""
    product = Product.of(group, target)
    known = product.right is not None and product.right_bytes > 0
    return known and product.rows == 1 and not product.is_gathered


def runs_along_rows(group: Group, target: Target) -> bool:
    """Nothing is read along the columns, and the terms of a sum lie side by side."""
    product = Product.of(group, target)
    return product.anchor.axes != () and (product.is_gathered or product.columns == 1)


def gemv_cost(group: Group, target: Target) -> float:
    """The tiles: each element of the matrix is read once."""
    product = Product.of(group, target)
    return product.repeats * product.cycles


def dots_cost(group: Group, target: Target) -> float:
    """A cycle for each vector of products: two loads."""
    product = Product.of(group, target)
    return work(product.anchor) / product.tile.lanes


def gemv_knobs(group: Group, target: Target) -> Space:
    """Columns that are summed side by side, and how many steps of k are unrolled."""
    return tile_knobs(Product.of(group, target), (4, 2, 1))


GEMV = (
    Implementation(
        "gemv", "matmul", schedule_gemv, is_one_row, gemv_knobs, gemv_cost, allowed=tile_fits
    ),
    Implementation("gemv_dots", "matmul", schedule_rows, runs_along_rows, row_knobs, dots_cost),
)
