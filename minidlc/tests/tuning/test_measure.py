"""Points compiled and run apart: right ones are timed, bad ones fail alone and with a reason."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

import minidlc as mc
from minidlc import te
from minidlc.expr.types import f32
from minidlc.loop.nodes import LoopFunction
from minidlc.schedules import Group
from minidlc.support.errors import CompileError, OptionError, ScheduleError, TuneError
from minidlc.target import host
from minidlc.tests.tuning.hostile import SIZE, WAYS, hostile, point
from minidlc.tests.tuning.kernels import product, task_of, tasks_of
from minidlc.tuning.measure import LocalMeasurer, build
from minidlc.tuning.measure.check import inputs
from minidlc.tuning.measure.run import reference
from minidlc.tuning.model import FEATURES, loop_features
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Fate, fates, why_none

pytestmark = [pytest.mark.ch06, pytest.mark.llvm]


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    with LocalMeasurer(1, deadline=20.0) as m:
        yield m


EXPECTED = {
    "refused": (Fate.REFUSED, "MDLC0601: no stage of that name"),
    "sleeps": (Fate.TIMEOUT, "the build worker: no answer within 3 s"),
    "dies": (Fate.CRASHED, "the build worker: it died of SIGABRT"),
    "assertion": (Fate.REFUSED, "a fault inside the compiler: AssertionError: unexpected"),
    "memory": (Fate.REFUSED, "out of memory"),
    "right": (Fate.OK, ""),
    "slow": (Fate.OK, ""),
    "endless": (Fate.TIMEOUT, "the run worker: no answer within 3 s"),
    "wrong": (Fate.WRONG, "y[0] is 1.25, expected 1.0; 100 of 100 elements differ"),
    "unwritten": (Fate.WRONG, "y[99] is nan, expected 0.125; 1 of 100 elements differ"),
    "right once": (Fate.WRONG, "right at first, but after some runs y[0] is "),
    "writes input": (Fate.WRONG, "changes its input x"),
    "writes behind": (Fate.WRONG, "writes beside y"),
    "writes before": (Fate.REFUSED, "MDLC0330: "),
    "reads far behind": (Fate.CRASHED, "the run worker: it died of SIGSEGV"),
    "writes far away": (Fate.CRASHED, "the run worker: it died of SIGSEGV"),
    "no code": (Fate.NOT_COMPILED, "MDLC0805: "),
}


def test_every_way_to_fail_is_told_apart_and_the_others_go_on() -> None:
    assert set(EXPECTED) == set(WAYS)
    order = sorted(WAYS)
    Random(0).shuffle(order)
    order += ["right"]
    with LocalMeasurer(2, deadline=3.0) as m:
        trials = m.measure(hostile(), [point(way) for way in order])
    assert [t.config for t in trials] == [point(way) for way in order]
    for trial, way in zip(trials, order, strict=True):
        fate, reason = EXPECTED[way]
        assert trial.fate is fate, trial
        assert trial.reason.startswith(reason)
        assert "\n" not in trial.reason
        assert bool(trial.seconds) == (fate is Fate.OK)


def test_two_builders_give_what_one_gives() -> None:
    points = [point(way) for way in ("wrong", "right", "refused", "no code", "slow", "assertion")]
    found = list[list[tuple[object, ...]]]()
    for jobs in (1, 2):
        with LocalMeasurer(jobs) as m:
            trials = m.measure(hostile(), points)
            assert len(m._builders) == jobs
        found.append([(t.config, t.fate, t.reason, t.figures.keys()) for t in trials])
    assert found[0] == found[1]


def test_features_come_from_the_build_workers_and_bad_points_have_none() -> None:
    ways = ("right", "dies", "slow", "refused", "memory", "assertion", "right")
    with LocalMeasurer(2, deadline=20.0) as m:
        rows = m.features(hostile(), [point(way) for way in ways])
        assert m.features(hostile(), []).shape == (0, len(FEATURES))
        assert len(m._builders) == 2
    sound = ~np.isnan(rows).any(axis=1)
    assert [way for way, is_sound in zip(ways, sound, strict=True) if is_sound] == [
        "right", "slow", "right"
    ]  # fmt: skip
    for n in (0, 2, 6):
        loops = hostile().lower(point(ways[n])).loops
        np.testing.assert_array_equal(rows[n], loop_features(loops, host(), 1))


def test_repeats_and_figures(measurer: LocalMeasurer) -> None:
    slow, right, again = measurer.measure(hostile(), [point(w) for w in ("slow", "right", "slow")])
    assert len(right.seconds) == 5
    assert len(slow.seconds) == 5  # nothing faster was known yet
    assert len(again.seconds) == 1  # far above the best: no repeats
    assert 0 < right.cost < again.cost / 10
    assert right.figures["code_bytes"] > 100
    assert right.figures["build_seconds"] > 0
    assert right.figures["workspace_bytes"] == 0
    assert right.figures["moved_bytes"] > 0


def test_many_points_of_a_product_with_a_packed_weight(measurer: LocalMeasurer) -> None:
    task = task_of(product(40, 48, 33, constant=True))
    points = [task.default, *task.space.distinct(12, Random(3))]
    trials = measurer.measure(task, points)
    assert {t.fate for t in trials} == {Fate.OK}, [t for t in trials if t.reason]


def test_large_plain_loops_are_vectors_and_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(product(33, 70, 19))
    types = {name: f32[dims] for name, dims in (("a", (33, 19)), ("b", (19, 70)))}
    found = list[np.ndarray]()
    for many in (1e9, 1.0):
        monkeypatch.setattr(build, "_MANY", many)
        made = build.build_plain(task)
        assert isinstance(made, build.Built)
        found.append(reference(made, inputs(types, 0))["relu"])
    assert found[0].tobytes() == found[1].tobytes()
    a, b = inputs(types, 0).values()
    assert (found[0] == np.maximum(a @ b, 0)).all()


def test_where_vectors_are_refused_the_plain_loops_are_plain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[int]()
    plain = build._plain_loops

    def refused(task: Task, lanes: int) -> LoopFunction:
        asked.append(lanes)
        if lanes:
            raise ScheduleError("no vectors here", code="MDLC0611")
        return plain(task, lanes)

    monkeypatch.setattr(build, "_MANY", 1.0)
    monkeypatch.setattr(build, "_plain_loops", refused)
    assert isinstance(build.build_plain(task_of(product())), build.Built)
    assert asked == [host().lanes(32), 0]


KERNELS = {
    "conv": "    y: f32[1, 6, 8, 8] = conv(x, w, pads=(1, 1, 1, 1))\n",
    "norm": "    y: f32[1, 5, 8, 8] = softmax(x, axis=1)\n",
    "roots": "    y: f32[1, 5, 8, 8] = log(x)\n",
    "f16": "    h: f16[1, 5, 8, 8] = cast(x, to=f16)\n    y: f16[1, 5, 8, 1] = sum(h, axes=(3,))\n",
    "bf16": "    y: bf16[1, 5, 8, 8] = cast(x, to=bf16)\n",
    "positions": "    y: f32[1, 9, 8, 8] = gather(x, i, axis=1)\n",
    "whole numbers": "    y: i64[9] = mul(i, i)\n",
    "compare": "    y: bool[1, 5, 8, 8] = greater(x, x)\n",
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_every_type(name: str, measurer: LocalMeasurer) -> None:
    result = KERNELS[name].rsplit("y: ", 1)[1].split(" =")[0]
    head = "def g(x: f32[1, 5, 8, 8], w: f32[6, 5, 3, 3], i: i64[9]):\n"
    graph = mc.parse(head + KERNELS[name] + "    return y\n")
    assert result in str(graph)
    (task,) = tasks_of(graph)[-1:]
    (trial,) = measurer.measure(task, [task.default])
    assert trial.fate is Fate.OK, trial


def test_the_same_kernel_under_other_names(measurer: LocalMeasurer) -> None:
    one, other = hostile(), named("input")
    assert one.workload.key == other.workload.key
    for task in (one, other, one):
        way = point("right") if task is one else task.default
        assert measurer.measure(task, [way])[0].fate is Fate.OK


def named(source: str) -> Task:
    x = te.placeholder(f32[SIZE], source)
    group = Group((te.compute((SIZE,), lambda i: x[i] + 1.0, "y"),))
    return Task(group, "injective", host(), 1)


def test_two_threads(measurer: LocalMeasurer) -> None:
    task = replace(task_of(product(64, 64, 64)), threads=2)
    (trial,) = measurer.measure(task, [task.default])
    assert trial.fate is Fate.OK


def test_cold_caches() -> None:
    with LocalMeasurer(1, flush=True) as m:
        cold = m.measure(hostile(), [point("right")])[0]
    assert cold.fate is Fate.OK
    assert len(cold.seconds) == 5


def test_finalists_take_turns_and_a_bad_one_has_no_times(measurer: LocalMeasurer) -> None:
    ways = ("right", "wrong", "slow", "reads far behind", "refused", "right")
    rounds = measurer.recheck(hostile(), [point(w) for w in ways], rounds=4)
    assert [len(r) for r in rounds] == [4, 0, 4, 0, 0, 4]
    assert max(rounds[0]) < min(rounds[2])
    again = measurer.recheck(hostile(), [point("slow"), point("right")], rounds=2)
    assert min(again[0]) > max(again[1])  # what the first call loaded is not taken for these


def test_a_finalist_that_hangs_holds_nobody_up() -> None:
    with LocalMeasurer(1, deadline=3.0) as m:
        rounds = m.recheck(hostile(), [point("right"), point("endless"), point("slow")], rounds=2)
    assert [len(r) for r in rounds] == [2, 0, 2]


def test_a_run_worker_that_is_killed_is_replaced(
    measurer: LocalMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (before,) = measurer.measure(hostile(), [point("right")])
    assert before.fate is Fate.OK
    runner = measurer._runner.child
    assert runner is not None
    ask = measurer._runner.ask

    def ask_and_kill(seconds: float, question: str, *args: object) -> object:
        if question == "trial":
            monkeypatch.undo()
            threading.Timer(0.3, runner.process.kill).start()
        return ask(seconds, question, *args)

    monkeypatch.setattr(measurer._runner, "ask", ask_and_kill)
    killed, after = measurer.measure(hostile(), [point("endless"), point("right")])
    assert (killed.fate, killed.reason) == (Fate.CRASHED, "the run worker: it died of SIGKILL")
    assert after.fate is Fate.OK
    second = measurer._runner.child
    assert second is not None
    assert second.process.pid != runner.process.pid
    second.process.kill()  # while it has nothing to do
    second.process.wait()
    for builder in measurer._builders:
        if builder.child is not None:
            builder.child.process.kill()
            builder.child.process.wait()
    assert measurer.measure(hostile(), [point("right")])[0].fate is Fate.OK


def test_nothing_is_written_to_the_kernel_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINIDLC_CACHE", str(tmp_path / "cache"))
    with LocalMeasurer(1) as m:
        m.measure(hostile(), [point("right")])
        assert m._folder is not None
        folder = m._folder.path
        assert folder is not None
        assert folder.exists()
    assert not list((tmp_path / "cache").rglob("*.*"))
    assert not folder.exists()


def test_when_all_fail_the_first_reason_is_shown(measurer: LocalMeasurer) -> None:
    trials = measurer.measure(hostile(), [point(w) for w in ("no code", "refused", "no code")])
    text = why_none(trials)
    assert fates(trials) == {"refused": 1, "not compiled": 2}
    assert text.startswith(
        "1 refused, 2 not compiled; the first, no code(): not compiled: MDLC0805"
    )


def test_without_plain_loops_no_point_is_taken_to_be_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with LocalMeasurer(1) as m:
        kernel = m._kernel(hostile())
        kernel.plain = replace(m.measure(hostile(), [point("refused")])[0])
        trials = m.measure(hostile(), [point("right")])
    assert trials[0].fate is Fate.REFUSED
    assert "nothing to check results against, as the plain loops failed: MDLC0601" in why_none(
        trials
    )


def test_a_replaced_part_of_the_compiler_is_called(measurer: LocalMeasurer) -> None:
    from minidlc.codegen.llvm import emit

    called = list[str]()

    def mine(fn, target, symbol):
        called.append(fn.name)
        return emit(fn, target, symbol)

    task = task_of(product(8, 16, 8))
    with mc.use(emit=mine):
        (trial,) = measurer.measure(task, [task.default])
    assert trial.fate is Fate.OK
    assert called == ["kernel", "kernel"]  # the plain loops, and the point


def test_a_task_of_another_machine_is_refused_before_anything_starts() -> None:
    here = host()
    others = {
        "riscv64-unknown-linux-gnu": replace(here, triple="riscv64-unknown-linux-gnu"),
        "a z80": replace(here, cpu="z80"),
        "uses amx-complex-2": replace(here, features="+amx-complex-2,-fma"),
    }
    with LocalMeasurer(1) as m:
        for text, target in others.items():
            task = task_of(product(), target=target)
            with pytest.raises(TuneError, match="MDLC1320") as caught:
                m.measure(task, [task.default])
            assert text in str(caught.value)
        assert not m._builders


def test_where_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/blender")
    with LocalMeasurer(1) as m, pytest.raises(TuneError, match="MDLC1322"):
        m.measure(hostile(), [point("right")])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"jobs": 0}, "MDLC1324"),
        ({"jobs": "2"}, "MDLC1001"),
        ({"repeats": 4}, "MDLC1324"),
        ({"seed": -1}, "MDLC1324"),
        ({"deadline": 0.0}, "MDLC1324"),
        ({"deadline": float("nan")}, "MDLC1324"),
    ],
)
def test_arguments_that_cannot_be(arguments: dict[str, object], code: str) -> None:
    with pytest.raises(CompileError, match=code):
        LocalMeasurer(**arguments)


def test_points_must_be_points(measurer: LocalMeasurer) -> None:
    with pytest.raises(OptionError, match="MDLC1001"):
        measurer.measure(hostile(), ["right"])
