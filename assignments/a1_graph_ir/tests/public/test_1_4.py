"""Public tests of 1.4, an interpreter that forgets."""

from __future__ import annotations

import numpy as np
import pytest
from a1_public import array, check_broken, typed

from grader import expect

EXAMPLE = """
def g(x: f32[100]):
    a: f32[100] = relu(x)
    b: f32[100] = neg(x)
    c: f32[100] = add(a, x)
    s: f32[1] = sum(c, axes=(0,))
    return c, s
"""


def test_values(student):
    """The outputs in order, from a list of inputs and from a dict."""
    graph, x = typed(EXAMPLE), array([100], start=-50)
    c = np.maximum(x, 0) + x
    for inputs in ([x], {"x": x}):
        got = student.call("1.4", graph, inputs)["outputs"]
        expect.equal(len(got), 2, "the number of outputs", graph)
        expect.close(got[0], c, given=graph)
        expect.close(got[1], c.sum(keepdims=True), given=graph)


def test_observer(student):
    """The observer hears of each needed node, and of the bytes that are held then."""
    graph = typed(EXAMPLE)
    got = student.call("1.4", graph, [array([100])])["seen"]
    expect.equal(got, [["a", 400], ["c", 400], ["s", 404]], "what the observer heard", graph)


def test_own_arrays(student):
    """Outputs are new arrays, also where the graph returns an input, or a value twice."""
    graph = typed("""
def g(x: f32[4]):
    y: f32[2, 2] = reshape(x, shape=(2, 2))
    return x, y, y
""")
    got = student.call("1.4", graph, [array([4])])["own"]
    expect.equal(got, [True, True, True], "which outputs the caller may write into", graph)


@pytest.mark.parametrize(
    ("inputs", "code"),
    [([], "0911"), ({"y": [4]}, "0911"), ([[4], [4]], "0911"), ([[2, 2]], "0913")],
    ids=["none", "unknown_name", "too_many", "shape"],
)
def test_wrong_inputs(student, inputs, code):
    """Inputs that do not fit are a CallError with the code of the rule."""
    graph = typed("def g(x: f32[4]):\n    y: f32[4] = relu(x)\n    return y\n")
    made = {k: array(s) for k, s in inputs.items()} if isinstance(inputs, dict) else None
    arrays = made or [array(shape) for shape in inputs]
    raised = student.raises("1.4", graph, arrays)
    expect.refused(raised, "CallError", given=graph)
    expect.equal(raised.code, f"MDLC{code}", "the code", graph)


def test_wrong_result(student):
    """A result of another type than the node's is refused, and the node named."""
    graph = typed("def g(x: f32[4]):\n    y: f32[4] = relu(x)\n    return y\n")
    check_broken(student, graph, [array([4])], {"relu": "size"}, "'y'")


def test_in_the_compiler(student):
    """As the point `interpret` it gives the meaning of a graph."""
    graph, x = typed(EXAMPLE), array([100], start=-50)
    got = student.call("1.4", graph, [x], plugged=True)["outputs"]
    expect.close(got[0], np.maximum(x, 0) + x, given=graph)
