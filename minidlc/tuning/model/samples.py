"""Samples of several problems as one training set, so that other shapes teach about this one.

    pool = pooled(known)                            # the problem that is asked about comes last
    pool.features, pool.targets, pool.weights, pool.groups

Costs of two problems cannot be compared, and the few slowest points of one would outweigh all
differences among the fast: targets are ranks inside the problem, 0 for the fastest, 1 for the
slowest and all that failed. On measured products and convolutions this ordered unseen points as
well as a loss over pairs did, in a ninth of its time. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import Array
from minidlc.support.errors import TuneError
from minidlc.tuning.model.features import FEATURES
from minidlc.tuning.problem import Samples

WIDTH = len(FEATURES)
OTHERS = 32.0  # the samples of all other problems count together as that many of this one, at first
MOST = 512  # samples taken of another problem, evenly from the fastest to the slowest


@dataclass(frozen=True)
class Pool:
    """f64[n, f], and for each sample its target, weight, and number of the problem."""

    features: Array
    targets: Array
    weights: Array
    groups: Array


def check_features(model: str, known: Sequence[Samples], asked: Array) -> None:
    """TuneError (MDLC1355) unless all rows are of our features, f64[n, len(FEATURES)]."""
    for what, rows in (*(("known", s.features) for s in known), ("asked", asked)):
        if np.ndim(rows) != 2 or np.shape(rows)[1] != WIDTH:
            text = f"{model}: features of the {what} points have shape {np.shape(rows)}"
            hint = "search a table of other features without a model, or with one of your own"
            note = f"it reads rows of {WIDTH} numbers, minidlc.tuning.model.FEATURES"
            raise TuneError(text, notes=[note], hint=hint, code="MDLC1355")


def pooled(known: Sequence[Samples]) -> Pool | None:
    """All samples with features; None if there are no two that differ in their problem.

    With more samples of the last problem the others count for less and less: together as 32 of
    it if it has none, as 16 if it has 32.
    """
    parts = [_ranked(s) for s in known]
    parts = [*map(_thinned, parts[:-1]), *parts[-1:]]
    parts = [s for s in parts if len(s.costs)]
    if all(np.ptp(s.costs) == 0 for s in parts):
        return None
    others = sum(len(s.costs) for s in parts[:-1])
    sizes = [len(s.costs) for s in parts]
    share = OTHERS * OTHERS / (OTHERS + sizes[-1])
    foreign = min(1.0, share / others) if others else 1.0
    weights = [np.full(n, foreign) for n in sizes[:-1]] + [np.ones(sizes[-1])]
    return Pool(
        np.concatenate([s.features for s in parts]),
        np.concatenate([s.costs for s in parts]),
        np.concatenate(weights),
        np.repeat(np.arange(len(sizes)), sizes),
    )


def _ranked(samples: Samples) -> Samples:
    """The samples with finite features, and ranks 0 … 1 in place of costs; equals share theirs."""
    sound = np.isfinite(samples.features).all(axis=1)
    costs = samples.costs[sound]
    _, place, count = np.unique(costs, return_inverse=True, return_counts=True)
    before = np.cumsum(count) - count
    middle = (before + (count - 1) / 2) / max(1, len(costs) - 1)
    return Samples(samples.features[sound], middle[place])


def _thinned(samples: Samples) -> Samples:
    if len(samples.costs) <= MOST:
        return samples
    order = np.argsort(samples.costs, kind="stable")
    kept = order[np.linspace(0, len(order) - 1, MOST).round().astype(np.int64)]
    return Samples(samples.features[kept], samples.costs[kept])
