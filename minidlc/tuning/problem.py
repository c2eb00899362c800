"""What a search works on, and the loop around it: propose, measure, learn.

    trials = explore(problem, RandomSearch(), trials=64, seed=0)
    best(trials)                                    # Trial(gemm(rows=6, …), ok, 412 µs)

A `Problem` is a space, features of its points, and a way to measure: a fixed table of costs, or a
kernel and the machine. A search and a cost model are functions, so a reader's own takes the place
of ours: extension points `search` and `cost_model`. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol, TypeAlias

import numpy as np

from minidlc.expr.types import Array
from minidlc.support import extension
from minidlc.support.errors import TuneError
from minidlc.tuning.space import Config, Space
from minidlc.tuning.trial import Trial


class Problem(Protocol):
    """Something to be tuned."""

    @property
    def space(self) -> Space:
        """The points there are."""
        ...

    def features(self, configs: Sequence[Config]) -> Array:
        """f64[n, len(FEATURES)]: what a cost model sees; a row of NaN for a point with no loops."""
        ...

    def measure(self, configs: Sequence[Config]) -> Iterable[Trial]:
        """A trial for each point, in order; an iterator gives each as soon as it has ended."""
        ...


@dataclass(frozen=True)
class Samples:
    """What is known of one problem: features f64[n, f], seconds f64[n], infinite where failed."""

    features: Array
    costs: Array


# (known, asked) -> scores: lower is faster. `known` holds earlier problems, then the one asked
# about; features of `asked` are f64[m, f], scores f64[m], in any unit.
CostModel: TypeAlias = Callable[[Sequence[Samples], Array], Array]
Score: TypeAlias = Callable[[Sequence[Config]], Array]


class Search(Protocol):
    """What to try next, given what was tried."""

    def __call__(
        self,
        space: Space,
        trials: Sequence[Trial],
        score: Score | None,
        count: int,
        rng: Random,
    ) -> list[Config]:
        """Up to `count` points that were not tried, the most wanted first; [] to stop.

        `score` is what the cost model believes (lower is faster), None before it knows anything.
        What draws at random draws from `rng`. Trials bear the attribute `by`, else `name`.
        """
        ...


def _is_points(result: object) -> bool:
    return isinstance(result, list) and all(isinstance(c, Config) for c in result)  # pyright: ignore[reportUnknownVariableType]


extension.declare(
    "search",
    "(space, trials, score, count, rng) -> list[Config]",
    "which points of a space to try next",
    returns=_is_points,
)
extension.declare(
    "cost_model",
    "(known: Sequence[Samples], asked: Array) -> Array",
    "how fast points will be, from their features: lower is faster",
    returns=extension.instance(np.ndarray),
)


def explore(
    problem: Problem,
    search: Search,
    *,
    trials: int = 64,
    seed: int = 0,
    batch: int = 8,
    model: CostModel | None = None,
    known: Sequence[Samples] = (),
    first: Sequence[Config] = (),
    earlier: Sequence[Trial] = (),
    told: Callable[[Trial], None] | None = None,
) -> list[Trial]:
    """Try up to `trials` points, `batch` at a time, those of `first` before all others.

    `model` guides the search, from the trials so far and from `known` problems; `told` hears of
    each new trial. `earlier` are trials of a run that goes on here: they count, and stand first in
    the result. The same seed on a fixed table gives the same sequence. TuneError (MDLC1307) if a
    search proposes what is no list of points of the space.
    """
    rng, done = Random(f"{seed} {len(earlier)}" if earlier else seed), list(earlier)
    learnt = _Learnt(problem, model, known) if model else None
    tried = {t.config for t in earlier}
    todo = [c for c in dict.fromkeys(map(problem.space.check, first)) if c not in tried]
    todo = todo[: max(0, trials - len(done))]
    while len(done) < trials:
        by = "first"
        if not todo:
            score = learnt.score(done) if learnt else None
            count = min(batch, trials - len(done))
            todo, by = _proposed(search, problem.space, done, score, count, rng)
            if not todo:
                break
        now, todo = todo[:batch], todo[batch:]
        predicted = learnt.predicted(now) if learnt else [None] * len(now)
        for trial, belief in zip(problem.measure(now), predicted, strict=True):
            done.append(replace(trial, predicted=belief, by=trial.by or by))
            if told:
                told(done[-1])
    return done


def _proposed(
    search: Search,
    space: Space,
    done: Sequence[Trial],
    score: Score | None,
    count: int,
    rng: Random,
) -> tuple[list[Config], str]:
    """What to try next, and who says so: the search, or the reader's in its place."""
    propose = extension.dispatch("search", search)
    found = _sound(propose(space, done, score, count, rng), space, done)
    return found[:count], name_of(search) if propose is search else "override"


def name_of(search: Search) -> str:
    """Who proposed: `by` of a search that asks others, a search's `name`, a function's name."""
    for attribute in ("by", "name", "__name__"):
        if name := getattr(search, attribute, ""):
            return str(name)
    return type(search).__name__


def _sound(found: list[Config], space: Space, done: Iterable[Trial]) -> list[Config]:
    """The proposals, each once and none that was tried; TuneError if one is not of the space."""
    if not _is_points(found):
        raise TuneError(
            f"the search proposes {found!r:.60}",
            hint="return a list of points (Config), [] to stop",
            code="MDLC1307",
        )
    for config in found:
        if config not in space:
            raise TuneError(
                f"the search proposes {config}, which is no point of the space",
                hint="take points from space.random, space.mutated or iter(space)",
                code="MDLC1307",
            )
    tried = {t.config for t in done}
    return [c for c in dict.fromkeys(found) if c not in tried]


def _believed(scores: object, count: int) -> Array:
    """What a cost model says; TuneError (MDLC1339) unless that is a finite number a point."""
    try:
        found = np.asarray(scores, np.float64)
    except (TypeError, ValueError):
        got = f"a {type(scores).__name__}"
    else:
        if found.shape == (count,) and np.isfinite(found).all():
            return found
        got = f"shape {found.shape}" if found.shape != (count,) else "numbers that are not finite"
    raise TuneError(
        f"the cost model returns {got} for {count} points",
        hint="return f64[m] for features f64[m, f], lower where a point is believed to be faster",
        code="MDLC1339",
    )


class _Learnt:
    """The cost model on one problem: it is asked with all that is known at the time."""

    def __init__(self, problem: Problem, model: CostModel, earlier: Sequence[Samples]) -> None:
        self.problem, self.model, self.earlier = problem, model, tuple(earlier)
        self.seen: dict[Config, Array] = {}
        self.own: tuple[Config, ...] = ()
        self.costs: tuple[float, ...] = ()

    def features(self, configs: Sequence[Config]) -> Array:
        """The rows of the points; each is made once."""
        new = [c for c in dict.fromkeys(configs) if c not in self.seen]
        if new:
            self.seen.update(zip(new, self.problem.features(new), strict=True))
        return np.stack([self.seen[c] for c in configs])

    def score(self, done: Sequence[Trial]) -> Score | None:
        """What the model believes after these trials; None before it knows anything."""
        self.own = tuple(t.config for t in done)
        self.costs = tuple(t.cost for t in done)
        return self._ask if self.own or self.earlier else None

    def _ask(self, configs: Sequence[Config]) -> Array:
        rows = self.features(configs)
        scores = np.full(len(configs), np.inf)
        sound = ~np.isnan(rows).any(axis=1)
        known = list(self.earlier)
        if self.own:
            known.append(Samples(self.features(self.own), np.array(self.costs)))
        if sound.any():
            model = extension.dispatch("cost_model", self.model)
            scores[sound] = _believed(model(known, rows[sound]), int(sound.sum()))
        return scores

    def predicted(self, configs: Sequence[Config]) -> list[float | None]:
        """What it believed of these points, with what it knew when it was last asked."""
        if not self.own and not self.earlier:
            return [None] * len(configs)
        return [float(x) for x in self._ask(configs)]
