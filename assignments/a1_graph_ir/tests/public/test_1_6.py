"""Public tests of task 1.6, tracing with guards."""

from __future__ import annotations

import minidlc as mc
from grader import expect

LAYER = """
SCALE = 2.0

def fn(x, y):
    TRACED.append(1)
    return mc.relu(x + y) * SCALE
"""


def types(size):
    """Both parameters of that many rows."""
    return {"x": mc.f32[size, 3], "y": mc.f32[size, 3]}


def test_first_call_and_hit(student):
    """The same types twice: fn runs once, and the graph of the one entry is returned."""
    first, again = student.call("1.6", LAYER, [{"types": types(4)}, {"types": types(4)}])
    expect.equal(first["reasons"], ["first call"], "the reasons of all entries")
    expect.equal([first["runs"], again["runs"]], [1, 0], "how often fn ran in each call")
    expect.equal(again["reasons"], ["first call"], "the reasons of all entries after the hit")
    want = mc.parse("""
def fn(x: f32[4, 3], y: f32[4, 3]):
    a: f32[4, 3] = add(x, y)
    b: f32[4, 3] = relu(a)
    two: f32[()] = const(2.0)
    c: f32[4, 3] = mul(b, two)
    return c
""")
    expect.same_graph(first["graph"], want)
    expect.same_graph(again["graph"], want)


def test_second_size_opens_the_axis(student):
    """The table of the text: sizes 4, 5, 9; then another SCALE."""
    steps = [{"types": types(size)} for size in (4, 5, 9)]
    steps.append({"types": types(9), "do": "SCALE = 3.0"})
    _, second, third, fourth = student.call("1.6", LAYER, steps)
    opened = "x axis 0: 4 → 5; y axis 0: 4 → 5"
    expect.equal(second["reasons"], [opened], "the reasons of all entries", given="4, 5")
    expect.equal(third["runs"], 0, "how often fn ran for the third size", given="4, 5, 9")
    expect.equal(
        third["graph"].input_types(),
        (mc.f32["s0", 3], mc.f32["s0", 3]),
        "the types of the graph for any size",
    )
    expect.equal(
        fourth["reasons"], [opened, "SCALE value: 2.0 → 3.0"], "the reasons of all entries"
    )


def test_element_type_and_rank(student):
    """Another element type and another rank are entries of their own."""
    source = "def fn(x):\n    return mc.exp(x)"
    steps = [{"types": {"x": t}} for t in (mc.f32[4], mc.f64[4], mc.f64[4, 2], mc.f32[4])]
    last = student.call("1.6", source, steps)[-1]
    expect.equal(
        last["reasons"],
        ["first call", "x dtype: f32 → f64", "x rank: 1 → 2"],
        "the reasons of all entries",
        given="x: f32[4], f64[4], f64[4, 2], f32[4]",
    )
    expect.equal(last["graph"].input_types(), (mc.f32[4],), "the types of the last graph")


def test_fn_that_needs_the_number(student):
    """Where tracing with open sizes raises, the sizes stay numbers and the old entry stays."""
    source = "def fn(x):\n    return sum((x * n for n in range(x.shape[0])), 0.0 * x)"
    steps = [{"types": {"x": mc.f32[size]}} for size in (2, 3, 2)]
    _, second, third = student.call("1.6", source, steps)
    reasons = ["first call", "x axis 0: 2 → 3"]
    expect.equal(second["reasons"], reasons, "the reasons of all entries")
    expect.equal(second["graph"].input_types(), (mc.f32[3],), "the types of the second graph")
    expect.equal(third["reasons"], reasons, "the reasons after size 2 came again")
