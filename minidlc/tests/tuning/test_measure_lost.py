"""What goes wrong around a measurement does not decide about the points: lost and stopped workers,
threads that ask at once, a full disk; and references that would prove nothing.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from minidlc import te
from minidlc.expr.types import f32
from minidlc.loop.text import parse_function
from minidlc.schedules import Group
from minidlc.support.child import ChildLost
from minidlc.target import host
from minidlc.te.tensor import Tensor
from minidlc.tests.tuning.hostile import hostile, point
from minidlc.tests.tuning.kernels import product, task_of
from minidlc.tuning.measure import LocalMeasurer
from minidlc.tuning.measure.build import build
from minidlc.tuning.measure.run import Bench
from minidlc.tuning.measure.worker import Worker
from minidlc.tuning.space import Config
from minidlc.tuning.task import Candidate, Task
from minidlc.tuning.trial import Fate

pytestmark = [pytest.mark.ch06, pytest.mark.llvm]

Lose = Callable[[str, int], None]


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    with LocalMeasurer(1, deadline=20.0) as m:
        yield m


@pytest.fixture(autouse=True)
def at_first(measurer: LocalMeasurer) -> None:
    """No kernel is known, and no run worker is there, when a test begins."""
    measurer._runner.end()
    measurer._kernels.clear()
    if measurer._folder is not None:
        measurer._folder.close()
        measurer._folder = None


@pytest.fixture
def lose(measurer: LocalMeasurer, monkeypatch: pytest.MonkeyPatch) -> Lose:
    """Lose the run worker the next `count` times that it is asked something."""
    real = measurer._runner.ask
    left: dict[str, int] = {}

    def ask(seconds: float, question: str, *args: object) -> object:
        if left.get(question, 0):
            left[question] -= 1
            measurer._runner.end()
            raise ChildLost("it died of SIGKILL")
        return real(seconds, question, *args)

    def at(question: str, count: int) -> None:
        left[question] = count

    monkeypatch.setattr(measurer._runner, "ask", ask)
    return at


def test_a_worker_that_is_lost_once_while_it_prepares_is_tried_again(
    measurer: LocalMeasurer, lose: Lose
) -> None:
    lose("prepare", 1)
    assert measurer.measure(hostile(), [point("right")])[0].fate is Fate.OK
    measurer._runner.end()
    lose("prepare", 1)
    assert len(measurer.recheck(hostile(), [point("right")], 3)[0]) == 3


def test_a_kernel_whose_worker_is_lost_again_cannot_be_measured(
    measurer: LocalMeasurer, lose: Lose
) -> None:
    lose("prepare", 2)
    for _ in range(2):
        (trial,) = measurer.measure(hostile(), [point("right")])
        assert trial.fate is Fate.CRASHED
        assert trial.reason.endswith("the plain loops failed: the run worker: it died of SIGKILL")


@pytest.mark.parametrize("question", ["load", "turn", "forget"])
def test_a_finalist_is_not_dropped_for_one_lost_turn(
    question: str, measurer: LocalMeasurer, lose: Lose
) -> None:
    points = [point("right"), point("slow")]
    for _ in range(2):
        lose(question, 1)
        assert [len(r) for r in measurer.recheck(hostile(), points, 3)] == [3, 3]
    lose("turn", 2)  # twice in one round
    assert [len(r) for r in measurer.recheck(hostile(), points, 3)] == [0, 3]


def test_plain_loops_are_built_again_where_a_build_worker_is_lost(
    measurer: LocalMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, asked = measurer._made, list[object]()

    def lost_once(task: Task, configs):
        asked.append(configs)
        found = made(task, configs)
        lost = replace(measurer_trial, config=point("plain"))
        return [lost] if len(asked) == 1 else found

    measurer_trial = measurer.measure(hostile(), [point("dies")])[0]
    assert measurer_trial.fate is Fate.CRASHED
    measurer._kernels.clear()
    monkeypatch.setattr(measurer, "_made", lost_once)
    assert measurer.measure(hostile(), [point("right")])[0].fate is Fate.OK
    assert asked == [[None], [None], [point("right")]]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_stopped_worker_costs_one_deadline_and_no_point() -> None:
    points = [point("right"), point("slow")]
    with LocalMeasurer(1, deadline=5.0) as m:
        m.recheck(hostile(), points, 1)
        for worker in (m._runner, m._builders[0]):
            assert worker.child is not None
            os.kill(worker.child.process.pid, signal.SIGSTOP)
            start = time.monotonic()
            assert [len(r) for r in m.recheck(hostile(), points, 2)] == [2, 2]
            assert time.monotonic() - start < 8 * m.deadline  # not the 12 of plain loops


def test_threads_that_ask_one_measurer_get_their_own_trials(measurer: LocalMeasurer) -> None:
    tasks = [task_of(product()), task_of(product(17, 33, 9))]
    asked = [[t.default, *t.space.distinct(3, Random(0))] for t in tasks]
    found: dict[int, list[Config]] = {}
    rounds: dict[int, list[int]] = {}

    def ask(n: int) -> None:
        trials = measurer.measure(tasks[n], asked[n])
        assert {t.fate for t in trials} == {Fate.OK}
        found[n] = [t.config for t in trials]
        rounds[n] = [len(r) for r in measurer.recheck(tasks[n], asked[n], 2)]

    threads = [threading.Thread(target=ask, args=(n,)) for n in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == dict(enumerate(asked))
    assert rounds == {0: [2] * 4, 1: [2] * 4}


def test_a_full_disk_ends_nothing(
    measurer: LocalMeasurer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: str) -> str:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("tempfile.mkdtemp", full)
        assert measurer.measure(hostile(), [point("right")])[0].fate is Fate.OK
        (task,) = [task_of(product())]
        assert measurer.measure(task, [task.default])[0].fate is Fate.OK
    kernel = measurer._kernel(hostile())
    assert kernel.setting.folder is None
    worker = Worker()
    setting = replace(kernel.setting, folder=tmp_path / "removed meanwhile")
    assert worker.prepare(setting, kernel.plain) is None
    assert worker.bench is not None


@dataclass(frozen=True)
class Replaced(Task):
    """A kernel with the text of its loops changed."""

    old: str = ""
    new: str = ""

    def lower(self, config: Config) -> Candidate:
        """Loops as stated, with another text."""
        sch = te.create_schedule(self.group.outputs, checked=False)
        text = str(te.lower(sch, name="kernel"))
        assert self.old in text
        return Candidate(config, sch, parse_function(text.replace(self.old, self.new)), ())


def changed(y: Tensor, old: str, new: str) -> Replaced:
    return Replaced(Group((y,)), "injective", host(), 1, "y", old, new)


def masked(value: float) -> Tensor:
    x, m = te.placeholder(f32[7, 33], "x"), te.placeholder(f32[7, 33], "m")
    return te.compute((7, 33), lambda i, j: te.where(m[i, j] > 0.5, x[i, j], value), "y")


def test_wrong_beside_a_mask(measurer: LocalMeasurer) -> None:
    wrong = changed(masked(-3.4028235e38), "x[i, j],", "x[i, j] * 3.0 + 100.0,")
    (trial,) = measurer.measure(replace(wrong, old="y", new="y"), [Config("right")])
    assert trial.fate is Fate.OK
    (trial,) = measurer.measure(wrong, [Config("wrong")])
    assert trial.fate is Fate.WRONG


def test_positions_are_exact(measurer: LocalMeasurer) -> None:
    x = te.placeholder(f32[7, 33], "x")
    p = te.reduce_axis(33, "p")
    top = te.compute((7,), lambda i: te.max(x[i, p], p), "top")
    first = te.compute(
        (7,),
        lambda i: te.min(te.where(te.equal(x[i, p], top[i]), te.index(p), 33), p),
        "first",
    )
    wrong = changed(first, "index(p)", "index(p + 1)")
    (trial,) = measurer.measure(wrong, [Config("wrong")])
    assert trial.fate is Fate.WRONG


def test_elements_that_are_nan_must_be_written(measurer: LocalMeasurer) -> None:
    x = te.placeholder(f32[100], "x")
    partly = te.compute((100,), lambda i: te.log(te.where(te.index(i) < 50, x[i], -1.0)), "y")
    task = changed(partly, "serial(0, 100)", "serial(0, 50)")
    assert "serial(0, 100)" in str(te.lower(te.create_schedule((partly,)), name="kernel"))
    (trial,) = measurer.measure(replace(task, new=task.old), [Config("right")])
    assert trial.fate is Fate.OK, trial
    (trial,) = measurer.measure(task, [Config("half")])
    assert trial.fate is Fate.WRONG
    assert "expected nan; 50 of 100 elements differ" in trial.reason


def test_results_that_are_all_nan_prove_nothing(measurer: LocalMeasurer) -> None:
    x = te.placeholder(f32[100], "x")
    y = te.compute((100,), lambda i: te.log(x[i] * x[i] * -1.0 - 1.0), "y")
    (trial,) = measurer.measure(changed(y, "y", "y"), [Config("right")])
    assert trial.fate is Fate.REFUSED
    assert trial.reason.endswith("y is NaN everywhere, for all inputs that were tried")


def test_inputs_from_one_to_two_where_others_give_nan(measurer: LocalMeasurer) -> None:
    x = te.placeholder(f32[100], "x")
    y = te.compute((100,), lambda i: te.sqrt(x[i] - 1.0), "y")
    assert measurer.measure(changed(y, "y", "y"), [Config("right")])[0].fate is Fate.OK
    assert measurer.measure(changed(y, "1.0", "1.5"), [Config("wrong")])[0].fate is Fate.WRONG


def test_code_is_not_run_by_more_threads_than_its_workspace_is_for() -> None:
    built = build(hostile(), point("right"))
    values = {"x": np.zeros(100, np.float32)}
    bench = Bench(values, {"y": np.ones(100, np.float32)}, {"y": 0.0}, threads=2)
    with pytest.raises(ValueError, match="workspace for 1 threads is run by 2"):
        bench.load(built)
