"""The smallest graph that is still bad: delta debugging.

    small = mc.debug.reduce(g, lambda g: not same(mc.compile(g)(*feeds), mc.interpret(g, feeds)))
    print(small)                                    # text that parses; small.graph, small.tests

First whole parts are cut off: what is left out becomes an input where somebody reads it (ddmin:
A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE Transactions
on Software Engineering 28(2), 2002). Then each kind of simplification in smaller.py is tried until
none is left. The same graph and question give the same answer. Treated in course chapter
02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from minidlc.debug.smaller import SIMPLIFICATIONS, kept_only, uniquely_named
from minidlc.graph import Graph, Node, TupleType, verify
from minidlc.support.arguments import expect
from minidlc.support.errors import CompileError, OptionError
from minidlc.support.locations import caller

Question = Callable[[Graph], bool]


@dataclass(frozen=True)
class Reduced:
    """A bad graph, none of whose simplifications is bad; `complete` if all of them were tried."""

    graph: Graph
    tests: int
    complete: bool

    def __str__(self) -> str:
        return str(self.graph)


def reduce(graph: Graph, is_bad: Question, *, max_tests: int = 2000) -> Reduced:
    """Make a bad graph as small as possible with at most `max_tests` questions.

    Every graph that `is_bad` is asked about is valid; its inputs keep their names, and what was cut
    off is an input of the name that the value had. Where `is_bad` raises, a graph is not bad; a
    question that may kill the process belongs into one of its own: `minidlc reduce --check`. Raises
    OptionError (MDLC1045) if the graph is not bad as it is, or `is_bad` answers neither True nor
    False, and (MDLC1047) for fewer tests than one.
    """
    expect("reduce", "graph", graph, Graph)
    expect("reduce", "max_tests", max_tests, int)
    if max_tests < 1:
        text = f"reduce: max_tests is {max_tests}; the graph itself is the first test"
        raise OptionError(text, loc=caller(), hint="at least 1", code="MDLC1047")
    verify(graph)
    graph = uniquely_named(graph)
    _check_start(graph, is_bad)
    search = _Search(graph, is_bad, max_tests, asked={graph.digest})
    complete = search.run()
    return Reduced(search.best, search.tests, complete)


def _check_start(graph: Graph, is_bad: Question) -> None:
    try:
        answer, why = is_bad(graph), "is_bad says no"
    except Exception as e:
        answer, why = False, f"is_bad raises {type(e).__name__}: {e}"
    if not _yes(answer):
        text = f"reduce: {graph.name} is not bad as it is: {why}"
        hint = "is_bad(graph) is True for the graph given, and for smaller ones that are as bad"
        raise OptionError(text, loc=caller(), hint=hint, code="MDLC1045")


def _yes(answer: object) -> bool:
    """The answer of a question, if it is one: `a != b` of two arrays is not.

    Raises OptionError (MDLC1045).
    """
    if type(answer) in (bool, np.bool_):
        return bool(answer)
    got = "None" if answer is None else f"a {type(answer).__name__}"
    text = f"reduce: is_bad returns {got}; it must return True or False"
    hint = "for arrays: bool(np.any(a != b)); for anything else: bool(…)"
    raise OptionError(text, loc=caller(), hint=hint, code="MDLC1045")


class _Enough(Exception):
    """The number of tests is used up."""


@dataclass
class _Search:
    """The smallest bad graph so far, and what was asked already."""

    best: Graph
    is_bad: Question
    max_tests: int
    tests: int = 1
    asked: set[str] = field(default_factory=set[str])

    def run(self) -> bool:
        """Simplify until nothing more works; False if the tests ran out before."""
        try:
            while True:
                start = self.best
                self.cut()
                for simplification in SIMPLIFICATIONS:
                    self.exhaust(simplification)
                if self.best is start:
                    return True
        except _Enough:
            return False

    def takes(self, candidate: Graph | None) -> bool:
        """Ask about a graph; if it is bad it is the best so far."""
        if candidate is None or candidate.digest in self.asked:
            return False
        if self.tests >= self.max_tests:
            raise _Enough
        self.asked.add(candidate.digest)
        try:
            verify(candidate)
        except CompileError:
            return False
        self.tests += 1
        try:
            answer = self.is_bad(candidate)
        except Exception:  # it asks in its own words; a graph that it cannot judge is none for it
            answer = False
        if _yes(answer):
            self.best = candidate
            return True
        return False

    def exhaust(self, simplification: Callable[[Graph], Iterable[Graph | None]]) -> None:
        """Apply one kind of simplification as long as it gives a bad graph."""
        while any(map(self.takes, simplification(self.best))):
            pass

    def cut(self) -> None:
        """Leave out nodes, in chunks that get smaller (ddmin)."""
        graph, units = self.best, _units(self.best.nodes)

        def bad(kept: Sequence[tuple[Node, ...]]) -> bool:
            return bool(kept) and self.takes(kept_only(graph, {n for unit in kept for n in unit}))

        chunks = 2
        while len(units) > 1:
            size = -(-len(units) // chunks)
            parts = [units[i : i + size] for i in range(0, len(units), size)]
            rests = [[u for q in parts if q is not p for u in q] for p in parts]
            part = next(filter(bad, parts), None)
            rest = None if part else next(filter(bad, rests if len(parts) > 2 else []), None)
            if part:
                units, chunks = part, 2
            elif rest:
                units, chunks = rest, max(chunks - 1, 2)
            elif chunks >= len(units):
                return
            else:
                chunks = min(len(units), 2 * chunks)


def _units(nodes: Sequence[Node]) -> list[tuple[Node, ...]]:
    """The nodes one by one; a node with several results together with those that take them."""
    units: dict[Node, list[Node]] = {}
    for node in nodes:
        source = node.inputs[0] if node.op.name == "getitem" else None
        if isinstance(source, Node) and isinstance(source.type, TupleType):
            units[source].append(node)
        else:
            units[node] = [node]
    return [tuple(unit) for unit in units.values()]
