"""Every access is proved inside its buffer, or the loops are refused."""

from __future__ import annotations

import random

import pytest

from minidlc.loop.inside import check_inside
from minidlc.loop.nodes import LoopFunction
from minidlc.loop.text import parse_function
from minidlc.loop.verify import verify_function
from minidlc.support.errors import ScheduleError, VerifyError
from minidlc.tests.te.programs import random_case
from minidlc.tests.te.random_traces import random_schedule

pytestmark = pytest.mark.ch05


def function(*lines: str) -> LoopFunction:
    """Each line stands one level deeper than the one before."""
    body = [f"{'    ' * depth}{line}" for depth, line in enumerate(lines, 1)]
    return parse_function("\n".join(["def f(A: f32[40], C: f32[20]):", *body]))


def refused(*lines: str) -> VerifyError:
    fn = function(*lines)
    verify_function(fn)  # it is not certainly outside
    with pytest.raises(VerifyError) as caught:
        check_inside(fn)
    return caught.value


I20, I32 = "for i in serial(0, 20):", "for i in serial(0, 32):"
O3 = "for o in serial(0, 3):"


@pytest.mark.parametrize(
    "lines",
    [
        (I20, "C[i] = A[2*i]"),
        (O3, "for i in serial(0, min(7, 20 - 7*o)):", "C[7*o + i] = A[0]"),
        (I32, "if 19 - i >= 0:", "C[i] = A[i]"),
        (I20, "C[i] = select(i - 3 >= 0, A[i - 3], 0.0)"),
        (I20, "C[i] = select(2 - i >= 0, 0.0, A[i - 3])"),
        ("for i in serial(0, 60):", "C[i//3] = A[i % 40]"),
        # no rule decides 0 <= (7*o + i)//4 - i//4 <= 4: all values are tried
        (O3, "for i in serial(0, 7):", "C[(7*o + i)//4 - i//4] = A[0]"),
    ],
)
def test_right_programs_pass(lines: tuple[str, ...]) -> None:
    check_inside(function(*lines))


@pytest.mark.parametrize(
    ("lines", "where"),
    [
        ((I32, "if 20 - i >= 0:", "C[i] = A[i]"), "i = 20"),
        ((I20, "C[i] = select(i - 2 >= 0, A[i - 3], 0.0)"), "i = 2"),
        ((I20, "C[i] = select(1 - i >= 0, 0.0, A[i - 3])"), "i = 2"),
        ((O3, "for i in serial(0, min(7, 21 - 7*o)):", "C[7*o + i] = A[0]"), "i = 6, o = 2"),
        ((I20, "if i - 5 >= 0:", "C[i] = A[3*i]"), "i = 14"),
    ],
)
def test_an_access_outside_is_refused_with_an_example(lines: tuple[str, ...], where: str) -> None:
    error = refused(*lines)
    assert error.code == "MDLC0455"
    assert f"is outside where {where}" in error.message
    assert "in f: C[" in error.notes[0]


def test_large_numbers_do_not_wrap_around() -> None:
    huge = 1 << 63
    error = refused(I20, "if i - 5 >= 0:", f"C[{huge}*i - {huge}] = A[0]")
    assert error.code == "MDLC0455"


def test_what_can_be_neither_proved_nor_tried_is_refused() -> None:
    error = refused(
        "for o in serial(0, 99999):", "for i in serial(0, 99):",
        "C[(7*o + i)//4 - i//4 - 7*o//4] = A[0]",
    )  # fmt: skip
    assert error.code == "MDLC0459"


@pytest.mark.long
def test_no_legal_schedule_is_refused() -> None:
    """Conservative checks are worth nothing if they refuse what is right."""
    checked = 0
    for seed in range(200):
        rng = random.Random(seed)
        schedule, _ = random_schedule(random_case(rng), rng, steps=rng.randint(2, 14))
        for partition in (True, False):
            try:
                fn = schedule.lower(partition=partition)
            except ScheduleError:
                continue
            check_inside(fn)
            checked += 1
    assert checked > 300
