"""Activations: relu and its relatives, sigmoid, gelu, clip.

    apply("relu", x)
    apply("clip", x, min=0.0, max=6.0)

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.functions import FUNCTIONS
from minidlc.expr.nodes import Expr, binary, call, const, select
from minidlc.expr.types import TensorType
from minidlc.graph.graph import Node, Value, apply
from minidlc.graph.op import Example, register_op
from minidlc.ops import rules, samples
from minidlc.ops.elementwise import ScalarFunction, Unary
from minidlc.ops.gradients import Grads, chained, where_true
from minidlc.ops.rules import Values


@register_op
@dataclass(frozen=True)
class Relu(Unary):
    """relu(x)[i] = 0 if x[i] < 0 else x[i]; NaN stays NaN."""

    onnx = "Relu"
    takes = ("float", "int")

    def scalar(self, x: Expr) -> Expr:
        return select(x < 0, 0, x)

    def numpy(self, x: Values) -> Values:
        return np.where(x < 0, np.zeros_like(x), x)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """At 0 it is 0; reads y, not x, so that x need not be kept."""
        return (where_true(y > 0, dy),)


@register_op
@dataclass(frozen=True)
class LeakyRelu(Unary):
    """leaky_relu(x)[i] = alpha * x[i] if x[i] < 0 else x[i]."""

    onnx = "LeakyRelu"
    alpha: float = 0.01

    def type_rule(self, *inputs: TensorType) -> TensorType:
        rules.finite(self, alpha=self.alpha)
        return super().type_rule(*inputs)

    def scalar(self, x: Expr) -> Expr:
        return select(x < 0, x * self.alpha, x)

    def numpy(self, x: Values) -> Values:
        return np.where(x < 0, x * x.dtype.type(self.alpha), x)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """At 0 it is 1; reads y where its sign is that of x."""

        def rule(dy: Value, x: Value, y: Value) -> Value:
            return apply("where", (y if self.alpha > 0 else x) < 0, dy * self.alpha, dy)

        return chained(y, dy, rule)


@register_op
@dataclass(frozen=True)
class Elu(Unary):
    """elu(x)[i] = alpha * (exp(x[i]) - 1) if x[i] < 0 else x[i]."""

    onnx = "Elu"
    alpha: float = 1.0

    def type_rule(self, *inputs: TensorType) -> TensorType:
        rules.finite(self, alpha=self.alpha)
        return super().type_rule(*inputs)

    def scalar(self, x: Expr) -> Expr:
        return select(x < 0, (call("exp", x) - 1.0) * self.alpha, x)

    def numpy(self, x: Values) -> Values:
        return np.where(x < 0, (np.exp(x) - 1) * x.dtype.type(self.alpha), x)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """At 0 it is 1. Below 0 it is alpha * exp(x), which is y + alpha."""

        def rule(dy: Value, x: Value, y: Value) -> Value:
            return apply("where", (y if self.alpha > 0 else x) < 0, dy * (y + self.alpha), dy)

        return chained(y, dy, rule)


@register_op
@dataclass(frozen=True)
class Clip(Unary):
    """clip(x)[i] = x[i] kept in [min, max]; NaN stays NaN; a bound None does not bound.

    Where min > max the result is max. Bounds are finite; a bound that is computed, or NaN, is
    minimum(maximum(x, lo), hi), where NaN wins.
    """

    min: float | int | None = None
    max: float | int | None = None
    takes = rules.NUMBERS

    def type_rule(self, *inputs: TensorType) -> TensorType:
        rules.finite(self, min=self.min, max=self.max)
        return super().type_rule(*inputs)

    def scalar(self, x: Expr) -> Expr:
        if self.min is not None:
            x = binary("max", x, const(self.min, x.dtype))
        return x if self.max is None else binary("min", x, const(self.max, x.dtype))

    def numpy(self, x: Values) -> Values:
        if self.min is not None:
            x = np.maximum(x, x.dtype.type(self.min))
        return x if self.max is None else np.minimum(x, x.dtype.type(self.max))

    def gradient(self, y: Node, dy: Value) -> Grads:
        """At a bound it is 0, as relu at 0; reads y, not x, so that x need not be kept."""
        if self.min is not None:
            dy = where_true(y > self.min, dy)
        return (dy if self.max is None else where_true(y < self.max, dy),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Both bounds, one, none, crossed ones."""
        bounds = ((0.0, 6.0), (-1.0, 1.0), (1.0, None), (None, 2.0), (None, None), (2.0, 1.0))
        for low, high in bounds:
            yield Example(cls(low, high), (samples.array((5, 7), low=-4, high=8),))
        for element in ("f32", "f64", "f16"):
            yield Example(cls(1.0, 5.0), (samples.special(element),))
        for element in ("i32", "u8"):
            yield Example(cls(1, 5), (samples.special(element),))


@register_op
@dataclass(frozen=True)
class Sigmoid(ScalarFunction):
    """sigmoid(x)[i] = 1 / (1 + exp(-x[i]))."""

    onnx = "Sigmoid"

    def gradient(self, y: Node, dy: Value) -> Grads:
        return chained(y, dy, lambda dy, _x, y: dy * (y * (1.0 - y)))


@register_op
@dataclass(frozen=True)
class HardSigmoid(Unary):
    """hard_sigmoid(x)[i] = alpha * x[i] + beta kept in [0, 1]."""

    onnx = "HardSigmoid"
    alpha: float = 0.2
    beta: float = 0.5

    def type_rule(self, *inputs: TensorType) -> TensorType:
        rules.finite(self, alpha=self.alpha, beta=self.beta)
        return super().type_rule(*inputs)

    def scalar(self, x: Expr) -> Expr:
        line = x * self.alpha + self.beta
        return binary("max", binary("min", line, 1.0), 0.0)

    def numpy(self, x: Values) -> Values:
        line = x * x.dtype.type(self.alpha) + x.dtype.type(self.beta)
        return np.maximum(np.minimum(line, x.dtype.type(1)), x.dtype.type(0))

    def gradient(self, y: Node, dy: Value) -> Grads:
        """alpha where y is between 0 and 1, else 0; reads y, not x."""
        inside = apply("logical_and", y > 0.0, y < 1.0)
        return (where_true(inside, dy * self.alpha),)


@register_op
@dataclass(frozen=True)
class HardSwish(Unary):
    """hard_swish(x)[i] = x[i] * (x[i] / 6 + 1/2 kept in [0, 1])."""

    onnx = "HardSwish"

    def scalar(self, x: Expr) -> Expr:
        return x * binary("max", binary("min", x * (1 / 6) + 0.5, 1.0), 0.0)

    def numpy(self, x: Values) -> Values:
        kind = x.dtype.type
        return x * np.maximum(np.minimum(x * kind(1 / 6) + kind(0.5), kind(1)), kind(0))

    def gradient(self, y: Node, dy: Value) -> Grads:
        """x / 3 + 1/2 between the bends at -3 and 3, 0 before, 1 behind; at them as outside."""

        def rule(dy: Value, x: Value, _y: Value) -> Value:
            inside = apply("where", x < 3.0, dy * (x * (1 / 3) + 0.5), dy)
            return where_true(x > -3.0, inside)

        return chained(y, dy, rule)


@register_op
@dataclass(frozen=True)
class Gelu(Unary):
    """gelu(x)[i] = x[i] / 2 * (1 + erf(x[i] / sqrt(2))).

    With approximate="tanh": x[i] / 2 * (1 + tanh(sqrt(2/pi) * (x[i] + 0.044715 * x[i]**3))).
    """

    onnx = "Gelu"
    approximate: str = "none"

    def type_rule(self, *inputs: TensorType) -> TensorType:
        if self.approximate not in ("none", "tanh"):
            rules.fail(
                self, f"approximate must be 'none' or 'tanh', got {self.approximate!r}", rules.RANGE
            )
        return super().type_rule(*inputs)

    def scalar(self, x: Expr) -> Expr:
        if self.approximate == "tanh":
            cubic = x + x * x * x * 0.044715
            return x * 0.5 * (1.0 + call("tanh", cubic * math.sqrt(2 / math.pi)))
        return x * 0.5 * (1.0 + call("erf", x * math.sqrt(0.5)))

    def numpy(self, x: Values) -> Values:
        kind = x.dtype.type
        if self.approximate == "tanh":
            cubic = x + x * x * x * kind(0.044715)
            return x * kind(0.5) * (1 + np.tanh(cubic * kind(math.sqrt(2 / math.pi))))
        return x * kind(0.5) * (1 + FUNCTIONS["erf"].numpy(x * kind(math.sqrt(0.5))))

    def gradient(self, y: Node, dy: Value) -> Grads:
        """With y = x * p(x) it is p(x) + x * p'(x), where p is the formula's other factor.

        Beyond 40 p is 0 or 1 in every type; x is kept within, where its powers do not overflow.
        """

        def rule(dy: Value, x: Value, _y: Value) -> Value:
            x = apply("clip", x, min=-40.0, max=40.0)
            if self.approximate == "tanh":
                scale, cubic = math.sqrt(2 / math.pi), 0.044715
                t = apply("tanh", (x + x * x * x * cubic) * scale)
                slope = (1.0 - t) * (1.0 + t) * ((x * x * (3 * cubic) + 1.0) * (scale / 2))
                return dy * ((1.0 + t) * 0.5 + x * slope)
            below = (1.0 + apply("erf", x * math.sqrt(0.5))) * 0.5
            density = apply("exp", x * x * -0.5) * math.sqrt(0.5 / math.pi)
            return dy * (below + x * density)

        return chained(y, dy, rule)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Both forms."""
        yield from super().examples()
        yield Example(cls("tanh"), (samples.array((3, 17), low=-4, high=4),), 1e-5, 1e-6)
