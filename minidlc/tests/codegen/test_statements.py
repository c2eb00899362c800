"""Every kind of statement, at every vector width, against the interpreter."""

from __future__ import annotations

import re

import numpy as np
import pytest

from minidlc import target
from minidlc.codegen.llvm import emit
from minidlc.loop.text import parse_function
from minidlc.tests.codegen.helpers import WIDTHS, check

pytestmark = pytest.mark.llvm

WIDTH = pytest.mark.parametrize("width", WIDTHS)


def text(source: str, width: int) -> str:
    return emit(parse_function(source), target.host(width), "k")


@WIDTH
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 11, 16, 21, 32, 333])
def test_vectorised_loop_of_any_extent(width: int, n: int) -> None:
    source = f"""
def f(A: f32[{n}], B: f32[{n}], C: f32[{n}]):
    for i in vectorized(0, {n}):
        C[i] = A[i] * B[i] + 1.0
"""
    check(source, target.host(width))
    if n >= width:
        assert f"<{width} x float>" in text(source, width)


@WIDTH
def test_short_loop_uses_a_short_vector_or_a_constant_mask(width: int) -> None:
    source = "def f(A: f32[3]):\n    for i in vectorized(0, 3):\n        A[i] = A[i] + 1.0\n"
    assert "<4 x i1> <i1 true, i1 true, i1 true, i1 false>" in text(source, width)
    exact = source.replace("[3]", "[2]").replace("(0, 3)", "(0, 2)")
    assert "masked" not in text(exact, width)
    assert "<2 x float>" in text(exact, width)


def test_many_vectors_become_a_loop() -> None:
    source = "def f(A: f32[4096]):\n    for i in vectorized(0, 4096):\n        A[i] = A[i] + 1.0\n"
    assert len(text(source, WIDTHS[-1]).splitlines()) < 20


@WIDTH
@pytest.mark.parametrize("kind", ["serial", "unrolled", "parallel"])
def test_loops_with_extents_that_depend_on_outer_loops(width: int, kind: str) -> None:
    check(
        f"""
def f(A: f32[7, 13], C: f32[7, 13]):
    for i in {kind}(0, 7):
        for jo in serial(0, 4):
            for ji in vectorized(0, min(4, 13 - 4*jo)):
                C[i, 4*jo + ji] = A[i, 4*jo + ji] * 2.0
        for k in unrolled(0, min(3, 7 - i)):
            C[i, k] = C[i, k] + A[i, k]
""",
        target.host(width),
    )


@WIDTH
def test_extent_wider_than_lanes_at_run_time(width: int) -> None:
    check(
        """
def f(A: f32[40], C: f32[40]):
    for i in serial(0, 3):
        for j in vectorized(0, 14*i + 12):
            C[j] = A[j] * 2.0
""",
        target.host(width),
    )


@WIDTH
@pytest.mark.parametrize("scope", ["register", "stack", "arena"])
def test_local_buffers(width: int, scope: str) -> None:
    check(
        f"""
def gemm(A: f32[6, 5], B: f32[5, 21], C: f32[6, 21]):
    for io in serial(0, 3):
        acc = alloc(f32[2, 21], "{scope}")
        for ii in unrolled(0, 2):
            for j in vectorized(0, 21):
                acc[ii, j] = 0.0
        for k in serial(0, 5):
            for ii in unrolled(0, 2):
                for j in vectorized(0, 21):
                    acc[ii, j] = acc[ii, j] + A[2*io + ii, k] * B[k, j]
        for ii in unrolled(0, 2):
            for j in vectorized(0, 21):
                C[2*io + ii, j] = acc[ii, j]
""",
        target.host(width),
    )


@WIDTH
def test_partial_stores_keep_the_rest_of_a_local_row(width: int) -> None:
    check(
        """
def f(A: f32[16], C: f32[16]):
    t = alloc(f32[16], "stack")
    for j in vectorized(0, 16):
        t[j] = A[j]
    for j in vectorized(0, 5):
        t[j] = 0.0
    for j in vectorized(0, 3):
        t[j + 6] = 1.0
    for j in vectorized(0, 16):
        C[j] = t[j]
""",
        target.host(width),
    )


@WIDTH
def test_rows_of_local_buffers_end_in_whole_vectors(width: int) -> None:
    source = """
def f(A: f32[3, 13], C: f32[3, 13]):
    for i in serial(0, 3):
        t = alloc(f32[13], "stack")
        for j in vectorized(0, 13):
            t[j] = A[i, j]
        for j in vectorized(0, 13):
            C[i, j] = t[12 - j]
"""
    check(source, target.host(width))
    stores = re.findall(r"masked\.store", text(source, width))
    assert len(stores) == (
        width > 4
    )  # the one to C; with 4 lanes, 13 = 4 + 4 + 4 + 1 needs no mask


@WIDTH
@pytest.mark.parametrize("n", [1, 5, 16, 21])
@pytest.mark.parametrize(
    "update",
    ["S[0] + A[j]", "A[j] * A[j] + S[0]", "max(S[0], A[j])", "min(A[j], S[0])", "S[0] * A[j]"],
)
def test_horizontal_reduction(width: int, n: int, update: str) -> None:
    source = f"""
def f(A: f32[{n}], S: f32[1]):
    for j in vectorized(0, {n}):
        S[0] = {update}
"""
    check(source, target.host(width))
    if n == 21:
        assert "llvm.vector.reduce" in text(source, width)


@WIDTH
def test_horizontal_reduction_of_a_value_all_lanes_share(width: int) -> None:
    check(
        """
def f(A: f32[9], S: f32[1]):
    for j in vectorized(0, 9):
        S[0] = S[0] + A[3]
""",
        target.host(width),
    )


def test_maximum_across_lanes_keeps_nan() -> None:
    source = """
def f(A: f32[21], S: f32[1]):
    for j in vectorized(0, 21):
        S[0] = max(S[0], A[j])
"""
    for place in (0, 15, 20):
        a = np.arange(21, dtype=np.float32)
        a[place] = np.nan
        check(source, target.host(), arrays={"A": a, "S": np.zeros(1, np.float32)})


@WIDTH
def test_one_value_stored_by_all_lanes(width: int) -> None:
    check(
        """
def f(A: f32[4], C: f32[4]):
    for i in serial(0, 4):
        for j in vectorized(0, 7):
            C[i] = A[i] + 1.0
""",
        target.host(width),
    )


@WIDTH
@pytest.mark.parametrize(
    "read",
    [
        "A[2*j]",
        "A[41 - j]",
        "A[j//3]",
        "A[j%5]",
        "A[(j - 4)%7]",
        "A[min(j, 6)]",
        "A[max(j - 5, 0)]",
        "A[3*i + j//2]",
        "A[(16*i + j)%16]",
        "A[i]",
        'cast("f32", index(2*j - i))',
    ],
)
def test_lanes_that_are_no_neighbours(width: int, read: str) -> None:
    check(
        f"""
def f(A: f32[42], C: f32[2, 19]):
    for i in serial(0, 2):
        for j in vectorized(0, 19):
            C[i, j] = {read} * 2.0
""",
        target.host(width),
    )


@WIDTH
def test_scattered_stores(width: int) -> None:
    check(
        """
def transpose(A: f32[5, 19], C: f32[19, 5]):
    for i in serial(0, 5):
        for j in vectorized(0, 19):
            C[j, i] = A[i, j]
""",
        target.host(width),
    )


def test_floor_division_of_a_lane_within_one_block_is_one_load() -> None:
    source = """
def f(A: f32[3], C: f32[48]):
    for v in unrolled(0, 3):
        for j in vectorized(0, 16):
            C[16*v + j] = A[(16*v + j)//16]
"""
    assert "gather" not in text(source, WIDTHS[-1])
    check(source, target.host())


@WIDTH
@pytest.mark.parametrize(
    "value",
    [
        "select(j - 1 >= 0, A[i, j - 1], 0.0)",
        "select(17 - j >= 0, A[i, j + 1], A[i, 0])",
        "select(i - 1 >= 0, A[i - 1, j], 0.0)",
        "select(i - 1 >= 0 and j - 1 >= 0, A[i - 1, j - 1], 1.0)",
        "select(i - 1 >= 0, select(j - 2 >= 0, A[i - 1, j - 2], A[i, j]), exp(A[i, j]))",
        "select(2*j - 9 >= 0, A[i, 2*j - 18 + 18 - j], 0.0)",
        "select(j - 5 >= 0, A[i, 3], B[j])",
        "where(A[i, j] < 0.0, 0.0, A[i, j])",
        "where(A[i, 0] < 0.0, B[j], A[i, j])",
    ],
)
def test_select(width: int, value: str) -> None:
    check(
        f"""
def f(A: f32[4, 19], B: f32[19], C: f32[4, 19]):
    for i in serial(0, 4):
        for j in vectorized(0, 19):
            C[i, j] = {value}
""",
        target.host(width),
    )


@WIDTH
def test_conditions_on_loops_and_lanes(width: int) -> None:
    check(
        """
def f(A: f32[5, 19], C: f32[5, 19], S: f32[5]):
    for i in serial(0, 5):
        for j in vectorized(0, 19):
            if i - 2 >= 0:
                C[i, j] = A[i - 2, j]
            if j - i - 1 >= 0 and 12 - j >= 0:
                C[i, j] = A[i, j - i - 1]
                S[i] = S[i] + A[i, j]
            if j - 18 >= 0 and i - 1 >= 0:
                S[i] = A[i, 0]
""",
        target.host(width),
    )


def test_loads_are_remembered_until_a_store() -> None:
    source = """
def f(A: f32[16], B: f32[16]):
    for i in vectorized(0, 16):
        B[i] = A[i] + A[i]
        A[i] = A[i] * 2.0
        B[i] = A[i] + B[i]
"""
    found = text(source, WIDTHS[-1])
    chunks = 16 // WIDTHS[-1]
    loads = len(re.findall(r" = load .*", found))
    assert loads == 3 * chunks  # A, A again after its store, B
    check(source, target.host())


def test_relu_is_one_instruction_and_keeps_nan() -> None:
    source = """
def relu(A: f32[16], C: f32[16]):
    for i in vectorized(0, 16):
        C[i] = where(A[i] < 0.0, 0.0, A[i])
"""
    a = np.array([-1.0, np.nan, 3.0, -0.0] * 4, np.float32)
    kernel = check(source, target.host(), arrays={"A": a, "C": np.zeros(16, np.float32)})
    if target.host().is_x86:
        moves = ("mov", "ret", "vzero", "push", "pop", "xor", "vxor")
        code = [x.strip() for x in kernel.asm.splitlines() if x.startswith("\t")]
        code = [x for x in code if not x.startswith((".", *moves)) and "mov" not in x]
        assert len(code) == 16 // WIDTHS[-1]


@WIDTH
def test_nan_wins_min_and_max(width: int) -> None:
    source = """
def f(A: f32[8], B: f32[8], C: f32[8], D: f32[8]):
    for i in vectorized(0, 8):
        C[i] = max(A[i], B[i])
        D[i] = min(A[i], B[i])
"""
    a = np.array([1, np.nan, 2, np.inf, -np.inf, np.nan, 0, 5], np.float32)
    b = np.array([2, 1, np.nan, 1, 1, np.nan, 0, np.inf], np.float32)
    zeros = np.zeros(8, np.float32)
    check(source, target.host(width), arrays={"A": a, "B": b, "C": zeros, "D": zeros.copy()})


def test_zero_iterations() -> None:
    check(
        """
def f(A: f32[4]):
    for i in serial(0, 0):
        A[i] = 1.0
    for i in vectorized(0, 0):
        A[i] = 2.0
    for i in serial(0, 3):
        for j in serial(0, i):
            A[j] = A[j] + 1.0
        for j in vectorized(0, i):
            A[j] = A[j] * 2.0
""",
        target.host(),
    )


def test_scalar_arrays_and_long_names() -> None:
    name = "n" * 300
    check(f"def {name}(A{name}: f32[1], C: f32[1]):\n    C[0] = A{name}[0] + 1.0\n", target.host())


def test_names_outside_ascii() -> None:
    check(
        "def f(größe: f32[3]):\n    for ä in serial(0, 3):\n        größe[ä] = 1.0\n", target.host()
    )
