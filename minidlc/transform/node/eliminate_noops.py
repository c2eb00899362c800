"""Nodes that give back what they get, taken out: the class that nGraph called no-op elimination.

    y = reshape(x, shape=x's own)       y = pad(x, pads=(0, 0))         y = max_pool of 1 x 1
    y = sum(x, axes=())                 y = slice of everything         ->      x, each of them

No code of its own does this: the pass hands the rewriter the rules that take one node away, those
of the canonical set and a few more. `canonicalize` thus does most of it; the pass is here to show
the class alone, and to clean up where nothing else shall change. Treated in course chapter
02_frontend_opt.
"""

# Rules are lambdas over holes, which stand for values of any kind: nothing to infer from.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minidlc.graph.graph import Graph, Node, Value, tensor_type
from minidlc.ops import functional, rules
from minidlc.ops.reduction import Max, Min, Reduction
from minidlc.transform.pass_ import Pass, register_pass
from minidlc.transform.rule_sets.conditions import Verdict, same_type
from minidlc.transform.rules.canonicalize import canonical_rules
from minidlc.transform.rules.rewriter import rewrite
from minidlc.transform.rules.rules import Applied, Hole, Rule, rule_set, rules_of

bit_cast = functional("bit_cast")


@register_pass
@dataclass(frozen=True)
class EliminateNoops(Pass):
    """Apply the rules of the set `noops` to a fixpoint."""

    name = "eliminate_noops"

    def run(self, graph: Graph) -> Graph:
        """The graph without nodes that do nothing."""
        return rewrite(graph, rules_of("noops"))


@rule_set("noops")
def noop_rules() -> tuple[Rule, ...]:
    """Every rule that puts an input in the place of one node; all are exact."""
    return (
        *filter(takes_one_node_away, canonical_rules()),
        *(reduces_nothing(op) for op in ("sum", "mean", "prod", "max", "min")),
        *(block_of_one(op) for op in ("depth_to_space", "space_to_depth")),
        *(pool_of_one(op) for op in ("max_pool", "average_pool")),
        Rule("bit-cast-to-own", lambda x, t: bit_cast(x, to=t), lambda x: x, when=same_type),
    )


def takes_one_node_away(rule: Rule) -> bool:
    """True if the pattern is one op, and the replacement one of its inputs."""
    holes = {p.name: p for p in rule.root.inputs if isinstance(p, Hole) and not p.rest}
    given = list(inspect.signature(rule.replacement).parameters)
    if len(given) != 1 or given[0] not in holes:
        return False
    if any(isinstance(p, Applied) for p in rule.root.inputs):
        return False
    try:
        return rule.replacement(holes[given[0]]) is holes[given[0]]
    except Exception:  # it computes with the value, which a hole does not have
        return False


def reduces_nothing(op: str) -> Rule:
    """A reduction of no axes, or (max, min) of axes that hold one element each."""
    f: Callable[..., Any] = functional(op)

    def one_element_each(x: Value, root: Node) -> Verdict:
        reduction = root.op
        assert isinstance(reduction, Reduction)
        axes = rules.axes(reduction, reduction.axes, tensor_type(x).rank)
        if axes and not isinstance(reduction, (Max, Min)):
            return "0 + -0.0 is 0.0"
        return same_type(x, root)

    return Rule(
        f"{op}-of-nothing",
        lambda x, a, k: f(x, axes=a, keepdims=k),
        lambda x: x,
        when=one_element_each,
    )


def block_of_one(op: str) -> Rule:
    """Blocks of 1 x 1 pixels stay where they are."""
    f: Callable[..., Any] = functional(op)
    return Rule(f"{op}-of-one", lambda x, m: f(x, blocksize=1, mode=m), lambda x: x)


def pool_of_one(op: str) -> Rule:
    """A window of one element, at every place."""
    f: Callable[..., Any] = functional(op)

    def single(x: Value, root: Node, k: tuple[int, ...]) -> Verdict:
        return same_type(x, root) if set(k) == {1} else f"its window is {k}"

    return Rule(f"{op}-of-one", lambda x, k: f(x, kernel_shape=k), lambda x: x, when=single)
