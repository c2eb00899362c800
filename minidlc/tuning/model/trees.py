"""A cost model of boosted trees that learns an order: which of two points is the faster.

    boosted(known, asked)                           # f64[m]: lower is faster

Needs xgboost, the extra `tune`. T. Chen and C. Guestrin, XGBoost, 2016; for tuning, T. Chen et al.,
Learning to Optimize Tensor Programs, 2018. What is learnt is the rank of a point in its problem
(samples.py), beyond what the formula says of it (start.py), so samples of other shapes help from
the first trial on. One thread and a fixed seed: the same samples give the same scores. Treated in
course chapter 06_autotune.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from minidlc.expr.types import Array
from minidlc.support.errors import TuneError
from minidlc.tuning.model.samples import check_features, pooled
from minidlc.tuning.model.start import Start
from minidlc.tuning.problem import Samples

_ROUNDS = 60
_OPTIONS: dict[str, object] = {
    "objective": "reg:squarederror",
    "tree_method": "hist",
    "max_bin": 64,
    "max_depth": 5,
    "eta": 0.2,
    "min_child_weight": 1.0,
    "lambda": 1.0,
    "base_score": 0.0,
    "nthread": 1,
    "seed": 0,
}
_KEPT = 4  # fitted models; a search asks many times between two trials
_fitted: dict[str, tuple[Start, Any]] = {}


def boosted(known: Sequence[Samples], asked: Array) -> Array:
    """Cost model: scores f64[m], lower is faster; those of the formula while nothing is known.

    TuneError: MDLC1337 if xgboost is not installed, 1355 for rows that are not of `FEATURES`.
    """
    check_features("boosted", known, asked)
    xgboost = _xgboost()
    key = _digest(known)
    if key not in _fitted:
        while len(_fitted) >= _KEPT:
            del _fitted[next(iter(_fitted))]
        _fitted[key] = _fit(xgboost, known)
    start, trees = _fitted[key]
    scores = start.scores(asked)
    if trees is not None:
        scores = scores + trees.predict(xgboost.DMatrix(asked))
    return scores


def _fit(xgboost: Any, known: Sequence[Samples]) -> tuple[Start, Any]:
    """Where the scores start, and the trees for the rest; None where there is nothing to learn."""
    pool = pooled(known)
    start = Start.of(pool, known)
    if pool is None:
        return start, None
    data = xgboost.DMatrix(pool.features, start.rest(pool), weight=pool.weights)
    return start, xgboost.train(_OPTIONS, data, _ROUNDS)


def _xgboost() -> Any:
    try:
        return import_module("xgboost")
    except ImportError:
        raise TuneError(
            "the cost model 'boosted' needs xgboost, which is not installed",
            hint='pip install "minidlc[tune]", or take minidlc.tuning.model.ridge',
            code="MDLC1337",
        ) from None


def _digest(known: Sequence[Samples]) -> str:
    parts = [part for s in known for part in (s.features, s.costs)]
    sizes = repr([part.shape for part in parts]).encode()
    content = b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
    return hashlib.sha256(sizes + content).hexdigest()
