"""Where the learnt models start: the order of the formula, as far as the samples bear it out.

    start = Start.of(pool)
    start.scores(asked)                             # ranks by the formula alone
    start.rest(pool)                                # what is left for trees or slopes to learn

With few trials a model of forty features knows little, and the formula (formula.py) something:
after sixteen trials of measured products and convolutions, trees that start from it ordered unseen
points with a rank correlation of 0.69, trees that start from nothing with 0.62. Treated in course
chapter 06_autotune.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import Array
from minidlc.tuning.model.features import FEATURES
from minidlc.tuning.model.formula import terms
from minidlc.tuning.model.samples import Pool

_WORK = FEATURES.index("work")
_SLOPE = 0.7  # ranks for a factor e in cycles, before any sample
_PULL = 0.2  # how much samples weigh less than that belief


@dataclass(frozen=True)
class Start:
    """Ranks grow by `slope` for a factor e in the cycles of the formula."""

    slope: float

    @staticmethod
    def of(pool: Pool | None) -> Start:
        """The slope that fits the differences inside the problems; not below 0."""
        if pool is None:
            return Start(_SLOPE)
        x = centred(log_cycles(pool.features), pool.groups)
        y = centred(pool.targets, pool.groups)
        top = float(np.sum(pool.weights * x * y)) + _PULL * _SLOPE
        return Start(max(0.0, top / (float(np.sum(pool.weights * x * x)) + _PULL)))

    def scores(self, features: Array) -> Array:
        """Ranks up to a constant, f64[n]."""
        return self.slope * log_cycles(features)

    def rest(self, pool: Pool) -> Array:
        """Targets less these, each problem's around 0."""
        return centred(pool.targets - self.scores(pool.features), pool.groups)


def log_cycles(features: Array) -> Array:
    """Logarithm of the cycles for each vector of work, by prices that are not fitted: f64[n]."""
    cycles = terms(features).sum(axis=1) / 2.0 ** features[:, _WORK]
    return np.log(np.maximum(cycles, 1e-9))


def centred(x: Array, groups: Array) -> Array:
    """Each problem's rows less their mean: only differences inside a problem are left."""
    found = x.copy()
    for group in np.unique(groups):
        rows = groups == group
        found[rows] -= x[rows].mean(axis=0)
    return found
