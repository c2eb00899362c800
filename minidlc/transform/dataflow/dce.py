"""Dead code elimination: nodes that no output needs.

    y = relu(x); z = exp(x); return y   ->   y = relu(x); return y

Inputs stay, used or not: they are what the caller gives. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from dataclasses import dataclass

from minidlc.graph.graph import Graph
from minidlc.transform.log import permitted
from minidlc.transform.pass_ import Pass, register_pass
from minidlc.transform.rebuild import live_nodes


@register_pass
@dataclass(frozen=True)
class Dce(Pass):
    """Drop nodes whose results nothing reads, except ops that are not pure."""

    name = "dce"
    ensures = ("no_dead_code",)

    def run(self, graph: Graph) -> Graph:
        """The graph of live nodes."""
        live = set(live_nodes(graph.nodes, graph.outputs))
        dead = [node for node in reversed(graph.nodes) if node not in live]  # readers first
        dropped = {node for node in dead if permitted("dead", node.name, node.loc)}
        if not dropped:
            return graph
        kept = tuple(node for node in graph.nodes if node not in dropped)
        return Graph(graph.name, graph.inputs, kept, graph.outputs)
