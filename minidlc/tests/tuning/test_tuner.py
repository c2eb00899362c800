"""Tuning one kernel: the order of trials, resuming, the final, and that nothing becomes slower."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

import minidlc as mc
from minidlc.support.errors import OptionError, TuneError
from minidlc.tests.tuning.fakes import FakeMeasurer, indifferent, planted_task, scattered
from minidlc.tests.tuning.kernels import product, task_of, won
from minidlc.tuning.database import Database
from minidlc.tuning.space import Config
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Fate, Trial
from minidlc.tuning.tuner import FINALISTS, TaskRun, tune_task

pytestmark = [pytest.mark.ch06, pytest.mark.long]
tune = partial(tune_task, model=indifferent)


def test_the_default_is_tried_first_and_the_fastest_points_meet_it_in_the_final() -> None:
    task, m = planted_task(), FakeMeasurer()
    r = tune(task, m, trials=12)
    assert m.asked[0][1] == r.trials[0].config == task.default
    assert len(r.trials) == 12
    assert m.rechecked[0] == task.default
    assert len(m.rechecked) <= 1 + FINALISTS
    fastest = min(r.trials, key=lambda t: t.cost)
    assert r.best == fastest.config
    assert r.ratio == pytest.approx(fastest.cost / 1.5e-3)
    assert r.interval[1] < 1


def test_the_same_seed_gives_the_same_trials() -> None:
    runs = [tune(planted_task(), FakeMeasurer(), trials=12, seed=s) for s in (3, 3, 4)]
    first, again, other = ([t.config for t in r.trials] for r in runs)
    assert first == again != other


def test_the_default_stays_where_the_final_does_not_confirm_the_search() -> None:
    def lucky(task: Task, config: Config) -> float:
        return 1.5e-3 if config == task.default else 1.5e-3 * 1.001

    task, m = planted_task(), FakeMeasurer(final=lucky)
    r = tune(task, m, trials=12)
    assert min(t.cost for t in r.trials) < 1.5e-3
    assert r.best == task.default
    assert not r.is_better
    assert r.ratio == 1


def test_a_finalist_that_fails_in_the_final_does_not_win() -> None:
    task = planted_task()
    r = tune(task, FakeMeasurer(), trials=12)

    def breaks(task: Task, config: Config) -> float:
        return float("inf") if config == r.best else scattered(task, config)

    again = tune(task, FakeMeasurer(final=breaks), trials=12)
    assert again.best != r.best


def test_loops_are_measured_once_whatever_knobs_gave_them() -> None:
    task, m = planted_task(), FakeMeasurer()
    r = tune(task, m, trials=24)
    texts = [str(task.lower(c).loops) for _, c in m.asked]
    assert len(set(texts)) == len(texts) < len(r.trials)
    by_loops = {str(task.lower(t.config).loops): t.seconds for t in reversed(r.trials)}
    assert all(t.seconds == by_loops[str(task.lower(t.config).loops)] for t in r.trials)


def test_trials_of_an_earlier_run_count_and_are_not_measured_again(tmp_path: Path) -> None:
    path, task = tmp_path / "tune.jsonl", task_of(product())
    first, second, third = FakeMeasurer(), FakeMeasurer(), FakeMeasurer()
    tune(task, first, trials=6, database=Database(path))
    r = tune(task, second, trials=14, database=Database(path))
    assert len(r.trials) == 14
    assert not {c for _, c in first.asked} & {c for _, c in second.asked}
    again = tune(task, third, trials=14, database=Database(path))
    assert third.asked == []
    assert again.best == r.best


def test_what_won_the_last_final_defends_its_place() -> None:
    """Another final may end otherwise, but not for lack of the champion."""
    task, database = task_of(product()), Database()
    by_loops = {str(task.lower(c).loops): c for c in [*list(task.space)[:40], task.default]}
    points = [c for c in by_loops.values() if c != task.default][:6]
    champion = points[5]
    database.append(won(task, Trial(champion, Fate.OK, (1e-5,) * 3)))
    m = FakeMeasurer(lambda task, c: 2e-5 if c == task.default else 1e-5 + 1e-7 * points.index(c))
    run = TaskRun(task, m, model=indifferent, database=database)
    run.trials += [Trial(c, Fate.OK, (m.cost(task, c),)) for c in (task.default, *points)]
    assert run.unchecked() is not None
    assert run.result().best == points[0]
    assert champion in m.rechecked
    assert len(m.rechecked) <= 1 + FINALISTS
    best = database.best(task.workload)
    assert best is not None
    assert best.config == points[0]


def test_records_are_of_the_compiler_as_it_is() -> None:
    with mc.use(verify=lambda graph: None), pytest.raises(TuneError, match=r"MDLC1354.*verify is"):
        tune(task_of(product()), FakeMeasurer(), trials=2, database=Database())
    with mc.use(verify=lambda graph: None):
        assert len(tune(planted_task(), FakeMeasurer(), trials=2).trials) == 2


def test_each_trial_is_in_the_file_when_it_has_ended_and_the_last_word_too(tmp_path: Path) -> None:
    path, task = tmp_path / "tune.jsonl", task_of(product())
    lines = list[int]()
    tune(
        task,
        FakeMeasurer(),
        trials=12,
        database=Database(path),
        told=lambda t: lines.append(len(Database(path))),
    )
    assert lines == list(range(1, 13))
    best = Database(path).best(task.workload)
    assert best is not None
    assert best.is_check
    assert len(Database(path)) == 13


def test_a_run_that_breaks_off_has_kept_what_had_ended(tmp_path: Path) -> None:
    path, task = tmp_path / "tune.jsonl", task_of(product())

    def breaks(task: Task, config: Config) -> float:
        if len(m.asked) == 5:
            raise KeyboardInterrupt
        return scattered(task, config)

    m = FakeMeasurer(breaks)
    with pytest.raises(KeyboardInterrupt):
        tune(task, m, trials=12, database=Database(path))
    kept = {r.config for r in Database(path).records}
    assert {c for _, c in m.asked[:4]} <= kept
    assert m.asked[4][1] not in kept


def test_where_all_trials_fail_the_first_reason_and_counts_are_said() -> None:
    m = FakeMeasurer(lambda task, config: float("inf"))
    with pytest.raises(TuneError, match="MDLC1351") as e:
        tune(planted_task(), m, trials=6)
    assert "6 crashed; the first, " in e.value.message
    assert "SIGSEGV" in e.value.message


def test_a_default_that_cannot_be_measured_is_an_error() -> None:
    def cost(task: Task, config: Config) -> float:
        return float("inf") if config == task.default else scattered(task, config)

    with pytest.raises(TuneError, match="MDLC1352") as e:
        tune(planted_task(), FakeMeasurer(cost), trials=6)
    assert "in the search it was crashed" in e.value.message


def test_failed_trials_are_counted_and_go_on() -> None:
    def some(task: Task, config: Config) -> float:
        odd = int(1e6 * scattered(task, config)) % 2
        return float("inf") if odd and config != task.default else scattered(task, config)

    r = tune(planted_task(), FakeMeasurer(some), trials=16)
    assert {t.fate for t in r.trials} == {Fate.OK, Fate.CRASHED}


@pytest.mark.parametrize("trials", [0, -1, np.int64(0)])
def test_less_than_one_trial_is_refused(trials: int) -> None:
    with pytest.raises(TuneError, match="MDLC1350"):
        tune(planted_task(), FakeMeasurer(), trials=trials)


@pytest.mark.parametrize("trials", ["64", 1.5, True, None])
def test_trials_is_a_whole_number(trials: int) -> None:
    with pytest.raises(OptionError, match="MDLC1001"):
        tune(planted_task(), FakeMeasurer(), trials=trials)
