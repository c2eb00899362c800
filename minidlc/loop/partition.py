"""Cut loops where a min, a condition or a padding test becomes certain: a main part without masks.

    for io in serial(0, 10):                            for io in serial(0, 9):
        for ii in unrolled(0, min(14, 127 - 14*io)):        for ii in unrolled(0, 14):
            C[14*io + ii] = 0.0                     ->          C[14*io + ii] = 0.0
                                                        C[126] = 0.0            # io = 9, ii = 0

Reads and writes statements. Partition only proposes where to cut; `simplify_stmt` proves what holds
in each part, so a badly chosen cut costs code, never correctness.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from minidlc.expr.index import (
    Cond,
    Index,
    Interval,
    Max,
    Min,
    Ranges,
    Var,
    atoms,
    value_range,
)
from minidlc.expr.nodes import Expr, Select
from minidlc.expr.walk import children, indices
from minidlc.loop.nodes import Alloc, Block, For, If, Kind, Stmt, Store, block, values, walk
from minidlc.loop.simplify import simplify_stmt, substitute_stmt

MAX_CUTS = 6
"""A loop that would need more cuts keeps its guards."""

MAX_GROWTH = 1200
"""Statements that all cuts of one call may add: copies of loop bodies are compiled one by one."""


def partition(s: Stmt, ranges: Ranges | None = None) -> Stmt:
    """Cut the serial and parallel loops of constant extent in `s`, from the outside in.

    `ranges` are those of the variables around. The result computes the same; loops of one
    iteration are replaced by their bodies.
    """
    around = ranges or {}
    simple = simplify_stmt(s, around, drop_unit_loops=True)
    return _Partition(MAX_GROWTH).stmt(simple, around)


@dataclass
class _Partition:
    """One call: what growth is left."""

    growth: int

    def stmt(self, s: Stmt, ranges: Ranges) -> Stmt:
        match s:
            case For():
                return self.loop(s, ranges)
            case Alloc(body=body) | If(body=body):
                new = self.stmt(body, ranges)
                return s if new is body else replace(s, body=new)
            case Block(stmts):
                parts = tuple(self.stmt(child, ranges) for child in stmts)
                same = all(x is y for x, y in zip(parts, stmts, strict=True))
                return s if same else block(*parts)
            case Store():
                return s

    def loop(self, s: For, ranges: Ranges) -> Stmt:
        """Cut one loop, if that decides something, and go on inside its parts."""
        if next(_quantities(s, {}), None) is None:
            return s  # nothing to decide, in the loops inside neither
        cuts = _cuts(s, ranges)
        if 0 < len(cuts) <= MAX_CUTS and len(cuts) * _size(s.body) <= self.growth:
            parts = _parts(s, cuts, ranges)
            if min(map(_undecided, parts)) < _undecided(s):
                self.growth -= len(cuts) * _size(s.body)
                return block(*(self.part(part, s.var, ranges) for part in parts))
        return self.inside(s, ranges)

    def part(self, part: Stmt, var: Var, ranges: Ranges) -> Stmt:
        """Go on inside a part, which is a loop over `var` or what is left of one iteration."""
        if isinstance(part, For) and part.var == var:
            return self.inside(part, ranges)
        return self.stmt(part, ranges)

    def inside(self, s: For, ranges: Ranges) -> Stmt:
        """Partition the body of a loop that is not cut itself."""
        body = self.stmt(s.body, _inner(s, ranges))
        return s if body is s.body else replace(s, body=body)


def _parts(s: For, cuts: list[int], ranges: Ranges) -> list[Stmt]:
    """The loop in pieces, each simplified for the iterations it has."""
    parts: list[Stmt] = []
    for start, stop in zip([0, *cuts], [*cuts, s.extent.const], strict=True):
        body = substitute_stmt(s.body, {s.var: s.var + start}) if start else s.body
        part = replace(s, extent=Index.of(stop - start), body=body)
        parts.append(simplify_stmt(part, ranges, drop_unit_loops=True))
    return parts


def _cuts(s: For, ranges: Ranges) -> list[int]:
    """The iterations at which the sign of some quantity inside the loop becomes certain."""
    if s.kind not in (Kind.SERIAL, Kind.PARALLEL) or not s.extent.is_const:
        return []
    found: set[int] = set()
    for d, inner in _quantities(s.body, _inner(s, ranges)):
        k = d.coefficient(s.var)
        span = value_range(d - k * s.var, inner) if k else None
        if span is not None:
            low, high = span
            # k*v + low >= 0 holds from there on (k > 0) or up to there; so does k*v + high < 0
            found |= {-(low // k), -(high // k)} if k > 0 else {low // -k + 1, high // -k + 1}
    return sorted(cut for cut in found if 0 < cut < s.extent.const)


def _inner(s: For, ranges: Ranges) -> dict[Var, Interval]:
    """The ranges inside a loop."""
    inner = dict(ranges)
    inner.pop(s.var, None)
    span = value_range(s.extent, ranges)
    return inner if span is None else {**inner, s.var: (0, max(span[1] - 1, 0))}


def _quantities(s: Stmt, ranges: Ranges) -> Iterator[tuple[Index, Ranges]]:
    """Every d whose sign decides a min, a max or a condition in `s`, with the ranges there."""
    for value in values(s):
        yield from ((d, ranges) for d in _expr_signs(value))
    match s:
        case For(_, extent, _, body):
            yield from ((d, ranges) for d in _signs(extent))
            yield from _quantities(body, _inner(s, ranges))
        case Alloc(body=body):
            yield from _quantities(body, ranges)
        case If(cond, body):
            if isinstance(cond, Cond):
                yield from ((d, ranges) for d in _cond_signs(cond))
            yield from _quantities(body, ranges)
        case Block(stmts):
            for child in stmts:
                yield from _quantities(child, ranges)
        case Store(_, index):
            for e in index:
                yield from ((d, ranges) for d in _signs(e))


def _signs(e: Index) -> Iterator[Index]:
    for atom in atoms(e):
        if isinstance(atom, (Min, Max)):
            yield atom.a - atom.b


def _cond_signs(cond: Cond) -> Iterator[Index]:
    for e in cond.ge:
        yield e
        yield from _signs(e)


def _expr_signs(e: Expr) -> Iterator[Index]:
    """The signs in an expression; a shared sub-expression is visited once."""
    seen: set[int] = set()
    todo = [e]
    while todo:
        x = todo.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, Select) and isinstance(x.cond, Cond):
            yield from _cond_signs(x.cond)
        else:
            for index in indices(x):
                yield from _signs(index)
        todo += children(x)


def _undecided(s: Stmt) -> int:
    """How many tests are left in `s`."""
    return sum(1 for _ in _quantities(s, {}))


def _size(s: Stmt) -> int:
    return sum(1 for _ in walk(s))
