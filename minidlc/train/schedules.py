"""Learning rates that change: functions from the number of updates made to a rate.

    rate = warmup(cosine(1e-3, steps=1000), steps=100)
    step.learning_rate = rate(step.steps)           # an input: nothing is compiled again

Any function of one int will do; these are the usual ones. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import FunctionType
from typing import TypeAlias

from minidlc.support.arguments import expect
from minidlc.support.errors import TrainError
from minidlc.support.locations import caller
from minidlc.train.limits import checked, in_f32

Schedule: TypeAlias = Callable[[int], float]


def constant(rate: float) -> Schedule:
    """The same rate always."""
    rate = _number("constant", "rate", rate)
    return lambda step: rate


def decay(rate: float, every: int, factor: float = 0.1) -> Schedule:
    """The rate times `factor` for each `every` updates made: downward in steps, 0 below f32."""
    rate = _number("decay", "rate", rate)
    factor = checked("decay", "factor", factor, "a number from 0 to 1", lambda f: 0 <= f <= 1)
    _check("decay", "every", every)

    def at(step: int) -> float:
        number = rate * factor ** (step // every)
        return number if in_f32(number) else 0.0

    return at


def cosine(rate: float, steps: int, final: float = 0.0) -> Schedule:
    """From `rate` to `final` in `steps` updates, along half a cosine; then `final`.

    Loshchilov and Hutter, "SGDR", 2017, without restarts.
    """
    rate, final = _number("cosine", "rate", rate), _number("cosine", "final", final)
    _check("cosine", "steps", steps)

    def at(step: int) -> float:
        done = min(step / steps, 1.0)
        return final + (rate - final) * 0.5 * (1 + math.cos(math.pi * done))

    return at


def warmup(schedule: Schedule, steps: int) -> Schedule:
    """A schedule reached by a straight line: update i of the first `steps` has (i + 1) / steps.

    The schedule itself runs from the start, as if there was no warm-up (Goyal et al., 2017).
    """
    if not callable(schedule):
        hint = "warmup(constant(1e-3), steps=100)"
        expect("warmup", "schedule", schedule, FunctionType, hint=hint)
    _check("warmup", "steps", steps)
    return lambda step: schedule(step) * min((step + 1) / steps, 1.0)


def _number(name: str, which: str, value: float) -> float:
    return checked(name, which, value, "a finite number", math.isfinite)


def _check(name: str, which: str, value: int) -> None:
    expect(name, which, value, int)
    if value < 1:
        text = f"{name}: {which} is {value}, expected at least 1"
        raise TrainError(text, loc=caller(), code="MDLC1254")
