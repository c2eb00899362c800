"""What is known of the elements of a value before it runs: their range, whether one may be NaN.

    Fact(0.0, 6.0)                                  # every element from 0 to 6: relu6
    fact.finite, fact.non_negative, fact.constant   # what guards of rules ask
    a | b                                           # an element of either: the join
    top(f32)                                        # nothing is known

A lattice: `|` is its join, `top` its top. Bounds of floats are f64, of integers exact. A fact is
of the graph's meaning (graph/interpret.py); machine code may add a product without rounding it
first. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from minidlc.expr.types import Array, DType, dtype, f32
from minidlc.ops.elementwise import wide


@dataclass(frozen=True)
class Fact:
    """Every element is NaN (only if `nan`), or low <= element <= high; -0.0 only if said."""

    low: float
    high: float
    nan: bool = False
    negative_zero: bool = False

    def __post_init__(self) -> None:
        if self.negative_zero and not self.low <= 0 <= self.high:
            object.__setattr__(self, "negative_zero", False)  # one text for one meaning

    @property
    def finite(self) -> bool:
        """No element is NaN or infinite."""
        return not self.nan and -math.inf < self.low and self.high < math.inf

    @property
    def non_negative(self) -> bool:
        """Every element is a number >= 0 (-0.0 counts as 0)."""
        return not self.nan and self.low >= 0

    @property
    def sign_bit(self) -> bool:
        """An element may have its sign bit set: below 0, or -0.0."""
        return self.low < 0 or self.negative_zero

    @property
    def has_zero(self) -> bool:
        """An element may be 0 or -0.0."""
        return self.low <= 0 <= self.high

    @property
    def infinite(self) -> bool:
        """An element may be an infinity."""
        return math.isinf(self.low) or math.isinf(self.high)

    @property
    def constant(self) -> float | None:
        """The number that every element is, to the bit; None if that is not known."""
        known = self.low == self.high and not self.nan
        return self.low if known and not (self.negative_zero and self.low == 0) else None

    def __or__(self, other: Fact) -> Fact:
        return Fact(
            min(self.low, other.low),
            max(self.high, other.high),
            self.nan or other.nan,
            self.negative_zero or other.negative_zero,
        )

    def holds(self, array: Array) -> bool:
        """True if the fact is right about these elements."""
        nan = array != array  # NaN alone differs from itself
        numbers = array[~nan]
        if nan.any() and not self.nan:
            return False
        zeros = numbers[numbers == 0]
        if dtype(array.dtype).is_float and np.signbit(zeros).any() and not self.negative_zero:
            return False
        ends = (numbers.min(), numbers.max()) if numbers.size else ()
        return all(self.low <= v.item() <= self.high for v in ends)


def limits(element: DType) -> tuple[float, float]:
    """The least and the greatest value of a type; infinities of floats."""
    match element.kind:
        case "float":
            return -math.inf, math.inf
        case "bool":
            return 0, 1
        case "uint":
            return 0, 2**element.bits - 1
        case _:
            return -(2 ** (element.bits - 1)), 2 ** (element.bits - 1) - 1


def top(element: DType) -> Fact:
    """Nothing is known."""
    return Fact(*limits(element), element.is_float, element.is_float)


def numbers(element: DType) -> Fact:
    """Any finite number."""
    if not element.is_float:
        return top(element)
    most = float(largest(element))
    return Fact(-most, most, False, True)


def largest(element: DType) -> float:
    """The largest finite float of a type."""
    exponent, digits = {"f16": (16, 11), "bf16": (128, 8), "f32": (128, 24), "f64": (1024, 53)}[
        element.name
    ]
    return math.ldexp(1 - 2.0**-digits, exponent)


def of_array(array: Array) -> Fact:
    """The fact of a constant. Of one without elements nothing is said."""
    element = dtype(array.dtype)
    if array.size == 0:
        return top(element)
    if not element.is_float:
        return Fact(int(array.min()), int(array.max()))
    nan = np.isnan(array)
    known = array[~nan].astype(np.float64)
    if known.size == 0:
        return replace(top(element), nan=True)
    minus = bool((np.signbit(known) & (known == 0)).any())
    return Fact(float(known.min()), float(known.max()), bool(nan.any()), minus)


def settled(element: DType, fact: Fact, ulps: float = 0) -> Fact:
    """The fact after rounding to a type: bounds go outward; integers that leave their range wrap.

    `ulps` is by how many units in the last place of the type that it is computed in, f32 or wider,
    the function may be wrong.
    """
    if not element.is_float:
        least, most = limits(element)
        return fact if least <= fact.low and fact.high <= most else top(element)
    if math.isnan(fact.low) or math.isnan(fact.high):
        return top(element)
    low = _rounded(element, fact.low, -math.inf, ulps)
    high = _rounded(element, fact.high, math.inf, ulps)
    # a small negative number may be rounded to -0.0
    return Fact(low, high, fact.nan, fact.negative_zero or fact.low < 0 <= high)


def unit(element: DType) -> float:
    """The distance from 1 to the next number of the type that `element` is computed in."""
    return 2.0**-23 if wide(element) == f32 else 2.0**-52


def _rounded(element: DType, bound: float, toward: float, ulps: float) -> float:
    """A bound in the type, moved by `ulps` and by the error that f64 has made of it."""
    bound = float(bound)
    if math.isinf(bound):
        return bound
    if ulps:
        smallest = math.ulp(0.0) if wide(element) != f32 else 2.0**-149
        bound += math.copysign(ulps * max(abs(bound) * unit(element), smallest), toward)
    if wide(element) == f32:
        bound = math.nextafter(bound, toward)  # f64 is computed in itself: the same rounding
    with np.errstate(all="ignore"):
        computed = np.asarray(bound, np.float64).astype(wide(element).numpy)
        return float(computed.astype(element.numpy).astype(np.float64)) + 0.0  # -0.0 is 0.0
