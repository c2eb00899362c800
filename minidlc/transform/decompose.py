"""Composite ops in terms of simpler ones: the first of two levels of lowering (mandatory).

    y = gemm(a, b, c, transB=True)     ->     t = transpose(b); m = matmul(a, t); y = add(m, c)

High-level names are kept until here, so that passes before it can look for them.
Treated in course chapter 02_passes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from minidlc.graph.graph import Constant, Graph, Input, Node, Value, located
from minidlc.graph.op import OpKind
from minidlc.graph.types import TupleType, Type
from minidlc.support.errors import PassError
from minidlc.support.locations import Derived
from minidlc.transform.log import Rewrite, report
from minidlc.transform.pass_ import Pass, register_pass
from minidlc.transform.rebuild import nodes_made, regraph, with_inputs

MAX_DEPTH = 50  # composite ops inside composite ops


@register_pass
@dataclass(frozen=True)
class Decompose(Pass):
    """Replace every composite op by what its `decompose` builds."""

    name = "decompose"
    mandatory = True
    level = 0
    ensures = ("decomposed",)

    def run(self, graph: Graph) -> Graph:
        """The graph with compiled and host ops only."""
        for _ in range(MAX_DEPTH):
            if all(node.op.kind is not OpKind.COMPOSITE for node in graph.nodes):
                return graph
            graph = _one_level(graph)
        left = sorted({n.op.name for n in graph.nodes if n.op.kind is OpKind.COMPOSITE})
        text = f"still composite after {MAX_DEPTH} rounds: {', '.join(left)}"
        raise PassError(text, hint="an op decomposes into itself", code="MDLC0508")


def _one_level(graph: Graph) -> Graph:
    """Every composite op of the graph replaced once."""
    new: dict[Value, Value] = {}
    parts: dict[Value, tuple[Value, ...]] = {}  # several results, until getitem takes one
    nodes: dict[Node, None] = {}
    for node in graph.nodes:
        source = node.inputs[0] if node.inputs else None
        if node.op.name == "getitem" and source in parts:
            new[node] = parts[source][node.op.attributes()["index"]]
            continue
        current = with_inputs(node, new)
        if node.op.kind is not OpKind.COMPOSITE:
            new[node] = current
            nodes[current] = None
            continue
        report(partial(Rewrite, f"decompose {node.op.name}", node.name, node.loc))
        results = _results(current)
        for result in results:
            nodes |= dict.fromkeys(nodes_made(result, nodes))
        if isinstance(node.type, TupleType):
            parts[node] = results
        else:
            new[node] = results[0]
    return regraph(graph, nodes, new)


def _results(node: Node) -> tuple[Value, ...]:
    """What `decompose` returns, checked against the node's type."""
    wanted = node.type.items if isinstance(node.type, TupleType) else (node.type,)
    with located(Derived(f"decompose {node.op.name}", node.loc)):
        result: object = node.op.decompose(*node.inputs)
    results = cast("tuple[object, ...]", result if isinstance(result, tuple) else (result,))
    values = tuple(r for r in results if isinstance(r, (Input, Constant, Node)))
    got: tuple[Type, ...] = tuple(v.type for v in values)
    if len(values) != len(results) or got != wanted:
        text = f"decompose of {node.op.name} gives {', '.join(map(str, got))}, not {node.type}"
        raise PassError(text, loc=node.loc, code="MDLC0508")
    if len(values) == 1 and isinstance(values[0], Node) and values[0] not in node.inputs:
        return (replace(values[0], name=node.name),)
    return values
