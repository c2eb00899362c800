"""Forward data-flow analysis: what is known of each value of a graph before it runs.

    fact_of(relu_node)                              # Fact(low=0, high=inf, nan=True, …)
    facts = analyse(g, {"image": Fact(0.0, 1.0)})   # value -> Fact, for inputs known to be so
    facts[g.outputs[0]].finite

Facts flow from inputs to outputs: transfers.py says what each op makes of them, branches are
joined, and the state of a loop is taken round until nothing new is found; a bound that still moves
after three rounds is given up (widening), so that every loop ends. Reads graphs, changes nothing;
guards of rules and `minidlc check` ask it. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, MutableMapping, Sequence
from typing import TypeAlias
from weakref import WeakKeyDictionary

from minidlc.expr.types import bool_, i64
from minidlc.graph.fused import Fused
from minidlc.graph.graph import Constant, Graph, Input, Node, Value, tensor_type
from minidlc.graph.types import TupleType
from minidlc.ops.control_flow import If, Loop
from minidlc.ops.movement import GetItem
from minidlc.transform.dataflow.fact import Fact, limits, of_array, top
from minidlc.transform.dataflow.transfers_rows import transfer

Known: TypeAlias = "Fact | tuple[Fact, ...]"  # a tuple where a node has several results
ROUNDS = 3  # of a loop before its bounds are widened

_remembered: MutableMapping[Value, Known] = WeakKeyDictionary()


def fact_of(value: Value) -> Fact:
    """What is known of a value whatever the inputs are; of a tuple's parts ask `getitem`.

    Values never change, so neither does the answer: it is remembered as long as the value lives.
    """
    found = _flow([value], _remembered)
    return found if isinstance(found, Fact) else top(tensor_type(value).dtype)


def analyse(graph: Graph, inputs: Mapping[str, Fact] | None = None) -> dict[Value, Known]:
    """The fact of every value of the graph, given facts of inputs by name."""
    given = inputs or {}
    facts: dict[Value, Known] = {i: given.get(i.name, top(i.type.dtype)) for i in graph.inputs}
    _flow([*graph.nodes, *graph.outputs], facts)
    return facts


def _flow(targets: Sequence[Value], facts: MutableMapping[Value, Known]) -> Known:
    """Fill in the facts of the targets and of what they need; gives the last one's."""
    stack = list(reversed(targets))
    while stack:
        value = stack[-1]
        if value in facts:
            stack.pop()
            continue
        missing = [v for v in _inputs(value) if v not in facts]
        if missing:
            stack += missing
            continue
        facts[value] = _fact(value, facts)
        stack.pop()
    return facts[targets[-1]] if targets else ()


def _inputs(value: Value) -> list[Value]:
    return [v for v in value.inputs if v is not None] if isinstance(value, Node) else []


def _fact(value: Value, facts: Mapping[Value, Known]) -> Known:
    """The fact of one value, those of its inputs being known."""
    match value:
        case Constant():
            return of_array(value.array)
        case Input():
            return top(value.type.dtype)
        case Node():
            given = [None if v is None else facts[v] for v in value.inputs]
            return _several(value, _results(value, given))


def _several(node: Node, results: Known) -> Known:
    """One fact, or a tuple, as the node's type is."""
    one = isinstance(results, tuple) and not isinstance(node.type, TupleType)
    return results[0] if one and isinstance(results, tuple) else results


def _results(node: Node, given: list[Known | None]) -> Known:
    match node.op:
        case If(then_branch=yes, else_branch=no):
            captures = given[1:]
            condition = given[0]
            known = condition.constant if isinstance(condition, Fact) else None
            if known is not None:
                return _body(yes if known else no, captures)
            both = zip(_body(yes, captures), _body(no, captures), strict=True)
            return tuple(a | b for a, b in both)
        case Loop():
            return _loop(node.op, given)
        case Fused(body=body):
            return _body(body, given)
        case GetItem(index=index):
            source = given[0]
            return source[index] if isinstance(source, tuple) else transfer(node, tuple(given))
        case _:
            return transfer(node, tuple(given))


def _body(body: Graph, inputs: Sequence[Known | None]) -> tuple[Fact, ...]:
    """Facts of the outputs of a closed graph, given those of its inputs."""
    facts: dict[Value, Known] = {
        i: f if isinstance(f, Fact) else top(i.type.dtype)
        for i, f in zip(body.inputs, inputs, strict=True)
    }
    _flow(body.nodes, facts)
    return tuple(f for o in body.outputs if isinstance(f := _flow([o], facts), Fact))


def _loop(op: Loop, given: list[Known | None]) -> tuple[Fact, ...]:
    """The least state found that the body does not leave: a fixpoint, bounds widened.

    It ends: once bounds are widened, each part of a fact changes once at most.
    """
    counter = Fact(0, limits(i64)[1] if op.trips is None else max(op.trips - 1, 0))
    given_state, scanned, captures = op.parts(given[2:])
    types = [i.type.dtype for i in op.body.inputs[2:]]
    state = [f if isinstance(f, Fact) else top(t) for f, t in zip(given_state, types, strict=False)]
    for round in itertools.count():
        results = _body(op.body, [counter, top(bool_), *state, *scanned, *captures])[1:]
        new = [a | b for a, b in zip(state, results, strict=False)]
        if new == state:
            return (*state, *results[op.carried :])
        if round >= ROUNDS:
            new = [_widened(a, b, limits(t)) for a, b, t in zip(state, new, types, strict=False)]
        state = new
    raise AssertionError("unreachable")


def _widened(old: Fact, new: Fact, limits: tuple[float, float]) -> Fact:
    """A bound that moved goes to the end of the type."""
    low = new.low if new.low >= old.low else limits[0]
    high = new.high if new.high <= old.high else limits[1]
    return Fact(low, high, new.nan, new.negative_zero)
