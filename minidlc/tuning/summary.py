"""What the trials of a kernel say: did the search learn, did the model, what is left to find.

    s = Summary.of(result)
    s.points, s.tried                               # 1,152 points allowed, 64 of them tried
    s.correlation, s.since                          # 0.81; 23 trials since the last gain
    s.gap                                           # 0.012: the best may be 1.2 % faster still

Reads a TaskResult; text (tuning/explain.py) and pictures (viz/tuning.py) take their numbers from
here, so that both say the same. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

import numpy as np

from minidlc.expr.types import Array
from minidlc.support.errors import TuneError
from minidlc.tuning.model.importance import knob_importance
from minidlc.tuning.result import TaskResult
from minidlc.tuning.space import Config, Space
from minidlc.tuning.trial import Fate, Trial, best

_LISTED = 1 << 14  # points of a space that are counted one by one; a larger one is sampled
_SAMPLES = 1000  # points drawn of a larger one; a way of fewer is counted


@dataclass(frozen=True)
class Summary:
    """Figures of one task.

    `points` is the number of allowed points, an estimate unless `exact`, `by_way` the same of each
    way, of which `estimated` were not counted (tuning/space.py says what is allowed); `gains` the
    numbers of the trials (from 1) that became the best, `since` the trials after the last of them.
    `correlation` is of what the model believed with what was measured (None: no model, or too
    few), `late` the same of the newer half. `gap` estimates how much less the least time may be.
    `spread` is half the range of the middle half of the winner's repeats, as a share.
    """

    points: int
    exact: bool
    by_way: Mapping[str, int]
    estimated: frozenset[str]
    tried: int
    gains: tuple[int, ...]
    since: int
    correlation: float | None
    late: float | None
    gap: float | None
    spread: float | None

    @staticmethod
    def of(result: TaskResult) -> Summary:
        """The figures of a result."""
        trials = result.trials
        by_way, estimated = allowed_points(result.task.space)
        points = sum(by_way.values())
        gains = improvements(trials)
        half = len(trials) // 2
        winner = best(t for t in trials if t.config == result.best)
        return Summary(
            points=_rounded(points) if estimated else points,
            exact=not estimated,
            by_way=by_way,
            estimated=estimated,
            tried=len({t.config for t in trials}),
            gains=gains,
            since=len(trials) - (gains[-1] if gains else 0),
            correlation=rank_correlation(trials),
            late=rank_correlation(trials[half:]),
            gap=endpoint_gap(trials),
            spread=noise(winner.seconds) if winner else None,
        )

    @property
    def about(self) -> str:
        """What stands before a number of points: 'about ' if it is an estimate."""
        return "" if self.exact else "about "

    def points_of(self, way: str) -> str:
        """'48 points', 'about 30,000 points'."""
        return f"{'about ' * (way in self.estimated)}{counted(self.by_way[way], 'point')}"


def allowed_points(space: Space) -> tuple[dict[str, int], frozenset[str]]:
    """How many points of each way are allowed, and for which ways that is a share of a sample.

    The sample is of every way in turn, from a fixed seed: the same space gives the same number, of
    which two digits are kept.
    """
    if space.size <= _LISTED:
        counts = Counter(config.way for config in space)
        return {way: counts[way] for way in space.ways}, frozenset()
    rng, found, estimated = Random(0), dict[str, int](), set[str]()
    draws = max(1, _SAMPLES // len(space.ways))
    for way, knobs in space.ways.items():
        size = math.prod(map(len, knobs.values()))
        if size <= _SAMPLES:
            found[way] = sum(1 for _ in Space({way: knobs}, space.allowed))
            continue
        drawn = [Config.of(way, {n: rng.choice(v) for n, v in knobs.items()}) for _ in range(draws)]
        share = sum(map(space.allowed, drawn)) / draws
        found[way] = _rounded(share * size)
        estimated.add(way)
    return found, frozenset(estimated)


def _rounded(number: float) -> int:
    """With two digits."""
    return int(float(f"{number:.1e}"))


def improvements(trials: Sequence[Trial]) -> tuple[int, ...]:
    """Numbers, from 1, of the trials that were faster than all before them."""
    found, least = list[int](), math.inf
    for number, trial in enumerate(trials, 1):
        if trial.cost < least:
            least = trial.cost
            found.append(number)
    return tuple(found)


def believed(trials: Sequence[Trial]) -> list[Trial]:
    """The trials that ran and of which the model had said something."""
    return [t for t in trials if t.fate is Fate.OK and t.predicted is not None and _finite(t)]


def _finite(trial: Trial) -> bool:
    return trial.predicted is not None and math.isfinite(trial.predicted)


def rank_correlation(trials: Sequence[Trial]) -> float | None:
    """Spearman's coefficient of predicted and measured: 1 is the right order, 0 none.

    None with fewer than 3 such trials, or where one side is the same for all. C. Spearman, The
    Proof and Measurement of Association between Two Things, 1904.
    """
    known = believed(trials)
    if len(known) < 3:
        return None
    a = ranks([t.predicted or 0.0 for t in known])
    b = ranks([t.cost for t in known])
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def ranks(values: Sequence[float]) -> Array:
    """Place of each value in ascending order, from 1; equals share the mean of theirs: f64[n]."""
    x = np.asarray(values, np.float64)
    _, which, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[which]


def endpoint_gap(trials: Sequence[Trial]) -> float | None:
    """How much faster than the best tried the fastest point may be, as a share: an estimate.

    The least of a set lies about as far below the least seen as that lies below the second. D.
    Robson, J. Whitlock, Estimation of a Truncation Point, 1964. None with fewer than 3 times.
    """
    costs = sorted({t.config: t.cost for t in trials if t.fate is Fate.OK}.values())
    return (costs[1] - costs[0]) / costs[0] if len(costs) > 2 and costs[0] > 0 else None


def noise(seconds: Sequence[float]) -> float | None:
    """Half the range of the middle half of repeats, over their median; None for fewer than 3."""
    if len(seconds) < 3:
        return None
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return (high - low) / 2 / middle if middle else None


@dataclass(frozen=True)
class ValueSeen:
    """A candidate of a knob: trials with it, those that ran, their median seconds (None: none)."""

    value: int
    tried: int
    count: int
    median: float | None


def axes(space: Space, way: str, trials: Sequence[Trial]) -> Mapping[str, tuple[ValueSeen, ...]]:
    """For each knob of a way its candidates in order, with what was measured of each."""
    mine = [(t.config.values, t.cost) for t in trials if t.config.way == way]
    found = dict[str, tuple[ValueSeen, ...]]()
    for knob, candidates in space.ways[way].items():
        seen = list[ValueSeen]()
        for value in sorted(candidates):
            costs = [cost for values, cost in mine if values.get(knob) == value]
            ran = [cost for cost in costs if math.isfinite(cost)]
            middle = statistics.median(ran) if ran else None
            seen.append(ValueSeen(value, len(costs), len(ran), middle))
        found[knob] = tuple(seen)
    return found


def tried_ways(space: Space, trials: Sequence[Trial]) -> list[tuple[str, int, float]]:
    """(way, trials, least seconds or infinity), the fastest first, then as the space lists them."""
    count = dict.fromkeys(space.ways, 0)
    least = dict.fromkeys(space.ways, math.inf)
    for trial in trials:
        way = trial.config.way
        if way in count:  # a record may know a way that this version has no more
            count[way] += 1
            least[way] = min(least[way], trial.cost)
    return sorted(((w, count[w], least[w]) for w in count), key=lambda row: (row[2], -row[1]))


def shares(trials: Sequence[Trial]) -> dict[str, float]:
    """How much each knob decides, as `knob_importance` says; {} where the trials do not show it."""
    try:
        return knob_importance(trials)
    except TuneError:
        return {}


@dataclass(frozen=True)
class Failure:
    """How often trials ended in one way, and the first of them."""

    fate: Fate
    count: int
    number: int  # of the first, from 1
    first: Trial


def failures(trials: Sequence[Trial]) -> list[Failure]:
    """The kinds of failure that occurred, each with its first trial and reason."""
    found = list[Failure]()
    for fate in islice(Fate, 1, None):
        which = [(n, t) for n, t in enumerate(trials, 1) if t.fate is fate]
        if which:
            found.append(Failure(fate, len(which), *which[0]))
    return found


def counted(number: int, noun: str) -> str:
    """'1 trial', '1,152 points'."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def percent(share: float) -> str:
    """'0.25 %', '8.6 %', '64 %'."""
    return f"{100 * share:.2g} %" if abs(share) < 0.0995 else f"{100 * share:.0f} %"


def learning(result: TaskResult) -> str:
    """One sentence: does the search still find faster points?"""
    trials = result.trials
    gains = improvements(trials)
    if not gains:
        return "no trial ran"
    since = len(trials) - gains[-1]
    at = f"last gain at trial {gains[-1]} of {len(trials)}"
    if len(trials) < 8:
        return f"{at}: too few to say whether it still learns"
    quarter = len(trials) // 4
    best_before = min(t.cost for t in trials[:-quarter])
    best_now = min(t.cost for t in trials)
    if since < quarter and math.isfinite(best_before):
        gain = 1 - best_now / best_before
        return f"{at}: it still learns, the last {quarter} trials gained {percent(gain)}"
    if since < quarter:
        return f"{at}: it still learns"
    return f"{at}: the last {since} trials gained nothing"
