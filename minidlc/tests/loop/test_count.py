"""Counting what loops state: operations and bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minidlc.expr.nodes import Binary
from minidlc.loop.count import compulsory_bytes, flops
from minidlc.loop.nodes import Store
from minidlc.loop.text import parse_function

GEMM = """
def gemm(A: f32[5, 7], B: f32[7, 8], C: f32[5, 8]):
    for i in parallel(0, 5):
        for j in vectorized(0, 8):
            C[i, j] = 0.0
        for k in serial(0, 7):
            for j in vectorized(0, 8):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]
"""


def test_a_multiply_add_is_two_operations() -> None:
    assert flops(parse_function(GEMM)) == 2 * 5 * 7 * 8


def test_every_parameter_moves_once() -> None:
    assert compulsory_bytes(parse_function(GEMM)) == 4 * (5 * 7 + 7 * 8 + 5 * 8)


def test_a_cut_loop_counts_its_largest_extent() -> None:
    fn = parse_function("""
def f(x: f32[10], y: f32[10]):
    for io in serial(0, 3):
        for ii in serial(0, min(4, 10 - 4*io)):
            y[4*io + ii] = x[4*io + ii] + 1.0
""")
    assert flops(fn) == 12


@pytest.mark.parametrize(
    ("value", "count"),
    [("x[i]", 0), ("exp(x[i])", 1), ("exp(x[i]) * exp(x[i])", 3), ("max(x[i], 0.0) - 1.0", 2)],
)
def test_functions_and_operators_are_one_operation_each(value: str, count: int) -> None:
    fn = parse_function(f"""
def f(x: f32[3], y: f32[3]):
    for i in serial(0, 3):
        y[i] = {value}
""")
    assert flops(fn) == 3 * count


def test_a_shared_expression_is_counted_once_and_quickly() -> None:
    fn = parse_function("""
def f(x: f32[1], y: f32[1]):
    y[0] = x[0] + 1.0
""")
    assert isinstance(fn.body, Store)
    value = fn.body.value
    for _ in range(60):  # a tree of 2 ** 60 nodes, a graph of 61
        value = Binary("+", value, value)
    assert flops(replace(fn, body=replace(fn.body, value=value))) == 61


def test_loops_that_do_not_run_count_nothing() -> None:
    fn = parse_function("""
def f(x: f32[0], y: f32[0]):
    for i in serial(0, 0):
        y[i] = x[i] + 1.0
""")
    assert flops(fn) == 0
    assert compulsory_bytes(fn) == 0
