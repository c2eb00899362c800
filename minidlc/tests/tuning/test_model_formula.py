"""The analytic model explains itself: terms of hand-made loops, counted; a table that adds up."""

from __future__ import annotations

import numpy as np
import pytest

from minidlc.loop.nodes import LoopFunction
from minidlc.loop.text import parse_function
from minidlc.target import Target
from minidlc.tests.tuning.kernels import product, task_of
from minidlc.tuning.model import Explanation, analytic, explain, loop_features
from minidlc.tuning.problem import Samples

pytestmark = pytest.mark.ch06
TARGET = Target("x86_64-unknown-linux-gnu", "skylake", "+avx2,+fma", vector_bits=256, registers=16)


def over_k(statement: str, copies: int = 1) -> LoopFunction:
    """`statement` for every u of `copies` and lane l, 64 times."""
    return parse_function(f"""
def f(x: f32[64, {copies}, 8], s: f32[64], y: f32[{copies}, 8]):
    c = alloc(f32[{copies}, 8], "register")
    for u in unrolled(0, {copies}):
        for l in vectorized(0, 8):
            c[u, l] = 0.0
    for k in serial(0, 64):
        for u in unrolled(0, {copies}):
            for l in vectorized(0, 8):
                {statement}
    for u in unrolled(0, {copies}):
        for l in vectorized(0, 8):
            y[u, l] = c[u, l]
""")


def cycles(e: Explanation) -> dict[str, float]:
    return {row.term: row.cycles for row in e.rows}


def test_one_sum_waits_four_sums_do_not() -> None:
    """An update needs half a cycle and its load as much; its result is there after four."""
    one = cycles(explain(over_k("c[u, l] = c[u, l] + x[k, u, l]"), TARGET))
    assert one["arithmetic"] == 64 / 2
    assert one["waiting"] == 64 * (4 - 1 / 2)
    many = cycles(explain(over_k("c[u, l] = c[u, l] + x[k, u, l]", copies=8), TARGET))
    assert many["arithmetic"] == 64 * 8 / 2
    assert "waiting" not in many


def test_loads_count_as_far_as_arithmetic_does_not_hide_them() -> None:
    stores = 8.0  # of y, after the loop: one a cycle, with nothing beside them
    for value, each in (
        ("c[u, l] + x[k, u, l]", 0.0),  # a load beside a sum
        ("max(x[k, u, l], x[63 - k, u, l])", 8 / 2),  # two beside one, in eight copies
        ("c[u, l] + x[k, u, l] * s[k]", 1 / 2),  # one element more for all copies
    ):
        found = cycles(explain(over_k(f"c[u, l] = {value}", copies=8), TARGET))
        assert found["loads, stores"] == stores + 64 * each


def test_a_gather_and_an_exp_are_rows_of_their_own() -> None:
    fn = parse_function("""
def f(x: f32[64, 16], y: f32[64]):
    for i in serial(0, 8):
        for l in vectorized(0, 8):
            y[8*i + l] = exp(x[8*i + l, 0])
""")
    found = cycles(explain(fn, TARGET))
    assert found["lane by lane"] == 64
    assert found["functions"] == 8 * 8
    assert found["loops"] == 8 + 1
    assert found["from memory"] == 6 * (64 + 4)


def test_threads_share_all_but_their_start() -> None:
    text = """
def f(x: f32[4096], y: f32[4096]):
    for i in parallel(0, 512):
        for l in vectorized(0, 8):
            y[8*i + l] = x[8*i + l] + 1.0
"""
    fn = parse_function(text)
    one, two = cycles(explain(fn, TARGET, 1)), cycles(explain(fn, TARGET, 2))
    assert two["arithmetic"] == one["arithmetic"] / 2
    assert "threads" not in one
    assert two["threads"] == 4000


def test_the_table_adds_up_and_says_what_the_cycles_go_to() -> None:
    task = task_of(product(64, 64, 64))
    found = explain(task.lower(task.default).loops, task.target)
    assert sum(row.share for row in found.rows) == pytest.approx(1)
    assert [r.cycles for r in found.rows] == sorted((r.cycles for r in found.rows), reverse=True)
    text = str(found)
    assert "arithmetic" in text
    assert "not fitted" in text
    assert text.splitlines()[-1].startswith("all")
    assert all("{" not in row.why and row.why for row in found.rows)
    row = loop_features(task.lower(task.default).loops, task.target, 1)
    assert analytic([], row[None])[0] == pytest.approx(found.cycles)


def test_fitted_prices_are_said_to_be_fitted() -> None:
    task = task_of(product(64, 64, 64))
    loops = task.lower(task.default).loops
    row = loop_features(loops, task.target, 1)
    known = [Samples(row[None], np.array([1e-3]))]
    found = explain(loops, task.target, known=known)
    assert found.fitted
    assert "fitted to trials" in str(found)
    assert analytic(known, row[None])[0] == pytest.approx(1e-3)
