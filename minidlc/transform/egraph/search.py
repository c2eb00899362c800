"""Where a rule fits in an e-graph, and what it says there.

    for match in matches(e, rule): match.id, match.bindings
    reverse(rule)                                   # y -> x of x -> y, or why that is no rule

A pattern sees one form of a value, a class holds many. So each form that fits the ops of the
pattern is built as a node, holes filled with the values that stand for their classes, and the rule
is asked about that node: the rules are those of the rewriter, conditions and all. Treated in course
chapter 02_frontend_opt.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from minidlc.graph.graph import Constant, Input, Node, Value, located
from minidlc.support.errors import PassError, TypeRuleError
from minidlc.support.locations import Derived, written
from minidlc.transform.egraph.graph import LEFT_OUT, EGraph, ENode
from minidlc.transform.log import Refusal, report
from minidlc.transform.rules.rules import (
    COMMUTATIVE,
    Applied,
    Bindings,
    Hole,
    Number,
    Pattern,
    Rule,
    call,
)


@dataclass(frozen=True)
class Match:
    """A rule fits a value of class `id`."""

    rule: Rule
    id: int
    root: Node
    bindings: Bindings

    @property
    def key(self) -> Hashable:
        """Equal for matches that say the same: the rule, and what its holes stand for."""
        bound = tuple(v for name, v in self.bindings.items() if name != "root")
        return self.rule.name, bound

    def replacement(self) -> Value | None:
        """What the rule puts in its place; None, and a refusal, if that has not the same type.

        The author of a rule thought of the forms in one program. Here it meets every form that
        any rule makes, so what does not fit is left out, and said.
        """
        try:
            with located(Derived(f"rule {self.rule.name}", self.root.loc, written(self.root.loc))):
                made = call(self.rule.replacement, self.bindings)
        except TypeRuleError as e:
            return self._refuse(f"its replacement has no type: {e.message}")
        except Exception as e:
            text = f"rule {self.rule.name!r} failed at {self.root.name!r}: {e}"
            raise PassError(text, loc=self.root.loc, code="MDLC0506") from e
        if not isinstance(made, (Input, Constant, Node)):
            made = Constant(self.root.name, np.asarray(made))
        if made.type != self.root.type:
            return self._refuse(f"unsound: {self.root.type} would become {made.type}")
        return made

    def _refuse(self, reason: str) -> None:
        report(partial(Refusal, self.rule.name, self.root.name, reason, self.root.loc))


def matches(egraph: EGraph, rule: Rule, limit: int | None = None) -> list[Match] | None:
    """Where a rule fits, classes in order; None if at more than `limit` places."""
    found: list[Match] = []
    for id in egraph.holding(rule.root.op):
        for form in _forms(egraph, rule.root, id):
            assert isinstance(form, Node)
            bindings = rule.match(form)
            if isinstance(bindings, str):
                report(partial(Refusal, rule.name, form.name, bindings, form.loc))
                continue
            found.append(Match(rule, id, form, bindings))
            if limit is not None and len(found) > limit:
                return None
    return found


def _forms(egraph: EGraph, pattern: Pattern, id: int) -> Iterator[Value | None]:
    """The forms of a class that have the ops of the pattern."""
    if id == LEFT_OUT:
        yield None
        return
    held = egraph.classes[egraph.find(id)]
    match pattern:
        case Applied():
            for node in held.nodes:
                if isinstance(node.value, Node) and node.value.op.name == pattern.op:
                    yield from _forms_of(egraph, pattern, node, node.value)
        case Number():
            if isinstance(held.value, Constant):
                yield held.value
        case _:
            yield held.value


def _forms_of(egraph: EGraph, pattern: Applied, node: ENode, origin: Node) -> Iterator[Node]:
    """The forms of one e-node: every choice of a form for each of its inputs."""
    patterns = _inputs(pattern, len(node.children))
    if patterns is None:
        return
    orders = [patterns, patterns[::-1]] if pattern.op in COMMUTATIVE else [patterns]
    seen: set[tuple[Value | None, ...]] = set()
    for order in orders:
        choices = (list(_forms(egraph, p, c)) for p, c in zip(order, node.children, strict=True))
        for inputs in itertools.product(*choices):
            if inputs not in seen:
                seen.add(inputs)
                yield Node(origin.op, inputs, origin.type, origin.name, origin.loc)


def _inputs(pattern: Applied, count: int) -> tuple[Pattern, ...] | None:
    """A pattern for each of `count` inputs; None if it takes another number."""
    *first, last = pattern.inputs or (None,)
    if isinstance(last, Hole) and last.rest:
        return (*first, *[last] * (count - len(first))) if count >= len(first) else None
    return pattern.inputs if len(pattern.inputs) == count else None


def reverse(rule: Rule) -> Rule | str:
    """The rule read from right to left; or the reason why that is no rule.

    Its replacement must be written in ops of holes alone, and name every hole of the pattern.
    """
    holes = list(inspect.signature(rule.pattern).parameters)
    given = list(inspect.signature(rule.replacement).parameters)
    asked = list(inspect.signature(rule.when).parameters) if rule.when else []
    if "root" in (*given, *asked):
        return "it asks for the match as a whole"
    if set(given) != set(holes):
        return f"it forgets {', '.join(h for h in holes if h not in given)}"
    try:
        traced = rule.replacement(**{h: Hole(h) for h in given})
    except Exception as e:  # it computes with attributes, which holes do not have
        return f"its replacement is no pattern: {e}"
    if not isinstance(traced, Applied) or _named(traced) != set(holes):
        return "its replacement is no op of all its holes"
    return Rule(f"{rule.name} reversed", rule.replacement, rule.pattern, when=rule.when)


def _named(pattern: Pattern) -> set[str]:
    match pattern:
        case Hole(name):
            return {name}
        case Applied(_, inputs, attributes):
            inner = (*inputs, *(a for a in attributes.values() if isinstance(a, Hole)))
            return {name for p in inner for name in _named(p)}
        case _:
            return set()
