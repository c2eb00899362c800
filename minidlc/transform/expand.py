"""Nodes replaced by several: what decomposing an op and opening a known branch have in common.

    expand(g, lambda node: halves(node) if node.op.name == "split" else None)

The new nodes stand where the old one stood; a node with several results gives one value for each.
Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Callable

from minidlc.graph.graph import Graph, Node, Value
from minidlc.graph.inline import nodes_made, with_inputs
from minidlc.graph.types import TupleType
from minidlc.transform.rebuild import regraph


def expand(graph: Graph, results_of: Callable[[Node], tuple[Value, ...] | None]) -> Graph:
    """The graph with each node for which `results_of` gives values replaced by these, once.

    Returns the same object if it gives None for every node.
    """
    new: dict[Value, Value] = {}
    parts: dict[Value, tuple[Value, ...]] = {}  # several results, until getitem takes one
    nodes: dict[Node, None] = {}
    expanded = False
    for node in graph.nodes:
        source = node.inputs[0] if node.inputs else None
        if node.op.name == "getitem" and source is not None and source in parts:
            new[node] = parts[source][node.op.attributes()["index"]]
            continue
        current = with_inputs(node, new)
        results = results_of(current)
        if results is None:
            new[node] = current
            nodes[current] = None
            continue
        expanded = True
        for result in results:
            nodes |= dict.fromkeys(nodes_made(result, nodes))
        if isinstance(node.type, TupleType):
            parts[node] = results
        else:
            new[node] = results[0]
    return regraph(graph, nodes, new) if expanded else graph
