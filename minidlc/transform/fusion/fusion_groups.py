"""Which nodes run together: groups by post-dominance, after TVM's FuseOps.

    groups = find_groups(g, max_ops=32)
    groups.of(node)                                 # the nodes of its group, in execution order
    [str(p) for p in groups.pairs()]                # ['mm -> h: fused: … (4,096 bytes saved …)', …]

T. Chen et al., "TVM: An Automated End-to-End Optimizing Compiler for Deep Learning", OSDI 2018.
Reads a graph, changes nothing; fusion_plan.py makes the `fused` nodes. Treated in course chapter
02_frontend_opt.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Graph, Node, Value
from minidlc.graph.op import Pattern
from minidlc.transform.fusion.fusion_costs import nbytes, operations
from minidlc.transform.fusion.fusion_plan import ANCHORS, LIGHT, FusionPlan, Kernel, not_fusable
from minidlc.transform.log import Pair


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
    outputs: frozenset[Value]
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
                yield Pair(node.name, reader.name, fused, why, *self._worth(node, reader, fused))

    def _worth(self, node: Node, reader: Node, fused: bool) -> tuple[int | None, int | None]:
        """Bytes that the pair saves, operations that it repeats.

        A reader saves its reading; the writing is saved if nobody else reads, once.
        """
        size, readers = nbytes(node), self.users[node]
        vanishes = reader is readers[0] and (fused or len(readers) == 1)
        saved = None if size is None else size * (1 + (vanishes and node not in self.outputs))
        light = (*LIGHT, Pattern.INJECTIVE)
        if fused or node.op.pattern not in light or reader.op.pattern not in light:
            return saved, 0
        again = repeats(node, reader) - 1
        if not again:
            return saved, 0
        once = None if nbytes(reader) is None else operations(node)
        return saved, None if once is None else again * once

    def plan(self) -> FusionPlan:
        """The groups of two nodes or more; the last one of each is its result."""
        groups = {id(g): g for g in self.members.values() if len(g) > 1}
        kernels = (Kernel(tuple(g), (g[-1],)) for g in groups.values())
        return FusionPlan(tuple(kernels), tuple(self.pairs()))

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
            reason = not_fusable(n)
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
        times = repeats(node, reader)
        return f"{node.name} would be computed {times} times" if times > 1 else None


def _shape(node: Node) -> object:
    return node.type.shape if isinstance(node.type, TensorType) else None


def repeats(node: Node, reader: Node) -> int:
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
    position, outputs = {n: i for i, n in enumerate(graph.nodes)}, frozenset(graph.outputs)
    groups = Groups(graph, max_ops, users, alone, position, outputs)
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
