"""Parts of the graph for another back end: the largest regions that leave no circle.

    g = Partition(backend="npu")(g)
    # y = matmul_integer(q, w); h = add(y, b)  ->  h = region(q, body=npu_0, backend="npu")

Two taken nodes with an edge between them join, unless a path leads from one region through
anything else to the other: then each would wait for the other. Merging goes on until no edge is
left that could join. A region is kept if what it saves is more than what its transfers cost; every
decision is reported. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from minidlc.graph.graph import Constant, Graph, Input, Node, Value, build, getitem, tensor_type
from minidlc.graph.inline import with_inputs
from minidlc.graph.region import Region
from minidlc.graph.structure import constant_key
from minidlc.support.locations import Derived, written
from minidlc.support.names import Names, identifier
from minidlc.transform.log import Refusal, permitted, report
from minidlc.transform.partition.backend import BackEnd, backend_of
from minidlc.transform.pass_ import Pass, register_pass
from minidlc.transform.rebuild import regraph


@register_pass
@dataclass(frozen=True)
class Partition(Pass):
    """Give the back end of this name what it takes and what pays; nothing without a name."""

    name = "partition"
    backend: str = ""

    def run(self, graph: Graph) -> Graph:
        """The graph with regions; each is one rewrite."""
        if not self.backend:
            return graph
        backend = backend_of(self.backend)
        users, outputs = graph.users(), set(graph.outputs)
        kept: list[Part] = []
        for nodes in find_regions(graph, backend):
            part = part_of(f"{backend.name}_{len(kept)}", nodes, users, outputs)
            gain = gain_of(part, backend)
            if gain <= 0:
                text = f"{len(nodes)} nodes on {backend.name} would cost {-gain:.0f} cycles more"
                report(partial(Refusal, "partition", nodes[-1].name, text, nodes[-1].loc))
            elif permitted(f"region of {len(nodes)} nodes", nodes[-1].name, nodes[-1].loc):
                kept.append(part)
        return _with_regions(graph, kept, backend.name) if kept else graph


@dataclass(frozen=True)
class Part:
    """Nodes as a closed graph: `inputs` are the outer values for those of `body`, `outputs` the
    nodes whose results are read outside, one for each output of `body`."""

    nodes: tuple[Node, ...]
    body: Graph
    inputs: tuple[Value, ...]
    outputs: tuple[Node, ...]


@dataclass
class _Regions:
    """Union-find over nodes; the graph of regions and single nodes has no circle."""

    users: Mapping[Value, tuple[Node, ...]]
    members: dict[Node, list[Node]] = field(default_factory=dict[Node, list[Node]])  # shared lists

    def of(self, node: Node) -> list[Node]:
        return self.members.get(node, [node])

    def join(self, a: Node, b: Node) -> bool:
        """Merge the regions of two neighbours, a before b, unless that would close a circle."""
        left, right = self.members[a], self.members[b]
        if left is right or self.leads_around(left, right):
            return False
        left += right
        for node in right:
            self.members[node] = left
        return True

    def leads_around(self, a: Sequence[Node], b: Sequence[Node]) -> bool:
        """True if a path leads from a through something else to b."""
        start, end = set(a), set(b)
        stack = [r for n in a for r in self.users.get(n, ()) if r not in start and r not in end]
        seen: set[Node] = set()
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            inside = self.of(node)  # a region is one step: in by any node, out by all
            seen.update(inside)
            for reader in (r for n in inside for r in self.users.get(n, ())):
                if reader in end:
                    return True
                if reader not in seen:
                    stack.append(reader)
        return False


def find_regions(graph: Graph, backend: BackEnd) -> list[tuple[Node, ...]]:
    """The regions of nodes that the back end takes, in execution order of their first nodes.

    Every node that is not taken is reported with the reason.
    """
    units, reasons = backend.taken(graph)
    for node, reason in reasons.items():
        report(partial(Refusal, "partition", node.name, reason, node.loc))
    regions = _Regions(graph.users())
    for group in map(list, units):
        for node in group:
            regions.members[node] = group
    taken = regions.members
    order = [n for n in graph.nodes if n in taken]
    pairs = [(v, n) for n in order for v in n.inputs if isinstance(v, Node) and v in taken]
    joined = True
    while joined:  # a path that prevented it may lie inside by now
        joined = any([regions.join(a, b) for a, b in pairs])
    position = {node: n for n, node in enumerate(graph.nodes)}
    different = {id(taken[node]): taken[node] for node in order}.values()
    return [tuple(sorted(group, key=position.__getitem__)) for group in different]


def part_of(
    name: str,
    nodes: Sequence[Node],
    users: Mapping[Value, tuple[Node, ...]],
    outputs: Iterable[Value],
) -> Part:
    """The nodes as a closed graph, constants inside; dead nodes keep the last as their result."""
    inside, ends = set(nodes), set(outputs)
    read = {v: None for n in nodes for v in n.inputs if v is not None and v not in inside}
    outer = tuple(v for v in read if not isinstance(v, Constant))
    names = Names()
    inputs = tuple(Input(names.fresh(identifier(v.name)), tensor_type(v), v.loc) for v in outer)
    new: dict[Value, Value] = dict(zip(outer, inputs, strict=True))
    body: list[Node] = []
    for node in nodes:
        new[node] = with_inputs(node, new)
        body.append(new[node])  # pyright: ignore
    seen = [n for n in nodes if n in ends or any(r not in inside for r in users.get(n, ()))]
    results = tuple(seen or nodes[-1:])
    graph = Graph(name, inputs, tuple(body), tuple(new[r] for r in results))
    return Part(tuple(nodes), graph, outer, results)


def gain_of(part: Part, backend: BackEnd) -> float:
    """Cycles that a region saves: the host's, less those there, its transfers and its launch."""
    weights = {constant_key(c): c for c in part.body.constants}.values()
    moved = [*(tensor_type(v) for v in (*part.inputs, *part.outputs)), *(w.type for w in weights)]
    saved = sum(backend.host_cycles(n) - backend.cycles(n) for n in part.nodes)
    transfers = sum(backend.transfer_cycles(t.nbytes) for t in moved)
    return saved - transfers - backend.launch_cycles


def _with_regions(graph: Graph, parts: Sequence[Part], backend: str) -> Graph:
    """The graph with one node for each part, in an order where all is defined before it is read."""
    part_at = {node: part for part in parts for node in part.nodes}
    new: dict[Value, Value] = {}
    nodes: list[Node] = []
    for item in _in_order(graph, part_at):
        if isinstance(item, Node):
            new[item] = with_inputs(item, new)
            nodes.append(new[item])  # pyright: ignore
            continue
        also = written(*(n.loc for n in item.nodes[:-1]))
        loc = Derived("partition", item.outputs[-1].loc, also)
        name = item.outputs[0].name if len(item.outputs) == 1 else item.body.name
        given = [new.get(v, v) for v in item.inputs]
        made = build(Region(item.body, backend), given, name=name, loc=loc)
        nodes.append(made)
        if len(item.outputs) == 1:
            new[item.outputs[0]] = made
            continue
        for place, output in enumerate(item.outputs):
            result = replace(getitem(made, place), name=output.name, loc=output.loc)
            new[output] = result
            nodes.append(result)
    return regraph(graph, nodes, new)


def _in_order(graph: Graph, part_at: Mapping[Node, Part]) -> list[Node | Part]:
    """Nodes outside and parts: the first of what is ready, by the place of its first node."""
    items: dict[int, Node | Part] = {}
    place: dict[Node, int] = {}
    for n, node in enumerate(graph.nodes):
        part = part_at.get(node)
        place[node] = n if part is None else place.get(part.nodes[0], n)
        items.setdefault(place[node], part or node)
    needs: dict[int, set[int]] = {p: set() for p in items}
    readers: dict[int, list[int]] = {p: [] for p in items}
    for node in graph.nodes:
        here = place[node]
        for v in node.inputs:
            if isinstance(v, Node) and place[v] != here and place[v] not in needs[here]:
                needs[here].add(place[v])
                readers[place[v]].append(here)
    ready = [p for p, before in needs.items() if not before]
    order: list[Node | Part] = []
    while ready:
        here = heapq.heappop(ready)
        order.append(items[here])
        for reader in readers[here]:
            needs[reader].discard(here)
            if not needs[reader]:
                heapq.heappush(ready, reader)
    assert len(order) == len(items), "regions form a circle"
    return order
