"""Ops that move elements: transpose, expand, concat; and getitem, which takes one result of many.

    x.T                                             # transpose: f32[4, 8] -> f32[8, 4]
    apply("concat", a, b, axis=1)                   # f32[2, 3] and f32[2, 4] -> f32[2, 7]

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.index import Cond, Index
from minidlc.expr.nodes import Expr, select
from minidlc.expr.types import Dim, TensorType
from minidlc.graph.graph import Node, Value, apply, tensor_type
from minidlc.graph.op import Example, Op, Pattern, register_op
from minidlc.graph.types import TupleType
from minidlc.ops import rules, samples
from minidlc.ops.composing import transposed
from minidlc.ops.elementwise import axis_names, broadcast_index
from minidlc.ops.gradients import Grads, given, summed_to
from minidlc.ops.rules import Values
from minidlc.te.tensor import Tensor, compute


@register_op
@dataclass(frozen=True)
class Transpose(Op):
    """transpose(x)[i0, i1, …] = x[…], axis d of the result being axis perm[d] of x.

    perm None reverses the axes.
    """

    onnx = "Transpose"
    pattern = Pattern.INJECTIVE
    perm: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.perm:  # its length is the rank: count from the front, one text for one meaning
            rank = len(self.perm)
            front = tuple(a + rank if -rank <= a < 0 else a for a in self.perm)
            object.__setattr__(self, "perm", front)

    def order(self, rank: int) -> tuple[int, ...]:
        """The permutation, axes counted from the front."""
        if self.perm is None:
            return tuple(reversed(range(rank)))
        order = tuple(rules.axis(self, a, rank) for a in self.perm)
        if sorted(order) != list(range(rank)):
            text = f"perm {self.perm} is no order of {rank} axes"
            rules.fail(self, text, rules.RANGE)
        return order

    def type_rule(self, x: TensorType) -> TensorType:
        return x.with_shape(tuple(x.shape[a] for a in self.order(x.rank)))

    def reference(self, x: Values) -> Values:
        return np.transpose(x, self.order(x.ndim)).copy()

    def compute(self, x: Tensor) -> Tensor:
        order = self.order(len(x.shape))

        def body(*index: Index) -> object:
            return x[tuple(index[order.index(a)] for a in range(len(order)))]

        shape = tuple(x.shape[a] for a in order)
        return compute(shape, body, self.name, axes=axis_names(len(shape)))

    def gradient(self, y: Node, dy: Value) -> Grads:
        order = self.order(tensor_type(y).rank)
        return (transposed(dy, tuple(map(order.index, range(len(order))))),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Every rank up to 4, an order that is not its own inverse."""
        for shape, perm in (
            ((4, 7), None), ((2, 3, 5), (1, 2, 0)), ((2, 3, 4, 5), (0, 2, 3, 1)), ((5,), None),
            ((), None), ((3, 1, 2), (0, 2, 1)), ((2, 3), (-1, 0)), ((2, 3), (0, 1)),
        ):  # fmt: skip
            yield Example(cls(perm), (samples.array(shape),), 0, 0)
        yield Example(cls(), (samples.array((3, 17), "i8", -9, 9),), 0, 0)


@register_op
@dataclass(frozen=True)
class Expand(Op):
    """expand(x) = x broadcast against `shape`: the result's shape is that of x + zeros(shape)."""

    pattern = Pattern.BROADCAST
    shape: tuple[int, ...]

    def type_rule(self, x: TensorType) -> TensorType:
        if any(d < 0 for d in self.shape):
            rules.fail(self, f"shape {self.shape} has a negative dim", rules.RANGE)
        return x.with_shape(rules.broadcast(self, x, x.with_shape(self.shape)))

    def reference(self, x: Values) -> Values:
        shape = np.broadcast_shapes(x.shape, self.shape)
        return np.broadcast_to(x, shape).copy()

    def compute(self, x: Tensor) -> Tensor:
        out = self.type_rule(x.type).dims

        def body(*index: Index) -> object:
            return x[broadcast_index(x.shape, index, out)]

        return compute(out, body, self.name, axes=axis_names(len(out)))

    def gradient(self, y: Node, dy: Value) -> Grads:
        (x,) = given(y)
        return (summed_to(dy, x),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """New axes, ones that repeat, a shape smaller than x's."""
        for shape, wanted in (
            ((3,), (2, 3)), ((3, 1), (3, 4)), ((1,), (5,)), ((), (2, 2)), ((2, 1, 4), (3, 1)),
            ((2, 3), (1,)), ((2, 3), ()),
        ):  # fmt: skip
            yield Example(cls(wanted), (samples.array(shape),), 0, 0)


@register_op
@dataclass(frozen=True)
class Concat(Op):
    """concat(a, b, …) = the inputs one after another along `axis`."""

    onnx = "Concat"
    pattern = Pattern.INJECTIVE
    axis: int

    def type_rule(self, *inputs: TensorType) -> TensorType:
        if not inputs:
            rules.fail(self, "needs at least one input", "MDLC0201")
        first = inputs[0]
        rules.elements(self, rules.ANY, *inputs)
        axis = rules.axis(self, self.axis, first.rank)
        total: Dim = 0
        for t in inputs:
            rules.rank(self, "every input", t, first.rank)
            for d, (a, b) in enumerate(zip(first.shape, t.shape, strict=True)):
                if d != axis and not rules.same_dim(a, b):
                    rules.fail(self, f"axis {d} differs: {a} and {b}", rules.DIMS)
            total = t.shape[axis] + total
        return first.with_shape((*first.shape[:axis], total, *first.shape[axis + 1 :]))

    def reference(self, *inputs: Values) -> Values:
        return np.concatenate(inputs, axis=self.axis)

    def compute(self, *inputs: Tensor) -> Tensor:
        out = self.type_rule(*(t.type for t in inputs))
        axis = rules.axis(self, self.axis, out.rank)
        full = [t for t in inputs if t.shape[axis]] or [inputs[0]]
        starts = [sum(t.shape[axis] for t in full[:n]) for n in range(len(full))]

        def body(*index: Index) -> Expr:
            value: Expr | None = None
            for t, start in reversed(list(zip(full, starts, strict=True))):
                where = (*index[:axis], index[axis] - start, *index[axis + 1 :])
                inside = Cond((where[axis] * -1 + (t.shape[axis] - 1),))
                value = t[where] if value is None else select(inside, t[where], value)
            assert value is not None
            return value

        return compute(out.dims, body, self.name, axes=axis_names(out.rank))

    def gradient(self, y: Node, dy: Value) -> Grads:
        """Each input gets its part of dy."""
        axis, begin = rules.axis(self, self.axis, tensor_type(y).rank), 0
        parts: list[Value] = []
        for x in given(y):
            end = begin + tensor_type(x).dims[axis]
            parts.append(apply("slice", dy, starts=(begin,), ends=(end,), axes=(axis,)))
            begin = end
        return tuple(parts)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """One to three inputs, each axis, an empty one."""
        for axis, shapes in (
            (0, ((2, 3), (4, 3))), (1, ((2, 3), (2, 1), (2, 4))), (-1, ((5,), (2,))), (0, ((3,),)),
            (0, ((0, 2), (3, 2))), (2, ((1, 2, 3), (1, 2, 5))),
        ):  # fmt: skip
            arrays = tuple(samples.array(s, seed=n) for n, s in enumerate(shapes))
            yield Example(cls(axis), arrays, 0, 0)
        yield Example(
            cls(0), (samples.array((2,), "i64"), samples.array((3,), "i64", seed=1)), 0, 0
        )


@register_op
@dataclass(frozen=True)
class GetItem(Op):
    """getitem(x) = result number `index` of a node with several results."""

    name = "getitem"
    is_view = True
    takes_tuple = True
    index: int = 0

    def type_rule(self, x: TupleType | TensorType) -> TensorType:
        if isinstance(x, TensorType):
            return rules.fail(self, f"{x} is one tensor, not several", "MDLC0201")
        if not 0 <= self.index < len(x.items):
            rules.fail(self, f"index {self.index} of {len(x.items)} results", rules.RANGE)
        return x.items[self.index]

    def reference(self, x: tuple[Values, ...]) -> Values:
        return x[self.index]

    def compute(self, x: tuple[Tensor, ...]) -> Tensor:
        return x[self.index]

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """None: a tuple is no array; the tests of fused groups use it."""
        return ()
