"""Loop IR -> rows: every loop with its extent and the bytes it touches, every statement.

    rows = nest_of(fn)                              # rows[0]: parallel iook, 28 times, depth 0
    rows[0].touched                                 # (('pad', 4096), ('Parameter5', 800), …)

Reads a LoopFunction; the footprints come from loop/regions.py. Treated in course chapter
04_lowering.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from minidlc.expr.index import Index, Interval, Var, loop_ranges, value_range
from minidlc.expr.types import TensorType
from minidlc.loop.nodes import (
    Alloc,
    Block,
    For,
    If,
    Kind,
    LoopFunction,
    Scope,
    Stmt,
    Store,
    lines,
    walk,
)
from minidlc.loop.regions import accesses, regions

LIMIT = 40  # rows of a nest on a slide
ONCE = Index.of(1)

Ranges = Mapping[Var, Interval]


@dataclass(frozen=True)
class LoopRow:
    """A loop: `extent` as printed, `times` its largest value, bytes of each buffer it touches.

    Buffers in registers are not in memory and not in `touched`.
    """

    depth: int
    var: str
    kind: Kind
    extent: str
    times: int
    touched: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class TextRow:
    """A statement, a condition or an allocation; `faint` for what computes nothing."""

    depth: int
    text: str
    faint: bool = False


Row = LoopRow | TextRow


@dataclass(frozen=True)
class _Place:
    """What is known around a statement."""

    depth: int
    ranges: Ranges
    buffers: Mapping[str, TensorType]
    registers: frozenset[str]


def nest_of(fn: LoopFunction, limit: int = LIMIT) -> tuple[Row, ...]:
    """The rows of a function; of a large one, all around its heaviest statement.

    Loops that run once are left out: they change nothing.
    """
    allocated = [s for s in walk(fn.body) if isinstance(s, Alloc)]
    registers = frozenset(s.buffer for s in allocated if s.scope is Scope.REGISTER)
    place = _Place(0, {}, fn.buffers(), registers)
    folded: set[int] = set()
    for loop in _light(fn.body):
        if len(list(_rows(fn.body, place, folded))) <= limit:
            break
        folded.add(id(loop))
    return tuple(_rows(fn.body, place, folded))


def steps(s: Stmt, ranges: Ranges | None = None) -> int:
    """How many stores `s` runs, every condition taken to hold."""
    around = ranges or {}
    match s:
        case For(var, extent, _, body):
            times = _times(extent, around)
            inner = (loop for loop in walk(body) if isinstance(loop, For))
            if any(var in loop.extent.vars() for loop in inner):  # min(14, 127 - 14*io)
                return sum(steps(body, {**around, var: (i, i)}) for i in range(times))
            return times * steps(body, loop_ranges([(var, extent)], around))
        case Alloc(body=body) | If(body=body):
            return steps(body, around)
        case Block(stmts):
            return sum(steps(child, around) for child in stmts)
        case Store():
            return 1


def deepest(s: Stmt) -> int:
    """The most loops around one store, those that run once not counted."""
    return max((sum(n != ONCE for _, n in a.loops) for a in accesses(s)), default=0)


def loop_count(s: Stmt) -> int:
    """How many loops `s` has, those that run once not counted."""
    return sum(isinstance(inner, For) and inner.extent != ONCE for inner in walk(s))


def _times(extent: Index, ranges: Ranges) -> int:
    span = value_range(extent, ranges)
    return max(0, span[1]) if span else 1


def _light(body: Stmt) -> list[For]:
    """The loops beside the heaviest statement, least work first: what a picture can leave out."""
    beside: list[tuple[int, int, For]] = []
    ranges: Ranges = {}
    s = body
    while not isinstance(s, Store):
        match s:
            case For(var, extent, _, inner):
                ranges, s = loop_ranges([(var, extent)], ranges), inner
            case Alloc(body=inner) | If(body=inner):
                s = inner
            case Block(stmts):
                if not stmts:
                    break
                weights = [steps(child, ranges) for child in stmts]
                heaviest = weights.index(max(weights))
                beside += [
                    (weight, len(beside) + i, child)
                    for i, (weight, child) in enumerate(zip(weights, stmts, strict=True))
                    if isinstance(child, For) and i != heaviest
                ]
                s = stmts[heaviest]
    return [loop for _, _, loop in sorted(beside, key=lambda entry: entry[:2])]


def _rows(s: Stmt, place: _Place, folded: set[int]) -> Iterator[Row]:
    match s:
        case For() if id(s) in folded:
            yield TextRow(place.depth, _folded(s, place), faint=True)
        case For(var, extent, kind, body):
            deeper = replace(place, ranges=loop_ranges([(var, extent)], place.ranges))
            if extent != ONCE:
                times = _times(extent, place.ranges)
                touched = _touched(s, place)
                yield LoopRow(place.depth, var.name, kind, str(extent), times, touched)
                deeper = replace(deeper, depth=place.depth + 1)
            yield from _rows(body, deeper, folded)
        case If(_, body):
            yield TextRow(place.depth, lines(s)[0], faint=True)
            yield from _rows(body, replace(place, depth=place.depth + 1), folded)
        case Alloc(buffer, type, scope, body):
            yield TextRow(place.depth, f"{buffer} = alloc({type}, {scope})", faint=True)
            yield from _rows(body, place, folded)
        case Block(stmts):
            for child in stmts:
                yield from _rows(child, place, folded)
        case Store():
            yield TextRow(place.depth, lines(s)[0])


def _folded(loop: For, place: _Place) -> str:
    loops = loop_count(loop)
    written = dict.fromkeys(s.buffer for s in walk(loop) if isinstance(s, Store))
    work = steps(loop, place.ranges)
    return f"… {loops} loop{'s' * (loops > 1)} that write {', '.join(written)}: {work:,} stores"


def _touched(loop: For, place: _Place) -> tuple[tuple[str, int], ...]:
    """Bytes of each buffer that one run of the loop touches, the largest first."""
    names = dict.fromkeys(a.buffer for a in accesses(loop))
    sizes = {n: _footprint(loop, n, place) for n in names if n not in place.registers}
    return tuple(sorted(sizes.items(), key=lambda item: -item[1]))


def _footprint(loop: For, buffer: str, place: _Place) -> int:
    """Bytes of the hull of all accesses, never more than the buffer has."""
    box = regions(loop, buffer, "rw", place.ranges) or ()
    type = place.buffers[buffer]
    sides: list[int] = []
    for (_, extent), dim in zip(box, type.shape, strict=True):
        span = value_range(extent, place.ranges)
        whole = value_range(Index.of(dim), place.ranges)
        known = [high for ends in (span, whole) if ends for high in (ends[1],)]
        sides.append(max(0, min(known)) if known else 1)
    return math.prod(sides) * type.dtype.itemsize
