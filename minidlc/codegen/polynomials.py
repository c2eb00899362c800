"""exp, log, tanh, erf, sigmoid and pow of f32 as vector polynomials; sin, cos: trigonometry.py.

    exp(Real(ops, x)).value                         # ~20 instructions for all lanes, no call

Largest errors in units of the last place (ulp), for every f32, with and without FMA:

    exp 1.1   log 0.9   erf 1.5   sigmoid 1.8   sin, cos 1.6   pow 0.9   1 / sqrt 1.5
    tanh 1.4 in precision strict or without FMA; else quick_tanh, 4.9 in less than half the time
    exp_negative, for weights: in precision strict it is exp; else 4.5, and 1.5 from -17 on

Infinities, NaN, denormals and the sign of zero come out right, as tests/codegen/test_math.py
checks. A formula has the same bits for a scalar and in vectors of any width. Coefficients are
printed by benchmarks/fit_polynomials.py, the highest power first.
Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import math

from minidlc.codegen.reals import MAGIC, MAGIC_F64, Real, has_fma, nearest, polynomial
from minidlc.expr.types import f32, f64

LN2_HIGH, LN2_LOW = 0.693359375, -2.1219444005469057e-4  # their sum is ln 2
ONE = 127 << 23  # the bits of 1.0: the exponent of floats begins at bit 23, and 127 is 2**0

EXP = (
    0.0013821173924952745,
    0.008368666283786297,
    0.04166825860738754,
    0.1666652113199234,
    0.4999999403953552,
)


def two_to_the(n: Real) -> Real:
    """2**n, for n in the low bits of an integer, -126..127."""
    return ((n << 23) + ONE).as_float()


def scale(y: Real, n: Real, bits: Real) -> Real:
    """y * 2**n, right at the ends of the range of floats; n as `nearest` gives it."""
    width = y.width
    if y.ops.target.has("avx512vl") and width in (4, 8, 16):
        mask, rest = ("i16", ", i32 4") if width == 16 else ("i8", "")  # 4: the current rounding
        name = f"@llvm.x86.avx512.mask.scalef.ps.{32 * width}"
        args = f"{y.value}, {n.value}, {y.value.type} zeroinitializer, {mask} -1{rest}"
        return Real(y.ops, y.ops.op(f"call {y.value.type} {name}({args})", f32, width))
    half = bits >> 1  # two steps: 2**n alone may be no float where y * 2**n is one
    return y * two_to_the(half) * two_to_the(bits - half)


def reduced(x: Real) -> tuple[Real, Real, Real]:
    """e**x = 2**n * (1 + p): p and n, |p| < 0.42; x is -104..104."""
    n, bits = nearest(x, 1 / math.log(2))
    r = n.fma(-LN2_LOW, n.fma(-LN2_HIGH, x))  # |r| <= ln 2 / 2; LN2_HIGH * n is exact
    return (r * r).fma(polynomial(r, EXP), r), n, bits


def exp(x: Real) -> Real:
    """2**n * (1 + p)."""
    p, n, bits = reduced(x.clamp(-104.0, 89.0))  # beyond: 0 and inf
    return scale(p + 1.0, n, bits)


def exp_negative(x: Real) -> Real:
    """e**x of x <= 0, for weights that are added up: 1.5 ulp from -17 on, 4.5 at the far end.

    What is below 2**-126.5 is 0, so 2**n is a float. The sum that rounds to n adds 127 as well:
    its last bits are the exponent of that float. And ln 2 is one number: its error counts n times,
    in weights of 2**n.
    """
    x = x.choose("<", -88.0, -88.0, x)
    shifted = x.fma(1 / math.log(2), MAGIC + 127)
    power = (shifted.bits() << 23).as_float()
    n = shifted - (MAGIC + 127)
    one_step = has_fma(x.ops)  # else the product with all of ln 2 would be rounded
    r = n.fma(-math.log(2), x) if one_step else n.fma(-LN2_LOW, n.fma(-LN2_HIGH, x))
    return power.fma((r * r).fma(polynomial(r, EXP), r), power)


TANH = (
    -0.006169613916426897,
    0.021000375971198082,
    -0.053835757076740265,
    0.13332436978816986,
    -0.3333331346511841,
)


def tanh(x: Real) -> Real:
    """x + x**3 P(x*x) up to 0.5625, where tanh is about 1/2; 1 - 2 / (e**2x + 1) from there on.

    At |x| = 9.02 that is 1, not almost 1.
    """
    square, size = x * x, x.abs()
    small = (square * size).fma(polynomial(square, TANH), size)
    p, _, bits = reduced((size * 2.0).at_most(20.0))
    power = two_to_the(bits)
    large = 1.0 - 2.0 / power.fma(p, power + 1.0)
    return size.choose(">", 0.5625, large, small).with_sign_of(x)


QUICK_TANH_P = (
    -1.2277574519114348e-13,
    6.615426262346347e-11,
    -2.278589938953246e-08,
    1.1750076737371273e-05,
    0.0031592119485139847,
    0.13133050501346588,
    1.0,
)
QUICK_TANH_Q = (
    0.0002627568319439888,
    0.024713842198252678,
    0.4646638333797455,
    1.0,
)
QUICK_TANH_IS_1 = 7.95


def quick_tanh(x: Real) -> Real:
    """x P(x*x) / Q(x*x) up to 7.95, then 1: nothing cancels, but a dozen steps round."""
    square = x * x
    inside = x * polynomial(square, QUICK_TANH_P) / polynomial(square, QUICK_TANH_Q)
    one = Real(x.ops, x.ops.const(1.0, f32, x.width)).with_sign_of(x)
    return x.abs().choose(">", QUICK_TANH_IS_1, one, inside)


def sigmoid(x: Real) -> Real:
    """1 / (1 + e**-x) with e**-x = 2**n (1 + p), as a / (a + b + b p), where b / a = 2**n.

    The larger of a and b is 1, so a result near 0 is as exact as one near 1.
    """
    p, n, bits = reduced((-x).clamp(-20.0, 104.0))
    one = Real(x.ops, x.ops.const(1.0, f32, x.width))
    a = scale(one, -n, 0 - bits).at_most(1.0)
    b = n.choose(">", 0.0, 1.0, two_to_the(bits))
    both = a + b
    lost = a - (both - b)  # what the sum rounded off
    return a / b.fma(p + lost, both)


LOG = (
    0.06749270111322403,
    -0.11670100688934326,
    0.11883549392223358,
    -0.12406233698129654,
    0.14220358431339264,
    -0.16667988896369934,
    0.2000207155942917,
    -0.25000008940696716,
    0.3333331346511841,
)


def split(x: Real) -> tuple[Real, Real]:
    """x = 2**e * m with sqrt(1/2) <= m < sqrt(2), for 0 < x < inf: e and m."""
    tiny = 2.0**-126
    bits = x.choose("<", tiny, x * 2.0**23, x).bits()  # denormals: give them a full mantissa
    exponent = (bits - 0x3F3504F3) >> 23  # 0x3F3504F3: the bits of sqrt(1/2)
    m = (bits - (exponent << 23)).as_float()
    e = exponent.cast(f32)
    return x.choose("<", tiny, e - 23.0, e), m


def log(x: Real) -> Real:
    """log(2**e * m) = e * ln 2 + log(m)."""
    e, m = split(x)
    f = m - 1.0
    square = f * f
    y = (square * f).fma(polynomial(f, LOG), e * LN2_LOW)
    y = square.fma(-0.5, y)
    result = e.fma(LN2_HIGH, f + y)
    result = x.choose("==", math.inf, math.inf, x.choose("==", 0.0, -math.inf, result))
    return x.choose(">=", 0.0, result, math.nan)  # NaN below zero and for NaN


ERF = (
    7.063506200211123e-05,
    -0.0007765797199681401,
    0.005160259082913399,
    -0.026839222759008408,
    0.11283256113529205,
    -0.3761260211467743,
    0.12837916612625122,
)
ERFC = (
    0.012610990554094315,
    -0.03290065377950668,
    0.0799611508846283,
    0.009595130570232868,
    0.18191778659820557,
    0.3799375593662262,
    0.8111940622329712,
    1.2333790063858032,
    1.7301052808761597,
)
ERFC_FROM = 1.125


def erf(x: Real) -> Real:
    """x + x P(x*x) up to 1.125; from there on 1 - 1 / Q(|x| - 1.125)**4: at 3.84 it is 1."""
    size = x.abs()
    small = polynomial(x * x, ERF).fma(x, x)
    root = polynomial(size - ERFC_FROM, ERFC)
    square = root * root
    large = 1.0 - 1.0 / (square * square)
    return size.choose(">", ERFC_FROM, large.with_sign_of(x), small)


LOG2 = (
    0.34072766872116184,
    0.4116728501488549,
    0.5770835827390781,
    0.9617966733545341,
    2.88539008179007,
)
EXP2 = (
    0.0001534581208093612,
    0.0013399931542296961,
    0.009618488959607624,
    0.055503287761688135,
    0.2402264689058501,
    0.6931472057376327,
    1.0000000005541754,
)


def power(a: Real, b: Real) -> Real:
    """|a|**b = 2**(b log2|a|), the logarithm in f64; then the sign and the special cases."""
    size = a.abs()
    result = _positive_power(size, b)
    whole = b.test("==", b.rounded())
    half = b * 0.5
    odd = b.ops.logic("and", whole, half.test("!=", half.rounded()))
    sign = a.bits() & -(1 << 31)
    result = result.either(odd, (result.bits() ^ sign).as_float(), result)
    allowed = b.ops.logic("or", whole, a.test(">=", 0.0))
    allowed = b.ops.logic("or", allowed, size.test("==", math.inf))
    result = result.either(allowed, result, math.nan)
    even_one = b.ops.logic("and", size.test("==", 1.0), b.abs().test("==", math.inf))
    exact = b.ops.logic("or", b.test("==", 0.0), a.test("==", 1.0))
    return result.either(b.ops.logic("or", exact, even_one), 1.0, result)


def _positive_power(a: Real, b: Real) -> Real:
    """a**b for a >= 0; log2(m) = s P(s*s) of s = (m - 1) / (m + 1)."""
    e, m = split(a)
    e = a.choose("==", 0.0, -math.inf, a.choose("<", math.inf, e, a))  # inf and NaN stay
    m = m.cast(f64)
    s = (m - 1.0) / (m + 1.0)
    log2 = polynomial(s * s, LOG2).fma(s, e.cast(f64))
    y = (log2 * b.cast(f64)).clamp(-160.0, 136.0)  # beyond: 0 and inf
    n = (y + MAGIC_F64) - MAGIC_F64
    mantissa = polynomial(y - n, EXP2).cast(f32)
    n = n.cast(f32)
    return scale(mantissa, n, (n + MAGIC).bits())
