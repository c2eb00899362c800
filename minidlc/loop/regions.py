"""Which part of a buffer a piece of loop IR touches: the boxes that everything else is sized by.

    for ii in serial(0, min(14, 127 - 14*io)):      # inside a loop io
        C[14*io + ii, 0] = A[14*io + ii + 1]

    regions(stmt, "C", "w")         # ((14*io, min(14, 127 - 14*io)), (0, 1)): (lo, extent) an axis
    regions(stmt, "A", "r")         # ((14*io + 1, min(14, 127 - 14*io)),)

Reads statements, writes nothing. Serves bounds inference, allocation, the verifier and fusion.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

from minidlc.expr.index import (
    Index,
    Interval,
    Ranges,
    Var,
    bounds,
    maximum,
    minimum,
    simplify,
)
from minidlc.expr.nodes import Expr, Load
from minidlc.expr.walk import children
from minidlc.loop.nodes import Alloc, Block, For, If, Stmt, Store, values

Box: TypeAlias = tuple[tuple[Index, Index], ...]
"""(lowest position, extent) of each axis, in the variables around the statement."""


@dataclass(frozen=True)
class Access:
    """One read or write of a buffer; the loops (variable, extent) around it, outermost first."""

    buffer: str
    index: tuple[Index, ...]
    write: bool
    loops: tuple[tuple[Var, Index], ...]


def loads(e: Expr) -> list[Load]:
    """Every load in `e`, each once; a shared sub-expression is visited once."""
    found: dict[Load, None] = {}
    seen: set[int] = set()
    todo = [e]
    while todo:
        x = todo.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, Load):
            found[x] = None
        todo += reversed(children(x))
    return list(found)


def accesses(s: Stmt, loops: tuple[tuple[Var, Index], ...] = ()) -> Iterator[Access]:
    """Every access inside `s`, in program order (the loads of a store before it)."""
    for e in values(s):
        for load in loads(e):
            yield Access(load.buffer, load.index, False, loops)
    match s:
        case For(var, extent, _, body):
            yield from accesses(body, (*loops, (var, extent)))
        case Alloc(body=body) | If(body=body):
            yield from accesses(body, loops)
        case Block(stmts):
            for child in stmts:
                yield from accesses(child, loops)
        case Store(buffer, index):
            yield Access(buffer, index, True, loops)


def regions(s: Stmt, buffer: str, mode: str, ranges: Ranges | None = None) -> Box | None:
    """The box of `buffer` that `s` reads ("r"), writes ("w") or both ("rw"); None if it does not.

    Bounds are symbolic in the variables around `s`, whose `ranges` may be given. The box is the
    hull of all accesses; conditions are ignored, so it may be larger than what is touched: clamp
    it to the buffer. Loops inside are taken to run at least once.
    """
    around = ranges or {}
    axes: list[dict[_Group, Interval]] | None = None
    for access in accesses(s):
        if access.buffer == buffer and ("w" if access.write else "r") in mode:
            axes = [{} for _ in access.index] if axes is None else axes
            for spread, e in zip(axes, access.index, strict=True):
                key = (e - e.const, access.loops)
                low, high = spread.get(key, (e.const, e.const))
                spread[key] = (min(low, e.const), max(high, e.const))
    return None if axes is None else tuple(_hull(spread, around) for spread in axes)


_Group: TypeAlias = tuple[Index, tuple[tuple[Var, Index], ...]]
"""Positions that differ by a number only, such as y, y + 1, y + 2, and the loops around them."""


def _hull(spread: dict[_Group, Interval], around: Ranges) -> tuple[Index, Index]:
    """(lowest position, extent) of an axis; numbers between the ends of a group cannot matter."""
    lows: list[Index] = []
    highs: list[Index] = []
    for (e, loops), (first, last) in spread.items():
        low, high = bounds(e, loops, around)
        lows.append(low + first)
        highs.append(high + last)
    low = simplify(reduce(minimum, lows), around)
    return low, simplify(reduce(maximum, highs) - low + 1, around)
