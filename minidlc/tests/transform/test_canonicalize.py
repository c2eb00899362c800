"""Every rule of the canonical set: where it fits, where not, and the same numbers to the bit."""

# ruff: noqa: E501  (a table reads better with a rule a line)

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import minidlc.ops  # noqa: F401
from minidlc.graph import Graph, interpret, parse, verify
from minidlc.tests.graph.graphs import feeds, graphs
from minidlc.transform import Canonicalize, canonical_rules, collecting, rewrite

pytestmark = pytest.mark.ch02

RULES = {rule.name: rule for rule in canonical_rules()}

# rule -> (a graph it changes, what is left of it, a graph it must not change); x: f32[2, 3]
CASES: dict[str, tuple[str, str, str]] = {
    "add-constant-right": ("c = const(2.0); y = add(c, x)", "add(x, c)", "c = const(2.0); y = add(x, c)"),
    "mul-constant-right": ("c = const(2.0); y = mul(c, x)", "mul(x, c)", "c = const(2.0); y = mul(c, c)"),
    "relu-of-relu": ("a = relu(x); y = relu(a)", "relu(x)", "a = abs(x); y = relu(a)"),
    "abs-of-abs": ("a = abs(x); y = abs(a)", "abs(x)", "a = neg(x); y = abs(a)"),
    "floor-of-floor": ("a = floor(x); y = floor(a)", "floor(x)", "a = ceil(x); y = floor(a)"),
    "ceil-of-ceil": ("a = ceil(x); y = ceil(a)", "ceil(x)", "a = floor(x); y = ceil(a)"),
    "round-of-round": ("a = round(x); y = round(a)", "round(x)", "a = neg(x); y = round(a)"),
    "sign-of-sign": ("a = sign(x); y = sign(a)", "sign(x)", "a = neg(x); y = sign(a)"),
    "add-zero": ("k = cast(x, to=i32); c: i32 = const(0); y = add(k, c)", "cast(x, to=i32)",
                 "c = const(0.0); y = add(x, c)"),
    "add-minus-zero": ("c = const(-0.0); y = add(x, c)", "x", "c = const(0.0); y = add(x, c)"),
    "sub-zero": ("c = const(0.0); y = sub(x, c)", "x", "c = const(-0.0); y = sub(x, c)"),
    "mul-one": ("c = const(1.0); y = mul(x, c)", "x", "c = const(0.0); y = mul(x, c)"),
    "div-one": ("c = const(1.0); y = div(x, c)", "x", "c = const(1.0); y = div(c, x)"),
    "double-neg": ("a = neg(x); y = neg(a)", "x", "a = exp(x); y = neg(a)"),
    "add-neg": ("a = neg(x); b = exp(x); y = add(b, a)", "exp(x) sub(b, x)", "a = neg(x); y = add(a, x)"),
    "sub-neg": ("a = neg(x); b = exp(x); y = sub(b, a)", "exp(x) add(b, x)", "a = neg(x); y = sub(a, x)"),
    "double-not": ("b = less(x, x); a = logical_not(b); y = logical_not(a)", "less(x, x)",
                   "b = less(x, x); y = logical_not(b)"),
    "identity": ("y = identity(x)", "x", "y = relu(x)"),
    "clip-unbounded": ("y = clip(x)", "x", "y = clip(x, min=0.0)"),
    "concat-of-one": ("y = concat(x, axis=1)", "x", "y = concat(x, x, axis=1)"),
    "expand-to-same": ("y = expand(x, shape=(1, 3))", "x", "y = expand(x, shape=(2, 2, 3))"),
    "cast-to-same": ("y = cast(x, to=f32)", "x", "y = cast(x, to=f64)"),
    "flatten-as-reshape": ("y = flatten(x, axis=0)", "reshape(x, shape=(1, 6))", "y = reshape(x, shape=(6,))"),
    "squeeze-as-reshape": ("a = unsqueeze(x, axes=(0,)); y = squeeze(a)", "unsqueeze(x, axes=(0,)) reshape(a, shape=(2, 3))",
                           "y = reshape(x, shape=(6,))"),
    "unsqueeze-as-reshape": ("y = unsqueeze(x, axes=(1,))", "reshape(x, shape=(2, 1, 3))", "y = reshape(x, shape=(6,))"),
    "reshape-to-same": ("y = reshape(x, shape=(-1, 3))", "x", "y = reshape(x, shape=(3, 2))"),
    "reshape-of-reshape": ("a = reshape(x, shape=(6,)); y = reshape(a, shape=(3, -1))", "reshape(x, shape=(3, 2))",
                           "a = transpose(x); y = reshape(a, shape=(6,))"),
    "transpose-nothing": ("y = transpose(x, perm=(0, -1))", "x", "y = transpose(x)"),
    "transpose-of-transpose": (
        "a = reshape(x, shape=(1, 2, 3)); b = transpose(a, perm=(1, 2, 0)); y = transpose(b, perm=(1, 2, 0))",
        "reshape(x, shape=(1, 2, 3)) transpose(a, perm=(2, 0, 1))",
        "a = transpose(x); b = relu(a); y = transpose(b)"),
}  # fmt: skip


def graph(body: str) -> Graph:
    text = body.replace(" = const", ": f32[()] = const").replace(": i32: f32[()]", ": i32[()]")
    return parse("\n    ".join(["def f(x: f32[2, 3]):", *text.split("; "), "return y"]))


def calls(g: Graph) -> str:
    texts = [line.split(" = ")[1] for line in str(g).splitlines() if " = " in line]
    return " ".join(t for t in texts if not t.startswith("const")) or "x"


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == set(RULES)


@pytest.mark.parametrize("name", CASES)
def test_where_a_rule_fits(name: str) -> None:
    body, expected, _ = CASES[name]
    g = graph(body)
    after = rewrite(g, [RULES[name]])
    verify(after)
    assert calls(after) == expected
    check_same_numbers(g, after)


@pytest.mark.parametrize("name", CASES)
def test_where_a_rule_does_not_fit(name: str) -> None:
    g = graph(CASES[name][2])
    assert rewrite(g, [RULES[name]]) is g


@pytest.mark.parametrize("name", ["add-minus-zero", "sub-zero", "mul-one", "div-one"])
def test_a_constant_that_broadcasts_is_kept(name: str) -> None:
    value, op = {"a": (-0.0, "add"), "s": (0.0, "sub"), "m": (1.0, "mul"), "d": (1.0, "div")}[
        name[0]
    ]
    g = parse(f"""\
def f(x: f32[2, 3]):
    c: f32[1, 1, 1] = const([[[{value}]]])
    y = {op}(x, c)
    return y
""")
    with collecting() as events:
        assert rewrite(g, [RULES[name]]) is g
    assert "the type changes from f32[2, 3] to f32[1, 2, 3]" in str(next(iter(events)))


def check_same_numbers(before: Graph, after: Graph) -> None:
    for seed in range(5):
        inputs = feeds(before, seed)
        for a, b in zip(interpret(before, inputs), interpret(after, inputs), strict=True):
            assert a.dtype == b.dtype
            assert np.array_equal(np.isnan(a), np.isnan(b))
            same = (a == b) & (np.signbit(a.astype(float)) == np.signbit(b.astype(float)))
            assert np.all(same | np.isnan(a))


@pytest.mark.long
@given(graphs())
def test_random_graphs_keep_their_numbers_to_the_bit(g: Graph) -> None:
    after = Canonicalize()(g)
    verify(after)
    check_same_numbers(g, after)
    assert Canonicalize()(after) is after


def test_products_with_zero_are_not_folded_on_floats() -> None:
    """FAULTS 33: x * 0 was folded to 0 for floats."""
    for body in (
        "c = const(0.0); y = mul(x, c)",
        "c = const(0.0); y = mul(c, x)",
        "y = sub(x, x)",
        "y = div(x, x)",
    ):
        g = graph(body)
        after = Canonicalize()(g)
        x = np.float32([[np.inf, np.nan, 1], [-np.inf, 0, -1]])
        assert np.array_equal(interpret(g, [x])[0], interpret(after, [x])[0], equal_nan=True)
        assert len(after.nodes) == 1
    [y] = interpret(Canonicalize()(graph("c = const(0.0); y = mul(x, c)")), [x])
    assert np.array_equal(y[0], [np.nan, np.nan, 0], equal_nan=True)


def test_symbolic_shapes() -> None:
    g = parse("""\
def f(x: f32["N", 4]):
    a = flatten(x)
    b = transpose(a)
    c = transpose(b)
    d = identity(c)
    return d
""")
    assert calls(Canonicalize()(g)) == "flatten(x)"
