"""The op reverse_sequence: each sequence of a batch backwards, as far as it is long.

    apply("reverse_sequence", x, lengths)           # f32[time, batch, …], i64[batch]

Recurrent nets that read from the end begin with it. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.index import Index
from minidlc.expr.nodes import Expr, IndexValue, select
from minidlc.expr.types import TensorType, i64
from minidlc.graph.graph import Node, Value, apply
from minidlc.graph.op import Example, Op, Pattern, Positions, register_op
from minidlc.ops import rules, samples
from minidlc.ops.elementwise import to
from minidlc.ops.gradients import Grads, given
from minidlc.ops.indexing import are_positions, picked
from minidlc.ops.rules import Values
from minidlc.te import functions
from minidlc.te.tensor import Tensor


@register_op
@dataclass(frozen=True)
class ReverseSequence(Op):
    """reverse_sequence(x, lengths)[b, t] = x[b, lengths[b] - 1 - t] while t < lengths[b].

    Behind it stays x[b, t]. Here for batch_axis 0 and time_axis 1.
    """

    onnx = "ReverseSequence"
    pattern = Pattern.INJECTIVE
    batch_axis: int = 1
    time_axis: int = 0

    def type_rule(self, x: TensorType, lengths: TensorType) -> TensorType:
        if x.rank < 2:
            rules.fail(self, f"takes sequences in batches, got {x}", rules.RANK)
        if {self.batch_axis, self.time_axis} != {0, 1}:
            text = f"batch_axis and time_axis are 0 and 1, got {self.batch_axis}, {self.time_axis}"
            rules.fail(self, text, rules.RANGE)
        are_positions(self, "lengths", lengths)
        rules.rank(self, "lengths", lengths, 1)
        if not rules.same_dim(lengths.shape[0], x.shape[self.batch_axis]):
            text = f"{lengths.shape[0]} lengths for a batch of {x.shape[self.batch_axis]}"
            rules.fail(self, text, rules.DIMS)
        return x

    def positions(self, x: TensorType, lengths: TensorType) -> tuple[Positions, ...]:
        return (Positions(1, 0, x.dims[self.time_axis] + 1),)

    def reference(self, x: Values, lengths: Values) -> Values:
        y = x.copy()
        sources, targets = (np.moveaxis(a, self.batch_axis, 0) for a in (x, y))
        for source, target, length in zip(sources, targets, lengths, strict=True):
            target[:length] = source[:length][::-1]
        return y

    def compute(self, x: Tensor, lengths: Tensor) -> Tensor:
        def body(*index: Index) -> Expr:
            time = IndexValue(index[self.time_axis])
            length = to(i64, lengths[index[self.batch_axis]])
            place = select(time < length, length - 1 - time, time)
            first = (index[0], place) if self.time_axis else (place, index[1])
            return functions.lookup(x, *first, *index[2:])

        return picked(x, x.shape, body, self.name)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """What was reversed is reversed back."""
        _, lengths = given(y)
        back = {"batch_axis": self.batch_axis, "time_axis": self.time_axis}
        return apply("reverse_sequence", dy, lengths, **back), None

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Both orders of the axes, lengths 0 to all, more axes, no sequence."""
        lengths = np.array([4, 0, 1, 3, 2])
        for shape in ((5, 4), (5, 4, 3)):
            yield Example(cls(0, 1), (samples.array(shape), lengths), 0, 0)
        for shape in ((4, 5), (4, 5, 2)):
            yield Example(cls(), (samples.array(shape), lengths), 0, 0)
        yield Example(cls(), (samples.array((1, 1)), np.array([1])), 0, 0)
        yield Example(cls(), (samples.array((3, 0)), np.zeros(0, np.int64)), 0, 0)
        yield Example(cls(), (samples.array((0, 2)), np.zeros(2, np.int64)), 0, 0)
        for element in ("i64", "u8", "bool", "f16"):
            yield Example(cls(0, 1), (samples.array((5, 7), element, -9, 9), lengths), 0, 0)
