"""Grid search: every point, in an order that covers the space early.

    GridSearch()(space, [], None, 4, Random(0))     # four points far from one another
    GridSearch(stride=1)(space, [], None, 4, Random(0))     # the first four, the last knob fastest
    explore(problem, GridSearch(), trials=space.size)       # exhaustive: the best there is

Points are numbered (`space.at`), and the order goes round by a fixed stride. A stride of the golden
section leaves no large gap after any number of steps (T. van Ravenstein, The Three Gap Theorem,
1988), so that a grid broken off early has seen something of every way. Treated in course chapter
06_autotune.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from minidlc.support.errors import TuneError
from minidlc.tuning.problem import Score
from minidlc.tuning.space import Config, Space
from minidlc.tuning.trial import Trial

_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass
class GridSearch:
    """All points once; `stride` None is the golden section of the space, 1 its own order.

    TuneError (MDLC1334) for a stride below 1. One that shares a factor with the size of the space
    would not meet every point: the next larger one that does not is taken.
    """

    stride: int | None = None
    name: str = "grid"
    _at: tuple[Space, int, Config] | None = field(default=None, repr=False)  # where it was last

    def __post_init__(self) -> None:
        if self.stride is not None and self.stride < 1:
            raise TuneError(
                f"grid search: stride is {self.stride}", hint="1, 2, …", code="MDLC1334"
            )

    def __call__(
        self,
        space: Space,
        trials: Sequence[Trial],
        score: Score | None,
        count: int,
        rng: Random,
    ) -> list[Config]:
        """The next `count` points that were not tried; neither score nor `rng` is asked."""
        tried, start = {t.config for t in trials}, 0
        if self._at and self._at[0] is space and self._at[2] in tried:
            start = self._at[1]  # no need to look again at what was proposed before
        found = self._walk(space, tried, start, count)
        return found or (self._walk(space, tried, 0, count) if start else [])

    def _walk(self, space: Space, tried: set[Config], step: int, count: int) -> list[Config]:
        stride, found = self._stride(space.size), list[Config]()
        while step < space.size and len(found) < count:
            config = space.at(step * stride % space.size)
            step += 1
            if config not in tried and space.allowed(config):
                found.append(config)
        if found:
            self._at = space, step, found[-1]
        return found

    def _stride(self, size: int) -> int:
        stride = max(1, round(size * _GOLDEN)) if self.stride is None else self.stride
        while math.gcd(stride, size) > 1:
            stride += 1
        return stride
