"""Positions that are values in memory, and tests of values: text, meaning, what is proved."""

from __future__ import annotations

import numpy as np
import pytest

from minidlc.expr.index import Cond, Index, Var, value_range
from minidlc.expr.nodes import Load
from minidlc.expr.types import f32, i64
from minidlc.expr.walk import At, at
from minidlc.loop.dependence import independent
from minidlc.loop.inside import check_inside
from minidlc.loop.interpret import interpret
from minidlc.loop.nodes import For, If, Kind, LoopFunction, Param, Store
from minidlc.loop.partition import partition
from minidlc.loop.regions import regions
from minidlc.loop.text import parse_function
from minidlc.loop.verify import verify_function
from minidlc.support.errors import LoweringError, ParseError, VerifyError

SCATTER = """\
def scatter(ids: i64[6], v: f32[6, 4], y: f32[5, 4]):
    for i in serial(0, 6):
        for j in serial(0, 4):
            if v[i, j] > y[at(ids[i], 5), j]:
                y[at(ids[i], 5), j] = v[i, j] + y[at(ids[i] + i64(1), 5), (at(ids[i], 9) + j)//3]
"""
ROW, COLUMN = Var("i"), Var("j")
PLACE = at(Load("ids", (Index.of(ROW),), i64), 5)


def test_text_is_read_back() -> None:
    fn = parse_function(SCATTER)
    assert str(fn) == SCATTER
    assert parse_function(str(fn)) == fn
    assert verify_function(fn) is fn
    check_inside(fn)


def test_positions_are_clamped() -> None:
    fn = parse_function("""
def f(ids: i64[4], x: f32[3], y: f32[4]):
    for i in serial(0, 4):
        y[i] = x[at(ids[i], 3)]
""")
    y = np.zeros(4, np.float32)
    ids = np.array([-(2**63), 1, 2, 2**63 - 1])
    interpret(fn, {"ids": ids, "x": np.array([5, 6, 7], np.float32), "y": y})
    np.testing.assert_array_equal(y, [5, 6, 7, 7])


def test_partition_keeps_the_meaning() -> None:
    fn = parse_function("""
def f(ids: i64[9], x: f32[5], y: f32[9]):
    for i in serial(0, 9):
        y[i] = select(i - 3 >= 0, x[at(ids[max(i - 3, 0)], 5)], 0.0)
""")
    cut = LoopFunction("f", fn.params, partition(fn.body))
    assert "select" not in str(cut)
    ids, x = np.arange(-2, 7), np.arange(5, dtype=np.float32)
    for part in (fn, cut):
        y = np.zeros(9, np.float32)
        interpret(part, {"ids": ids, "x": x, "y": y})
        np.testing.assert_array_equal(y, [0, 0, 0, *x[ids[:6].clip(0, 4)]])


def test_a_known_value_is_a_number() -> None:
    assert str(at(Load("ids", (), i64) + 1, 3)) == "at(ids[()] + i64(1), 3)"
    body = parse_function("""
def f(x: f32[3], y: f32[3]):
    for i in serial(0, 3):
        y[at(index(i), 3)] = x[at(i64(7), 3)]
""").body
    assert isinstance(body, For)
    assert str(body.body) == str(Store("y", body.body.index, Load("x", (Index.of(2),), f32)))


def test_region_is_the_whole_axis() -> None:
    fn = parse_function(SCATTER)
    assert value_range(2 * PLACE + 1, {}) == (1, 9)
    whole = (Index.of(0), Index.of(5)), (Index.of(0), Index.of(4))
    assert regions(fn.body, "y", "w") == whole
    assert regions(fn.body, "ids", "r") == ((Index.of(0), Index.of(6)),)


@pytest.mark.parametrize(
    ("target", "value", "expected"),
    [
        ("y[at(ids[i], 5), j]", "1.0", False),
        ("y[i, at(ids[j], 4)]", "1.0", True),
        ("y[i, at(ids[i], 4)]", "x[i]", True),
        ("y[i, j]", "x[at(ids[i], 5)]", True),
        ("y[i, j]", "y[at(ids[i], 5), j]", False),
        ("y[i, j]", "y[i, at(ids[i], 4)]", True),
        ("z[at(ids[i], 4) + 4*i]", "1.0", True),
        ("z[at(ids[i], 5) + 4*i]", "1.0", False),
        ("z[at(ids[0], 20)]", "1.0", False),
    ],
)
def test_which_loops_may_run_in_parallel(target: str, value: str, expected: bool) -> None:
    fn = parse_function(f"""
def f(ids: i64[5], x: f32[5], y: f32[5, 4], z: f32[24]):
    for i in serial(0, 5):
        for j in serial(0, 4):
            {target} = {value}
""")
    verify_function(fn)
    check_inside(fn)
    assert isinstance(fn.body, For)
    assert independent(fn.body) is expected


def test_a_test_of_a_written_value_is_no_parallel_loop() -> None:
    fn = parse_function("""
def f(x: f32[5], best: f32[()]):
    for i in serial(0, 5):
        if x[i] > best[()]:
            best[()] = x[i]
""")
    assert isinstance(fn.body, For)
    assert not independent(fn.body)
    best = np.array(2, np.float32)
    interpret(fn, {"x": np.array([1, 5, 3, 4, np.nan], np.float32), "best": best})
    assert best == 5


def test_values_that_move_are_not_taken_for_equal() -> None:
    """`n` changes from one iteration to the next, so both may write z[i]."""
    fn = parse_function("""
def f(n: i64[1], z: f32[9]):
    for i in serial(0, 5):
        z[i + at(n[0], 5)] = 1.0
        n[0] = index(i)
""")
    assert isinstance(fn.body, For)
    assert not independent(fn.body)


def function(stmt: If | Store | For) -> LoopFunction:
    params = (Param("ids", i64[5]), Param("x", f32[5]), Param("y", f32[4]))
    return LoopFunction("f", params, For(ROW, Index.of(4), Kind.SERIAL, stmt))


ONE = Load("x", (Index.of(0),), f32)


@pytest.mark.parametrize(
    ("stmt", "code", "message"),
    [
        (Store("y", (PLACE,), ONE), "MDLC0455", "is outside where"),
        (Store("y", (at(Load("ids", (ROW + 2,), i64), 4),), ONE), "MDLC0455", "reaches 2..5"),
        (
            If(Load("ids", (Index.of(ROW),), i64), Store("y", (ROW + 0,), ONE)),
            "MDLC0456",
            "test of",
        ),
        (If(Cond((PLACE,)), Store("y", (ROW + 0,), ONE)), "MDLC0463", "value in memory"),
        (
            For(COLUMN, PLACE, Kind.SERIAL, Store("y", (ROW + 0,), ONE)),
            "MDLC0463",
            "value in memory",
        ),
        (Store("y", (Index.of(At(ONE, 4)),), ONE), "MDLC0464", "a position is i64"),
        (
            Store("y", (at(Load("ids", (Index.of(COLUMN),), i64), 4),), ONE),
            "MDLC0450",
            "outside its",
        ),
        (Store("y", (at(Load("none", (), i64), 4),), ONE), "MDLC0452", "'none' is used"),
    ],
)
def test_refused(stmt: If | Store | For, code: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message) as error:
        check_inside(verify_function(function(stmt)))
    assert error.value.code == code


def test_no_position() -> None:
    with pytest.raises(LoweringError, match="is f32") as error:
        at(ONE, 4)
    assert error.value.code == "MDLC0725"
    with pytest.raises(LoweringError, match="no position lies in an axis of 0 elements") as error:
        at(Load("ids", (), i64), 0)
    assert error.value.code == "MDLC0726"


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("at(ids[i])", "not a position"),
        ("at(ids[i], n)", "the extent of an axis is a number"),
        ("at(ids[i], 0)", "no position lies in an axis of 0 elements"),
        ("at(y[i], 4)", "a position is an i64 value"),
    ],
)
def test_text_that_is_no_position(index: str, message: str) -> None:
    text = f"def f(ids: i64[5], y: f32[4]):\n    for i in serial(0, 4):\n        y[{index}] = 1.0\n"
    with pytest.raises(ParseError, match=message) as error:
        parse_function(text)
    assert error.value.code == "MDLC0322"
    assert error.value.loc is not None


def test_text_that_is_no_test() -> None:
    text = "def f(y: f32[4]):\n    if y[0]:\n        y[0] = 1.0\n"
    with pytest.raises(ParseError, match="if tests a f32") as error:
        parse_function(text)
    assert error.value.code == "MDLC0325"
