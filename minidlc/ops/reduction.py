"""Reductions over any axes, and softmax, which is two of them and two pointwise stages.

    apply("sum", x, axes=(1,))                      # f32[4, 8] -> f32[4, 1]
    apply("max", x, axes=(-1,), keepdims=False)     # f32[4, 8] -> f32[4]
    apply("softmax", x, axis=-1)

Sums run in the order of the loops and in the element type (f16, bf16 in f32). Treated in course
chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from minidlc.expr.functions import FUNCTIONS
from minidlc.expr.index import Index
from minidlc.expr.nodes import Expr, call, const, select
from minidlc.expr.types import DType, TensorType, dtype, i64, u64
from minidlc.graph.graph import Node, Value, apply, tensor_type
from minidlc.graph.op import Example, Op, Pattern, register_op
from minidlc.ops import rules, samples
from minidlc.ops.composing import cast_to, reshaped
from minidlc.ops.elementwise import axis_names, load, rounded, to, widened
from minidlc.ops.gradients import Grads, chained, given, spread, where_true
from minidlc.ops.rules import Values
from minidlc.te import tensor as te
from minidlc.te.tensor import Tensor, compute


def reduce_over(
    x: Tensor, axes: tuple[int, ...], keepdims: bool, kind: Callable[..., Expr], name: str
) -> Tensor:
    """The stage `name[…] = kind over axes of x[…]`, in the type that x is computed in."""
    reduced = {a: te.reduce_axis(x.shape[a], f"r{n}") for n, a in enumerate(axes)}
    shape = [
        1 if d in reduced else n for d, n in enumerate(x.shape) if keepdims or d not in reduced
    ]

    def body(*index: Index) -> Expr:
        kept = iter(index)
        where: list[Index] = []
        for d in range(len(x.shape)):
            own = next(kept) if keepdims or d not in reduced else None
            where.append(reduced[d].index if d in reduced else Index.of(own or 0))
        value = load(x, where)
        return kind(value, *reduced.values()) if reduced else value

    return compute(shape, body, name, axes=axis_names(len(shape)))


@dataclass(frozen=True)
class Reduction(Op):
    """Base: `axes` None means all of them, () none; `keepdims` leaves a 1 for each."""

    pattern = Pattern.REDUCTION
    schedule = "reduction"
    takes: ClassVar[tuple[str, ...]] = rules.NUMBERS
    axes: tuple[int, ...] | None = None
    keepdims: bool = True

    combine: ClassVar[Callable[..., Expr]]  # te.sum, te.max, …

    def type_rule(self, x: TensorType) -> TensorType:
        rules.elements(self, self.takes, x)
        return rules.reduced(self, x, self.axes, self.keepdims)

    def compute(self, x: Tensor) -> Tensor:
        axes = rules.axes(self, self.axes, len(x.shape))
        total = reduce_over(x, axes, self.keepdims, type(self).combine, self.name)
        return rounded(total, x.dtype, "rounded")

    def numpy(self, f: Any, x: Values, **options: Any) -> Values:
        """Call a NumPy reduction with this op's axes."""
        axes = rules.axes(self, self.axes, x.ndim)
        return np.asarray(f(x, axis=axes, keepdims=self.keepdims, **options))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Each axis, several, none, all; no elements; element types; special values."""
        x = samples.array((3, 5, 7), low=0.5, high=1.5)
        for axes in (None, (0,), (1,), (-1,), (0, 2), (2, 1), (), (0, 1, 2)):
            for keepdims in (True, False):
                yield Example(cls(axes, keepdims), (x,), 1e-5, 1e-5)
        for shape in ((), (1,), (1, 33), (130,)):
            yield Example(cls(), (samples.array(shape, low=0.5, high=1.5),), 1e-5, 1e-5)
        for shape, axes in (((2, 0), (1,)), ((2, 0), (0,)), ((0, 3), None)):
            yield Example(cls(axes, False), (samples.array(shape),))
        for element in ("f64", "f16", "bf16", "i32", "i64", "i8", "u8"):
            bound = samples.tolerance(element)
            yield Example(cls((1,)), (samples.array((4, 6), element, -4, 4),), **bound)
        special = np.array([[np.nan, 1], [2, np.nan], [np.inf, 1], [-np.inf, np.inf], [-0.0, 0.0]])
        yield Example(cls((1,), False), (special.astype(np.float32),))


@register_op
@dataclass(frozen=True)
class Sum(Reduction):
    """sum(x)[…] = sum over `axes` of x; of nothing it is 0."""

    onnx = "ReduceSum"
    combine = te.sum

    def reference(self, x: Values) -> Values:
        total = self.numpy(np.sum, widened(x), dtype=widened(x).dtype)
        return total.astype(x.dtype, copy=False)

    def gradient(self, y: Node, dy: Value) -> Grads:
        (x,) = given(y)
        axes = rules.axes(self, self.axes, tensor_type(x).rank)
        return (spread(dy, x, axes, self.keepdims),)


@register_op
@dataclass(frozen=True)
class Prod(Reduction):
    """prod(x)[…] = product over `axes` of x; of nothing it is 1."""

    onnx = "ReduceProd"
    combine = te.prod

    def reference(self, x: Values) -> Values:
        product = self.numpy(np.prod, widened(x), dtype=widened(x).dtype)
        return product.astype(x.dtype, copy=False)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """dy times the product of the others: of those before times of those behind, axis by axis.

        No element is divided out, so zeros are no trouble.
        """

        def rule(dy: Value, x: Value, _y: Value) -> Value:
            axes = rules.axes(self, self.axes, tensor_type(x).rank)
            dims = [1 if d in axes else n for d, n in enumerate(tensor_type(x).dims)]
            stages = [x]
            for axis in axes[:-1]:
                stages.append(apply("prod", stages[-1], axes=(axis,)))
            dx: Value = reshaped(dy, dims)
            for axis, stage in zip(reversed(axes), reversed(stages), strict=bool(axes)):
                before = apply("cumprod", stage, axis=axis, exclusive=True)
                behind = apply("cumprod", stage, axis=axis, exclusive=True, reverse=True)
                dx = dx * (before * behind)
            return dx

        return chained(y, dy, rule)


@register_op
@dataclass(frozen=True)
class Max(Reduction):
    """max(x)[…] = maximum over `axes` of x, NaN if any is NaN; of nothing the lowest value."""

    onnx = "ReduceMax"
    combine = te.max

    def reference(self, x: Values) -> Values:
        return self.numpy(np.max, x, initial=_limit(dtype(x.dtype), -1)).astype(x.dtype, copy=False)

    def gradient(self, y: Node, dy: Value) -> Grads:
        return _shared(self, y, dy)


@register_op
@dataclass(frozen=True)
class Min(Reduction):
    """min(x)[…] = minimum over `axes` of x, NaN if any is NaN; of nothing the highest value."""

    onnx = "ReduceMin"
    combine = te.min

    def reference(self, x: Values) -> Values:
        return self.numpy(np.min, x, initial=_limit(dtype(x.dtype), 1)).astype(x.dtype, copy=False)

    def gradient(self, y: Node, dy: Value) -> Grads:
        return _shared(self, y, dy)


def _shared(op: Reduction, y: Node, dy: Value) -> Grads:
    """Of an extremum: elements that are equal to it share dy evenly. Nothing goes to NaN."""

    def rule(dy: Value, x: Value, y: Value) -> Value:
        axes = rules.axes(op, op.axes, tensor_type(x).rank)
        equal = apply("equal", x, spread(y, x, axes, op.keepdims))
        number = apply("sum", cast_to(equal, tensor_type(x).dtype), axes=axes)
        share = spread(dy, x, axes, op.keepdims) / number
        return where_true(equal, share)

    return chained(y, dy, rule)


@register_op
@dataclass(frozen=True)
class Mean(Reduction):
    """mean(x)[…] = sum over `axes` of x, divided by their number; integers truncate toward zero."""

    onnx = "ReduceMean"
    takes = ("float", "int", "uint")
    combine = te.sum

    def reference(self, x: Values) -> Values:
        total = self.numpy(np.sum, widened(x), dtype=widened(x).dtype)
        count = self._count(x.shape)
        element = dtype(x.dtype)
        if element.is_float:
            return (total / total.dtype.type(count)).astype(x.dtype)
        count = np.asarray(count, _divided_in(element).numpy)
        return FUNCTIONS["truncdiv"].numpy(total.astype(count.dtype), count).astype(x.dtype)

    def compute(self, x: Tensor) -> Tensor:
        axes = rules.axes(self, self.axes, len(x.shape))
        total = reduce_over(x, axes, self.keepdims, te.sum, "mean_sum")
        element = total.dtype if total.dtype.is_float else _divided_in(total.dtype)
        count = const(self._count(x.shape), element)

        def quotient(*index: Index) -> Expr:
            value = to(element, total[index])
            mean = value / count if element.is_float else call("truncdiv", value, count)
            return to(x.dtype, mean)

        return compute(total.shape, quotient, self.name, axes=total.axes)

    def _count(self, shape: tuple[int, ...]) -> int:
        axes = rules.axes(self, self.axes, len(shape))
        return int(np.prod([shape[a] for a in axes], dtype=np.int64))

    def gradient(self, y: Node, dy: Value) -> Grads:
        def rule(dy: Value, x: Value, _y: Value) -> Value:
            axes = rules.axes(self, self.axes, tensor_type(x).rank)
            each = dy / max(1, self._count(tensor_type(x).dims))  # of nothing it is never read
            return spread(each, x, axes, self.keepdims)

        return chained(y, dy, rule)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Those of every reduction, and more elements than their type can count."""
        yield from super().examples()
        for element in ("u8", "i8"):
            x = samples.array((2, 300), element, -9, 9)
            yield Example(cls((1,)), (x,), 0, 0)
        yield Example(cls(), (np.full(128, -1, np.int8),), 0, 0)


def _divided_in(element: DType) -> DType:
    """The integer type that a mean is divided in: a count may not fit a narrow one."""
    return i64 if element.kind == "int" else u64


def _limit(element: DType, sign: int) -> Any:
    if element.is_float:
        return element.numpy.type(sign * np.inf)
    info = np.iinfo(element.numpy.name)
    return info.max if sign > 0 else info.min


@dataclass(frozen=True)
class AlongAxis(Op):
    """What gives each row of floats along `axis` another row, by its largest element."""

    schedule = "softmax"
    axis: int = -1

    def type_rule(self, x: TensorType) -> TensorType:
        rules.elements(self, "float", x)
        rules.axis(self, self.axis, x.rank)
        return x


@register_op
@dataclass(frozen=True)
class Softmax(AlongAxis):
    """softmax(x)[…, i, …] = exp(x[i] - m) / sum over j of exp(x[j] - m), m = max over j of x[j].

    ONNX defines it by a function of four ops: the exponentials and their sum, added up in f32, are
    values of x's type, rounded once. A sum that f16 cannot hold stays f32.
    """

    onnx = "Softmax"
    pattern = Pattern.REDUCTION

    def reference(self, x: Values) -> Values:
        v = widened(x)
        shifted = np.exp(v - np.max(v, axis=self.axis, keepdims=True, initial=-np.inf))
        shifted = shifted.astype(x.dtype).astype(v.dtype)
        total: Values = np.asarray(np.sum(shifted, axis=self.axis, keepdims=True))
        held: Values = total.astype(x.dtype).astype(v.dtype)
        divisor = np.where(np.isinf(held), total, held)
        return np.divide(shifted, divisor).astype(x.dtype)

    def compute(self, x: Tensor) -> Tensor:
        rank = len(x.shape)
        axis = rules.axis(self, self.axis, rank)
        names = axis_names(rank)

        def row(index: tuple[Index, ...]) -> tuple[Index, ...]:
            return index[:axis] + index[axis + 1 :]

        def exponential(*index: Index) -> Expr:
            return to(x.dtype, call("exp_negative", load(x, index) - largest[row(index)]))

        def quotient(*index: Index) -> Expr:
            exact = total[row(index)]
            if exact.dtype == x.dtype:
                return shifted[index] / exact
            held = to(exact.dtype, to(x.dtype, exact))
            divisor = select(call("isinf", held), exact, held)
            return to(x.dtype, load(shifted, index) / divisor)

        largest = reduce_over(x, (axis,), False, te.max, "softmax_max")
        shifted = compute(x.shape, exponential, "softmax_exp", axes=names)
        total = reduce_over(shifted, (axis,), False, te.sum, "softmax_sum")
        return compute(x.shape, quotient, self.name, axes=names)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """dx = y * (dy - the sum of dy * y): reads y alone."""

        def rule(dy: Value, _x: Value, y: Value) -> Value:
            return y * (dy - apply("sum", dy * y, axes=(self.axis,)))

        return chained(y, dy, rule)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Every axis, one element, none, large values, infinities, element types."""
        x = samples.array((2, 5, 3), low=-5, high=5)
        for axis in (0, 1, 2, -1, -3):
            yield Example(cls(axis), (x,))
        for shape in ((10,), (1, 10), (64, 10), (4, 1), (3, 37), (5, 0)):
            yield Example(cls(), (samples.array(shape, low=-5, high=5),))
        large = np.array([[1e4, 1e4, -1e4], [88, 89, 90], [-200, -200, -201]], np.float32)
        yield Example(cls(), (large,))
        special = np.array([[np.inf, 1], [np.nan, 1], [-np.inf, 0], [-np.inf, -np.inf]], np.float32)
        yield Example(cls(), (special,))
        for element in ("f64", "f16", "bf16"):
            yield Example(cls(), (samples.array((3, 9), element),), **samples.tolerance(element))
        yield Example(cls(), (np.zeros((1, 70_000), np.float16),))  # f16 ends at 65,504


@register_op
@dataclass(frozen=True)
class LogSoftmax(AlongAxis):
    """log_softmax(x)[…, i, …] = x[i] - m - log(sum over j of exp(x[j] - m)), m = max of x[j]."""

    onnx = "LogSoftmax"
    pattern = Pattern.REDUCTION

    def reference(self, x: Values) -> Values:
        v = widened(x)
        shifted = v - np.max(v, axis=self.axis, keepdims=True, initial=-np.inf)
        total = np.sum(np.exp(shifted), axis=self.axis, keepdims=True)
        return (shifted - np.log(total)).astype(x.dtype)

    def compute(self, x: Tensor) -> Tensor:
        rank = len(x.shape)
        axis = rules.axis(self, self.axis, rank)
        names = axis_names(rank)

        def row(index: tuple[Index, ...]) -> tuple[Index, ...]:
            return index[:axis] + index[axis + 1 :]

        def shifted(index: tuple[Index, ...]) -> Expr:
            return load(x, index) - largest[row(index)]

        def exponential(*index: Index) -> Expr:
            return call("exp_negative", shifted(index))

        def difference(*index: Index) -> Expr:
            return to(x.dtype, shifted(index) - logarithm[row(index)])

        largest = reduce_over(x, (axis,), False, te.max, "log_softmax_max")
        weights = compute(x.shape, exponential, "log_softmax_exp", axes=names)
        total = reduce_over(weights, (axis,), False, te.sum, "log_softmax_sum")
        logarithm = compute(
            total.shape, lambda *i: call("log", total[i]), "log_softmax_log", axes=total.axes
        )
        return compute(x.shape, difference, self.name, axes=names)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """dx = dy - exp(y) * the sum of dy: exp(y) is the softmax, x need not be kept."""

        def rule(dy: Value, _x: Value, y: Value) -> Value:
            return dy - apply("exp", y) * apply("sum", dy, axes=(self.axis,))

        return chained(y, dy, rule)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Every axis, one element, large values."""
        x = samples.array((2, 5, 3), low=-5, high=5)
        for axis in (0, 1, -1):
            yield Example(cls(axis), (x,), 1e-5, 1e-5)
        yield Example(cls(), (samples.array((4, 1)),), 1e-5, 1e-5)
        yield Example(cls(), (np.array([[1e4, 1e4, -1e4], [88, 89, 90]], np.float32),), 1e-5, 1e-4)
        yield Example(cls(), (samples.array((3, 9), "f64"),), 1e-11, 1e-12)
