"""rfactor: every reduction, every type, every kind of tail gives the same result in two steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from minidlc import te
from minidlc.expr.types import DTYPES, DType, TensorType, f32
from minidlc.loop.interpret import interpret
from minidlc.te import Schedule

pytestmark = pytest.mark.ch04

REDUCTIONS: dict[str, Callable[..., object]] = {
    "sum": te.sum,
    "prod": te.prod,
    "max": te.max,
    "min": te.min,
}


def reduction(op: str, n: int, type: DType = f32) -> tuple[te.Tensor, np.ndarray]:
    """Rows reduced over n columns, and small numbers to reduce."""
    A = te.placeholder(TensorType(type, (3, n)), "A")
    k = te.reduce_axis(n, "k")
    S = te.compute((3,), lambda i: REDUCTIONS[op](A[i, k], k), name="S")
    low = 1 if type.kind in ("bool", "uint") else -2
    x = np.random.default_rng(n).integers(low, 3, (3, n)).astype(type.numpy)
    return S, x


def run(s: Schedule, x: np.ndarray) -> np.ndarray:
    got: list[np.ndarray] = []
    for partition in (False, True):
        out = {"A": x, "S": np.full(3, 77).astype(x.dtype)}
        interpret(s.lower(partition=partition), out)
        got.append(out["S"])
    np.testing.assert_array_equal(*got)
    return got[0]


PAIRS = [
    (op, name)
    for op in REDUCTIONS
    for name, type in sorted(DTYPES.items())
    if type.kind != "bool" or op in ("max", "min")  # + and * of bool are no numbers
]


@pytest.mark.parametrize(("op", "type"), PAIRS)
def test_every_reduction_of_every_type(op: str, type: str) -> None:
    S, x = reduction(op, 10, DTYPES[type])
    plain = run(te.create_schedule(S), x)
    for half, position in (("ki", "last"), ("ko", "first")):
        s = te.create_schedule(S)
        s["S"].split("k", 4)
        s["S"].rfactor(half, position)
        np.testing.assert_array_equal(run(s, x), plain)


@pytest.mark.parametrize("n", [1, 3, 4, 10, 16])
@pytest.mark.parametrize("factor", [1, 3, 4, 20])
def test_lengths_that_no_factor_divides(n: int, factor: int) -> None:
    S, x = reduction("sum", n)
    for half in ("ki", "ko"):
        s = te.create_schedule(S)
        s["S"].split("k", factor)
        s["S"].rfactor(half).split("i", 2)
        np.testing.assert_array_equal(run(s, x), x.sum(1))


def test_a_half_of_a_half() -> None:
    """The recipe of softmax: 4 vectors, then one vector, then its lanes."""
    S, x = reduction("sum", 37)
    s = te.create_schedule(S)
    s["S"].split("k", 8, ("ko", "r"))
    s["S"].split("r", 3, ("u", "l"))
    once = s["S"].rfactor("l")
    assert once.loops == ("i", "l", "ko", "u")
    np.testing.assert_array_equal(run(s, x), x.sum(1))
    twice = te.create_schedule(S)
    twice["S"].split("k", 8, ("ko", "r"))
    twice["S"].rfactor("r")
    twice["S"].split("r", 4, ("u", "l"))
    assert twice["S"].rfactor("l").name == "S_rf_1"
    np.testing.assert_array_equal(run(twice, x), x.sum(1))


def test_other_reduction_loops_keep_their_splits() -> None:
    A = te.placeholder(f32[5, 7], "A")
    k, m = te.reduce_axis(5, "k"), te.reduce_axis(7, "m")
    S = te.compute((), lambda: te.sum(A[k, m], k, m), name="S")
    s = te.create_schedule(S)
    s["S"].split("m", 4)
    s["S"].split("k", 2)
    s["S"].fuse("ki", "mo", "f")
    assert s["S"].rfactor("ko").loops == ("ko", "f", "mi")
    out = {"A": np.ones((5, 7), np.float32), "S": np.zeros((), np.float32)}
    interpret(s.lower(), out)
    assert out["S"] == 35


def test_what_adds_nothing_is_left_out() -> None:
    """No loop of the last block adds zeros, no vector of it is stored under a mask."""
    S, _ = reduction("sum", 10)
    s = te.create_schedule(S)
    s["S"].split("k", 4)
    partial = s["S"].rfactor("ko", "first")
    assert "+ 0.0" not in str(s.lower())
    assert "if " in str(s.lower(partition=False))
    partial.vectorize("ki")
    assert "if " not in str(s.lower(partition=False))


def test_of_nothing() -> None:
    A = te.placeholder(f32[2, 0], "A")
    k = te.reduce_axis(0, "k")
    S = te.compute((2,), lambda i: te.max(A[i, k], k), name="S")
    s = te.create_schedule(S)
    s["S"].split("k", 4)
    s["S"].rfactor("ki")
    out = {"A": np.zeros((2, 0), np.float32), "S": np.zeros(2, np.float32)}
    interpret(s.lower(), out)
    np.testing.assert_array_equal(out["S"], -np.inf)
