"""What a schedule needs to know of a matrix product: its loops, its operands, its tile.

    p = Product.of(group, target)
    p.rows, p.columns, p.depth                      # 128, 768, 3072
    p.tile                                          # Tile(rows=6, columns=16, lanes=8)
    p.right, p.right_is_constant                    # Operand("w", row=None, column=1), True

Reads a Group and a Target. The operands are found in the anchor's body: the left one is what is
read for a row whatever the column, the right one for a column whatever the row.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from minidlc.expr.index import Index, Var
from minidlc.expr.nodes import Load
from minidlc.expr.walk import walk
from minidlc.schedules.group import Group
from minidlc.schedules.tiles import computing_bits, register_tile
from minidlc.target import Target
from minidlc.te import Tensor


@dataclass(frozen=True)
class Tile:
    """The sums that stay in registers: `rows` x `columns` elements, vectors of `lanes`."""

    rows: int
    columns: int
    lanes: int

    @property
    def vectors(self) -> int:
        """Vectors in a row of the tile."""
        return self.columns // self.lanes

    @property
    def sums(self) -> int:
        """Vectors of the tile."""
        return self.rows * self.vectors


@dataclass(frozen=True)
class Operand:
    """A tensor read as a matrix, each of its dimensions by one axis of the product.

    `across` is the dimension of the rows (left operand) or of the columns (right operand); `batch`
    the leading axes of the product that it depends on, counted from the last axis: -3, -4, ….
    """

    name: str
    across: int
    batch: frozenset[int]


@dataclass(frozen=True)
class Product:
    """C[batch, row, column] = sum over k of left[batch, row, k] * right[batch, k, column].

    `batch`, `row` and `column` are loops of the last stage of the group; `row` is None where the
    result has but one axis. An operand is None where it is more than one tensor read in place.
    """

    group: Group
    anchor: Tensor
    target: Target
    tile: Tile
    left: Operand | None
    right: Operand | None

    @staticmethod
    def of(group: Group, target: Target) -> Product:
        """The product that the group is built around."""
        anchor, last = group.anchor, group.last
        assert anchor is not None
        lanes = target.lanes(computing_bits(group))
        rows = last.shape[-2] if len(last.axes) > 1 else 1
        height, vectors = register_tile(rows, last.shape[-1], lanes, tile_registers(target))
        tile = Tile(height, vectors * lanes, lanes)
        row, column = ("", *anchor.axes)[-2:]
        left = _operand(anchor, row, column) if row else None
        return Product(group, anchor, target, tile, left, _operand(anchor, column, row))

    def with_tile(self, knobs: Mapping[str, int]) -> Product:
        """The same in tiles of as many `rows` and `columns` as the knobs say, if they do."""
        rows, columns = knobs.get("rows", self.tile.rows), knobs.get("columns", self.tile.columns)
        return replace(self, tile=Tile(rows, columns, self.tile.lanes))

    @cached_property
    def batch(self) -> tuple[str, ...]:
        """The leading axes of the last stage."""
        return self.group.last.axes[:-2]

    @cached_property
    def row(self) -> str | None:
        """The axis of the last stage along the rows."""
        return self.group.last.axes[-2] if len(self.group.last.axes) > 1 else None

    @property
    def column(self) -> str:
        """The axis of the last stage along the columns."""
        return self.group.last.axes[-1]

    @property
    def rows(self) -> int:
        """Rows of each product."""
        return self.group.last.shape[-2] if self.row else 1

    @property
    def columns(self) -> int:
        """Columns of each product."""
        return self.group.last.shape[-1]

    @property
    def depth(self) -> int:
        """Products that are added up for an element."""
        return math.prod(extent for _, extent in self.anchor.reduce_axes)

    @property
    def repeats(self) -> int:
        """Products of the batch."""
        return math.prod(self.group.last.shape[:-2])

    @property
    def right_is_constant(self) -> bool:
        """True if the right operand is known at compile time."""
        return self.right is not None and self.right.name in self.group.constants

    @cached_property
    def is_gathered(self) -> bool:
        """True if something is read for neighbouring columns that are no neighbours in memory."""
        assert self.anchor.body is not None
        column = self.anchor.axes[-1] if self.anchor.axes else ""
        loads = [e for e in walk(self.anchor.body) if isinstance(e, Load)]
        return any(
            column in _variables(e) and column not in {v.name for v in e.index[-1].vars()}
            for e in loads
        )

    @property
    def left_bytes(self) -> int:
        """Size of one left operand."""
        return self.rows * self.depth * self.anchor.dtype.itemsize

    @property
    def right_bytes(self) -> int:
        """Size of one right operand."""
        return self.depth * self.columns * self.anchor.dtype.itemsize

    @property
    def is_deep(self) -> bool:
        """True if half of the second cache does not hold the right operand's columns of a tile."""
        strip = self.depth * self.tile.columns * self.anchor.dtype.itemsize
        return strip >= self.target.l2 // 2

    @property
    def cycles(self) -> int:
        """Cycles of the multiply-adds of one product: two a cycle, each four cycles long."""
        step = max(self.tile.sums // 2, 4)
        return self.row_tiles * self.column_tiles * self.depth * step

    @property
    def row_tiles(self) -> int:
        """Tiles from the top of the result to its bottom."""
        return -(-self.rows // self.tile.rows)

    @property
    def column_tiles(self) -> int:
        """Tiles from left to right."""
        return -(-self.columns // self.tile.columns)


def tile_registers(target: Target) -> int:
    """Vector registers for a tile and its operands."""
    return target.registers - (3 if target.is_arm else 0)  # loads of the left operand


def _operand(anchor: Tensor, own: str, other: str) -> Operand | None:
    """The one tensor that is read for axis `own` and not for `other`, a dimension an axis."""
    assert anchor.body is not None
    loads = [e for e in walk(anchor.body) if isinstance(e, Load)]
    mine = [e for e in loads if own in _variables(e) and other not in _variables(e)]
    if len(mine) != 1:
        return None
    (load,) = mine
    plain = all(e == Index.of(v) for e in load.index for v in e.vars())
    given = any(t.name == load.buffer and t.body is None for t in anchor.inputs)
    if not plain or not given or sum(e.buffer == load.buffer for e in loads) > 1:
        return None
    batch = frozenset(
        place - len(anchor.axes)
        for place, axis in enumerate(anchor.axes[:-2])
        if axis in _variables(load)
    )
    return Operand(load.buffer, load.index.index(Index.of(Var(own))), batch)


def _variables(load: Load) -> frozenset[str]:
    return frozenset(v.name for e in load.index for v in e.vars())
