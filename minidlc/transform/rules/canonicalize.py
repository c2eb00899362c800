"""Local simplifications, as rules: double negation, x * 1, reshape of reshape, constants right.

    g = Canonicalize()(g)
    g = Recognise()(g)                              # layer_norm, gelu, … found in chains of ops
    with mc.use(**{"rules.canonicalize": lambda: (*canonical_rules(), my_rule)}): ...

The rules are data, a family a file in rule_sets/. The set `canonicalize` holds the exact ones; the
set `fast` adds those that hold for finite numbers only, for compile(precision="fast"). Reads and
writes graphs. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from minidlc.graph.graph import Graph
from minidlc.transform.pass_ import Pass, register_pass
from minidlc.transform.rule_sets.arithmetic import arithmetic_rules, finite_rules
from minidlc.transform.rule_sets.attentions import attention_rules
from minidlc.transform.rule_sets.casts import cast_rules
from minidlc.transform.rule_sets.choices import choice_rules
from minidlc.transform.rule_sets.pieces import piece_rules
from minidlc.transform.rule_sets.quantised import fast_quantised_rules, quantised_rules
from minidlc.transform.rule_sets.recognition import recognised_rules
from minidlc.transform.rule_sets.shapes import shape_rules
from minidlc.transform.rules.rewriter import rewrite
from minidlc.transform.rules.rules import Rule, rule_set, rules_of


@register_pass
@dataclass(frozen=True)
class Canonicalize(Pass):
    """Apply the rules of the set `rules` to a fixpoint."""

    name = "canonicalize"
    rules: str = "canonicalize"

    def run(self, graph: Graph) -> Graph:
        """The graph in which no rule fits."""
        return rewrite(graph, rules_of(self.rules))


@register_pass
@dataclass(frozen=True)
class Recognise(Pass):
    """Composite ops in place of the chains that stand for them: rounded in other places."""

    name = "recognise"
    level = 2
    exact = False
    rules: str = "recognise"

    def run(self, graph: Graph) -> Graph:
        """The graph in which no chain of the set `rules` is left."""
        return rewrite(graph, rules_of(self.rules))


@rule_set("canonicalize")
@cache
def canonical_rules() -> tuple[Rule, ...]:
    """Every exact rule."""
    return (
        *arithmetic_rules(),
        *choice_rules(),
        *cast_rules(),
        *shape_rules(),
        *piece_rules(),
        *quantised_rules(),
    )


@rule_set("fast")
@cache
def fast_rules() -> tuple[Rule, ...]:
    """The canonical rules and those that hold for finite numbers only (precision="fast")."""
    return (*canonical_rules(), *finite_rules(), *fast_quantised_rules())


__all__ = [
    "Canonicalize",
    "Recognise",
    "attention_rules",
    "canonical_rules",
    "fast_rules",
    "recognised_rules",
]
