"""What the ranges of loop variables prove about positions: range, simplify, bounds.

    R = {io: (0, 9), ii: (0, 13)}
    value_range(14 * io + ii, R)                    # (0, 139)
    simplify((16 * io + ii) // 16, R) == io         # since 0 <= ii < 16
    bounds(14 * io + ii, [(io, 10), (ii, minimum(14, 127 - 14 * io))])      # (0, 126), exactly

One file to import positions from: expr/affine.py (records, operators), expr/evaluate.py and
expr/ranges.py are given out again.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache

from minidlc.expr.affine import (
    Arithmetic,
    Atom,
    Axis,
    Cond,
    FloorDiv,
    Index,
    Max,
    Min,
    Mod,
    Opaque,
    Position,
    Var,
    maximum,
    minimum,
    operands,
)
from minidlc.expr.evaluate import (
    atoms,
    check_equal,
    evaluate,
    evaluate_cond,
    map_leaves,
    opened,
    substitute,
    substitute_cond,
)
from minidlc.expr.ranges import Interval, Ranges, Spans, spans, value_range
from minidlc.support.extension import declare, dispatch, instance, items, overridden

__all__ = [
    "Arithmetic", "Atom", "Axis", "Cond", "FloorDiv", "Index", "Interval", "Max", "Min", "Mod",
    "Opaque", "Position", "Ranges", "Var", "atoms", "bounds", "decide", "evaluate",
    "evaluate_cond", "loop_ranges", "map_leaves", "maximum", "minimum", "opened", "operands",
    "simplify", "simplify_cond", "substitute", "substitute_cond", "value_range",
]  # fmt: skip

declare(
    "simplify",
    "(e: Index, ranges: Ranges) -> Index",
    "simplify a position",
    returns=instance(Index),
)
declare(
    "bounds",
    "(e: Index, loops: Sequence[tuple[Var, Index]], ranges: Ranges) -> (Index, Index)",
    "smallest and largest value of a position while loops run",
    returns=lambda result: items(Index)(result) and len(result) == 2,
)


def simplify(e: Index, ranges: Ranges) -> Index:
    """An equal position, simpler where the ranges decide a min, a max, a `//` or a `%`.

    Equal for every value of the variables inside `ranges`; extension point `simplify`. What an
    override returns is tried on some of the values: OptionError (MDLC1019) where it differs.
    """
    if not e.terms:
        return e
    if not overridden("simplify"):
        return e if _is_plain(e, ranges) else _known_simplified(e, spans(e, ranges))
    values: dict[Opaque, Var] = {}
    plain = opened(e, values)
    around = {**ranges, **{v: (0, atom.last) for atom, v in values.items()}}
    new: Index = dispatch("simplify", _simplify)(plain, around)
    check_equal(plain, new, around)
    inner = {v: atom.map(lambda part: simplify(part, ranges)) for atom, v in values.items()}
    return substitute(new, inner)


def _is_plain(e: Index, ranges: Ranges) -> bool:
    """True for a sum of variables that may all vary: nothing is simpler."""
    for atom, _ in e.terms:
        if type(atom) is not Var:
            return False
        span = ranges.get(atom)
        if span is not None and span[0] == span[1]:
            return False
    return True


@lru_cache(maxsize=1 << 14)
def _known_simplified(e: Index, around: Spans) -> Index:
    """Passes over loops ask for the same positions again and again."""
    return _simplify(e, dict(around))


def _simplify(e: Index, ranges: Ranges) -> Index:
    if _is_plain(e, ranges):
        return e
    total, changed = Index((), e.const), False
    for atom, k in e.terms:
        new = _simplify_atom(atom, ranges)
        changed = changed or new is not atom
        total = total + (new if k == 1 else k * new)
    return _recombine(_distribute(_cancel(total if changed else e), ranges))


def _simplify_atom(atom: Atom, ranges: Ranges) -> Index | Atom:
    match atom:
        case Var():
            span = ranges.get(atom)
            return Index((), span[0]) if span and span[0] == span[1] else atom
        case Opaque():
            new = atom.map(lambda inner: _simplify(inner, ranges))
            return atom if new == Index.of(atom) else new
        case Min() | Max():
            return _simplify_extremum(atom, ranges)
        case FloorDiv(a, c) | Mod(a, c):
            inner = _simplify(a, ranges)
            rounded = inner // c if isinstance(atom, FloorDiv) else inner % c
            decided = _split_multiple(rounded, ranges)
            return atom if decided.terms == ((atom, 1),) and not decided.const else decided


def _simplify_extremum(atom: Min | Max, ranges: Ranges) -> Index | Atom:
    """Keep only the operands that no other operand dominates."""
    kind, sign, join = (Min, 1, minimum) if isinstance(atom, Min) else (Max, -1, maximum)
    kept: list[Index] = []
    for x in _flat(atom, kind, ranges):
        if any(_never_positive(sign * (y - x), ranges) for y in kept):
            continue
        kept = [y for y in kept if not _never_positive(sign * (x - y), ranges)] + [x]
    kept.sort(key=lambda x: (not x.is_const, str(x)))
    result = kept[-1]
    for x in reversed(kept[:-1]):
        result = join(x, result)
    return atom if result.terms == ((atom, 1),) and not result.const else result


def _flat(atom: Min | Max, kind: type[Min | Max], ranges: Ranges) -> list[Index]:
    """The operands of nested minima (or maxima), simplified."""
    flat: list[Index] = []
    for x in operands(atom):
        simple = _simplify(x, ranges)
        match simple.terms:
            case ((Min() | Max() as inner, 1),) if isinstance(inner, kind):
                flat += [y + simple.const for y in _flat(inner, kind, ranges)]
            case _:
                flat.append(simple)
    return flat


def _never_positive(e: Index, ranges: Ranges) -> bool:
    span = value_range(e, ranges)
    return span is not None and span[1] <= 0


def _split_multiple(e: Index, ranges: Ranges) -> Index:
    """(g*q + r)//(g*n) = q//n and (g*q + r)%(g*n) = g*(q%n) + r, where 0 <= r < g."""
    match e.terms:
        case ((FloorDiv(a, c) | Mod(a, c) as atom, k),):
            pass
        case _:
            return e
    span = value_range(a, ranges)
    if span is not None and span[0] // c == span[1] // c:
        quotient = span[0] // c
        exact = Index((), quotient) if isinstance(atom, FloorDiv) else a - quotient * c
        return k * exact + e.const
    for g in sorted({math.gcd(c, n) for _, n in a.terms} - {1}, reverse=True):
        q = Index(tuple((x, n // g) for x, n in a.terms if n % g == 0), a.const // g)
        r = a - g * q
        span = value_range(r, ranges)
        if span is not None and span[0] >= 0 and span[1] < g:
            new = q // (c // g) if isinstance(atom, FloorDiv) else g * (q % (c // g)) + r
            return _simplify(k * new + e.const, ranges)
    return e


def _cancel(e: Index) -> Index:
    """min(a + d, b + d) - min(a, b) -> d: the length of a block that begins at a minimum."""
    extrema = [(atom, k) for atom, k in e.terms if isinstance(atom, (Min, Max))]
    for atom, k in extrema:
        for other, n in extrema:
            if k > 0 and k + n == 0 and isinstance(other, type(atom)):
                d = atom.a - other.a
                if d == atom.b - other.b:
                    return _cancel(e - k * atom - n * other + k * d)
    return e


def _distribute(e: Index, ranges: Ranges) -> Index:
    """rest + min(a, b) -> min(rest + a, rest + b) where terms cancel, as in hi - lo + 1."""
    for atom, k in e.terms:
        if isinstance(atom, (Min, Max)) and abs(k) == 1 and len(e.terms) > 1:
            rest = e - k * atom
            a, b = rest + k * atom.a, rest + k * atom.b
            before = len(rest.terms) + len(atom.a.terms) + len(atom.b.terms)
            if len(a.terms) + len(b.terms) < before:
                join = minimum if isinstance(atom, Min) == (k > 0) else maximum
                return _simplify(join(a, b), ranges)
    return e


def _recombine(e: Index) -> Index:
    """k*c*(a//c) + k*(a%c) -> k*a: what a fuse leaves where the whole loop variable was meant.

    In the remainder a may lack multiples of c; of several loops fused, a is itself a quotient.
    """
    for (mod, k), (floor, n) in itertools.product(e.terms, e.terms):
        if not isinstance(mod, Mod) or not isinstance(floor, FloorDiv):
            continue
        if n != k * mod.c or floor.c % mod.c:
            continue
        a = floor.a // (floor.c // mod.c)
        if (a - mod.a) % mod.c == Index((), 0):
            return _recombine(e - k * mod - n * floor + k * a)
    return e


def decide(cond: Cond, ranges: Ranges) -> bool | None:
    """True or False where the ranges decide the condition, else None."""
    spans = [value_range(e, ranges) for e in cond.ge]
    if any(span is not None and span[1] < 0 for span in spans):
        return False
    return True if all(span is not None and span[0] >= 0 for span in spans) else None


def simplify_cond(cond: Cond, ranges: Ranges) -> Cond:
    """An equal condition without the parts that always hold; `-1 >= 0` if it never holds."""
    kept: list[Index] = []
    for e in cond.ge:
        simple = simplify(e, ranges)
        span = value_range(simple, ranges)
        if span is not None and span[1] < 0:
            return Cond((Index((), -1),))
        if span is None or span[0] < 0:
            g = math.gcd(*(k for _, k in simple.terms))  # 2*i - 3 >= 0 is i - 2 >= 0
            kept.append(Index(tuple((a, k // g) for a, k in simple.terms), simple.const // g))
    new = tuple(dict.fromkeys(kept))
    return cond if new == cond.ge else Cond(new)


def loop_ranges(
    loops: Sequence[tuple[Var, Index]], ranges: Ranges | None = None
) -> dict[Var, Interval]:
    """The constant range of each loop variable, outermost first, added to `ranges`."""
    result = dict(ranges or {})
    for var, extent in loops:
        span = value_range(extent, result)
        result.pop(var, None)
        if span is not None:
            result[var] = (0, max(span[1] - 1, 0))
    return result


def bounds(
    e: Index, loops: Sequence[tuple[Var, Index]], ranges: Ranges | None = None
) -> tuple[Index, Index]:
    """Smallest and largest value of `e` while `loops` run, in the variables around the loops.

    `loops` are (variable, extent), outermost first; each runs over 0 .. extent - 1. The variables
    are eliminated one at a time, innermost first: only so do the extents `min(f, E - f*o)` of
    split loops give exactly `E - 1`. `ranges` are those of variables around. Sound for loops that
    run at least once; extension point `bounds`.
    """
    values: dict[Opaque, Var] = {}  # a value in memory is like the variable of a loop inside
    e = opened(e, values)
    inner = [(v, Index.of(atom.last + 1)) for atom, v in values.items()]
    return dispatch("bounds", _bounds)(e, [*loops, *inner], ranges or {})


def _bounds(e: Index, loops: Sequence[tuple[Var, Index]], ranges: Ranges) -> tuple[Index, Index]:
    around = loop_ranges(loops, ranges)
    low, high = _simplify(e, around), _simplify(e, around)
    for var, extent in reversed(loops):
        around.pop(var, None)
        if var in low.vars() or var in high.vars():
            last = extent - 1
            low = _simplify(_end(low, var, last, -1), around)
            high = _simplify(_end(high, var, last, 1), around)
    return low, high


def _end(e: Index, var: Var, last: Index, sign: int) -> Index:
    """The largest (sign 1) or smallest (-1) value of `e` while 0 <= var <= last."""
    if var not in e.vars():
        return e
    for atom, k in e.terms:
        if isinstance(atom, (Min, Max)) and var in Index.of(atom).vars():
            rest = e - k * atom
            join = minimum if isinstance(atom, Min) == (k > 0) else maximum
            return join(
                _end(rest + k * atom.a, var, last, sign), _end(rest + k * atom.b, var, last, sign)
            )
    aligned = _align(e, var)
    if aligned is not None:
        return _end(aligned, var, last, sign)
    total = Index((), e.const)
    for atom, k in e.terms:
        total = total + _scaled_end(atom, k, var, last, sign)
    return total


def _align(e: Index, var: Var) -> Index | None:
    """k*c*(a//c) -> k*(a - a%c) where that cancels `var` in the sum."""
    for atom, k in e.terms:
        if isinstance(atom, FloorDiv) and k % atom.c == 0:
            n = k // atom.c * atom.a.coefficient(var)
            if n and n + e.coefficient(var) == 0:
                return e - k * atom + k // atom.c * (atom.a - atom.a % atom.c)
    return None


def _scaled_end(atom: Atom, k: int, var: Var, last: Index, sign: int) -> Index:
    upper = (k > 0) == (sign > 0)
    match atom:
        case Var():
            if atom != var:
                return k * Index.of(atom)
            return k * last if upper else Index((), 0)
        case FloorDiv(a, c):
            return k * (_end(a, var, last, 1 if upper else -1) // c)
        case Mod(a, c):
            if var not in a.vars():
                return k * Index.of(atom)
            return Index((), k * (c - 1) if upper else 0)
        case Min() | Max() | Opaque():
            return k * Index.of(atom)  # without `var`: those with it were distributed before
