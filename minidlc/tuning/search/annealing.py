"""Simulated annealing: chains of small steps that also go uphill, less and less often.

    Annealing()(space, trials, None, 8, rng)        # a step of each of eight chains, to be measured
    Annealing()(space, trials, score, 8, rng)       # the best points that chains met on the model

A step changes one knob. It is taken if the new point is faster, or with probability
exp(-worse / temperature) if it is slower by that much (S. Kirkpatrick et al., Optimization by
Simulated Annealing, Science 1983). Without a model each step is a trial, and costs are compared by
their logarithms: a temperature of 0.1 forgives 10 %. With a model the chains walk on its scores, as
in AutoTVM (T. Chen et al. 2018), and only the best of what they met is measured. Treated in course
chapter 06_autotune.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from minidlc.support.errors import TuneError
from minidlc.tuning.problem import Score
from minidlc.tuning.search.proposals import filled, fresh, promising
from minidlc.tuning.space import Config, Space
from minidlc.tuning.trial import Trial


@dataclass(frozen=True)
class Annealing:
    """`chains` walks; the temperature is multiplied by `cooling` with each step of a chain.

    `temperature` is in units of the logarithm of cost, on a model in those of the spread of its
    scores at the start. `steps` is the length of a walk on the model. TuneError (MDLC1334) for
    numbers that make no walk.
    """

    chains: int = 8
    temperature: float = 0.3
    cooling: float = 0.85
    steps: int = 16
    name: str = "annealing"

    def __post_init__(self) -> None:
        is_sound = self.chains >= 1 and self.steps >= 1 and self.temperature > 0
        if not (is_sound and 0 < self.cooling <= 1):
            hint = "chains and steps from 1, temperature above 0, cooling above 0 and up to 1"
            raise TuneError(f"annealing cannot walk: {self}", hint=hint, code="MDLC1334")

    def __call__(
        self,
        space: Space,
        trials: Sequence[Trial],
        score: Score | None,
        count: int,
        rng: Random,
    ) -> list[Config]:
        """The next step of `count` chains, or the best points of walks on the score."""
        tried = {t.config for t in trials}
        if score is not None:
            return self._on_model(space, trials, score, count, rng)
        places, found = self.places(trials), list[Config]()
        for number in range(len(trials), len(trials) + count):
            here = places[number % self.chains]
            new = here and fresh(lambda at=here: space.mutated(at.config, rng), tried)
            if new:
                found.append(new)
                tried.add(new)
        return filled(found, space, trials, count, rng)

    def places(self, trials: Sequence[Trial]) -> list[Trial | None]:
        """Where each chain stands after these trials: they are dealt out to the chains in turn.

        Chains are walked again from the first trial on, so that a run can go on where it stood;
        the draw that decides on a trial has the trial's number as its seed.
        """
        places: list[Trial | None] = [None] * self.chains
        for number, trial in enumerate(trials):
            here = places[number % self.chains]
            temperature = self.temperature * self.cooling ** (number // self.chains)
            if here is None or _accepts(here, trial, temperature, Random(number).random()):
                places[number % self.chains] = trial
        return places

    def _on_model(
        self, space: Space, trials: Sequence[Trial], score: Score, count: int, rng: Random
    ) -> list[Config]:
        measured = sorted((t for t in trials if math.isfinite(t.cost)), key=lambda t: t.cost)
        walks = [t.config for t in measured[: self.chains // 2]]
        walks += space.distinct(self.chains - len(walks), rng, walks)
        believed = [float(x) for x in score(walks)]
        met = dict(zip(walks, believed, strict=True))
        finite = [x for x in believed if math.isfinite(x)]
        heat = self.temperature * ((max(finite) - min(finite)) if finite else 1.0)
        for _ in range(self.steps):
            steps = [space.mutated(c, rng) for c in walks]
            new = [float(x) for x in score(steps)]
            met.update(zip(steps, new, strict=True))
            for k, (config, cost) in enumerate(zip(steps, new, strict=True)):
                if _is_taken(cost - believed[k], heat, rng.random()):
                    walks[k], believed[k] = config, cost
            heat *= self.cooling
        return filled(promising(met, trials, count), space, trials, count, rng)


def _accepts(here: Trial, there: Trial, temperature: float, draw: float) -> bool:
    """True if a chain at `here` goes on from `there`; a failed point is left as soon as may be."""
    if not math.isfinite(here.cost):
        return True
    return math.isfinite(there.cost) and _is_taken(
        math.log(there.cost) - math.log(here.cost), temperature, draw
    )


def _is_taken(worse: float, temperature: float, draw: float) -> bool:
    """The rule of Metropolis; not taken if `worse` is no number."""
    return worse <= 0 or (temperature > 0 and draw < math.exp(-worse / temperature))
