"""Samples of several problems as one training set, so that other shapes teach about this one.

    pool = pooled(known)                            # the problem that is asked about comes last
    pool.features, pool.targets, pool.weights, pool.groups

Costs of two problems cannot be compared, a factor between two costs of one problem can: targets are
logarithms of costs, less their mean in the problem. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import Array
from minidlc.tuning.problem import Samples

FAILED = 1.0  # how far behind the slowest a failed trial is, in natural logarithms
OTHERS = 32.0  # the samples of all other problems count together as that many of this one


@dataclass(frozen=True)
class Pool:
    """f64[n, f], and for each sample its target, weight, and number of the problem."""

    features: Array
    targets: Array
    weights: Array
    groups: Array


def pooled(known: Sequence[Samples]) -> Pool | None:
    """All samples with features; None if there are none, or nothing that two of them tell apart.

    A failed trial (infinite) gets a target behind the slowest of its problem. With more samples of
    the last problem the others count for less and less.
    """
    parts = [_sound(s) for s in known]
    parts = [s for s in parts if len(s.costs)]
    if not parts or all(np.ptp(s.costs) == 0 for s in parts):
        return None
    others = sum(len(s.costs) for s in parts[:-1])
    foreign = min(1.0, OTHERS / others) if others else 1.0
    sizes = [len(s.costs) for s in parts]
    weights = [np.full(n, foreign) for n in sizes[:-1]] + [np.ones(sizes[-1])]
    groups = [np.full(n, place) for place, n in enumerate(sizes)]
    return Pool(
        np.concatenate([s.features for s in parts]),
        np.concatenate([s.costs - s.costs.mean() for s in parts]),
        np.concatenate(weights),
        np.concatenate(groups),
    )


def _sound(samples: Samples) -> Samples:
    """The samples with finite features, and logarithms of their costs."""
    rows = np.isfinite(samples.features).all(axis=1)
    costs = samples.costs[rows]
    ran = np.isfinite(costs)
    if not ran.any():  # nothing is known but that all failed: no one is better than another
        return Samples(samples.features[rows], np.zeros(len(costs)))
    logs = np.log(np.maximum(costs, 1e-12), where=ran, out=np.zeros(len(costs)))
    logs[~ran] = logs[ran].max() + FAILED
    return Samples(samples.features[rows], logs)
