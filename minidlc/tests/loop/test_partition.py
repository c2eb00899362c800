"""Loops cut where tests become certain: the same numbers, a main part without tests."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minidlc.loop import partition as module
from minidlc.loop.nodes import For, LoopFunction, Stmt, walk
from minidlc.loop.partition import partition
from minidlc.loop.text import parse_function, print_stmt
from minidlc.loop.verify import verify_function
from minidlc.tests.loop.random_loops import random_function, run

TAIL = """\
def tail(C: f32[127]):
    for io in serial(0, 10):
        for ii in unrolled(0, min(14, 127 - 14*io)):
            C[14*io + ii] = 0.0
"""

PADDED = """\
def padded(A: f32[13, 13], C: f32[13, 13]):
    for i in parallel(0, 13):
        for jo in serial(0, 4):
            for ji in vectorized(0, min(4, 13 - 4*jo)):
                C[i, 4*jo + ji] = 0.0
                for kh in serial(0, 3):
                    C[i, 4*jo + ji] = C[i, 4*jo + ji] + select(i + kh - 1 >= 0 and 13 - i - kh >= 0, A[i + kh - 1, 4*jo + ji], 0.0)
"""  # noqa: E501

BLUR = """\
def blur(A: f32[34, 20], C: f32[32, 20]):
    for io in serial(0, 5):
        T = alloc(f32[9, 20], "stack")
        for y in serial(0, min(9, 34 - 7*io)):
            for x in vectorized(0, 20):
                T[y, x] = A[7*io + y, x] + A[7*io + y, max(x - 1, 0)]
        for ii in serial(0, min(7, 32 - 7*io)):
            for x in vectorized(0, 20):
                C[7*io + ii, x] = T[ii, x] + T[ii + 1, x] + T[ii + 2, x]
"""


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_cut_loops_compute_the_same(seed: int) -> None:
    fn = verify_function(random_function(random.Random(seed)))
    cut = verify_function(replace(fn, body=partition(fn.body)))
    np.testing.assert_array_equal(run(cut), run(fn))


def arrays_of(fn: LoopFunction) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {p.name: rng.random(p.type.dims, np.float32) for p in fn.params}


@pytest.mark.parametrize("text", [TAIL, PADDED, BLUR])
def test_golden(text: str, golden: object) -> None:
    fn = parse_function(text)
    cut = verify_function(replace(fn, body=partition(fn.body)))
    assert callable(golden)
    golden(f"partition_{fn.name}.txt", str(cut))


def test_the_main_part_has_no_tests() -> None:
    text = print_stmt(partition(parse_function(PADDED).body))
    assert "min(" not in text
    assert "select(" not in text


def _tests(s: Stmt) -> int:
    return print_stmt(s).count(">= 0")


def test_a_loop_with_too_many_cuts_keeps_its_guards() -> None:
    """At most six cuts: seven distinct borders stay as they are."""
    tests = "".join(
        f"        if i - {5 * n} >= 0:\n            C[i] = {float(n)}\n" for n in range(1, 8)
    )
    body = parse_function(f"def f(C: f32[64]):\n    for i in serial(0, 64):\n{tests}").body
    assert partition(body) is body
    tests = "\n".join(tests.splitlines()[:12]) + "\n"
    body = parse_function(f"def f(C: f32[64]):\n    for i in serial(0, 64):\n{tests}").body
    assert _tests(partition(body)) == 0


def test_growth_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    body = parse_function(PADDED).body
    full = len(list(walk(partition(body))))
    monkeypatch.setattr(module, "MAX_GROWTH", 5)
    small = partition(body)
    assert len(list(walk(small))) < full
    assert _tests(small) > 0


def test_vectorized_loops_and_decided_loops_are_not_cut() -> None:
    loop = "    for i in vectorized(0, 9):\n        if i - 4 >= 0:\n            C[i] = 0.0\n"
    text = f"def f(C: f32[9]):\n{loop}"
    body = parse_function(text).body
    assert partition(body) is body
    body = parse_function(
        "def f(C: f32[9]):\n    for i in serial(0, 9):\n        C[i] = 0.0\n"
    ).body
    assert partition(body) is body


def test_a_useless_cut_is_not_made() -> None:
    """The test hangs on an unknown n as well: cutting at any i decides nothing."""
    text = (
        'def f(C: f32["n"]):\n    for i in serial(0, 9):\n'
        "        if n - i >= 0:\n            C[i] = 0.0\n"
    )
    body = parse_function(text).body
    assert partition(body) is body


def test_a_part_of_one_iteration_is_its_body() -> None:
    cut = partition(parse_function(TAIL).body)
    assert sum(isinstance(s, For) and s.var.name == "io" for s in walk(cut)) == 1


def test_there_is_a_golden_text_of_each() -> None:
    folder = Path(__file__).parents[1] / "golden"
    assert {f"partition_{n}.txt" for n in ("tail", "padded", "blur")} <= {
        p.name for p in folder.iterdir()
    }
