"""Elementwise functions of one input, from abs to tanh.

    apply("exp", x)                                 # every element e ** x[i]

Most are one entry of expr.functions.FUNCTIONS. NaN in gives NaN out unless the op says otherwise.
Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from minidlc.expr.nodes import Const, Expr, binary, call, compare, const, select
from minidlc.expr.types import bool_
from minidlc.graph.graph import Node, Value, apply
from minidlc.graph.op import register_op
from minidlc.ops import rules
from minidlc.ops.elementwise import ScalarFunction, Unary
from minidlc.ops.gradients import Grads, chained
from minidlc.ops.rules import Values


@register_op
@dataclass(frozen=True)
class Abs(ScalarFunction):
    """abs(x)[i] = x[i] if x[i] >= 0 else -x[i]; the lowest integer stays itself (it wraps)."""

    onnx = "Abs"
    takes = rules.NUMBERS

    def gradient(self, y: Node, dy: Value) -> Grads:
        """At 0 it is 0, the middle of what -1 and 1 allow."""
        return chained(y, dy, lambda dy, x, _y: dy * apply("sign", x))


@register_op
@dataclass(frozen=True)
class Neg(Unary):
    """neg(x)[i] = -x[i]; integers wrap."""

    onnx = "Neg"
    takes = rules.NUMBERS

    def scalar(self, x: Expr) -> Expr:
        return -x

    def numpy(self, x: Values) -> Values:
        return -x

    def gradient(self, y: Node, dy: Value) -> Grads:
        return (-dy,)


@register_op
@dataclass(frozen=True)
class Reciprocal(Unary):
    """reciprocal(x)[i] = 1 / x[i]."""

    onnx = "Reciprocal"

    def scalar(self, x: Expr) -> Expr:
        return 1.0 / x

    def numpy(self, x: Values) -> Values:
        return np.reciprocal(x)

    def gradient(self, y: Node, dy: Value) -> Grads:
        return chained(y, dy, lambda dy, _x, y: -dy * y * y)


@register_op
@dataclass(frozen=True)
class Sign(ScalarFunction):
    """sign(x)[i] = -1, 0 or 1; NaN stays NaN."""

    onnx = "Sign"
    takes = rules.NUMBERS

    def gradient(self, y: Node, dy: Value) -> Grads:
        """0 between the jumps, and at them by convention."""
        return (None,)


@register_op
@dataclass(frozen=True)
class Exp(ScalarFunction):
    """exp(x)[i] = e ** x[i]."""

    onnx = "Exp"

    def gradient(self, y: Node, dy: Value) -> Grads:
        return chained(y, dy, lambda dy, _x, y: dy * y)


@register_op
@dataclass(frozen=True)
class Log(ScalarFunction):
    """log(x)[i] = natural logarithm; -inf at 0, NaN below."""

    onnx = "Log"
    domain = (0.01, 5.0)

    def gradient(self, y: Node, dy: Value) -> Grads:
        return chained(y, dy, lambda dy, x, _y: dy / x)


@register_op
@dataclass(frozen=True)
class Sqrt(ScalarFunction):
    """sqrt(x)[i] = x[i] ** 0.5; NaN below 0, and sqrt(-0.0) = -0.0."""

    onnx = "Sqrt"
    domain = (0.0, 5.0)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """At 0 it is infinite, and NaN where dy is 0: take the root of where(x > 0, x, 1)."""
        return chained(y, dy, lambda dy, _x, y: dy * 0.5 / y)


@register_op
@dataclass(frozen=True)
class Floor(ScalarFunction):
    """floor(x)[i] = the largest integer not above x[i]."""

    onnx = "Floor"

    def gradient(self, y: Node, dy: Value) -> Grads:
        """0 between the jumps, and at them by convention."""
        return (None,)


@register_op
@dataclass(frozen=True)
class Ceil(ScalarFunction):
    """ceil(x)[i] = the smallest integer not below x[i]."""

    onnx = "Ceil"

    def gradient(self, y: Node, dy: Value) -> Grads:
        """0 between the jumps, and at them by convention."""
        return (None,)


@register_op
@dataclass(frozen=True)
class Round(ScalarFunction):
    """round(x)[i] = the nearest integer, of two the even one: 0.5 -> 0, 1.5 -> 2, -4.5 -> -4."""

    onnx = "Round"

    def gradient(self, y: Node, dy: Value) -> Grads:
        """0 between the jumps, and at them by convention."""
        return (None,)


@register_op
@dataclass(frozen=True)
class Sin(ScalarFunction):
    """sin(x)[i]; NaN at infinity."""

    onnx = "Sin"

    def gradient(self, y: Node, dy: Value) -> Grads:
        return chained(y, dy, lambda dy, x, _y: dy * apply("cos", x))


@register_op
@dataclass(frozen=True)
class Cos(ScalarFunction):
    """cos(x)[i]; NaN at infinity."""

    onnx = "Cos"

    def gradient(self, y: Node, dy: Value) -> Grads:
        return chained(y, dy, lambda dy, x, _y: -dy * apply("sin", x))


@register_op
@dataclass(frozen=True)
class Tan(ScalarFunction):
    """tan(x)[i] = sin(x[i]) / cos(x[i])."""

    onnx = "Tan"
    domain = (-1.2, 1.2)

    def gradient(self, y: Node, dy: Value) -> Grads:
        return chained(y, dy, lambda dy, _x, y: dy * (1.0 + y * y))


@register_op
@dataclass(frozen=True)
class Asin(ScalarFunction):
    """asin(x)[i] = the angle in [-pi/2, pi/2] whose sine is x[i]; NaN outside [-1, 1]."""

    onnx = "Asin"
    domain = (-1.0, 1.0)

    def gradient(self, y: Node, dy: Value) -> Grads:
        return chained(y, dy, lambda dy, x, _y: dy / apply("sqrt", (1.0 - x) * (1.0 + x)))


@register_op
@dataclass(frozen=True)
class Acos(ScalarFunction):
    """acos(x)[i] = the angle in [0, pi] whose cosine is x[i]; NaN outside [-1, 1]."""

    onnx = "Acos"
    domain = (-1.0, 1.0)

    def gradient(self, y: Node, dy: Value) -> Grads:
        return chained(y, dy, lambda dy, x, _y: -dy / apply("sqrt", (1.0 - x) * (1.0 + x)))


@register_op
@dataclass(frozen=True)
class Atan(ScalarFunction):
    """atan(x)[i] = the angle in (-pi/2, pi/2) whose tangent is x[i]."""

    onnx = "Atan"

    def gradient(self, y: Node, dy: Value) -> Grads:
        return chained(y, dy, lambda dy, x, _y: dy / (1.0 + x * x))


@register_op
@dataclass(frozen=True)
class Sinh(ScalarFunction):
    """sinh(x)[i] = (exp(x[i]) - exp(-x[i])) / 2."""

    onnx = "Sinh"

    def gradient(self, y: Node, dy: Value) -> Grads:
        return chained(y, dy, lambda dy, x, _y: dy * apply("cosh", x))


@register_op
@dataclass(frozen=True)
class Cosh(ScalarFunction):
    """cosh(x)[i] = (exp(x[i]) + exp(-x[i])) / 2."""

    onnx = "Cosh"

    def gradient(self, y: Node, dy: Value) -> Grads:
        return chained(y, dy, lambda dy, x, _y: dy * apply("sinh", x))


@register_op
@dataclass(frozen=True)
class Tanh(ScalarFunction):
    """tanh(x)[i] = sinh(x[i]) / cosh(x[i])."""

    onnx = "Tanh"

    def gradient(self, y: Node, dy: Value) -> Grads:
        """1 - y * y as a product, which does not cancel where y is near 1."""
        return chained(y, dy, lambda dy, _x, y: dy * ((1.0 - y) * (1.0 + y)))


@register_op
@dataclass(frozen=True)
class Asinh(ScalarFunction):
    """asinh(x)[i] = the number whose sinh is x[i]."""

    onnx = "Asinh"

    def gradient(self, y: Node, dy: Value) -> Grads:
        return chained(y, dy, lambda dy, x, _y: dy / apply("sqrt", x * x + 1.0))


@register_op
@dataclass(frozen=True)
class Acosh(ScalarFunction):
    """acosh(x)[i] = the number >= 0 whose cosh is x[i]; NaN below 1."""

    onnx = "Acosh"
    domain = (1.0, 5.0)

    def gradient(self, y: Node, dy: Value) -> Grads:
        return chained(y, dy, lambda dy, x, _y: dy / apply("sqrt", (x - 1.0) * (x + 1.0)))


@register_op
@dataclass(frozen=True)
class Atanh(ScalarFunction):
    """atanh(x)[i] = the number whose tanh is x[i]; infinite at -1 and 1, NaN outside."""

    onnx = "Atanh"
    domain = (-0.9, 0.9)

    def gradient(self, y: Node, dy: Value) -> Grads:
        return chained(y, dy, lambda dy, x, _y: dy / ((1.0 - x) * (1.0 + x)))


@register_op
@dataclass(frozen=True)
class Erf(ScalarFunction):
    """erf(x)[i] = 2/sqrt(pi) * integral from 0 to x[i] of exp(-t**2) dt."""

    onnx = "Erf"

    def gradient(self, y: Node, dy: Value) -> Grads:
        return chained(
            y, dy, lambda dy, x, _y: dy * (apply("exp", -x * x) * (2 / math.sqrt(math.pi)))
        )


@register_op
@dataclass(frozen=True)
class Isnan(ScalarFunction):
    """isnan(x)[i] = whether x[i] is not a number."""

    onnx = "IsNaN"
    result = bool_


@register_op
@dataclass(frozen=True)
class Isinf(ScalarFunction):
    """isinf(x)[i] = whether x[i] is an infinity, of either sign."""

    onnx = "IsInf"
    result = bool_


@register_op
@dataclass(frozen=True)
class LogicalNot(Unary):
    """logical_not(x)[i] = not x[i], of bool."""

    onnx = "Not"
    takes = ("bool",)

    def scalar(self, x: Expr) -> Expr:
        return binary("^", x, Const(True, bool_))

    def numpy(self, x: Values) -> Values:
        return np.logical_not(x)


@register_op
@dataclass(frozen=True)
class BitwiseNot(Unary):
    """bitwise_not(x)[i] = every bit of x[i] flipped, of integers."""

    onnx = "BitwiseNot"
    takes = rules.INTEGERS

    def scalar(self, x: Expr) -> Expr:
        return call("invert", x)

    def numpy(self, x: Values) -> Values:
        return np.invert(x)


@register_op
@dataclass(frozen=True)
class Softplus(Unary):
    """softplus(x)[i] = log(1 + exp(x[i])), written max(x, 0) + log(1 + exp(-|x|)): no overflow.

    log(1 + e) of a small e is log(u) * e / (u - 1) with u = 1 + e as rounded: what u lost, both
    lost (D. Goldberg, "What Every Computer Scientist Should Know About Floating-Point", 1991).
    """

    onnx = "Softplus"

    def scalar(self, x: Expr) -> Expr:
        zero = const(0.0, x.dtype)
        e = call("exp", -call("abs", x))
        u = 1.0 + e
        tail = select(compare("==", u, 1.0), e, call("log", u) * (e / (u - 1.0)))
        return binary("max", x, zero) + tail

    def numpy(self, x: Values) -> Values:
        return np.logaddexp(x, np.zeros_like(x))

    def gradient(self, y: Node, dy: Value) -> Grads:
        return chained(y, dy, lambda dy, x, _y: dy * apply("sigmoid", x))


@register_op
@dataclass(frozen=True)
class Softsign(Unary):
    """softsign(x)[i] = x[i] / (1 + |x[i]|)."""

    onnx = "Softsign"

    def scalar(self, x: Expr) -> Expr:
        return x / (1.0 + call("abs", x))

    def numpy(self, x: Values) -> Values:
        return x / (1 + np.abs(x))

    def gradient(self, y: Node, dy: Value) -> Grads:
        """1 / (1 + |x|) is 1 - |y|, squared: x need not be kept."""
        return chained(y, dy, lambda dy, _x, y: dy * (1.0 - apply("abs", y)) ** 2)
