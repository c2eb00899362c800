"""How much memory each loop touches, and how much of it must come from beyond a cache.

    tree = nest(fn)                                 # lines touched by every loop of a kernel
    sum(tree.lines.values())                        # by all of it: what is moved at least
    traffic(tree, 32 << 10)                         # {'a': 4096.0, 'b': 65536.0}: into such a cache

Of a buffer, a loop touches a box: along each axis a number of points in a span, which grows by what
the loop's variable is multiplied with. A loop of which one iteration fits into a cache loads each
line once; one that is too large loads all of it again in every iteration. That is the model of
M. Wolf and M. Lam, A Data Locality Optimizing Algorithm, 1991. Counted are the largest extents,
and of positions with `//`, `%`, min and max the slope only: an estimate, and a quick one.
Reads loop IR. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from minidlc.expr.index import FloorDiv, Index, Max, Min, Mod, Opaque, Ranges, Var, value_range
from minidlc.expr.types import TensorType
from minidlc.expr.walk import values_in
from minidlc.loop.nodes import Alloc, Block, For, If, LoopFunction, Scope, Stmt, Store, values
from minidlc.loop.regions import loads

LINE = 64  # bytes of a cache line

Slopes: TypeAlias = tuple[tuple[Var, float], ...]
_Axis: TypeAlias = tuple[float, float, float]  # first and last position, number of points
_Box: TypeAlias = tuple[_Axis, ...]
_Boxes: TypeAlias = dict[tuple[str, tuple[Slopes, ...]], _Box]


@dataclass(frozen=True)
class Nest:
    """A statement that runs `trips` times: lines of each buffer in all of them, and in one.

    A statement that is no loop runs once; `parts` are the loops inside, or those of a sequence.
    """

    trips: int
    lines: Mapping[str, float]
    once: Mapping[str, float]
    parts: tuple[Nest, ...]


def nest(fn: LoopFunction) -> Nest:
    """The loops of a kernel with what they touch; buffers in registers are no memory."""
    types = {p.name: p.type for p in fn.params}
    types |= {n: t for n, t in fn.buffers().items() if n not in types}
    for name in registers(fn.body):
        del types[name]
    return _Reader(types).nest(fn.body, {})[0]


def registers(s: Stmt) -> set[str]:
    """Names of the buffers in registers."""
    match s:
        case Alloc(buffer, _, scope, body):
            return registers(body) | ({buffer} if scope is Scope.REGISTER else set[str]())
        case For(body=body) | If(body=body):
            return registers(body)
        case Block(stmts):
            return set[str]().union(*map(registers, stmts))
        case Store():
            return set()


def traffic(tree: Nest, capacity: int) -> dict[str, float]:
    """Lines of each buffer that come into a cache of `capacity` bytes, in all iterations.

    A loop of which one iteration fits keeps what the next one needs again.
    """
    if LINE * sum(tree.once.values()) <= capacity or not tree.parts:
        return dict(tree.lines)
    total = dict[str, float]()
    for part in tree.parts:
        for buffer, lines in traffic(part, capacity).items():
            total[buffer] = total.get(buffer, 0.0) + tree.trips * lines
    return total


@lru_cache(maxsize=1 << 14)
def slopes(e: Index) -> Slopes:
    """How far a position moves with each variable; 0 where that is not known.

    `//` divides, `%` keeps the slope (an axis ends where its buffer ends), a lookup knows none.
    """
    found = dict[Var, float]()
    for atom, k in e.terms:
        for var, slope in _atom_slopes(atom):
            found[var] = found.get(var, 0.0) + k * slope
    return tuple(sorted(found.items(), key=lambda item: item[0].name))


def _atom_slopes(atom: Var | Min | Max | FloorDiv | Mod | Opaque) -> Slopes:
    match atom:
        case Var():
            return ((atom, 1.0),)
        case FloorDiv(a, c):
            return tuple((var, slope / c) for var, slope in slopes(a))
        case Mod(a):
            return slopes(a)
        case Min(a, b) | Max(a, b):
            both = (*slopes(a), *slopes(b))
            steepest = {v: s for v, s in sorted(both, key=lambda item: abs(item[1]))}
            return tuple(steepest.items())
        case Opaque():
            return tuple((var, 0.0) for var in atom.vars())


class _Reader:
    """Boxes from the inside out: each loop stretches those of its body."""

    def __init__(self, types: Mapping[str, TensorType]) -> None:
        self.types = types

    def nest(self, s: Stmt, ranges: Ranges) -> tuple[Nest, _Boxes]:
        match s:
            case For():
                return self.loop(s, trips_of(s.extent, ranges), ranges)
            case Alloc(body=body):
                return self.nest(body, ranges)
            case Block(stmts):
                pairs = [self.nest(child, ranges) for child in stmts]
                return self.sequence([p for p, _ in pairs], [b for _, b in pairs])
            case If(body=body):
                inner, boxes = self.nest(body, ranges)
                return self.sequence([inner], [self.reads(s), boxes])
            case Store():
                return self.sequence([], [self.reads(s), self.access(s.buffer, s.index)])

    def loop(self, s: For, trips: int, ranges: Ranges) -> tuple[Nest, _Boxes]:
        inner, boxes = self.nest(s.body, {**ranges, s.var: (0, max(trips - 1, 0))})
        wider = _Boxes()
        for (buffer, moves), box in boxes.items():
            key, stretched = _stretched(moves, box, s.var, trips)
            _add(wider, (buffer, key), stretched)
        if not trips:
            return Nest(0, {}, {}, ()), {}
        return Nest(trips, self.lines(wider), inner.lines, (inner,)), wider

    def sequence(self, parts: list[Nest], boxes: list[_Boxes]) -> tuple[Nest, _Boxes]:
        if len(parts) == len(boxes) == 1:
            return parts[0], boxes[0]
        union = _Boxes()
        for found in boxes:
            for key, box in found.items():
                _add(union, key, box)
        lines = self.lines(union)
        return Nest(1, lines, lines, tuple(parts)), union

    def reads(self, s: Stmt) -> _Boxes:
        found = _Boxes()
        for e in values(s):
            for load in loads(e):
                for key, box in self.access(load.buffer, load.index).items():
                    _add(found, key, box)
        return found

    def access(self, buffer: str, index: tuple[Index, ...]) -> _Boxes:
        if buffer not in self.types:
            return {}
        sizes = self.types[buffer].dims
        box = tuple(_first(e, size) for e, size in zip(index, sizes, strict=True))
        return {(buffer, tuple(map(slopes, index))): box}

    def lines(self, boxes: _Boxes) -> dict[str, float]:
        found = dict[str, float]()
        for (buffer, _), box in boxes.items():
            found[buffer] = found.get(buffer, 0.0) + _lines(self.types[buffer], box)
        return {b: min(n, math.ceil(self.types[b].nbytes / LINE)) for b, n in found.items()}


def trips_of(extent: Index, ranges: Ranges) -> int:
    """The most iterations that a loop of this extent can have."""
    if extent.is_const:
        return max(extent.const, 0)
    span = value_range(extent, ranges)
    return max(span[1], 0) if span else 0


def _first(e: Index, size: int) -> _Axis:
    """The one position of an access; a lookup may be anywhere on the axis."""
    return (0.0, size - 1.0, 1.0) if values_in(e) else (float(e.const), float(e.const), 1.0)


def _stretched(
    moves: tuple[Slopes, ...], box: _Box, var: Var, trips: int
) -> tuple[tuple[Slopes, ...], _Box]:
    """The box while `var` runs over 0 .. trips - 1, and the slopes without it."""
    if not any(v is var or v == var for axis in moves for v, _ in axis):
        return moves, box
    kept, wider = list[Slopes](), list[_Axis]()
    for axis, (first, last, points) in zip(moves, box, strict=True):
        slope = next((k for v, k in axis if v == var), None)
        if slope is not None:
            way = slope * (trips - 1)
            first, last, points = first + min(way, 0.0), last + max(way, 0.0), points * trips
            points = min(points, last - first + 1)
            axis = tuple((v, k) for v, k in axis if v != var)
        kept.append(axis)
        wider.append((first, last, points))
    return tuple(kept), tuple(wider)


def _add(boxes: _Boxes, key: tuple[str, tuple[Slopes, ...]], box: _Box) -> None:
    """Put a box beside those of the same slopes: the hull of the two."""
    old = boxes.get(key)
    if old is not None and old != box:
        box = tuple(_hull(a, b) for a, b in zip(old, box, strict=True))
    boxes[key] = box


def _hull(a: _Axis, b: _Axis) -> _Axis:
    if a == b:
        return a
    first, last = min(a[0], b[0]), max(a[1], b[1])
    return first, last, min(a[2] + b[2], last - first + 1)


@lru_cache(maxsize=1 << 12)
def _lines(type: TensorType, box: _Box) -> float:
    """Cache lines of the points: whole rows of the last axes lie one after another."""
    run, step, others, joined = float(type.dtype.itemsize), type.dtype.itemsize, 1.0, True
    for size, (first, last, points) in zip(reversed(type.dims), reversed(box), strict=True):
        span = max(1.0, min(float(size), math.floor(last - first + 1e-6) + 1))
        points = max(1.0, min(points, span))
        if joined:
            apart = step * span / points  # bytes from a point to the next
            run = step * span if apart < LINE else points * max(run, LINE)
            joined = span == size and apart < LINE
        else:
            others *= points
        step *= size
    return math.ceil(run / LINE) * others
