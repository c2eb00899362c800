"""What decides: the share of each knob in the spread of the costs, of each feature in the scores.

    knob_importance(trials)                 # {'gemm.rows': 0.61, 'way': 0.2, …, 'rest': 0.08}
    feature_importance(ridge, known)        # {'l1_lines': 0.4, …}

Knobs: main effects of a functional ANOVA (F. Hutter, H. Hoos, K. Leyton-Brown, 2014), fitted to the
trials, which need not be spread evenly. Features: permutation importance (L. Breiman, Random
Forests, 2001) of whatever model is given. Both are the same for the same trials. Treated in course
chapter 06_autotune.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from minidlc.expr.types import Array
from minidlc.support.errors import TuneError
from minidlc.tuning.model.features import FEATURES
from minidlc.tuning.model.linear import fit
from minidlc.tuning.problem import CostModel, Samples
from minidlc.tuning.space import Config
from minidlc.tuning.trial import Fate, Trial

_ROUNDS = 5  # permutations of each feature
_MOST = 256  # samples that are shuffled


def knob_importance(trials: Iterable[Trial]) -> dict[str, float]:
    """Shares of the variance of log cost, largest first; `rest`: interactions and noise. Sum 1.

    "way" is the choice between ways, "gemm.rows" a knob of one. Failed trials have no part.
    TuneError (MDLC1338) for fewer than three trials that ran, or costs that are all the same.
    """
    ran = [t for t in trials if t.fate is Fate.OK]
    logs = np.log(np.array([t.cost for t in ran]))
    if len(ran) < 3 or np.ptp(logs) == 0:
        hint = "tune with more trials"
        raise TuneError(f"{len(ran)} trials show nothing of knobs", hint=hint, code="MDLC1338")
    names, columns = _indicators([t.config for t in ran])
    centred = columns - columns.mean(axis=0)
    effects = centred * fit(centred, logs - logs.mean(), np.ones(len(logs)))
    parts = dict[str, Array]()
    for name, effect in zip(names, effects.T, strict=True):
        parts[name] = parts.get(name, np.zeros(len(ran))) + effect
    spread = {name: float(np.var(part)) for name, part in parts.items()}
    rest = float(np.var(logs - logs.mean() - effects.sum(axis=1)))
    total = sum(spread.values()) + rest
    ordered = sorted(spread.items(), key=lambda item: -item[1])
    return {name: value / total for name, value in ordered} | {"rest": rest / total}


def _indicators(configs: Sequence[Config]) -> tuple[list[str], Array]:
    """A column for each value that a knob, or the way, takes; the name of the knob of each."""
    seen = dict[tuple[str, object], list[int]]()
    for n, config in enumerate(configs):
        seen.setdefault(("way", config.way), []).append(n)
        for knob, value in config.knobs:
            seen.setdefault((f"{config.way}.{knob}", value), []).append(n)
    # a knob that had one value says no more than its way
    whole = [rows for (name, _), rows in seen.items() if name == "way"]
    kept = {key: rows for key, rows in seen.items() if key[0] == "way" or rows not in whole}
    columns = np.zeros((len(configs), len(kept)))
    for place, rows in enumerate(kept.values()):
        columns[rows, place] = 1.0
    return [name for name, _ in kept], columns


def feature_importance(model: CostModel, known: Sequence[Samples]) -> dict[str, float]:
    """Share of each feature in the scores of the last problem's samples, largest first. Sum 1.

    How much the scores change when the values of one feature are shuffled, others as they are. All
    0 where the model tells no two samples apart.
    """
    features = known[-1].features
    rows = features[np.isfinite(features).all(axis=1)]
    rows = rows[:: 1 + len(rows) // _MOST]
    rng = np.random.default_rng(0)
    orders = [rng.permutation(len(rows)) for _ in range(_ROUNDS)]
    varied = [n for n in range(len(FEATURES)) if len(rows) and np.ptp(rows[:, n]) > 0]
    moved = dict.fromkeys(FEATURES, 0.0)
    if not varied:
        return moved
    asked = np.tile(rows, (1 + len(varied) * _ROUNDS, 1, 1))  # as they are, then shuffled ones
    for copy, (place, order) in zip(asked[1:], itertools.product(varied, orders), strict=True):
        copy[:, place] = rows[order, place]
    scores = model(known, asked.reshape(-1, len(FEATURES))).reshape(len(asked), -1)
    changes = ((scores[1:] - scores[0]) ** 2).reshape(len(varied), -1).sum(axis=1)
    moved |= {FEATURES[n]: float(x) for n, x in zip(varied, changes, strict=True)}
    total = sum(moved.values()) or 1.0
    return {n: v / total for n, v in sorted(moved.items(), key=lambda item: -item[1])}
