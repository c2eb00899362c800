"""Facts about values: every element that is computed lies in its fact; what the analysis finds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minidlc as mc
from minidlc.expr.types import Array, TensorType
from minidlc.graph import Graph, Node, interpret, parse
from minidlc.support.errors import CompileError
from minidlc.tests.random_graphs import Case, case_of, cases
from minidlc.tests.transform.rule_cases import graph, hostile
from minidlc.transform import Fact, Fuse, Pipeline, analyse, fact_of
from minidlc.transform.dataflow.fact import limits, numbers, of_array, top
from minidlc.transform.dataflow.transfers import TRANSFERS

pytestmark = pytest.mark.ch02


def check_sound(g: Graph, arrays: Sequence[Array], inputs: dict[str, Fact] | None) -> int:
    """Every element lies in its fact; how many facts say something."""
    facts = analyse(g, inputs)
    shown = tuple(n for n in g.nodes if isinstance(n.type, TensorType))
    for node, array in zip(shown, interpret(replace(g, outputs=shown), arrays), strict=True):
        fact = facts[node]
        assert isinstance(fact, Fact)
        assert fact.holds(array), f"{node.op.name} {node.type}: {fact} of {array}"
    return sum(facts[n] != top(n.type.dtype) for n in shown if isinstance(n.type, TensorType))


def check_case(case: Case, seed: int) -> int:
    """With nothing known of the inputs, with their ranges known, with hostile inputs."""
    g = case.graph
    ranges = {i.name: of_array(a) for i, a in zip(g.inputs, case.arrays, strict=True)}
    found = check_sound(g, case.arrays, None) + check_sound(g, case.arrays, ranges)
    arrays = [hostile(i.type, seed) for i in g.inputs]
    ranges = {i.name: of_array(a) for i, a in zip(g.inputs, arrays, strict=True)}
    try:
        interpret(g, arrays)
    except CompileError:  # a position outside its range
        return found
    return found + check_sound(g, arrays, None) + check_sound(g, arrays, ranges)


@pytest.mark.long
@given(cases(), st.integers(0, 99))
def test_facts_of_random_graphs_hold(case: Case, seed: int) -> None:
    check_case(case, 2 * seed + 1)


def test_facts_of_some_random_graphs_hold() -> None:
    """The same on fixed graphs; and the facts are not all empty."""
    assert sum(check_case(case_of(seed), seed) for seed in range(60)) > 100


TABLE: dict[str, tuple[str, Fact]] = {
    "relu": ("y = relu(x)", Fact(0, math.inf, True, True)),
    "square": ("y = mul(x, x)", Fact(0, math.inf, True)),
    "sigmoid": ("y = sigmoid(x)", Fact(0.0, 1.0, True)),
    "softmax": ("y = softmax(x)", Fact(0.0, 1.0, True)),
    "clip": ("y = clip(x, min=-1.0, max=6.0)", Fact(-1.0, 6.0, True, True)),
    "isnan of an integer": ("x: i32[3] | a = cast(x, to=f32); y = isnan(a)", Fact(0, 0)),
    "u8 in f32": ("x: u8[3] | y = cast(x, to=f32)", Fact(0.0, 255.0)),
    "u8 times 2": ("x: u8[3] | c: u8[()] = const(2); y = mul(x, c)", Fact(0, 255)),
    "i32 of u8, times 2": (
        "x: u8[3] | c: i32[()] = const(2); a = cast(x, to=i32); y = mul(a, c)",
        Fact(0, 510),
    ),
    "sum of u8": (
        "x: u8[3, 7] | a = cast(x, to=i32); y = sum(a, axes=(-1,))",
        Fact(0, 7 * 255),
    ),
    "mean of u8": (
        "x: u8[3, 8] | a = cast(x, to=f64); y = mean(a, axes=(1,))",
        Fact(0.0, 255 * (1 + 19 * 2.0**-52)),
    ),
    "dequantized": (
        "x: u8[3] | s = const(0.5); z: u8[()] = const(128); y = dequantize_linear(x, s, z)",
        Fact(-64.0, 63.5, False, True),
    ),
    "arg max": ("x: f32[3, 7] | y = arg_max(x, axis=1)", Fact(0, 6)),
    "compare": ("c = const(-0.5); a = exp(x); y = less(a, c)", Fact(0, 0)),
    "where": ("c = const(2.0); a = isnan(x); d = sigmoid(x); y = where(a, c, d)", Fact(0, 2, True)),
    "unknown op": ("y = cumsum(x, axis=0)", top(mc.f32)),
}


@pytest.mark.parametrize("name", TABLE)
def test_what_is_known(name: str) -> None:
    body, expected = TABLE[name]
    (y,) = graph(body).outputs
    assert fact_of(y) == expected


def test_int8_squares_may_be_negative() -> None:
    """FAULTS 18: a product of integers wraps, so x * x >= 0 does not hold."""
    g = graph("x: i8[5] | y = mul(x, x)")
    assert fact_of(g.outputs[0]).low < 0
    [p] = interpret(g, [np.int8([12, 7, 20, 15, 11])])
    assert p[2] == -112


def test_sums_that_overflow_may_be_nan() -> None:
    g = graph("x: f32[100] | y = sum(x)")
    near = {"x": Fact(-1e30, 1e30)}
    assert analyse(g, near)[g.outputs[0]].finite  # type: ignore[union-attr]
    far = {"x": Fact(-1e38, 1e38)}
    assert analyse(g, far)[g.outputs[0]].nan  # type: ignore[union-attr]


def test_floats_round_outward() -> None:
    """0.1 + 0.2 in each type is inside the fact; so is a sum of many."""
    for element in ("f16", "bf16", "f32", "f64"):
        g = graph(f"c: {element}[()] = const(0.1); d: {element}[()] = const(0.2); y = add(c, d)")
        fact = fact_of(g.outputs[0])
        [array] = interpret(g, [np.zeros((2, 3), np.float32)])
        assert fact.holds(array)
        assert fact.high - fact.low < 2e-3
    g = graph("x: f32[1000] | y = sum(x)")
    tenths = np.full(1000, 0.1, np.float32)
    fact = analyse(g, {"x": of_array(tenths)})[g.outputs[0]]
    assert isinstance(fact, Fact)
    for order in (tenths.cumsum()[-1:], np.sum(tenths)[None], np.float32([100.1])):
        assert fact.holds(order) == (abs(order[0] - 100) < 0.05)


BRANCHES = """\
def f(c: bool[()], x: f32[3]):
    def yes(x: f32[3]):
        a = sigmoid(x)
        return a
    def no(x: f32[3]):
        b = clip(x, min=2.0, max=3.0)
        return b
    y = if_(c, x, then_branch=yes, else_branch=no)
    return y
"""


def test_branches_are_joined() -> None:
    g = parse(BRANCHES)
    assert fact_of(g.outputs[0]) == Fact(0.0, 3.0, True)
    known = analyse(g, {"c": Fact(1, 1)})
    assert known[g.outputs[0]] == Fact(0.0, 1.0, True)


def loop(step: str, init: str = "zero", carried: int = 1, trips: str = "") -> Graph:
    return parse(f"""\
def f(n: i64[()], x: f32[3]):
    zero: f32[3] = const([0.0, 0.0, 0.0])
    def body(i: i64[()], c: bool[()], s: f32[3], x: f32[3]):
        one: f32[()] = const(1.0)
        t = {step}
        return c, t
    y = loop(n, None, {init}, x, body=body, carried={carried}{trips})
    return y
""")


def test_loops_reach_a_fixpoint() -> None:
    """What stays in its range keeps it; what grows is widened, at one end only."""
    assert fact_of(loop("sigmoid(x)").outputs[0]) == Fact(0.0, 1.0, True)
    assert fact_of(loop("maximum(s, s)").outputs[0]) == Fact(0.0, 0.0)
    grows = fact_of(loop("add(s, one)").outputs[0])
    assert (grows.low, grows.high, grows.nan) == (0.0, math.inf, False)
    falls = fact_of(loop("sub(s, one)").outputs[0])
    assert (falls.low, falls.high, falls.nan) == (-math.inf, 0.0, False)


@pytest.mark.parametrize("step", ["add(s, x)", "mul(s, x)", "sub(x, s)", "exp(s)", "neg(s)"])
def test_facts_of_loops_hold(step: str) -> None:
    g = loop(step, init="x")
    for n in (0, 1, 7):
        for x in (np.float32([0, 1, -2]), np.float32([np.nan, np.inf, -0.0])):
            for inputs in (None, {"x": of_array(x)}):
                check_sound(g, [np.array(n), x], inputs)


def test_values_that_follow_each_other_through_a_loop() -> None:
    """Each run moves one value on: the fixpoint needs as many rounds as there are values."""
    names = [f"s{n}" for n in range(12)]
    params = ", ".join(f"{n}: f32[()]" for n in names)
    results = ", ".join(f"y{n}" for n in range(12))
    g = parse(f"""\
def f(x: f32[()]):
    z: f32[()] = const(0.0)
    def body(i: i64[()], c: bool[()], {params}):
        return c, {", ".join([*names[1:], names[0]])}
    {results} = loop(None, None, {"z, " * 11}x, body=body, carried=12, trips=13)
    return y0
""")
    assert fact_of(g.outputs[0]) == top(mc.f32)
    fact = analyse(g, {"x": Fact(-3.0, 5.0)})[g.outputs[0]]
    assert isinstance(fact, Fact)
    assert fact.low <= -3
    assert fact.high >= 5


def test_facts_pass_through_fused_groups() -> None:
    g = graph("a = sigmoid(x); b = exp(a); y = sqrt(b)")
    fused = Fuse()(Pipeline.default(1).run(g)[0])
    assert [n.op.name for n in fused.nodes] == ["fused"]
    assert fact_of(fused.outputs[0]) == fact_of(g.outputs[0])
    assert fact_of(fused.outputs[0]).low >= 0.99


def test_constants() -> None:
    for array in (
        np.float32([1, np.nan]),
        np.int64([2**62, 3]),
        np.bool_([True]),
        np.float16(-0.0),
    ):
        assert of_array(np.asarray(array)).holds(np.asarray(array))
    assert of_array(np.float32([-0.0])).constant is None
    assert of_array(np.float32([2, 2])).constant == 2
    assert of_array(np.zeros((0, 3), np.int8)) == top(mc.i8)
    assert of_array(np.float32([np.nan])).nan


def test_the_lattice() -> None:
    facts = [Fact(0, 1), Fact(-1, 0, True), top(mc.f32), numbers(mc.f32), Fact(5, 5, False, True)]
    for a in facts:
        assert a | a == a
        assert a | top(mc.f32) == top(mc.f32)
        for b in facts:
            assert a | b == b | a
            assert (a | b) | b == a | b


def test_a_fact_can_be_wrong() -> None:
    """`holds` is what the tests rest on: each part of a fact can fail."""
    assert not Fact(0, 1).holds(np.float32([2]))
    assert not Fact(0, 1).holds(np.float32([-1]))
    assert not Fact(0, 1).holds(np.float32([np.nan]))
    assert not Fact(0, 1).holds(np.float32([-0.0]))
    assert Fact(0, 1, True, True).holds(np.float32([np.nan, -0.0, 1]))
    assert not Fact(0, 1).holds(np.float32([np.inf]))


def test_a_long_chain() -> None:
    body = "; ".join(f"a{i} = relu(a{i - 1})" for i in range(1, 3000))
    g = graph(f"a0 = neg(x); {body}; y = abs(a2999)")
    assert fact_of(g.outputs[0]).low == 0


def test_every_transfer_function_is_of_an_op() -> None:
    assert set(TRANSFERS) <= set(mc.ops.registered_ops())


def test_ends_of_types() -> None:
    assert limits(mc.u8) == (0, 255)
    assert limits(mc.i64) == (-(2**63), 2**63 - 1)
    assert limits(mc.f16) == (-math.inf, math.inf)


def test_a_transfer_function_of_an_op_of_ones_own() -> None:
    """One decorated function: guards of rules see through the op."""
    node = graph("y = cumsum(x, axis=0)").outputs[0]
    assert isinstance(node, Node)
    assert fact_of(node) == top(mc.f32)
    TRANSFERS["cumsum"] = lambda node, x: Fact(0.0, 7.0)
    try:
        again = graph("y = cumsum(x, axis=0)").outputs[0]
        assert fact_of(again) == Fact(0.0, 7.0)
    finally:
        del TRANSFERS["cumsum"]
