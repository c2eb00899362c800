"""scan: a body that goes along an axis of its inputs, and hands a state from step to step.

    h, ys = scan(h0, xs, body=cell, states=1, scanned=1)          # ys[t] of cell(h, xs[t])
    scan(h0, xs, w, …, input_axes=(1,), input_directions=(1,))    # w is captured; from the last on

It decomposes to a `loop` over the first axis, with transposes and reversals around it. Treated in
course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from minidlc.expr.types import Array, Dim, TensorType, bool_, f32, i64
from minidlc.graph.graph import Graph, Input, Value, apply, getitem, tensor_type
from minidlc.graph.interpret import interpret
from minidlc.graph.op import Example, Op, OpKind, register_op
from minidlc.graph.types import TupleType, Type
from minidlc.ops import rules
from minidlc.ops.composing import reversed_rows
from minidlc.ops.control_flow import BODY, COUNT, listed, results, several
from minidlc.ops.rules import Values
from minidlc.support.names import Names

T = TypeVar("T")


@register_op
@dataclass(frozen=True)
class Scan(Op):
    """scan(s…, x…, w…) = s… at the end, y…: body(s…, x…[t], w…) → s…, y…[t] for each t.

    The first `states` inputs are the state, the next `scanned` the sequences, the rest captures.
    Steps go along `input_axes` of the sequences and `output_axes` of the results (default 0), from
    the front or, where the direction is 1, from the back.
    """

    kind = OpKind.COMPOSITE

    body: Graph
    states: int = 0
    scanned: int = 1
    input_axes: tuple[int, ...] = ()
    output_axes: tuple[int, ...] = ()
    input_directions: tuple[int, ...] = ()
    output_directions: tuple[int, ...] = ()

    def type_rule(self, *inputs: TensorType) -> Type:
        if self.states < 0 or self.scanned < 1 or self.states + self.scanned > len(inputs):
            text = f"{self.states} states and {self.scanned} sequences of {len(inputs)} inputs"
            rules.fail(self, f"{text}: at least one sequence is needed", BODY)
        self._check_lists()
        state, sequences, captures = self._parts(inputs)
        axes = self._axes(self.input_axes, [x.rank for x in sequences])
        lengths = list(dict.fromkeys(x.shape[a] for x, a in zip(sequences, axes, strict=True)))
        if len(lengths) > 1:
            text = f"the sequences have {' and '.join(map(str, lengths))} steps"
            rules.fail(self, text, COUNT, "all have the same number")
        rows = [_without(x, a) for x, a in zip(sequences, axes, strict=True)]
        wanted = (*state, *rows, *captures)
        if self.body.input_types() != wanted:
            text = f"{self.body.name} takes {listed(self.body.input_types())}"
            rules.fail(self, f"{text}, it is given {listed(wanted)}", BODY)
        given = self.body.output_types()
        if given[: self.states] != tuple(state) or not given:
            text = f"{self.body.name} gives {listed(given)}, expected {listed(state)} first"
            rules.fail(self, f"{text}, and at least one result", BODY)
        ys = [t for t in given[self.states :] if isinstance(t, TensorType)]
        axes = self._axes(self.output_axes, [y.rank + 1 for y in ys])
        return several([*state, *(_with(y, a, lengths[0]) for y, a in zip(ys, axes, strict=True))])

    def _check_lists(self) -> None:
        stacked = len(self.body.outputs) - self.states
        for what, values, count in (
            ("input_axes", self.input_axes, self.scanned),
            ("input_directions", self.input_directions, self.scanned),
            ("output_axes", self.output_axes, stacked),
            ("output_directions", self.output_directions, stacked),
        ):
            if values and len(values) != count:
                rules.fail(self, f"{what} has {len(values)} numbers, expected {count}", rules.DIMS)
            if what.endswith("directions") and not set(values) <= {0, 1}:
                rules.fail(self, f"{what} are 0 or 1, got {values}", rules.RANGE)

    def _axes(self, axes: Sequence[int], ranks: Sequence[int]) -> list[int]:
        """An axis for each sequence, counted from the front; 0 where none are given."""
        given = axes or (0,) * len(ranks)
        return [rules.axis(self, a, rank) for a, rank in zip(given, ranks, strict=True)]

    def _parts(self, inputs: Sequence[T]) -> tuple[Sequence[T], Sequence[T], Sequence[T]]:
        a, b = self.states, self.states + self.scanned
        return inputs[:a], inputs[a:b], inputs[b:]

    def reference(self, *inputs: Values) -> Array | tuple[Array, ...]:
        state, sequences, captures = self._parts(inputs)
        axes = self._axes(self.input_axes, [x.ndim for x in sequences])
        back = self.input_directions or (0,) * len(sequences)
        rows = [np.moveaxis(x, a, 0) for x, a in zip(sequences, axes, strict=True)]
        rows = [x[::-1] if d else x for x, d in zip(rows, back, strict=True)]
        stacks: list[list[Array]] = [[] for _ in self.body.outputs[self.states :]]
        for step in range(rows[0].shape[0]):
            given = [*state, *(np.array(x[step], order="C") for x in rows), *captures]
            found = interpret(self.body, list(map(np.asarray, given)))
            state = found[: self.states]
            for stack, y in zip(stacks, found[self.states :], strict=True):
                stack.append(y)
        return results([*map(np.asarray, state), *map(self._stacked, range(len(stacks)), stacks)])

    def _stacked(self, number: int, rows: list[Array]) -> Array:
        type = self.body.outputs[self.states + number].type
        assert isinstance(type, TensorType)
        (axis,) = self._axes(self.output_axes[number : number + 1], [type.rank + 1])
        if self.output_directions and self.output_directions[number]:
            rows = rows[::-1]
        shape = rows[0].shape if rows else type.dims
        stack = np.array(rows, type.dtype.numpy).reshape(len(rows), *shape)
        return np.moveaxis(stack, 0, axis).copy()

    def decompose(self, *inputs: Value) -> Value | tuple[Value, ...]:
        """A counted loop over the first axis of the sequences; its body has i and c in front."""
        state, sequences, captures = self._parts(inputs)
        ranks = [len(tensor_type(x).shape) for x in sequences]
        axes = self._axes(self.input_axes, ranks)
        back = self.input_directions or (0,) * len(axes)
        rows = [
            _reversed(_moved(x, a, 0), d) for x, a, d in zip(sequences, axes, back, strict=True)
        ]
        length = tensor_type(rows[0]).shape[0]
        if not isinstance(length, int):
            text = f"the sequences have {length} steps, a symbol"
            rules.fail(self, text, rules.SYMBOLIC, "give it: shapes={…}")
        body, names = self.body, Names(x.name for x in self.body.inputs)
        i, c = Input(names.fresh("i"), i64[()]), Input(names.fresh("c"), bool_[()])
        body = Graph(body.name, (i, c, *body.inputs), body.nodes, (c, *body.outputs))
        attributes = {"carried": self.states, "scanned": self.scanned, "trips": length}
        loop = apply("loop", None, None, *state, *rows, *captures, body=body, **attributes)
        count = len(loop.type.items) if isinstance(loop.type, TupleType) else 1
        found = [getitem(loop, n) for n in range(count)] if count > 1 else [loop]
        stacks = found[self.states :]
        axes = self._axes(self.output_axes, [len(tensor_type(y).shape) for y in stacks])
        back = self.output_directions or (0,) * len(axes)
        ys = [_moved(_reversed(y, d), 0, a) for y, a, d in zip(stacks, axes, back, strict=True)]
        values = (*found[: self.states], *ys)
        return values if count > 1 else values[0]

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Sums along each axis and direction; no step, one step; a capture; no state."""
        s, x, w = Input("s", f32[3]), Input("x", f32[3]), Input("w", f32[()])
        total = apply("add", s, apply("mul", x, w))
        body = Graph.of("total", [s, x, w], [total, total])
        start, weight = np.array([0, 1, np.nan], np.float32), np.array(2, np.float32)
        for steps in (5, 1, 0):
            xs = np.arange(3 * steps, dtype=np.float32).reshape(steps, 3)
            for back, out in ((0, 0), (1, 0), (0, 1), (1, 1)):
                op = cls(body, 1, 1, (0,), (1,), (back,), (out,))
                yield Example(op, (start, xs, weight))
            yield Example(cls(body, 1), (start, xs, weight))
            yield Example(cls(body, 1, input_axes=(-1,)), (start, xs.T.copy(), weight))
        a, b = Input("a", f32[2]), Input("b", i64[()])
        pair = Graph.of("pair", [a, b], [apply("neg", a), apply("add", b, 1), b])
        data = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([7, -8, 9])
        yield Example(cls(pair, 0, 2, (1, 0), (-1, 0, 0), (0, 1), (0, 1, 0)), data)


def _without(type: TensorType, axis: int) -> TensorType:
    return type.with_shape(type.shape[:axis] + type.shape[axis + 1 :])


def _with(type: TensorType, axis: int, size: Dim) -> TensorType:
    return type.with_shape((*type.shape[:axis], size, *type.shape[axis:]))


def _moved(value: Value, source: int, to: int) -> Value:
    """The value with one axis at another place."""
    if source == to:
        return value
    rest = [a for a in range(tensor_type(value).rank) if a != source]
    return apply("transpose", value, perm=(*rest[:to], source, *rest[to:]))


def _reversed(value: Value, direction: int) -> Value:
    """The value, its first axis from the back where the direction is 1."""
    return reversed_rows(value) if direction else value
