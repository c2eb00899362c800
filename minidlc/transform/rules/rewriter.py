"""Applies rules to a graph until none fits: forward sweeps, each node with its inputs rewritten.

    rewrite(g, (Rule("double-neg", lambda x: -(-x), lambda x: x),))

Of the rules that fit a node the one of the highest benefit is taken, the first among equals. What a
rule makes is matched again at once, its inner nodes first. Sweeps go on until one changes nothing.
Values do not change, so a node is work again only if it, or something that it reads, was made anew,
or if a match was refused because of other users, which may be gone by now: `settled` holds the
rest. (A queue of nodes would need a graph that changes in place, and lists of users kept with it.)

A rule never makes work: where nodes of the match stay alive for other users or as graph outputs, it
may not add more nodes than it frees. Rules that lead back to a form that was there before are an
error that shows the circle. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from minidlc.graph.graph import Constant, Graph, Input, Node, Value, located
from minidlc.graph.inline import nodes_made, with_inputs
from minidlc.support.errors import PassError
from minidlc.support.locations import Derived, written
from minidlc.transform.log import Refusal, permitted, report
from minidlc.transform.rebuild import live_nodes
from minidlc.transform.rules.forms import Forms, Numbering, Step, without_end
from minidlc.transform.rules.rules import Bindings, Rule, call, inner_nodes

MAX_AT_ONE_NODE = 100  # rewrites one after the other in one place: more is growth without end
MAX_SWEEPS = 100


def rewrite(graph: Graph, rules: Iterable[Rule]) -> Graph:
    """Apply the rules everywhere, to a fixpoint; `graph` itself if none fits.

    Raises PassError if a rule changes a type (MDLC0503), is malformed (0504), never ends (0505)
    or fails (0506).
    """
    by_op: dict[str, list[Rule]] = {}
    for rule in sorted(rules, key=lambda rule: -rule.benefit):
        by_op.setdefault(rule.root.op, []).append(rule)
    settled = set[Node]()
    forms = Forms()
    steps: list[Step] = []
    for _ in range(MAX_SWEEPS):
        sweep = _Sweep(graph, by_op, forms.numbers, settled)
        graph = sweep.run()
        if not sweep.steps:
            return graph
        steps += sweep.steps
        forms.add((*graph.nodes, *graph.outputs), graph.name, steps)
    raise without_end(graph.name, steps[-4:], circle=False)


@dataclass
class _Sweep:
    """One pass over the nodes in execution order."""

    graph: Graph
    rules: dict[str, list[Rule]]
    numbers: Numbering
    settled: set[Node]  # no rule fits, and none will while they are the same
    new: dict[Value, Value] = field(default_factory=dict[Value, Value])
    nodes: list[Node] = field(default_factory=list[Node])  # of the new graph, so far
    placed: set[Value] = field(default_factory=set[Value])  # the same as a set
    reads: dict[Value, int] = field(default_factory=dict[Value, int])
    steps: list[Step] = field(default_factory=list[Step])  # what was rewritten

    def run(self) -> Graph:
        """The graph after the sweep; the same object if no rule fitted."""
        graph = self.graph
        for node in graph.nodes:
            for value in dict.fromkeys(node.inputs):
                if value is not None:
                    self.reads[value] = self.reads.get(value, 0) + 1
        for output in graph.outputs:
            self.reads[output] = self.reads.get(output, 0) + 1
        for node in graph.nodes:
            current = with_inputs(node, self.new)
            self.reads[current] = self.reads.get(node, 0)
            self.new[node] = self._simplify(current, len(self.steps))
        if not self.steps:
            return graph
        outputs = tuple(self.new.get(o, o) for o in graph.outputs)
        return Graph(graph.name, graph.inputs, live_nodes(self.nodes, outputs), outputs)

    def _simplify(self, value: Value, start: int) -> Value:
        """Rewrite at this node until no rule fits; place what is left in the new graph.

        `start`: the number of steps before the first one in this place.
        """
        forms = Forms(self.numbers)
        while isinstance(value, Node) and value not in self.placed:
            result = None if value in self.settled else self._apply_first(value)
            if result is None:
                self.nodes.append(value)
                self.placed.add(value)
                break
            forms.add((value,), value.name, self.steps[:-1])
            if len(self.steps) - start > MAX_AT_ONE_NODE:
                raise without_end(value.name, self.steps[-4:], circle=False)
            self.reads[result] = self.reads.get(result, 0) + self.reads.get(value, 1)
            value = self._simplify_below(result, start)
        return value

    def _simplify_below(self, result: Value, start: int) -> Value:
        """The result of a rule, the nodes that the rule made below it rewritten and placed."""
        below: dict[Value, Value] = {}
        for node in nodes_made(result, self.placed)[:-1]:
            below[node] = self._simplify(with_inputs(node, below), start)
        return with_inputs(result, below) if isinstance(result, Node) else result

    def _apply_first(self, node: Node) -> Value | None:
        """What the first rule that fits makes of the node, or None."""
        matched = False
        for rule in self.rules.get(node.op.name, ()):
            try:
                bindings = rule.match(node)
                matched = matched or not isinstance(bindings, str)
                result = bindings if isinstance(bindings, str) else self._replace(rule, bindings)
            except PassError:
                raise
            except Exception as e:
                text = f"rule {rule.name!r} failed at {node.name!r}: {e}"
                raise PassError(text, loc=node.loc, code="MDLC0506") from e
            if isinstance(result, str):
                report(partial(Refusal, rule.name, node.name, result, node.loc))
                continue
            if not permitted(rule.name, node.name, node.loc):
                return None
            self.steps.append(Step(rule.name, node, result))
            return result
        if not matched:
            self.settled.add(node)
        return None

    def _replace(self, rule: Rule, bindings: Bindings) -> Value | str:
        """The replacement of a match, or the reason against it."""
        root: Node = bindings["root"]
        inner = inner_nodes(rule.root, root)
        also = written(*(n.loc for n in inner))
        with located(Derived(f"rule {rule.name}", root.loc, also)):
            result = call(rule.replacement, bindings)
        if not isinstance(result, (Input, Constant, Node)):
            result = Constant(root.name, np.asarray(result))
        if result is root:
            return "the replacement is the match itself"
        if result.type != root.type:
            text = (
                f"rule {rule.name!r}: the replacement has type {result.type}, the match {root.type}"
            )
            raise PassError(text, loc=root.loc, code="MDLC0503")
        made = nodes_made(result, self.placed)
        kept = [n for n in inner if self.reads.get(n, 1) > 1]
        freed = 1 + len(inner) - len(kept)
        if kept and len(made) > freed:
            return f"{kept[0].name} has other users: {len(made)} new nodes for {freed}"
        return replace(result, name=root.name) if result in made else result  # pyright: ignore
