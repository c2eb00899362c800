"""Loss scaling: f16 has no numbers below 6e-8, so small gradients are computed multiplied.

    DynamicScale(initial=2.0**15, interval=2000)    # what compile_train_step(loss_scale=…) takes

The loss is multiplied by the scale, the gradients are divided by it. Where one of them is infinite
or NaN the update is left out and the scale is halved; after `interval` good updates it is doubled.
Both are nodes of the step's graph (Micikevicius et al., "Mixed Precision Training", 2018). Treated
in course chapter 03_autodiff.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from minidlc.expr.types import f32
from minidlc.graph.graph import Value, apply
from minidlc.ops.composing import cast_to
from minidlc.support.arguments import expect
from minidlc.support.errors import TrainError
from minidlc.support.locations import caller


@dataclass(frozen=True)
class DynamicScale:
    """A scale that finds its size: halved at an overflow, doubled after `interval` good updates.

    Powers of two round nothing. Raises TrainError (MDLC1254) for numbers that make no sense.
    """

    initial: float = 2.0**15
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2000
    smallest: float = 1.0
    largest: float = 2.0**24

    def __post_init__(self) -> None:
        expect("DynamicScale", "interval", self.interval, int)
        numbers = (self.initial, self.growth, self.backoff, self.smallest, self.largest)
        for number in numbers:
            expect("DynamicScale", "a number", number, int, float)
        fits = 0 < self.smallest <= self.initial <= self.largest < math.inf
        if not (fits and 0 < self.backoff < 1 <= self.growth < math.inf and self.interval >= 1):
            text = f"{self} makes no sense"
            hint = "0 < smallest <= initial <= largest, 0 < backoff < 1 <= growth, interval >= 1"
            raise TrainError(text, loc=caller(), hint=hint, code="MDLC1254")


def is_finite(gradients: Iterable[Value]) -> Value:
    """Whether no element is infinite or NaN: the largest magnitude says it, and NaN wins in max."""
    largest: Value | None = None
    for dx in gradients:
        own = cast_to(apply("max", abs(dx), axes=None, keepdims=False), f32)
        largest = own if largest is None else apply("maximum", largest, own)
    assert largest is not None, "a step trains something"
    return apply("less", largest, math.inf)


def next_scale(rule: DynamicScale, finite: Value, scale: Value, good: Value) -> tuple[Value, Value]:
    """The scale and the number of good updates in a row, after an update or one left out."""
    grows = apply("greater_or_equal", good + 1, rule.interval)
    grown = apply("minimum", scale * rule.growth, rule.largest)
    reduced = apply("maximum", scale * rule.backoff, rule.smallest)
    new_scale = apply("where", finite, apply("where", grows, grown, scale), reduced)
    goes_on = apply("logical_and", finite, apply("logical_not", grows))
    return new_scale, apply("where", goes_on, good + 1, 0)
