"""Blocks of one length: the last one begins early and overlaps the one before."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from minidlc import target, te
from minidlc.codegen.llvm import emit
from minidlc.expr.types import f32
from minidlc.loop.interpret import interpret
from minidlc.support.errors import ScheduleError, VerifyError
from minidlc.te import Schedule, iteration
from minidlc.tests.te.programs import Case, gemm, stencil

pytestmark = pytest.mark.ch04


def check(s: Schedule, case: Case) -> None:
    for partition in (False, True):
        got = {n: np.full_like(x, 77) for n, x in case.expected.items()}
        interpret(s.lower(partition=partition), {**case.inputs, **got}, check_parallel=True)
        for name, x in got.items():
            np.testing.assert_array_equal(x, case.expected[name])


@pytest.mark.parametrize("n", [1, 4, 5, 8, 13])
@pytest.mark.parametrize("factor", [1, 3, 4])
def test_any_length(n: int, factor: int) -> None:
    case = gemm(n, 5, 3)
    s = te.create_schedule(case.outputs)
    s["C"].split("i", factor, tail="shift")
    s["D"].split("i", factor, tail="shift")
    s["D"].reorder("ii", "j", "io")
    check(s, case)


def test_a_tile_of_registers_at_shifted_blocks() -> None:
    """Each tile is full, the last one too: one kind of micro-kernel, no masks."""
    case = gemm(13, 19, 4)
    s = te.create_schedule(case.outputs)
    s["D"].split("i", 4, tail="shift")
    s["D"].split("j", 8, tail="shift")
    s["D"].reorder("io", "jo", "ii", "ji").unroll("ii").vectorize("ji")
    s["C"].compute_at("D", "jo").set_scope("register")
    s["C"].reorder("k", "i", "j").unroll("i").vectorize("j")
    check(s, case)
    text = str(s.lower())
    assert set(part.split(")")[0] for part in text.split("unrolled(0, ")[1:]) == {"4"}
    assert set(part.split(")")[0] for part in text.split("vectorized(0, ")[1:]) == {"8"}
    assert 'C = alloc(f32[4, 8], "register")' in text


def test_halos_of_shifted_blocks() -> None:
    case = stencil(13, 5)
    s = te.create_schedule(case.outputs)
    s["c"].split("i", 4, tail="shift")
    s["b"].compute_at("c", "io").split("j", 2, tail="shift")
    s["a"].compute_at("c", "io")
    check(s, case)
    assert "alloc(f32[8, 5]" in str(s.lower(partition=False))  # 4 rows, 2 of each halo


def test_a_region_that_is_long_enough_may_be_shifted() -> None:
    """Blocks of 6 and 4 rows: proved for a factor of 3, refused for 5 (see errors)."""
    case = gemm(10, 4, 3)
    s = te.create_schedule(case.outputs)
    s["D"].split("i", 6)
    s["C"].compute_at("D", "io")
    s["C"].split("i", 3, ("a", "b"), tail="shift")
    check(s, case)


def test_parallel_blocks_that_divide() -> None:
    case = gemm(12, 4, 3)
    s = te.create_schedule(case.outputs)
    s["D"].split("i", 4, tail="shift")
    s["D"].parallel("io")
    check(s, case)


def reduction_around(s: Schedule) -> None:
    s["C"].split("i", 3, tail="shift")
    s["C"].reorder("k", "io", "ii")


def threads(s: Schedule) -> None:
    s["D"].split("i", 3, tail="shift")
    s["D"].parallel("io")


@pytest.mark.parametrize("use", [reduction_around, threads], ids=lambda f: f.__name__)
def test_the_refusals_are_needed(
    use: Callable[[Schedule], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them an element gets a product twice, or two threads store it."""
    case = gemm(5, 4, 3)
    with pytest.raises(ScheduleError) as caught:
        use(te.create_schedule(case.outputs))
    assert caught.value.code == "MDLC0625"
    monkeypatch.setattr(iteration, "_check_overlap", lambda *args: None)
    s = te.create_schedule(case.outputs)
    use(s)
    with pytest.raises((AssertionError, VerifyError)):
        check(s, case)


@pytest.mark.llvm
@pytest.mark.parametrize(("tail", "scalar"), [("cut", True), ("shift", False)])
def test_every_vector_is_full(tail: str, scalar: bool) -> None:
    """197 = 49 * 4 + 1: the tail is one element alone, or four of which three come again."""
    A = te.placeholder(f32[197], "A")
    C = te.compute((197,), lambda i: A[i] * 2.0, name="C")
    s = te.create_schedule(C)
    s["C"].split("i", 4, tail=tail)
    s["C"].vectorize("ii")
    text = emit(s.lower("k"), target.host(vector_width=4), "k")
    assert ("store float" in text) == scalar
    assert "masked" not in text
