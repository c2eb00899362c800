"""The order of the nodes decides how much is alive at once: another order, the same graph.

    a = f(x); b = g(x); c = sum(a); d = sum(b)      # a and b are alive together
 -> a = f(x); c = sum(a); b = g(x); d = sum(b)      # one after the other

reorder{style="min_peak"} looks for the order with the least bytes alive at its worst moment: a
best-first search over sets of nodes that are done, those with the lowest peak first and among them
those that came farthest. If it ends by itself no order has a lower peak; if not, the best that was
found stands, which may be the one given. reorder{style="dfs"} computes each value right before
its first reader: no search, and no promise.

Counted are results between the steps, alive from their node to their last reader. Views, and slices
in one piece, keep alive what they lie in; inputs, constants and outputs of the graph lie elsewhere.
Results in place of an input are left to the final plan (lower/places.py). Nodes that are not pure
keep their order. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from minidlc.graph.graph import Graph, Node, Value
from minidlc.graph.types import result_types
from minidlc.ops.aliases import starts_at
from minidlc.support.errors import OptionError, nearest
from minidlc.transform.log import Refusal, permitted, report
from minidlc.transform.pass_ import Pass, register_pass

STYLES = ("min_peak", "dfs")


@register_pass
@dataclass(frozen=True)
class Reorder(Pass):
    """Another topological order; `effort` bounds a search: sets of nodes times nodes."""

    name = "reorder"
    level = 2
    style: str = "min_peak"
    effort: int = 300_000

    def run(self, graph: Graph) -> Graph:
        """The graph in its new order; itself if that is the old one, or no better."""
        if self.style not in STYLES:
            text = f"reorder: expected one of {', '.join(STYLES)}, got {self.style!r}"
            raise OptionError(text, hint=nearest(self.style, STYLES), code="MDLC1015")
        if not all(t.is_static for n in graph.nodes for t in result_types(n.type)):
            reason = "some sizes are symbolic: nobody knows what is alive"
            report(partial(Refusal, f"reorder by {self.style}", graph.name, reason))
            return graph
        costs = Costs.of(graph)
        before, order = list(range(len(graph.nodes))), costs.depth_first()
        if self.style == "min_peak":
            order = costs.lowest_peak(self.effort)
        moved = next((i for i, n in zip(before, order, strict=True) if i != n), None)
        if moved is None:
            return graph
        first = graph.nodes[order[moved]]
        peaks = f"{costs.peak(before)} -> {costs.peak(order)} bytes alive at once"
        if not permitted(f"reorder by {self.style}: {peaks}", first.name, first.loc):
            return graph
        nodes = tuple(graph.nodes[i] for i in order)
        return Graph(graph.name, graph.inputs, nodes, graph.outputs)


@dataclass(frozen=True)
class Costs:
    """A graph by numbers: node i comes after `needs[i]`, makes `nbytes[i]`, reads `roots[i]`."""

    needs: tuple[tuple[int, ...], ...]
    nbytes: tuple[int, ...]  # 0 of views and of outputs
    roots: tuple[tuple[int, ...], ...]  # the nodes whose bytes it reads, views looked through
    outputs: tuple[int, ...]

    @staticmethod
    def of(graph: Graph) -> Costs:
        """The costs of a graph of known sizes."""
        number: dict[Value, int] = {n: i for i, n in enumerate(graph.nodes)}
        root: dict[Value, int] = {}  # of views too, unless they are views of an input
        needs: list[tuple[int, ...]] = []
        nbytes: list[int] = []
        roots: list[tuple[int, ...]] = []
        impure: list[int] = []
        for i, node in enumerate(graph.nodes):
            inputs = [v for v in node.inputs if v is not None]
            read = dict.fromkeys(number[v] for v in inputs if v in number)
            if not node.op.pure:
                read |= dict.fromkeys(impure[-1:])
                impure.append(i)
            needs.append(tuple(read))
            view = _is_view(node, graph)
            if not view:
                root[node] = i
            elif inputs[0] in root:
                root[node] = root[inputs[0]]
            nbytes.append(0 if view else sum(t.nbytes for t in result_types(node.type)))
            read_bytes = dict.fromkeys(root[v] for v in inputs if v in root)
            roots.append(() if view else tuple(read_bytes))
        for output in graph.outputs:
            if output in root:
                nbytes[root[output]] = 0
        outputs = tuple(number[o] for o in graph.outputs if o in number)
        return Costs(tuple(needs), tuple(nbytes), tuple(roots), outputs)

    @cached_property
    def readers(self) -> tuple[int, ...]:
        """For each node those that read its bytes, as a set of bits."""
        found = [0] * len(self.needs)
        for i, roots in enumerate(self.roots):
            for root in roots:
                found[root] |= 1 << i
        return tuple(found)

    @cached_property
    def followers(self) -> tuple[tuple[int, ...], ...]:
        """For each node those that need it."""
        found: list[list[int]] = [[] for _ in self.needs]
        for i, needs in enumerate(self.needs):
            for j in needs:
                found[j].append(i)
        return tuple(map(tuple, found))

    @property
    def start(self) -> State:
        """Nothing is done."""
        return State(0, 0, 0, tuple(i for i, needs in enumerate(self.needs) if not needs))

    def peak(self, order: Sequence[int]) -> int:
        """Bytes alive at the worst moment of an order."""
        state = self.start
        for i in order:
            state = self.after(state, i)
        return state.peak

    def after(self, state: State, i: int) -> State:
        """Node i runs: its inputs and its result live; then what nobody reads again dies."""
        done, live = state.done | 1 << i, state.live + self.nbytes[i]
        peak = max(state.peak, live)
        dead = (r for r in (*self.roots[i], i) if not self.readers[r] & ~done)
        ready = [j for j in state.ready if j != i]
        ready += [j for j in self.followers[i] if all(done >> k & 1 for k in self.needs[j])]
        live -= sum(self.nbytes[r] for r in dead)
        return State(peak, live, done, tuple(ready), i, state)

    def depth_first(self) -> list[int]:
        """Each node right before the first that needs it, beginning with the outputs."""
        order: dict[int, None] = {}
        for end in (*self.outputs, *range(len(self.needs))):
            stack = [(end, False)]
            while stack:
                i, ready = stack.pop()
                if ready:
                    order[i] = None
                elif i not in order:
                    stack += [(i, True), *((j, False) for j in reversed(self.needs[i]))]
        return list(order)

    def lowest_peak(self, effort: int) -> list[int]:
        """The order given unless a better one is found."""
        given, other = list(range(len(self.needs))), self.depth_first()
        best = other if self.peak(other) < self.peak(given) else given
        least = max((n + self._read(i) for i, n in enumerate(self.nbytes)), default=0)
        if self.peak(best) == least:
            return best
        return self._searched(effort, self.peak(best)) or best

    def _read(self, i: int) -> int:
        """Bytes that a node reads of what others made."""
        return sum(self.nbytes[r] for r in self.roots[i])

    def _searched(self, effort: int, below: int) -> list[int] | None:
        """The order of the lowest peak, if that is less than `below` and found with this effort."""
        seen: set[int] = set()
        serial = itertools.count()
        waiting = [(0, 0, 0, next(serial), self.start)]
        while waiting and len(seen) * len(self.needs) < effort:
            *_, state = heapq.heappop(waiting)
            if not state.ready:
                return state.order()
            if state.done in seen:
                continue
            seen.add(state.done)
            for new in self._worth_trying(state):
                if new.peak < below:
                    key = new.peak, -new.done.bit_count(), new.live, next(serial)
                    heapq.heappush(waiting, (*key, new))
        return None

    def _worth_trying(self, state: State) -> list[State]:
        """What may be next. A node after which no more lives, at no new peak, can only help."""
        following = [self.after(state, i) for i in state.ready]
        for new in following:
            if new.live <= state.live and new.peak == state.peak:
                return [new]
        return following


@dataclass(frozen=True)
class State:
    """Some nodes are done: the worst moment so far, what lives now, which nodes may be next."""

    peak: int
    live: int
    done: int  # a set of bits
    ready: tuple[int, ...]
    last: int = -1
    before: State | None = field(default=None, repr=False)

    def order(self) -> list[int]:
        """The nodes that are done, in order."""
        found: list[int] = []
        state = self
        while state.before is not None:
            found.append(state.last)
            state = state.before
        return found[::-1]


def _is_view(node: Node, graph: Graph) -> bool:
    """True if the node makes no bytes: the cuts that lowering makes anew are the outputs."""
    if node.op.is_view:
        return True
    return starts_at(node) is not None and node not in graph.outputs
