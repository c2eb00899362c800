"""Where the learnt models start: the order of the formula, as far as the samples bear it out.

    start = Start.of(pool, known)
    start.scores(asked)                             # ranks by the formula alone
    start.rest(pool)                                # what is left for trees or slopes to learn

With few trials a model of forty features knows little, and the formula (formula.py) something, the
more so with prices fitted to the trials: after sixteen trials of measured products and convolutions
trees that start from it ordered unseen points with a rank correlation of 0.67, trees that start
from nothing with 0.62. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import Array
from minidlc.tuning.model.features import FEATURES
from minidlc.tuning.model.formula import fitted, terms
from minidlc.tuning.model.samples import Pool
from minidlc.tuning.problem import Samples

_WORK = FEATURES.index("work")
_SLOPE = 0.7  # ranks for a factor e in cycles, before any sample
_PULL = 0.2  # how much samples weigh less than that belief


@dataclass(frozen=True)
class Start:
    """Ranks grow by `slope` for a factor e in the cost by the formula, with these `prices`."""

    slope: float
    prices: Array

    @staticmethod
    def of(pool: Pool | None, known: Sequence[Samples]) -> Start:
        """Prices fitted to `known`, and the slope that fits their differences; not below 0."""
        prices = fitted(known)
        if pool is None:
            return Start(_SLOPE, prices)
        x = centred(log_cost(pool.features, prices), pool.groups)
        y = centred(pool.targets, pool.groups)
        top = float(np.sum(pool.weights * x * y)) + _PULL * _SLOPE
        bottom = float(np.sum(pool.weights * x * x)) + _PULL
        return Start(max(0.0, top / bottom), prices)

    def scores(self, features: Array) -> Array:
        """Ranks up to a constant, f64[n]."""
        return self.slope * log_cost(features, self.prices)

    def rest(self, pool: Pool) -> Array:
        """Targets less these, each problem's around 0."""
        return centred(pool.targets - self.scores(pool.features), pool.groups)


def log_cost(features: Array, prices: Array) -> Array:
    """Logarithm of the formula's cost for each vector of work: f64[n]."""
    cost = terms(features) @ prices / 2.0 ** features[:, _WORK]
    return np.log(np.maximum(cost, 1e-30))


def centred(x: Array, groups: Array) -> Array:
    """Each problem's rows less their mean: only differences inside a problem are left."""
    found = x.copy()
    for group in np.unique(groups):
        rows = groups == group
        found[rows] -= x[rows].mean(axis=0)
    return found
