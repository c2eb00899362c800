"""Reductions with a step before or after the sum: norms, sums of squares, logarithms of sums.

    apply("reduce_l2", x, axes=(1,))                # sqrt of the sum of squares: f32[4, 1]
    apply("reduce_log_sum_exp", x, keepdims=False)  # log of the sum of exponentials: f32[]

Each is composed of simpler ops; f16 and bf16 are computed in f32 and rounded once. With axes ()
nothing is summed, but the other steps are done. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from minidlc.expr.types import TensorType, dtype
from minidlc.graph.graph import Node, Value, apply, tensor_type
from minidlc.graph.op import Example, Op, OpKind, register_op
from minidlc.ops import rules, samples
from minidlc.ops.composing import in_wide, narrowed
from minidlc.ops.elementwise import widened
from minidlc.ops.gradients import Grads, chained, spread
from minidlc.ops.rules import Values


@dataclass(frozen=True)
class CompositeReduction(Op):
    """Base: `steps` in graph values, `numpy` in arrays. `axes` None means all of them."""

    kind = OpKind.COMPOSITE
    takes: ClassVar[tuple[str, ...]] = ("float",)
    axes: tuple[int, ...] | None = None
    keepdims: bool = True

    numpy: ClassVar[Callable[..., Values]]  # (self, array, axes) -> array: the meaning
    steps: ClassVar[Callable[..., Value]]  # (self, value) -> value: the same in simpler ops

    def type_rule(self, x: TensorType) -> TensorType:
        rules.elements(self, self.takes, x)
        return rules.reduced(self, x, self.axes, self.keepdims)

    def reference(self, x: Values) -> Values:
        axes = rules.axes(self, self.axes, x.ndim)
        return np.asarray(self.numpy(widened(x), axes)).astype(x.dtype, copy=False)

    def decompose(self, x: Value) -> Value:
        return narrowed(self.steps(in_wide(x)), x)

    def sum(self, x: Value) -> Value:
        """The `sum` op with this op's axes."""
        return apply("sum", x, axes=self.axes, keepdims=self.keepdims)

    def spread(self, dy: Value, x: Value) -> Value:
        """What there is one of for each result, repeated along this op's axes."""
        axes = rules.axes(self, self.axes, tensor_type(x).rank)
        return spread(dy, x, axes, self.keepdims)

    def total(self, x: Values, axes: tuple[int, ...]) -> Values:
        """NumPy's sum in the element type of `x`."""
        return np.asarray(np.sum(x, axis=axes, keepdims=self.keepdims, dtype=x.dtype))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Each axis, several, none, all; no elements; element types; NaN and infinities."""
        x = samples.array((3, 5, 7), low=0.5, high=1.5)
        for axes in (None, (0,), (-1,), (0, 2), (), (0, 1, 2)):
            for keepdims in (True, False):
                yield Example(cls(axes, keepdims), (x,), 1e-5, 1e-5)
        for shape in ((), (1,), (130,)):
            yield Example(cls(), (samples.array(shape, low=0.5, high=1.5),), 1e-5, 1e-5)
        for shape, axes in (((2, 0), (1,)), ((2, 0), (0,)), ((0, 3), None)):
            yield Example(cls(axes, False), (samples.array(shape),))
        for element in ("f64", "f16", "bf16", "i32", "i64", "u8"):
            if dtype(element).kind in cls.takes:
                low = 0.5 if dtype(element).is_float else -4
                y = samples.array((4, 6), element, low, 4)
                yield Example(cls((1,)), (y,), **samples.tolerance(element))
        special = np.array([[np.nan, 1], [2, np.nan], [-0.0, 0.0], [1e-30, 3]], np.float32)
        yield Example(cls((1,), False), (special,))


@register_op
@dataclass(frozen=True)
class ReduceL1(CompositeReduction):
    """reduce_l1(x)[…] = sum over `axes` of |x|; of nothing it is 0."""

    onnx = "ReduceL1"
    takes = rules.NUMBERS

    def numpy(self, x: Values, axes: tuple[int, ...]) -> Values:
        return self.total(np.abs(x), axes)

    def steps(self, x: Value) -> Value:
        return self.sum(apply("abs", x))


@register_op
@dataclass(frozen=True)
class ReduceL2(CompositeReduction):
    """reduce_l2(x)[…] = sqrt(sum over `axes` of x * x); of nothing it is 0."""

    onnx = "ReduceL2"

    def numpy(self, x: Values, axes: tuple[int, ...]) -> Values:
        return np.sqrt(self.total(x * x, axes))

    def steps(self, x: Value) -> Value:
        return apply("sqrt", self.sum(x * x))

    def gradient(self, y: Node, dy: Value) -> Grads:
        """dx = dy * x / y, and 0 where the norm is 0: any number up to 1 would do there."""

        def rule(dy: Value, x: Value, y: Value) -> Value:
            return x * self.spread(dy / apply("where", apply("equal", y, 0.0), 1.0, y), x)

        return chained(y, dy, rule)


@register_op
@dataclass(frozen=True)
class ReduceSumSquare(CompositeReduction):
    """reduce_sum_square(x)[…] = sum over `axes` of x * x; of nothing it is 0; integers wrap."""

    onnx = "ReduceSumSquare"
    takes = rules.NUMBERS

    def numpy(self, x: Values, axes: tuple[int, ...]) -> Values:
        return self.total(x * x, axes)

    def steps(self, x: Value) -> Value:
        return self.sum(x * x)

    def gradient(self, y: Node, dy: Value) -> Grads:
        return chained(y, dy, lambda dy, x, _y: x * self.spread(dy * 2.0, x))


@register_op
@dataclass(frozen=True)
class ReduceLogSum(CompositeReduction):
    """reduce_log_sum(x)[…] = log(sum over `axes` of x); of nothing it is -inf."""

    onnx = "ReduceLogSum"

    def numpy(self, x: Values, axes: tuple[int, ...]) -> Values:
        return np.log(self.total(x, axes))

    def steps(self, x: Value) -> Value:
        return apply("log", self.sum(x))


@register_op
@dataclass(frozen=True)
class ReduceLogSumExp(CompositeReduction):
    """reduce_log_sum_exp(x)[…] = m + log(sum over `axes` of exp(x - m)), m the maximum.

    Taking m out keeps exp from overflowing. An infinite m is taken as the largest finite number of
    its sign: inf - inf would be NaN.
    """

    onnx = "ReduceLogSumExp"

    def numpy(self, x: Values, axes: tuple[int, ...]) -> Values:
        largest = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
        limit = np.finfo(x.dtype).max
        largest = np.clip(largest, -limit, limit)
        logarithm = np.log(self.total(np.exp(x - largest), axes))
        return logarithm + (largest if self.keepdims else np.squeeze(largest, axis=axes))

    def steps(self, x: Value) -> Value:
        limit = float(np.finfo(tensor_type(x).dtype.numpy.name).max)
        largest = apply("clip", apply("max", x, axes=self.axes), min=-limit, max=limit)
        logarithm = apply("log", self.sum(apply("exp", x - largest)))
        if not self.keepdims:
            axes = rules.axes(self, self.axes, tensor_type(x).rank)
            largest = apply("squeeze", largest, axes=axes) if axes else largest
        return logarithm + largest

    def gradient(self, y: Node, dy: Value) -> Grads:
        """dx = dy * softmax(x); 0 where all of x is -inf.

        exp(x - y) would be the softmax, were y not rounded: divided by its sum it is, whatever y.
        """

        def rule(dy: Value, x: Value, y: Value) -> Value:
            finite = apply("where", apply("equal", y, -np.inf), 0.0, y)
            e = apply("exp", x - self.spread(apply("stop_gradient", finite), x))
            total = self.sum(e)
            share = dy / apply("where", apply("equal", total, 0.0), 1.0, total)
            return self.spread(share, x) * e

        return chained(y, dy, rule)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Those of every such reduction; values whose exp overflows; infinities."""
        yield from super().examples()
        large = np.array([[1000, 1000], [-1000, -1001], [3.4e38, 0], [88, 89]], np.float32)
        yield Example(cls((1,)), (large,))
        infinite = np.array([[-np.inf, 0], [-np.inf, -np.inf]], np.float32)
        for keepdims in (True, False):
            yield Example(cls((1,), keepdims), (infinite,))
