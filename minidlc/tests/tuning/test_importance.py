"""Importance: a planted knob and a planted feature are found; what shows nothing is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from minidlc.expr.types import Array
from minidlc.support.errors import TuneError
from minidlc.tuning.model import FEATURES, feature_importance, knob_importance, ridge
from minidlc.tuning.problem import Samples
from minidlc.tuning.space import Config, Space
from minidlc.tuning.trial import Fate, Trial

pytestmark = pytest.mark.ch06
SPACE = Space({"a": {"x": (1, 2, 4, 8), "y": (0, 1, 2), "z": (0, 1)}, "b": {"x": (1, 2)}})


def trials(count: int, weight: float = 1.0, seed: int = 0) -> list[Trial]:
    """Costs that x decides, and y a little; way b is a tenth slower than way a at best."""
    rng, found = Random(seed), list[Trial]()
    for _ in range(count):
        c = SPACE.random(rng)
        x, y = c.values["x"], c.values.get("y", 0)
        log = weight * abs(math.log2(x) - 2) + 0.1 * y + 0.1 * (c.way == "b") + rng.gauss(0, 0.01)
        found.append(Trial(c, Fate.OK, (1e-3 * math.exp(log),)))
    return found


def test_the_planted_knob_comes_first_and_shares_add_up() -> None:
    found = knob_importance(trials(200))
    assert next(iter(found)) == "a.x"
    assert set(found) == {"way", "a.x", "a.y", "a.z", "b.x", "rest"}
    assert sum(found.values()) == pytest.approx(1)
    assert found["a.x"] > 10 * found["a.y"] > 10 * found["a.z"]
    assert found["rest"] < 0.02


def test_shares_of_one_way_are_those_of_the_analysis_of_variance() -> None:
    """All points once, costs without noise: variances of the effects, by hand."""
    space = Space({"a": {"x": (0, 1, 2), "y": (0, 1)}})
    done = [Trial(c, Fate.OK, (math.exp(2 * c.values["x"] + 1 * c.values["y"]),)) for c in space]
    found = knob_importance(done)
    x, y = 4 * 2 / 3, 1 / 4
    assert found["a.x"] == pytest.approx(x / (x + y), abs=0.01)
    assert found["a.y"] == pytest.approx(y / (x + y), abs=0.01)


def test_what_two_knobs_do_together_is_rest() -> None:
    space = Space({"a": {"x": (0, 1), "y": (0, 1)}})
    done = [Trial(c, Fate.OK, (math.exp(c.values["x"] ^ c.values["y"]),)) for c in space]
    assert knob_importance(done)["rest"] == pytest.approx(1)


def test_the_same_trials_give_the_same_shares_and_failed_ones_have_no_part() -> None:
    done = trials(40)
    failed = [Trial(Config.of("a", {"x": 1, "y": 0, "z": 0}), Fate.CRASHED, reason="signal 11")]
    assert knob_importance(done) == knob_importance([*failed, *done])


@pytest.mark.parametrize("done", [[], trials(2), [trials(1)[0]] * 5])
def test_too_little_to_tell(done: list[Trial]) -> None:
    with pytest.raises(TuneError, match="MDLC1338"):
        knob_importance(done)


def test_the_planted_feature_comes_first() -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((200, len(FEATURES)))
    place = FEATURES.index("l1_lines")
    known = [Samples(rows, np.exp(3 * rows[:, place] + 0.3 * rows[:, 0]))]
    found = feature_importance(ridge, known)
    assert list(found)[:2] == ["l1_lines", FEATURES[0]]
    assert sum(found.values()) == pytest.approx(1)
    assert found == feature_importance(ridge, known)
    assert found["l1_lines"] > 0.8


def test_for_a_model_that_tells_no_points_apart_nothing_is_important() -> None:
    def all_alike(known: Sequence[Samples], asked: Array) -> Array:
        return np.zeros(len(asked))

    rows = np.random.default_rng(0).random((10, len(FEATURES)))
    found = feature_importance(all_alike, [Samples(rows, np.ones(10))])
    assert set(found.values()) == {0.0}


@pytest.mark.parametrize("count", [0, 1])
def test_of_one_point_no_feature_is_important(count: int) -> None:
    rows = np.random.default_rng(0).random((count, len(FEATURES)))
    found = feature_importance(ridge, [Samples(rows, np.ones(count))])
    assert list(found.values()) == [0.0] * len(FEATURES)
