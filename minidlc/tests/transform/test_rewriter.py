"""The rewriter: which rule goes first, what is tried again, and rules that never end."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import minidlc.ops  # noqa: F401
from minidlc.expr.types import f32
from minidlc.graph import Graph, Input, Value, apply, interpret, parse
from minidlc.ops import functional
from minidlc.support.errors import PassError
from minidlc.tests.graph.graphs import graphs
from minidlc.transform import Rule, collecting, limited, rewrite, rules_of
from minidlc.transform.rules.forms import Forms, Numbering, Step, expression

pytestmark = pytest.mark.ch02

exp, relu, neg, sin = (functional(name) for name in ("exp", "relu", "neg", "sin"))


def f(*lines: str) -> Graph:
    return parse("\n    ".join(["def f(x: f32[4], y: f32[4]):", *lines]))


def test_the_rule_of_the_highest_benefit_goes_first() -> None:
    g = f("a = neg(x)", "b = neg(a)", "return b")
    one = Rule("one", lambda x: neg(neg(x)), lambda x: exp(x))
    two = Rule("two", lambda x: neg(neg(x)), lambda x: relu(x), benefit=2)
    assert [n.op.name for n in rewrite(g, (one, two)).nodes] == ["relu"]
    same = Rule("same", lambda x: neg(neg(x)), lambda x: relu(x))
    assert [n.op.name for n in rewrite(g, (one, same)).nodes] == ["exp"], "the first among equals"


def test_a_node_is_tried_again_only_where_something_changed() -> None:
    """One rewrite in the middle of a chain: what is before it and fits nothing is tried once."""
    lines = ["v0 = sin(x)", *(f"v{n} = sin(v{n - 1})" for n in range(1, 20))]
    lines += ["e = exp(v19)", *(f"w{n} = sin({'e' if n == 0 else f'w{n - 1}'})" for n in range(5))]
    g = f(*lines, "return w4")
    tried: Counter[str] = Counter()

    def look(root: Value) -> str:
        tried[root.name] += 1
        return "only looking"

    rules = (
        Rule("look", lambda x: sin(x), lambda x: x, when=look),
        Rule("r", lambda x: exp(x), lambda x: relu(x)),
    )
    after = rewrite(g, rules)
    assert [n.op.name for n in after.nodes] == ["sin"] * 20 + ["relu"] + ["sin"] * 5
    assert set(tried.values()) == {1}
    assert len(tried) == 25


def test_a_match_refused_for_its_other_users_is_tried_again_when_they_are_gone() -> None:
    """exp(x) is read twice until the other reader has been rewritten away, further down."""
    g = f("a = exp(x)", "b = neg(a)", "c = sin(a)", "d = add(b, c)", "return d")
    rules = (
        Rule("widen", lambda x: neg(exp(x)), lambda x: sin(relu(x)) + x),  # three nodes for two
        Rule("drop", lambda x: sin(exp(x)), lambda x: x),
    )
    with collecting() as events:
        after = rewrite(g, rules)
    assert "widen at b: a has other users: 3 new nodes for 1" in map(str, events)
    assert [n.op.name for n in after.nodes] == ["relu", "sin", "add", "add"]


@pytest.mark.long
@given(graphs(max_nodes=12))
def test_no_rule_fits_what_is_left(g: Graph) -> None:
    """The fixpoint is one: nothing was forgotten because it was settled too early."""
    rules = rules_of("fast")
    after = rewrite(g, rules)
    assert rewrite(after, rules) is after


def ends(g: Graph, *rules: Rule) -> PassError:
    with pytest.raises(PassError) as caught:
        rewrite(g, rules)
    assert caught.value.code == "MDLC0505"
    return caught.value


def test_a_rule_that_comes_back_is_found_at_the_first_return() -> None:
    calls = 0

    def swapped(a: Any, b: Any) -> Any:
        nonlocal calls
        calls += 1
        return b - a

    swap = Rule("swap", lambda a, b: a - b, swapped)
    e = ends(f("a = sub(x, y)", "return a"), swap)
    assert e.message == "rules undo each other without end at 'a': swap"
    assert e.notes == ("swap: sub(x, y) -> sub(y, x)", "swap: sub(y, x) -> sub(x, y)")
    assert calls == 3, "the form that was there before is the third"
    assert "one direction only" in str(e)


def test_three_rules_in_a_circle_are_named_with_their_forms() -> None:
    e = ends(
        f("a = exp(x)", "return a"),
        Rule("ping", lambda x: exp(x), lambda x: relu(x)),
        Rule("pong", lambda x: relu(x), lambda x: sin(x)),
        Rule("pang", lambda x: sin(x), lambda x: exp(x)),
        Rule("other", lambda x: neg(x), lambda x: x),
    )
    assert e.message.endswith("at 'a': ping, pong, pang")
    assert e.notes == (
        "ping: exp(x) -> relu(x)",
        "pong: relu(x) -> sin(x)",
        "pang: sin(x) -> exp(x)",
    )


def test_a_circle_that_is_not_entered_at_once() -> None:
    """The steps before the circle are no part of it."""
    e = ends(
        f("a = neg(x)", "return a"),
        Rule("in", lambda x: neg(x), lambda x: exp(x)),
        Rule("ping", lambda x: exp(x), lambda x: relu(x)),
        Rule("pong", lambda x: relu(x), lambda x: exp(x)),
    )
    assert e.message.endswith(": ping, pong")


def test_rules_that_undo_each_other_at_different_nodes() -> None:
    """A moves neg below relu at one node, B moves it back from the node that reads it."""
    down = Rule("down", lambda x: relu(neg(x)), lambda x: sin(exp(x)))
    back = Rule("back", lambda x: neg(sin(exp(x))), lambda x: neg(relu(neg(x))))
    e = ends(f("a = neg(x)", "b = relu(a)", "c = neg(b)", "return c"), down, back)
    assert e.message == "rules undo each other without end at 'c': back, down"
    assert "down: relu(neg(x)) -> sin(exp(x))" in e.notes


def test_a_graph_that_comes_back_is_found_whatever_happened_between() -> None:
    """What `rewrite` asks after each sweep."""
    x, y = Input("x", f32[2]), Input("y", f32[2])
    first, second, other = relu(x) + y, y + relu(x), exp(x)
    steps = [Step("in", other, first), Step("turn", first, second), Step("back", second, first)]
    forms = Forms()
    forms.add((x, other), "g", [])
    forms.add((x, first), "g", steps[:1])
    forms.add((x, second), "g", steps[:2])
    with pytest.raises(PassError, match="without end at 'g': turn, back") as caught:
        forms.add((x, relu(x) + y), "g", steps)
    assert caught.value.notes[0] == "turn: add(relu(x), y) -> add(y, relu(x))"


def test_growth_is_no_circle_and_ends_too() -> None:
    e = ends(f("a = exp(x)", "return a"), Rule("grow", lambda x: exp(x), lambda x: exp(neg(x))))
    assert "rules fit again and again without end" in e.message
    assert len(e.notes) == 4


def test_a_limit_ends_before_the_circle_closes() -> None:
    swap = Rule("swap", lambda a, b: a - b, lambda a, b: b - a)
    g = f("a = sub(x, y)", "return a")
    with limited(1) as count:
        after = rewrite(g, [swap])
    assert len(count.done) == 1
    arrays = [np.arange(4, dtype=np.float32), np.ones(4, np.float32)]
    assert np.array_equal(interpret(after, arrays)[0], arrays[1] - arrays[0])


def test_numbers_are_equal_for_equal_expressions() -> None:
    x, y = Input("x", f32[2]), Input("y", f32[2])
    numbers = Numbering()
    assert numbers.of(x + y) == numbers.of(x + y) != numbers.of(y + x)
    assert numbers.of(x * 2.0) == numbers.of(x * 2.0) != numbers.of(x * -2.0)
    deep: Value = x
    for _ in range(3000):
        deep = apply("neg", deep)
    assert isinstance(numbers.of(deep), int), "deeper than Python's recursion"


def test_expressions_are_cut_below_a_depth() -> None:
    x = Input("x", f32[2, 3])
    text = expression(apply("transpose", neg(relu(exp(x))), perm=(1, 0)))
    assert text == "transpose(neg(relu(exp)), perm=(1, 0))"
    assert expression(x * 2.0) == "mul(x, 2.0)"
