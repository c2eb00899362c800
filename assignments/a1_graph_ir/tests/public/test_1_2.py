"""Public tests of 1.2, a topological order."""

from __future__ import annotations

from a1_public import peak, typed

import minidlc as mc
from grader import expect

EXAMPLE = """
def g(x: f32[1]):
    b: f32[100] = expand(x, shape=(100,))
    a: f32[50] = expand(x, shape=(50,))
    s: f32[1] = sum(a, axes=(0,))
    y: f32[100] = add(b, s)
    return y
"""


def test_example(student):
    """The wide array b is made last, when the smaller one is gone already."""
    graph = typed(EXAMPLE)
    got = student.call("1.2", graph)
    expect.equal(got, ["a", "s", "b", "y"], "the order", graph)
    expect.equal(peak(graph, got), 404, "the peak of live bytes", graph)


def test_only_what_is_needed(student):
    """A node that no output needs is not in the list, one that two nodes read is there once."""
    graph = typed("""
def g(x: f32[4]):
    a: f32[4] = relu(x)
    unused: f32[4] = neg(a)
    b: f32[4] = add(a, a)
    c: f32[4] = mul(b, a)
    return c
""")
    expect.equal(student.call("1.2", graph), ["a", "b", "c"], "the order", graph)


def test_ties(student):
    """Where several nodes leave the same bytes alive, the depth-first walk decides."""
    graph = typed("""
def g(x: f32[4]):
    a: f32[4] = relu(x)
    b: f32[4] = neg(x)
    c: f32[4] = exp(x)
    y: f32[4] = add(c, b)
    z: f32[4] = add(y, a)
    return z
""")
    expect.equal(student.call("1.2", graph), ["c", "b", "y", "a", "z"], "the order", graph)


def test_cycle(student):
    """A cycle is refused, and one of its nodes named."""
    one = mc.f32[1]
    nodes = {"a": ["add", ["x", "b"], {}, one], "b": ["relu", ["a"], {}, one]}
    recipe = {"inputs": {"x": one}, "nodes": nodes, "outputs": ["b"]}
    given = "a = add(x, b), b = relu(a), return b"
    raised = expect.refused(student.raises("1.2", recipe), "MDLC0402", given=given)
    named = "'a'" in raised.message or "'b'" in raised.message
    expect.that(named, "no node of the cycle is named", given, "'a' or 'b'", raised.message)


def test_in_the_compiler(student):
    """As the point `toposort` it orders a graph that the compiler makes."""
    graph = typed(EXAMPLE)
    got = student.call("1.2", graph, plugged=True)
    want = typed("""
def g(x: f32[1]):
    a: f32[50] = expand(x, shape=(50,))
    s: f32[1] = sum(a, axes=(0,))
    b: f32[100] = expand(x, shape=(100,))
    y: f32[100] = add(b, s)
    return y
""")
    expect.same_graph(got, want, graph)
