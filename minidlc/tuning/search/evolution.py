"""Evolution: good points breed; with a model many children are judged and few are measured.

    Evolution()(space, trials, None, 8, rng)        # eight children of the fastest points
    Evolution()(space, trials, score, 8, rng)       # the eight of hundreds that the model likes

Parents are picked by tournament, a child takes each knob from one of two parents and has one or two
drawn again. With a model, generations are bred on its scores, the best points that were not tried
are proposed, and a share `epsilon` of random points keeps the model honest, as in Ansor (L. Zheng
et al., OSDI 2020) and MetaSchedule (J. Shao et al., NeurIPS 2022). Without one, it is the fastest
trials that breed (D. Goldberg and K. Deb, A Comparative Analysis of Selection Schemes, 1991).
Treated in course chapter 06_autotune.
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
class Evolution:
    """`population` points breed on a model, for `generations`; the `elite` are the fastest trials.

    A parent is the best of `tournament` random ones; `crossover` is the share of children that have
    two. TuneError (MDLC1334) for numbers that breed nothing.
    """

    population: int = 64
    generations: int = 2
    elite: int = 12
    tournament: int = 3
    crossover: float = 0.4
    epsilon: float = 0.05
    name: str = "evolution"

    def __post_init__(self) -> None:
        counts = (self.population, self.generations, self.elite, self.tournament)
        shares = (self.crossover, self.epsilon)
        if min(counts) < 1 or not all(0 <= share <= 1 for share in shares):
            hint = "counts from 1, shares from 0 to 1"
            raise TuneError(f"evolution cannot breed: {self}", hint=hint, code="MDLC1334")

    def __call__(
        self,
        space: Space,
        trials: Sequence[Trial],
        score: Score | None,
        count: int,
        rng: Random,
    ) -> list[Config]:
        """Children that the score likes and a few strangers; or children of the fastest trials."""
        elite = sorted((t for t in trials if math.isfinite(t.cost)), key=lambda t: t.cost)
        parents = [t.config for t in elite[: self.elite]]
        if score is None:
            found = self._bred(space, trials, parents, count, rng)
        else:
            scores = self._judged(space, parents, score, rng)
            strangers = sum(rng.random() < self.epsilon for _ in range(count))
            found = promising(scores, trials, count - strangers)
        return filled(found, space, trials, count, rng)

    def _bred(
        self,
        space: Space,
        trials: Sequence[Trial],
        parents: Sequence[Config],
        count: int,
        rng: Random,
    ) -> list[Config]:
        """Children of the fastest trials; none before there are enough to choose from."""
        if len(trials) < self.elite or not parents:
            return []
        tried, found = {t.config for t in trials}, list[Config]()
        for _ in range(count - sum(rng.random() < self.epsilon for _ in range(count))):
            if child := fresh(lambda: self._child(space, parents, rng), tried):
                tried.add(child)
                found.append(child)
        return found

    def _judged(
        self, space: Space, parents: Sequence[Config], score: Score, rng: Random
    ) -> dict[Config, float]:
        """Every point that was bred, with its score; the first are fast trials and strangers."""
        new = [*parents, *space.distinct(self.population - len(parents), rng, parents)]
        scores = dict(zip(new, map(float, score(new)), strict=True))
        for _ in range(self.generations):
            ranked = sorted(scores, key=scores.__getitem__)[: self.population]
            children = [self._child(space, ranked, rng) for _ in range(self.population)]
            new = [c for c in dict.fromkeys(children) if c not in scores]
            if new:
                scores.update(zip(new, map(float, score(new)), strict=True))
        return scores

    def _child(self, space: Space, ranked: Sequence[Config], rng: Random) -> Config:
        """A child of the ranked, the best of whom are the likeliest parents."""
        child = a = self._parent(ranked, rng)
        if rng.random() < self.crossover:
            child = space.crossed(a, self._parent(ranked, rng), rng)
        return child if child != a else space.mutated(child, rng, rng.choice((1, 1, 2)))

    def _parent(self, ranked: Sequence[Config], rng: Random) -> Config:
        return ranked[min(rng.randrange(len(ranked)) for _ in range(self.tournament))]
