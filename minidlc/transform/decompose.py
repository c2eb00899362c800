"""Composite ops in terms of simpler ones: the first of two levels of lowering (mandatory).

    y = gemm(a, b, c, transB=True)     ->     t = transpose(b); m = matmul(a, t); y = add(m, c)

High-level names are kept until here, so that passes before it can look for them.
Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from minidlc.graph.graph import Constant, Graph, Input, Node, Value, located
from minidlc.graph.op import OpKind
from minidlc.graph.types import Type, result_types
from minidlc.support.errors import PassError
from minidlc.support.locations import Derived
from minidlc.transform.expand import expand
from minidlc.transform.log import permitted
from minidlc.transform.pass_ import Pass, register_pass
from minidlc.transform.rebuild import map_bodies

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
        """The graph with compiled, control flow and host ops only."""
        for _ in range(MAX_DEPTH + 1):
            simpler = expand(graph, _simpler)
            if simpler is graph:
                return map_bodies(graph, self.run)  # an op may have become a loop
            graph = simpler
        left = sorted({n.op.name for n in graph.nodes if n.op.kind is OpKind.COMPOSITE})
        text = f"still composite after {MAX_DEPTH} rounds: {', '.join(left)}"
        raise PassError(text, hint="an op decomposes into itself", code="MDLC0508")


def _simpler(node: Node) -> tuple[Value, ...] | None:
    """What stands in place of a composite node; None for any other."""
    if node.op.kind is not OpKind.COMPOSITE:
        return None
    if not permitted(f"decompose {node.op.name}", node.name, node.loc):
        return None
    return _results(node)


def _results(node: Node) -> tuple[Value, ...]:
    """What `decompose` returns, checked against the node's type."""
    wanted = result_types(node.type)
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
