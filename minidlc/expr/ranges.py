"""Which values a position takes where the ranges of its variables are known.

    R = {io: (0, 9), ii: (0, 13)}
    value_range(14 * io + ii, R)                    # (0, 139)
    value_range(minimum(14, 127 - 14 * io), R)      # (1, 14)

Reads positions (expr/affine.py); expr/index.py, which gives this out again, simplifies by it.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

from minidlc.expr.affine import Atom, FloorDiv, Index, Max, Min, Mod, Opaque, Var

Interval: TypeAlias = tuple[int, int]
Ranges: TypeAlias = Mapping[Var, Interval]
"""The values a variable takes, both ends included."""
Spans: TypeAlias = tuple[tuple[Var, Interval], ...]

_DEPTH = 4  # min and max distributed over a sum at most this deep: each doubles the work


def value_range(e: Index, ranges: Ranges) -> Interval | None:
    """Constant bounds of `e`, both ends included; None if a variable without a range keeps it open.

    Two rules beyond interval arithmetic keep what belongs together, together: a min or max is
    distributed over the rest of the sum, and `c*(a//c)` is read as `a - a%c`.
    """
    low = high = e.const
    for atom, k in e.terms:
        if type(atom) is not Var:
            return _known_range(e, spans(e, ranges))
        span = ranges.get(atom)
        if span is None:
            return None
        low += k * span[0 if k > 0 else 1]
        high += k * span[1 if k > 0 else 0]
    return (low, high) if low <= high else None


def spans(e: Index, ranges: Ranges) -> Spans:
    """The ranges that matter to a position: as few as can be, so that answers are found again."""
    return tuple((v, ranges[v]) for v in e.vars() if v in ranges)


@lru_cache(maxsize=1 << 14)
def _known_range(e: Index, around: Spans) -> Interval | None:
    return _range(e, dict(around), _DEPTH)


def _range(e: Index, ranges: Ranges, depth: int) -> Interval | None:
    if depth and len(e.terms) > 1:
        for atom, k in e.terms:
            if isinstance(atom, (Min, Max)):
                return _range_distributed(e, atom, k, ranges, depth - 1)
    low = high = e.const
    for atom, k in e.terms:
        span = _atom_range(atom, ranges, depth)
        if span is None:
            low, high = 1, 0
            break
        low += k * span[0 if k > 0 else 1]
        high += k * span[1 if k > 0 else 0]
    plain = (low, high) if low <= high else None
    if depth and len(e.terms) > 1:
        for atom, k in e.terms:
            if isinstance(atom, FloorDiv) and k % atom.c == 0:
                aligned = e + k // atom.c * (atom.a - atom.a % atom.c) - k * atom
                return _intersect(plain, _range(aligned, ranges, depth - 1))
    return plain


def _intersect(a: Interval | None, b: Interval | None) -> Interval | None:
    if a is None or b is None:
        return a or b
    return max(a[0], b[0]), min(a[1], b[1])


def _range_distributed(
    e: Index, atom: Min | Max, k: int, ranges: Ranges, depth: int
) -> Interval | None:
    """Range of `rest + k*min(a, b)` as that of `min(rest + k*a, rest + k*b)`; k < 0 swaps ends."""
    rest = e - k * atom
    a, b = _range(rest + k * atom.a, ranges, depth), _range(rest + k * atom.b, ranges, depth)
    if a is None or b is None:
        return None
    pick = min if isinstance(atom, Min) == (k > 0) else max
    return pick(a[0], b[0]), pick(a[1], b[1])


def _atom_range(atom: Atom, ranges: Ranges, depth: int) -> Interval | None:
    match atom:
        case Var():
            return ranges.get(atom)
        case Opaque():
            return 0, atom.last
        case Min(a, b) | Max(a, b):
            x, y = _range(a, ranges, depth), _range(b, ranges, depth)
            if x is None or y is None:
                return None
            pick = min if isinstance(atom, Min) else max
            return pick(x[0], y[0]), pick(x[1], y[1])
        case FloorDiv(a, c):
            x = _range(a, ranges, depth)
            return None if x is None else (x[0] // c, x[1] // c)
        case Mod(a, c):
            x = _range(a, ranges, depth)
            if x is None or x[0] // c != x[1] // c:
                return 0, c - 1
            return x[0] % c, x[1] % c
