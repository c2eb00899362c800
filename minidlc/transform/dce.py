"""Dead code elimination: nodes that no output needs.

    y = relu(x); z = exp(x); return y   ->   y = relu(x); return y

Inputs stay, used or not: they are what the caller gives. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from minidlc.graph.graph import Graph
from minidlc.transform.log import Rewrite, report
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
        live = live_nodes(graph.nodes, graph.outputs)
        if len(live) == len(graph.nodes):
            return graph
        kept = set(live)
        for node in graph.nodes:
            if node not in kept:
                report(partial(Rewrite, "dead", node.name, node.loc))
        return Graph(graph.name, graph.inputs, live, graph.outputs)
