"""Rules and the rewriter: matching, conditions, users, types, ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minidlc.ops  # noqa: F401
from minidlc.graph import Graph, apply, parse, verify
from minidlc.ops import functional
from minidlc.support import extension
from minidlc.support.errors import OptionError, PassError
from minidlc.transform import Canonicalize, Rule, collecting, rewrite, rules_of
from minidlc.transform.rules.rules import near

pytestmark = pytest.mark.ch02

relu, exp, neg, softmax, transpose = map(functional, ("relu", "exp", "neg", "softmax", "transpose"))
DOUBLE_NEG = Rule("double-neg", lambda x: neg(neg(x)), lambda x: x)


def f(*lines: str, params: str = "x: f32[2, 2], y: f32[2, 2]") -> Graph:
    return parse("\n".join([f"def f({params}):", *(f"    {line}" for line in lines)]))


def lines(g: Graph) -> list[str]:
    return [line.strip().replace(": f32[2, 2]", "") for line in str(g).splitlines()[1:]]


def test_a_rule_is_applied_until_it_fits_nowhere() -> None:
    g = f("a = neg(x)", "b = neg(a)", "c = neg(b)", "d = neg(c)", "e = neg(d)", "return e")
    after = rewrite(g, [DOUBLE_NEG])
    assert lines(after) == ["e = neg(x)", "return e"]
    verify(after)


def test_nothing_fits_and_the_graph_is_the_same_object() -> None:
    g = f("a = neg(x)", "b = exp(a)", "return b")
    assert rewrite(g, [DOUBLE_NEG]) is g


def test_the_same_hole_is_the_same_value() -> None:
    rule = Rule("sub-self", lambda x: x - x, lambda x: x * 0)
    assert rewrite(f("a = sub(x, y)", "return a"), [rule]).nodes[0].op.name == "sub"
    assert rewrite(f("a = sub(x, x)", "return a"), [rule]).nodes[0].op.name == "mul"
    same = rewrite(f("a: f32[()] = const(nan)", "b: f32[()] = const(nan)", "c = sub(a, b)",
                     "return c"), [rule])  # fmt: skip
    assert same.nodes[0].op.name == "mul"


def test_numbers_match_constants_by_value_and_sign() -> None:
    for value, text, fits in (
        (0, "0.0", True), (0, "-0.0", False), (-0.0, "-0.0", True), (-0.0, "0.0", False),
        (1, "1.0", True), (1, "2.0", False), (1, "nan", False), (0.5, "0.5", True),
    ):  # fmt: skip
        rule = Rule("r", lambda x: x * value, lambda x: x)  # noqa: B023
        g = f(f"c: f32[()] = const({text})", "a = mul(x, c)", "return a")
        assert (rewrite(g, [rule]) is not g) == fits, (value, text)
    everywhere = f("c: f32[2] = const([1.0, 1.0])", "a = mul(x, c)", "return a")
    partly = f("c: f32[2] = const([1.0, 2.0])", "a = mul(x, c)", "return a")
    rule = Rule("mul-one", lambda x: x * 1, lambda x: x)
    assert rewrite(everywhere, [rule]).nodes == ()
    assert rewrite(partly, [rule]) is partly


def test_attributes_are_holes_or_exact() -> None:
    fixed = Rule("r", lambda x: softmax(x, axis=0), lambda x: x)
    default = Rule("r", lambda x: softmax(x), lambda x: x)
    free = Rule("r", lambda x, a: softmax(x, axis=a), lambda x, a: softmax(x, axis=a - 2))
    g = f("a = softmax(x, axis=0)", "return a")
    assert rewrite(g, [fixed]).nodes == ()
    assert rewrite(g, [default]) is g
    once = Rule("r", free.pattern, free.replacement, when=lambda a: a >= 0)
    assert rewrite(g, [once]).nodes[0].op.attributes() == {"axis": -2}


def test_the_same_attribute_hole_is_the_same_attribute() -> None:
    rule = Rule("r", lambda x, p: transpose(transpose(x, perm=p), perm=p), lambda x: x)
    g = f("a = transpose(x, perm=(1, 0))", "b = transpose(a, perm=(1, 0))", "return b")
    h = f("a = transpose(x, perm=(1, 0))", "b = transpose(a, perm=(0, 1))", "return b")
    assert rewrite(g, [rule]).nodes == ()
    assert rewrite(h, [rule]) is h


def test_what_a_rule_makes_is_matched_again() -> None:
    rules = [
        Rule("softmax", lambda x: softmax(x), lambda x: neg(neg(relu(exp(exp(x)))))),
        DOUBLE_NEG,
        Rule("exp-exp", lambda x: exp(exp(x)), lambda x: exp(x)),
    ]
    after = rewrite(f("a = softmax(x)", "return a"), rules)
    assert lines(after) == ["exp_1 = exp(x)", "relu_1 = relu(exp_1)", "return relu_1"]


def test_names_and_places_are_kept() -> None:
    rule = Rule("r", lambda x: exp(x), lambda x: relu(neg(x)))
    after = rewrite(f("h = exp(x)", "return h"), [rule])
    assert lines(after) == ["neg_1 = neg(x)", "h = relu(neg_1)", "return h"]
    assert all(str(n.loc) == "rule r of <text>:2:9" for n in after.nodes)


def test_outputs_and_other_users_are_honoured() -> None:
    g = f("a = neg(x)", "b = neg(a)", "c = exp(a)", "return a, b, c")
    after = rewrite(g, [DOUBLE_NEG])
    assert lines(after) == ["a = neg(x)", "c = exp(a)", "return a, x, c"]


def test_a_rule_does_not_make_work_for_values_that_stay() -> None:
    """matmul of transposes: with both transposes needed elsewhere it would add a node."""
    rule = Rule("mm", lambda a, b: a.T @ b.T, lambda a, b: (b @ a).T)
    free = f("a = transpose(x)", "b = transpose(y)", "c = matmul(a, b)", "return c")
    kept = f("a = transpose(x)", "b = transpose(y)", "c = matmul(a, b)", "return c, a, b")
    assert [n.op.name for n in rewrite(free, [rule]).nodes] == ["matmul", "transpose"]
    with collecting() as events:
        assert rewrite(kept, [rule]) is kept
    assert [str(e) for e in events] == ["mm at c: a has other users: 2 new nodes for 1"]


def test_failed_matches_are_logged_with_the_reason() -> None:
    rule = Rule("r", lambda x: neg(exp(x)), lambda x: x, when=lambda x: "not today")
    g = f("a = neg(x)", "b = relu(a)", "c = neg(b)", "d = exp(c)", "e = neg(d)", "return e")
    with collecting() as events:
        assert rewrite(g, [rule]) is g
    assert [str(e) for e in events] == [
        "r at a: an input is not exp",
        "r at c: relu is not exp",
        "r at e: not today",
    ]


def test_a_replacement_of_another_type_is_an_error() -> None:
    rule = Rule("mul-one", lambda x: x * 1, lambda x: x)  # without the condition on the type
    g = f("c: f32[1, 2, 2] = const([[[1.0, 1.0], [1.0, 1.0]]])", "a = mul(x, c)", "return a")
    with pytest.raises(PassError, match="rule 'mul-one': the replacement has type") as caught:
        rewrite(g, [rule])
    assert caught.value.code == "MDLC0503"


@pytest.mark.parametrize(
    "rule",
    [
        Rule("hole", lambda x: x, lambda x: x),
        Rule("unknown", lambda x: neg(x), lambda x, y: y),
        Rule("when", lambda x: neg(x), lambda x: x, when=lambda z: True),
        Rule("odd", lambda x: apply("add", x, "text"), lambda x: x),
    ],
    ids=lambda r: r.name,
)
def test_a_malformed_rule_is_an_error(rule: Rule) -> None:
    with pytest.raises(PassError) as caught:
        rewrite(f("a = neg(x)", "return a"), [rule])
    assert caught.value.code == "MDLC0504"


def test_rules_that_undo_each_other_end_with_an_error() -> None:
    swap = Rule("swap", lambda a, b: a + b, lambda a, b: b + a)
    g = f("a = add(x, y)", "return a")
    with pytest.raises(PassError, match="undo each other without end at 'a': swap") as caught:
        rewrite(g, [swap])
    assert caught.value.code == "MDLC0505"
    ping = Rule("ping", lambda x: exp(x), lambda x: relu(x))
    pong = Rule("pong", lambda x: relu(x), lambda x: exp(x))
    with pytest.raises(PassError, match=r"ping, pong|pong, ping"):
        rewrite(f("a = exp(x)", "return a"), [ping, pong])
    grow = Rule("grow", lambda x: exp(x), lambda x: exp(neg(x)))
    with pytest.raises(PassError, match="without end"):
        rewrite(f("a = exp(x)", "return a"), [grow])


def test_a_rule_that_fails_is_named() -> None:
    def fails(x: Any) -> Any:
        raise ZeroDivisionError("no")

    for rule in (
        Rule("bad", lambda x: exp(x), fails),
        Rule("bad", lambda x: exp(x), lambda x: x, when=fails),
        Rule("bad", lambda x: exp(x), lambda x: softmax(x, axis=9)),
    ):
        with pytest.raises(PassError, match="rule 'bad' failed at 'a'") as caught:
            rewrite(f("a = exp(x)", "return a"), [rule])
        assert caught.value.code == "MDLC0506"


def test_a_replacement_may_be_a_number_or_the_match() -> None:
    rule = Rule("zero", lambda x: x - x, lambda root: np.zeros(root.type.dims, np.float32))
    after = rewrite(f("a = sub(x, x)", "return a"), [rule])
    assert lines(after) == ["a = const([[0.0, 0.0], [0.0, 0.0]])", "return a"]
    g = f("a = exp(x)", "return a")
    assert rewrite(g, [Rule("self", lambda x: exp(x), lambda root: root)]) is g


def test_a_rule_may_match_omitted_inputs() -> None:
    gemm = functional("gemm")
    rule = Rule("gemm", lambda a, b: gemm(a, b, None), lambda a, b: a @ b)
    after = rewrite(f("a = gemm(x, y, None)", "return a"), [rule])
    assert [n.op.name for n in after.nodes] == ["matmul"]
    other = f("a = gemm(x, y, y)", "return a")
    assert rewrite(other, [rule]) is other


def test_commutative_ops_match_in_either_order() -> None:
    """Every combination is tried, also one that another input decides later."""
    rule = Rule("r", lambda a, b: a * b + b, lambda a, b: (a + 1) * b)
    for body in ("m = mul(x, y)", "m = mul(y, x)"):
        for total in ("s = add(m, y)", "s = add(y, m)"):
            assert lines(rewrite(f(body, total, "return s"), [rule]))[-2] == "s = mul(add_1, y)"
    ordered = Rule("r", lambda a, b: exp(a) - b, lambda a, b: a)
    g = f("e = exp(x)", "s = sub(y, e)", "return s")
    assert rewrite(g, [ordered]) is g


def test_a_starred_hole_takes_the_inputs_that_are_left() -> None:
    concat = functional("concat")
    seen: list[tuple[str, ...]] = []

    def note(a: int, xs: Any) -> str:
        seen.append(tuple(x.name for x in xs))
        return "only looked"

    rule = Rule("r", lambda a, x, *xs: concat(x, *xs, axis=a), lambda x: x, when=note)
    g = f("a = concat(x, y, x, axis=0)", "b = concat(y, axis=0)", "return a, b")
    assert rewrite(g, [rule]) is g
    assert seen == [("y", "x"), ()]
    two = Rule("r", lambda a, x, y, *xs: concat(x, y, *xs, axis=a), lambda x: x, when=note)
    with collecting() as events:
        rewrite(f("b = concat(y, axis=0)", "return b"), [two])
    assert [str(e) for e in events] == ["r at b: concat has 1 inputs, the pattern 3"]


def test_the_same_starred_hole_is_the_same_inputs() -> None:
    pad = functional("pad")
    rule = Rule("r", lambda x, p, *v: pad(pad(x, *v, pads=p), *v, pads=p), lambda x: neg(x))
    body = "a = pad(x, {0}pads=(0, 0, 0, 0))", "b = pad(a, {1}pads=(0, 0, 0, 0))", "return b"
    one, two = "c: f32[()] = const(1.0)", "d: f32[()] = const(1.0)"
    other = "d: f32[()] = const(2.0)"
    for first, second, given, fits in (
        ("", "", (), True),
        ("c, ", "c, ", (one,), True),
        ("c, ", "d, ", (one, two), True),
        ("c, ", "d, ", (one, other), False),
        ("c, ", "", (one,), False),
    ):
        g = f(*given, *(line.format(first, second) for line in body))
        assert (rewrite(g, [rule]) is not g) == fits, (first, second)


def test_near_matches_what_exporters_round() -> None:
    rule = Rule("r", lambda x: x * near(0.7978845608), lambda x: neg(x))
    for value, fits in (("0.7978846", True), ("0.79788", False), ("-0.7978846", False)):
        g = f(f"c: f32[()] = const({value})", "a = mul(x, c)", "return a")
        assert (rewrite(g, [rule]) is not g) == fits, value


def test_guards_may_ask_what_is_known() -> None:
    rule = Rule("r", lambda x: relu(x), lambda x: x, when=lambda x, facts: facts(x).low >= 0)
    g = f("a = exp(x)", "b = relu(a)", "c = relu(x)", "return b, c")
    assert lines(rewrite(g, [rule])) == ["a = exp(x)", "c = relu(x)", "return a, c"]


def test_benefit_decides_between_rules_that_fit() -> None:
    small = Rule("small", lambda x: exp(x), lambda x: neg(x))
    large = Rule("large", lambda x: exp(x), lambda x: relu(x), benefit=2)
    g = f("a = exp(x)", "return a")
    for rules in ([small, large], [large, small]):
        assert lines(rewrite(g, rules)) == ["a = relu(x)", "return a"]


def test_the_reason_that_is_told_is_that_of_the_longest_match() -> None:
    rule = Rule("r", lambda x: relu(neg(exp(x)) * 2), lambda x: x)
    g = f("c: f32[()] = const(2.0)", "a = neg(x)", "b = mul(a, c)", "d = relu(b)", "return d")
    with collecting() as events:
        rewrite(g, [rule])
    assert [str(e) for e in events] == ["r at d: an input is not exp"]


def test_long_chains() -> None:
    body = [f"a{i} = neg(a{i - 1})" for i in range(1, 2001)]
    g = f("a0 = exp(x)", *body, "return a2000")
    assert len(rewrite(g, [DOUBLE_NEG]).nodes) == 1


def test_rule_sets_are_extension_points() -> None:
    mine = Rule("exp-is-relu", lambda x: exp(x), lambda x: relu(x))
    g = f("a = exp(x)", "b = neg(a)", "c = neg(b)", "return c")
    with (
        extension.counting() as calls,
        extension.use(**{"rules.canonicalize": lambda: (*rules_of("canonicalize"), mine)}),
    ):
        after = Canonicalize()(g)
    assert lines(after) == ["a = relu(x)", "return a"]
    assert calls == {"rules.canonicalize": 1}
    with pytest.raises(OptionError, match="unknown rule set 'canonicalise'") as caught:
        Canonicalize(rules="canonicalise")(g)
    assert caught.value.hint == "did you mean 'canonicalize'?"
