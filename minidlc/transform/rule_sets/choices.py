"""Rules of conditions: comparisons that are decided, logic, `where`.

    where(not c, a, b) -> where(c, b, a)        logical_not(less(a, b)) -> greater_or_equal(a, b)

Comparisons with NaN are False, so `not (a < b)` is `a >= b` only where the analysis excludes NaN.
All are exact. Treated in course chapter 02_frontend_opt.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minidlc.graph.graph import Node, Value
from minidlc.ops import functional
from minidlc.transform.rule_sets.conditions import (
    Condition,
    Facts,
    Verdict,
    both,
    filled_with,
    is_static,
    known,
    same_type,
    what_is_known,
)
from minidlc.transform.rules.rules import Rule, rule_set

equal = functional("equal")
logical_and = functional("logical_and")
logical_not = functional("logical_not")
logical_or = functional("logical_or")
logical_xor = functional("logical_xor")
where = functional("where")

OPPOSITE = {
    "less": "greater_or_equal",
    "less_or_equal": "greater",
    "greater": "less_or_equal",
    "greater_or_equal": "less",
}


@rule_set("choices")
def choice_rules() -> tuple[Rule, ...]:
    """Exact rules of comparisons, logic and `where`."""
    return (
        Rule("where-true", lambda c, a, b: where(c, a, b), lambda a: a, when=takes("a", 1)),
        Rule("where-false", lambda c, a, b: where(c, a, b), lambda b: b, when=takes("b", 0)),
        Rule("where-same", lambda c, x: where(c, x, x), lambda x: x, when=same_type),
        Rule("where-not", where_not, lambda c, a, b: where(c, b, a)),
        Rule("double-not", lambda x: logical_not(logical_not(x)), lambda x: x),
        *(opposite(op, other) for op, other in OPPOSITE.items()),
        *(decided(op, 2) for op in (*OPPOSITE, "equal")),
        *(decided(op, 1) for op in ("isnan", "isinf")),
        Rule(
            "equal-itself", lambda x: equal(x, x), filled_with(True), when=both(is_static, no_nan)
        ),
        Rule("and-itself", lambda x: logical_and(x, x), lambda x: x),
        Rule("or-itself", lambda x: logical_or(x, x), lambda x: x),
        Rule("and-true", lambda x: logical_and(x, True), lambda x: x, when=same_type),
        Rule("or-false", lambda x: logical_or(x, False), lambda x: x, when=same_type),
        Rule("xor-false", lambda x: logical_xor(x, False), lambda x: x, when=same_type),
        Rule("xor-true", lambda x: logical_xor(x, True), lambda x: logical_not(x), when=same_type),
        decided("logical_and", 2),
        decided("logical_or", 2),
    )


def takes(hole: str, condition: int) -> Condition:
    """The condition always has this value, and the value taken has the type of the result."""

    def check(c: Value, a: Value, b: Value, root: Node, facts: Facts) -> Verdict:
        if facts(c).constant != condition:
            return "the condition is not known"
        return same_type(a if hole == "a" else b, root)

    return check


def where_not(c: Any, a: Any, b: Any) -> Any:
    """Pattern: where of a negated condition."""
    return where(logical_not(c), a, b)


def opposite(op: str, other: str) -> Rule:
    """not (a < b) = a >= b, without NaN."""
    f: Callable[..., Any] = functional(op)
    g: Callable[..., Any] = functional(other)
    return Rule(f"not-{op}", lambda a, b: logical_not(f(a, b)), lambda a, b: g(a, b), when=ordered)


def ordered(a: Value, b: Value, facts: Facts) -> Verdict:
    """No element is NaN."""
    return not (facts(a).nan or facts(b).nan) or "an element may be NaN"


def no_nan(x: Value, facts: Facts) -> Verdict:
    """No element of x is NaN."""
    return not facts(x).nan or "an element may be NaN"


def decided(op: str, arity: int) -> Rule:
    """A condition that the analysis decides is a constant."""
    f: Callable[..., Any] = functional(op)
    patterns: dict[int, Callable[..., Any]] = {1: lambda a: f(a), 2: lambda a, b: f(a, b)}
    return Rule(f"{op}-known", patterns[arity], what_is_known, when=both(is_static, known))
