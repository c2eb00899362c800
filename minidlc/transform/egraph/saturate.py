"""The pass `saturate`: grow an e-graph by rules, then take the cheapest graph out of it.

    y = matmul(mul(x, s), w)     ->     y = matmul(x, mul(w, s))    where w is smaller than x
                                 ->     y = mul(matmul(x, w), s)    where the product is smaller

A rewriter replaces, so the order of its rules decides where it ends. An e-graph adds: what a rule
makes stands beside what it was made from, and only in the end costs decide. Rules that lead both
ways do no harm. What grows has to be bounded: by e-nodes, by rounds, and for each rule by the
matches of a round; a rule that finds more rests for some rounds and may then find twice as many
(egg's backoff scheduler). Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial

from minidlc.graph.graph import Graph
from minidlc.support.errors import OptionError, nearest
from minidlc.transform.egraph.extraction import COSTS, choose, extract, graph_cost
from minidlc.transform.egraph.graph import EGraph
from minidlc.transform.egraph.search import Match, matches, reverse
from minidlc.transform.log import Refusal, permitted, report
from minidlc.transform.pass_ import Pass, register_pass
from minidlc.transform.rules.rules import Rule, rules_of

REST = 5  # rounds, the first time


@register_pass
@dataclass(frozen=True)
class Saturate(Pass):
    """All forms that the rule sets `rules` (names with commas) reach; the cheapest by `cost`."""

    name = "saturate"
    level = 2
    exact = False  # of what `algebra` makes
    rules: str = "algebra"
    cost: str = "work"
    max_nodes: int = 4_000
    max_rounds: int = 30
    max_matches: int = 1_000

    def run(self, graph: Graph) -> Graph:
        """The cheapest graph found; `graph` itself if none costs less."""
        if self.cost not in COSTS:
            text = f"saturate: unknown cost {self.cost!r}"
            notes = (f"costs: {', '.join(COSTS)}",)
            raise OptionError(text, notes=notes, hint=nearest(self.cost, COSTS), code="MDLC1015")
        rules = [rule for name in self.rules.split(",") for rule in rules_of(name.strip())]
        egraph = EGraph()
        for value in (*graph.nodes, *graph.outputs):
            egraph.add(value)
        bounds = (self.max_nodes, self.max_rounds, self.max_matches)
        why = grow(egraph, both_ways(rules), *bounds)
        cost = COSTS[self.cost]
        cheapest = extract(egraph, choose(egraph, cost), graph)
        before, after = graph_cost(graph, cost), graph_cost(cheapest, cost)
        if after < before:
            return cheapest
        text = f"nothing cheaper than {before:.6g} among {egraph.count} e-nodes: {why}"
        report(partial(Refusal, self.name, graph.name, text))
        return graph


def both_ways(rules: Sequence[Rule]) -> list[Rule]:
    """The rules, and those of them that can be read from right to left."""
    backwards = (reverse(rule) for rule in rules)
    return [*rules, *(rule for rule in backwards if isinstance(rule, Rule))]


@dataclass
class _Backoff:
    """How often each rule was too greedy, and the round until which it rests."""

    limit: int
    times: dict[str, int] = field(default_factory=dict[str, int])
    until: dict[str, int] = field(default_factory=dict[str, int])

    def search(self, egraph: EGraph, rule: Rule, round: int) -> list[Match] | None:
        """The matches of a rule; None while it rests."""
        if round < self.until.get(rule.name, 0):
            return None
        times = self.times.get(rule.name, 0)
        found = matches(egraph, rule, self.limit << times)
        if found is None:
            self.times[rule.name] = times + 1
            self.until[rule.name] = round + (REST << times)
        return found


def grow(
    egraph: EGraph,
    rules: Sequence[Rule],
    max_nodes: int = 4_000,
    max_rounds: int = 30,
    max_matches: int = 1_000,
) -> str:
    """Apply rules until they say nothing new, or a bound is met; which of these it was.

    All matches of a round are found before the first is applied, so no rule is ahead of another.
    """
    backoff = _Backoff(max_matches)
    applied: set[Hashable] = set()
    for round in range(max_rounds):
        found = [backoff.search(egraph, rule, round) for rule in rules]
        before = egraph.count, len(egraph.classes)
        new = {m.key: m for some in found if some is not None for m in some}
        for match in (m for key, m in new.items() if key not in applied):
            if egraph.count >= max_nodes:
                egraph.rebuild()
                return f"{max_nodes} e-nodes are enough"
            if not _apply(egraph, match):
                egraph.rebuild()
                return "the limit of rewrites"
        applied |= new.keys()
        egraph.rebuild()
        if before == (egraph.count, len(egraph.classes)):
            if None not in found:
                return "saturated"
            backoff.until.clear()  # only those that rest have more to say
    return f"{max_rounds} rounds are enough"


def _apply(egraph: EGraph, match: Match) -> bool:
    """Unite the class of a match with that of its replacement; False if no more is permitted."""
    made = match.replacement()
    if made is None:
        return True
    id = egraph.add(made)
    if egraph.find(id) == egraph.find(match.id):
        return True
    if not permitted(match.rule.name, match.root.name, match.root.loc):
        return False
    return egraph.union(match.id, id)
