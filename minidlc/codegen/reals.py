"""A value with Python's operators, for formulas: f32, f64, or integers for work on their bits.

    x = Real(ops, value)
    y = x.fma(2.0, 1.0)                             # x * 2 + 1, one rounding where the CPU can
    y.choose(">", 3.0, x, 0.0)                      # x where y > 3, else 0

Formulas say themselves where a product and a sum are one step, so `ops` must not contract:
the same formula then gives the same bits at every vector width.
Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from dataclasses import dataclass

from minidlc.codegen.arithmetic import Operators
from minidlc.codegen.values import Value
from minidlc.expr.types import DType, f32, f64, i32, i64

MAGIC, MAGIC_F64 = 1.5 * 2.0**23, 1.5 * 2.0**52


@dataclass(frozen=True)
class Real:
    """A scalar or one number per lane."""

    ops: Operators
    value: Value

    @property
    def width(self) -> int:
        """Lanes, 0 for a scalar."""
        return self.value.width

    def _of(self, other: Real | float) -> Value:
        if isinstance(other, Real):
            return other.value
        return self.ops.const(other, self.value.dtype, self.width)

    def _binary(self, op: str, a: Value, b: Value) -> Real:
        return Real(self.ops, self.ops.binary(op, a, b))

    def __add__(self, other: Real | float) -> Real:
        return self._binary("+", self.value, self._of(other))

    def __radd__(self, other: float) -> Real:
        return self + other

    def __sub__(self, other: Real | float) -> Real:
        return self._binary("-", self.value, self._of(other))

    def __rsub__(self, other: float) -> Real:
        return self._binary("-", self._of(other), self.value)

    def __mul__(self, other: Real | float) -> Real:
        return self._binary("*", self.value, self._of(other))

    def __rmul__(self, other: float) -> Real:
        return self * other

    def __truediv__(self, other: Real | float) -> Real:
        return self._binary("/", self.value, self._of(other))

    def __rtruediv__(self, other: float) -> Real:
        return self._binary("/", self._of(other), self.value)

    def __neg__(self) -> Real:
        text = f"fneg {self.value}"
        return Real(self.ops, self.ops.op(text, self.value.dtype, self.width))

    def fma(self, factor: Real | float, term: Real | float) -> Real:
        """self * factor + term: one rounding where the target has that instruction, else two."""
        if has_fma(self.ops):
            parts = (self.value, self._of(factor), self._of(term))
            return Real(self.ops, self.ops.call("fma", *self.ops.together(*parts)))
        return self * factor + term

    def exact_fma(self, factor: Real | float, term: Real | float) -> Real:
        """self * factor + term of f32 as if of endless precision, then rounded, on any target."""
        if has_fma(self.ops):
            return self.fma(factor, term)
        parts = [Real(self.ops, v).cast(f64) for v in (self._of(factor), self._of(term))]
        return (self.cast(f64) * parts[0] + parts[1]).cast(f32)  # the product is exact in f64

    # bits

    def __lshift__(self, n: int) -> Real:
        return self._op("shl", n)

    def __rshift__(self, n: int) -> Real:
        return self._op("ashr", n)

    def __and__(self, n: Real | int) -> Real:
        return self._op("and", n)

    def __xor__(self, n: Real | int) -> Real:
        return self._op("xor", n)

    def _op(self, name: str, n: Real | int) -> Real:
        text = f"{name} {self.value}, {self._of(n).text}"
        return Real(self.ops, self.ops.op(text, self.value.dtype, self.width))

    def bits(self) -> Real:
        """The same bits as integers."""
        integer = i32 if self.value.dtype == f32 else i64
        return Real(self.ops, self.ops.reinterpret(self.value, integer))

    def as_float(self) -> Real:
        """The same bits as floats."""
        real = f32 if self.value.dtype == i32 else f64
        return Real(self.ops, self.ops.reinterpret(self.value, real))

    def cast(self, to: DType) -> Real:
        """The nearest number of type `to`."""
        return Real(self.ops, self.ops.cast(self.value, to))

    # choices: a comparison with NaN does not hold

    def test(self, op: str, limit: Real | float) -> Value:
        """A bool per lane: self op limit."""
        return self.ops.compare(op, self.value, self._of(limit))

    def choose(self, op: str, limit: Real | float, then: Real | float, other: Real | float) -> Real:
        """`then` in the lanes where `self op limit`, else `other`; both f32 or as self is."""
        return self.either(self.test(op, limit), then, other)

    def either(self, test: Value, then: Real | float, other: Real | float) -> Real:
        """`then` in the lanes where `test`, else `other`."""
        return Real(self.ops, self.ops.select(test, self._of(then), self._of(other)))

    def clamp(self, low: float, high: float) -> Real:
        """Limited to low..high; NaN stays NaN."""
        return self.choose("<", low, low, self).at_most(high)

    def at_most(self, high: float) -> Real:
        """`high` where self is larger; NaN stays NaN."""
        return self.choose(">", high, high, self)

    def abs(self) -> Real:
        """Without its sign."""
        return Real(self.ops, self.ops.call("fabs", self.value))

    def rounded(self) -> Real:
        """The nearest whole number."""
        return Real(self.ops, self.ops.call("rint", self.value))

    def sqrt(self) -> Real:
        """The square root, rounded once."""
        return Real(self.ops, self.ops.call("sqrt", self.value))

    def with_sign_of(self, other: Real) -> Real:
        """Its absolute value with the sign of `other`, also where that is -0."""
        return Real(self.ops, self.ops.call("copysign", self.value, other.value))


def has_fma(ops: Operators) -> bool:
    """True if the target computes a * b + c with one rounding in one instruction."""
    target = ops.target
    return target.is_arm or target.has("fma") or target.has("avx512f")


def polynomial(x: Real, coefficients: tuple[float, ...]) -> Real:
    """Horner's rule, the highest power first."""
    total = x.fma(coefficients[0], coefficients[1])
    for c in coefficients[2:]:
        total = total.fma(x, c)
    return total


def nearest(x: Real, factor: float) -> tuple[Real, Real]:
    """The whole number nearest to x * factor: as a float, and in the low bits of an integer.

    Near 1.5 * 2**23 floats are whole numbers: the sum rounds, and its last bits count in ones.
    """
    shifted = x.fma(factor, MAGIC)
    return shifted - MAGIC, shifted.bits()
