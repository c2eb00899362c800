"""Converters of If and Loop: branches and bodies become closed graphs, or are opened in place.

    If       a known condition leaves one branch; otherwise both, with results of equal types
    Loop     a graph that runs again and again; where sizes or types change from run to run and the
             number of runs is known, the runs one after the other

Scan is in operators_scan.py. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import DType, TensorType, bool_, i64
from minidlc.frontend.onnx.registry import OnnxNode, ValueNeeded, constant_value, onnx_op
from minidlc.frontend.onnx.subgraphs import Subgraph, values_of
from minidlc.graph.graph import (
    Constant,
    Graph,
    Input,
    Value,
    apply,
    results_of,
    tensor_type,
)
from minidlc.graph.types import Type
from minidlc.support.errors import CompileError, OnnxImportError

LARGEST_COUNT = 1 << 62  # exporters write the largest i64 where there is no number of runs
MOST_OPENED = 256  # runs of a loop whose body is imported once for each
MOST_COPIES = 4096  # of a body in such a loop in such a loop …


def captures_of(*graphs: Subgraph) -> dict[Value, Input]:
    """Outer value → the input that stands for it in a closed graph."""
    captures: dict[Value, Input] = {}
    for graph in graphs:
        for name, value in graph.captured.items():
            if value not in captures:
                captures[value] = graph.fresh(name, tensor_type(value))
    return captures


def number(value: Value | None, element: DType) -> int | None:
    """The one number of this type that a value is, if that is known; the op refuses other types."""
    found = None if value is None else constant_value(value)
    fits = found is not None and found.size == 1 and found.dtype == element.numpy
    return int(found.reshape(-1)[0]) if found is not None and fits else None


@onnx_op("If")
def if_(node: OnnxNode, cond: Value) -> Sequence[Value]:
    """One branch if the condition is known, both with their captures if not."""
    branches = [Subgraph(node, node.attr_graph(f"{name}_branch")) for name in ("then", "else")]
    for branch in branches:
        branch.needs_results(len(node.outputs))
    known = number(cond, bool_)
    if known is not None:
        return branches[not known].inline([])
    graphs: list[Graph] = []
    values: dict[Value, Input] = {}
    for branch in branches:
        captures = captures_of(*branches)
        values = values or captures
        graphs.append(branch.closed([], [], captures))
    yes, no = graphs
    if yes.output_types() != no.output_types():
        listed = (", ".join(map(str, g.output_types())) for g in graphs)
        text = f"the branches give {' and '.join(f'({types})' for types in listed)}: not supported"
        hint = "results of one type, or a condition that is known at import"
        raise _unless_known(node, cond, "cond", text, hint)
    op = apply("if_", cond, *values, then_branch=yes, else_branch=no)
    return results_of(op)


def _unless_known(
    node: OnnxNode, value: Value, what: str, text: str, hint: str | None
) -> OnnxImportError:
    """The error `text`; a ValueNeeded if the value of graph inputs would help."""
    try:
        node.constant(value, what)
    except ValueNeeded as e:
        e.message = text
        return e
    except OnnxImportError:
        pass
    return node.unsupported(text, hint)


@onnx_op("Loop")
def loop(
    node: OnnxNode, trips: Value | None = None, cond: Value | None = None, *initial: Value | None
) -> Sequence[Value]:
    """A `loop`, or its runs in a row."""
    values = values_of(node, initial)
    body = Subgraph(node, node.attr_graph("body"))
    body.needs_results(1 + len(values))
    found = _Loop(node, body, trips, cond, values)
    if found.starts is False or (found.limit is not None and found.limit <= 0):
        found = _Loop(node, body, Constant("n", np.array(0)), None, values)
    try:
        return found.as_op()
    except OnnxImportError as e:
        for value, name, known in ((trips, "M", found.limit), (cond, "cond", found.starts)):
            if value is not None and known is None:
                raise _unless_known(node, value, name, e.message, e.hint) from e
        if not 1 <= (found.limit or 0) <= MOST_OPENED:
            raise
        return found.opened(e)


@dataclass(frozen=True)
class _Loop:
    """A Loop node: its body, and the number of runs and the condition, if given."""

    node: OnnxNode
    body: Subgraph
    trips: Value | None
    cond: Value | None
    initial: Sequence[Value]

    @property
    def limit(self) -> int | None:
        """The largest number of runs, if it is known."""
        return number(self.trips, i64)

    @property
    def starts(self) -> bool | None:
        """Whether the condition holds at first; None: not known."""
        if self.cond is None:
            return True
        known = number(self.cond, bool_)
        return None if known is None else bool(known)

    def as_op(self) -> Sequence[Value]:
        """One `loop`; raises OnnxImportError where a type or a number of runs is not known."""
        state = [tensor_type(v) for v in self.initial]
        inputs = self.body.inputs([i64[()], bool_[()], *state])
        captures = captures_of(self.body)
        graph = self.body.closed(inputs, self._as_declared(inputs), captures)
        graph = self._checked(graph, state)
        runs = self._runs(graph)
        stacked = len(graph.outputs) - 1 - len(state)
        if runs is None and stacked:
            name = self.node.outputs[len(state)] if len(self.node.outputs) > len(state) else ""
            text = f"the length of scan output {name!r} depends on data: not supported"
            raise self.node.unsupported(text, "a known number of runs, all of which happen")
        given = (self.trips, self.cond) if runs is None else (None, None)
        said = graph.outputs[0]
        if runs is not None and not (isinstance(said, Constant) and said.array.all()):
            graph = Graph.of(graph.name, graph.inputs, [graph.inputs[1], *graph.outputs[1:]])
        op = apply(
            "loop", *given, *self.initial, *captures, body=graph, carried=len(state), trips=runs
        )
        return results_of(op)

    def _as_declared(self, inputs: Sequence[Input]) -> list[Value]:
        """The parameters; number of the run and condition as lists of one if so declared."""
        values: list[Value] = list(inputs)
        for place, info in enumerate(self.body.proto.input[:2]):
            if len(info.type.tensor_type.shape.dim) == 1:
                values[place] = apply("reshape", inputs[place], shape=(1,))
        return values

    def _checked(self, graph: Graph, state: Sequence[TensorType]) -> Graph:
        """The body if it gives a condition and values of the types that it takes."""
        said, *values = graph.outputs
        if isinstance(said.type, TensorType) and said.type.rank and said.type.size == 1:
            said = apply("reshape", said, shape=())
        found: list[Type] = [said.type, *(v.type for v in values[: len(state)])]
        if found != [bool_[()], *state]:
            names = [o.name for o in self.body.proto.output]
            rows = zip(names, [bool_[()], *state], found, strict=False)
            changes = [f"{n!r} from {a} to {b}" for n, a, b in rows if a != b]
            text = f"a run changes the type of {', '.join(changes) or 'nothing'}: not supported"
            raise self.node.unsupported(text, "values of one type, or a known number of runs")
        return Graph.of(graph.name, graph.inputs, [said, *values])

    def _runs(self, graph: Graph) -> int | None:
        """How often the body runs if that is known: nothing in it can end the loop."""
        said = graph.outputs[0]
        known = None if said is graph.inputs[1] else constant_value(said)
        goes_on = (
            self.cond is None or said is graph.inputs[1] or (known is not None and known.all())
        )
        endless = self.trips is None or (self.limit or 0) > LARGEST_COUNT
        if goes_on and self.starts and endless:
            raise self.node.unsupported("it never ends: no number of runs, no condition that stops")
        if not self.starts:
            return None
        if not goes_on:
            return None if known is None else min(1, self.limit if self.limit is not None else 1)
        return self.limit

    def opened(self, reason: CompileError) -> Sequence[Value]:
        """The runs in a row; raises `reason` if a condition turns out not to be known."""
        assert self.limit is not None
        copies = self.limit * self.body.copies
        if copies > MOST_COPIES:
            text = f"sizes change from run to run, in {copies:,} runs of loops in loops"
            raise self.node.unsupported(text, f"at most {MOST_COPIES:,} are taken one by one")
        state = list(self.initial)
        stacks: list[list[Value]] = []
        for run in range(self.limit):
            i, going = Constant("i", np.array(run)), Constant("cond", np.array(True))
            said, *results = self.body.inline([i, going, *state], self.limit)
            state = results[: len(state)]
            stacks.append(results[len(state) :])
            goes_on = True if self.cond is None else number(said, bool_)
            if goes_on is None:
                raise reason
            if not goes_on:
                break
        return [*state, *map(_stacked, zip(*stacks, strict=True))]


def _stacked(rows: Sequence[Value]) -> Value:
    parts = [apply("unsqueeze", row, axes=(0,)) for row in rows]
    return apply("concat", *parts, axis=0)
