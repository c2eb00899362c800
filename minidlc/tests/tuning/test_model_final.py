"""Finals inside a model: who stays, who is given up, what is recorded, what is taken end to end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from minidlc.tests.tuning.fakes import FakeMeasurer, indifferent
from minidlc.tests.tuning.kernels import product, task_of
from minidlc.tuning.database import Database, why_default
from minidlc.tuning.model_final import ModelFinal, kernel_times, verdict
from minidlc.tuning.result import TaskResult
from minidlc.tuning.space import Config
from minidlc.tuning.tuner import tune_task

pytestmark = pytest.mark.ch06
TASKS = [replace(task_of(product(m=m)), name=f"k{m}") for m in (8, 24)]
KEYS = [t.workload.key for t in TASKS]
SLOW, NOISE = 1.0, [1 + 0.003 * n for n in range(7)]
A, B = Config("layout"), Config("plain")


@dataclass
class Clock:
    """A clock that goes on by what was run."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Fake:
    """A model whose kernels take `times`, with noise that repeats."""

    clock: Clock
    times: Mapping[str, float]
    tuned: frozenset[str] = frozenset()
    runs: int = 0
    names: list[str] = field(default_factory=list[str])

    def kernels(self) -> dict[str, float]:
        self.runs += 1
        self.names.append("tuned" if self.tuned else "default")
        noise = NOISE[self.runs % len(NOISE)]
        self.clock.now += sum(self.times.values())
        return {key: t * noise for key, t in self.times.items()}


def half(task: object, config: Config) -> float:
    """Alone, all points are twice as fast as the default."""
    return 2e-5 if config in [t.default for t in TASKS] else 1e-5


@dataclass
class Session:
    """Two kernels that were won alone; `inside` are their ratios in the model."""

    inside: tuple[float, float]
    database: Database = field(default_factory=Database)
    results: dict[str, TaskResult] = field(default_factory=dict[str, TaskResult])
    compiled: int = 0

    def __post_init__(self) -> None:
        self.clock = Clock()
        for task in TASKS:
            m = FakeMeasurer(half)
            r = tune_task(task, m, trials=4, model=indifferent, database=self.database)
            self.results[task.workload.key] = r
        self.default = Fake(self.clock, dict.fromkeys(KEYS, SLOW))
        self.final = ModelFinal(self.results, TASKS, self.database, clock=self.clock)

    def compile(self) -> Fake:
        """The model by the records as they are now."""
        self.compiled += 1
        tuned = {t.workload.key for t in TASKS if self.database.best(t.workload)}
        ratios = dict(zip(KEYS, self.inside, strict=True))
        times = {key: SLOW * (ratios[key] if key in tuned else 1) for key in KEYS}
        return Fake(self.clock, times, frozenset(tuned))

    @property
    def used(self) -> list[bool]:
        """Which kernels a compilation takes from records."""
        return [self.database.best(t.workload) is not None for t in TASKS]


def test_a_winner_stays_only_if_it_is_faster_in_the_model() -> None:
    s = Session((0.9, 1.1))
    assert s.used == [True, True]
    exe = s.final.inside(s.default, s.compile)
    assert s.used == [True, False]
    assert exe.tuned == {KEYS[0]}
    assert s.compiled == 2
    stays, lost = (s.results[key] for key in KEYS)
    assert stays.ratio == pytest.approx(0.9, rel=0.01)
    assert (lost.best, lost.ratio) == (TASKS[1].default, 1)
    assert lost.lost.startswith("in the model: 1.10 of the default (95 % up to 1.1")
    of_lost = [r for r in s.database.records if r.workload.key == KEYS[1]]
    assert why_default(of_lost).startswith("the default is the fastest known in the model: 1.10")
    assert of_lost[-1].trial.by == "in the model"


def test_one_that_is_equal_in_the_model_is_no_winner() -> None:
    s = Session((1.0, 1.001))
    assert s.final.inside(s.default, s.compile) is s.default
    assert s.used == [False, False]
    assert s.compiled == 1


def test_where_all_stay_nothing_is_compiled_again() -> None:
    s = Session((0.9, 0.8))
    exe = s.final.inside(s.default, s.compile)
    assert exe.tuned == set(KEYS)
    assert s.compiled == 1
    records = [s.database.best(t.workload) for t in TASKS]
    assert [r and r.trial.by for r in records] == ["in the model"] * 2


def test_a_model_without_winners_is_the_default_and_is_not_run() -> None:
    s = Session((0.9, 0.8))
    plain = Fake(s.clock, s.default.times)
    assert s.final.inside(s.default, lambda: plain) is s.default
    assert plain.runs == s.default.runs == 0


def test_a_kernel_that_does_not_run_keeps_its_winner() -> None:
    s = Session((0.9, 0.8))
    s.default.times = {KEYS[0]: SLOW}
    s.final.inside(s.default, s.compile)
    assert s.used == [True, True]
    second = s.database.best(TASKS[1].workload)
    assert second is not None
    assert second.trial.by == "re-check"


def test_winners_of_earlier_runs_are_judged_too() -> None:
    s = Session((0.9, 1.2))
    s.results.clear()
    s.final.inside(s.default, s.compile)
    assert s.used == [True, False]
    assert s.results == {}


def test_models_take_turns() -> None:
    clock, names = Clock(), list[str]()
    a = Fake(clock, {"k": 0.015}, names=names)
    b = Fake(clock, {"k": 0.0075, "other": 0.0}, frozenset("k"), names=names)
    times = kernel_times(a, b, rounds=2, clock=clock)
    # one run to warm up, then as many as begin within 20 ms
    assert names == (["default"] * 3 + ["tuned"] * 4) * 2
    assert list(times) == ["k"]
    assert [len(s) for s in times["k"]] == [2, 2]


def test_what_is_undone_is_on_record() -> None:
    s = Session((0.9, 0.8))
    exe = s.final.inside(s.default, s.compile)
    s.final.undo(exe, 1.04)
    assert s.used == [False, False]
    assert all(r.best == r.task.default for r in s.results.values())
    assert s.results[KEYS[0]].lost.startswith("whole model: a run took 1.040 of the default, with ")
    assert [r.trial.by for r in s.database.records[-2:]] == ["whole model"] * 2


def series(seconds: float) -> tuple[float, ...]:
    return tuple(seconds * n for n in NOISE)


def test_the_faster_model_is_taken() -> None:
    found = verdict(series(1.0), {A: series(0.9)})
    assert (found.layout, found.seconds, found.undone) == (A, series(0.9), ())


def test_the_slower_model_is_undone() -> None:
    found = verdict(series(1.0), {A: series(1.01)})
    assert (found.layout, found.seconds, found.undone) == (A, series(1.0), series(1.01))


def test_the_default_itself_is_not_undone() -> None:
    found = verdict(series(1.0), {A: series(1.0)})
    assert found.undone == ()


@pytest.mark.parametrize(
    ("own", "other", "layout"),
    [(0.9, 0.8, B), (0.9, 0.95, A), (1.1, 0.95, B), (1.1, 1.05, A), (0.9, 0.9, A)],
)
def test_another_layout_must_beat_the_default_one_at_its_best(
    own: float, other: float, layout: Config
) -> None:
    found = verdict(series(1.0), {A: series(own), B: series(other)})
    assert found.layout == layout
    assert found.seconds == series(min(1.0, own, other))
    assert bool(found.undone) == (layout == A and own > 1)
