"""Where the largest or smallest element is: arg_max, arg_min; and hardmax, which is 1 there.

    apply("arg_max", x, axis=-1)                    # f32[4, 8] -> i64[4, 1]
    apply("arg_min", x, axis=0, keepdims=False)     # f32[4, 8] -> i64[8]
    apply("hardmax", x)                             # 0, but 1 at the first maximum of each row

Two reductions: the extremum, then the smallest (or largest) position that holds it. NaN counts as
the extremum, as in NumPy. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from minidlc.expr.index import Index
from minidlc.expr.nodes import Expr, call, compare, const, select
from minidlc.expr.types import TensorType, i64
from minidlc.graph.graph import Node, Value
from minidlc.graph.op import Example, Op, Pattern, register_op
from minidlc.ops import rules, samples
from minidlc.ops.elementwise import axis_names, load
from minidlc.ops.gradients import Grads
from minidlc.ops.reduction import AlongAxis, reduce_over
from minidlc.ops.rules import Values
from minidlc.te import functions, tensor
from minidlc.te.tensor import Tensor, compute


def not_empty(op: Op, x: TensorType, axis: int) -> int:
    """The axis counted from the front; it must have an element to point at (MDLC0203)."""
    axis = rules.axis(op, axis, x.rank)
    if x.shape[axis] == 0:
        rules.fail(op, f"axis {axis} of {x} has no element to choose", rules.DIMS)
    return axis


def is_extremum(value: Expr, extremum: Expr) -> Expr:
    """Whether `value` is the extremum of its row: equal to it, or NaN, which the row then is."""
    equal = compare("==", value, extremum)
    if not value.dtype.is_float:
        return equal
    return functions.bitwise("|", equal, call("isnan", value))


def positions(
    x: Tensor, axis: int, keepdims: bool, last: bool, extremum: Callable[..., Expr], name: str
) -> Tensor:
    """The stage `name`: first (or last) position along `axis` of the extremum of x."""
    found = reduce_over(x, (axis,), keepdims, extremum, f"{name}_value")
    along = tensor.reduce_axis(x.shape[axis], "p")
    nowhere = const(-1 if last else x.shape[axis], i64)
    choose = tensor.max if last else tensor.min

    def body(*index: Index) -> Expr:
        where = (*index[:axis], along.index, *index[axis + keepdims :])
        hit = is_extremum(load(x, where), found[index])
        return choose(select(hit, functions.index(along.index), nowhere), along)

    return compute(found.shape, body, name, axes=axis_names(len(found.shape)))


@dataclass(frozen=True)
class ArgReduction(Op):
    """Base: the first position of the extremum along `axis`, or the last (`select_last_index`)."""

    pattern = Pattern.OPAQUE
    schedule = "softmax"
    axis: int = 0
    keepdims: bool = True
    select_last_index: bool = False

    extremum: ClassVar[Callable[..., Expr]]  # te.max or te.min
    numpy: ClassVar[Callable[..., Any]]  # np.argmax or np.argmin

    def type_rule(self, x: TensorType) -> TensorType:
        rules.elements(self, rules.NUMBERS, x)
        axis = not_empty(self, x, self.axis)
        return TensorType(i64, rules.reduced(self, x, (axis,), self.keepdims).shape)

    def reference(self, x: Values) -> Values:
        find = type(self).numpy
        if not self.select_last_index:
            return np.asarray(find(x, axis=self.axis, keepdims=self.keepdims), np.int64)
        from_behind = find(np.flip(x, self.axis), axis=self.axis, keepdims=self.keepdims)
        return np.asarray(x.shape[self.axis] - 1 - from_behind, np.int64)

    def compute(self, x: Tensor) -> Tensor:
        axis = rules.axis(self, self.axis, len(x.shape))
        kind, last = type(self).extremum, self.select_last_index
        return positions(x, axis, self.keepdims, last, kind, self.name)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Each axis, first and last of equal elements, NaN, infinities, every element type."""
        equal = samples.array((3, 5, 4), "i32", -2, 2).astype(np.float32)
        for axis in (0, 1, 2, -1, -3):
            for keepdims in (True, False):
                yield Example(cls(axis, keepdims), (equal,), 0, 0)
                yield Example(cls(axis, keepdims, True), (equal,), 0, 0)
        for shape in ((1,), (130,), (1, 33), (7, 1), (64, 10)):
            yield Example(cls(-1, False), (samples.array(shape),), 0, 0)
        yield Example(cls(1), (samples.array((0, 3)),), 0, 0)
        nan, inf = np.nan, np.inf
        rows = [[nan, 1, nan], [2, nan, 9], [-inf, -inf, -inf], [inf, 1, inf], [-0.0, 0.0, -0.0]]
        for last in (False, True):
            yield Example(cls(1, False, last), (np.array(rows, np.float32),), 0, 0)
        for element in ("f64", "f16", "bf16", "i64", "i8", "u8", "u32"):
            for last in (False, True):
                yield Example(cls(0, True, last), (samples.array((9, 3), element, -3, 3),), 0, 0)
        for element in ("i64", "u8", "i8"):
            yield Example(cls(), (samples.special(element),), 0, 0)


@register_op
@dataclass(frozen=True)
class ArgMax(ArgReduction):
    """arg_max(x)[…] = position along `axis` of the largest element, or of the first NaN."""

    onnx = "ArgMax"
    extremum = tensor.max
    numpy = np.argmax


@register_op
@dataclass(frozen=True)
class ArgMin(ArgReduction):
    """arg_min(x)[…] = position along `axis` of the smallest element, or of the first NaN."""

    onnx = "ArgMin"
    extremum = tensor.min
    numpy = np.argmin


@register_op
@dataclass(frozen=True)
class Hardmax(AlongAxis):
    """hardmax(x)[…, i, …] = 1 where i is arg_max(x) along `axis`, else 0."""

    onnx = "Hardmax"
    pattern = Pattern.OPAQUE

    def reference(self, x: Values) -> Values:
        y = np.zeros_like(x)
        if x.shape[self.axis]:
            np.put_along_axis(y, np.argmax(x, self.axis, keepdims=True), 1, self.axis)
        return y

    def compute(self, x: Tensor) -> Tensor:
        axis = rules.axis(self, self.axis, len(x.shape))
        found = positions(x, axis, False, False, tensor.max, "hardmax_at")
        one, zero = const(1, x.dtype), const(0, x.dtype)

        def body(*index: Index) -> Expr:
            at = found[index[:axis] + index[axis + 1 :]]
            return select(compare("==", at, functions.index(index[axis])), one, zero)

        return compute(x.shape, body, self.name, axes=axis_names(len(x.shape)))

    def gradient(self, y: Node, dy: Value) -> Grads:
        """0 where one element is the largest, and by convention where several are."""
        return (None,)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Every axis, equal elements, one element, none, NaN, element types."""
        equal = samples.array((3, 5, 4), "i32", -2, 2).astype(np.float32)
        for axis in (0, 1, 2, -1, -3):
            yield Example(cls(axis), (equal,), 0, 0)
        for shape in ((1,), (64, 10), (4, 1), (5, 0), (0, 5)):
            yield Example(cls(), (samples.array(shape),), 0, 0)
        nan, inf = np.nan, np.inf
        rows = [[nan, 1, nan], [2, nan, 9], [-inf, -inf, -inf], [inf, 1, inf]]
        yield Example(cls(), (np.array(rows, np.float32),), 0, 0)
        for element in ("f64", "f16", "bf16"):
            yield Example(cls(), (samples.array((3, 9), element),), 0, 0)
