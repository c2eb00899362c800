"""A cost model of forty lines: the formula, and a ridge regression for what it gets wrong.

    ridge(known, asked)                             # f64[m]: lower is faster

On the features and their squares, in closed form, NumPy only: A. Hoerl and R. Kennard, Ridge
Regression, 1970. The formula comes first (start.py). Each problem has its own intercept, so samples
of other shapes teach slopes and nothing else. Where xgboost is missing this takes its place.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidlc.expr.types import Array
from minidlc.tuning.model.samples import check_features, pooled
from minidlc.tuning.model.start import Start, centred
from minidlc.tuning.problem import Samples

_STRENGTHS = np.logspace(-2, 4, 13)
_FAR = 3.0  # standard deviations: beyond them the squares would run away


def ridge(known: Sequence[Samples], asked: Array) -> Array:
    """Cost model: ranks up to a constant, f64[m], lower is faster; the formula if none is known.

    TuneError (MDLC1355) for rows that are not of `FEATURES`.
    """
    check_features("ridge", known, asked)
    pool = pooled(known)
    start = Start.of(pool, known)
    if pool is None:
        return start.scores(asked)
    mean = np.average(pool.features, axis=0, weights=pool.weights)
    spread = np.sqrt(np.average((pool.features - mean) ** 2, axis=0, weights=pool.weights))
    seen = spread > 1e-9 * np.maximum(1.0, np.abs(mean))  # one value only says nothing
    x = _columns(pool.features[:, seen], mean[seen], spread[seen])
    slopes = fit(centred(x, pool.groups), start.rest(pool), pool.weights)
    return start.scores(asked) + _columns(asked[:, seen], mean[seen], spread[seen]) @ slopes


def fit(x: Array, y: Array, weights: Array) -> Array:
    """Slopes of the ridge whose strength has the least error on samples left out one by one.

    That error has a closed form: residual / (1 - leverage).
    """
    root = np.sqrt(weights)[:, None]
    squares, axes = np.linalg.eigh((x * root).T @ (x * root))
    z = x * root @ axes  # uncorrelated columns
    y = y * root[:, 0]
    goal = z.T @ y
    best, least = np.zeros(x.shape[1]), np.inf
    for strength in _STRENGTHS:
        scale = 1 / (np.maximum(squares, 0.0) + strength)
        residual = y - z @ (scale * goal)
        leverage = np.minimum(z**2 @ scale, 0.999)
        error = float(np.sum((residual / (1 - leverage)) ** 2))
        if error < least:
            best, least = axes @ (scale * goal), error
    return best


def _columns(features: Array, mean: Array, spread: Array) -> Array:
    z = np.clip((features - mean) / spread, -_FAR, _FAR)
    return np.concatenate([z, z * z], axis=1)
