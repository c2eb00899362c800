"""Normalisation at inference: batch_norm with given statistics; over neighbouring channels.

    apply("batch_norm", x, scale, bias, mean, var, epsilon=1e-5)
    apply("local_response_norm", x, size=5)

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Value, apply, tensor_type
from minidlc.graph.op import Example, Op, OpKind, register_op
from minidlc.ops import rules, samples
from minidlc.ops.composing import in_wide, narrowed
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
        axes = tuple(range(1, tensor_type(x).rank - 1))

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


@register_op
@dataclass(frozen=True)
class LocalResponseNorm(Op):
    """local_response_norm(x)[n, c, …] = x / (bias + alpha / size * s[n, c, …]) ** beta.

    s sums the squares of `size` channels around c: from c - (size - 1) // 2 to c + size // 2, those
    that there are.
    """

    kind = OpKind.COMPOSITE
    onnx = "LRN"
    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0

    def type_rule(self, x: TensorType) -> TensorType:
        rules.elements(self, "float", x)
        rules.finite(self, alpha=self.alpha, beta=self.beta, bias=self.bias)
        if x.rank < 2:
            rules.fail(self, f"x must have a channel axis 1, got {x}", rules.RANK)
        if self.size < 1:
            rules.fail(self, f"size must be at least 1, got {self.size}", rules.RANGE)
        x.dims  # noqa: B018  symbolic sizes are refused
        return x

    def _pads(self) -> tuple[int, int]:
        return (self.size - 1) // 2, self.size // 2

    def reference(self, x: Values) -> Values:
        v = widened(x)
        padded = np.pad(v * v, [(0, 0), self._pads(), *[(0, 0)] * (x.ndim - 2)])
        total = sum(padded[:, n : n + x.shape[1]] for n in range(self.size))
        kind = v.dtype.type
        divisor = (kind(self.bias) + kind(self.alpha / self.size) * total) ** kind(self.beta)
        return (v / divisor).astype(x.dtype, copy=False)

    def decompose(self, x: Value) -> Value:
        """The mean of a window of channels is an average over one axis of an image."""
        v, dims = in_wide(x), tensor_type(x).dims
        if 0 in dims:
            return apply("identity", x)
        image = apply("reshape", v * v, shape=(dims[0], 1, dims[1], math.prod(dims[2:])))
        before, after = self._pads()
        mean = apply(
            "average_pool", image, kernel_shape=(self.size, 1), pads=(before, 0, after, 0),
            count_include_pad=True,
        )  # fmt: skip
        mean = apply("reshape", mean, shape=dims)
        return narrowed(v / apply("pow", mean * self.alpha + self.bias, self.beta), x)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Sizes odd, even, 1, larger than the channels; ranks 2 to 4; other numbers."""
        for shape, size in (((2, 5, 3, 4), 3), ((1, 4, 2, 2), 2), ((1, 3, 5), 1), ((2, 3), 7)):
            yield Example(cls(size, 0.5), (samples.array(shape),), 1e-5, 1e-5)
        yield Example(cls(3, 2e-4, 0.5, 2.0), (samples.array((1, 7, 3, 3)),), 1e-5, 1e-5)
        yield Example(cls(3), (samples.array((1, 4, 3), "f16"),), **samples.tolerance("f16"))
        yield Example(cls(3), (samples.array((2, 3, 0)),))
