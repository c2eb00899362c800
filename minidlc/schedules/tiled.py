"""The moves of a tiled matrix product, each a few primitives: pack, tile, share, hold, copy.

    tiled = Tiled(sch, Product.of(group, target), {"unroll": 2})
    copy = tiled.pack_right()                       # B_p: strips of B, rows one after another
    tiled.loops("io", "jo")                         # rows of tiles outside, columns inside
    tiled.share("jo")                               # in parallel, if it pays
    tiled.hold()                                    # the sums of a tile in registers
    tiled.copy_right(copy)                          # packed before, at compile time if it can be

The schedules of gemm.py and gemv.py are such sequences. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import math

from minidlc.schedules.implementation import Knobs
from minidlc.schedules.injective import keep_at
from minidlc.schedules.product import Operand, Product
from minidlc.schedules.tiles import (
    PIECES,
    accumulator,
    hold_in_registers,
    inline_around,
    is_shared,
    share_tiles,
)
from minidlc.te import Schedule

PAGE = 4096  # bytes: places as far apart, or a multiple of it, share one set of the first cache
WIDE = 16  # columns of tiles: a strip of the left operand that is used less often is not packed


class Tiled:
    """The schedule of a product on its way, move by move."""

    def __init__(self, sch: Schedule, product: Product, knobs: Knobs) -> None:
        self.sch, self.product, self.knobs = sch, product, knobs
        self.group, self.last = product.group, product.group.last
        self.kept = inline_around(sch, self.group, product.target)
        self.sums = accumulator(sch, self.group)
        self.in_registers = self.sums == product.anchor.name or product.anchor is self.last
        self.outer: tuple[str, ...] = ()
        self.inner = 2 if product.row is None else 3
        shape = dict(zip(self.last.axes, self.last.shape, strict=True))
        self.trips = {**shape, "io": product.row_tiles, "jo": product.column_tiles}

    @property
    def leaf(self) -> str:
        """The innermost loop over tiles."""
        return self.sch[self.last].loops[-self.inner - 1]

    def pack_right(self) -> str:
        """Read the right operand from a copy in strips as wide as the tile."""
        right = self.product.right
        assert right is not None
        return self._pack(right, self.product.tile.columns)

    def pack_left(self, *, always: bool = False) -> str | None:
        """Read the left operand from a copy in strips as high as the tile, if that pays."""
        left = self.product.left
        pays = always or self.knobs.get("pack_left", reads_left_far(self.product))
        return self._pack(left, self.product.tile.rows) if left is not None and pays else None

    def _pack(self, operand: Operand, size: int) -> str:
        return self.sch[self.sums].cache_read(operand.name, {operand.across: size}).name

    def batches(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The batch axes that the right operand depends on, and the others."""
        right, axes = self.product.right, self.last.axes
        own = [
            axis
            for place, axis in enumerate(axes[:-2])
            if right is None or place - len(axes) in right.batch
        ]
        return tuple(own), tuple(axis for axis in axes[:-2] if axis not in own)

    def loops(self, *outer: str) -> None:
        """Tile the result; `outer` is the order of the loops over batches and tiles."""
        product, tile, stage = self.product, self.product.tile, self.sch[self.last]
        stage.split(product.column, tile.columns, names=("jo", "ji"))
        stage.split("ji", tile.lanes, names=("jv", "jl"))
        inner = ["jv", "jl"]
        if product.row is not None:
            stage.split(product.row, tile.rows, names=("io", "ii"))
            inner.insert(0, "ii")
        if "jc" in outer:
            stage.split("jo", max(1, self.knobs["block"] // tile.columns), names=("jc", "jr"))
        self.outer = tuple(axis for axis in outer if axis != "io" or product.row is not None)
        stage.reorder(*self.outer, *inner)
        if self.in_registers:  # their positions must be numbers
            stage.unroll(*inner[:-1])
        elif product.target.registers >= 32:  # room for two polynomials side by side
            stage.unroll("jv")
        stage.vectorize("jl")

    def is_enough(self, *loops: str) -> bool:
        """True if those loops are enough pieces for all threads, or one thread does it all."""
        return not is_shared(self.group) or math.prod(self.trips[x] for x in loops) >= PIECES

    def share(self, last: str) -> str:
        """Run the loops down to `last` in parallel, if it pays; the name of the last one then."""
        together = self._together(last)
        name = share_tiles(self.sch, self.group, together, tuple(self.trips[x] for x in together))
        return name if last in together or last not in self.outer else last

    def _together(self, last: str) -> tuple[str, ...]:
        """The loops down to `last` that may become one.

        None of them has a short last tile, but the outermost: that tile would be every n-th
        iteration of the whole, and no cut of the loop could free the others of its conditions.
        """
        loops = self.outer[: self.outer.index(last) + 1] if last in self.outer else self.outer
        product, found, pieces = self.product, list[str](), 1
        ragged = {
            "io": product.rows % product.tile.rows > 0,
            "jo": product.columns % product.tile.columns > 0,
        }
        for loop in loops:
            if pieces > 1 and (ragged.get(loop) or any(ragged.get(x) for x in found)):
                break
            found.append(loop)
            pieces *= self.trips[loop]
        return tuple(found)

    def copy_right(self, copy: str, leaf: str | None = None) -> None:
        """Fill the packed right operand: at compile time, at a loop, or before all (None)."""
        stage = self.sch[copy]
        strip, *rest, column = stage.loops
        vector, lane = stage.split(column, self.product.tile.lanes)
        stage.reorder(*rest, strip, vector, lane)
        stage.unroll(vector)
        stage.vectorize(lane)
        if self.product.right_is_constant:
            stage.prepack()
            return
        if leaf is not None:
            stage.compute_at(self.last, leaf)
        if is_shared(self.group) and (leaf is None or leaf == "jc"):
            stage.parallel(rest[0])

    def copy_left(self, copy: str | None, leaf: str | None = None) -> None:
        """Fill the packed left operand, if it is: at a loop, or before all (None)."""
        if copy is None:
            return
        stage = self.sch[copy]
        stage.unroll(stage.loops[-1])
        if leaf is not None:
            stage.compute_at(self.last, leaf)
        elif is_shared(self.group):
            stage.parallel(stage.loops[0])

    def hold(self) -> None:
        """The sums of a tile in registers; what is kept of the epilogue beside them."""
        product, anchor, leaf = self.product, self.product.anchor, self.leaf
        keep_at(self.sch, self.kept, self.last, leaf, product.target, unrolled=self.in_registers)
        unrolled, steps = anchor.axes[-2:-1], self.knobs.get("unroll", 1)
        lanes = product.tile.lanes
        hold_in_registers(self.sch, self.group, self.sums, leaf, unrolled, lanes, steps=steps)


def reads_left_far(product: Product) -> bool:
    """True if a copy of the left operand pays.

    It is read by broadcasts, at any distance, unless the rows of a tile push each other out of
    the first cache, or the whole comes from beyond the second for every column of tiles.
    """
    if product.left is None or product.column_tiles < WIDE:
        return False
    row = product.depth * product.anchor.dtype.itemsize
    ways = product.target.l1 // PAGE
    collide = row % PAGE == 0 and product.tile.rows + 2 > ways
    return collide or product.left_bytes > product.target.l2 // 2
