"""The op that finds positions outside their range: lowering puts one before what reads by value.

    y = apply("outside_range", indices, low=(0,), high=(10,))     # i64[()]: 1 if one is outside

Reads integers, writes one number, which the native entry hands to the runtime. Treated in course
chapter 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.index import Index
from minidlc.expr.nodes import Expr, binary, const, select
from minidlc.expr.types import TensorType, i64
from minidlc.graph.op import Example, Op, Pattern, register_op
from minidlc.ops import rules
from minidlc.ops.elementwise import axis_names, to
from minidlc.ops.reduction import reduce_over
from minidlc.ops.rules import Values
from minidlc.te import tensor
from minidlc.te.tensor import Tensor, compute


@register_op
@dataclass(frozen=True)
class OutsideRange(Op):
    """outside_range(x) = 1 if not low <= x[…] < high for some element, else 0.

    Bounds are one number each, or one for each place along the last axis.
    """

    pattern = Pattern.REDUCTION
    schedule = "reduction"

    low: tuple[int, ...]
    high: tuple[int, ...]

    def type_rule(self, x: TensorType) -> TensorType:
        rules.elements(self, rules.INTEGERS, x)
        last = x.shape[-1] if x.rank else 1
        for name, bounds in (("low", self.low), ("high", self.high)):
            if len(bounds) != 1 and len(bounds) != last:
                text = f"{name} has {len(bounds)} numbers, the last axis of {x} is another size"
                rules.fail(self, text, rules.DIMS)
        return i64[()]

    def reference(self, x: Values) -> Values:
        outside = (x < np.array(self.low)) | (x >= np.array(self.high))
        return np.asarray(outside.any(), np.int64)

    def compute(self, x: Tensor) -> Tensor:
        def wrong(*index: Index) -> Expr:
            value, one, zero = to(i64, x[index]), const(1, i64), const(0, i64)
            high = select(value < _bound(self.high, index), zero, one)
            return select(value < _bound(self.low, index), one, high)

        rank = len(x.shape)
        each = compute(x.shape, wrong, "outside", axes=axis_names(rank))
        count = reduce_over(each, tuple(range(rank)), False, tensor.sum, "count")
        return compute((), lambda: binary("min", count[()], const(1, i64)), self.name)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Too small, too large, at both ends; a bound for each place; a scalar; no element."""
        for low, high in ((-9, 9), (-8, 9), (-9, 8), (0, 1)):
            yield Example(cls((low,), (high,)), (np.array([[3, -9, 0], [8, 1, 2]]),))
        for last in (1, 2, -1):
            pairs = np.array([[0, 4, 0], [2, 0, last], [2, 0, 1]], np.int32)
            yield Example(cls((0,), (3, 5, 2)), (pairs,))
        yield Example(cls((-5,), (5,)), (np.array(5),))
        yield Example(cls((0,), (5,)), (np.array(4, np.int32),))
        yield Example(cls((0,), (5,)), (np.zeros((0, 3), np.int64),))
        yield Example(cls((0,), (131,)), (np.arange(132),))


def _bound(bounds: tuple[int, ...], index: tuple[Index, ...]) -> Expr:
    """The bound for an element: that of its place along the last axis."""
    value: Expr = const(bounds[-1], i64)
    for place in reversed(range(len(bounds) - 1)):
        value = select(index[-1] <= place, const(bounds[place], i64), value)
    return value
