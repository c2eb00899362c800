"""Random search: any point that was not tried. What every other search has to beat.

    RandomSearch()(space, trials, None, 8, Random(0))       # eight new points
    RandomSearch()(space, list_of_all, None, 8, Random(0))  # []

It needs no model and no neighbours, and in spaces where few knobs matter it beats a grid of the
same size (J. Bergstra and Y. Bengio, Random Search for Hyper-Parameter Optimization, JMLR 2012).
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from minidlc.tuning.problem import Score
from minidlc.tuning.space import Config, Space
from minidlc.tuning.trial import Trial


@dataclass(frozen=True)
class RandomSearch:
    """A way, each as likely as another, then its knobs; no point twice."""

    name: str = "random"

    def __call__(
        self,
        space: Space,
        trials: Sequence[Trial],
        score: Score | None,
        count: int,
        rng: Random,
    ) -> list[Config]:
        """Up to `count` new points; the score is not asked."""
        return space.distinct(count, rng, (t.config for t in trials))
