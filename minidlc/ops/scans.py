"""Running sums and products along one axis: cumsum, cumprod.

    apply("cumsum", x, axis=1)                      # 1 2 3 -> 1 3 6
    apply("cumsum", x, axis=1, exclusive=True)      # 1 2 3 -> 0 1 3
    apply("cumprod", x, axis=0, reverse=True)       # from the last element to the first

Each element needs the one before it, which no tensor expression can say: the loops are written by
hand, serial along the axis, the columns beside it in vectors. Treated in course chapter
04_lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Node, Value, apply, tensor_type
from minidlc.graph.op import Example, Op, register_op
from minidlc.loop.nodes import LoopFunction
from minidlc.ops import rules, samples
from minidlc.ops.elementwise import wide, widened
from minidlc.ops.gradients import Grads, chained
from minidlc.ops.nests import LANES, function, nest, serial, shared
from minidlc.ops.rules import Values


@dataclass(frozen=True)
class Scan(Op):
    """Base: the result of `combine` over all elements up to this one along `axis`.

    With `exclusive` without this one; with `reverse` from the end. f16 and bf16 are computed in
    f32 and rounded once.
    """

    axis: int
    exclusive: bool = False
    reverse: bool = False

    start: ClassVar[int]  # the result of no elements
    sign: ClassVar[str]  # the operator of the loops
    numpy: ClassVar[Callable[..., Any]]  # np.cumsum or np.cumprod

    def type_rule(self, x: TensorType) -> TensorType:
        rules.elements(self, rules.NUMBERS, x)
        rules.axis(self, self.axis, x.rank)
        return x

    def reference(self, x: Values) -> Values:
        v = np.flip(widened(x), self.axis) if self.reverse else widened(x)
        v = np.moveaxis(v, self.axis, 0)
        y = np.asarray(type(self).numpy(v, axis=0, dtype=v.dtype))
        if self.exclusive:
            y = np.concatenate([np.full_like(y[:1], self.start), y[:-1]])
        y = np.moveaxis(y, 0, self.axis)
        return (np.flip(y, self.axis) if self.reverse else y).astype(x.dtype)

    def loops(self, x: TensorType) -> LoopFunction:
        return function(self.name, {"x": x, "y": x}, self._lines(x) if x.size else [])

    def _lines(self, x: TensorType) -> list[str]:
        """For each row (and each chunk of its columns) the total so far, step by step."""
        axis, last = rules.axis(self, self.axis, x.rank), x.rank - 1
        where, lanes = [f"i{d}" for d in range(x.rank)], "1"
        outer = [d for d in range(x.rank) if d not in (axis, last)]
        rows = serial((where[d] for d in outer), (x.dims[d] for d in outer))
        if axis < last:
            rows.append(("chunk", "serial", -(-x.dims[last] // LANES)))
            where[last] = f"{LANES} * chunk + lane"
            lanes = f"min({LANES}, {x.dims[last]} - {LANES} * chunk)"
        where[axis] = f"{x.dims[axis] - 1} - step" if self.reverse else "step"
        place, element = ", ".join(where), wide(x.dtype)
        take = f'total[lane] = total[lane] {self.sign} cast("{element}", x[{place}])'
        give = f'y[{place}] = cast("{x.dtype}", total[lane])'
        lane = f"for lane in vectorized(0, {lanes}):"
        body = [
            f'total = alloc({element}[{LANES if axis < last else 1}], "stack")',
            lane,
            f"    total[lane] = {element}({self.start})",
            f"for step in serial(0, {x.dims[axis]}):",
            *(
                line
                for store in ((give, take) if self.exclusive else (take, give))
                for line in (f"    {lane}", f"        {store}")
            ),
        ]
        return nest(shared(rows, x.size), *body)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Each axis, both directions, with and without the element; sizes; element types."""
        x = samples.array((3, 4, 5), low=-1.5, high=1.5)
        for axis in (0, 1, 2, -1, -3):
            for exclusive in (False, True):
                for reverse in (False, True):
                    yield Example(cls(axis, exclusive, reverse), (x,), 1e-5, 1e-5)
        for shape, axis in (
            ((1,), 0), ((37,), 0), ((5, 1), 1), ((1, 5), 0), ((6, 16), 0), ((5, 35), 0),
            ((0, 3), 0), ((3, 0), 0), ((2, 3, 2, 17), 1),
        ):  # fmt: skip
            yield Example(cls(axis, shape[0] == 5), (samples.array(shape),), 1e-5, 1e-5)
        for element in ("f64", "f16", "bf16", "i32", "i64", "i8", "u8", "u32"):
            given = samples.array((7, 3), element, -2, 3)
            yield Example(cls(0), (given,), **samples.tolerance(element))
        special = np.array([1, np.inf, 2, np.nan, 3], np.float32)
        yield Example(cls(0), (special,))
        yield Example(cls(0, True, True), (special,))


@register_op
@dataclass(frozen=True)
class Cumsum(Scan):
    """cumsum(x)[i] = sum of x[j] over j <= i along `axis` (exclusive: j < i; reverse: j >= i)."""

    start = 0
    sign = "+"
    numpy = np.cumsum

    def gradient(self, y: Node, dy: Value) -> Grads:
        """An element is due what flows into all sums from its own on: the sum the other way."""
        back = {**self.attributes(), "reverse": not self.reverse}
        return chained(y, dy, lambda dy, _x, _y: apply("cumsum", dy, **back))


@register_op
@dataclass(frozen=True)
class Cumprod(Scan):
    """cumprod(x)[i] = product of x[j] over j <= i along `axis` (exclusive: <; reverse: >=)."""

    start = 1
    sign = "*"
    numpy = np.cumprod

    def gradient(self, y: Node, dy: Value) -> Grads:
        """dx[k] = e[k] * r[k]: the product before k, times what its followers make of dy.

        r[k] = dy[k] + x[k + 1] * r[k + 1], a recurrence from the last to the first (`exclusive`: of
        dy[k + 1]). Nothing is divided, so zeros are no trouble.
        """

        def rule(dy: Value, x: Value, _y: Value) -> Value:
            before = {**self.attributes(), "exclusive": True}
            due = self._next(dy, 1) if self.exclusive else dy
            return apply("cumprod", x, **before) * self._recurrence(due, self._next(x, 1))

        return chained(y, dy, rule)

    def _recurrence(self, r: Value, factor: Value) -> Value:
        """r[k] + factor[k] * (the result at k + 1), in log2(n) steps that each reach twice as far.

        Algorithm: P. M. Kogge and H. S. Stone, "A Parallel Algorithm for the Efficient Solution of
        a General Class of Recurrence Equations", 1973.
        """
        reach, size = 1, tensor_type(r).dims[self.axis]
        while reach < size:
            r = r + factor * self._next(r, reach)
            factor = factor * self._next(factor, reach)
            reach *= 2
        return r

    def _next(self, v: Value, reach: int) -> Value:
        """At each place what stands `reach` places further on as the scan goes; 0 past the end."""
        rank, size = tensor_type(v).rank, tensor_type(v).dims[self.axis]
        axis, reach = self.axis % rank, min(reach, size)
        first, pads = (0, (reach, 0)) if self.reverse else (reach, (0, reach))
        kept = apply("slice", v, starts=(first,), ends=(first + size - reach,), axes=(axis,))
        before, behind = ([n if d == axis else 0 for d in range(rank)] for n in pads)
        return apply("pad", kept, pads=(*before, *behind))
