"""A second opinion on the e-graph: egglog (Zhang et al., PLDI 2023) finds the same cheapest terms.

Both get the same laws, both ways, and the same price for each op; both grow until nothing is new.
"""

from __future__ import annotations

import egglog
import pytest

from minidlc.expr.types import f32
from minidlc.graph import Input, apply
from minidlc.transform import rules_of
from minidlc.transform.egraph import EGraph, choose, grow
from minidlc.transform.egraph.saturate import both_ways

pytestmark = pytest.mark.ch02


class Number(egglog.Expr):
    """A term of egglog; a leaf costs 2, its name included."""

    @egglog.method(cost=1)
    def __init__(self, name: egglog.StringLike) -> None: ...


@egglog.function(cost=1)
def add(a: Number, b: Number) -> Number: ...
@egglog.function(cost=4)
def mul(a: Number, b: Number) -> Number: ...
@egglog.function(cost=3)
def neg(a: Number) -> Number: ...


PRICES = {"add": 1, "mul": 4, "neg": 3, "exp": 2}  # exp stands for a leaf

TERMS = [
    "a*c + b*c", "a*b + a*c", "a*b + c*a + b*c", "a*a + a*b", "a*b + a*b", "-a + -b",
    "-(a + b) + -c", "-a + (b + -c)", "a*(b + c) + a*d", "a*c + a*d + b*c + b*d",
    "a*c + b*c + d", "a*b*c + a*b*d", "a*(b*c) + (c*a)*d",
    "-a*c + -b*c", "-(a*c) + -(b*c)", "a*b + (c + b*a)",
    "(a + a)*b + c*b", "-(-a + -b)", "-(a*b + c*b)", "a + b + c + a", "a*b*a*b",
    "-a + -a", "a + (b*c + c*d)", "-(a + -b)",
]  # fmt: skip


def laws(a, b, c):
    """egglog's side of the rules that `LAWS` names."""
    yield egglog.rewrite(add(a, b)).to(add(b, a))
    yield egglog.rewrite(mul(a, b)).to(mul(b, a))
    yield egglog.birewrite(add(add(a, b), c)).to(add(a, add(b, c)))
    yield egglog.birewrite(mul(mul(a, b), c)).to(mul(a, mul(b, c)))
    yield egglog.birewrite(add(mul(a, c), mul(b, c))).to(mul(add(a, b), c))
    yield egglog.birewrite(add(neg(a), neg(b))).to(neg(add(a, b)))


LAWS = ("add-commutes", "mul-commutes", "add-associates", "mul-associates", "factor", "factor-neg")


@pytest.mark.long
@pytest.mark.parametrize("term", TERMS)
def test_egglog_agrees_on_the_cheapest(term: str):
    leaves = {n: apply("exp", Input(n, f32[()])) for n in "abcd"}
    ours = EGraph()
    root = ours.add(eval(term, leaves))
    rules = [r for r in both_ways(rules_of("algebra")) if r.name.split(" ")[0] in LAWS]
    assert grow(ours, rules, max_nodes=50_000) == "saturated"
    cheapest = choose(ours, lambda op, *_: PRICES[op.name]).costs[ours.find(root)]

    theirs = egglog.EGraph()
    theirs.register(*laws(*egglog.vars_("a b c", Number)))
    wanted = theirs.let("term", egglog_term(eval(term, leaves)))
    while theirs.run(5).updated:
        pass
    assert cheapest == theirs.extract(wanted, include_cost=True)[1]


def egglog_term(value) -> Number:
    if value.op.name == "exp":
        return Number(value.inputs[0].name)
    return {"add": add, "mul": mul, "neg": neg}[value.op.name](*map(egglog_term, value.inputs))
