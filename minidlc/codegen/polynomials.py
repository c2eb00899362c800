"""exp, log, tanh, erf and sigmoid of f32 as vector polynomials.

    exp(F32(ops, x)).value                          # ~25 instructions for all lanes, no call

Each formula is written on `F32`, a value with Python's operators. Largest errors in units of the
last place, from a sweep over all f32 (tests/codegen/test_math.py): exp 1.1, log 0.8, tanh 4.7,
erf 5.6, sigmoid 2.3. Infinities, NaN and denormals come out right.
Treated in course chapter 05_codegen.
"""

from __future__ import annotations

from dataclasses import dataclass

from minidlc.codegen.arithmetic import Operators
from minidlc.codegen.values import Value, vector_type
from minidlc.expr.types import DType, f32, i32

LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4  # their sum is ln 2; LN2_HIGH * n is exact


@dataclass(frozen=True)
class F32:
    """A value with operators: f32 (or i32 for bit work), scalar or one per lane."""

    ops: Operators
    value: Value

    def _of(self, other: F32 | float) -> Value:
        if isinstance(other, F32):
            return other.value
        return self.ops.const(other, self.value.dtype, self.value.width)

    def _binary(self, op: str, a: Value, b: Value) -> F32:
        return F32(self.ops, self.ops.binary(op, a, b))

    def __add__(self, other: F32 | float) -> F32:
        return self._binary("+", self.value, self._of(other))

    def __radd__(self, other: float) -> F32:
        return self + other

    def __sub__(self, other: F32 | float) -> F32:
        return self._binary("-", self.value, self._of(other))

    def __rsub__(self, other: float) -> F32:
        return self._binary("-", self._of(other), self.value)

    def __mul__(self, other: F32 | float) -> F32:
        return self._binary("*", self.value, self._of(other))

    def __rmul__(self, other: float) -> F32:
        return self * other

    def __truediv__(self, other: F32 | float) -> F32:
        return self._binary("/", self.value, self._of(other))

    def __rtruediv__(self, other: float) -> F32:
        return self._binary("/", self._of(other), self.value)

    def __lshift__(self, n: int) -> F32:
        return self._op("shl", n)

    def __rshift__(self, n: int) -> F32:
        return self._op("ashr", n)

    def _op(self, name: str, n: int) -> F32:
        text = f"{name} {self.value}, {self._of(n).text}"
        return F32(self.ops, self.ops.op(text, self.value.dtype, self.value.width))

    def where(self, op: str, limit: float, then: F32 | float) -> F32:
        """`then` in the lanes where `self op limit`, else self; NaN lanes stay."""
        test = self.ops.compare(op, self.value, self._of(limit))
        return F32(self.ops, self.ops.select(test, self._of(then), self.value))

    def clamp(self, low: float, high: float) -> F32:
        """Limited to low..high; NaN stays NaN."""
        return self.where("<", low, low).where(">", high, high)

    def choose(self, op: str, limit: float, then: F32 | float, other: F32 | float) -> F32:
        """`then` in the lanes where `self op limit`, else `other`."""
        test = self.ops.compare(op, self.value, self._of(limit))
        return F32(self.ops, self.ops.select(test, self._of(then), self._of(other)))

    def intrinsic(self, name: str) -> F32:
        """An LLVM intrinsic of one argument: `fabs`, `rint`."""
        return F32(self.ops, self.ops.call(name, self.value))

    def bits(self) -> F32:
        """The same bits as integers."""
        return F32(self.ops, self.ops.reinterpret(self.value, i32))

    def as_float(self) -> F32:
        """The same bits as floats."""
        return F32(self.ops, self.ops.reinterpret(self.value, f32))

    def converted(self, how: str, to: DType) -> F32:
        """Converted by `fptosi` or `sitofp`."""
        type = vector_type("i32" if to == i32 else "float", self.value.width)
        text = f"{how} {self.value} to {type}"
        return F32(self.ops, self.ops.op(text, to, self.value.width))


def polynomial(x: F32, coefficients: tuple[float, ...]) -> F32:
    """Horner's rule, highest power first."""
    total = x * coefficients[0] + coefficients[1]
    for c in coefficients[2:]:
        total = total * x + c
    return total


EXP = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)


def exp(x: F32) -> F32:
    """e**x = 2**n * e**r with n = round(x / ln 2) and |r| <= ln 2 / 2."""
    x = x.clamp(-104.0, 89.0)  # beyond: 0 and inf
    n = (x * 1.4426950408889634).intrinsic("rint")
    r = x - n * LN2_HIGH - n * LN2_LOW
    return scale(r * r * polynomial(r, EXP) + r + 1.0, n)


def scale(y: F32, n: F32) -> F32:
    """y * 2**n for integral n, right at the ends of the range of floats."""
    width = y.value.width
    if y.ops.target.has("avx512vl") and width in (4, 8, 16):
        mask, rest = ("i16", ", i32 4") if width == 16 else ("i8", "")  # 4: the current rounding
        name = f"@llvm.x86.avx512.mask.scalef.ps.{32 * width}"
        args = f"{y.value}, {n.value}, {y.value.type} zeroinitializer, {mask} -1{rest}"
        return F32(y.ops, y.ops.op(f"call {y.value.type} {name}({args})", f32, width))
    whole = n.converted("fptosi", i32)
    half = whole >> 1  # two steps: 2**n alone may be no float where y * 2**n is one
    first = ((half + 127) << 23).as_float()
    second = ((whole - half + 127) << 23).as_float()
    return y * first * second


LOG = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)


def log(x: F32) -> F32:
    """log(2**e * m) = e * ln 2 + log(m) with sqrt(1/2) <= m < sqrt(2)."""
    tiny = 2.0**-126
    normal = x.where("<", tiny, x * 2.0**23)  # denormals: give them a full mantissa
    bits = normal.bits()
    exponent = (bits - 0x3F3504F3) >> 23  # 0x3F3504F3: sqrt(1/2)
    f = (bits - (exponent << 23)).as_float() - 1.0
    e = exponent.converted("sitofp", f32)
    e = x.choose("<", tiny, e - 23.0, e)
    square = f * f
    y = square * f * polynomial(f, LOG) + e * LN2_LOW - 0.5 * square
    result = f + y + e * LN2_HIGH
    inf, nan = float("inf"), float("nan")
    result = x.choose("==", inf, inf, x.choose("==", 0.0, -inf, result))
    return x.choose(">=", 0.0, result, nan)  # NaN below zero and for NaN


TANH_P = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
TANH_Q = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
TANH_IS_1 = 9.010914


def tanh(x: F32) -> F32:
    """x * P(x*x) / Q(x*x): a rational function fits tanh as far as 7.9, where it is almost 1.

    From 9.01 on tanh rounds to 1; what is almost 1 would not cancel in 1 + tanh(x).
    """
    size = x.intrinsic("fabs")
    y = x.clamp(-7.90531110763549805, 7.90531110763549805)
    square = y * y
    value = y * polynomial(square, TANH_P) / polynomial(square, TANH_Q)
    value = size.choose("<", 0.0004, x, value)
    return x.choose(">", TANH_IS_1, 1.0, x.choose("<", -TANH_IS_1, -1.0, value))


ERF_P = (
    0.00022905065861350646,
    0.0034082910107109506,
    0.050955695062380861,
    0.18520832239976145,
    1.128379143519084,
)
ERF_Q = (
    -1.1791602954361697e-7,
    0.000023547966471313185,
    0.0010179625278914885,
    0.014070470171167667,
    0.11098505178285362,
    0.49746925110067538,
    1.0,
)
ERF_IS_1 = 3.832506856900711


def erf(x: F32) -> F32:
    """x * P(x*x) / Q(x*x) for |x| < 3.8325; from there on erf rounds to 1, not to almost 1."""
    y = x.clamp(-ERF_IS_1, ERF_IS_1)
    square = y * y
    inside = y * polynomial(square, ERF_P) / polynomial(square, ERF_Q)
    return x.choose(">", ERF_IS_1, 1.0, x.choose("<", -ERF_IS_1, -1.0, inside))


def sigmoid(x: F32) -> F32:
    """1 / (1 + e**-x), with e**-|x| so that it neither overflows nor loses small results."""
    t = exp(x.intrinsic("fabs") * -1.0)
    return x.choose("<", 0.0, t, 1.0) / (t + 1.0)
