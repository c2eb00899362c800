"""Operator fusion: ops that run as one kernel become one `fused` node.

    y = matmul(x, w); z = add(y, b); h = relu(z)
 -> h = fused(x, w, b, body=matmul_add_relu, anchor="matmul")

After TVM's classes of ops (`op.pattern`) and its use of post-dominators: a node joins the node
through which every path from it leads, if all nodes on those paths may join. So no value that
somebody outside reads, or that is an output, ends up inside. Every neighbouring pair is reported,
fused or not, with the reason. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from dataclasses import dataclass

from minidlc.expr.types import TensorType
from minidlc.graph.fused import Fused
from minidlc.graph.graph import Constant, Graph, Input, Node, Value, build
from minidlc.support.locations import Derived
from minidlc.support.names import Names, identifier
from minidlc.transform.fusion_groups import ANCHORS, Groups, find_groups
from minidlc.transform.log import permitted, report
from minidlc.transform.pass_ import Pass, register_pass
from minidlc.transform.rebuild import regraph, with_inputs


@register_pass
@dataclass(frozen=True)
class Fuse(Pass):
    """Groups of at most `max_ops` ops: one anchor (conv, matmul, reduction) at most in each."""

    name = "fuse"
    level = 2
    requires = ("decomposed",)
    max_ops: int = 32

    def run(self, graph: Graph) -> Graph:
        """The graph with groups of two ops or more as `fused` nodes."""
        groups = find_groups(graph, self.max_ops)
        for pair in groups.pairs():
            report(lambda pair=pair: pair)
        return _with_groups(graph, groups)


def _with_groups(graph: Graph, groups: Groups) -> Graph:
    """Each group of two or more as one node, where its last member stood."""
    last_of: dict[Node, Node] = {}  # member of a group that becomes one node -> the last member
    for node in graph.nodes:
        group = groups.of(node)
        if node is group[-1] and len(group) > 1:
            what = f"fuse {len(group)} ops"
            if permitted(what, node.name, node.loc):
                last_of |= dict.fromkeys(group, node)
    new: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        last = last_of.get(node)
        if last is None:
            new[node] = with_inputs(node, new)
        elif node is last:  # the only one that others read
            new[node] = _fused(groups.of(node), new)
        else:
            continue
        nodes.append(new[node])  # pyright: ignore
    return regraph(graph, nodes, new) if last_of else graph


def _fused(group: tuple[Node, ...], new: dict[Value, Value]) -> Node:
    """The `fused` node of a group: its body takes what the group reads from outside."""
    inner: dict[Value, Value] = {}
    outside: dict[Value, Input] = {}
    names = Names()
    body: list[Node] = []
    for node in group:
        for value in node.inputs:
            if value is None or value in inner or _is_number(value):
                continue
            if value not in outside and isinstance(value.type, TensorType):
                name = names.fresh(identifier(value.name))
                outside[value] = Input(name, value.type, value.loc)
            inner[value] = outside[value]
        inner[node] = with_inputs(node, inner)
        body.append(inner[node])  # pyright: ignore
    graph = Graph(_name(group), tuple(outside.values()), tuple(body), (body[-1],))
    anchor = next((n for n in group if n.op.pattern in ANCHORS), group[-1])
    inputs = [new.get(v, v) for v in outside]
    last = group[-1]
    op = Fused(graph, anchor.op.schedule)
    return build(op, inputs, name=last.name, loc=Derived("fuse", anchor.loc))


def _is_number(value: Value) -> bool:
    """A constant of one element is written into the kernel; larger ones are its inputs."""
    return isinstance(value, Constant) and value.array.size == 1


def _name(group: tuple[Node, ...]) -> str:
    """matmul_add_relu; of a long group the first and last ops."""
    ops = [node.op.name for node in group]
    return "_".join(ops if len(ops) <= 5 else [*ops[:3], "etc", ops[-1]])
