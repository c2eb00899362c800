"""Any legal trace computes what the program says: the test that finds the bugs of lowering."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from minidlc.expr.types import Array
from minidlc.loop.interpret import interpret
from minidlc.loop.nodes import LoopFunction
from minidlc.support.errors import ScheduleError
from minidlc.te import Schedule, create_schedule, parse_trace
from minidlc.te.primitive import Trace
from minidlc.tests.te.programs import Case, random_case
from minidlc.tests.te.random_traces import random_schedule

pytestmark = [pytest.mark.ch04, pytest.mark.long]


def run(fn: LoopFunction, case: Case) -> dict[str, Array]:
    outputs = {n: np.full_like(x, 77) for n, x in case.expected.items()}
    interpret(fn, {**case.inputs, **outputs}, check_parallel=True)
    return outputs


def check(fn: LoopFunction, case: Case, schedule: Schedule) -> None:
    for name, got in run(fn, case).items():
        rtol = 1e-5 if case.name == "softmax" else 0.0
        what = f"{name} of {case.name} after\n{schedule.trace}\n{fn}"
        np.testing.assert_allclose(got, case.expected[name], rtol=rtol, err_msg=what)


def lower_unless_registers(schedule: Schedule) -> LoopFunction | None:
    """The loops; None if positions in registers are no numbers, as a later step might mend."""
    try:
        return schedule.lower()
    except ScheduleError as error:
        if error.code != "MDLC0618":
            raise
        return None


def one_trace(seed: int) -> tuple[Schedule, int]:
    """Draw a program and a schedule, and check all that must hold of it."""
    rng = random.Random(seed)
    case = random_case(rng)
    schedule, refused = random_schedule(case, rng, steps=rng.randint(2, 14))
    assert Trace.from_json(schedule.trace.to_json()) == schedule.trace
    again = parse_trace(str(schedule.trace))
    assert again == schedule.trace
    assert str(again) == str(schedule.trace)
    scheduled = schedule.lower(partition=False)
    check(scheduled, case, schedule)
    loops = lower_unless_registers(schedule)
    if loops is None:
        return schedule, refused
    if loops != scheduled:
        check(loops, case, schedule)
    replayed = Schedule(case.outputs, again, checked=False)
    assert str(replayed.lower()) == str(loops)
    return schedule, refused


PARTS, SEEDS = 6, 55  # in parts, so that the cores share them


@pytest.mark.parametrize("part", range(PARTS))
def test_random_legal_traces_equal_the_reference(part: int) -> None:
    """In all parts together at least 300 traces of at least one primitive."""
    used = Counter[str]()
    accepted = refused = 0
    for seed in range(part * SEEDS, (part + 1) * SEEDS):
        schedule, no = one_trace(seed)
        accepted += bool(schedule.trace)
        refused += no
        used.update(step.name for step in schedule.trace)
    assert accepted >= 300 / PARTS
    assert refused > 10
    assert len(used) >= 14, f"primitives that traces use: {used}"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(21))
def test_twenty_thousand_random_traces(part: int) -> None:
    accepted = sum(bool(one_trace(10_000 + 1000 * part + n)[0].trace) for n in range(1000))
    assert accepted >= 960


def test_programs_are_right_without_a_schedule() -> None:
    for seed in range(40):
        case = random_case(random.Random(seed))
        schedule = create_schedule(case.outputs)
        check(schedule.lower(partition=False), case, schedule)
        check(schedule.lower(), case, schedule)


def test_every_prefix_lowers_and_prints() -> None:
    for seed in range(12):
        rng = random.Random(seed)
        case = random_case(rng)
        schedule, _ = random_schedule(case, rng, steps=8)
        prefixes = schedule.prefixes()
        assert len(prefixes) == len(schedule.trace) + 1
        texts = [str(prefix.lower(partition=False)) for prefix in prefixes]
        assert texts[0] == str(create_schedule(case.outputs).lower(partition=False))
        assert texts[-1] == str(schedule.lower(partition=False))
        for prefix in prefixes:
            check(prefix.lower(partition=False), case, prefix)
