"""Whether the iterations of a loop may run in any order, or at once.

    for i in serial(0, 4):                          # independent: each i has its own row of C
        for j in serial(0, 8):
            C[i, j] = A[i] + C[i, j]
    for k in serial(0, 4):                          # not: all k update one element
        S[0] = S[0] + A[k]

Reads statements. Conservative: False may be a false alarm, True never is.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from minidlc.expr.index import (
    Index,
    Mod,
    Ranges,
    Var,
    atoms,
    bounds,
    loop_ranges,
    operands,
    simplify,
    value_range,
)
from minidlc.expr.walk import values_in
from minidlc.loop.nodes import Alloc, Block, For, If, Kind, Stmt, Store, walk
from minidlc.loop.regions import Access, accesses
from minidlc.support.errors import VerifyError


def independent(loop: For, ranges: Ranges | None = None) -> bool:
    """True if no iteration of `loop` touches an element that another one writes.

    `ranges` are those of the variables around. Two accesses of a buffer that is not allocated
    inside the loop are apart if in some dimension both have the factor k of the loop variable and
    what else stands there spreads by less than |k|; so are [v//n] and [v%n] together.
    """
    return not any(True for _ in conflicts(loop, ranges))


def check_parallel(s: Stmt, ranges: Ranges) -> None:
    """Refuse a parallel loop whose iterations are not proved independent: VerifyError MDLC0462."""
    match s:
        case For(var, extent, kind, body):
            clash = next(conflicts(s, ranges), None) if kind is Kind.PARALLEL else None
            if clash is not None:
                at = " and ".join(f"{a.buffer}[{', '.join(map(str, a.index))}]" for a in clash)
                raise VerifyError(
                    f"two iterations of the parallel loop {var} may meet at one element",
                    notes=(at,),
                    hint="make the loop serial",
                    code="MDLC0462",
                )
            check_parallel(body, loop_ranges(((var, extent),), ranges))
        case Alloc(body=body) | If(body=body):
            check_parallel(body, ranges)
        case Block(stmts):
            for child in stmts:
                check_parallel(child, ranges)
        case Store():
            pass


def conflicts(loop: For, ranges: Ranges | None = None) -> Iterator[tuple[Access, Access]]:
    """The pairs of accesses that are not proved apart for two iterations of `loop`."""
    around = ranges or {}
    span = value_range(loop.extent, around)
    if span is not None and span[1] <= 1:
        return
    private = {s.buffer for s in walk(loop.body) if isinstance(s, Alloc)}
    outer = ((loop.var, loop.extent),)
    found = [a for a in dict.fromkeys(accesses(loop.body, outer)) if a.buffer not in private]
    for n, a in enumerate(found):
        for b in found[n:]:
            if a.buffer == b.buffer and (a.write or b.write) and not _apart(a, b, loop.var, around):
                yield a, b


def _apart(a: Access, b: Access, var: Var, ranges: Ranges) -> bool:
    """Whether `a` and `b` never meet in two different iterations v and w of the loop of `var`."""
    pairs = zip(a.index, b.index, strict=True)
    return _tell(var, [f for x, y in pairs for f in _agreed(x, y, a, b, var, ranges)])


def _agreed(x: Index, y: Index, a: Access, b: Access, var: Var, ranges: Ranges) -> list[Index]:
    """What must be equal in both iterations for x = y: f, if x is g*f(v) + r and y is g*f(w) + s.

    g*(f(v) - f(w)) = s - r is a multiple of g, so it is 0 if |s - r| < g, whatever the loops
    inside do.
    """
    part = Index(tuple((t, k) for t, k in x.terms if _depends(Index.of(t), var)), 0)
    inner = {v for v, _ in (*a.loops, *b.loops)} - {var}
    if not part.terms or part.vars() & inner:
        return []
    g = math.gcd(*(k for _, k in part.terms))
    x_low, x_high = bounds(x - part, a.loops, ranges)
    y_low, y_high = bounds(y - part, b.loops, ranges)
    one, two = value_range(x_high - y_low, ranges), value_range(y_high - x_low, ranges)
    if one is None or two is None or max(one[1], two[1]) >= g:
        return []
    return [Index(tuple((atom, k // g) for atom, k in part.terms), 0)]


def _depends(e: Index, var: Var) -> bool:
    """Whether `e` is a function of `var`; what is in memory may change from one use to the next."""
    return var in e.vars() and not values_in(e)


def _tell(var: Var, known: list[Index]) -> bool:
    """Whether these values together tell which iteration it is: v itself, or v//n and v%n."""
    while not any(e.coefficient(var) and len(e.terms) == 1 for e in known):
        joined = _join(known)
        if joined is None:
            return False
        known = joined
    return True


def _join(known: list[Index]) -> list[Index] | None:
    """Two known values n*q and r of `x//n` and `x%n` put together to x, or None."""
    for e in known:
        for c in (atom.c for atom in atoms(e) if isinstance(atom, Mod)):
            for f in known:
                whole = simplify(c * f + e, {})
                if f is not e and _size(whole) < _size(e) + _size(f):
                    return [x for x in known if x is not e and x is not f] + [whole]
    return None


def _size(e: Index) -> int:
    return sum(1 + sum(_size(part) for part in operands(atom)) for atom, _ in e.terms)
