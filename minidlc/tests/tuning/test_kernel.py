"""A kernel as a problem: rows of features, figures in trials, each point lowered once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest

from minidlc.expr.types import Array
from minidlc.support.errors import ScheduleError
from minidlc.tests.tuning.kernels import product, task_of
from minidlc.tuning.kernel import KernelProblem
from minidlc.tuning.model import FEATURES, best_model, loop_features
from minidlc.tuning.objectives import COUNTED
from minidlc.tuning.problem import Score, explore
from minidlc.tuning.space import Config, Space
from minidlc.tuning.task import Candidate, Task
from minidlc.tuning.trial import Fate, Trial

pytestmark = pytest.mark.ch06


@dataclass
class Fake:
    """A measurer that needs no machine: a point takes its number of instructions."""

    asked: list[Config] = field(default_factory=list[Config])

    def measure(self, task: Task, configs: Sequence[Config]) -> list[Trial]:
        self.asked += configs
        return [Trial(c, Fate.OK, (1e-3,), figures={"code_bytes": 7.0}) for c in configs]


@pytest.fixture
def task() -> Task:
    return task_of(product(37, 50, 19))


def test_rows_are_those_of_the_lowered_loops(task: Task) -> None:
    problem = KernelProblem(task, Fake())
    configs = task.space.distinct(3, Random(0))
    rows = problem.features(configs)
    for row, config in zip(rows, configs, strict=True):
        loops = task.lower(config).loops
        np.testing.assert_array_equal(row, loop_features(loops, task.target, task.threads))
    assert problem.features([]).shape == (0, len(FEATURES))
    assert problem.space is task.space


def test_trials_have_the_figures_of_the_loops_and_those_of_the_measurer(task: Task) -> None:
    found = KernelProblem(task, Fake()).measure([task.default])[0]
    assert set(found.figures) == {"peak_bytes", "moved_bytes", "energy", "code_bytes"}
    assert found.figures["energy"] > 0
    assert found.cost == 1e-3


def test_the_row_of_a_point_is_made_once(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = list[Config]()
    whole = Task.unchecked

    def counting(self: Task, config: Config) -> Candidate:
        lowered.append(config)
        return whole(self, config)

    monkeypatch.setattr(Task, "unchecked", counting)
    problem = KernelProblem(task, Fake())
    problem.features([task.default])
    problem.features([task.default, task.default])
    assert lowered == [task.default]


@dataclass
class FakeRows(Fake):
    """A measurer that makes the features itself, and counts on the loops."""

    rows: list[Config] = field(default_factory=list[Config])

    def features(self, task: Task, configs: Sequence[Config]) -> Array:
        self.rows += configs
        return np.full((len(configs), len(FEATURES)), 3.0)

    def measure(self, task: Task, configs: Sequence[Config]) -> list[Trial]:
        return [Trial(c, Fate.OK, (1e-3,), figures=dict.fromkeys(COUNTED, 5.0)) for c in configs]


def test_nothing_is_lowered_here_where_the_measurer_does(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Task, "unchecked")
    measurer = FakeRows()
    problem = KernelProblem(task, measurer)
    configs = task.space.distinct(3, Random(0))
    np.testing.assert_array_equal(problem.features(configs), 3.0)
    problem.features([*configs, task.default])
    assert measurer.rows == [*configs, task.default]
    assert problem.measure([task.default])[0].figures == dict.fromkeys(COUNTED, 5.0)


def test_a_refused_point_has_no_row_and_no_figures(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Task, config: Config) -> Candidate:
        raise ScheduleError("not today", code="MDLC0622")

    monkeypatch.setattr(Task, "unchecked", refuse)
    problem = KernelProblem(task, Fake())
    assert np.isnan(problem.features([task.default])).all()
    assert set(problem.measure([task.default])[0].figures) == {"code_bytes"}


def test_a_search_with_a_model_runs_on_it(task: Task) -> None:
    def random(
        space: Space, trials: Sequence[Trial], score: Score | None, count: int, rng: Random
    ) -> list[Config]:
        points = space.distinct(4 * count, rng, [t.config for t in trials])
        scores = score(points) if score else np.zeros(len(points))
        return [points[n] for n in np.argsort(scores, kind="stable")[:count]]

    measurer = Fake()
    problem = KernelProblem(task, measurer)
    done = explore(problem, random, trials=8, batch=4, model=best_model(), first=[task.default])
    assert [t.config for t in done] == measurer.asked
    assert done[0].by == "first"
    assert all(t.predicted is not None for t in done[1:])
