"""Numbers that say how to train, checked: an update is computed in f32, so f32 has to hold them.

    checked("momentum", "momentum", np.float32(0.5), "a number below 1", lambda n: n < 1)   # 0.5
    checked("compile_train_step", "clip_norm", 1e39, "a positive number", lambda n: n > 0)
    # error[MDLC1254]: compile_train_step: clip_norm is 1e+39, expected a positive number
    in_f32(1e39), in_f32(1e-60), in_f32(0.0)        # False (infinite), False (rounded to 0), True

Reads what a caller gave, writes a float of Python, or raises. Treated in course chapter
03_autodiff.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import SupportsFloat, cast

import numpy as np

from minidlc.expr.types import DType, f32
from minidlc.support.arguments import expect
from minidlc.support.errors import TrainError
from minidlc.support.locations import caller


def in_f32(number: float) -> bool:
    """Whether f32 holds the number, rounded: neither infinity, NaN, nor a 0 that was none."""
    return _holds(f32, number)


def _holds(element: DType, number: float) -> bool:
    smallest, largest = _limits(element)
    return number == 0 or smallest <= abs(number) <= largest


def _limits(element: DType) -> tuple[float, float]:
    """Of the normal numbers: what is smaller loses digits, and 1 / x of it may be infinite."""
    found = np.finfo(element.numpy.name)
    return float(found.tiny), float(found.max)


def as_float(function: str, name: str, value: object, *, hint: str | None = None) -> float:
    """A number of Python or NumPy as float; infinite if none is so large. OptionError (MDLC1001)
    for anything else.
    """
    expect(function, name, value, Real, hint=hint)
    try:
        return float(cast(SupportsFloat, value))
    except OverflowError:  # an integer of hundreds of digits
        return math.inf


def checked(
    function: str,
    name: str,
    value: object,
    wanted: str,
    fits: Callable[[float], bool],
    *,
    hint: str | None = None,
    element: DType = f32,
) -> float:
    """The number as float; TrainError (MDLC1254) unless it `fits` and the type `element` holds it.

    OptionError (MDLC1001), with the hint, for what is no number.
    """
    number = as_float(function, name, value, hint=hint)
    if fits(number) and _holds(element, number):
        return number
    smallest, largest = _limits(element)
    reason = f"{element} holds 0 and {smallest:.3g} to {largest:.3g}" if fits(number) else None
    text = f"{function}: {name} is {number}, expected {wanted}"
    raise TrainError(text, loc=caller(), hint=reason, code="MDLC1254")
