"""Of several implementations of a kind the cheapest that applies is taken."""

from __future__ import annotations

import pytest

from minidlc.expr.types import TensorType, f32
from minidlc.schedules import Group, Implementation, choose, implementation, plain
from minidlc.support.errors import ScheduleError
from minidlc.target import Target
from minidlc.te import compute, create_schedule, placeholder, reduce_axis
from minidlc.te import sum as te_sum

MACHINE = Target("x86_64-unknown-linux-gnu", "skylake", "+avx2,+fma", 256, 16)


def _product(rows: int) -> Group:
    a = placeholder(TensorType(f32, (rows, 8)), "a")
    b = placeholder(TensorType(f32, (8, 16)), "b")
    k = reduce_axis(8, "k")
    c = compute((rows, 16), lambda i, j: te_sum(a[i, k] * b[k, j], k), "c")
    return Group((c,), c)


def _nothing(sch: object, group: Group, target: Target, knobs: object) -> None:
    pass


LARGE = Implementation("large", "matmul", _nothing, cost=lambda g, t: 100.0)
ROW = Implementation(
    "row",
    "matmul",
    _nothing,
    applies=lambda g, t: g.last.shape[0] == 1,
    cost=lambda g, t: 10.0,
    knobs=lambda g, t: {"columns": (4, 8), "unroll": (2,)},
)


def test_the_cheapest_that_applies_is_taken() -> None:
    assert choose((LARGE, ROW), "matmul", _product(1), MACHINE) is ROW
    assert choose((LARGE, ROW), "matmul", _product(7), MACHINE) is LARGE


def test_of_equals_the_first_is_taken() -> None:
    other = Implementation("other", "matmul", _nothing, cost=lambda g, t: 100.0)
    assert choose((other, LARGE), "matmul", _product(7), MACHINE) is other


def test_none_that_applies_is_an_error() -> None:
    with pytest.raises(ScheduleError, match="no schedule of the kind 'matmul' fits") as caught:
        choose((ROW,), "matmul", _product(7), MACHINE)
    assert caught.value.code == "MDLC0622"


def test_an_unknown_kind_names_a_known_one() -> None:
    with pytest.raises(ScheduleError, match="no schedule of the kind 'matmull'") as caught:
        implementation("matmull", _product(7), MACHINE)
    assert "matmul" in (caught.value.hint or "")


def test_the_first_candidate_of_a_knob_is_its_default() -> None:
    assert ROW.defaults(_product(1), MACHINE) == {"columns": 4, "unroll": 2}


def test_the_plain_schedule_applies_nothing() -> None:
    group = _product(3)
    sch = create_schedule(group.outputs)
    plain(sch, group, MACHINE)
    assert len(sch.trace) == 0
