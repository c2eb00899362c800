"""Cost models: their order on made-up tables, transfer, the same twice, failures, nonsense."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc.expr.types import Array
from minidlc.support.errors import TuneError
from minidlc.tuning.model import FEATURES, analytic, best_model, boosted, ridge
from minidlc.tuning.model.formula import TERMS, fitted, terms
from minidlc.tuning.model.samples import MOST, pooled
from minidlc.tuning.model.start import Start
from minidlc.tuning.problem import CostModel, Samples, Score, explore
from minidlc.tuning.space import Config, Space
from minidlc.tuning.trial import Fate, Trial

pytestmark = pytest.mark.ch06
PLACE = {name: n for n, name in enumerate(FEATURES)}
MODELS = (analytic, ridge, boosted)


def made_up(count: int, seed: int, scale: float = 1.0) -> Samples:
    """Points whose cost has the terms of the formula at prices far from its own; 3 % of noise."""
    rng = np.random.default_rng(seed)
    rows = rng.random((count, len(FEATURES)))
    rows[:, PLACE["work"]] = 20.0
    rows[:, PLACE["threads"]] = 0.0
    rows[:, PLACE["balance"]] = 1.0
    rows[:, PLACE["l1_lines"]] *= 4
    prices = np.where(np.arange(len(TERMS) + 1) % 2, 0.1, 4.0)
    costs = terms(rows) @ prices * 3e-10 * scale
    return Samples(rows, costs * rng.normal(1, 0.03, count))


def by_size(samples: Samples) -> Samples:
    """The same points with costs that grow with the feature `code`."""
    size = np.exp(3 * samples.features[:, PLACE["code"]])
    return Samples(samples.features, samples.costs * size)


def order(scores: Array, costs: Array) -> float:
    """Spearman's rank correlation."""
    ranks = [np.argsort(np.argsort(x)) for x in (scores, costs)]
    return float(np.corrcoef(*ranks)[0, 1])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("shape", [(3, 4), (3, len(FEATURES) + 1), (len(FEATURES),)])
def test_rows_of_other_features_are_refused(model: CostModel, shape: tuple[int, ...]) -> None:
    rows = np.ones(shape)
    with pytest.raises(TuneError, match=r"MDLC1355.*the asked points have shape \("):
        model([made_up(8, 0)], rows)
    with pytest.raises(TuneError, match=r"MDLC1355.*the known points"):
        model([Samples(rows, np.ones(3)), made_up(8, 0)], made_up(8, 1).features)


@pytest.mark.parametrize(("model", "least"), [(analytic, 0.98), (ridge, 0.93), (boosted, 0.85)])
def test_a_model_orders_points_it_has_not_seen(model: CostModel, least: float) -> None:
    asked = made_up(300, 1)
    scores = model([made_up(200, 0)], asked.features)
    assert scores.shape == (300,)
    assert order(scores, asked.costs) > least


@pytest.mark.parametrize("model", [ridge, boosted])
def test_samples_of_a_larger_problem_help_although_its_costs_are_others(model: CostModel) -> None:
    """What decides is the code's size, which is no term of the formula."""
    own, asked, other = map(by_size, (made_up(10, 2), made_up(300, 1), made_up(400, 3, 1000.0)))
    alone = order(model([own], asked.features), asked.costs)
    helped = order(model([other, own], asked.features), asked.costs)
    assert helped > 0.85
    assert helped > alone + 0.1


@pytest.mark.parametrize("model", [ridge, boosted])
def test_own_samples_outweigh_others_that_say_the_opposite(model: CostModel) -> None:
    other, own, asked = made_up(400, 3), made_up(300, 2), made_up(300, 1)
    wrong = Samples(other.features, 1 / other.costs)
    assert order(model([wrong], asked.features), asked.costs) < -0.8
    assert order(model([wrong, own], asked.features), asked.costs) > 0.8


@pytest.mark.parametrize("model", MODELS)
def test_the_same_samples_give_the_same_scores(
    model: CostModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, asked = [made_up(100, 0)], made_up(50, 1).features
    first = model(known, asked)
    monkeypatch.setattr("minidlc.tuning.model.trees._fitted", {})
    np.testing.assert_array_equal(model(known, asked), first)


@pytest.mark.parametrize("model", [ridge, boosted])
def test_a_failed_trial_is_the_slowest(model: CostModel) -> None:
    known = made_up(200, 0)
    heavy = known.features[:, PLACE["gathers"]] > 0.7
    costs = np.where(heavy, np.inf, known.costs)
    asked = made_up(300, 1).features
    scores = model([Samples(known.features, costs)], asked)
    fails = asked[:, PLACE["gathers"]] > 0.7
    assert scores[fails].mean() > np.quantile(scores[~fails], 0.9)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("costs", [[], [1.0], [np.inf, np.inf], [2.0, 2.0]])
def test_with_nothing_learnt_every_model_answers(model: CostModel, costs: list[float]) -> None:
    rows = made_up(2, 0).features
    asked = made_up(5, 1).features
    scores = model([Samples(rows[: len(costs)], np.array(costs))], asked)
    assert scores.shape == (5,)
    assert np.isfinite(scores).all()
    assert np.isfinite(model([], asked)).all()


@pytest.mark.parametrize("model", [ridge, boosted])
def test_before_any_trial_the_order_is_that_of_the_formula(model: CostModel) -> None:
    asked = made_up(50, 1).features
    by_formula = np.argsort(analytic([], asked))
    np.testing.assert_array_equal(np.argsort(model([], asked)), by_formula)


def test_the_formula_counts_less_where_trials_contradict_it() -> None:
    sample = made_up(100, 0)
    cycles = terms(sample.features).sum(axis=1)
    other_way = cycles.max() + cycles.min() - cycles
    known = [[], [Samples(sample.features, cycles)], [Samples(sample.features, other_way)]]
    before, agreed, contradicted = (Start.of(pooled(k), k).slope for k in known)
    assert agreed > before > contradicted == 0


@pytest.mark.parametrize("model", MODELS)
def test_points_without_loops_are_no_samples(model: CostModel) -> None:
    known, asked = made_up(40, 0), made_up(5, 1).features
    refused = np.vstack([known.features, np.full((1, len(FEATURES)), np.nan)])
    with_it = model([Samples(refused, np.append(known.costs, np.inf))], asked)
    np.testing.assert_allclose(with_it, model([known], asked))


def test_targets_are_ranks_and_others_are_thinned() -> None:
    rows = made_up(4, 0).features
    pool = pooled([made_up(2000, 1), Samples(rows, np.array([5.0, np.inf, 3.0, np.inf]))])
    assert pool is not None
    assert pool.targets[-4:].tolist() == [1 / 3, 2.5 / 3, 0, 2.5 / 3]
    assert np.bincount(pool.groups).tolist() == [MOST, 4]
    assert pool.weights[-1] == 1
    assert pool.weights[:MOST].sum() == pytest.approx(32 * 32 / 36)


def test_prices_are_found_again() -> None:
    """Without noise, and more samples than terms: the factors that the costs were made with."""
    sample = made_up(400, 0)
    wanted = np.linspace(0.5, 2, len(TERMS) + 1) * 1e-9
    x = terms(sample.features)
    found = fitted([Samples(sample.features, x @ wanted)])
    spread = [n for n in range(len(TERMS)) if np.ptp(x[:, n]) > 0]
    assert len(spread) == len(TERMS)
    np.testing.assert_allclose(found[spread], wanted[spread], rtol=0.2)


def test_prices_are_never_negative() -> None:
    sample = made_up(100, 0)
    costs = 1e-3 - 1e-12 * terms(sample.features)[:, 0]
    assert (fitted([Samples(sample.features, costs)]) >= 0).all()


def test_without_xgboost_ridge_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert best_model() is boosted
    monkeypatch.setitem(sys.modules, "xgboost", None)
    monkeypatch.setattr("minidlc.tuning.model.find_spec", lambda name: None)
    assert best_model() is ridge
    with pytest.raises(TuneError, match="MDLC1337") as caught:
        boosted([made_up(10, 0)], made_up(2, 1).features)
    assert "minidlc[tune]" in str(caught.value)


SPACE = Space({"a": {"x": tuple(range(10)), "y": tuple(range(10))}})


@dataclass(frozen=True)
class Bowl:
    """A problem with the least cost at x = 7, y = 2; the point 0, 0 has no loops."""

    space: Space = SPACE

    def features(self, configs: Sequence[Config]) -> Array:
        rows = np.zeros((len(configs), len(FEATURES)))
        for row, c in zip(rows, configs, strict=True):
            row[:2] = c.values["x"], c.values["y"]
            row[2] = np.nan if c.values == {"x": 0, "y": 0} else 0.0
        return rows

    def measure(self, configs: Sequence[Config]) -> list[Trial]:
        return [Trial(c, Fate.OK, (1 + (c.values["x"] - 7) ** 2,)) for c in configs]


def by_score(
    space: Space, trials: Sequence[Trial], score: Score | None, count: int, rng: Random
) -> list[Config]:
    """The points that the model likes most."""
    points = [c for c in space if c not in {t.config for t in trials}]
    if score is None:
        return points[:count]
    scores = score(points)
    return [points[n] for n in np.argsort(scores, kind="stable")[:count]]


def test_a_readers_model_guides_the_search() -> None:
    def mine(known: Sequence[Samples], asked: Array) -> Array:
        assert len(known[-1].costs) >= 4
        return np.abs(asked[:, 0] - 7.0)

    done = explore(Bowl(), by_score, trials=8, batch=4, model=mine)
    assert [t.config.values["x"] for t in done[4:]] == [7, 7, 7, 7]
    assert [t.predicted for t in done] == [None] * 4 + [0.0] * 4


def test_a_readers_model_takes_the_place_of_ours() -> None:
    with mc.use(cost_model=lambda known, asked: -asked[:, 1]):
        done = explore(Bowl(), by_score, trials=8, batch=4, model=ridge)
    assert [t.config.values["y"] for t in done[4:]] == [9, 9, 9, 9]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda n: np.zeros((n, 1)), "shape"),
        (lambda n: np.zeros(n + 1), "shape"),
        (lambda n: np.full(n, np.nan), "not finite"),
        (lambda n: "fast", "a str"),
        (lambda n: None, "not finite|shape"),
    ],
)
def test_nonsense_is_refused(answer: Callable[[int], Any], text: str) -> None:
    def model(known: Sequence[Samples], asked: Array) -> Array:
        return answer(len(asked))

    with pytest.raises(TuneError, match=text) as caught:
        explore(Bowl(), by_score, trials=8, batch=4, model=model)
    assert caught.value.code == "MDLC1339"
