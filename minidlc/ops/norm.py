"""Normalisation at inference: batch_norm with given statistics.

    apply("batch_norm", x, scale, bias, mean, var, epsilon=1e-5)

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Value, apply
from minidlc.graph.op import Example, Op, OpKind, register_op
from minidlc.ops import rules, samples
from minidlc.ops.elementwise import widened
from minidlc.ops.rules import Values


@register_op
@dataclass(frozen=True)
class BatchNorm(Op):
    """batch_norm(x, scale, bias, mean, var)[n, c, …] = (x - mean[c]) * f[c] + bias[c].

    f[c] = scale[c] / sqrt(var[c] + epsilon). The statistics are given: this is inference.
    """

    kind = OpKind.COMPOSITE
    onnx = "BatchNormalization"
    epsilon: float = 1e-5

    def type_rule(self, x: TensorType, *statistics: TensorType) -> TensorType:
        rules.arity(self, (x, *statistics), 5)
        rules.finite(self, epsilon=self.epsilon)
        if self.epsilon < 0:
            rules.fail(self, f"epsilon must not be negative, got {self.epsilon}", rules.RANGE)
        rules.elements(self, "float", x, *statistics)
        if x.rank < 2:
            rules.fail(self, f"x must have a channel axis 1, got {x}", rules.RANK)
        for name, t in zip(("scale", "bias", "mean", "var"), statistics, strict=True):
            if t.rank != 1 or not rules.same_dim(t.shape[0], x.shape[1]):
                rules.fail(self, f"{name} must be {x.dtype}[{x.shape[1]}], got {t}", rules.DIMS)
        return x

    def reference(
        self, x: Values, scale: Values, bias: Values, mean: Values, var: Values
    ) -> Values:
        column = (-1, *[1] * (x.ndim - 2))
        scale, bias, mean, var = (widened(a).reshape(column) for a in (scale, bias, mean, var))
        factor = scale / np.sqrt(var + var.dtype.type(self.epsilon))
        return ((widened(x) - mean) * factor + bias).astype(x.dtype, copy=False)

    def decompose(self, x: Value, scale: Value, bias: Value, mean: Value, var: Value) -> Value:
        assert isinstance(x.type, TensorType)
        axes = tuple(range(1, x.type.rank - 1))

        def column(v: Value) -> Value:
            return apply("unsqueeze", v, axes=axes) if axes else v

        factor = scale / apply("sqrt", var + self.epsilon)
        return (x - column(mean)) * column(factor) + column(bias)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Rank 2 to 5, one channel, another epsilon, a wide type."""
        for shape in ((2, 3, 4, 5), (1, 3), (2, 1, 3), (1, 4, 2, 2, 2)):
            for epsilon in (1e-5, 0.1):
                yield Example(cls(epsilon), _inputs(shape, "f32"), 1e-5, 1e-5)
        yield Example(cls(), _inputs((1, 2, 3, 3), "f64"), 1e-11, 1e-11)


def _inputs(shape: tuple[int, ...], element: str) -> tuple[Values, ...]:
    channel = shape[1:2]
    signed = [samples.array(channel, element, seed=n) for n in range(3)]
    return (samples.array(shape, element), *signed, samples.array(channel, element, 0.1, 2.0, 3))
