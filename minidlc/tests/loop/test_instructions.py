"""What loops execute, by class: hand-made loops, counted exactly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minidlc.loop.instructions import Body, bodies, total
from minidlc.loop.text import parse_function
from minidlc.target import Target

pytestmark = pytest.mark.ch06
TARGET = Target("x86_64-unknown-linux-gnu", "skylake", "+avx2,+fma", vector_bits=256, registers=16)

TILE = """
def tile(a: f32[4, 64], b: f32[64, 16], y: f32[4, 16]):
    c = alloc(f32[4, 16], "register")
    for i in unrolled(0, 4):
        for jv in unrolled(0, 2):
            for jl in vectorized(0, 8):
                c[i, 8*jv + jl] = 0.0
    for k in serial(0, 64):
        for i in unrolled(0, 4):
            for jv in unrolled(0, 2):
                for jl in vectorized(0, 8):
                    c[i, 8*jv + jl] = c[i, 8*jv + jl] + a[i, k] * b[k, 8*jv + jl]
    for i in unrolled(0, 4):
        for jv in unrolled(0, 2):
            for jl in vectorized(0, 8):
                y[i, 8*jv + jl] = c[i, 8*jv + jl]
"""


def counted(text: str) -> list[Body]:
    return bodies(parse_function(text), TARGET)


def inner(body: str, extent: int = 64, kind: str = "serial") -> Body:
    """The body of one loop over i, of arrays x, z, y."""
    found = counted(f"""
def f(x: f32[64], z: f32[64, 64], y: f32[64]):
    for i in {kind}(0, {extent}):
        {body}
""")
    return found[-1]


def test_a_register_tile() -> None:
    root, body = counted(TILE)
    assert (body.loop, body.iterations, body.trips, body.depth) == ("k", 64, 64, 1)
    assert body.counts["vector"] == 8  # multiply-adds
    assert body.counts["flops"] == 2 * 4 * 16
    assert body.counts["vector_load"] == 2  # of b, shared by four rows
    assert body.counts["broadcast"] == 4  # of a, shared by two vectors
    assert body.instructions == 14
    assert body.live == 8 + 2 + 1  # accumulators, a row of b, an element of a
    assert body.chain == 1
    assert (body.lanes, body.width) == (128, 128)
    assert root.counts["vector_store"] == 8
    assert not root.is_innermost
    assert body.is_innermost


def test_wider_vectors_are_fewer_instructions() -> None:
    wide = replace(TARGET, vector_bits=512, registers=32)
    body = bodies(parse_function(TILE), wide)[1]
    assert body.counts["vector"] == 8  # of eight lanes of sixteen
    assert (body.lanes, body.width) == (128, 256)


def test_what_an_iteration_does_not_change_is_loaded_before() -> None:
    root, body = counted("""
def scaled(x: f32[64], s: f32[1], y: f32[64]):
    for i in serial(0, 64):
        y[i] = x[i] * s[0]
""")
    assert root.counts["scalar_load"] == 1
    assert body.counts["scalar_load"] == 1
    assert total([root, body], "scalar_load") == 65


def test_what_the_loop_stores_is_loaded_inside() -> None:
    _, body = counted("""
def running(x: f32[64], s: f32[1]):
    for i in serial(0, 64):
        s[0] = s[0] + x[i]
""")
    assert body.counts["scalar_load"] == 2
    assert body.counts["scalar_store"] == 1
    assert body.chain == 1


@pytest.mark.parametrize(
    ("statement", "name", "count"),
    [
        ("y[i] = x[i]", "vector_load", 8),
        ("y[i] = x[i]", "vector_store", 8),
        ("y[i] = x[0]", "broadcast", 1),
        ("y[i] = z[i, 0]", "gather", 64),
        ("z[i, 0] = x[i]", "scatter", 64),
        ("y[i] = exp(x[i])", "slow", 8),
        ("y[i] = x[i] / 3.0", "slow", 8),
        ("y[i] = where(x[i] < 0.0, 0.0, x[i])", "select", 16),
        ("y[0] = y[0] + x[i]", "horizontal", 1),
        ("y[i] = x[i] + x[i] * x[i]", "vector", 8),
        ("y[i] = x[i] + x[i] + x[i]", "vector", 16),
    ],
)
def test_classes_of_a_vector_of_64(statement: str, name: str, count: int) -> None:
    assert inner(statement, kind="vectorized").counts[name] == count


@pytest.mark.parametrize(
    ("statement", "name", "count"),
    [
        ("y[i] = x[i] + 1.0", "scalar", 1),
        ("y[i] = x[i] + 1.0", "scalar_load", 1),
        ("y[i] = x[i] + 1.0", "scalar_store", 1),
        ("y[i] = 1.0", "scalar_load", 0),
    ],
)
def test_classes_of_single_elements(statement: str, name: str, count: int) -> None:
    body = inner(statement)
    assert body.counts[name] == count
    assert body.iterations == 64


def test_the_updates_of_one_sum_wait_for_each_other() -> None:
    body = counted("""
def summed(x: f32[16, 4], y: f32[1]):
    c = alloc(f32[1], "register")
    c[0] = 0.0
    for i in serial(0, 16):
        for u in unrolled(0, 4):
            c[0] = c[0] + x[i, u]
    y[0] = c[0]
""")[1]
    assert body.chain == 4


def test_a_test_and_a_prefetch_count_in_every_iteration() -> None:
    found = counted("""
def cut(x: f32[16, 64], y: f32[16, 64]):
    for i in parallel(0, 16):
        for j in serial(0, 64, prefetch={"x": 8}):
            if j - 3 >= 0:
                y[i, j] = x[i, j]
""")
    assert total(found, "branch") == 16 * 64
    assert total(found, "prefetch") == 16 * 64
    assert [b.parallel for b in found] == [1, 16, 16]
