"""Public tests of task 1.5, a parser for one construct."""

from __future__ import annotations

import pytest

import minidlc as mc
from grader import expect


def same(student, text, flat, weights=None):
    """`text` gives the graph that the shipped parser reads from `flat`."""
    got = student.call("1.5", text, weights or {}, "layer.dlc")
    expect.same_graph(got, mc.parse(flat, weights), given=text)
    return got


def test_example(student):
    """The example of the text: an expression in a line, and one in `return`."""
    same(
        student,
        """
def layer(x: f32[2, 3], w: f32[3, 3], b: f32[3]):
    h: f32[2, 3] = relu(x @ w + b)
    return -h
""",
        """
def layer(x: f32[2, 3], w: f32[3, 3], b: f32[3]):
    e1: f32[2, 3] = matmul(x, w)
    e2: f32[2, 3] = add(e1, b)
    h: f32[2, 3] = relu(e2)
    e3: f32[2, 3] = neg(h)
    return e3
""",
    )


@pytest.mark.parametrize(
    ("expression", "steps"),
    [
        ("a - b - c", ["sub(a, b)", "sub(t0, c)"]),
        ("a + b * c", ["mul(b, c)", "add(a, t0)"]),
        ("relu(a) / tanh(b)", ["relu(a)", "tanh(b)", "div(t0, t1)"]),
    ],
    ids=["left", "precedence", "order"],
)
def test_operators(student, expression, steps):
    """Precedence, associativity and order of evaluation are Python's."""
    head = "def f(a: f32[2], b: f32[2], c: f32[2]):\n"
    lines = [f"    t{n} = {step}\n" for n, step in enumerate(steps)]
    flat = head + "".join(lines) + f"    return t{len(steps) - 1}"
    same(student, f"{head}    y: f32[2] = {expression}\n    return y", flat)


def test_attributes_and_constants_stay(student):
    """`axis=-1` and the elements of a constant are no expressions."""
    same(
        student,
        """
def f(x: f32[2, 3], y: f32[2, 3]):
    c: f32[3] = const([-1.0, 0.0, 2.5])
    p: f32[2, 3] = softmax(x * y, axis=-2)
    return p + c
""",
        """
def f(x: f32[2, 3], y: f32[2, 3]):
    c: f32[3] = const([-1.0, 0.0, 2.5])
    m: f32[2, 3] = mul(x, y)
    p: f32[2, 3] = softmax(m, axis=-2)
    s: f32[2, 3] = add(p, c)
    return s
""",
    )


def test_flat_text(student):
    """Text without expressions means what it meant: order, and lines that nobody reads."""
    text = """
def f(x: f32[2, 4]):
    unused: f32[2, 4] = exp(x)
    v: f32[2, 2]; i: i64[2, 2]; v, i = topk(x, k=2)
    y: f32[2, 2] = relu(v)
    return y, i
"""
    same(student, text, text)


def test_place_of_an_error(student):
    """A piece that is no expression: MDLC0314 at file, line and column of the piece."""
    text = "def f(x: f32[2], y: f32[2]):\n    a: f32[2] = relu(x)\n    return a + y[0]\n"
    raised = student.raises("1.5", text, {}, "layer.dlc")
    raised = expect.refused(raised, "MDLC0314", given=text)
    expect.equal(raised.place, "layer.dlc:3:16", "the place", given=text)
