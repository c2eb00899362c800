"""Tuning the kernels of a model together: which task goes on, for how long, in which layout."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from minidlc.expr.types import Array
from minidlc.support.errors import TuneError
from minidlc.tests.tuning.fakes import (
    FakeMeasurer,
    digest,
    indifferent,
    planted_task,
    scattered,
)
from minidlc.tests.tuning.kernels import product, task_of
from minidlc.tests.tuning.results import MACHINE, Planted
from minidlc.tuning.database import Database
from minidlc.tuning.model_tasks import ModelTask
from minidlc.tuning.model_tuner import BATCH, Ended, ModelTuner, Step, Variant
from minidlc.tuning.problem import Samples
from minidlc.tuning.records import Record
from minidlc.tuning.scheduler import FLOOR, SMALL, Progress, expected_gain, next_task
from minidlc.tuning.search import RandomSearch
from minidlc.tuning.space import Config
from minidlc.tuning.task import Task

pytestmark = [pytest.mark.ch06, pytest.mark.long]
TASKS = [ModelTask(planted_task(f"k{i}", 8 + 4 * i), (f"k{i}", f"k{i}_again"), 2) for i in range(3)]
HEAVY = TASKS[2].key


def heavy(task: Task, config: Config) -> float:
    """One of the tasks takes 20 times as long as the others."""
    return scattered(task, config) * (20 if task.workload.key == HEAVY else 1)


def tuner(
    m: FakeMeasurer,
    tasks: Sequence[ModelTask] = TASKS,
    variants: Sequence[Variant] = (),
    **more: object,
) -> ModelTuner:
    whole = [Variant(Config("plain"), {t.key: t.count for t in tasks}, 0.0)]
    options: dict[str, object] = {"search": RandomSearch(), "model": indifferent, "clock": m.clock}
    estimates = {t.key: m.cost(t.task, t.task.default) for t in tasks}
    return ModelTuner(tasks, variants or whole, m, estimates=estimates, **(options | more))  # pyright: ignore[reportArgumentType]


def test_hope_shrinks_with_trials_and_grows_with_weight_and_luck() -> None:
    p = Progress(1, 8, (1.0, 1.0))
    assert expected_gain(p) > expected_gain(Progress(1, 16, (1.0, 1.0)))
    assert expected_gain(Progress(2, 8, (1.0, 1.0))) == 2 * expected_gain(p)
    assert expected_gain(Progress(1, 8, (1.5, 1.0))) > expected_gain(p)
    assert expected_gain(Progress(1, 8, (math.inf, math.inf))) == 0


def test_the_heaviest_task_without_a_trial_comes_first_then_who_starves() -> None:
    fresh = [Progress(1, 0, (1e-3,)), Progress(4, 0, (1e-3,)), Progress(9, 64, (0.1, 0.05))]
    assert next_task(fresh) == 1
    starved = [Progress(1, 8, (0.01, 0.01)), Progress(1, 400, (1.0, 0.5))]
    assert FLOOR * 408 / 2 > 8
    assert next_task(starved) == 0


def test_tasks_that_matter_little_wait() -> None:
    """A first batch of each of 40 kernels of no weight would take all the time there is."""
    heavy = Progress(1, 8, (1.0, 0.9))
    small = Progress(1, 0, (SMALL / 3,))
    assert next_task([small, heavy]) == 1
    assert next_task([small, Progress(1, 0, (1.0,))]) == 1
    tried = Progress(1, 1000, (0.9, 0.9), batch=1000)
    assert next_task([small, tried]) == 0
    just = Progress(1, 0, (2 * SMALL,))
    assert next_task([just, heavy]) == 0


def test_a_task_that_is_done_or_not_called_gets_nothing() -> None:
    done = Progress(1, 8, (1.0, 1.0), is_done=True)
    unused = Progress(0, 0, (1.0,))
    assert next_task([done, unused]) is None
    assert next_task([done, unused, Progress(1, 8, (1e-9, 1e-9))]) == 2


def test_the_heavy_task_gets_most_trials_and_no_task_none() -> None:
    t = tuner(FakeMeasurer(heavy))
    t.search(each=32)
    shares = {task.key: len(run.trials) for task, run in zip(t.tasks, t.runs, strict=True)}
    assert t.trials == 96
    assert shares[HEAVY] > 48
    assert min(shares.values()) >= BATCH


def test_the_same_times_give_the_same_order() -> None:
    orders = []
    for _ in range(2):
        m = FakeMeasurer(heavy)
        tuner(m, seed=5).search(each=21)
        orders.append(m.asked)
    assert orders[0] == orders[1]


def test_trials_end_when_the_clock_says_so() -> None:
    m = FakeMeasurer(heavy, takes=0.5)
    t = tuner(m)
    t.search(until=30.0)
    t.finish(until=30.0)
    assert 20 <= m.now <= 30.0
    assert t.trials >= 30
    assert t.results[0].is_checked


def test_no_time_at_all_means_no_trial() -> None:
    m = FakeMeasurer(heavy, now=5.0)
    t = tuner(m)
    t.search(until=4.0)
    assert t.trials == 0
    t.finish()
    assert t.results == []


def test_finals_that_do_not_fit_are_left_out_and_their_defaults_stay() -> None:
    m = FakeMeasurer(heavy, takes=0.9)
    t = tuner(m)
    t.search(each=16)
    t.finish(until=m.now + 4.2)
    checked = [r for r in t.results if r.is_checked]
    assert [r.task.workload.key for r in checked] == [HEAVY]
    rest = [r for r in t.results if not r.is_checked]
    assert len(rest) == 2
    assert not any(r.is_better for r in rest)


def test_finals_begin_where_the_search_saw_most_to_gain() -> None:
    def gains(task: Task, config: Config) -> float:
        """The heavy task cannot become faster."""
        if task.workload.key == HEAVY:
            return 20e-3
        return scattered(task, config)

    m = FakeMeasurer(gains, takes=0.9)
    t = tuner(m)
    t.search(each=16)
    t.finish(until=m.now + 4.9)
    assert [r.task.workload.key == HEAVY for r in t.results] == [False, False, True]
    assert [r.is_checked for r in t.results] == [True, False, False]


def test_finals_that_take_longer_than_planned_are_fewer() -> None:
    slow = FakeMeasurer(heavy, takes=0.9)
    t = tuner(slow)
    t.search(each=16)
    slow.takes = 3.0  # each of a few points
    t.finish(until=slow.now + 14.0)
    assert sum(r.is_checked for r in t.results) == 1


def test_a_final_of_a_slow_kernel_has_fewer_rounds() -> None:
    t = tuner(FakeMeasurer(lambda task, config: 50 * heavy(task, config)))
    t.search(each=16)
    t.finish()
    rounds = {r.task.workload.key == HEAVY: len(r.default_seconds) for r in t.results}
    assert rounds == {True: 9, False: 9}
    quick = tuner(FakeMeasurer())
    quick.search(each=16)
    quick.finish()
    assert {len(r.default_seconds) for r in quick.results} == {15}


def test_where_there_is_no_time_for_a_final_the_last_one_counts() -> None:
    def gains(task: Task, config: Config) -> float:
        return 3e-3 if config == task.default else scattered(task, config)

    database, real = Database(), [task_of(product(m=m)) for m in (8, 24)]
    tasks = [ModelTask(task, (task.name,), 1) for task in real]
    first = tuner(FakeMeasurer(gains), tasks, database=database)
    first.search(each=8)
    first.finish()
    again = tuner(FakeMeasurer(gains), tasks, database=database)
    again.finish(until=0.0)
    won = {r.task.workload.key: r.best for r in first.results}
    assert {r.task.workload.key: r.best for r in again.results} == won
    assert all(r.is_checked and r.is_better for r in again.results)


def test_results_stand_with_their_calls_and_winners() -> None:
    t = tuner(FakeMeasurer(heavy))
    t.search(each=16)
    t.finish()
    assert {r.count for r in t.results} == {2}
    assert all(r.is_better and r.gain > 0 for r in t.results)
    assert t.results[0].task.workload.key == HEAVY


def test_a_task_that_fails_is_named_and_the_others_go_on() -> None:
    def one_fails(task: Task, config: Config) -> float:
        return math.inf if task.workload.key == TASKS[0].key else scattered(task, config)

    m = FakeMeasurer(one_fails)
    t = _with_estimates(m)
    t.search(each=16)
    t.finish()
    assert len(t.results) == 2
    assert list(t.failed) == [TASKS[0].task.name]
    assert "8 crashed" in t.failed[TASKS[0].task.name]


def test_where_every_task_fails_the_first_reason_is_said() -> None:
    t = _with_estimates(FakeMeasurer(lambda task, config: math.inf))
    t.search(each=8)
    with pytest.raises(TuneError, match="MDLC1351") as e:
        t.finish()
    assert "3 kernels" in e.value.message
    assert "SIGSEGV" in e.value.message


def test_other_kernels_of_the_kind_are_known_to_the_model() -> None:
    seen = list[int]()

    def counting(known: Sequence[Samples], asked: Array) -> Array:
        seen.append(len(known))
        return np.zeros(len(asked))

    tuner(FakeMeasurer(heavy), model=counting).search(each=16)
    assert max(seen) == 3
    assert seen[0] == 1


def test_who_watches_hears_of_each_trial() -> None:
    steps = list[Step]()
    t = tuner(FakeMeasurer(heavy), told=steps.append)
    t.search(each=11)
    assert len(steps) == 33
    assert Counter(s.task.key for s in steps).total() == t.trials
    assert all(s.best <= s.first for s in steps)
    last = {s.task.key: s for s in steps}
    assert {k: s.best for k, s in last.items()} == t.costs


def two_layouts(rest: float) -> list[Variant]:
    """The default has the first two tasks, the other the last two, and copies that take `rest`."""
    counts = [{t.key: 1 for t in pair} for pair in (TASKS[:2], TASKS[1:])]
    return [Variant(Config("a"), counts[0], 0.0), Variant(Config("b"), counts[1], rest)]


def test_the_layout_whose_kernels_and_copies_take_least_is_taken() -> None:
    def first_is_slow(task: Task, config: Config) -> float:
        slow = 1.05 if task.workload.key == TASKS[0].key else 1.0
        return slow * (1.5e-3 if config == task.default else 1e-3)

    for rest, wanted in ((0.0, "b"), (5e-4, "a")):
        t = tuner(FakeMeasurer(first_is_slow), variants=two_layouts(rest))
        t.search(each=24)
        t.finish()
        assert t.layout.way == wanted


def test_a_layout_that_is_far_behind_gets_no_trials() -> None:
    m = FakeMeasurer()
    t = tuner(m, variants=two_layouts(1.0))
    t.search(each=21)
    assert TASKS[2].key not in {key for key, _ in m.asked}
    assert t.trials == 2 * 21  # of the kernels that count


def test_why_a_search_ended_is_said() -> None:
    m = FakeMeasurer(heavy, takes=0.5)
    t = tuner(m)
    assert t.ended is Ended.NOT
    t.search(each=3)
    assert (t.ended, t.trials) == (Ended.TRIALS, 9)
    t.search(until=m.now + 8.0)
    assert t.ended is Ended.TIME
    few = Planted(product(), "matmul", MACHINE, 1, "k", given={"tiled": {"rows": (4, 6, 8)}})
    small = tuner(FakeMeasurer(), [ModelTask(few, ("k",), 1)])
    small.search(each=10_000)
    assert small.ended is Ended.POINTS
    assert small.trials == small.tasks[0].task.space.size


class Full(Database):
    """Trials can be written, finals cannot."""

    def append(self, record: Record) -> None:
        if record.is_check:
            raise TuneError("tune.jsonl cannot be written: the disk is full", code="MDLC1342")
        super().append(record)


def test_a_file_that_cannot_be_written_is_no_fault_of_a_kernel() -> None:
    database, task = Full(), task_of(product())
    t = tuner(FakeMeasurer(), [ModelTask(task, (task.name,), 1)], database=database)
    t.search(each=4)
    with pytest.raises(TuneError, match=r"MDLC1342.*the disk is full"):
        t.finish()
    assert len(database) == 4
    assert not t.failed


def test_stopping_keeps_what_is_known_and_every_default() -> None:
    t = tuner(FakeMeasurer(heavy))
    t.search(each=8)
    t.stop()
    assert len(t.results) == 3
    assert not any(r.is_better or r.is_checked for r in t.results)


def _with_estimates(m: FakeMeasurer) -> ModelTuner:
    whole = [Variant(Config("plain"), {t.key: t.count for t in TASKS}, 0.0)]
    return ModelTuner(
        TASKS,
        whole,
        m,
        estimates={t.key: 1e-3 * (1 + digest(t.key)) for t in TASKS},
        search=RandomSearch(),
        model=indifferent,
        clock=m.clock,
    )
