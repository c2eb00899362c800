"""Hidden tests of task 1.8, all parts together."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import minidlc as mc
from grader import expect

MODELS = Path(mc.__file__).parent / "models"
PARTS = {  # task -> where its part runs, and what it is called
    "1.1": ("type_rule.add", "add_type"),
    "1.2": ("toposort", "order_nodes"),
    "1.3": ("verify", "find_faults"),
    "1.4": ("interpret", "run_lean"),
    "1.5": ("parse", "parse_expressions"),
    "1.6": ("trace", "trace_guarded"),
    "1.7": ("onnx.Reshape", "import_reshape"),
}
TASKS = list(PARTS)


def random_program(rng, own):
    """A text (with expressions where the parser is one's own), a function, and types of calls."""
    ops = rng.permutation(["relu", "tanh", "neg", "exp"])
    a, b, c = (str(name) for name in rng.permutation(["x", "y", "z"]))
    lines = [
        f"t0 = mul({a}, {b})",
        f"t1 = {ops[0]}({c})",
        "t2 = add(t0, t1)",
        f"s = sum({c}, axes=(0,))",
        "t3 = matmul(t2, t2)",
        "t4 = sub(t3, s)",
    ]
    result = "t4, t2"
    if "1.5" in own:
        lines = [
            f"h = {a} * {b} + {ops[0]}({c})",
            f"s = sum({c}, axes=(0,))",
        ]
        result = "h @ h - s, h"
    head = "def f(x: f32[4, 4], y: f32[4, 4], z: f32[4, 4]):\n"
    text = head + "".join(f"    {line}\n" for line in lines) + f"    return {result}\n"
    source = f"K = {rng.integers(2, 9)}.0\n\ndef fn(x, y):\n    return mc.{ops[1]}(x + y) * K + y\n"
    sizes = [int(n) for n in rng.permutation(np.arange(2, 30))[:3]]
    calls = [{"x": mc.f32[n, 4], "y": mc.f32[n, 4]} for n in sizes]
    return text, source, calls


@lru_cache(maxsize=1)
def images():
    """40 images "x" and their digits "y"."""
    with np.load(MODELS / "mnist_digits_40.npz") as digits:
        return dict(digits)


@lru_cache(maxsize=len(PARTS))
def classifier(parts, optimise):
    """The digit classifier with these parts (point, function): loaded, and optimised if asked."""
    with mc.use(**dict(parts)):
        loaded = mc.load_onnx((MODELS / "mnist_cntk.onnx").read_bytes())
        return loaded, mc.Pipeline.default().run(loaded)[0] if optimise else None


def expected(reference, own, text, source, calls):
    """The same run with the reference's parts."""
    parts = {point: getattr(reference, name) for point, name in map(PARTS.get, own)}
    space = {"mc": mc, "__name__": "program"}
    exec(source, space)
    loaded, optimised = classifier(tuple(parts.items()), own == TASKS)
    with mc.use(**parts):
        graphs = [mc.trace(space["fn"], **given) for given in calls]
        own_text = mc.parse(text)
    return {"loaded": loaded, "optimised": optimised, "parsed": own_text, "traced": graphs}


def whole_run(student, reference, rng, own):
    """The run, compared graph by graph; returns it, and what was asked."""
    text, source, calls = random_program(rng, own)
    digits = images()
    number = int(rng.integers(len(digits["x"])))
    model = (MODELS / "mnist_cntk.onnx").read_bytes()
    optimise = own == TASKS
    run = student.call("1.8", own, model, digits["x"][number], text, source, calls, optimise)
    want = expected(reference, own, text, source, calls)
    what = f"own parts: {', '.join(own)}"
    expect.same_graph(run["loaded"], want["loaded"], given=f"the digit classifier; {what}")
    if optimise:
        expect.same_graph(run["optimised"], want["optimised"], given=f"optimised; {what}")
    expect.same_graph(run["parsed"], want["parsed"], given=f"{text}\n{what}")
    expect.equal(len(run["traced"]), len(calls), "the number of traced graphs", given=what)
    for got, wanted, types in zip(run["traced"], want["traced"], calls, strict=True):
        given = f"{source}\nx: {types['x']}, y: {types['y']}; {what}"
        expect.same_graph(got, wanted, given=given)
    ran = {task: run["ran"].get(PARTS[task][0], 0) for task in own}
    lazy = [task for task, count in ran.items() if not count]
    expect.that(not lazy, f"parts that did not run: {', '.join(lazy)}", given=what, got=ran)
    expect.equal(int(run["values"][0].argmax()), int(digits["y"][number]), "the digit", given=what)
    return run, want


@pytest.mark.points(3)
@pytest.mark.parametrize("count", [3, 6])
def test_own_parts_up_to(student, reference, rng, count):
    """Your first parts with the shipped ones for the rest: the same graphs, the right digit."""
    whole_run(student, reference, rng, TASKS[:count])


@pytest.mark.points(6)
def test_all_parts(student, reference, rng):
    """All seven parts in one run: graphs as the rules say, the digit, the numbers."""
    run, want = whole_run(student, reference, rng, TASKS)
    x, y, z = (rng.normal(size=(4, 4)).astype(np.float32) for _ in range(3))
    values = student.evaluate(run["parsed"], [x, y, z])
    for got, exact in zip(values, mc.interpret(want["parsed"], [x, y, z]), strict=True):
        expect.close(got, exact, given=str(want["parsed"]))
    dims = [t.shape if t.is_static else (5, 4) for t in want["traced"][2].input_types()]
    x, y = (rng.normal(size=shape).astype(np.float32) for shape in dims)
    values = student.evaluate(run["traced"][2], [x, y])
    for got, exact in zip(values, mc.interpret(want["traced"][2], [x, y]), strict=True):
        expect.close(got, exact, given=str(want["traced"][2]))
    image = images()["x"][3]
    [scores] = student.evaluate(run["optimised"], [image])
    expect.close(scores, mc.interpret(want["loaded"], [image])[0], tolerance=1e-4)
