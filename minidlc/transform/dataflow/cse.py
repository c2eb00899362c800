"""Common subexpression elimination: what is computed twice is computed once.

    a = exp(x); b = exp(x); y = add(a, b)   ->   a = exp(x); y = add(a, a)

Two nodes are the same if op, attributes and inputs are; constants are the same if their bytes are.
Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from minidlc.graph.graph import Graph, Value
from minidlc.graph.structure import constant_key, op_key
from minidlc.transform.log import permitted
from minidlc.transform.pass_ import Pass, register_pass
from minidlc.transform.rebuild import with_replaced


@register_pass
@dataclass(frozen=True)
class Cse(Pass):
    """Merge equal nodes and equal constants into the first; ops that are not pure stay apart."""

    name = "cse"

    def run(self, graph: Graph) -> Graph:
        """The graph with one node for each value."""
        first: dict[Hashable, Value] = {}
        same: dict[Value, Value] = {}
        for constant in graph.constants:
            original = first.setdefault(constant_key(constant), constant)
            if original is not constant:
                same[constant] = original
        for node in graph.nodes:
            if not node.op.pure:
                continue
            inputs = tuple(None if v is None else same.get(v, v) for v in node.inputs)
            original = first.setdefault((op_key(node.op), inputs), node)
            if original is not node and permitted(f"same as {original.name}", node.name, node.loc):
                same[node] = original
        return with_replaced(graph, same)
