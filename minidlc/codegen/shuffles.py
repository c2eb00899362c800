"""Lanes that are in vectors already: shuffles in place of a load for each lane.

    column(b, rows, 3)              # row t's element 3 in lane t, for rows t = 0, 1, …
    picked(b, [v, w], [0, 2, 4, 6]) # elements 0, 2, … of v and w, one after another

All columns of a tile of w rows take w * log2(w) shuffles of two vectors: swap halves of blocks of
2, 4, 8, … (J. Eklundh, "A fast computer method for matrix transposing", 1972). Steps that columns
share are written once. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Sequence

from minidlc.codegen.values import Builder, Value, lane_numbers


def column(b: Builder, rows: Sequence[Value], number: int) -> Value:
    """Lane t of the result is lane `number` of rows[t]; as many rows as lanes, a power of two."""
    width = len(rows)

    def after(block: int, place: int) -> str:
        """Vector `place` when blocks of less than `block` have been swapped."""
        if block == 1:
            return rows[place].text
        half = block // 2
        low, high = after(half, place & ~half), after(half, place | half)
        picks = [_pick(lane, half, place & half != 0, width) for lane in range(width)]
        type = rows[0].type
        mask = f"<{width} x i32> {lane_numbers(picks, 'i32')}"
        return b.same(f"shufflevector {type} {low}, {type} {high}, {mask}")

    return Value(after(width, number), rows[0].dtype, width)


def picked(b: Builder, pieces: Sequence[Value], places: Sequence[int]) -> Value:
    """Lane t of the result is element places[t] of the pieces laid end to end; -1: any.

    Pieces are of equal width. Two of them are one shuffle; of more, each pair gives its lanes, and
    one shuffle more puts them together.
    """
    width, lanes = pieces[0].width, len(places)
    if len(pieces) <= 2:
        type = pieces[0].type
        second = pieces[-1].text if len(pieces) == 2 else "poison"
        mask = ", ".join(f"i32 {'poison' if place < 0 else place}" for place in places)
        text = f"shufflevector {pieces[0]}, {type} {second}, <{lanes} x i32> <{mask}>"
        return Value(b.same(text), pieces[0].dtype, lanes)
    half = 2 if len(pieces) <= 4 else len(pieces) // 2
    first = [place if place < half * width else -1 for place in places]
    later = [place - half * width if place >= half * width else -1 for place in places]
    parts = picked(b, pieces[:half], first), picked(b, pieces[half:], later)
    return picked(
        b, parts, [t if first[t] >= 0 else t + lanes if later[t] >= 0 else -1 for t in range(lanes)]
    )


def _pick(lane: int, half: int, upper: bool, width: int) -> int:
    """Where a lane comes from: the same lane of one vector, or its neighbour block in the other.

    Vectors are numbered one after another: from `width` on it is the second.
    """
    if upper:
        return lane + width if lane & half else lane + half
    return lane - half + width if lane & half else lane
