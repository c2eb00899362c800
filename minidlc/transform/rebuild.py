"""Making a graph again with some values replaced: what every pass does in the end.

    with_replaced(g, {old_node: new_value})         # users read the new value; g itself if empty
    live_nodes(nodes, outputs)                      # those that outputs need, order kept

Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from minidlc.graph.graph import Graph, Node, Value
from minidlc.graph.inline import with_inputs
from minidlc.graph.op import Op, OpKind


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


def bodies_of(op: Op) -> dict[str, Graph]:
    """The graphs that a control flow op holds, by attribute; a fused group is one op, not a body.

    `if_` has then_branch and else_branch, `loop` has body.
    """
    if op.kind is not OpKind.CONTROL:
        return {}
    return {name: g for name, g in op.attributes().items() if isinstance(g, Graph)}


def map_bodies(graph: Graph, function: Callable[[Graph], Graph]) -> Graph:
    """The graph with `function` applied to the bodies of its control flow ops, one level down."""
    current: dict[Value, Value] = {}
    for node in graph.nodes:
        old = bodies_of(node.op)
        new = {name: function(body) for name, body in old.items()}
        same = all(new[name] is body for name, body in old.items())
        op = node.op if same else replace(node.op, **new)
        moved = with_inputs(node, current)
        current[node] = moved if same else replace(moved, op=op)
    if all(new is old for old, new in current.items()):
        return graph
    return regraph(graph, (current[n] for n in graph.nodes), current)  # pyright: ignore


def live_nodes(nodes: Sequence[Node], outputs: Iterable[Value]) -> tuple[Node, ...]:
    """The nodes that outputs or nodes with effects need, in the order given."""
    needed: set[Value] = set(outputs)
    live: list[Node] = []
    for node in reversed(nodes):
        if node in needed or not node.op.pure:
            live.append(node)
            needed.update(v for v in node.inputs if v is not None)
    return tuple(reversed(live))
