"""A bandit over searches: each batch goes to the one that lately found the most.

    search = Bandit((Evolution(), Annealing(), RandomSearch()))
    explore(problem, search, trials=64)[-1].by      # 'annealing': who proposed it
    search.credit(trials)                           # {'evolution': 0.61, …}

No search is the best on every space, and which one is shows only on the way. A search is credited
with the area under its curve of successes, a success being a trial faster than all before it, late
ones weighing more; plus a bonus that grows while it is not asked (the AUC bandit of OpenTuner,
J. Ansel et al., PACT 2014; A. Fialho et al., Analyzing Bandit-Based Adaptive Operator Selection,
2010). Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from minidlc.support.errors import TuneError
from minidlc.tuning.problem import Score, Search, name_of
from minidlc.tuning.space import Config, Space
from minidlc.tuning.trial import Trial


@dataclass
class Bandit:
    """Several searches of different names; `by` is the one that was asked last.

    The last `window` trials count; `curiosity` weighs the bonus. TuneError (MDLC1333) without a
    search, or with two of one name; MDLC1334 for a window below 1.
    """

    searches: Sequence[Search]
    window: int = 64
    curiosity: float = 0.1
    name: str = "bandit"
    by: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self.searches = tuple(self.searches)
        names = [name_of(s) for s in self.searches]
        if not names or len(set(names)) < len(names):
            hint = "at least one, each with a `name` of its own, such as Evolution(name='small')"
            text = f"a bandit over the searches {names}"
            raise TuneError(text, hint=hint, code="MDLC1333")
        if self.window < 1 or not self.curiosity >= 0:
            text = f"a bandit with window {self.window} and curiosity {self.curiosity}"
            raise TuneError(text, hint="a window from 1, curiosity from 0", code="MDLC1334")

    def __call__(
        self,
        space: Space,
        trials: Sequence[Trial],
        score: Score | None,
        count: int,
        rng: Random,
    ) -> list[Config]:
        """What the search of the largest credit proposes; the next one's where that has nothing."""
        credit = self.credit(trials)
        for search in sorted(self.searches, key=lambda s: -credit[name_of(s)]):
            if found := search(space, trials, score, count, rng):
                self.by = name_of(search)
                return found
        return []

    def credit(self, trials: Sequence[Trial]) -> dict[str, float]:
        """By name of a search: area under its curve, and bonus; infinite if not asked lately."""
        least, outcomes = math.inf, {name_of(s): list[bool]() for s in self.searches}
        for number, trial in enumerate(trials):
            if trial.by in outcomes and number >= len(trials) - self.window:
                outcomes[trial.by].append(trial.cost < least)
            least = min(least, trial.cost)
        total = sum(map(len, outcomes.values()))
        return {
            name: area(found) + self.curiosity * math.sqrt(2 * math.log2(total) / len(found))
            if found
            else math.inf
            for name, found in outcomes.items()
        }


def area(outcomes: Sequence[bool]) -> float:
    """The area under the curve of successes, as a share of what all successes would give."""
    won = sum(place for place, success in enumerate(outcomes, start=1) if success)
    return won / (len(outcomes) * (len(outcomes) + 1) / 2)
