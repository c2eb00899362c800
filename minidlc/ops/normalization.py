"""Normalisations that take their statistics from the input itself: layer, RMS, instance, group.

    apply("layer_norm", x, scale, bias, axis=-1)    # over the axes from `axis` to the last
    apply("group_norm", x, scale, bias, num_groups=4)

The variance is the mean of squared distances from the mean, in two passes: the difference of two
means of squares cancels. f16 and bf16 are computed in f32 and rounded once. Treated in course
chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import Dim, TensorType
from minidlc.graph.graph import Value, apply, tensor_type
from minidlc.graph.op import Example, Op, OpKind, register_op
from minidlc.ops import rules, samples
from minidlc.ops.composing import in_wide, narrowed, scalar
from minidlc.ops.elementwise import widened
from minidlc.ops.rules import Values

ELEMENTS = ("f64", "f16", "bf16")


def _mean(x: Values, axes: tuple[int, ...]) -> Values:
    """NumPy: the mean over axes, which stay as ones."""
    count = math.prod(x.shape[a] for a in axes)
    return np.sum(x, axis=axes, keepdims=True, dtype=x.dtype) / x.dtype.type(count)


def _standardized(x: Values, axes: tuple[int, ...], epsilon: float) -> Values:
    """NumPy: mean 0 and variance 1 over axes."""
    distance = x - _mean(x, axes)
    return distance / np.sqrt(_mean(distance * distance, axes) + x.dtype.type(epsilon))


def standardized(x: Value, axes: tuple[int, ...], epsilon: float) -> Value:
    """Graph side of `_standardized`."""
    distance = x - apply("mean", x, axes=axes)
    variance = apply("mean", distance * distance, axes=axes)
    return distance / apply("sqrt", variance + epsilon)


def _column(v: Values, rank: int) -> Values:
    """NumPy: one value a channel, shaped to broadcast along axis 1."""
    return widened(v).reshape(-1, *[1] * (rank - 2))


def _as_column(v: Value, rank: int) -> Value:
    """Graph side of `_column`."""
    axes = tuple(range(1, rank - 1))
    return apply("unsqueeze", in_wide(v), axes=axes) if axes else in_wide(v)


@dataclass(frozen=True)
class Normalization(Op):
    """Base: checks of the inputs and of epsilon."""

    kind = OpKind.COMPOSITE

    def check(self, epsilon: float, *inputs: TensorType) -> None:
        """Floats of one type; epsilon finite and not negative."""
        rules.elements(self, "float", *inputs)
        rules.finite(self, epsilon=epsilon)
        if epsilon < 0:
            rules.fail(self, f"epsilon must not be negative, got {epsilon}", rules.RANGE)

    def check_channels(
        self, x: TensorType, least: int, scale: TensorType, bias: TensorType
    ) -> None:
        """At least `least` axes, one scale and one bias a channel."""
        if x.rank < least:
            rules.fail(self, f"x must have rank {least} or more, got {x}", rules.RANK)
        for name, t in (("scale", scale), ("bias", bias)):
            if t.rank != 1 or not rules.same_dim(t.shape[0], x.shape[1]):
                rules.fail(self, f"{name} must be {x.dtype}[{x.shape[1]}], got {t}", rules.DIMS)

    def check_broadcast(self, x: TensorType, name: str, t: TensorType) -> None:
        """`t` broadcasts to x, and not the other way."""
        shape = rules.broadcast(self, x, t)
        same = len(shape) == x.rank and all(map(rules.same_dim, shape, x.shape))
        if not same:
            rules.fail(self, f"{name} {t} does not broadcast to x {x}", rules.DIMS)

    def last_axes(self, axis: int, rank: int) -> tuple[int, ...]:
        """The axes from `axis` to the last."""
        return tuple(range(rules.axis(self, axis, rank), rank))


@register_op
@dataclass(frozen=True)
class LayerNorm(Normalization):
    """layer_norm(x, scale, bias) = (x - m) / sqrt(v + epsilon) * scale + bias.

    m and v are mean and variance over the axes from `axis` to the last. scale and bias (may be
    omitted) broadcast to x.
    """

    onnx = "LayerNormalization"
    optional = (2,)
    axis: int = -1
    epsilon: float = 1e-5

    def type_rule(
        self, x: TensorType, scale: TensorType, bias: TensorType | None = None
    ) -> TensorType:
        self.check(self.epsilon, x, scale, *(() if bias is None else (bias,)))
        rules.axis(self, self.axis, x.rank)
        self.check_broadcast(x, "scale", scale)
        if bias is not None:
            self.check_broadcast(x, "bias", bias)
        return x

    def reference(self, x: Values, scale: Values, bias: Values | None = None) -> Values:
        axes = self.last_axes(self.axis, x.ndim)
        y = _standardized(widened(x), axes, self.epsilon) * widened(scale)
        return (y if bias is None else y + widened(bias)).astype(x.dtype, copy=False)

    def decompose(self, x: Value, scale: Value, bias: Value | None = None) -> Value:
        axes = self.last_axes(self.axis, tensor_type(x).rank)
        y = standardized(in_wide(x), axes, self.epsilon) * in_wide(scale)
        return narrowed(y if bias is None else y + in_wide(bias), x)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Every axis, no bias, a broadcast scale, large values with small differences, types."""
        x = samples.array((2, 3, 4))
        for axis in (0, 1, 2, -1, -2):
            scale, bias = (samples.array(x.shape[axis:], seed=n) for n in (1, 2))
            yield Example(cls(axis), (x, scale, bias), 1e-5, 1e-5)
        yield Example(cls(epsilon=0.1), (x, samples.array((4,))), 1e-5, 1e-5)
        yield Example(cls(axis=1), (x, samples.array((3, 4))), 1e-5, 1e-5)
        far = np.array([[80000, 80001, 80002, 80003]], np.float32)
        yield Example(cls(), (far, np.ones(4, np.float32), np.zeros(4, np.float32)))
        equal = np.full((2, 3), 7, np.float32)
        yield Example(cls(), (equal, samples.array((3,)), samples.array((3,), seed=1)))
        for element in ELEMENTS:
            inputs = tuple(samples.array(s, element) for s in ((3, 8), (8,), (8,)))
            yield Example(cls(), inputs, **samples.tolerance(element))


@register_op
@dataclass(frozen=True)
class RmsNorm(Normalization):
    """rms_norm(x, scale) = x / sqrt(mean of x * x + epsilon) * scale.

    The mean is over the axes from `axis` to the last; scale broadcasts to x.
    """

    onnx = "RMSNormalization"
    axis: int = -1
    epsilon: float = 1e-5

    def type_rule(self, x: TensorType, scale: TensorType) -> TensorType:
        self.check(self.epsilon, x, scale)
        rules.axis(self, self.axis, x.rank)
        self.check_broadcast(x, "scale", scale)
        return x

    def reference(self, x: Values, scale: Values) -> Values:
        v, axes = widened(x), self.last_axes(self.axis, x.ndim)
        root = np.sqrt(_mean(v * v, axes) + v.dtype.type(self.epsilon))
        return (v / root * widened(scale)).astype(x.dtype, copy=False)

    def decompose(self, x: Value, scale: Value) -> Value:
        v, axes = in_wide(x), self.last_axes(self.axis, tensor_type(x).rank)
        root = apply("sqrt", apply("mean", v * v, axes=axes) + self.epsilon)
        return narrowed(v / root * in_wide(scale), x)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Every axis, all zeros, another epsilon, element types."""
        x = samples.array((2, 3, 4))
        for axis in (0, 1, 2, -1):
            yield Example(cls(axis), (x, samples.array(x.shape[axis:], seed=1)), 1e-5, 1e-5)
        yield Example(cls(epsilon=0.1), (x, samples.array((4,))), 1e-5, 1e-5)
        yield Example(cls(), (np.zeros((2, 3), np.float32), samples.array((3,))))
        for element in ELEMENTS:
            inputs = tuple(samples.array(s, element) for s in ((3, 8), (8,)))
            yield Example(cls(), inputs, **samples.tolerance(element))


@register_op
@dataclass(frozen=True)
class InstanceNorm(Normalization):
    """instance_norm(x, scale, bias)[n, c, …] = (x - m) / sqrt(v + epsilon) * scale[c] + bias[c].

    m and v are mean and variance over the spatial axes, those after n and c.
    """

    onnx = "InstanceNormalization"
    epsilon: float = 1e-5

    def type_rule(self, x: TensorType, scale: TensorType, bias: TensorType) -> TensorType:
        self.check(self.epsilon, x, scale, bias)
        self.check_channels(x, 3, scale, bias)
        return x

    def reference(self, x: Values, scale: Values, bias: Values) -> Values:
        y = _standardized(widened(x), tuple(range(2, x.ndim)), self.epsilon)
        y = y * _column(scale, x.ndim) + _column(bias, x.ndim)
        return y.astype(x.dtype, copy=False)

    def decompose(self, x: Value, scale: Value, bias: Value) -> Value:
        rank = tensor_type(x).rank
        y = standardized(in_wide(x), tuple(range(2, rank)), self.epsilon)
        return narrowed(y * _as_column(scale, rank) + _as_column(bias, rank), x)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Rank 3 to 5, one element an instance, another epsilon, element types."""
        for shape in ((2, 3, 4, 5), (1, 2, 7), (1, 2, 2, 3, 2), (2, 1, 1)):
            yield Example(cls(), _inputs(shape), 1e-5, 1e-5)
        yield Example(cls(0.1), _inputs((1, 2, 3, 3)), 1e-5, 1e-5)
        for element in ELEMENTS:
            yield Example(cls(), _inputs((1, 2, 9), element), **samples.tolerance(element))


@register_op
@dataclass(frozen=True)
class GroupNorm(Normalization):
    """group_norm(x, scale, bias)[n, c, …] = (x - m) / sqrt(v + epsilon) * scale[c] + bias[c].

    m and v are mean and variance over the spatial axes and the channels of c's group; the
    channels are cut into `num_groups` equal runs.
    """

    onnx = "GroupNormalization"
    num_groups: int
    epsilon: float = 1e-5

    def type_rule(self, x: TensorType, scale: TensorType, bias: TensorType) -> TensorType:
        self.check(self.epsilon, x, scale, bias)
        self.check_channels(x, 2, scale, bias)
        channels = x.shape[1]
        if not isinstance(channels, int) or sum(not isinstance(d, int) for d in x.shape) > 1:
            text = f"x {x} must have one symbolic dim at most, and not its channels"
            rules.fail(self, text, rules.SYMBOLIC, "give the sizes: shapes={…}")
        if self.num_groups < 1 or channels % self.num_groups:
            text = f"num_groups {self.num_groups} does not divide {channels} channels"
            rules.fail(self, text, rules.RANGE)
        return x

    def reference(self, x: Values, scale: Values, bias: Values) -> Values:
        per_group = math.prod(x.shape[1:]) // self.num_groups
        grouped = widened(x).reshape(x.shape[0], self.num_groups, per_group)
        y = _standardized(grouped, (2,), self.epsilon).reshape(x.shape)
        y = y * _column(scale, x.ndim) + _column(bias, x.ndim)
        return y.astype(x.dtype, copy=False)

    def decompose(self, x: Value, scale: Value, bias: Value) -> Value:
        shape = tensor_type(x).shape
        rest: Dim = 1
        for dim in shape[1:]:
            rest = rest * dim
        groups = _sizes((shape[0], self.num_groups, rest // self.num_groups))
        grouped = apply("reshape", in_wide(x), shape=groups)
        y = standardized(grouped, (2,), self.epsilon)
        y = apply("reshape", y, shape=_sizes(shape))
        rank = len(shape)
        return narrowed(y * _as_column(scale, rank) + _as_column(bias, rank), x)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """One group, a group a channel, between; rank 2 to 5; element types."""
        for groups in (1, 2, 4):
            yield Example(cls(groups), _inputs((2, 4, 3, 2)), 1e-5, 1e-5)
        for shape in ((2, 6), (1, 4, 5), (1, 2, 2, 3, 2)):
            yield Example(cls(2, 0.1), _inputs(shape), 1e-5, 1e-5)
        for element in ELEMENTS:
            yield Example(cls(2), _inputs((1, 4, 5), element), **samples.tolerance(element))


def _sizes(shape: Sequence[Dim]) -> tuple[int, ...]:
    """For reshape: the one symbolic dim is what is left."""
    return tuple(d if isinstance(d, int) else -1 for d in shape)


def _inputs(shape: tuple[int, ...], element: str = "f32") -> tuple[Values, ...]:
    scale, bias = (samples.array(shape[1:2], element, seed=n) for n in (1, 2))
    return samples.array(shape, element), scale, bias


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
        distance = v - _mean(v, axes)
        deviation = np.sqrt(_mean(distance * distance, axes))
        return (distance / (deviation + v.dtype.type(1e-9))).astype(x.dtype, copy=False)

    def decompose(self, x: Value) -> Value:
        v = in_wide(x)
        distance = v - apply("mean", v, axes=self.axes)
        deviation = apply("sqrt", apply("mean", distance * distance, axes=self.axes))
        return narrowed(distance / (deviation + 1e-9), x)

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
