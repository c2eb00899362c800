"""Put positions or numbers in the place of variables.

    substitute(4 * i + j, {i: io + 1})              # 4*io + j + 4
    evaluate(4 * i + j, {i: 2, j: 3})               # 11

Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping

from minidlc.expr.affine import (
    Atom,
    Cond,
    FloorDiv,
    Index,
    Max,
    Min,
    Mod,
    Opaque,
    Var,
    maximum,
    minimum,
    operands,
)
from minidlc.support.errors import LoweringError, OptionError

_TRIES = 6  # values drawn to compare two positions, beside the ends of the ranges


def substitute(e: Index, values: Mapping[Var, Index]) -> Index:
    """Replace variables by positions; returns `e` itself when it has none of them."""
    if not e.terms or e.vars().isdisjoint(values):
        return e

    def leaf(atom: Var | Opaque) -> Index:
        if isinstance(atom, Var):
            return Index.of(values.get(atom, atom))
        return atom.map(lambda inner: substitute(inner, values))

    return map_leaves(e, leaf)


def map_leaves(e: Index, f: Callable[[Var | Opaque], Index]) -> Index:
    """Rebuild `e` with `f` applied to its variables and opaque atoms."""
    total = Index((), e.const)
    for atom, k in e.terms:
        match atom:
            case Var() | Opaque():
                new = f(atom)
            case Min(a, b):
                new = minimum(map_leaves(a, f), map_leaves(b, f))
            case Max(a, b):
                new = maximum(map_leaves(a, f), map_leaves(b, f))
            case FloorDiv(a, c):
                new = map_leaves(a, f) // c
            case Mod(a, c):
                new = map_leaves(a, f) % c
        total = total + (new if k == 1 else k * new)
    return total


def opened(e: Index, names: dict[Opaque, Var]) -> Index:
    """`e` with a variable in the place of each opaque atom; `names` collects which."""

    def leaf(atom: Var | Opaque) -> Index:
        if isinstance(atom, Var):
            return Index.of(atom)
        return Index.of(names.setdefault(atom, Var(f"at__{len(names)}")))

    return map_leaves(e, leaf) if any(isinstance(atom, Opaque) for atom in atoms(e)) else e


def substitute_cond(cond: Cond, values: Mapping[Var, Index]) -> Cond:
    """Replace variables in every part of a condition."""
    return Cond(tuple(substitute(e, values) for e in cond.ge))


def evaluate(e: Index, values: Mapping[Var, int]) -> int:
    """The number `e` is when the variables have these values (LoweringError if one is missing)."""
    total = e.const
    for atom, k in e.terms:
        match atom:
            case Var():
                if atom not in values:
                    raise LoweringError(f"no value for variable {atom} in '{e}'", code="MDLC0713")
                x = values[atom]
            case Min(a, b):
                x = min(evaluate(a, values), evaluate(b, values))
            case Max(a, b):
                x = max(evaluate(a, values), evaluate(b, values))
            case FloorDiv(a, c):
                x = evaluate(a, values) // c
            case Mod(a, c):
                x = evaluate(a, values) % c
            case Opaque():
                raise LoweringError(f"{atom} is a value in memory, no number", code="MDLC0713")
        total += k * x
    return total


def check_equal(e: Index, new: Index, ranges: Mapping[Var, tuple[int, int]]) -> None:
    """OptionError (MDLC1019) if `new` differs from `e` at one of some values inside `ranges`."""
    drawn = random.Random(0)
    names = sorted(e.vars(), key=str)
    for pick in (min, max, *[drawn.randint] * _TRIES):
        values = {v: pick(*ranges.get(v, (1, 64))) for v in names}
        if not new.vars() <= e.vars() or evaluate(e, values) != evaluate(new, values):
            where = ", ".join(f"{v} = {n}" for v, n in values.items())
            raise OptionError(
                f"the override of 'simplify' returned {new} for {e}, which is another number",
                notes=(f"for example where {where}",),
                code="MDLC1019",
            )


def evaluate_cond(cond: Cond, values: Mapping[Var, int]) -> bool:
    """Whether every part of `cond` is >= 0 for these values."""
    return all(evaluate(e, values) >= 0 for e in cond.ge)


def atoms(e: Index) -> Iterator[Atom]:
    """Every atom of `e`, those inside other atoms too, outer ones first."""
    for atom, _ in e.terms:
        yield atom
        for part in operands(atom):
            yield from atoms(part)
