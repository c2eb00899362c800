"""Fusion in XLA's style: a producer goes into each of its consumers, where that pays.

    e = exp(b); y = add(x, e); z = mul(w, e)
 -> y = fused(x, b, body=exp_add); z = fused(w, b, body=exp_mul)      # e is computed twice

    plan = xla_plan(g, max_ops=32)
    [str(p) for p in plan.pairs]                    # ['e -> y: fused: … (192 bytes saved, …']

Every node starts as a kernel of its own. Putting a kernel into all that read it saves its result's
way to memory and back; what is read twice then, and what is computed once more for each consumer
or for each place that a broadcast copies it to, is the price:

    gain = bytes saved - operations repeated / FLOPS_PER_BYTE

The kernel of the largest gain goes first, until none gains. Unlike the groups by post-dominance
(fusion_groups.py) a value with readers in many places fuses too, and a pointwise producer goes into
the loops of a reduction. After D. Snider and R. Liang, "Operator Fusion in XLA: Analysis and
Evaluation", arXiv:2301.13062, 2023; the order is that of XLA's priority fusion.
Reads a graph, changes nothing. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Constant, Graph, Node, Value
from minidlc.graph.op import Pattern
from minidlc.transform.fusion.fusion_costs import is_free, nbytes, operations
from minidlc.transform.fusion.fusion_groups import repeats
from minidlc.transform.fusion.fusion_plan import ANCHORS, LIGHT, FusionPlan, Kernel, not_fusable
from minidlc.transform.log import Pair

FLOPS_PER_BYTE = 4  # of a core: 16 lanes x 2 at 3 GHz against about 20 GB/s, functions dearer


@dataclass(frozen=True)
class Worth:
    """What it brings to put a kernel into its consumers; None where sizes are not known."""

    bytes_saved: int | None
    flops_repeated: int | None

    @property
    def gain(self) -> float:
        """Bytes, the operations turned into such; 0 if not known."""
        if self.bytes_saved is None or self.flops_repeated is None:
            return 0.0
        return self.bytes_saved - self.flops_repeated / FLOPS_PER_BYTE


NOTHING = Worth(0, 0)


@dataclass
class _Kernels:
    """The kernels so far, each by the node that is its result."""

    graph: Graph
    max_ops: int
    members: dict[Node, dict[Node, None]]  # result -> what is computed in its kernel
    homes: dict[Node, dict[Node, None]]  # node -> the kernels it is computed in
    position: dict[Node, int]
    decisions: dict[Node, tuple[str, Worth]] = field(default_factory=dict[Node, tuple[str, Worth]])
    flops: dict[Node, int | None] = field(default_factory=dict[Node, int | None])

    def __post_init__(self) -> None:
        self.users = self.graph.users()
        self.outputs = frozenset(self.graph.outputs)

    def run(self) -> None:
        """Fuse by gain, and note what was decided on each node."""
        waiting: list[tuple[float, int, Node]] = self.queue(self.graph.nodes)
        heapq.heapify(waiting)
        while waiting:
            gain, place, node = heapq.heappop(waiting)
            worth = self.judged(node)
            if -worth.gain != gain:  # others were fused since
                heapq.heappush(waiting, (-worth.gain, place, node))
            elif not self.decisions[node][0]:
                around = self.fuse(node)
                waiting = [w for w in waiting if w[2] not in around]
                waiting += self.queue(around)
                heapq.heapify(waiting)

    def queue(self, nodes: Iterable[Node]) -> list[tuple[float, int, Node]]:
        """Entries of the heap: the largest gain first, then the earlier node."""
        return [(-self.judged(n).gain, self.position[n], n) for n in nodes]

    def judged(self, node: Node) -> Worth:
        """The worth of fusing a kernel into its consumers; notes the reason if it cannot be."""
        consumers = self.consumers(node)
        reason = "it is an output of the graph" if node in self.outputs else None
        reason = reason or next(filter(None, (self.against(node, c) for c in consumers)), None)
        worth = self.worth(node, consumers)
        known = worth.bytes_saved is not None
        if reason is None and not consumers:
            reason = "nobody reads it"
        if reason is None and known and worth.gain <= 0:
            reason = "it costs more than it saves"
        if reason is None and not known and not self.is_one_to_one(node, consumers):
            reason = "sizes are not known, it might be computed many times"
        self.decisions[node] = (reason or "", worth)
        return NOTHING if reason else worth

    def consumers(self, node: Node) -> list[Node]:
        """The kernels that read the result of a kernel."""
        found = (k for reader in self.users.get(node, ()) for k in self.homes[reader])
        return list(dict.fromkeys(k for k in found if k is not node))

    def against(self, node: Node, consumer: Node) -> str | None:
        """Why a kernel cannot go into one that reads it; None if it can."""
        own, other = self.members[node], self.members[consumer]
        readers = [n for n in self.users[node] if n in other]
        for n in (node, *readers):
            reason = not_fusable(n)
            if reason is not None:
                return reason
        if len(own.keys() | other.keys()) > self.max_ops:
            return f"the kernel of {consumer.name} would have more than {self.max_ops} ops"
        anchors = [n for n in (*own, *other) if n.op.pattern in ANCHORS]
        if len(set(anchors)) > 1:
            return f"{anchors[0].name} and {anchors[1].name} both need a loop nest of their own"
        for reader in readers:
            if reader.op.pattern in ANCHORS and not _reads_once(reader):
                return f"{reader.op.name} reads its inputs more than once: they are kept in memory"
        if any(n.op.pattern in ANCHORS for n in own):
            return self._against_epilogue(node, readers, other)
        return None

    def _against_epilogue(
        self, anchored: Node, readers: Iterable[Node], members: Iterable[Node]
    ) -> str | None:
        """What is computed from an anchor's result must be light, and of its shape."""
        after = set(readers)
        for n in members:
            if n in after or any(v in after for v in n.inputs):
                after.add(n)
                if n.op.pattern not in LIGHT:
                    return f"{n.op.name} is {n.op.pattern}: it moves the results of an anchor"
                if _shape(n) != _shape(anchored):
                    return f"the loops of {anchored.name} have another shape than {n.type}"
        return None

    def is_one_to_one(self, node: Node, consumers: list[Node]) -> bool:
        """True if each element is needed once, whatever the symbolic sizes are."""
        if len(consumers) != 1:
            return False
        inside = self.members[consumers[0]]
        return all(repeats(node, r) == 1 for r in self.users[node] if r in inside)

    def worth(self, node: Node, consumers: list[Node]) -> Worth:
        """All kernels concerned, before and after."""
        before = [(node, self.members[node]), *((c, self.members[c]) for c in consumers)]
        after = [(c, self.members[node] | self.members[c]) for c in consumers]
        saved = _minus(map(self.bytes_of, before), map(self.bytes_of, after))
        again = _minus(map(self.flops_of, after), map(self.flops_of, before))
        return Worth(saved, again)

    def bytes_of(self, kernel: tuple[Node, dict[Node, None]]) -> int | None:
        """What a kernel reads and writes; a slice in one piece is no kernel while it is alone."""
        result, members = kernel
        if len(members) == 1 and is_free(result):
            return 0
        values: dict[Value, None] = {result: None}
        for v in (v for n in members for v in n.inputs if v is not None):
            if v not in members and not (isinstance(v, Constant) and v.array.size == 1):
                values[v] = None
        return _sum(map(nbytes, values))

    def flops_of(self, kernel: tuple[Node, dict[Node, None]]) -> int | None:
        """What a kernel computes: each member as often as those that read it need it."""
        result, members = kernel
        times: dict[Node, int] = {}
        for n in sorted(members, key=self.position.__getitem__, reverse=True):
            inside = [r for r in self.users.get(n, ()) if r in times]
            needed = (times[r] * (1 if _reads_once(r) else repeats(n, r)) for r in inside)
            times[n] = 1 if n is result else max(needed, default=1)
        return _sum(_times(t, self.operations(n)) for n, t in times.items())

    def operations(self, node: Node) -> int | None:
        """Operations of a node, counted once."""
        if node not in self.flops:
            self.flops[node] = operations(node)
        return self.flops[node]

    def fuse(self, node: Node) -> list[Node]:
        """Put a kernel into all that read it; returns the kernels whose worth may be another."""
        consumers, own = self.consumers(node), self.members.pop(node)
        for member in own:
            self.homes[member].pop(node)
        for consumer in consumers:
            merged = own | self.members[consumer]
            self.members[consumer] = dict.fromkeys(sorted(merged, key=self.position.__getitem__))
            for member in own:
                self.homes[member][consumer] = None
        read = (v for c in consumers for n in self.members[c] for v in n.inputs)
        nearby = (v for v in read if isinstance(v, Node) and v in self.members)
        return list(dict.fromkeys((*consumers, *nearby)))

    def pairs(self) -> Iterator[Pair]:
        """The decision on every node and each of its readers; its worth stands at the first."""
        for node in self.graph.nodes:
            reason, worth = self.decisions[node]
            for reader in self.users.get(node, ()):
                why = reason or f"{node.op.name} goes into all that read it"
                numbers = (worth.bytes_saved, worth.flops_repeated)
                yield Pair(node.name, reader.name, not reason, why, *numbers)
                worth = NOTHING


def xla_plan(graph: Graph, max_ops: int) -> FusionPlan:
    """Producers into consumers, by gain."""
    position = {n: i for i, n in enumerate(graph.nodes)}
    members, homes = ({n: dict.fromkeys((n,)) for n in graph.nodes} for _ in range(2))
    kernels = _Kernels(graph, max_ops, members, homes, position)
    kernels.run()
    made = (Kernel(tuple(m), (r,)) for r, m in kernels.members.items() if len(m) > 1)
    return FusionPlan(tuple(made), tuple(kernels.pairs()))


def _reads_once(node: Node) -> bool:
    """True for a plain reduction: each element of its one input goes into one sum."""
    return node.op.pattern is Pattern.REDUCTION and node.op.schedule == "reduction"


def _shape(node: Node) -> object:
    return node.type.shape if isinstance(node.type, TensorType) else None


def _times(n: int, number: int | None) -> int | None:
    return None if number is None else n * number


def _sum(numbers: Iterable[int | None]) -> int | None:
    found = list(numbers)
    return None if None in found else sum(n for n in found if n is not None)


def _minus(a: Iterable[int | None], b: Iterable[int | None]) -> int | None:
    first, second = _sum(a), _sum(b)
    return None if first is None or second is None else first - second
