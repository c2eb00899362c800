"""Prefetching is a note at a loop: it changes nothing but what is asked for ahead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from minidlc import te
from minidlc.expr.types import f32, i64
from minidlc.loop.interpret import interpret
from minidlc.loop.text import parse_function
from minidlc.loop.verify import verify_function
from minidlc.support.errors import ParseError, ScheduleError, VerifyError
from minidlc.te import Schedule, parse_trace
from minidlc.tests.te.programs import gemm

pytestmark = pytest.mark.ch05
CASE = gemm(4, 32, 37)


def fetching(distance: int = 8) -> Schedule:
    sch = te.create_schedule(CASE.outputs)
    sch["C"].reorder("i", "k", "j").prefetch("B", "k", distance).prefetch("A", "k", 2)
    return sch


def test_the_loop_says_what_is_fetched() -> None:
    sch = fetching()
    fn = verify_function(sch.lower())
    assert 'for k in serial(0, 37, prefetch={"B": 8, "A": 2}):' in str(fn)
    assert parse_function(str(fn)) == fn
    got = {n: np.full_like(x, 77) for n, x in CASE.expected.items()}
    interpret(fn, {**CASE.inputs, **got}, check_parallel=True)
    np.testing.assert_array_equal(got["D"], CASE.expected["D"])


def test_the_trace_replays_and_a_later_distance_replaces_the_earlier() -> None:
    sch = fetching()
    assert 'prefetch("C", "B", "k", 8)' in str(sch.trace)
    assert Schedule(sch.outputs, parse_trace(str(sch.trace))).lower() == sch.lower()
    sch["C"].prefetch("B", "k", 4)
    assert '"A": 2, "B": 4' in str(sch.lower())


def test_parts_of_a_loop_keep_it() -> None:
    sch = te.create_schedule(CASE.outputs)
    sch["C"].reorder("i", "k", "j").split("k", 8)
    sch["C"].prefetch("B", "ko", 1)
    assert "prefetch" in str(sch.lower())
    parallel = te.create_schedule(CASE.outputs)
    parallel["D"].parallel("i").prefetch("C", "i", 1)
    assert 'parallel(0, 4, prefetch={"C": 1})' in str(parallel.lower())
    got = {n: np.full_like(x, 77) for n, x in CASE.expected.items()}
    interpret(parallel.lower(), {**CASE.inputs, **got})
    np.testing.assert_array_equal(got["D"], CASE.expected["D"])


def lookup() -> Any:
    x, ids = te.placeholder(f32[5, 2], "x"), te.placeholder(i64[3], "ids")
    y = te.compute((3, 2), lambda i, j: te.lookup(x, ids[i], j), name="C")
    return te.create_schedule(y)["C"].prefetch("x", "i", 1)


@pytest.mark.parametrize(
    ("code", "make"),
    [
        ("MDLC0604", lambda: fetching(0)),
        ("MDLC0634", lambda: te.create_schedule(CASE.outputs)["C"].prefetch("bias", "k", 1)),
        ("MDLC0603", lambda: te.create_schedule(CASE.outputs)["C"].prefetch("B", "ko", 1)),
        ("MDLC0634", lambda: fetching()["C"].unroll("k")),
        ("MDLC0634", lambda: fetching()["D"].vectorize("j").prefetch("C", "j", 1)),
        ("MDLC0634", lookup),
    ],
)  # fmt: skip
def test_what_cannot_be_fetched_is_refused(code: str, make: Any) -> None:
    with pytest.raises(ScheduleError) as caught:
        make()
    assert caught.value.code == code


@pytest.mark.parametrize("text", ["{}", '{"B": 0}', '{"Z": 1}', '{"B": "x"}', "3"])
def test_malformed_text_is_refused(text: str) -> None:
    loops = 'def f(B: f32[4]):\n    for k in serial(0, 4, prefetch={"B": 1}):\n        B[k] = 0.0\n'
    fn = parse_function(loops)
    assert str(fn) == loops
    if text == "{}":
        assert "prefetch" not in str(parse_function(loops.replace('{"B": 1}', text)))
        return
    with pytest.raises(ParseError, match="no buffer and distance"):
        parse_function(loops.replace('{"B": 1}', text))


def test_an_unknown_buffer_in_loops_is_refused() -> None:
    fn = parse_function("def f(B: f32[4]):\n    for k in serial(0, 4):\n        B[k] = 0.0\n")
    with pytest.raises(VerifyError, match="'Z' is prefetched"):
        verify_function(replace(fn, body=replace(fn.body, prefetch=(("Z", 1),))))
