"""sin and cos of f32 at every argument: reduced to |r| <= pi/4, then a polynomial.

    sin(Real(ops, x)).value

x = n pi/2 + r. n pi/2 with pi/2 in three pieces is exact enough up to |x| = 65536. Only if some
lane is beyond, a branch computes n and r of those lanes from 216 bits of 2/pi (Payne and Hanek):
whole turns drop out of each partial product before the products are added up.
Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from minidlc.codegen.reals import MAGIC, MAGIC_F64, Real, nearest, polynomial
from minidlc.codegen.values import Value
from minidlc.expr.types import f32, f64

Pair = tuple[Real, Real]

HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
LIMIT = 65536.0
TWO_OVER_PI = (
    *(0xA2F983, 0x6E4E44, 0x1529FC, 0x2757D1, 0xF534DD),
    *(0xC0DB62, 0x95993C, 0x439041, 0xFE5163),
)  # 24 bits each, the first just behind the point

SIN = (
    2.8326185201876797e-06,
    -0.00019853068806696683,
    0.008333379402756691,
    -0.1666666716337204,
)
COS = (
    2.4432329155388288e-05,
    -0.0013887309469282627,
    0.04166664555668831,
)


def sin(x: Real) -> Real:
    """sin, cos, -sin, -cos of r for n = 0, 1, 2, 3 mod 4."""
    r, n = quarter_turns(x)
    return x.choose("==", 0.0, x, _turned(r, n))  # -0 stays -0


def cos(x: Real) -> Real:
    """sin of one quarter turn more."""
    r, n = quarter_turns(x)
    return _turned(r, n + 1)


def _turned(r: Real, n: Real) -> Real:
    square = r * r
    sine = (square * r).fma(polynomial(square, SIN), r)
    cosine = (square * square).fma(polynomial(square, COS), square.fma(-0.5, 1.0))
    value = sine.either((n & 1).test("==", 0), sine, cosine)
    return (value.bits() ^ ((n & 2) << 30)).as_float()


def quarter_turns(x: Real) -> Pair:
    """r and, in the low bits of an integer, n with x = n pi/2 + r."""
    n, bits = nearest(x, 2 / math.pi)
    r = x
    for part in HALF_PI:
        r = n.exact_fma(-part, r)
    far = x.abs().test(">=", LIMIT)
    return _where_any(far, lambda: _far_quarter_turns(x), (r, bits))


def _where_any(test: Value, other: Callable[[], Pair], usual: Pair) -> Pair:
    """`other` in the lanes where `test`, in a block that runs only if there is such a lane."""
    ops, b = usual[0].ops, usual[0].ops.b
    some = b.same(f"freeze i1 {ops.any(test) if test.width else test.text}")
    before, then, join = b.block, b.fresh("then", ""), b.fresh("join", "")
    with b.region(then) as region:
        found = [u.either(test, o, u) for o, u in zip(other(), usual, strict=True)]
        end = b.block
        b.line(f"br label %{join}")
    b.line(f"br i1 {some}, label %{then}, label %{join}")
    b.append(region)
    b.label(join)
    made: list[Real] = []
    for f, u in zip(found, usual, strict=True):
        old, new = u.value, f.value
        phi = f"phi {old.type} [ {old.text}, %{before} ], [ {new.text}, %{end} ]"
        made.append(Real(ops, Value(b.value(phi), old.dtype, old.width)))
    return made[0], made[1]


def _far_quarter_turns(x: Real) -> Pair:
    """The same for every finite x: x * 2/pi modulo 4 in pieces, each product exact in f64."""
    wide = x.cast(f64)
    fraction = n = wide * 0.0
    for k, piece in enumerate(TWO_OVER_PI, 1):
        part = wide * (piece * 2.0 ** (-24 * k))
        fraction = fraction + (part - (part * 0.25).rounded() * 4.0)
        whole = (fraction + MAGIC_F64) - MAGIC_F64
        n, fraction = n + whole, fraction - whole
    return (fraction * (math.pi / 2)).cast(f32), (n.cast(f32) + MAGIC).bits()
