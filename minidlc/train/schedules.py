"""Learning rates that change: functions from the number of updates made to a rate.

    rate = warmup(cosine(1e-3, steps=1000), steps=100)
    step.learning_rate = rate(step.steps)           # an input: nothing is compiled again

Any function of one int will do; these are the usual ones. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from minidlc.support.arguments import expect
from minidlc.support.errors import TrainError
from minidlc.support.locations import caller

Schedule: TypeAlias = Callable[[int], float]


def constant(rate: float) -> Schedule:
    """The same rate always."""
    return lambda step: rate


def decay(rate: float, every: int, factor: float = 0.1) -> Schedule:
    """The rate times `factor` for each `every` updates made: steps downward."""
    _check("decay", "every", every)
    return lambda step: rate * factor ** (step // every)


def cosine(rate: float, steps: int, final: float = 0.0) -> Schedule:
    """From `rate` to `final` in `steps` updates, along half a cosine; then `final`.

    Loshchilov and Hutter, "SGDR", 2017, without restarts.
    """
    _check("cosine", "steps", steps)

    def at(step: int) -> float:
        done = min(step / steps, 1.0)
        return final + (rate - final) * 0.5 * (1 + math.cos(math.pi * done))

    return at


def warmup(schedule: Schedule, steps: int) -> Schedule:
    """A schedule reached by a straight line: update i of the first `steps` has (i + 1) / steps.

    The schedule itself runs from the start, as if there was no warm-up (Goyal et al., 2017).
    """
    _check("warmup", "steps", steps)
    return lambda step: schedule(step) * min((step + 1) / steps, 1.0)


def _check(name: str, which: str, value: int) -> None:
    expect(name, which, value, int)
    if value < 1:
        text = f"{name}: {which} is {value}, expected at least 1"
        raise TrainError(text, loc=caller(), code="MDLC1254")
