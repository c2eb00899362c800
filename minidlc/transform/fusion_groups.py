"""Which nodes run together: groups by post-dominance, after TVM's FuseOps.

    groups = find_groups(g, max_ops=32)
    groups.of(node)                                 # the nodes of its group, in execution order
    [str(p) for p in groups.pairs()]                # ['mm -> h: fused: …', 'h -> p: not fused: …']

Reads a graph, changes nothing; transform/fuse.py makes the `fused` nodes. Treated in course
chapter 02_frontend_opt.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Graph, Node, Value
from minidlc.graph.op import OpKind, Pattern
from minidlc.transform.log import Pair

ANCHORS = (Pattern.OUT_FUSABLE, Pattern.REDUCTION)  # ops with a loop nest of their own
LIGHT = (Pattern.ELEMENTWISE, Pattern.BROADCAST)


def post_dominators(graph: Graph) -> dict[Node, Node | None]:
    """Node -> the nearest node on every path from it to an output; None is the end of the graph."""
    users, outputs = graph.users(), set(graph.outputs)
    parent: dict[Node, Node | None] = {}
    depth: dict[Node | None, int] = {None: 0}

    def meet(a: Node | None, b: Node | None) -> Node | None:
        while a is not b:
            if a is None or b is None:
                return None
            a, b = (parent[a], b) if depth[a] > depth[b] else (a, parent[b])
        return a

    for node in reversed(graph.nodes):
        readers = users.get(node, ())
        common: Node | None = readers[0] if readers and node not in outputs else None
        for reader in readers[1:]:
            common = meet(common, reader)
        parent[node], depth[node] = common, depth[common] + 1
    return parent


@dataclass
class Groups:
    """A partition of the nodes (union-find), and why nodes were kept apart."""

    graph: Graph
    max_ops: int
    users: Mapping[Value, tuple[Node, ...]]
    members: dict[Node, list[Node]]  # node -> its group; the list is shared by all in it
    position: dict[Node, int]
    reasons: dict[Node, str] = field(default_factory=dict[Node, str])

    def of(self, node: Node) -> tuple[Node, ...]:
        """The nodes of the group, in execution order."""
        return tuple(self.members[node])

    def anchors(self, node: Node) -> list[Node]:
        """The nodes with a loop nest of their own in the group: one or none."""
        return [n for n in self.members[node] if n.op.pattern in ANCHORS]

    def together(self, a: Node, b: Node) -> bool:
        """True if both run in one kernel."""
        return self.members[a] is self.members[b]

    def pairs(self) -> Iterator[Pair]:
        """The decision on every node and each of its readers."""
        for node in self.graph.nodes:
            for reader in self.users.get(node, ()):
                fused = self.together(node, reader)
                why = f"{reader.op.name} follows {node.op.name}" if fused else self.reasons[node]
                yield Pair(node.name, reader.name, fused, why)

    def join(self, node: Node, between: list[Node]) -> str | None:
        """Put the node and those up to its post-dominator into one group, or say why not."""
        for other in between:
            reason = self._against(node, other)
            if reason is not None:
                return reason
        merged = {m: None for n in (node, *between) for m in self.members[n]}
        if len(merged) > self.max_ops:
            return f"the group would have {len(merged)} ops, max_ops is {self.max_ops}"
        anchors = [m for m in merged if m.op.pattern in ANCHORS]
        if len(anchors) > 1:
            return f"{anchors[0].name} and {anchors[1].name} both need a loop nest of their own"
        group = sorted(merged, key=self.position.__getitem__)
        for m in group:
            self.members[m] = group
        return None

    def _against(self, node: Node, reader: Node) -> str | None:
        """Why `reader`, on a path from `node`, cannot run in its kernel; None if it can."""
        for n in (node, reader):
            reason = _not_fusable(n)
            if reason is not None:
                return reason
        if reader.op.pattern in ANCHORS:
            return f"{reader.op.name} reads its inputs more than once: they are kept in memory"
        if self.anchors(node):
            if reader.op.pattern not in LIGHT:
                return f"{reader.op.name} is {reader.op.pattern}: it moves the results of an anchor"
            if _shape(reader) != _shape(node):
                return f"the loops of {node.name} have another shape than {reader.type}"
            return None
        repeats = _repeats(node, reader)
        return f"{node.name} would be computed {repeats} times" if repeats > 1 else None


def _not_fusable(node: Node) -> str | None:
    op = node.op
    if op.is_view:
        return f"{op.name} is a view: it has no kernel"
    if op.kind is not OpKind.COMPILED or op.pattern is Pattern.OPAQUE:
        return f"{op.name} is {op.pattern if op.kind is OpKind.COMPILED else op.kind}"
    if not op.pure:
        return f"{op.name} is not pure"
    return None if isinstance(node.type, TensorType) else f"{op.name} has several results"


def _shape(node: Node) -> object:
    return node.type.shape if isinstance(node.type, TensorType) else None


def _repeats(node: Node, reader: Node) -> int:
    """How often an element of `node` is needed for the result of `reader`, rounded up."""
    if _shape(node) == _shape(reader):
        return 1
    # a light reader broadcasts the node; concat and the like read each of their inputs once
    everything = [v for v in reader.inputs if v is not None]
    sources = [node] if reader.op.pattern in LIGHT else everything
    types = [reader.type, *(s.type for s in sources)]
    sizes = [t.size for t in types if isinstance(t, TensorType) and t.is_static]
    if len(sizes) < len(types):
        return 2  # symbolic: not known, so not at all
    return math.ceil(sizes[0] / max(1, sum(sizes[1:])))


def _between(node: Node, target: Node, users: Mapping[Value, tuple[Node, ...]]) -> list[Node]:
    """Every node on a path from `node` to `target`, the target included."""
    found: dict[Node, None] = {}
    stack = [node]
    while stack:
        for reader in users.get(stack.pop(), ()):
            if reader not in found:
                found[reader] = None
                if reader is not target:
                    stack.append(reader)
    return list(found)


def find_groups(graph: Graph, max_ops: int) -> Groups:
    """Group the nodes, each with its post-dominator where that is possible."""
    users = graph.users()
    alone = {n: [n] for n in graph.nodes}
    groups = Groups(graph, max_ops, users, alone, {n: i for i, n in enumerate(graph.nodes)})
    outputs = set(graph.outputs)
    parents = post_dominators(graph)
    for node in graph.nodes:
        target = parents[node]
        if node in outputs:
            groups.reasons[node] = f"{node.name} is an output of the graph"
        elif target is None:
            groups.reasons[node] = f"{node.name} has readers that lead to different outputs"
        else:
            reason = groups.join(node, _between(node, target, users))
            if reason is not None:
                groups.reasons[node] = reason
    return groups
