"""Stages stored further out than they are computed: proved, or refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import numpy as np
import pytest

from minidlc import te
from minidlc.expr.types import f32
from minidlc.loop.interpret import interpret
from minidlc.loop.nodes import LoopFunction
from minidlc.support.errors import ScheduleError
from minidlc.te import Schedule
from minidlc.tests.te.programs import Case, pyramid, softmax, stencil

pytestmark = pytest.mark.ch04


def result(case: Case, fn: LoopFunction) -> bool:
    """Whether the loops compute what the program says."""
    got = {n: np.full_like(x, 77) for n, x in case.expected.items()}
    interpret(fn, {**case.inputs, **got})
    return all(np.allclose(got[n], x, rtol=1e-5) for n, x in case.expected.items())


@pytest.mark.parametrize("columns", [8, 13, 3])
def test_exponentials_are_kept_for_the_second_reader(columns: int) -> None:
    case = softmax(3, columns)
    s = te.create_schedule(case.outputs)
    s["s"].split("l", 4)
    s["s"].compute_at("y", "i")
    s["e"].store_at("y", "i").compute_at("s", "lo").set_scope("stack")
    text = str(s.lower(partition=False))
    assert text.count("exp(") == 1
    assert f'e = alloc(f32[1, {columns}], "stack")' in text
    assert result(case, s.lower())


def test_halo_rows_are_computed_again_not_kept() -> None:
    case = stencil(10, 4)
    s = te.create_schedule(case.outputs)
    s["c"].split("i", 5)
    s["b"].compute_at("c", "io")
    s["a"].store_at("c", "io").compute_at("b", "i")
    text = str(s.lower(partition=False))
    assert 'a = alloc(f32[9, 4], "arena")' in text  # rows of b (7) and their halo
    assert "for i_a in serial(0, 3):" in text  # three of them in each row of b
    assert result(case, s.lower())


def test_stored_where_it_is_computed_is_compute_at() -> None:
    case = softmax(3, 8)
    one, other = (te.create_schedule(case.outputs) for _ in range(2))
    for s in (one, other):
        s["s"].compute_at("y", "i")
    one["e"].store_at("y", "i")
    other["e"].compute_at("y", "i")
    assert one.lower() == other.lower()


def gaps(s: Schedule) -> None:
    """b reads rows 0, 2, 4 …, c all of them."""
    s["c"].split("i", 4)
    s["b"].compute_at("c", "io")
    s["a"].store_at("c", "io").compute_at("b", "i")


def one_column_of_two_loops(s: Schedule) -> None:
    """Computed at li inside lo, as one element: proved for one loop an axis only."""
    s["s"].split("l", 4)
    s["s"].compute_at("y", "i")
    s["e"].store_at("y", "i").compute_at("s", "li")


CASES: dict[Callable[[Schedule], None], Case] = {
    gaps: pyramid(6, 3),
    one_column_of_two_loops: softmax(3, 8),
}


@pytest.mark.parametrize("use", CASES, ids=lambda f: f.__name__)
def test_what_is_not_proved_to_be_written_is_refused(use: Callable[[Schedule], None]) -> None:
    with pytest.raises(ScheduleError, match="may be none of what") as caught:
        use(te.create_schedule(CASES[use].outputs))
    assert caught.value.code == "MDLC0626"


def test_the_refusal_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the loops read what nobody wrote."""
    lower = import_module("minidlc.te.lower")
    monkeypatch.setattr(lower, "check_covered", lambda *args: None)
    s = te.create_schedule(CASES[gaps].outputs)
    gaps(s)
    assert not result(CASES[gaps], s.lower())


def test_threads_would_share_it() -> None:
    s = te.create_schedule(stencil(10, 4).outputs)
    s["c"].split("i", 5)
    s["b"].compute_at("c", "io").parallel("i")
    s["a"].store_at("c", "io")
    with pytest.raises(ScheduleError, match="'i' is parallel: all threads would share it"):
        s["a"].compute_at("b", "i")


def test_the_loop_that_stores_lies_around_the_one_that_computes() -> None:
    s = te.create_schedule(stencil(10, 4).outputs)
    s["b"].compute_at("c", "i")
    s["a"].compute_at("c", "i")
    with pytest.raises(ScheduleError, match=r"is not inside c\.j, where it is stored"):
        s["a"].store_at("c", "j")


def test_a_reader_outside_the_loop_that_stores() -> None:
    s = te.create_schedule(stencil(10, 4).outputs)
    with pytest.raises(ScheduleError, match=r"'b' reads 'a' too, outside the loop c\.i"):
        s["a"].store_at("c", "i")


def test_a_loop_at_which_a_stage_is_stored_stays() -> None:
    s = te.create_schedule(softmax(3, 8).outputs)
    s["s"].compute_at("y", "i")
    s["e"].store_at("y", "i").compute_at("s", "i")
    with pytest.raises(ScheduleError) as caught:
        s["y"].split("i", 2)
    assert caught.value.code == "MDLC0605"


def test_a_stage_of_one_element_is_stored_and_computed_at_one_loop() -> None:
    A = te.placeholder(f32[4], "A")
    B = te.compute((4,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((4,), lambda i: B[i] * 2.0, name="C")
    s = te.create_schedule(C)
    s["B"].store_at("C", "i")
    assert 'B = alloc(f32[1], "arena")' in str(s.lower())
