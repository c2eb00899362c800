"""Which results may lie where an input lies; each refusal shows a loop that would go wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from minidlc.expr.types import TensorType
from minidlc.loop.in_place import in_place
from minidlc.loop.interpret import interpret
from minidlc.loop.text import parse_function
from minidlc.lower import lower_graph
from minidlc.target import Target
from minidlc.tests.random_graphs import Case, cases
from minidlc.transform import Pipeline


def found(body: str, params: str = "x: f32[4], b: f32[4], y: f32[4]") -> dict[str, tuple[str, ...]]:
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return in_place(parse_function(f"def f({params}):\n{lines}\n"))


def test_elements_read_right_before_they_are_written() -> None:
    loop = "for i in serial(0, 4):\n    y[i] = x[i] * 2.0 + b[i]"
    assert found(loop) == {"y": ("x", "b")}
    vectors = (
        "for o in parallel(0, 2):\n    for v in vectorized(0, 2):\n        y[2*o + v] = x[2*o + v]"
    )
    assert found(vectors) == {"y": ("x",)}
    halves = """
for i in serial(0, 2):
    y[i] = x[i]
for i in serial(0, 2):
    y[i + 2] = x[i + 2] + 1.0"""
    assert found(halves) == {"y": ("x",)}


REFUSED = {
    "a flip (FAULTS 126)": """
for i in serial(0, 4):
    y[i] = x[3 - i]""",
    "a shift": """
for i in serial(0, 3):
    y[i] = x[i + 1]
for i in serial(0, 1):
    y[3] = x[0]""",
    "an input that is written": """
for i in serial(0, 4):
    y[i] = x[i]
for i in serial(0, 4):
    x[i] = 0.0""",
    "a store that runs twice": """
for j in serial(0, 2):
    for i in serial(0, 4):
        y[i] = x[i] + 1.0""",
    "blocks that overlap": """
for o in serial(0, 2):
    for i in serial(0, 3):
        y[o + i] = x[o + i]""",
    "a result that is read": """
for i in serial(0, 4):
    y[i] = x[i]
for i in serial(0, 4):
    y[i] = y[i] * 2.0""",
    "a row that the next one reads": """
for o in serial(0, 2):
    for i in serial(0, 2):
        b[i] = x[i]
    for i in serial(0, 2):
        y[2*o + i] = b[i]""",
    "a part of what is read ahead": """
t = alloc(f32[4], "stack")
for i in serial(0, 4):
    t[i] = x[i]
for o in serial(0, 2):
    for i in serial(0, 2):
        y[2*o + i] = t[2*o + i]""",
    "a copy that comes too late": """
t = alloc(f32[4], "stack")
for i in serial(0, 4):
    y[i] = b[i] + 1.0
for i in serial(0, 4):
    t[i] = x[i]""",
    "a test": """
for i in serial(0, 4):
    if i < 4:
        y[i] = x[i]""",
    "a test of a value": """
for i in serial(0, 4):
    if x[0] > 0.0:
        y[i] = b[i]""",
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_read_elsewhere_too(what: str) -> None:
    assert "x" not in found(REFUSED[what]).get("y", ())


def test_the_other_input_may_still_be_overwritten() -> None:
    """A convolution reads around each pixel; what is added to its result only at the pixel."""
    body = """
for i in serial(0, 4):
    y[i] = x[i] + x[i + 1] + b[i]"""
    assert found(body, "x: f32[5], b: f32[4], y: f32[4]") == {"y": ("b",)}


def test_shapes_and_widths_must_agree() -> None:
    loop = 'for i in serial(0, 4):\n    y[i] = cast("f32", x[i])'
    assert found(loop, "x: i32[4], y: f32[4]") == {"y": ("x",)}
    assert found(loop, "x: f64[4], y: f32[4]") == {}
    assert found("for i in serial(0, 4):\n    y[i] = x[i]", "x: f32[5], y: f32[4]") == {}


def test_two_results() -> None:
    body = """
for i in serial(0, 4):
    y[i] = x[i]
    z[i] = b[i]"""
    params = "x: f32[4], b: f32[4], y: f32[4], z: f32[4]"
    assert found(body, params) == {"y": ("x",), "z": ("x", "b")}  # x is read ahead of z
    both = body.replace("b[i]", "x[i]")
    assert found(both, params) == {"z": ("x",)}


def test_what_is_read_ahead() -> None:
    """A sum of all, a row and its sum, a copy: x has been read where y is stored."""
    total = """
s = alloc(f32[()], "register")
s[()] = 0.0
for i in serial(0, 4):
    s[()] = s[()] + x[i]
for i in serial(0, 4):
    y[i] = x[i] / s[()]"""
    assert found(total) == {"y": ("x",)}
    copied = """
t = alloc(f32[4], "stack")
for i in serial(0, 4):
    t[i] = x[i]
for j in serial(0, 4):
    y[j] = t[j]"""
    assert found(copied) == {"y": ("x",)}
    rows = """
for r in parallel(0, 3):
    s = alloc(f32[()], "register")
    s[()] = 0.0
    for i in serial(0, 4):
        s[()] = s[()] + x[r, i]
    for i in serial(0, 4):
        y[r, i] = x[r, i] / s[()]"""
    assert found(rows, "x: f32[3, 4], y: f32[3, 4]") == {"y": ("x",)}
    other_row = rows.replace("s[()] + x[r, i]", "s[()] + x[2 - r, i]")
    assert found(other_row, "x: f32[3, 4], y: f32[3, 4]") == {}


def test_a_result_that_is_read_back() -> None:
    """Adam: the mean lies over the old one, the parameter reads it as it was just stored."""
    body = """
for i in serial(0, 4):
    m2[i] = m[i] * 0.9 + d[i]
    y[i] = x[i] - m2[i]"""
    params = "x: f32[4], m: f32[4], d: f32[4], m2: f32[4], y: f32[4]"
    assert found(body, params) == {"m2": ("m", "d"), "y": ("x", "m", "d")}
    early = """
for i in serial(0, 4):
    y[i] = x[i] - m[i]
    m2[i] = m[i] * 0.9 + d[i]"""
    assert found(early, params) == {"m2": ("x", "m", "d"), "y": ("x",)}
    late = """
for i in serial(0, 4):
    m2[i] = d[i] + 1.0
    y[i] = x[i] - m[i]"""
    assert found(late, params) == {"m2": ("d",), "y": ("x", "m", "d")}


def test_the_last_block_of_a_split_is_shorter() -> None:
    """Five elements in blocks of two; blocks of blocks; and blocks that overlap."""
    params = "x: f32[5], y: f32[5]"
    cut = """
for o in serial(0, 3):
    for v in vectorized(0, min(2, 5 - 2*o)):
        y[2*o + v] = x[2*o + v] + 1.0"""
    assert found(cut, params) == {"y": ("x",)}
    shifted = """
for o in serial(0, 3):
    for v in vectorized(0, 2):
        y[min(2*o, 3) + v] = x[min(2*o, 3) + v] + 1.0"""
    assert found(shifted, params) == {}
    nested = """
for a in serial(0, 2):
    for b in serial(0, min(2, 3 - 2*a)):
        for c in serial(0, min(2, 5 - 4*a - 2*b)):
            y[4*a + 2*b + c] = x[4*a + 2*b + c]"""
    assert found(nested, params) == {"y": ("x",)}


def some(rng: np.random.Generator, type: TensorType) -> np.ndarray:
    """Numbers of a type; integers may be positions, so they are small."""
    drawn = rng.standard_normal if type.dtype.is_float else lambda dims: rng.integers(0, 2, dims)
    return np.array(drawn(type.dims), type.dtype.numpy)


@settings(max_examples=20, deadline=None)
@given(case=cases())
def test_kernels_of_random_graphs_compute_the_same_in_place(case: Case) -> None:
    """Each kernel, scheduled: its result in an array of its own, then in that of an input."""
    graph, _ = Pipeline.default(3).run(case.graph)
    program = lower_graph(
        graph, Target("x86_64", "generic", ""), fast=True, max_bytes=1 << 30,
        workspace_bytes=lambda kernel: 0,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    for kernel in program.kernels:
        pairs = in_place(kernel.loops)
        for y, inputs in pairs.items():
            for x in inputs:
                arrays = {p.name: some(rng, p.type) for p in kernel.loops.params}
                apart = {name: a.copy() for name, a in arrays.items()}
                interpret(kernel.loops, apart)
                arrays[y] = arrays[x].view(arrays[y].dtype)
                interpret(kernel.loops, arrays)
                np.testing.assert_array_equal(arrays[y], apart[y], err_msg=str(kernel.loops))
