"""What bodies of tensor expressions are written with, besides + - * / and comparisons.

    compute((4, 8), lambda i, j: select(i >= 1, exp(A[i - 1, j]), 0.0))     # a zero border
    compute((4, 8), lambda i, j: maximum(A[i, j], 0.0))
    compute((4, 8), lambda i, j: lookup(A, cast("i64", ids[i]), j))         # a gather of rows

Each takes expressions and numbers, of one element type, and builds an expression.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from minidlc.expr.functions import FUNCTIONS
from minidlc.expr.index import Cond, Position
from minidlc.expr.index import Index as _Index
from minidlc.expr.nodes import (
    BITWISE,
    Binary,
    Cast,
    Expr,
    ExprBase,
    IndexValue,
    binary,
    call,
    compare,
    wrap,
)
from minidlc.expr.nodes import select as _select
from minidlc.expr.types import DType, dtype
from minidlc.expr.walk import at
from minidlc.support.arguments import expect, expect_each
from minidlc.support.errors import LoweringError
from minidlc.te.tensor import Tensor


def select(cond: Cond | Expr, a: object, b: object) -> Expr:
    """`a` where `cond` holds, else `b`; under a condition on positions only one is evaluated."""
    return _select(cond if isinstance(cond, Cond) else _test("select", cond), a, b)


def where(cond: Expr, a: object, b: object) -> Expr:
    """`a` where the bool value `cond` is true, else `b`; both may be evaluated."""
    return _select(_test("where", cond), a, b)


def _test(function: str, cond: object) -> Expr:
    """A condition on values; LoweringError (MDLC0702) for anything but a bool expression."""
    test = wrap(cond)
    if test.dtype.kind != "bool" or isinstance(cond, bool):
        got = f"is {cond} for all elements" if isinstance(cond, bool) else f"is of {test.dtype}"
        raise LoweringError(
            f"{function}: the condition {got}, expected a bool value",
            hint="te.equal(a, b) compares elements; a == b compares the expressions",
            code="MDLC0702",
        )
    return test


def cast(to: DType | str, a: object) -> Expr:
    """`a` converted; float to integer truncates and saturates."""
    value, type = wrap(a), dtype(to)
    return value if value.dtype == type else Cast(type, value)


def index(position: Position) -> Expr:
    """A position as an i64 value."""
    return IndexValue(_Index.of(position))


def lookup(tensor: Tensor, *positions: object) -> Expr:
    """The element of `tensor` at positions that may be i64 values, each clamped into its axis.

    Axis positions and numbers are taken as they are. In an axis of no elements nothing can be
    looked up: such a stage must have no elements either.
    LoweringError (MDLC0725) for a value that is no i64.
    """
    expect("lookup", "tensor", tensor, Tensor)
    if len(positions) != len(tensor.axes):
        return tensor[positions]  # refuses
    return tensor[tuple(_position(p, n) for p, n in zip(positions, tensor.shape, strict=True))]


def _position(p: object, extent: int) -> Position:
    match p:
        case IndexValue(position):
            return position
        case ExprBase():
            return at(wrap(p), max(extent, 1))
        case _:
            return _Index.of(p)  # pyright: ignore[reportArgumentType]


def maximum(a: object, b: object) -> Expr:
    """The larger value; NaN if one is NaN."""
    return binary("max", a, b)


def minimum(a: object, b: object) -> Expr:
    """The smaller value; NaN if one is NaN."""
    return binary("min", a, b)


def equal(a: object, b: object) -> Expr:
    """`a == b`, a bool value (`==` between expressions compares the expressions)."""
    return compare("==", a, b)


def not_equal(a: object, b: object) -> Expr:
    """`a != b`, a bool value."""
    return compare("!=", a, b)


def bitwise(op: str, a: object, b: object) -> Expr:
    """`a op b` for op in & | ^ << >>: integers; & | ^ on bool as well."""
    expect("bitwise", "op", op, str)
    if op not in BITWISE:
        hint = f"known: {' '.join(BITWISE)}"
        raise LoweringError(f"no operator {op!r} on bits", hint=hint, code="MDLC0702")
    value = binary(op, a, b)
    if value.dtype.is_float or (op in ("<<", ">>") and not value.dtype.is_integer):
        raise LoweringError(f"no operator {op!r} on {value.dtype}", code="MDLC0702")
    return Binary(op, value.a, value.b) if isinstance(value, Binary) else value


def _unary(fn: str, a: object) -> Expr:
    return call(fn, wrap(a))


def _two(fn: str, a: object, b: object) -> Expr:
    if isinstance(a, (int, float)):
        right = wrap(b)
        return call(fn, wrap(a, right.dtype), right)
    left = wrap(a)
    return call(fn, left, wrap(b, left.dtype))


def abs(x: object) -> Expr:
    """Absolute value."""
    return _unary("abs", x)


def exp(x: object) -> Expr:
    """e to the x."""
    return _unary("exp", x)


def exp_negative(x: object) -> Expr:
    """e to the x for x <= 0, cheaper than `exp`; results that would be denormal may be 0."""
    return _unary("exp_negative", x)


def log(x: object) -> Expr:
    """Natural logarithm."""
    return _unary("log", x)


def sqrt(x: object) -> Expr:
    """Square root."""
    return _unary("sqrt", x)


def sin(x: object) -> Expr:
    """Sine."""
    return _unary("sin", x)


def cos(x: object) -> Expr:
    """Cosine."""
    return _unary("cos", x)


def tan(x: object) -> Expr:
    """Tangent."""
    return _unary("tan", x)


def asin(x: object) -> Expr:
    """Arc sine."""
    return _unary("asin", x)


def acos(x: object) -> Expr:
    """Arc cosine."""
    return _unary("acos", x)


def atan(x: object) -> Expr:
    """Arc tangent."""
    return _unary("atan", x)


def sinh(x: object) -> Expr:
    """Hyperbolic sine."""
    return _unary("sinh", x)


def cosh(x: object) -> Expr:
    """Hyperbolic cosine."""
    return _unary("cosh", x)


def asinh(x: object) -> Expr:
    """Inverse hyperbolic sine."""
    return _unary("asinh", x)


def acosh(x: object) -> Expr:
    """Inverse hyperbolic cosine."""
    return _unary("acosh", x)


def atanh(x: object) -> Expr:
    """Inverse hyperbolic tangent."""
    return _unary("atanh", x)


def tanh(x: object) -> Expr:
    """Hyperbolic tangent."""
    return _unary("tanh", x)


def floor(x: object) -> Expr:
    """Largest integer not above, as a float."""
    return _unary("floor", x)


def ceil(x: object) -> Expr:
    """Smallest integer not below, as a float."""
    return _unary("ceil", x)


def round(x: object) -> Expr:
    """Nearest integer, halves to even."""
    return _unary("round", x)


def sign(x: object) -> Expr:
    """-1, 0 or 1."""
    return _unary("sign", x)


def invert(x: object) -> Expr:
    """Bitwise complement; not, of bool."""
    return _unary("invert", x)


def erf(x: object) -> Expr:
    """Error function."""
    return _unary("erf", x)


def sigmoid(x: object) -> Expr:
    """1 / (1 + exp(-x))."""
    return _unary("sigmoid", x)


def isnan(x: object) -> Expr:
    """Whether it is NaN, a bool value."""
    return _unary("isnan", x)


def isinf(x: object) -> Expr:
    """Whether it is infinite, a bool value."""
    return _unary("isinf", x)


def pow(a: object, b: object) -> Expr:
    """`a` to the power of `b`."""
    return _two("pow", a, b)


def truncdiv(a: object, b: object) -> Expr:
    """Integer division rounding toward zero; by 0 it is 0."""
    return _two("truncdiv", a, b)


def dot4(total: Expr, a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
    """`total + a[0]*b[0] + … + a[3]*b[3]` of i32, four u8 and four i8: exact."""
    four = (expect_each("dot4", name, x, object) for name, x in (("a", a), ("b", b)))
    args = tuple(wrap(x) for x in (total, *itertools.chain(*four)))
    types = tuple(str(x.dtype) for x in args)
    if types != FUNCTIONS["dot4"].types:
        message = f"dot4 takes i32, four u8 and four i8, got {', '.join(types)}"
        raise LoweringError(message, code="MDLC0702")
    return call("dot4", *args)


def floormod(a: object, b: object) -> Expr:
    """Remainder with the sign of `b`."""
    return _two("floormod", a, b)


def fmod(a: object, b: object) -> Expr:
    """Remainder with the sign of `a`."""
    return _two("fmod", a, b)
