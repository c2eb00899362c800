"""Rematerialisation: values are forgotten and computed again, so that less memory is needed.

    plan = rematerialise(g, budget=8 << 20)         # g: a gradient, or a training step
    print(plan)             # peak 19,136,512 bytes → 7,602,176; 33 nodes run twice, 23% more work
    mc.remat(g, budget=8 << 20)                     # its graph alone
    Pipeline.default(3).insert_after("fuse", Remat(budget=8 << 20))     # kernels run twice

What a backward half needs of the forward half is alive all the time in between. Where memory is
short it is cheaper to compute some of it twice. Which values: those alive at the worst moment and
read by nobody around it, most bytes for the least work first, one after the other while that lowers
the peak; besides these, segments of several lengths between values that are kept. First comes the
choice of the lowest peak, which says whether the budget can be met, then the cheapest that meets
it; what need not be forgotten in it is kept after all. After
T. Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174, 2016, and
the greedy choice of XLA. Counted are results between nodes; views cost nothing, and a result that
is computed element by element lies over an input that dies. Scratch inside kernels comes on top.
Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import isqrt

from minidlc.graph.graph import Graph, Node
from minidlc.graph.types import result_types
from minidlc.graph.verify import verify
from minidlc.support.arguments import expect
from minidlc.support.errors import GradientError, OptionError
from minidlc.support.locations import caller
from minidlc.transform.dataflow.recompute import Copies, Lives, again, may_run_twice
from minidlc.transform.fusion.fusion_costs import operations
from minidlc.transform.log import Refusal, permitted, report
from minidlc.transform.pass_ import Pass, register_pass

FLOPS_PER_BYTE = 4  # what moving a byte costs beside operations, as in fuse_xla.py
_TRIES = 3  # values that each round of the search looks at
_EFFORT = 1_000_000  # nodes that a search goes through: some seconds


@dataclass(frozen=True)
class Rematerialised:
    """A graph with copies, and what they bring: bytes alive at the worst moment, before and after.

    `flops` are repeated, `of` the graph before them needs; None: of some op nobody knows.
    """

    graph: Graph
    before: int
    after: int
    values: tuple[str, ...]
    flops: int | None
    of: int | None

    def __str__(self) -> str:
        share = f", {self.flops / self.of:.0%} more work" if self.flops and self.of else ""
        many = f"{len(self.values)} nodes run twice{share}"
        return f"peak {self.before:,} bytes → {self.after:,}; {many}"


def remat(graph: Graph, budget: int | None = None) -> Graph:
    """The graph with some values computed again, so that at most `budget` bytes are alive at once.

    `graph` is a gradient or a training step: its nodes in order are forward, then backward. Counted
    are values between nodes; inputs, constants and outputs lie elsewhere. `budget` None: as few
    bytes as the search finds. The numbers stay the same, bit for bit. Raises GradientError:
    MDLC1240 if no choice was found that meets the budget, with the smallest peak that was; MDLC1241
    for open sizes. The pass, `remat{budget=…}` behind `fuse`, counts what lies between kernels.
    """
    return rematerialise(graph, budget).graph


def rematerialise(graph: Graph, budget: int | None = None) -> Rematerialised:
    """Like `remat`, with what was found: peaks, nodes and operations that are repeated."""
    expect("remat", "graph", graph, Graph, hint="mc.remat(mc.value_and_grad(loss))")
    expect("remat", "budget", budget, int, type(None))
    if budget is not None and budget < 0:
        text = f"remat: budget is {budget} bytes"
        raise OptionError(text, loc=caller(), hint="8 << 20 is 8 MiB", code="MDLC1015")
    if (unknown := _of_unknown_size(graph)) is not None:
        text = f"remat: the size of {unknown.name} is not known: {unknown.type}"
        hint = "compile for sizes: mc.compile(g, shapes={…}, pipeline=…) with the pass `remat`"
        raise GradientError(text, loc=caller(), hint=hint, code="MDLC1241")
    search = _Search(graph)
    chosen = search.best(budget or 0)
    if budget is not None and search.peak(chosen) > budget:
        text = f"remat: {graph.name} needs {search.peak(chosen):,} bytes at least"
        raise GradientError(
            f"{text}, the budget is {budget:,}",
            loc=caller(),
            notes=[f"as it is: {search.peak(frozenset()):,} bytes"],
            hint=f"budget={search.peak(chosen)}, or a smaller batch",
            code="MDLC1240",
        )
    allowed = (n for n in graph.nodes if n in chosen)
    taken = frozenset(n for n in allowed if permitted("remat", n.name, n.loc))
    return search.result(taken)


@register_pass
@dataclass(frozen=True)
class Remat(Pass):
    """At most `budget` bytes between kernels, None for as few as can be found; run it behind fuse.

    OptionError (MDLC1001, MDLC1015) for a budget that is none; running it raises GradientError
    (MDLC1240) if the budget cannot be met.
    """

    name = "remat"
    level = 2
    budget: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        expect("remat", "budget", self.budget, int, type(None), hint="bytes: 8 << 20 is 8 MiB")

    def run(self, graph: Graph) -> Graph:
        """The graph itself if it meets the budget."""
        if _of_unknown_size(graph) is not None:
            reason = "some sizes are symbolic: nobody knows what is alive"
            report(lambda: Refusal("remat", graph.name, reason))
            return graph
        return rematerialise(graph, self.budget).graph


def _of_unknown_size(graph: Graph) -> Node | None:
    """The first node of an open size, if there is one."""
    static = (all(t.is_static for t in result_types(n.type)) for n in graph.nodes)
    return next((n for n, known in zip(graph.nodes, static, strict=True) if not known), None)


class _Search:
    """Sets of nodes to forget, the peak of each, and what it costs."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._lives = Lives(graph)
        self._known: dict[frozenset[Node], tuple[int, float]] = {}
        self._seen = 0  # nodes gone through, by one search

    def best(self, budget: int) -> frozenset[Node]:
        """The cheapest set that meets the budget, else that of the lowest peak.

        Whether there is one is asked without the budget: the lowest peak is the same for every
        budget below it, and every budget above it is met, although the search is greedy.
        """
        nothing = frozenset[Node]()
        if self.peak(nothing) <= budget or not self._candidates:
            return nothing
        lowest = self._lowest()
        return lowest if self.peak(lowest) >= budget else self._searched(budget, lowest)

    def _lowest(self) -> frozenset[Node]:
        """The set of the lowest peak: near aims make the search take smaller steps than 0 does."""
        lowest = self._searched(0, frozenset())
        while True:
            lower = self._searched(self.peak(lowest) * 7 // 8, lowest)
            if self.peak(lower) >= self.peak(lowest):
                return lowest
            lowest = lower

    def _searched(self, budget: int, known: frozenset[Node]) -> frozenset[Node]:
        """The best set that one search finds, at least as good as the one that is known."""
        self._seen = 0
        tried = [frozenset[Node](), known, *self._segments(), self._greedy(budget)]
        best = min(tried, key=lambda dropped: self._rank(dropped, budget))
        return self._without_needless(best, budget)

    def _rank(self, dropped: frozenset[Node], budget: int) -> tuple[bool, float, float]:
        peak, cost = self._measured(dropped)
        meets = peak <= budget
        return (not meets, cost if meets else peak, peak if meets else cost)

    def peak(self, dropped: frozenset[Node]) -> int:
        """Bytes alive at the worst moment."""
        return self._measured(dropped)[0]

    def _measured(self, dropped: frozenset[Node]) -> tuple[int, float]:
        if dropped not in self._known:
            copies = self._copies(dropped)
            peak = max(Lives(copies.graph).alive(), default=0)
            self._known[dropped] = peak, sum(map(self._cost, copies.made))
        return self._known[dropped]

    def _copies(self, dropped: Collection[Node]) -> Copies:
        self._seen += len(self._graph.nodes)
        return again(self._graph, self._lives, dropped) if dropped else Copies(self._graph)

    @cached_property
    def _costs(self) -> dict[Node, float]:
        """Of computing a node once more: its operations, and the bytes it moves."""
        costs: dict[Node, float] = {}
        for node in self._lives.uses:
            moved = sum(
                t.nbytes
                for v in (node, *node.inputs)
                if v is not None
                for t in result_types(v.type)
            )
            costs[node] = (operations(node) or 0) + FLOPS_PER_BYTE * moved
        return costs

    def _cost(self, node: Node) -> float:
        return self._costs[node]

    @cached_property
    def _candidates(self) -> list[Node]:
        """Nodes that nobody reads for a while, and that may run twice."""
        lives = self._lives
        return [
            n
            for n in lives.uses
            if lives.nbytes(n)
            and may_run_twice(n)
            and n.inputs
            and lives.gap(n)[1] - lives.gap(n)[0] > 1
        ]

    def _segments(self) -> Iterator[frozenset[Node]]:
        """Of the values that live through the worst moment, segments between one that is kept.

        Backward goes through the last segment first, when all that is kept is alive still: so the
        others may be longer, each by `more` than the one behind it.
        """
        alive = self._lives.alive()
        worst, lives = alive.index(max(alive)), self._lives
        gaps = {n: lives.gap(n) for n in self._candidates}
        through = [n for n, (before, behind) in gaps.items() if before < worst < behind]
        for more in (0, 1):
            for last in range(1, 2 + 2 * isqrt(len(through))):
                kept, length = len(through) - 1 - last, last
                dropped = set(through)
                while kept >= 0:
                    dropped.discard(through[kept])
                    length += more
                    kept -= length + 1
                yield frozenset(dropped)

    def _greedy(self, budget: int) -> frozenset[Node]:
        """Forget what brings most at the worst moment, again and again; the best set on the way."""
        dropped = best = frozenset[Node]()
        while self.peak(dropped) > budget and self._seen < _EFFORT:
            ranked = self._asleep_at_worst(dropped)
            if not ranked:
                break
            tries = [dropped | {n} for n in ranked[:_TRIES]]
            tries.append(dropped | {*self._enough(ranked, self.peak(dropped) - budget)})
            following = min(tries, key=lambda t: (self.peak(t), self._measured(t)[1]))
            if self.peak(following) > self.peak(dropped):
                break
            dropped = following
            best = min(best, dropped, key=lambda d: self._rank(d, budget))
        return best

    def _enough(self, ranked: Iterable[Node], excess: int) -> Iterator[Node]:
        """As many as make up half of what is too much."""
        total = 0
        for node in ranked:
            yield node
            total += self._lives.nbytes(node)
            if 2 * total >= excess:
                return

    def _asleep_at_worst(self, dropped: frozenset[Node]) -> list[Node]:
        """Candidates that wait at the worst moment, those of most bytes for their cost first."""
        copies = self._copies(dropped)
        lives = Lives(copies.graph)
        alive = lives.alive()
        worst = alive.index(max(alive))
        found: list[Node] = []
        for node in self._candidates:
            new = copies.moved.get(node, node)
            if node in dropped or not isinstance(new, Node) or new not in lives.uses:
                continue
            times = {lives.position[new], *lives.uses[new]}
            if min(times) < worst < max(times) and worst not in times:
                found.append(node)
        return sorted(found, key=lambda n: self._cost(n) / self._lives.nbytes(n))

    def _without_needless(self, dropped: frozenset[Node], budget: int) -> frozenset[Node]:
        """Keep, dearest first, what the budget, or the peak that was reached, leaves room for."""
        most = max(budget, self.peak(dropped))
        for node in sorted(dropped, key=self._cost, reverse=True):
            fewer = dropped - {node}
            if self._seen < 2 * _EFFORT and self.peak(fewer) <= most:
                dropped = fewer
        return dropped

    def result(self, dropped: frozenset[Node]) -> Rematerialised:
        """The graph, verified, and what it is like."""
        copies = self._copies(dropped)
        if dropped:
            verify(copies.graph)
        of, flops = (_sum(map(operations, ns)) for ns in (self._lives.uses, copies.made))
        names = tuple(n.name for n in copies.made)
        peaks = self.peak(frozenset()), self.peak(dropped)
        return Rematerialised(copies.graph, *peaks, names, flops, of)


def _sum(numbers: Iterable[int | None]) -> int | None:
    found = list(numbers)
    return None if None in found else sum(n for n in found if n is not None)
