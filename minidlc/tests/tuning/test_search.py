"""Searches: new points only, all of them in the end, and the same ones for the same seed."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pytest

import minidlc as mc
from minidlc.expr.types import Array
from minidlc.support.errors import OptionError, TuneError
from minidlc.tests.tuning.landscapes import nearest_model, synthetic
from minidlc.tuning.problem import CostModel, Samples, Search, explore, name_of
from minidlc.tuning.result import curve
from minidlc.tuning.search import (
    Annealing,
    Bandit,
    Evolution,
    GridSearch,
    PolicyGradient,
    RandomSearch,
)
from minidlc.tuning.search.bandit import area
from minidlc.tuning.space import Config, Space
from minidlc.tuning.table import Table, TableProblem
from minidlc.tuning.trial import Fate, Trial

pytestmark = [pytest.mark.ch06, pytest.mark.long]


def every_search() -> list[Search]:
    return [
        RandomSearch(),
        GridSearch(),
        GridSearch(stride=1),
        Annealing(),
        Evolution(elite=4, population=16),
        PolicyGradient(),
        Bandit((Evolution(elite=4), Annealing(chains=3), RandomSearch(), GridSearch())),
    ]


SEARCHES = pytest.mark.parametrize("search", every_search(), ids=repr)
MODELS = pytest.mark.parametrize("model", [None, nearest_model], ids=["", "model"])
SPACES = {
    "one point": Space({"a": {}}),
    "one of many": Space(
        {"a": {"x": tuple(range(300)), "y": (0, 1)}}, lambda c: c.knobs[0][1] > 298
    ),
    "a few": Space({"a": {"x": (1, 2, 3), "y": (0, 1)}, "b": {"z": (5,)}, "c": {}}),
    "scattered": Space(
        {"a": {"x": tuple(range(20)), "y": tuple(range(20))}},
        lambda c: (c.knobs[0][1] * 3 + c.knobs[1][1] * 7) % 13 == 0,
    ),
}


@SEARCHES
@MODELS
@pytest.mark.parametrize("space", SPACES)
def test_every_point_is_tried_once_and_then_the_search_ends(
    search: Search, model: CostModel | None, space: str
) -> None:
    points = set(SPACES[space])
    problem = Flat(SPACES[space])
    trials = explore(problem, search, trials=1000, seed=3, model=model)
    assert len(trials) == len(points)
    assert {t.config for t in trials} == points


class Flat:
    """A problem whose costs say nothing, where every third point fails."""

    def __init__(self, space: Space) -> None:
        self.space = space

    def features(self, configs: Sequence[Config]) -> Array:
        return np.array([[*(v for _, v in c.knobs), 0, 0][:2] for c in configs], np.float64)

    def measure(self, configs: Sequence[Config]) -> list[Trial]:
        failed = [sum(v for _, v in c.knobs) % 3 == 2 for c in configs]
        return [
            Trial(c, Fate.CRASHED, reason="died") if f else Trial(c, Fate.OK, (1.0,))
            for c, f in zip(configs, failed, strict=True)
        ]


@pytest.mark.parametrize("search", every_search(), ids=repr)
def test_a_space_where_all_fails(search: Search) -> None:
    class Failing(Flat):
        def measure(self, configs: Sequence[Config]) -> list[Trial]:
            return [Trial(c, Fate.TIMEOUT, reason="late") for c in configs]

    trials = explore(Failing(SPACES["scattered"]), search, trials=24, model=nearest_model)
    assert len(trials) == 24


@SEARCHES
@MODELS
def test_the_same_seed_gives_the_same_sequence(search: Search, model: CostModel | None) -> None:
    """An instance that has run before does as a new one, and as one that goes on in the middle."""
    problem = TableProblem(synthetic(seed=1))
    first = explore(problem, search, trials=40, seed=5, model=model)
    assert explore(problem, search, trials=40, seed=5, model=model) == first
    other = explore(problem, search, trials=40, seed=6, model=model)
    assert search.__class__ is GridSearch or other != first


@SEARCHES
def test_a_run_that_was_broken_off_goes_on(search: Search) -> None:
    """What was tried counts: it stands first, is not tried again, and credits who proposed it."""
    problem = TableProblem(synthetic(seed=1))
    earlier = explore(problem, search, trials=16, seed=5)
    trials = explore(problem, search, trials=40, seed=5, earlier=earlier)
    assert trials[:16] == earlier
    assert len({t.config for t in trials}) == 40
    assert trials == explore(problem, search, trials=40, seed=5, earlier=earlier)


def test_the_sequence_is_the_same_in_every_process() -> None:
    """Nothing depends on the order of sets, which differs with the seed of Python's hashes."""
    program = "from minidlc.tests.tuning.test_search import digest; print(digest())"  # as below
    for hash_seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == digest()


def digest() -> str:
    """Of what all searches try, without a model and with one."""
    problem = TableProblem(synthetic(seed=2))
    found = hashlib.sha256()
    for search in every_search():
        for model in (None, nearest_model):
            trials = explore(problem, search, trials=32, seed=9, model=model)
            found.update(" ".join(f"{t.config} {t.by}" for t in trials).encode())
    return found.hexdigest()


def gap(search: Search, table: Table, trials: int, model: CostModel | None = None) -> float:
    """Median over ten seeds of the best cost found, over the best of the table, less 1."""
    problem = TableProblem(table)
    runs = (explore(problem, search, trials=trials, seed=s, model=model) for s in range(10))
    return statistics.median(curve(run)[-1] for run in runs) / table.best - 1


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_searches_that_learn_find_more_than_random(seed: int) -> None:
    table = synthetic(seed=seed)
    blind = gap(RandomSearch(), table, 64)
    assert gap(Evolution(), table, 64, nearest_model) < blind / 2
    assert gap(Annealing(), table, 64, nearest_model) < blind / 2
    assert gap(Evolution(), table, 128) < gap(RandomSearch(), table, 128)


def test_a_grid_of_the_golden_section_covers_the_space_early() -> None:
    space = Space({"a": {"x": tuple(range(1000))}})
    found = sorted(c.knobs[0][1] for c in GridSearch()(space, [], None, 20, Random(0)))
    gaps = [b - a for a, b in itertools.pairwise(found)]
    assert max(gaps) <= 100  # twenty points of a thousand: 50 on average
    assert [c.knobs[0][1] for c in GridSearch(stride=1)(space, [], None, 3, Random(0))] == [0, 1, 2]


def test_a_grid_meets_what_others_left_out() -> None:
    """One instance, two runs: the second must not go on where the first one stopped."""
    space, grid = SPACES["a few"], GridSearch()
    explore(Flat(space), grid, trials=4, batch=2)
    last = explore(Flat(space), grid, trials=4, batch=2)[-1].config
    trials = explore(Flat(space), grid, trials=99, first=[last])
    assert {t.config for t in trials} == set(space)


def costs(*values: float) -> list[Trial]:
    """Trials of a knob x = 0, 1, …"""
    return [
        Trial(Config.of("a", {"x": x}), Fate.OK, (v,))
        if math.isfinite(v)
        else Trial(Config.of("a", {"x": x}), Fate.CRASHED)
        for x, v in enumerate(values)
    ]


def test_a_chain_goes_downhill_always_and_uphill_while_it_is_hot() -> None:
    trials = costs(4.0, 2.0, 100.0, 1.0, math.inf)
    (place,) = Annealing(chains=1, temperature=1e-9).places(trials)
    assert place is trials[3]
    (place,) = Annealing(chains=1, temperature=1e9, cooling=1.0).places(trials[:3])
    assert place is trials[2]
    two = Annealing(chains=2, temperature=1e-9).places(trials)
    assert two == [trials[0], trials[3]]
    (place,) = Annealing(chains=1, temperature=1e-9).places(costs(math.inf, 7.0))
    assert place is not None
    assert place.cost == 7.0


def test_an_agent_learns_what_pays() -> None:
    """Half of the values of x are four times as fast; y does nothing; the way b is slow."""
    space = Space({"a": {"x": (0, 1), "y": (0, 1, 2)}, "b": {}})
    rng, trials = Random(0), list[Trial]()
    for _ in range(60):
        c = space.random(rng)
        trials.append(Trial(c, Fate.OK, (4.0 if c.way == "b" or c.values["x"] == 0 else 1.0,)))
    policy = PolicyGradient().policy(space, trials)
    assert policy.ways["a"] > 0.7
    assert policy.knobs["a", "x"][1] > 0.9
    assert max(policy.knobs["a", "y"]) < 0.7
    for p in (*policy.knobs.values(), np.array(list(policy.ways.values()))):
        assert p.sum() == pytest.approx(1.0)


def test_an_agent_moves_along_the_gradient_of_the_log_probability() -> None:
    space = Space({"a": {"x": (0, 1, 2)}, "b": {}})
    action = Config.of("a", {"x": 1})
    start = PolicyGradient().policy(space, [])

    def log_p(ways: Array, x: Array) -> float:
        return float(ways[0] - np.log(np.exp(ways).sum()) + x[1] - np.log(np.exp(x).sum()))

    start.way_logits[:] = (0.3, -0.2)
    start.knob_logits["a", "x"][:] = (0.5, 0.1, -0.4)
    ways, x = start.way_logits.copy(), start.knob_logits["a", "x"].copy()
    start.learn(action, 1.0)
    for logits, moved in ((ways, start.way_logits), (x, start.knob_logits["a", "x"])):
        for k in range(len(logits)):
            step = np.zeros(len(logits))
            step[k] = 1e-6
            up = (ways + step, x) if logits is ways else (ways, x + step)
            down = (ways - step, x) if logits is ways else (ways, x - step)
            slope = (log_p(*up) - log_p(*down)) / 2e-6
            assert moved[k] - logits[k] == pytest.approx(slope, abs=1e-6)


def test_a_bandit_asks_the_search_that_improves() -> None:
    """One finds something a little faster each time, the other always the same."""
    space = Space({"same": {"x": tuple(range(200))}, "falling": {"x": tuple(range(200))}})

    def in_way(way: str) -> Search:
        def propose(s: Space, trials: Sequence[Trial], *rest: object) -> list[Config]:
            tried = {t.config for t in trials}
            return [c for c in s if c.way == way and c not in tried][:8]

        propose.__name__ = way
        return propose

    class Falling(Flat):
        def measure(self, configs: Sequence[Config]) -> list[Trial]:
            costs = [1.0 / (2 + c.values["x"]) if c.way == "falling" else 1.0 for c in configs]
            return [Trial(c, Fate.OK, (s,)) for c, s in zip(configs, costs, strict=True)]

    bandit = Bandit((in_way("same"), in_way("falling")))
    trials = explore(Falling(space), bandit, trials=128, seed=0)
    by = [t.by for t in trials]
    assert [t.config.way for t in trials] == by
    assert by[:16] == ["same"] * 8 + ["falling"] * 8  # each is asked once
    assert by.count("falling") > 100
    credit = bandit.credit(trials)
    assert credit["falling"] > credit["same"]


def test_late_successes_weigh_more() -> None:
    assert area([True, True]) == 1.0
    assert area([False, True]) == pytest.approx(2 / 3)
    assert area([True, False]) == pytest.approx(1 / 3)
    assert area([False]) == 0.0


@pytest.mark.parametrize("searches", [(), (RandomSearch(), RandomSearch())])
def test_no_bandit_of_these(searches: tuple[Search, ...]) -> None:
    with pytest.raises(TuneError, match="MDLC1333"):
        Bandit(searches)


@pytest.mark.parametrize(
    "make",
    [
        lambda: GridSearch(stride=0),
        lambda: Annealing(chains=0),
        lambda: Annealing(cooling=1.5),
        lambda: Annealing(temperature=math.nan),
        lambda: Evolution(population=0),
        lambda: Evolution(epsilon=1.5),
        lambda: PolicyGradient(rate=0),
        lambda: PolicyGradient(memory=2),
        lambda: Bandit((RandomSearch(),), window=0),
        lambda: Bandit((RandomSearch(),), curiosity=math.nan),
    ],
)
def test_numbers_no_search_can_work_with(make: Callable[[], object]) -> None:
    with pytest.raises(TuneError, match="MDLC1334") as caught:
        make()
    assert caught.value.hint


def in_order(
    space: Space, trials: Sequence[Trial], score: object, count: int, rng: Random
) -> list[Config]:
    """A reader's search."""
    tried = {t.config for t in trials}
    return [c for c in space if c not in tried][:count]


def test_a_readers_search_takes_the_place_of_ours() -> None:
    table = synthetic(SPACES["a few"])
    with mc.use(search=in_order):
        trials = explore(TableProblem(table), Evolution(), trials=4)
    assert [t.config for t in trials] == list(table.configs)[:4]
    assert {t.by for t in trials} == {"override"}
    assert {t.by for t in explore(TableProblem(table), in_order, trials=4)} == {"in_order"}


def test_a_readers_model_takes_the_place_of_ours() -> None:
    """It is told what is known, the problem asked about last."""
    seen = list[tuple[int, int]]()

    def mine(known: Sequence[Samples], asked: Array) -> Array:
        seen.append((len(known), len(known[-1].costs)))
        return asked[:, 0]

    table = synthetic(SPACES["scattered"])
    earlier = Samples(table.features[:3], table.costs[:3])
    with mc.use(cost_model=mine):
        trials = explore(
            TableProblem(table), Evolution(), trials=16, model=nearest_model, known=[earlier]
        )
    assert (1, 3) in seen
    assert (2, 8) in seen
    assert all(t.predicted is not None for t in trials)


NONSENSE: dict[str, Callable[..., object]] = {
    "nothing": lambda *a: None,
    "no points": lambda *a: [1, 2],
    "a foreign point": lambda *a: [Config.of("zzz", {})],
}


@pytest.mark.parametrize("what", NONSENSE)
def test_nonsense_of_a_search_is_refused(what: str) -> None:
    problem = TableProblem(synthetic(SPACES["a few"]))
    with pytest.raises(TuneError, match="MDLC1307"):
        explore(problem, NONSENSE[what])  # pyright: ignore[reportArgumentType]
    with (
        mc.use(search=NONSENSE[what]),
        pytest.raises((TuneError, OptionError), match=r"MDLC1307|MDLC1018"),
    ):
        explore(problem, RandomSearch())


def test_a_search_that_gives_too_much_or_old_points() -> None:
    problem = TableProblem(synthetic(SPACES["scattered"]))

    def greedy(space: Space, *rest: object) -> list[Config]:
        return [c for c in space for _ in range(2)]

    trials = explore(problem, greedy, trials=11)
    assert len(trials) == 11
    assert len({t.config for t in trials}) == 11


def test_who_proposed() -> None:
    assert name_of(RandomSearch()) == "random"
    assert name_of(Evolution(name="small")) == "small"
    assert name_of(in_order) == "in_order"
    assert name_of(Nameless()) == "Nameless"


class Nameless:
    def __call__(
        self, space: Space, trials: Sequence[Trial], score: object, count: int, rng: Random
    ) -> list[Config]:
        return []
