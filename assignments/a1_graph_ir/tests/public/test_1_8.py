"""Public tests of task 1.8, all parts together."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import minidlc as mc
from grader import expect

TASKS = ["1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "1.7"]
MODELS = Path(mc.__file__).parent / "models"
TEXT = """
def f(x: f32[3, 3], y: f32[3, 3]):
    a: f32[3, 3] = x + y * x
    return relu(a @ y), a
"""
FLAT = """
def f(x: f32[3, 3], y: f32[3, 3]):
    e1 = mul(y, x)
    a = add(x, e1)
    e2 = matmul(a, y)
    e3 = relu(e2)
    return e3, a
"""
SOURCE = "def fn(x): return mc.relu(x + x)"


def test_digit(student):
    """The first digit of the box is read right, and every part has run."""
    with np.load(MODELS / "mnist_digits_40.npz") as file:
        digits = dict(file)
    model = (MODELS / "mnist_cntk.onnx").read_bytes()
    calls = [{"x": mc.f32[4, 3]}, {"x": mc.f32[5, 3]}]
    run = student.call("1.8", TASKS, model, digits["x"][0], TEXT, SOURCE, calls, optimise=True)
    expect.equal(int(run["values"][0].argmax()), int(digits["y"][0]), "the digit")
    expect.same_graph(run["parsed"], mc.parse(FLAT), given=TEXT)
    names = [[node.op.name for node in graph.nodes] for graph in run["traced"]]
    expect.equal(names, [["add", "relu"]] * 2, "the ops of the traced graphs", given=SOURCE)
    types = run["traced"][1].input_types()
    expect.equal(types, (mc.f32["s0", 3],), "the types of the second graph", given=SOURCE)
    expect.that(len(run["ran"]) == len(TASKS), "not every part ran", got=run["ran"])
