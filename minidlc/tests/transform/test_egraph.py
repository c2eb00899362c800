"""The e-graph, and the pass `saturate`: what becomes equal, what is chosen, and where it ends."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minidlc.ops  # noqa: F401  fills the registry
from minidlc.expr.types import bool_, f32, i32, i64
from minidlc.graph import Constant, Graph, Input, apply, interpret, parse, verify
from minidlc.support.errors import OptionError, PassError
from minidlc.support.locations import steps
from minidlc.tests.random_graphs import Case, cases
from minidlc.transform import Rule, collecting, parse_pipeline, rewrite, rules_of
from minidlc.transform.egraph import (
    COSTS,
    EGraph,
    Saturate,
    choose,
    graph_cost,
    grow,
    matches,
    reverse,
)
from minidlc.transform.egraph.saturate import both_ways

pytestmark = pytest.mark.ch02

WORK, NODES = COSTS["work"], COSTS["nodes"]


def rule_named(name: str) -> Rule:
    return next(r for r in both_ways(rules_of("algebra")) if r.name == name)


def graph_of(make, **types) -> Graph:
    """The graph of a function; its outputs are called y, or y0, y1."""
    inputs = [Input(name, type) for name, type in types.items()]
    made = make(*inputs)
    made = made if isinstance(made, tuple) else (made,)
    named = [replace(v, name="y" if len(made) == 1 else f"y{n}") for n, v in enumerate(made)]
    return Graph.of("g", inputs, named)


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


# ---- the e-graph


def test_an_e_node_is_stored_once():
    x = Input("x", f32[3])
    e = EGraph()
    assert e.add(apply("relu", x)) == e.add(apply("relu", x))
    assert e.add(x * 2.0) == e.add(x * 2.0)  # two constants of the same bytes
    assert e.add(x * 2.0) != e.add(x * -2.0)
    assert e.count == 6  # x, relu, 2, x * 2, -2, x * -2


def test_attributes_order_and_element_type_keep_values_apart():
    x = Input("x", f32[3, 3])
    e = EGraph()
    different = [
        apply("softmax", x, axis=0), apply("softmax", x, axis=1), x - 1.0, 1.0 - x,
        apply("cast", x, to="f16"), apply("cast", x, to="f64"), Input("x", f32[3, 3]),
        Constant("c", np.zeros((), np.float32)), Constant("c", -np.zeros((), np.float32)),
    ]  # fmt: skip
    assert len({e.add(v) for v in different}) == len(different)


def test_equal_inputs_make_equal_results_all_the_way_up():
    x, y = Input("x", f32[3]), Input("y", f32[3])
    a, b = (apply("exp", apply("relu", v) + 1.0) for v in (x, y))
    e = EGraph()
    first, second = e.add(a), e.add(b)
    assert e.union(e.add(x), e.add(y))
    assert e.find(first) != e.find(second)  # not yet
    e.rebuild()
    assert e.find(first) == e.find(second)
    assert len(e.classes) == 5  # x, relu, 1, +, exp
    assert not e.union(first, second)


def test_both_inputs_become_equal_to_others_at_once():
    a, b, c, d = (Input(n, f32[3]) for n in "abcd")
    e = EGraph()
    left, right = e.add(a * b), e.add(c * d)
    e.union(e.add(a), e.add(c))
    e.union(e.add(b), e.add(d))
    e.rebuild()
    assert e.find(left) == e.find(right)


def test_a_value_equal_to_what_is_computed_from_it():
    x = Input("x", f32[3])
    y = apply("relu", x)
    e = EGraph()
    e.union(e.add(apply("relu", y)), e.add(y))
    e.rebuild()
    z = apply("relu", apply("relu", apply("relu", y)))
    assert e.find(e.add(z)) == e.find(e.add(y))
    choice = choose(e, NODES)
    assert choice.costs[e.find(e.add(z))] == 1  # relu(x), not relu of itself


def test_values_of_two_types_are_never_one():
    e = EGraph()
    a, b = e.add(Input("a", f32[3])), e.add(Input("b", f32[4]))
    with pytest.raises(AssertionError, match="different types"):
        e.union(a, b)


def test_a_constant_stands_for_its_class():
    x, c = Input("x", f32[3]), Constant("c", np.ones(3, np.float32))
    for pair in ((x, c), (c, x)):
        e = EGraph()
        many = [e.add(apply("relu", pair[0])), e.add(apply("exp", pair[0]))]
        e.union(*map(e.add, pair))
        e.rebuild()
        assert len(many) == 2
        assert e.classes[e.find(e.add(x))].value is c


# ---- rules


def test_a_pattern_finds_forms_that_were_never_in_one_program():
    x, y = Input("x", f32[3]), Input("y", f32[3])
    e = EGraph()
    e.add(-y)
    rule = Rule("double-neg", lambda x: apply("neg", apply("neg", x)), lambda x: x)
    assert matches(e, rule) == []
    e.union(e.add(y), e.add(-x))  # so -y is -(-x), which nobody wrote
    e.rebuild()
    (match,) = matches(e, rule)
    assert match.bindings["x"] is x
    assert match.replacement() is x


def test_which_rules_can_be_read_backwards():
    assert rule_named("factor reversed").root.op == "mul"
    reasons = {
        "identity": "its replacement is no op of all its holes",
        "concat-of-one": "it forgets a",
        "mul-one": "it asks for the match as a whole",
        "transpose-of-transpose": "its replacement is no pattern",
    }
    for rule in rules_of("canonicalize"):
        if rule.name in reasons:
            assert str(reverse(rule)).startswith(reasons.pop(rule.name))
    assert not reasons


def test_an_unsound_rule_is_rejected_by_shape():
    """x * c may be larger than x; a rewriter would raise, an e-graph leaves that match out."""
    rule = Rule("mul-anything", lambda x, c: x * c, lambda x, c: x)
    g = graph_of(lambda x, c, d: (x * c, x * d), x=f32[3], c=f32[2, 3], d=f32[3])
    e = EGraph()
    y, z = map(e.add, g.outputs)
    with collecting() as events:
        assert grow(e, [rule]) == "saturated"
    assert e.find(y) != e.find(e.add(g.inputs[0]))
    assert e.find(z) == e.find(e.add(g.inputs[0]))  # of the same type: shapes prove no more
    assert "mul-anything at y0: unsound: f32[2, 3] would become f32[3]" in map(str, events)


def test_a_replacement_without_a_type_is_left_out():
    """(a + b) @ c needs a and b of shapes that broadcast; no condition says so here."""
    rule = Rule("swap", lambda a, b: a @ b, lambda a, b: b @ a)
    g = graph_of(lambda a, b: a @ b, a=f32[2, 3], b=f32[3, 4])
    with collecting() as events:
        assert grow_of(g, [rule]) == "saturated"
    (text,) = map(str, events)
    assert text.startswith(
        "swap at y: its replacement has no type: matmul: inner dimensions differ"
    )


def test_a_rule_that_fails_is_an_error_with_its_name():
    rule = Rule("odd", lambda x: x + x, lambda x: {}["no"])
    with pytest.raises(PassError, match="rule 'odd' failed at 'y'") as caught:
        grow_of(graph_of(lambda x: x + x, x=f32[3]), [rule])
    assert caught.value.code == "MDLC0506"


def test_matrix_products_regroup_only_where_that_holds():
    """(A v) C is a row, A (v C) another vector; of one size, so only a condition tells."""
    g = graph_of(lambda a, v, c: (a @ v) @ c, a=f32[3, 3], v=f32[3], c=f32[3, 3])
    with collecting() as events:
        assert Saturate()(g) is g
    assert any("is a vector: a row on one side" in str(e) for e in events)


def grow_of(graph: Graph, rules: list[Rule], **bounds: int) -> str:
    e = EGraph()
    for value in graph.outputs:
        e.add(value)
    return grow(e, rules, **bounds)


# ---- bounds

FIVE = {name: i32[3] for name in "abcde"}


@pytest.mark.long
def test_it_ends_at_a_bound_and_says_at_which():
    g = graph_of(lambda a, b, c, d, e: a + b + c + d + e, **FIVE)
    rules = [rule_named("add-commutes"), rule_named("add-associates")]
    assert grow_of(g, rules, max_nodes=40) == "40 e-nodes are enough"
    assert grow_of(g, rules, max_rounds=2) == "2 rounds are enough"
    # every sum of at least two of five, split in two parts, either first: 3**5 - 2 * 2**5 + 1
    e = EGraph()
    e.add(g.outputs[0])
    assert grow(e, rules) == "saturated"
    assert sum(len(c.nodes) for c in e.classes.values()) == 5 + 3**5 - 2 * 2**5 + 1
    assert len(e.classes) == 2**5 - 1


@pytest.mark.long
def test_a_rule_with_too_many_matches_rests_and_the_others_go_on():
    g = graph_of(lambda a, b, c, d, e: a + b + c + (e + e), **FIVE)
    rules = [rule_named("add-commutes"), rule_named("add-associates"), rule_named("double")]
    e = EGraph()
    y = e.add(g.outputs[0])
    grow(e, rules, max_matches=3, max_rounds=2)  # commutes has four matches
    found = {n.value.op.name for c in e.classes.values() for n in c.nodes if n.children}
    assert found == {"add", "mul"}
    assert len(e.classes[e.find(y)].nodes) < 10
    assert grow(e, rules, max_matches=3) == "saturated"  # in the end
    assert len(e.classes[e.find(y)].nodes) > 10


def test_limit_counts_what_is_made_equal():
    g = graph_of(lambda a, b, c: (a @ b) @ c, a=f32[4, 99], b=f32[99, 99], c=f32[99])
    after, (record,) = parse_pipeline("saturate").run(g)
    assert after is not g
    assert [r.rule for r in record.done] == ["matmul-chain"]
    assert parse_pipeline("saturate{limit=0}").run(g)[0] is g
    g = graph_of(lambda a, b, c, *_: a + b + c, **FIVE)
    _, (record,) = parse_pipeline("saturate{limit=2}").run(g)
    assert len(record.done) == 2


# ---- what is chosen

SCALED = """
def f(x: f32[256, 64], s: f32[()], v: f32[64, 16], q: f32[8, 512], k: f32[512, 4]):
    a: f32[256, 64] = mul(x, s)
    y: f32[256, 16] = matmul(a, v)
    b: f32[8, 512] = mul(q, s)
    z: f32[8, 4] = matmul(b, k)
    return y, z
"""


def test_two_orders_of_rules_end_at_two_costs_and_the_e_graph_below_both():
    """A scale belongs where the tensor is smallest: that is v in one product, the result in one."""
    g = parse(SCALED)
    out, right = rule_named("scale-left"), Rule(
        "scale-across", lambda x, w, s: (x * s) @ w, lambda x, w, s: x @ (w * s)
    )  # fmt: skip
    first, second = rewrite(g, (out, right)), rewrite(g, (right, out))
    best = Saturate()(g)
    costs = [graph_cost(h, WORK) for h in (first, second, best)]
    assert costs[2] < costs[1] < costs[0] < graph_cost(g, WORK)
    assert (
        str(best)
        == """
def f(x: f32[256, 64], s: f32[()], v: f32[64, 16], q: f32[8, 512], k: f32[512, 4]):
    mul_1: f32[64, 16] = mul(v, s)
    y: f32[256, 16] = matmul(x, mul_1)
    matmul_1: f32[8, 4] = matmul(q, k)
    z: f32[8, 4] = mul(matmul_1, s)
    return y, z
""".strip("\n")
    )
    same_answer(g, best, rtol=1e-5)
    assert steps(best.nodes[1].loc)[0].startswith("rule scale")
    assert Saturate()(best) is best


def test_the_cost_function_decides():
    g = graph_of(lambda a, b, c: (a @ b) @ c, a=f32[9, 99], b=f32[99, 99], c=f32[99])
    assert Saturate(cost="nodes")(g) is g  # two either way
    assert [n.type for n in Saturate(cost="work")(g).nodes] == [f32[99], f32[9]]
    with pytest.raises(OptionError, match="unknown cost 'bytes'") as caught:
        Saturate(cost="bytes")(g)
    assert caught.value.code == "MDLC1015"


def test_what_depends_on_constants_is_free():
    """(x @ w) * 0.5 costs a pass over the result, x @ (w * 0.5) nothing once w * 0.5 is folded."""
    w = Constant("w", np.ones((64, 64), np.float32))
    x = Input("x", f32[4, 64])
    g = Graph.of("g", [x], [(x @ w) * 0.5])
    after = Saturate()(g)
    assert names(after) == ["mul", "matmul"]
    assert graph_cost(after, NODES) == 1


def test_a_chain_of_products_gets_the_best_order():
    """The costs of matrix chains by dynamic programming (CLRS 14.2), all orders in one e-graph."""
    rng = random.Random(3)
    for _ in range(5):
        sizes = [rng.choice([2, 8, 32, 128]) for _ in range(7)]
        values = [Input(f"m{i}", f32[a, b]) for i, (a, b) in enumerate(itertools.pairwise(sizes))]
        product = values[0]
        for v in values[1:]:
            product = product @ v
        e = EGraph()
        root = e.add(product)
        chains = [rule_named("matmul-chain"), rule_named("matmul-chain reversed")]
        assert grow(e, chains) == "saturated"
        assert choose(e, WORK).costs[e.find(root)] == pytest.approx(best_chain(sizes))


def best_chain(sizes: list[int]) -> float:
    """The smallest cost of the product of matrices sizes[i] x sizes[i + 1]."""
    count = len(sizes) - 1
    best = {(i, i + 1): 0.0 for i in range(count)}
    for length in range(2, count + 1):
        for i in range(count - length + 1):
            j = i + length
            best[i, j] = min(
                best[i, k] + best[k, j] + product_cost(sizes[i], sizes[k], sizes[j])
                for k in range(i + 1, j)
            )
    return best[0, count]


def product_cost(m: int, k: int, n: int) -> float:
    return 1 + 4 * (m * k + k * n + m * n) + 2 * m * k * n / 8


def test_outputs_names_other_users_and_effects_stay():
    g = parse("""
def f(x: f32[8, 64], a: f32[64, 64], v: f32[64]):
    p: f32[8, 64] = matmul(x, a)
    q: f32[8] = matmul(p, v)
    r: f32[8, 64] = exp(p)
    return q, x, r, q
""")
    assert Saturate()(g) is g  # p is read: the other order would compute both
    h = parse("""
def f(x: f32[8, 64], a: f32[64, 64], v: f32[64]):
    p: f32[8, 64] = matmul(x, a)
    q: f32[8] = matmul(p, v)
    return q, x, q
""")
    after = Saturate()(h)
    assert [o.name for o in after.outputs] == ["q", "x", "q"]
    assert after.outputs[0] is after.outputs[2]
    assert [n.name for n in after.nodes] == ["matmul", "q"]
    same_answer(h, after, rtol=1e-4)


def test_it_reaches_bodies():
    i, c = Input("i", i64[()]), Input("c", bool_[()])
    x, a = Input("x", f32[8, 64]), Input("a", f32[64, 64])
    v = Input("v", f32[64])
    y = apply("unsqueeze", (x @ a) @ v, axes=(1,)) + x
    body = Graph.of("body", [i, c, x, a, v], [c, y])
    x, a, v = Input("x", f32[8, 64]), Input("a", f32[64, 64]), Input("v", f32[64])
    loop = apply("loop", None, None, x, a, v, body=body, carried=1, trips=2)
    g = Graph.of("g", [x, a, v], [loop])
    after = Saturate()(g)
    assert after.nodes[0].op.body.nodes[0].type == f32[64]
    same_answer(g, after, rtol=1e-3)


# ---- answers stay


def same_answer(before: Graph, after: Graph, rtol: float = 0.0) -> None:
    verify(after)
    rng = np.random.default_rng(7)
    arrays = [rng.uniform(0.5, 1.5, i.type.dims).astype(i.type.dtype.numpy) for i in before.inputs]
    pairs = zip(interpret(before, arrays), interpret(after, arrays), strict=True)
    for a, b in pairs:
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=rtol)


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(cases())
def test_exact_rules_keep_every_bit_of_random_graphs(case: Case):
    after = Saturate("canonicalize", cost="nodes", max_nodes=300)(case.graph)
    verify(after)
    assert len(after.nodes) <= len(case.graph.nodes)
    case.check(interpret(after, case.arrays), interpret(case.graph, case.arrays))


@st.composite
def integer_graphs(draw: st.DrawFn) -> Graph:
    """Sums, products and negations of i32 matrices: modulo 2**32 every law of algebra is exact."""
    inputs = [Input(n, i32[4, 4]) for n in "abc"]
    values = list(inputs)
    for _ in range(draw(st.integers(2, 9))):
        op = draw(st.sampled_from(["add", "mul", "matmul", "neg", "transpose", "scale"]))
        x, y = (draw(st.sampled_from(values[-4:])) for _ in "xy")
        match op:
            case "neg" | "transpose":
                values.append(apply(op, x))
            case "scale":
                values.append(x * draw(st.integers(-3, 3)))
            case _:
                values.append(apply(op, x, y))
    return Graph.of("g", inputs, [values[-1], values[-2]])


@pytest.mark.long
@settings(max_examples=12, deadline=None)
@given(integer_graphs())
def test_the_laws_hold_to_the_bit_on_integers(graph: Graph):
    for cost in COSTS:
        after = Saturate(cost=cost, max_nodes=150)(graph)
        verify(after)
        assert graph_cost(after, COSTS[cost]) <= graph_cost(graph, COSTS[cost])
        rng = np.random.default_rng(1)
        arrays = [rng.integers(-(2**31), 2**31, (4, 4), dtype=np.int32) for _ in graph.inputs]
        for a, b in zip(interpret(graph, arrays), interpret(after, arrays), strict=True):
            np.testing.assert_array_equal(a, b)
