"""Loss scaling: f16 has no numbers below 6e-8, so small gradients are computed multiplied.

    DynamicScale(initial=2.0**15, interval=2000)    # what compile_train_step(loss_scale=…) takes

The loss is multiplied by the scale, the gradients are divided by it. Where one of them is infinite
or NaN the update is left out and the scale is halved; after `interval` good updates it is doubled.
Both are nodes of the step's graph (Micikevicius et al., "Mixed Precision Training", 2018). Treated
in course chapter 03_autodiff.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from minidlc.expr.types import f32, f64
from minidlc.graph.graph import Value, apply, tensor_type
from minidlc.ops.composing import cast_to
from minidlc.support.arguments import expect
from minidlc.support.errors import TrainError
from minidlc.support.locations import caller
from minidlc.train.limits import checked


@dataclass(frozen=True)
class DynamicScale:
    """A scale that finds its size: halved at an overflow, doubled after `interval` good updates.

    Powers of two round nothing. Raises TrainError (MDLC1254) for numbers that make no sense, and
    for those that f32 cannot hold: a scale that is infinite would never come down again.
    """

    initial: float = 2.0**15
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2000
    smallest: float = 1.0
    largest: float = 2.0**24

    def __post_init__(self) -> None:
        expect("DynamicScale", "interval", self.interval, int)
        for name in ("initial", "growth", "backoff", "smallest", "largest"):
            given, wanted = getattr(self, name), "a positive number"
            number = checked("DynamicScale", name, given, wanted, lambda n: 0 < n < math.inf)
            object.__setattr__(self, name, number)
        fits = self.smallest <= self.initial <= self.largest
        if not (fits and self.backoff < 1 <= self.growth and self.interval >= 1):
            text = f"{self} makes no sense"
            hint = "0 < smallest <= initial <= largest, 0 < backoff < 1 <= growth, interval >= 1"
            raise TrainError(text, loc=caller(), hint=hint, code="MDLC1254")


def is_finite(gradients: Sequence[Value]) -> Value:
    """Whether no element is infinite or NaN: the largest magnitude says it, and NaN wins in max."""
    return apply("less", largest(gradients), math.inf)


def largest(gradients: Sequence[Value]) -> Value:
    """The largest magnitude of all of them: one number of f32, or f64 where one of them is."""
    element = f64 if any(tensor_type(dx).dtype == f64 for dx in gradients) else f32
    found: Value | None = None
    for dx in gradients:
        own = cast_to(apply("max", abs(dx), axes=None, keepdims=False), element)
        found = own if found is None else apply("maximum", found, own)
    assert found is not None, "a step trains something"
    return found


def next_scale(rule: DynamicScale, finite: Value, scale: Value, good: Value) -> tuple[Value, Value]:
    """The scale and the number of good updates in a row, after an update or one left out."""
    grows = apply("greater_or_equal", good + 1, rule.interval)
    grown = apply("minimum", scale * rule.growth, rule.largest)
    reduced = apply("maximum", scale * rule.backoff, rule.smallest)
    new_scale = apply("where", finite, apply("where", grows, grown, scale), reduced)
    goes_on = apply("logical_and", finite, apply("logical_not", grows))
    return new_scale, apply("where", goes_on, good + 1, 0)
