"""Numbers of a schedule that stay open: tied where they are the same, stored with the trace."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest

from minidlc import te
from minidlc.loop.interpret import interpret
from minidlc.support.errors import CompileError, ParseError, ScheduleError
from minidlc.te import Knob, Schedule, Trace, parse_trace
from minidlc.tests.te.programs import gemm

pytestmark = pytest.mark.ch06
CASE = gemm(9, 40, 5)


def tiled() -> Schedule:
    """One knob for the split and for the layout that goes with it, another for the rows."""
    sch = te.create_schedule(CASE.outputs)
    nr = sch.knob("NR", 16, candidates=(8, 16, 32))
    mr = sch.knob("MR", 4, (2, 4))
    sch["C"].cache_read("B", {1: nr})
    sch["D"].tile("i", "j", mr, nr)
    sch["C"].compute_at("D", "jo").split("j", nr)
    return sch


TEXT = """\
knob("NR", 16, candidates=[8, 16, 32])
knob("MR", 4, candidates=[2, 4])
cache_read("B", ["C"], tiles=[[1, knob("NR")]])
tile("D", ["i", "j"], ["io", "jo", "ii", "ji"], knob("MR"), knob("NR"))
compute_at("C", "D", "jo")
split("C", "j", knob("NR"), ["jo", "ji"], tail="cut")"""


def outputs(trace: Trace) -> Any:
    fn = Schedule(CASE.outputs, trace).lower()
    got = {n: np.full_like(x, 77) for n, x in CASE.expected.items()}
    interpret(fn, {**CASE.inputs, **got})
    return got["D"]


def test_the_text_declares_the_knobs_and_names_them_where_they_stand() -> None:
    trace = tiled().trace
    assert str(trace) == TEXT
    again = parse_trace(TEXT)
    assert again == trace
    assert str(again) == TEXT
    assert {n: (int(k), k.candidates) for n, k in again.knobs.items()} == {
        "NR": (16, (8, 16, 32)),
        "MR": (4, (2, 4)),
    }


def test_json_holds_them_too() -> None:
    trace = tiled().trace
    stored = json.loads(trace.to_json())
    assert stored["knobs"] == {"NR": [16, [8, 16, 32]], "MR": [4, [2, 4]]}
    assert stored["steps"][-1] == ["split", "C", "j", {"knob": "NR"}, ["jo", "ji"], "cut"]
    again = Trace.from_json(trace.to_json())
    assert again == trace
    assert str(again) == TEXT


def test_a_trace_without_knobs_is_stored_as_before() -> None:
    sch = te.create_schedule(CASE.outputs)
    sch["D"].split("j", 8)
    assert json.loads(sch.trace.to_json()) == [["split", "D", "j", 8, ["jo", "ji"], "cut"]]


@pytest.mark.parametrize("nr", [8, 16, 32])
@pytest.mark.parametrize("mr", [2, 4])
def test_every_candidate_replays_to_the_reference(nr: int, mr: int) -> None:
    trace = tiled().trace.with_knobs(NR=nr, MR=mr)
    assert f'knob("NR", {nr}, candidates=[8, 16, 32])' in str(trace)
    np.testing.assert_array_equal(outputs(trace), CASE.expected["D"])
    loops = str(Schedule(CASE.outputs, trace).lower(partition=False))
    assert f"alloc(f32[{-(-40 // nr)}, 5, {nr}]" in loops  # the layout is tied to the split
    assert parse_trace(str(trace)) == trace


def test_loops_do_not_depend_on_how_a_number_was_given() -> None:
    named = tiled()
    plain = Trace(step.with_numbers(int) for step in named.trace)
    assert plain.knobs == {}
    assert str(Schedule(CASE.outputs, plain).lower()) == str(named.lower())


def test_a_knob_is_an_int_and_arithmetic_on_it_is_plain() -> None:
    nr = te.create_schedule(CASE.outputs).knob("NR", 16, (8, 16))
    assert nr == 16
    assert range(20)[nr] == 16
    assert (type(nr * 2), nr * 2) == (int, 32)
    assert f"{nr}" == "16"
    for again in (copy.deepcopy(nr), pickle.loads(pickle.dumps(nr))):
        assert (again.name, int(again), again.candidates) == ("NR", 16, (8, 16))


def test_the_same_knob_may_be_asked_for_twice() -> None:
    sch = te.create_schedule(CASE.outputs)
    assert sch.knob("NR", 16, (8, 16)) is sch.knob("NR", 16, (8, 16))


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("MDLC0630", lambda: tiled().trace.with_knobs(KR=8)),
        ("MDLC0630", lambda: tiled().knob("NR", 8, (8, 16, 32))),
        ("MDLC0630", lambda: tiled()["C"].split("i", Knob("NR", 8, (8, 16, 32)))),
        ("MDLC0631", lambda: tiled().trace.with_knobs(NR=12)),
        ("MDLC0631", lambda: tiled().knob("KR", 5, (4, 8))),
        ("MDLC0631", lambda: tiled().knob("K R", 4)),
        ("MDLC0631", lambda: tiled().knob("KR", 4, (4, True))),
        ("MDLC0604", lambda: tiled()["C"].split("i", Knob("Z", 0))),
        ("MDLC0342", lambda: parse_trace('split("C", "i", knob("KR"), ["io", "ii"])')),
        ("MDLC0342", lambda: parse_trace('knob("KR", 4, [8])')),
        ("MDLC0342", lambda: parse_trace('knob("KR", 4)')),
        ("MDLC0342", lambda: parse_trace('knob("KR", "4", [4])')),
        ("MDLC0340", lambda: parse_trace('split("C", "i", knob(3 + x), ["io", "ii"])')),
        ("MDLC0342", lambda: parse_trace('knob("K", 4, [4])\nunroll("C", knob("K"))')),
        ("MDLC0342", lambda: Trace.from_json('[["split", "C", "i", {"knob": "K"}, ["a", "b"]]]')),
        ("MDLC0340", lambda: Trace.from_json('{"steps": []}')),
        ("MDLC0340", lambda: Trace.from_json('{"knobs": {}}')),
        ("MDLC0342", lambda: Trace.from_json('{"knobs": {"K": 4}, "steps": []}')),
        ("MDLC0342", lambda: Trace.from_json('{"knobs": {"K": [4, [5]]}, "steps": []}')),
    ],
)
def test_unknown_knobs_and_foreign_values_are_refused(code: str, wrong: Any) -> None:
    with pytest.raises((ScheduleError, ParseError)) as caught:
        wrong()
    assert isinstance(caught.value, CompileError)
    assert caught.value.code == code


def test_a_value_that_makes_the_trace_illegal_is_refused_at_replay() -> None:
    sch = te.create_schedule(CASE.outputs)
    sch["C"].split("j", sch.knob("NR", 8, (0, 8)))
    with pytest.raises(ScheduleError, match="the factor is 0"):
        Schedule(CASE.outputs, sch.trace.with_knobs(NR=0))
