"""Normalisations that take their statistics from the input itself: layer, RMS, instance, group.

    apply("layer_norm", x, scale, bias, axis=-1)    # over the axes from `axis` to the last
    apply("group_norm", x, scale, bias, num_groups=4)

The variance is the mean of squared distances from the mean, in two passes: the difference of two
means of squares cancels. f16 and bf16 are computed in f32 and rounded once. Treated in course
chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from minidlc.expr.index import Index
from minidlc.expr.nodes import Expr, call, const
from minidlc.expr.types import Dim, TensorType
from minidlc.graph.graph import Node, Value, apply, tensor_type
from minidlc.graph.op import Example, Op, OpKind, Pattern, register_op
from minidlc.ops import rules, samples
from minidlc.ops.composing import in_wide, narrowed, reshaped, scalar
from minidlc.ops.elementwise import axis_names, broadcast_index, load, to, widened
from minidlc.ops.gradients import Grads, given, summed_to
from minidlc.ops.reduction import reduce_over
from minidlc.ops.rules import Values
from minidlc.te import tensor as te
from minidlc.te.tensor import Tensor, compute

ELEMENTS = ("f64", "f16", "bf16")


def mean_over(x: Values, axes: tuple[int, ...]) -> Values:
    """NumPy: the mean over axes, which stay as ones."""
    count = math.prod(x.shape[a] for a in axes)
    return np.sum(x, axis=axes, keepdims=True, dtype=x.dtype) / x.dtype.type(count)


def _standardized(x: Values, axes: tuple[int, ...], epsilon: float) -> Values:
    """NumPy: mean 0 and variance 1 over axes."""
    distance = x - mean_over(x, axes)
    return distance / np.sqrt(mean_over(distance * distance, axes) + x.dtype.type(epsilon))


def _standardizing(
    x: Tensor, axes: tuple[int, ...], epsilon: float, name: str, *, centred: bool = True
) -> Callable[[tuple[Index, ...]], Expr]:
    """Tensor expressions of `_standardized`: the element at an index; not `centred`, the mean is 0.

    What there is one of a row keeps a 1 for each of the axes.
    """
    count = math.prod(x.shape[a] for a in axes)

    def row(index: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(Index.of(0) if d in axes else e for d, e in enumerate(index))

    def mean_of(total: Tensor, index: tuple[Index, ...]) -> Expr:
        return total[index] / const(count, total.dtype)

    def distance(index: tuple[Index, ...]) -> Expr:
        return load(x, index) - mean[row(index)] if centred else load(x, index)

    def square(*index: Index) -> Expr:
        value = distance(index)
        return value * value

    def deviation(*index: Index) -> Expr:
        return call("sqrt", mean_of(variance, index) + epsilon)

    total = reduce_over(x, axes, True, te.sum, f"{name}_sum")
    mean = compute(total.shape, lambda *i: mean_of(total, i), f"{name}_mean", axes=total.axes)
    squares = compute(x.shape, square, f"{name}_squares", axes=total.axes)
    variance = reduce_over(squares, axes, True, te.sum, f"{name}_variance")
    root = compute(variance.shape, deviation, f"{name}_deviation", axes=variance.axes)
    return lambda index: distance(index) / root[row(index)]


def _scaled_back(
    dy: Value,
    x: Value,
    scale: Value,
    axes: tuple[int, ...],
    epsilon: float,
    *,
    centred: bool = True,
) -> tuple[Value, Value]:
    """Of y = n * scale, n being x standardized: how the loss changes with x and with scale.

    dx = (g - mean(g) - n * mean(g * n)) / deviation with g = dy * scale; not `centred`, no mean(g).
    """

    def mean(v: Value) -> Value:
        return apply("mean", v, axes=tuple(axes))

    distance = x - mean(x) if centred else x
    inverse = apply("reciprocal", apply("sqrt", mean(distance * distance) + epsilon))
    n, g = distance * inverse, dy * scale
    dx = (g - mean(g) if centred else g) - n * mean(g * n)
    return dx * inverse, summed_to(dy * n, scale)


def _scaled(value: Expr, scale: Expr, bias: Expr | None = None) -> Expr:
    return value * scale if bias is None else value * scale + bias


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


@dataclass(frozen=True)
class RowNorm(Normalization):
    """Base of those that are one kernel: rows standardized, then scaled."""

    kind = OpKind.COMPILED
    pattern = Pattern.REDUCTION
    schedule = "norm"


@register_op
@dataclass(frozen=True)
class LayerNorm(RowNorm):
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

    def compute(self, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
        axes = self.last_axes(self.axis, len(x.shape))
        standard = _standardizing(x, axes, self.epsilon, self.name)

        def element(*index: Index) -> Expr:
            terms = (load(t, broadcast_index(t.shape, index, x.shape)) for t in (scale, bias) if t)
            return to(x.dtype, _scaled(standard(index), *terms))

        return compute(x.shape, element, self.name, axes=axis_names(len(x.shape)))

    def gradient(self, y: Node, dy: Value) -> Grads:
        x, scale, *bias = y.inputs
        assert x is not None
        assert scale is not None
        dy, axes = in_wide(dy), self.last_axes(self.axis, tensor_type(x).rank)
        dx, dscale = _scaled_back(dy, in_wide(x), in_wide(scale), axes, self.epsilon)
        dbias = (None if b is None else narrowed(summed_to(dy, b), b) for b in bias)
        return narrowed(dx, x), narrowed(dscale, scale), *dbias

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
class RmsNorm(RowNorm):
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
        root = np.sqrt(mean_over(v * v, axes) + v.dtype.type(self.epsilon))
        return (v / root * widened(scale)).astype(x.dtype, copy=False)

    def compute(self, x: Tensor, scale: Tensor) -> Tensor:
        axes = self.last_axes(self.axis, len(x.shape))
        standard = _standardizing(x, axes, self.epsilon, self.name, centred=False)

        def element(*index: Index) -> Expr:
            factor = load(scale, broadcast_index(scale.shape, index, x.shape))
            return to(x.dtype, standard(index) * factor)

        return compute(x.shape, element, self.name, axes=axis_names(len(x.shape)))

    def gradient(self, y: Node, dy: Value) -> Grads:
        x, scale = given(y)
        dy, axes = in_wide(dy), self.last_axes(self.axis, tensor_type(x).rank)
        dx, dscale = _scaled_back(dy, in_wide(x), in_wide(scale), axes, self.epsilon, centred=False)
        return narrowed(dx, x), narrowed(dscale, scale)

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
class InstanceNorm(RowNorm):
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

    def compute(self, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        axes = tuple(range(2, len(x.shape)))
        standard = _standardizing(x, axes, self.epsilon, self.name)

        def element(*index: Index) -> Expr:
            terms = (load(t, index[1:2]) for t in (scale, bias))
            return to(x.dtype, _scaled(standard(index), *terms))

        return compute(x.shape, element, self.name, axes=axis_names(len(x.shape)))

    def gradient(self, y: Node, dy: Value) -> Grads:
        x, scale, bias = given(y)
        rank, dy, column = tensor_type(x).rank, in_wide(dy), _as_column(scale, tensor_type(x).rank)
        axes = tuple(range(2, rank))
        dx, dscale = _scaled_back(dy, in_wide(x), column, axes, self.epsilon)
        each = (dscale, summed_to(dy, column))
        dscale, dbias = (reshaped(v, tensor_type(bias).dims) for v in each)
        return narrowed(dx, x), narrowed(dscale, scale), narrowed(dbias, bias)

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
        one = scalar(1, tensor_type(grouped).dtype)
        y = apply("layer_norm", grouped, one, epsilon=self.epsilon)
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
