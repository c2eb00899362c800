"""Any legal trace compiles to machine code that computes what the program says."""

from __future__ import annotations

import random

import numpy as np
import pytest

from minidlc import target
from minidlc.codegen.compile import compile_kernel, run_kernel
from minidlc.support.errors import ScheduleError
from minidlc.te import Schedule
from minidlc.tests.codegen.helpers import WIDTHS
from minidlc.tests.te.programs import Case, random_case
from minidlc.tests.te.random_traces import random_schedule, specialise

pytestmark = [pytest.mark.llvm, pytest.mark.ch05]


def compiles_right(seed: int) -> bool:
    """Compile one random schedule and compare; False if a register scope was refused."""
    rng = random.Random(seed)
    case = random_case(rng)
    schedule, _ = random_schedule(case, rng, steps=rng.randint(2, 10))
    try:
        schedule.lower()
        specialise(schedule, rng)
        fn = schedule.lower("kernel")
    except ScheduleError as error:
        if error.code == "MDLC0618":
            return False
        raise
    machine = target.host(vector_width=rng.choice(WIDTHS))
    arrays = {**case.inputs, **{n: np.full_like(x, 77) for n, x in case.expected.items()}}
    kernel = compile_kernel(fn, machine, cache=False)
    run_kernel(kernel, [arrays[p.name] for p in fn.params], threads=rng.choice((1, 2)))
    compare(case, schedule, arrays)
    return True


def compare(case: Case, schedule: Schedule, arrays: dict[str, np.ndarray]) -> None:
    for name, expected in case.expected.items():
        rtol = 1e-5 if case.name == "softmax" else 0.0
        what = f"{name} of {case.name} after\n{schedule.trace}\n{schedule.lower()}"
        np.testing.assert_allclose(arrays[name], expected, rtol=rtol, err_msg=what)


@pytest.mark.parametrize("part", range(3))
def test_random_schedules_compile_right(part: int) -> None:
    compiled = sum(compiles_right(20 * part + n) for n in range(20))
    assert compiled >= 14


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_two_thousand_random_schedules_compile_right(part: int) -> None:
    compiled = sum(compiles_right(1000 * (part + 1) + n) for n in range(250))
    assert compiled >= 180
