"""A graph with symbolic sizes → the same graph for certain sizes.

    substitute(g, {Var("N"): 4})                    # x: f32["N", 8] becomes x: f32[4, 8]

Types of inputs are rewritten, every node's type rule runs again; bodies of nodes too. Constants and
locations stay. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minidlc.expr.index import Index, Var
from minidlc.expr.index import substitute as substitute_index
from minidlc.expr.types import Dim, TensorType
from minidlc.graph.graph import Graph, Input, Node, Value, build
from minidlc.graph.op import Op


def substitute(graph: Graph, sizes: Mapping[Var, int]) -> Graph:
    """The graph for these sizes; symbols that are not among them stay.

    Raises TypeRuleError where an op cannot take the sizes.
    """
    new: dict[Value, Value] = {}
    inputs = tuple(Input(i.name, _type(i.type, sizes), i.loc) for i in graph.inputs)
    new.update(zip(graph.inputs, inputs, strict=True))
    nodes: list[Node] = []
    for node in graph.nodes:
        read = [None if v is None else new.get(v, v) for v in node.inputs]
        nodes.append(build(_op(node.op, sizes), read, name=node.name, loc=node.loc))
        new[node] = nodes[-1]
    outputs = tuple(new.get(o, o) for o in graph.outputs)
    return Graph(graph.name, inputs, tuple(nodes), outputs)


def symbols(graph: Graph) -> tuple[Var, ...]:
    """The variables in the shapes of the inputs, in order of first use."""
    dims = [d for i in graph.inputs for d in i.type.shape if isinstance(d, Index)]
    return tuple(dict.fromkeys(v for d in dims for v in sorted(d.vars(), key=str)))


def size_of(dim: Dim, sizes: Mapping[Var, int]) -> Dim:
    """A dim with its symbols replaced: a number, if all of them are known."""
    if isinstance(dim, int):
        return dim
    known = {var: Index((), size) for var, size in sizes.items()}
    found = substitute_index(dim, known)
    return found if found.terms else found.const


def _type(type: TensorType, sizes: Mapping[Var, int]) -> TensorType:
    return type.with_shape(tuple(size_of(d, sizes) for d in type.shape))


def _op(op: Op, sizes: Mapping[Var, int]) -> Op:
    """The op with its bodies, if it has any, for these sizes."""
    bodies = {n: substitute(g, sizes) for n, g in op.attributes().items() if isinstance(g, Graph)}
    return replace(op, **bodies) if bodies else op
