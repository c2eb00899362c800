"""The cheapest graph in an e-graph: one e-node is chosen from each class.

    choice = choose(e, COSTS["work"])               # for each class the e-node to compute it by
    extract(e, choice, g)                           # the graph of these e-nodes
    graph_cost(g, COSTS["work"])                    # each node counted once

The cost of an e-node is its own plus those of its inputs; the cheapest of each class is found by
repeating that until no cost falls. Every cost is positive, so that no class is chosen through
itself. The limit: a value read twice is paid twice while choosing (a tree), once in the graph.
TENSAT (Yang et al., MLSys 2021) leaves that choice, which is NP-hard, to an integer program.
Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from minidlc.graph.graph import Constant, Graph, Node, Value, toposort
from minidlc.graph.inline import with_inputs
from minidlc.graph.op import Op
from minidlc.graph.types import Type
from minidlc.transform.block.weigh import operations_of, traffic_of
from minidlc.transform.egraph.graph import LEFT_OUT, EGraph, ENode
from minidlc.transform.rebuild import regraph

# (op, types of its inputs, type of its result) -> a positive number
Cost: TypeAlias = Callable[[Op, Sequence[Type | None], Type], float]


class Choice(NamedTuple):
    """By class: the e-node to compute it by, and the cost of that with its inputs."""

    nodes: dict[int, ENode]
    costs: dict[int, float]


OPERATIONS_A_BYTE = 8  # of arithmetic, in the time that memory takes for a byte
STEP = 1.0  # what a node costs that moves and computes nothing
FOLDED = 1e-3  # what it costs if its inputs are constants: fold_constants takes it


def work(op: Op, inputs: Sequence[Type | None], result: Type) -> float:
    """Bytes read and written, and operations at the rate of `OPERATIONS_A_BYTE`."""
    done = operations_of(op, inputs, result) / OPERATIONS_A_BYTE
    return STEP + traffic_of(op, inputs, result) + done


def nodes(op: Op, inputs: Sequence[Type | None], result: Type) -> float:
    """One for each node."""
    return STEP


COSTS: dict[str, Cost] = {"work": work, "nodes": nodes}


def graph_cost(graph: Graph, cost: Cost) -> float:
    """The cost of every node, each once; what depends on constants only is folded, and free."""
    known: set[Value] = set(graph.constants)
    total = 0.0
    for node in graph.nodes:
        folded = node.inputs and node.op.pure and not node.op.drawn
        if folded and all(v is None or v in known for v in node.inputs):
            known.add(node)
        else:
            total += cost(node.op, [None if v is None else v.type for v in node.inputs], node.type)
    return total


def choose(egraph: EGraph, cost: Cost) -> Choice:
    """For each class the e-node of the smallest cost, its inputs included; the first of equals."""
    fixed = _fixed(egraph)
    best: dict[int, float] = {}
    chosen: dict[int, ENode] = {}
    falls = True
    while falls:
        falls = False
        for id, held in egraph.classes.items():
            for node in held.nodes:
                children = _children(egraph, node)
                if not all(c in best for c in children):
                    continue
                own = FOLDED if id in fixed else _own(node.value, cost)
                total = own + sum(best[c] for c in children) if children else 0.0
                if total < best.get(id, float("inf")):
                    best[id], chosen[id], falls = total, node, True
    return Choice(chosen, best)


def _children(egraph: EGraph, node: ENode) -> list[int]:
    return [egraph.find(c) for c in node.children if c != LEFT_OUT]


def _own(value: Value, cost: Cost) -> float:
    """The cost of one e-node, without its inputs."""
    if not isinstance(value, Node):
        return 0.0
    return cost(value.op, [None if v is None else v.type for v in value.inputs], value.type)


def _fixed(egraph: EGraph) -> set[int]:
    """Classes that depend on constants only: they are folded before anything runs."""
    fixed: set[int] = set()
    while True:
        more = {
            id
            for id, held in egraph.classes.items()
            if id not in fixed and any(_is_fixed(egraph, node, fixed) for node in held.nodes)
        }
        if not more:
            return fixed
        fixed |= more


def _is_fixed(egraph: EGraph, node: ENode, fixed: set[int]) -> bool:
    children = _children(egraph, node)
    if not children:
        return isinstance(node.value, Constant)
    op = node.value.op if isinstance(node.value, Node) else None
    return op is not None and op.pure and not op.drawn and fixed.issuperset(children)


def extract(egraph: EGraph, choice: Choice, graph: Graph) -> Graph:
    """The graph of the chosen e-nodes that has the outputs of `graph`; names and places stay."""
    made: dict[int, Value] = {}

    def value_of(root: Value) -> Value:
        stack = [egraph.find(egraph.ids[root])]
        while stack:
            id = stack[-1]
            node = choice.nodes[id]
            pending = [c for c in _children(egraph, node) if c not in made]
            if pending and id not in made:
                stack += reversed(pending)
                continue
            stack.pop()
            if id not in made:
                made[id] = _built(egraph, node, made)
        return made[egraph.find(egraph.ids[root])]

    outputs = tuple(map(value_of, graph.outputs))
    effects = [value_of(n) for n in graph.nodes if not n.op.pure]
    names = {new: old.name for old, new in zip(graph.outputs, outputs, strict=True)}
    nodes = toposort((*outputs, *effects))
    named: dict[Value, Value] = {}
    for node in nodes:
        current = with_inputs(node, named)
        named[node] = replace(current, name=names[node]) if node in names else current
    return regraph(
        replace(graph, outputs=outputs),
        [n for n in map(named.get, nodes) if isinstance(n, Node)],
        named,
    )


def _built(egraph: EGraph, node: ENode, made: Mapping[int, Value]) -> Value:
    if not isinstance(node.value, Node):
        return node.value
    children = (None if c == LEFT_OUT else made[egraph.find(c)] for c in node.children)
    inputs = tuple(children)
    return node.value if inputs == node.value.inputs else replace(node.value, inputs=inputs)
