"""te.lookup: elements at positions that are values, and schedules of stages read that way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from minidlc import te
from minidlc.expr.index import substitute
from minidlc.expr.types import Array, f32, i32, i64
from minidlc.loop.inside import check_inside
from minidlc.loop.interpret import interpret
from minidlc.loop.nodes import LoopFunction
from minidlc.loop.verify import verify_function
from minidlc.schedules import Group, schedule_group
from minidlc.support.errors import LoweringError, ScheduleError, VerifyError
from minidlc.support.extension import use
from minidlc.target import host

X, IDS = te.placeholder(f32[5, 4], "x"), te.placeholder(i32[7], "ids")
PLACES = np.array([3, -2, 0, 9, 4, 4, 1], np.int32)
TABLE = np.arange(20, dtype=np.float32).reshape(5, 4)
ROWS = PLACES.clip(0, 4)


def gather(x: te.Tensor, name: str = "y") -> te.Tensor:
    def row(i: te.Index, j: te.Index):
        return te.lookup(x, te.cast("i64", IDS[i]), j)

    return te.compute((7, 4), row, name=name)


def run(fn: LoopFunction) -> Array:
    check_inside(verify_function(fn))
    y = np.zeros((7, 4), np.float32)
    interpret(fn, {"x": TABLE, "ids": PLACES, "y": y}, check_parallel=True)
    return y


def test_text_and_meaning() -> None:
    y = gather(X)
    assert str(y) == 'y = compute(f32[7, 4], lambda i, j: x[at(cast("i64", ids[i]), 5), j])'
    assert [t.name for t in y.inputs] == ["x", "ids"]
    text = te.print_te([y])
    assert te.print_te(te.parse_te(text).outputs) == text
    np.testing.assert_array_equal(run(te.create_schedule(y).lower()), TABLE[ROWS])


def test_numbers_and_axes_are_taken_as_they_are() -> None:
    y = te.compute((4,), lambda j: te.lookup(X, 4, te.index(3 - j)), name="y")
    assert str(y) == "y = compute(f32[4], lambda j: x[4, 3 - j])"


def test_refused() -> None:
    with pytest.raises(LoweringError, match="x has 2 axes, got 1 indices") as error:
        te.lookup(X, 0)
    assert error.value.code == "MDLC0703"
    with pytest.raises(LoweringError, match=r"ids\[0\] is i32") as error:
        te.lookup(X, IDS[0], 0)
    assert error.value.code == "MDLC0725"


def test_an_axis_without_elements() -> None:
    """Nothing can be looked up there; where nothing is, nothing is wrong."""
    empty, ids = te.placeholder(f32[0, 4], "x"), te.placeholder(i64[3], "ids")
    y = te.compute((3, 0), lambda i, j: te.lookup(empty, ids[i], j), name="y")
    check_inside(verify_function(te.create_schedule(y).lower()))
    y = te.compute((3, 4), lambda i, j: te.lookup(empty, ids[i], j), name="y")
    with pytest.raises(VerifyError) as error:
        check_inside(verify_function(te.create_schedule(y).lower()))
    assert error.value.code == "MDLC0455"


def padded() -> te.Tensor:
    return te.compute(
        (5, 4),
        lambda i, j: te.select(i >= 1, X[i - 1, j], te.cast("f32", te.index(i + j))) + 1.0,
        name="p",
    )


WANT = np.vstack([np.arange(4), TABLE[:-1]])[ROWS] + 1


def test_inlining_computes_only_what_is_looked_up() -> None:
    p = padded()
    sch = te.create_schedule(gather(p))
    sch[p].compute_inline()
    fn = sch.lower()
    assert "alloc" not in str(fn)
    assert 'select(at(cast("i64", ids[i]), 5) - 1 >= 0, x[at(' in str(fn)
    np.testing.assert_array_equal(run(fn), WANT)


def test_at_a_loop_the_whole_axis_is_computed() -> None:
    p = padded()
    y = gather(p)
    sch = te.create_schedule(y)
    jo, _ = sch[y].split("j", 3)
    sch[y].reorder(jo, "i")
    sch[p].compute_at(y, jo)
    fn = sch.lower(partition=False)
    assert "p = alloc(f32[5, 3]" in str(fn)
    np.testing.assert_array_equal(run(fn), WANT)
    np.testing.assert_array_equal(run(sch.lower()), WANT)


def test_a_copy_in_blocks() -> None:
    y = gather(X)
    sch = te.create_schedule(y)
    sch[y].cache_read(X, {0: 2})
    np.testing.assert_array_equal(run(sch.lower()), TABLE[ROWS])


def test_registers_have_no_positions_in_memory() -> None:
    p = padded()
    sch = te.create_schedule(gather(p))
    for leaf in ("i", "j"):
        sch[p].unroll(leaf)
        sch["y"].unroll(leaf)
    sch[p].set_scope("register")
    with pytest.raises(
        ScheduleError, match=r"'p' is in registers, but looked up at \[at\("
    ) as error:
        sch.lower()
    assert error.value.code == "MDLC0618"


@pytest.mark.parametrize(("count", "stored"), [(7, True), (2, False)])
def test_what_is_looked_up_more_often_than_it_has_elements_is_stored(
    count: int, stored: bool
) -> None:
    p = te.compute((3, 4), lambda i, j: te.exp(X[i, j]), name="p")
    y = te.compute((count, 4), lambda i, j: te.lookup(p, te.cast("i64", IDS[i]), j) + 1.0, name="y")
    sch = te.create_schedule(y)
    schedule_group(sch, Group((y,)), "injective", host())
    assert ("p = alloc" in str(sch.lower())) is stored


def test_overrides_see_variables_in_the_place_of_values() -> None:
    """A course's `simplify` and `bounds` know variables, min, max, // and %, nothing else."""
    seen: list[te.Index] = []

    def simplify(e: te.Index, ranges: object) -> te.Index:
        seen.append(e)
        return e

    def bounds(e: te.Index, loops: Sequence[tuple[te.Var, te.Index]], ranges: object) -> object:
        seen.append(e)
        low = substitute(e, {v: te.Index.of(0) for v, _ in loops})
        return low, substitute(e, {v: n - 1 for v, n in loops})

    p = padded()
    y = gather(p)
    sch = te.create_schedule(y)
    sch[p].compute_at(y, "i")
    with use(simplify=simplify, bounds=bounds):
        fn = sch.lower(partition=False)
    np.testing.assert_array_equal(run(fn), WANT)
    assert any("at__0" in str(e) for e in seen)
    assert not any("at(" in str(e) for e in seen)
