"""The extension points `emit` and `vectorize` replace the real thing inside compile_kernel."""

from __future__ import annotations

import numpy as np
import pytest

from minidlc import target
from minidlc.codegen.compile import compile_kernel, run_kernel
from minidlc.codegen.lanes import Access, lane_access
from minidlc.codegen.llvm import emit
from minidlc.expr.index import Index, Var
from minidlc.loop.nodes import LoopFunction
from minidlc.loop.text import parse_function
from minidlc.support.extension import counting, use
from minidlc.target import Target

pytestmark = pytest.mark.llvm

SOURCE = """
def f(A: f32[40], C: f32[20]):
    for j in vectorized(0, 20):
        C[j] = A[j] + A[2*j] + A[0]
"""


def run() -> tuple[np.ndarray, str]:
    a, c = np.arange(40, dtype=np.float32), np.zeros(20, np.float32)
    kernel = compile_kernel(parse_function(SOURCE), target.host(), cache=False)
    run_kernel(kernel, [a, c])
    np.testing.assert_array_equal(c, a[:20] + a[::2])
    return c, kernel.llvm


def test_lane_mapping() -> None:
    j = Var("j")
    assert lane_access(16 * Var("i") + j, j) == "vector"
    assert lane_access(Index.of(Var("i")), j) == "splat"
    assert lane_access(2 * j, j) == "gather"
    assert lane_access(j + j // 2, j) == "gather"


def test_gathering_everything_is_slow_but_right() -> None:
    _, plain = run()

    def gather(index: Index, lane: Var) -> Access:
        return "gather"

    with use(vectorize=gather), counting() as calls:
        _, text = run()
    assert calls["vectorize"] > 0
    assert "load <" in plain
    assert "load <" not in text
    assert "masked.scatter" in text


def test_emit_of_one_s_own() -> None:
    def loud(fn: LoopFunction, target: Target, symbol: str) -> str:
        return "; mine\n" + emit(fn, target, symbol)  # here `emit` is the shipped one

    with use(emit=loud), counting() as calls:
        _, text = run()
    assert calls["emit"] == 1
    assert text.startswith("; mine\n")
