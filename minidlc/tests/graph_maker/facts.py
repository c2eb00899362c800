"""What random graphs know of a value: its range, and how far two right programs may differ.

    a, b = leaf(-2, 2, whole=True), leaf(-2, 2, whole=True)
    accumulate(f32, a, b, terms=20).error           # 0.0: integers below 2**24 are exact
    accumulate(f32, smooth, smooth, terms=20).error # 20 terms of at most 4, each rounded

The bound is for any order of the sums and any fused multiply-add: rounding of each operation is at
most `unit` of the largest intermediate result, errors of the inputs pass through with the slope of
the function. Interpreter and machine may each be that far from the exact result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from minidlc.expr.types import DType

# distance between neighbours at 1, four of them for functions that are sums of a few terms
UNIT = {"f16": 2.0**-8, "bf16": 2.0**-5, "f32": 2.0**-21, "f64": 2.0**-50}
# integers up to here are exact, as are their sums in any order (f16, bf16 are computed in f32)
EXACT = {"f16": 2.0**11, "bf16": 2.0**8, "f32": 2.0**24, "f64": 2.0**53}
LARGE, VAGUE = 1e4, 0.05  # values beyond are not read by further operations


@dataclass(frozen=True)
class Fact:
    """low <= x <= high; two right results differ by at most `error`; `whole`: integers only."""

    low: float
    high: float
    error: float = 0.0
    whole: bool = False

    @property
    def size(self) -> float:
        """The largest absolute value."""
        return max(abs(self.low), abs(self.high))

    @property
    def exact(self) -> bool:
        """True if every right program gives the same bits: jumps may follow."""
        return self.error == 0

    @property
    def usable(self) -> bool:
        """False for what would make the comparison vague: huge, infinite or inexact values."""
        return self.size <= LARGE and self.error <= VAGUE


def settle(element: DType, low: float, high: float, error: float, whole: bool) -> Fact:
    """The fact of a computed value: integers wrap, floats round unless they are small integers."""
    if not element.is_float:
        least, most = limits(element)
        inside = least <= low <= high <= most
        return Fact(low, high, 0.0, True) if inside else Fact(least, most, 0.0, True)
    if whole and error == 0 and max(abs(low), abs(high)) <= EXACT[element.name]:
        return Fact(low, high, 0.0, True)
    return Fact(low, high, error + UNIT[element.name] * max(abs(low), abs(high)), False)


def limits(element: DType) -> tuple[float, float]:
    """The smallest and the largest value of an integer type or bool."""
    if element.kind == "bool":
        return 0.0, 1.0
    if element.kind == "uint":
        return 0.0, 2.0**element.bits - 1
    return -(2.0 ** (element.bits - 1)), 2.0 ** (element.bits - 1) - 1


def union(*facts: Fact) -> Fact:
    """An element of any of them (where, concat, maximum)."""
    return Fact(
        min(f.low for f in facts),
        max(f.high for f in facts),
        max(f.error for f in facts),
        all(f.whole for f in facts),
    )


def curve(element: DType, x: Fact, slope: float, low: float, high: float) -> Fact:
    """A function of one value that is nowhere steeper than `slope`."""
    unit = UNIT[element.name] * max(abs(low), abs(high))
    return Fact(low, high, slope * x.error + unit, False)


def arithmetic(element: DType, op: str, a: Fact, b: Fact) -> Fact:
    """add, sub, mul."""
    if op == "mul":
        return accumulate(element, a, b, 1)
    low, high = (
        (a.low + b.low, a.high + b.high) if op == "add" else (a.low - b.high, a.high - b.low)
    )
    return settle(element, low, high, a.error + b.error, a.whole and b.whole)


def accumulate(element: DType, a: Fact, b: Fact, terms: int) -> Fact:
    """A sum of products: every partial sum may be rounded."""
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    low, high = terms * min(ends), terms * max(ends)
    error = terms * (a.size * b.error + b.size * a.error + a.error * b.error)
    whole = a.whole and b.whole
    fact = settle(element, min(low, 0.0), max(high, 0.0), error, whole)
    return fact if fact.exact else replace(fact, error=error + terms * (fact.error - error))


def total(element: DType, x: Fact, terms: int) -> Fact:
    """A sum of `terms` elements."""
    return accumulate(element, x, Fact(1.0, 1.0, 0.0, True), terms)


def mean(element: DType, x: Fact, terms: int) -> Fact:
    """The same, divided."""
    if not element.is_float:
        return settle(element, *limits(element), 0.0, True)
    error = x.error + UNIT[element.name] * x.size * (terms + 1)
    return Fact(min(x.low, 0.0), max(x.high, 0.0), error, False)


def cast(x: Fact, source: DType, target: DType) -> Fact:
    """`x` as another element type: floats to integers truncate and saturate."""
    if target.kind == "bool":
        return Fact(0.0, 1.0, 0.0, True)
    if not target.is_float:
        least, most = limits(target)
        if not source.is_float:
            return settle(target, x.low, x.high, 0.0, True)
        low, high = (math.trunc(max(least, min(v, most))) for v in (x.low, x.high))
        return Fact(low, high, 0.0, True)
    if x.exact:  # one rounding, the same everywhere
        return replace(x, whole=x.whole and x.size <= EXACT[target.name])
    return settle(target, x.low, x.high, x.error, False)
