"""Making a graph again with some values replaced: what every pass does in the end.

    with_replaced(g, {old_node: new_value})         # users read the new value; g itself if empty
    live_nodes(nodes, outputs)                      # those that outputs need, order kept

Treated in course chapter 02_passes.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from minidlc.graph.graph import Graph, Node, Value


def with_inputs(node: Node, new: Mapping[Value, Value]) -> Node:
    """The node reading replaced values; the same object if none of its inputs is replaced."""
    inputs = tuple(None if v is None else new.get(v, v) for v in node.inputs)
    return node if inputs == node.inputs else replace(node, inputs=inputs)


def with_replaced(graph: Graph, new: Mapping[Value, Value]) -> Graph:
    """The graph without the nodes that are keys of `new`; their users read the replacement.

    Replacements must be defined earlier in the graph. Returns `graph` itself if `new` is empty.
    """
    if not new:
        return graph
    current: dict[Value, Value] = dict(new)
    nodes: list[Node] = []
    for node in graph.nodes:
        if node in new:
            current[node] = current.get(new[node], new[node])
            continue
        nodes.append(with_inputs(node, current))
        current[node] = nodes[-1]
    return regraph(graph, nodes, current)


def regraph(graph: Graph, nodes: Iterable[Node], new: Mapping[Value, Value]) -> Graph:
    """The graph with other nodes; outputs that are keys of `new` are replaced."""
    outputs = tuple(new.get(o, o) for o in graph.outputs)
    return Graph(graph.name, graph.inputs, tuple(nodes), outputs)


def live_nodes(nodes: Sequence[Node], outputs: Iterable[Value]) -> tuple[Node, ...]:
    """The nodes that outputs or nodes with effects need, in the order given."""
    needed: set[Value] = set(outputs)
    live: list[Node] = []
    for node in reversed(nodes):
        if node in needed or not node.op.pure:
            live.append(node)
            needed.update(v for v in node.inputs if v is not None)
    return tuple(reversed(live))


def nodes_made(result: Value, placed: Container[Value]) -> list[Node]:
    """The nodes under `result`, itself included, that are not `placed` yet, inputs first."""
    made: dict[Node, None] = {}
    stack: list[tuple[Value | None, bool]] = [(result, False)]
    while stack:
        value, inputs_done = stack.pop()
        if not isinstance(value, Node) or value in placed or value in made:
            continue
        if inputs_done:
            made[value] = None
        else:
            stack.append((value, True))
            stack += [(v, False) for v in reversed(value.inputs)]
    return list(made)
