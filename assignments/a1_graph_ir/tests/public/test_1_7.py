"""Public tests of task 1.7, an op whose attribute became an input."""

from __future__ import annotations

from a1_models import model

import minidlc as mc
from grader import expect


def reshape(**attributes):
    """The node y = Reshape(x, shape)."""
    return ("Reshape", ["x", "shape"], ["y"], attributes)


def test_copied_sizes_cancel(student):
    """The first two rows of the table: [0, -1, 3] of f32[2, 6, 4] and of f32["N", 6, 4]."""
    for dims, x, shape in (
        ((2, 6, 4), "2, 6, 4", (2, 8, 3)),
        (("N", 6, 4), '"N", 6, 4', (-1, 8, 3)),
    ):
        got = student.call("1.7", model(dims, [reshape()], constants={"shape": [0, -1, 3]}))
        text = f"def g(x: f32[{x}]):\n    y = reshape(x, shape={shape})\n    return y"
        expect.same_graph(got, mc.parse(text), given=f"x: f32[{x}], target [0, -1, 3]")


def test_attribute_at_a_new_opset(student):
    """The target as an attribute, at opset 18."""
    node = ("Reshape", ["x"], ["y"], {"shape": [4, -1]})
    got = student.call("1.7", model((2, 6), [node]))
    text = "def g(x: f32[2, 6]):\n    y = reshape(x, shape=(4, 3))\n    return y"
    expect.same_graph(got, mc.parse(text), given="x: f32[2, 6], attribute shape [4, -1]")


def test_input_that_is_computed(student):
    """The target is the sum of two initializers."""
    nodes = [("Add", ["a", "b"], ["shape"], {}), reshape()]
    got = student.call("1.7", model((2, 6), nodes, constants={"a": [1, 1], "b": [2, 3]}))
    text = "def g(x: f32[2, 6]):\n    y = reshape(x, shape=(3, 4))\n    return y"
    expect.same_graph(got, mc.parse(text), given="x: f32[2, 6], target [1, 1] + [2, 3]")


def test_two_targets(student):
    """Attribute and input differ: MDLC0115, and the message says both."""
    given = model((2, 3), [reshape(shape=[2, 3])], constants={"shape": [3, 2]})
    words = ["attribute shape (2, 3) and input shape (3, 2) differ"]
    raised = student.raises("1.7", given)
    expect.refused(raised, "MDLC0115", words, given="attribute [2, 3], input [3, 2]")
