"""Normalisations without scale and bias: a vector divided by its norm, mean 0 and variance 1.

    apply("lp_normalization", x, axis=-1, p=2)
    apply("mean_variance_normalization", x)         # over all axes but the channels of an image

Each is composed of simpler ops; f16 and bf16 are computed in f32 and rounded once. Treated in
course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Node, Value, apply, tensor_type
from minidlc.graph.op import Example, register_op
from minidlc.ops import rules, samples
from minidlc.ops.composing import in_wide, narrowed, scalar
from minidlc.ops.elementwise import widened
from minidlc.ops.gradients import Grads, chained
from minidlc.ops.normalization import ELEMENTS, Normalization, mean_over
from minidlc.ops.rules import Values


@register_op
@dataclass(frozen=True)
class LpNormalization(Normalization):
    """lp_normalization(x) = x / norm, 0 where the norm is 0.

    The norm along `axis` is the sum of |x| (p = 1) or the root of the sum of x * x (p = 2).
    """

    onnx = "LpNormalization"
    axis: int = -1
    p: int = 2

    def type_rule(self, x: TensorType) -> TensorType:
        rules.elements(self, "float", x)
        rules.axis(self, self.axis, x.rank)
        if self.p not in (1, 2):
            rules.fail(self, f"p must be 1 or 2, got {self.p}", rules.RANGE)
        return x

    def reference(self, x: Values) -> Values:
        v = widened(x)
        total = np.sum(np.abs(v) ** self.p, axis=self.axis, keepdims=True, dtype=v.dtype)
        norm = total if self.p == 1 else np.sqrt(total)
        return np.where(norm == 0, 0, v / norm).astype(x.dtype)

    def decompose(self, x: Value) -> Value:
        v = in_wide(x)
        norm = apply("reduce_l1" if self.p == 1 else "reduce_l2", v, axes=(self.axis,))
        zero = scalar(0, tensor_type(v).dtype)
        return narrowed(apply("where", apply("equal", norm, zero), zero, v / norm), x)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """(dy - n * sum of dy * y) / norm, n the gradient of the norm: y or sign(x); at norm 0, 0.

        There the quotient jumps, so it has no derivative.
        """

        def rule(dy: Value, x: Value, y: Value) -> Value:
            norm = apply("reduce_l1" if self.p == 1 else "reduce_l2", x, axes=(self.axis,))
            along = apply("sum", dy * y, axes=(self.axis,))
            dx = dy - (apply("sign", x) if self.p == 1 else y) * along
            nothing = apply("equal", norm, 0.0)
            return apply("where", nothing, 0.0, dx / apply("where", nothing, 1.0, norm))

        return chained(y, dy, rule)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Both norms, every axis, a norm of 0, special values, element types."""
        x = samples.array((2, 3, 4))
        for p in (1, 2):
            for axis in (0, 1, 2, -1):
                yield Example(cls(axis, p), (x,))
            special = np.array([[0, 0], [-0.0, 3], [np.nan, 1], [np.inf, 1]], np.float32)
            yield Example(cls(p=p), (special,))
            for element in ELEMENTS:
                yield Example(
                    cls(p=p), (samples.array((3, 5), element),), **samples.tolerance(element)
                )


@register_op
@dataclass(frozen=True)
class MeanVarianceNormalization(Normalization):
    """mean_variance_normalization(x) = (x - m) / (s + 1e-9).

    m and s are mean and standard deviation over `axes`, by default all but the channels of an
    image; where all elements are equal the result is 0. No axes at all are refused: engines
    disagree whether they mean every axis.
    """

    onnx = "MeanVarianceNormalization"
    axes: tuple[int, ...] = (0, 2, 3)

    def type_rule(self, x: TensorType) -> TensorType:
        rules.elements(self, "float", x)
        if not rules.axes(self, self.axes, x.rank):
            rules.fail(self, "axes must name an axis, got ()", rules.RANGE)
        return x

    def reference(self, x: Values) -> Values:
        v, axes = widened(x), rules.axes(self, self.axes, x.ndim)
        distance = v - mean_over(v, axes)
        deviation = np.sqrt(mean_over(distance * distance, axes))
        return (distance / (deviation + v.dtype.type(1e-9))).astype(x.dtype, copy=False)

    def decompose(self, x: Value) -> Value:
        v = in_wide(x)
        distance = v - apply("mean", v, axes=self.axes)
        deviation = apply("sqrt", apply("mean", distance * distance, axes=self.axes))
        return narrowed(distance / (deviation + 1e-9), x)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """(dy - mean(dy) - y * mean(dy * distance) / deviation) / (deviation + 1e-9).

        Where all elements are equal, distance and y are 0, and so is the last term.
        """

        def rule(dy: Value, x: Value, y: Value) -> Value:
            def mean(v: Value) -> Value:
                return apply("mean", v, axes=self.axes)

            distance = x - mean(x)
            deviation = apply("sqrt", mean(distance * distance))
            divisor = apply("where", apply("equal", deviation, 0.0), 1.0, deviation)
            dx = dy - mean(dy) - y * (mean(dy * distance) / divisor)
            return dx / (deviation + 1e-9)

        return chained(y, dy, rule)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """The default axes, others, equal elements, element types."""
        yield Example(cls(), (samples.array((2, 3, 4, 5)),), 1e-5, 1e-5)
        for axes in ((0,), (-1,), (0, 1), (0, 1, 2)):
            yield Example(cls(axes), (samples.array((4, 3, 5)),), 1e-5, 1e-5)
        yield Example(cls((1,)), (np.full((2, 4), 7, np.float32),))
        for element in ELEMENTS:
            yield Example(
                cls((1,)), (samples.array((3, 5), element),), **samples.tolerance(element)
            )
