"""The loop interpreter: NumPy's numbers, and an error for each access that is not allowed."""

from __future__ import annotations

import numpy as np
import pytest

from minidlc.expr.types import DTYPES, Array, dtype
from minidlc.loop.interpret import convert, interpret
from minidlc.loop.text import parse_function
from minidlc.support.errors import CallError, VerifyError
from minidlc.tests.loop.test_text import MATMUL


def run(text: str, *, check_parallel: bool = False, **arrays: Array) -> dict[str, Array]:
    interpret(parse_function(text), arrays, check_parallel)
    return arrays


def test_matmul() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((4, 8), np.float32), rng.random((8, 3), np.float32)
    c = run(MATMUL, check_parallel=True, A=a, B=b, C=np.full((4, 3), 7, np.float32))["C"]
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_every_word() -> None:
    text = """\
def f(A: f32[4], n: i32[4], C: f32[4], D: i64[4], M: bool[4]):
    for i in parallel(0, 4):
        T = alloc(f32[1], "stack")
        T[0] = exp(A[i]) * 0.5
        C[i] = select(i - 1 >= 0 and 2 - i >= 0, A[i - 1] + T[0], where(A[i] > 1.0, 5.0, -1.0))
        D[i] = cast("i64", n[i] * i32(1000000000)) + index(3*i%4) + min(i64(1), i64(2))
        M[i] = (A[i] >= 2.0) & (n[i] != 3)
"""
    a, n = np.arange(4, dtype=np.float32), np.array([1, 2, 3, -4], np.int32)
    out = run(
        text, A=a, n=n, C=np.zeros(4, np.float32), D=np.zeros(4, np.int64), M=np.zeros(4, bool)
    )
    e = np.exp(a) * np.float32(0.5)
    np.testing.assert_array_equal(out["C"], [-1, a[0] + e[1], a[1] + e[2], 5])
    with np.errstate(over="ignore"):
        wrapped = (n * np.int32(10**9)).astype(np.int64)
    np.testing.assert_array_equal(out["D"], wrapped + np.array([0, 3, 2, 1]) + 1)
    np.testing.assert_array_equal(out["M"], [False, False, False, True])


def test_arithmetic_is_that_of_the_element_type() -> None:
    text = (
        "def f(A: f32[2], C: f32[2]):\n    C[0] = A[0] + A[1] - A[0]\n    C[1] = 1e8 + 1.0 - 1e8\n"
    )
    a = np.array([1e8, 1], np.float32)
    assert run(text, A=a, C=np.zeros(2, np.float32))["C"].tolist() == [0, 0]


def test_minimum_and_maximum_let_nan_win() -> None:
    text = "def f(A: f32[2], C: f32[2]):\n    C[0] = min(A[0], A[1])\n    C[1] = max(A[1], A[0])\n"
    out = run(text, A=np.array([np.nan, 1], np.float32), C=np.zeros(2, np.float32))
    assert np.isnan(out["C"]).all()


def test_reading_what_was_never_written_shows() -> None:
    lines = ("def f(C: f32[1]):", 'T = alloc(f32[2], "arena")', "T[0] = 1.0", "C[0] = T[0] + T[1]")
    text = "\n    ".join(lines)
    assert np.isnan(run(text, C=np.zeros(1, np.float32))["C"][0])


def test_symbolic_sizes_come_from_the_arrays() -> None:
    text = (
        'def f(A: f32["N", 2], C: f32["N"]):\n    for i in serial(0, N):\n        C[i] = A[i, 1]\n'
    )
    a = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert run(text, A=a, C=np.zeros(3, np.float32))["C"].tolist() == [1, 3, 5]


@pytest.mark.parametrize("index", ["i - 1", "i + 1", "4*i"])
def test_access_outside_is_refused(index: str) -> None:
    text = f"def f(A: f32[4], C: f32[4]):\n    for i in serial(0, 4):\n        C[i] = A[{index}]\n"
    with pytest.raises(VerifyError) as error:
        run(text, A=np.zeros(4, np.float32), C=np.zeros(4, np.float32))
    assert error.value.code == "MDLC0460"
    assert "is outside A: f32[4]" in str(error.value)
    assert "--> <loops f>:3:9" in str(error.value)
    assert f"C[i] = A[{index}]" in str(error.value)


@pytest.mark.parametrize(
    ("body", "meeting"),
    [
        ("C[0] = C[0] + A[i]", "C[0]: written by iteration"),
        ("C[i] = 1.0\n        D[i] = C[0]\n        C[0] = 2.0", "C[0]: "),
        ("C[0] = A[i]", "C[0]: written by iteration"),
        ("C[i] = 1.0\n        D[i] = C[3 - i]", "read"),
        ("T[i//2] = 1.0", "T["),
    ],
)
def test_iterations_of_a_parallel_loop_must_not_meet(body: str, meeting: str) -> None:
    text = (
        'def f(A: f32[4], C: f32[4], D: f32[4]):\n    T = alloc(f32[2], "arena")\n'
        f"    for i in parallel(0, 4):\n        {body}\n"
    )
    arrays = {name: np.zeros(4, np.float32) for name in "ACD"}
    run(text, **arrays)
    with pytest.raises(VerifyError) as error:
        run(text, check_parallel=True, **arrays)
    assert error.value.code == "MDLC0461"
    assert "iterations of parallel loop i meet at" in str(error.value)
    assert meeting in str(error.value)


def test_buffers_inside_a_parallel_loop_are_private() -> None:
    text = """\
def f(C: f32[4, 4]):
    for i in parallel(0, 4):
        T = alloc(f32[4], "stack")
        for j in parallel(0, 4):
            T[j] = 1.0
        for k in serial(0, 4):
            C[i, k] = T[k]
"""
    assert run(text, check_parallel=True, C=np.zeros((4, 4), np.float32))["C"].sum() == 16


def test_loops_may_nest_deeper_than_python_allows() -> None:
    n = 33
    head = [f"{'    ' * d}for v{d} in serial(0, {2 if d in (12, 32) else 1}):" for d in range(1, n)]
    place = " + ".join(f"v{d}" for d in range(1, n))
    body = ['T = alloc(f32[1], "stack")', f"T[0] = C[{place}] + 1.0", f"C[{place}] = T[0]"]
    lines = ["def f(C: f32[3]):", *head, *("    " * n + line for line in body)]
    text = "\n".join(lines) + "\n"
    assert run(text, check_parallel=True, C=np.zeros(3, np.float32))["C"].tolist() == [1, 2, 1]


def test_parallel_loops_run_in_another_order() -> None:
    text = (
        'def f(C: f32[2]):\n    for i in parallel(0, 16):\n        C[0] = cast("f32", index(i))\n'
    )
    assert run(text, C=np.zeros(2, np.float32))["C"][0] != 15


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "f takes (A), got ()"),
        ({"A": np.zeros(4, np.float64)}, "f: A is f32[4], got f64[4]"),
        ({"A": np.zeros(5, np.float32)}, "f: A is f32[4], got f32[5]"),
        ({"A": np.zeros((4, 1), np.float32)}, "f: A is f32[4], got f32[4, 1]"),
    ],
)
def test_arrays_must_fit(arrays: dict[str, Array], message: str) -> None:
    with pytest.raises(CallError) as error:
        interpret(parse_function("def f(A: f32[4]):\n    A[0] = 1.0\n"), arrays)
    assert error.value.code == "MDLC0907"
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("value", "to", "expected"),
    [
        (300.0, "i8", 127), (-300.0, "i8", -128), (np.nan, "i8", 0), (np.inf, "i8", 127),
        (-1.5, "u8", 0), (-1.5, "i32", -1), (50.9, "i8", 50), (1e20, "i64", 2**63 - 1),
        (2.5, "f16", 2.5), (0.0, "bool", False), (0.25, "bool", True), (np.nan, "bool", True),
    ],
)  # fmt: skip
def test_conversion_saturates(value: float, to: str, expected: float) -> None:
    result = convert(np.float32(value), DTYPES[to])
    assert dtype(result.dtype) == DTYPES[to]
    assert result == expected


def test_conversion_between_integers_wraps() -> None:
    assert convert(np.int32(300), DTYPES["u8"]) == 44
    assert convert(np.int32(-1), DTYPES["u32"]) == 2**32 - 1
