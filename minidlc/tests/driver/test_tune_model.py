"""mc.tune: a model tuned, compiled from its records in a fresh process, killed and resumed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import minidlc as mc
from minidlc import tuned as tuned_module
from minidlc.driver import core_count
from minidlc.expr.types import Array
from minidlc.graph import save_text
from minidlc.support.errors import CompileError, TuneError
from minidlc.target import host
from minidlc.tests.tuning.fakes import FakeMeasurer, indifferent
from minidlc.tuned import Update
from minidlc.tuned_layouts import Compiling, Ready, layouts_of
from minidlc.tuning import model_final
from minidlc.tuning.database import Database
from minidlc.tuning.layouts import KIND, PLAIN, layout_of, layout_record, model_workload, variants
from minidlc.tuning.problem import Samples, Score
from minidlc.tuning.search import RandomSearch
from minidlc.tuning.space import Config, Space
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Trial

pytestmark = [pytest.mark.llvm, pytest.mark.ch06]

TWO_LAYERS = mc.parse("""\
def net(x: f32[16, 32], w: f32[32, 48], v: f32[48, 8]):
    h: f32[16, 48] = matmul(x, w)
    a: f32[16, 48] = relu(h)
    y: f32[16, 8] = matmul(a, v)
    return y
""")
QUICK = {"search": RandomSearch(), "cost_model": indifferent}


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Times of the model that nobody measured: `planted(inside, whole)` are the ratios of the tuned
    model to the default one, kernel by kernel and end to end; 0.5 to start with.
    """

    def plant(inside: float = 0.5, whole: float = 0.5) -> None:
        def kernels(default: Ready, tuned: Ready, **more: object) -> dict[str, object]:
            ran = set(default.kernels()) & set(tuned.kernels())
            noise = [1 + 0.01 * n for n in range(15)]
            before = tuple(2e-5 * x for x in noise)
            return {key: (before, tuple(inside * x for x in before)) for key in ran}

        def rounds(runs: Mapping[str, object], **more: object) -> dict[str, list[float]]:
            times = {name: 1.0 if name == "default" else whole for name in runs}
            return {name: [t * (1 + 0.01 * n) for n in range(15)] for name, t in times.items()}

        monkeypatch.setattr(model_final, "kernel_times", kernels)
        monkeypatch.setattr(tuned_module, "interleaved", rounds)

    plant()
    return plant


def other_way(task: Task, config: Config) -> float:
    """What the compiler would not take is twice as fast."""
    return 2e-5 if config == task.default else 1e-5


def arrays() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {i.name: rng.random(i.type.dims, np.float32) for i in TWO_LAYERS.inputs}


def python(text: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", text, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


FRESH = """
import sys, numpy as np, minidlc as mc
from minidlc.graph import load_text
exe = mc.compile(load_text(sys.argv[1]), threads=1, database=sys.argv[2])
with np.load(sys.argv[3]) as f: np.save(sys.argv[4], exe(dict(f))[0])
print(exe.report())
"""


def test_a_fresh_process_compiles_from_the_records_and_answers_the_same(
    tmp_path: Path, planted: Callable[..., None]
) -> None:
    path = tmp_path / "tune.jsonl"
    tuned = mc.tune(TWO_LAYERS, trials=4, database=path, measurer=FakeMeasurer(other_way), **QUICK)
    assert [r.is_better for r in tuned.results] == [True, True]
    assert tuned.trials == 8
    save_text(TWO_LAYERS, tmp_path / "net.dlc")
    np.savez(tmp_path / "x.npz", **arrays())
    files = [tmp_path / name for name in ("net.dlc", "tune.jsonl", "x.npz", "y.npy")]
    out, err = python(FRESH, *files).communicate(timeout=120)
    assert "tuning records: 2 tuned" in out, err
    for r in tuned.results:
        assert r.best.way in out
    wanted = mc.compile(TWO_LAYERS, threads=1)(arrays())[0]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), wanted, rtol=1e-5)


def test_the_table_says_what_happened(planted: Callable[..., None]) -> None:
    updates = list[Update]()
    tuned = mc.tune(
        TWO_LAYERS,
        trials=3,
        database=None,
        measurer=FakeMeasurer(other_way),
        progress=updates.append,
        **QUICK,
    )
    assert list(dict.fromkeys(u.phase for u in updates)) == [
        "compile",
        "search",
        "finals",
        "finals in the model",
        "whole model",
    ]
    assert sum(u.step is not None for u in updates) == 6
    text = str(tuned)
    assert "net: 2 kernels tuned, 6 trials" in text
    assert "0.50" in text
    assert "whole model: " in text
    assert tuned.ratio is not None
    assert tuned.interval is not None
    assert len(tuned.seconds) == len(tuned.default_seconds)


def test_a_winner_that_is_not_faster_inside_the_model_is_given_up(
    planted: Callable[..., None],
) -> None:
    planted(inside=1.02)
    database = Database()
    m = FakeMeasurer(other_way)
    tuned = mc.tune(TWO_LAYERS, trials=4, database=database, measurer=m, **QUICK)
    assert [(r.is_better, r.is_checked) for r in tuned.results] == [(False, True)] * 2
    assert all(database.best(r.task.workload) is None for r in tuned.results)
    alone, inside = [r for r in database.records if r.is_check][1:3]
    assert (alone.trial.by, inside.trial.by) == ("re-check", "in the model")
    assert "default stays; in the model: 1.02 of the default (95 % up to " in str(tuned)
    exe = mc.compile(TWO_LAYERS, threads=1, database=database)
    assert exe.report().tuning == "tuning records: 2 best by default"
    assert "fastest known in the model: 1.02 of the default" in str(exe.report())


def test_a_winner_that_is_faster_inside_the_model_has_its_times_there(
    planted: Callable[..., None],
) -> None:
    planted(inside=0.9, whole=0.97)
    database, m = Database(), FakeMeasurer(other_way)
    tuned = mc.tune(TWO_LAYERS, trials=4, database=database, measurer=m, **QUICK)
    assert [r.ratio for r in tuned.results] == pytest.approx([0.9, 0.9])
    for r in tuned.results:
        record = database.best(r.task.workload)
        assert record is not None
        assert (record.config, record.trial.by) == (r.best, "in the model")
    assert tuned.ratio == pytest.approx(0.97)
    assert tuned.undone == ()


def test_a_model_that_is_slower_with_all_winners_is_undone(planted: Callable[..., None]) -> None:
    planted(inside=0.9, whole=1.03)
    database, m = Database(), FakeMeasurer(other_way)
    tuned = mc.tune(TWO_LAYERS, trials=4, database=database, measurer=m, **QUICK)
    assert tuned.ratio == 1
    assert len(tuned.undone) == 15
    assert not any(r.is_better for r in tuned.results)
    assert "1.030 of it with the winners of the kernels: undone, the default stays" in str(tuned)
    assert "default stays; whole model: a run took 1.030 of the default, with " in str(tuned)
    exe = mc.compile(TWO_LAYERS, threads=1, database=database)
    assert exe.report().tuning == "tuning records: 2 best by default"


def test_the_finals_in_the_model_run_it() -> None:
    """Nothing planted: kernels of the two models are timed in turns."""
    how = Compiling(TWO_LAYERS, None, 1, "default", None)
    before, after = how(), how()
    inputs, points = list(arrays().values()), {PLAIN: mc.Pipeline.default(3, host())}
    (layout,) = layouts_of(how, before, points, inputs, host(), 0.0).values()
    pair = (Ready(layout, exe, inputs) for exe in (before, after))
    times = model_final.kernel_times(*pair, rounds=4)
    assert list(times) == [t.key for t in layout.found.tasks]
    for series in times.values():
        assert [len(s) for s in series] == [4, 4]
        assert 0 < min(map(min, series)) <= max(map(max, series)) < 0.1


@pytest.mark.parametrize("part", ["schedule.matmul", "pass.cse"])
def test_records_are_of_the_compiler_as_it_is(part: str) -> None:
    def mine(*args: object) -> object:
        raise AssertionError("nothing is compiled")

    with mc.use(**{part: mine}):
        for database in (Database(), "tune.jsonl"):
            with pytest.raises(TuneError, match=f"MDLC1354.*{part} is replaced"):
                mc.tune(TWO_LAYERS, database=database)


def test_a_replaced_part_can_be_measured_without_records() -> None:
    calls = list[str]()

    def mine(graph: mc.Graph) -> mc.Graph:
        calls.append(graph.name)
        return graph

    with mc.use(**{"pass.cse": mine}):
        m = FakeMeasurer(other_way)
        tuned = mc.tune(TWO_LAYERS, trials=2, database=None, measurer=m, **QUICK)
    assert calls
    assert tuned.overrides["pass.cse"] == len(calls)


def test_what_was_tuned_is_not_measured_again(tmp_path: Path) -> None:
    path, first, second = tmp_path / "tune.jsonl", FakeMeasurer(), FakeMeasurer()
    mc.tune(TWO_LAYERS, trials=4, database=path, measurer=first, **QUICK)
    again = mc.tune(TWO_LAYERS, trials=4, database=path, measurer=second, **QUICK)
    assert len(first.asked) > 0
    assert second.asked == []
    assert again.trials == 8


KILLED = """
import sys, minidlc as mc
from minidlc.graph import load_text
from minidlc.tuning.search import RandomSearch
def hear(u):
    if u.step: print(u.step.trial.config, flush=True)
if __name__ == "__main__":
    found = mc.tune(load_text(sys.argv[1]), trials=int(sys.argv[3]), database=sys.argv[2],
        search=RandomSearch(), cost_model=lambda known, asked: asked[:, 0], progress=hear)
    print(found)
"""


def test_kill_9_loses_at_most_the_running_trial_and_the_next_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "tune.jsonl"
    save_text(TWO_LAYERS, tmp_path / "net.dlc")
    process = python(KILLED, tmp_path / "net.dlc", path, 500)
    assert process.stdout is not None
    seen = [process.stdout.readline() for _ in range(5)]
    process.kill()
    process.communicate(timeout=60)
    kept = Database(path)
    assert [str(r.config) for r in kept.records][:5] == [line.strip() for line in seen]
    assert len(kept.refused) <= 1
    before = [r.id for r in kept.records]
    out, err = python(KILLED, tmp_path / "net.dlc", path, 8).communicate(timeout=300)
    assert "kernels tuned" in out, err
    after = Database(path)
    assert [r.id for r in after.records][: len(before)] == before
    tried = [(r.workload.key, r.config) for r in after.records if not r.is_check]
    assert len(set(tried)) == len(tried)
    checks = [r for r in after.records if r.is_check and r.trial.by == "re-check"]
    assert len({r.workload.key for r in checks}) == len(checks) == 2


def test_an_interrupt_ends_the_search_and_keeps_what_is_known(tmp_path: Path) -> None:
    def interrupted(task: Task, config: Config) -> float:
        if len(m.asked) > 6:
            raise KeyboardInterrupt
        return other_way(task, config)

    m = FakeMeasurer(interrupted)
    tuned = mc.tune(TWO_LAYERS, trials=64, database=tmp_path / "t.jsonl", measurer=m, **QUICK)
    assert tuned.stopped
    assert tuned.seconds == ()
    assert not any(r.is_better for r in tuned.results)
    assert "stopped early" in str(tuned)
    assert "not checked; the search saw 0.50" in str(tuned)
    assert len(Database(tmp_path / "t.jsonl")) >= 6


def test_a_reader_s_search_and_model_act_and_are_counted() -> None:
    def mine(
        space: Space, trials: Sequence[Trial], score: Score | None, count: int, rng: Random
    ) -> list[Config]:
        if score is not None:
            score(space.distinct(2, rng))
        return space.distinct(count, rng, [t.config for t in trials])

    def model(known: Sequence[Samples], asked: Array) -> Array:
        return asked[:, 0]

    with mc.use(search=mine, cost_model=model):
        tuned = mc.tune(TWO_LAYERS, trials=12, database=None, measurer=FakeMeasurer())
    assert tuned.overrides["search"] > 0
    assert tuned.overrides["cost_model"] > 0
    assert "override search: " in str(tuned)
    assert any(t.by == "override" for r in tuned.results for t in r.trials)


def convs() -> mc.Graph:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((64, 64, 3, 3)).astype(np.float32) for _ in range(2)]

    def net(x: mc.Graph) -> mc.Graph:
        a = mc.relu(mc.conv(x, weights[0], pads=(1, 1, 1, 1)))
        return mc.conv(a, weights[1], pads=(1, 1, 1, 1))

    return mc.trace(net, mc.f32[1, 64, 14, 14])


def test_compile_takes_the_layout_on_record_unless_it_is_told_the_passes() -> None:
    graph, machine = convs(), host()
    default = layout_of(mc.Pipeline.default(3, machine))
    database = Database()
    work = model_workload(graph, machine, 1)
    slow, fast = (2e-3,) * 15, (1e-3,) * 15
    database.append(layout_record(work, "net", (PLAIN, fast), (default, slow)))
    blocked = mc.compile(graph, threads=1)
    plain = mc.compile(graph, threads=1, database=database)
    kinds = [{k.lowered.kind for k in exe.kernels} for exe in (blocked, plain)]
    assert "conv_nchwc" in kinds[0]
    assert "conv_nchwc" not in kinds[1]
    assert "layout of images: plain(), record " in str(plain.report())
    assert "layout of images" not in str(blocked.report())
    told = mc.compile(graph, threads=1, database=database, pipeline=mc.Pipeline.default(3, machine))
    assert {k.lowered.kind for k in told.kernels} == kinds[0]
    x = np.random.default_rng(1).random((1, 64, 14, 14), np.float32)
    np.testing.assert_allclose(plain(x)[0], blocked(x)[0], rtol=1e-3, atol=1e-4)


def test_layouts_are_compared_and_the_choice_is_recorded() -> None:
    database = Database()
    tuned = mc.tune(convs(), trials=2, database=database, measurer=FakeMeasurer(), **QUICK)
    assert len(tuned.layouts) > 1
    assert PLAIN in tuned.layouts
    (record,) = [r for r in database.records if r.workload.kind == KIND]
    assert record.config == tuned.layout
    assert record.default == layout_of(mc.Pipeline.default(3, host()))
    assert "layouts of images" in str(tuned)


def test_a_pipeline_without_a_layout_pass_has_one_variant() -> None:
    passes = mc.Pipeline.default(3, host()).without("layout")
    assert variants(passes, host()) == {PLAIN: passes}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"trials": 0}, "MDLC1350"),
        ({"trials": "64"}, "MDLC1001"),
        ({"minutes": 0}, "MDLC1350"),
        ({"minutes": -1.0}, "MDLC1350"),
        ({"minutes": float("nan")}, "MDLC1350"),
        ({"minutes": float("inf")}, "MDLC1350"),
        ({"minutes": "5"}, "MDLC1001"),
        ({"seed": "0"}, "MDLC1001"),
        ({"threads": 0}, "MDLC1006"),
        ({"precision": "exact"}, "MDLC1006"),
        ({"database": 3}, "MDLC1001"),
        ({"search": 3}, "MDLC1001"),
        ({"search": lambda: []}, "MDLC1001"),
        ({"search": RandomSearch}, "MDLC1001"),
        ({"cost_model": lambda known: known}, "MDLC1001"),
        ({"progress": lambda: None}, "MDLC1001"),
        ({"target": "avx2"}, "MDLC1001"),
        ({"threads": "2"}, "MDLC1006"),
        ({"cost_model": "ridge"}, "MDLC1001"),
        ({"measurer": 3}, "MDLC1001"),
        ({"progress": 3}, "MDLC1001"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, object], code: str) -> None:
    more = {"database": None, "measurer": FakeMeasurer()} | options
    with pytest.raises(CompileError, match=code):
        mc.tune(TWO_LAYERS, **more)  # pyright: ignore[reportArgumentType]


def test_open_sizes_are_refused() -> None:
    graph = mc.parse('def f(x: f32["N", 8]):\n    y = relu(x)\n    return y\n')
    with pytest.raises(TuneError, match="MDLC1353"):
        mc.tune(graph, database=None)


def test_another_machine_s_code_is_not_run_here() -> None:
    far = replace(host(), triple="riscv64-unknown-linux-gnu")
    with pytest.raises(TuneError, match="MDLC1320"):
        mc.tune(TWO_LAYERS, database=None, target=far)


def test_a_database_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    with pytest.raises(CompileError, match="MDLC1340"):
        mc.tune(TWO_LAYERS, database=tmp_path)


def test_a_model_with_nothing_to_tune_says_so() -> None:
    graph = mc.parse("def f(x: f32[8]):\n    y = reshape(x, shape=(2, 4))\n    return y\n")
    tuned = mc.tune(graph, database=None, measurer=FakeMeasurer())
    assert tuned.results == ()
    assert "0 kernels tuned" in str(tuned)


def branches() -> onnx.ModelProto:
    """y = x @ w if p else softmax(x)."""
    x, y, p = (
        helper.make_tensor_value_info(name, kind, dims)
        for name, kind, dims in (("x", 1, [32, 32]), ("y", 1, [32, 32]), ("p", 9, []))
    )
    bodies = [
        helper.make_graph([node], "body", [], [helper.make_tensor_value_info("t", 1, [32, 32])])
        for node in (
            helper.make_node("MatMul", ["x", "w"], ["t"]),
            helper.make_node("Softmax", ["x"], ["t"]),
        )
    ]
    choice = helper.make_node("If", ["p"], ["y"], then_branch=bodies[0], else_branch=bodies[1])
    w = numpy_helper.from_array(np.eye(32, dtype=np.float32), "w")
    graph = helper.make_graph([choice], "net", [x, p], [y], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_what_the_profile_does_not_call_is_left_out(planted: Callable[..., None]) -> None:
    """The inputs of a profile take the other branch."""
    m = FakeMeasurer(other_way)
    tuned = mc.tune(branches(), trials=2, database=None, measurer=m, **QUICK)
    assert [r.task.kind for r in tuned.results] == ["softmax"]
    assert set(tuned.left_out.values()) == {"it was not called when the model was profiled"}


def test_a_model_is_never_taken_for_a_database(tmp_path: Path) -> None:
    path = tmp_path / "net.dlc"
    save_text(TWO_LAYERS, path)
    before = path.read_bytes()
    heard = list[Update]()
    with pytest.raises(TuneError, match=r"MDLC1349.*net\.dlc"):
        mc.tune(TWO_LAYERS, trials=1, database=path, progress=heard.append)
    assert path.read_bytes() == before
    assert heard == []  # nothing was compiled


def test_none_means_all_cores(planted: Callable[..., None]) -> None:
    m = FakeMeasurer(other_way)
    tuned = mc.tune(TWO_LAYERS, trials=1, threads=None, database=None, measurer=m, **QUICK)
    assert tuned.threads == core_count(None)


def test_why_there_are_fewer_trials_is_said(planted: Callable[..., None]) -> None:
    m = FakeMeasurer(other_way)
    none = mc.tune(TWO_LAYERS, minutes=0.01, database=None, measurer=m, **QUICK)
    assert none.results == ()
    assert set(none.left_out.values()) == {"there was too little time"}
    assert "that left no time for trials; minutes=" in str(none)


def test_no_time_after_compiling_is_an_error() -> None:
    with pytest.raises(TuneError, match=r"MDLC1356.*compiling the model alone takes"):
        mc.tune(TWO_LAYERS, minutes=1e-9, database=None, measurer=FakeMeasurer())


def test_all_trials_failed() -> None:
    def broken(task: Task, config: Config) -> float:
        return float("inf")

    with pytest.raises(TuneError, match="MDLC1351") as e:
        mc.tune(TWO_LAYERS, trials=2, database=None, measurer=FakeMeasurer(broken), **QUICK)
    assert "SIGSEGV" in e.value.message


def test_equal_kernels_are_one_task_and_what_cannot_be_chosen_is_left_out(
    planted: Callable[..., None],
) -> None:
    graph = mc.parse("""\
def net(x: f32[16, 16], w: f32[16, 16], v: f32[16, 16]):
    a: f32[16, 16] = matmul(x, w)
    b: f32[16, 16] = relu(a)
    c: f32[16, 16] = matmul(b, v)
    d: f32[16, 16] = relu(c)
    e: f32[16, 16] = cumsum(d, axis=0)
    return e
""")
    tuned = mc.tune(graph, trials=2, database=None, measurer=FakeMeasurer(other_way), **QUICK)
    (result,) = [r for r in tuned.results if r.task.kind == "matmul"]
    assert result.count == 2
    assert len(tuned.names[result.task.workload.key]) == 2
    assert result.gain == pytest.approx(2 * 1e-5, rel=0.1)
    assert tuned.left_out == {"e": "its op writes the loops itself"}
    assert "not tuned, its op writes the loops itself: 1 (e)" in str(tuned)
