"""What searches share: points that are new, the most promising of those scored, a full batch.

    fresh(lambda: space.mutated(best, rng), tried)          # a point that was not tried, or None
    promising({a: 0.3, b: 0.1, c: 0.2}, trials, 2)          # [b, c], if none was tried
    filled([b], space, trials, 8, rng)                      # b and seven random ones

Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random

from minidlc.tuning.space import Config, Space
from minidlc.tuning.trial import Trial

_DRAWS = 20


def fresh(draw: Callable[[], Config], tried: Collection[Config]) -> Config | None:
    """The first of some draws that was not tried; None if all were, as happens near good points."""
    for _ in range(_DRAWS):
        if (config := draw()) not in tried:
            return config
    return None


def promising(scores: Mapping[Config, float], trials: Sequence[Trial], count: int) -> list[Config]:
    """The `count` of the least scores that were not tried, the best first, of equals the first met.

    Points with no loops, whose score is infinite, are left out.
    """
    tried = {t.config for t in trials}
    new = [(s, c) for c, s in scores.items() if c not in tried and math.isfinite(s)]
    return [c for _, c in heapq.nsmallest(count, new, key=lambda pair: pair[0])]


def filled(
    found: Sequence[Config], space: Space, trials: Sequence[Trial], count: int, rng: Random
) -> list[Config]:
    """The points found, then random ones up to `count`; less where the space has no more."""
    known = [*found, *(t.config for t in trials)]
    return [*found, *space.distinct(count - len(found), rng, known)]
