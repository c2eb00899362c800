"""compile(database=…): which records decide, what the report says, when the caches are missed."""

from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

import minidlc as mc
from minidlc import driver
from minidlc.codegen.model_cache import ModelCache
from minidlc.graph import Node
from minidlc.lower.express import Expressed, express_node
from minidlc.lower.kernels import NotTaken
from minidlc.support.errors import CompileError, OptionError, TuneError
from minidlc.target import Target, host
from minidlc.tests.driver.conftest import case
from minidlc.tests.frontend.helpers import model, node
from minidlc.tests.tuning.kernels import tasks_of, won
from minidlc.train import TrainStep
from minidlc.tuning.database import Database
from minidlc.tuning.layouts import PLAIN, layout_record, model_workload
from minidlc.tuning.lookup import Snapshot
from minidlc.tuning.records import Record, canonical_task
from minidlc.tuning.space import Config
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Fate, Trial

pytestmark = [pytest.mark.llvm, pytest.mark.ch06]
TEXT = """
def net(x: f32[24, 16], w: f32[16, 32], v: f32[32, 8]):
    a: f32[24, 32] = matmul(x, w)
    r: f32[24, 32] = relu(a)
    b: f32[24, 8] = matmul(r, v)
    s: f32[24, 8] = softmax(b, axis=1)
    return s
"""


def net() -> mc.Graph:
    return mc.parse(TEXT)


def tasks() -> list[Task]:
    return tasks_of(net())


def other_than_default(task: Task) -> Trial:
    """A point whose schedule is another than the default's, said to be fast."""
    own = canonical_task(task.workload)
    usual = own.schedule(own.default).trace
    points = (c for c in own.space if c.way == own.default.way)
    found = next(c for c in points if own.schedule(c).trace != usual)
    return Trial(found, Fate.OK, (4.12e-4,))


@cache
def first() -> tuple[Task, Record]:
    """The first kernel, and a record of it."""
    task = tasks()[0]
    return task, won(task, other_than_default(task))


def holding(*records: Record) -> Database:
    database = Database()
    for record in records:
        database.append(record)
    return database


def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.random(shape, np.float32) / 4 for shape in ((24, 16), (16, 32), (32, 8))]


def test_kernels_take_the_best_records() -> None:
    found = tasks()
    records = [won(task, other_than_default(task)) for task in found[:2]]
    plain, tuned = (mc.compile(net(), threads=1, database=d) for d in (None, holding(*records)))
    assert [k.lowered.source for k in tuned.kernels] == [*map(str, records), ""]
    for kernel, usual, changed in zip(tuned.kernels, plain.kernels, (1, 1, 0), strict=True):
        assert (kernel.trace != usual.trace) == changed
    inputs = arrays()
    np.testing.assert_allclose(tuned(*inputs)[0], mc.interpret(net(), inputs)[0], rtol=1e-5)
    lines = str(tuned.report()).splitlines()
    assert lines[1].endswith(
        f"schedule matmul (gemm), record {records[0].id}, 412 µs, 0.50 of the default"
    )
    assert lines[-1] == "tuning records: 2 tuned, 1 not tuned"
    assert "tuning" not in str(plain.report())
    assert str(pickle.loads(pickle.dumps(tuned)).report()) == str(tuned.report())


def test_a_constant_weight_is_packed_as_the_record_says() -> None:
    w = np.linspace(-1, 1, 64 * 96, dtype=np.float32).reshape(64, 96)
    given = model(
        [node("MatMul", "x w", "y")], {"x": (TensorProto.FLOAT, [48, 64])}, weights={"w": w}
    )
    task = tasks_of(mc.load_onnx(given))[0]
    packed = next(c for c in task.space if c != task.default and task.lower(c).init)
    record = won(task, Trial(packed, Fate.OK, (1e-4,)))
    exe = mc.compile(given, threads=1, database=holding(record))
    assert exe.kernels[0].lowered.source == str(record)
    x = np.linspace(-1, 1, 48 * 64, dtype=np.float32).reshape(48, 64)
    np.testing.assert_allclose(exe(x)[0], x @ w, rtol=1e-4, atol=1e-4)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    for level in (2, 3):
        with pytest.raises(TuneError, match=r"MDLC1341.*tune\.jsnol"):
            mc.compile(net(), database=tmp_path / "tune.jsnol", opt_level=level)
    with pytest.raises(OptionError, match=r"MDLC1001.*database is a int"):
        mc.compile(net(), database=5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TuneError, match="MDLC1340"):
        mc.compile(net(), database=str(tmp_path))


def test_an_empty_file_tunes_nothing(tmp_path: Path) -> None:
    (tmp_path / "tune.jsonl").touch()
    report = mc.compile(net(), threads=1, database=tmp_path / "tune.jsonl").report()
    assert report.tuning == "tuning records: 3 not tuned"


def test_below_level_3_records_are_not_used() -> None:
    record = won(tasks()[0], other_than_default(tasks()[0]))
    exe = mc.compile(net(), threads=1, opt_level=2, database=holding(record))
    said = "the database is not used: records are taken with opt_level=3 only"
    assert exe.report().tuning.splitlines() == ["tuning records: 3 not tuned", said]
    assert [k.lowered.implementation for k in exe.kernels] == ["plain"] * 3


def refusal(change: Callable[[Task, Record], Record]) -> str:
    """What the report says of the first kernel, when its record was changed."""
    task = tasks()[0]
    record = change(task, won(task, other_than_default(task)))
    exe = mc.compile(net(), threads=1, database=holding(record))
    usual = mc.compile(net(), threads=1)
    assert [k.trace for k in exe.kernels] == [k.trace for k in usual.kernels]
    line = str(exe.kernels[0])
    counts = exe.report().tuning.splitlines()[0]
    assert counts == "tuning records: 1 with a record that is refused, 2 not tuned"
    assert record.id in line
    return line.split("refused: ")[1]


def test_records_of_other_thread_counts_only_are_said_in_one_sentence() -> None:
    work = model_workload(net(), host(), 2)
    layout = layout_record(work, "net", (PLAIN, (1e-3,)), (PLAIN, (2e-3,)))
    two = of_machine(tasks()[0], host(), threads=2)
    for database in (holding(layout), holding(two), holding(two, layout)):
        tuning = mc.compile(net(), threads=1, database=database).report().tuning
        assert tuning.splitlines()[1:] == [
            "no record is taken: they are for threads=2, and this is compiled for threads=1; "
            "compile with threads=2, or tune with threads=1"
        ]
    record = won(tasks()[0], other_than_default(tasks()[0]))
    both = mc.compile(net(), threads=1, database=holding(two, record))
    assert both.report().tuning == "tuning records: 1 tuned, 2 not tuned"


def test_trials_without_a_final_are_counted_apart() -> None:
    first, second = tasks()[:2]
    trial = Record.of(first, Trial(first.default, Fate.OK, (1e-4,)))
    lost = won(second, Trial(second.default, Fate.OK, (1e-4,)))
    tuning = mc.compile(net(), threads=1, database=holding(trial, lost)).report().tuning
    assert tuning == "tuning records: 1 with trials, no final, 1 best by default, 1 not tuned"


def of_machine(task: Task, target: Target, threads: int = 1) -> Record:
    other = replace(task, target=target, threads=threads)
    return Record.of(other, Trial(other.default, Fate.OK, (1e-4,)))


REFUSED: dict[str, Callable[[Task, Record], Record]] = {
    "is for 2 threads, not 1 [MDLC1345]": lambda t, r: of_machine(t, t.target, 2),
    "is of precision strict, not default [MDLC1345]": lambda t, r: of_machine(
        t, replace(t.target, precision="strict")
    ),
    "is of cpu i486, not ": lambda t, r: of_machine(t, replace(t.target, cpu="i486")),
    "is of a machine with other features: +avx1024 [MDLC1345]": lambda t, r: of_machine(
        t, replace(t.target, features=t.target.features + ",+avx1024")
    ),
    "is of minidlc 0.0.9, here is ": lambda t, r: replace(r, kit="0.0.9"),
    "is of LLVM 14.0.6, here is ": lambda t, r: replace(r, llvm="14.0.6"),
    "is no longer the one that was measured [MDLC1346]": lambda t, r: replace(
        r, steps=Record.of(t, Trial(t.default, Fate.OK, (1.0,))).steps
    ),
    "no way 'gemn' to compute a matmul kernel [MDLC1303]": lambda t, r: replace(
        r, trial=replace(r.trial, config=replace(r.config, way="gemn"))
    ),
    "is no point of the space [MDLC1302]": lambda t, r: replace(
        r, trial=replace(r.trial, config=replace(r.config, knobs=(("no", 1),)))
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_record_that_does_not_fit_is_refused_with_its_reason(reason: str) -> None:
    assert reason in refusal(REFUSED[reason])


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(["split", "vectorize", "relu", "j", "knobs", "steps", "knob", "cut"])


@given(JSON | st.lists(st.lists(JSON | NAMES, max_size=5), max_size=3))
def test_any_trace_is_refused_or_none(trace: object) -> None:
    """What somebody wrote in place of the trace, with a right id, reaches no schedule."""
    task, record = first()
    again = Record.parse(replace(record, steps=json.dumps(trace)).line)
    known = Snapshot.of(holding(again), host(), 1)(Expressed(task.group, task.kind, (), ()))
    assert isinstance(known, NotTaken)
    assert known.code


def test_a_re_check_without_gain_means_the_default() -> None:
    task = tasks()[0]
    trial = replace(other_than_default(task), seconds=(2e-4,))
    pair = {"default": task.default, "default_seconds": (1e-4,)}
    exe = mc.compile(net(), threads=1, database=holding(Record.of(task, trial, **pair)))
    assert str(exe.kernels[0]).endswith(", the default is the fastest known")
    assert exe.report().tuning == "tuning records: 1 best by default, 2 not tuned"


def test_trials_without_a_final_are_not_compiled_in() -> None:
    task = tasks()[0]
    trials = [Record.of(task, Trial(c, Fate.OK, (1e-6,))) for c in list(task.space)[:3]]
    exe = mc.compile(net(), threads=1, database=holding(*trials))
    assert exe.kernels[0].lowered.source == ""
    assert str(exe.kernels[0]).endswith(", 3 trials, no final yet: run minidlc tune again")
    one = mc.compile(net(), threads=1, database=holding(trials[0]))
    assert str(one.kernels[0]).endswith(", 1 trial, no final yet: run minidlc tune again")


def test_a_winner_that_loses_in_the_model_later_is_out_and_the_report_says_where() -> None:
    task = tasks()[0]
    winner = won(task, other_than_default(task))
    same = (1e-4, 1.1e-4)
    text = f"1.04 of the default with {winner.config}"
    back = Trial(task.default, Fate.OK, same, text, by="in the model")
    lost = Record.of(task, back, default=task.default, default_seconds=same)
    exe = mc.compile(net(), threads=1, database=holding(winner, lost))
    said = f", the default is the fastest known in the model: {text}"
    assert str(exe.kernels[0]).endswith(said)
    again = mc.compile(net(), threads=1, database=holding(winner, lost, winner))
    assert again.kernels[0].lowered.source == str(winner)


def test_a_record_whose_trials_all_failed_is_not_used() -> None:
    task = tasks()[0]
    failed = Record.of(task, Trial(task.default, Fate.TIMEOUT, reason="no answer within 2 s"))
    exe = mc.compile(net(), threads=1, database=holding(failed))
    assert str(exe.kernels[0]).endswith(", all 1 trials on record failed")


def test_lines_that_cannot_be_read_are_never_in_the_way(tmp_path: Path) -> None:
    path, task = tmp_path / "tune.jsonl", tasks()[0]
    Database(path).append(won(task, other_than_default(task)))
    with path.open("ab") as file:
        file.write(b"\xff\n{}\n{")
    assert (
        mc.compile(net(), threads=1, database=path)
        .report()
        .tuning.startswith("tuning records: 1 tuned")
    )


# The cache on disk


def small(rows: int | str = 24) -> onnx.ModelProto:
    """relu(x @ w) @ v."""
    w = np.linspace(-1, 1, 16 * 32, dtype=np.float32).reshape(16, 32)
    nodes = [node("MatMul", "x w", "t"), node("Relu", "t", "y")]
    return model(nodes, {"x": (TensorProto.FLOAT, [rows, 16])}, weights={"w": w})


class Compilations:
    """How often a model was compiled."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, real = 0, driver.compile_levels

        def counted(*args):
            self.count += 1
            return real(*args)

        monkeypatch.setattr(driver, "compile_levels", counted)
        monkeypatch.setattr(driver, "model_cache", ModelCache(folder))


@pytest.fixture
def done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compilations:
    return Compilations(tmp_path / "models", monkeypatch)


def test_other_winners_are_another_model(done: Compilations, tmp_path: Path) -> None:
    path = tmp_path / "tune.jsonl"
    path.touch()
    task = tasks_of(mc.load_onnx(small()))[0]
    fast = other_than_default(task)

    def compiled() -> mc.Executable:
        return mc.compile(small(), threads=1, database=path)

    mc.compile(small(), threads=1)
    compiled()
    assert done.count == 1  # a database without a record for this machine decides nothing
    Database(path).append(Record.of(task, fast))
    compiled()
    assert done.count == 1  # a trial decides nothing
    Database(path).append(won(task, fast))
    first = compiled()
    assert done.count == 2
    again = compiled()
    assert done.count == 2
    x = np.ones((24, 16), np.float32)
    np.testing.assert_array_equal(again(x)[0], first(x)[0])
    source = first.kernels[0].lowered.source
    assert again.kernels[0].lowered.source == source != ""
    lost = replace(won(task, fast), default_seconds=(1e-4,))
    Database(path).append(lost)
    compiled()
    assert done.count == 3  # it lost a later final
    path.write_bytes(b"")
    compiled()
    mc.compile(small(), threads=1)
    assert done.count == 3  # the levels of `again` were one; the untuned model was there


def test_later_sizes_use_the_records_of_the_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "tune.jsonl"
    path.touch()
    task = tasks_of(mc.load_onnx(small()))[0]
    before = mc.compile(small("N"), threads=1, database=path)
    record = won(task, other_than_default(task))
    Database(path).append(record)
    after = mc.compile(small("N"), threads=1, database=path)
    x = np.ones((24, 16), np.float32)
    np.testing.assert_allclose(before(x)[0], after(x)[0], rtol=1e-5)
    assert before.kernels[0].lowered.source == ""
    assert after.kernels[0].lowered.source == str(record)
    after(x[:8])
    assert after.kernels[0].lowered.source == ""  # no record of that size
    assert after.report().tuning == "tuning records: 1 not tuned"


def test_functions_take_a_database_too() -> None:
    graph = mc.trace(lambda a, b: mc.relu(a @ b), mc.f32[24, 16], mc.f32[16, 32])
    task = tasks_of(graph)[0]
    record = won(task, other_than_default(task))
    a, b, _ = arrays()
    fn = mc.jit(lambda a, b: mc.relu(a @ b), threads=1, database=holding(record))
    np.testing.assert_allclose(fn(a, b), np.maximum(a @ b, 0), rtol=1e-5)
    (made,) = (s.executable for s in fn.specializations)
    assert made.kernels[0].lowered.source == str(record)


def test_training_steps_take_a_database_too() -> None:
    def loss(x, y, w):
        return mc.mean((mc.relu(x @ w) - y) ** 2.0)

    graph = mc.trace(loss, mc.f32[24, 16], mc.f32[24, 32], mc.f32[16, 32])
    x, w, _ = arrays()
    y = np.zeros((24, 32), np.float32)

    def step(**options: Any) -> TrainStep:
        return mc.compile_train_step(graph, {"w": w}, mc.train.sgd(0.1), threads=1, **options)

    plain = step()
    database = Database()
    for kernel in plain.executable.kernels:
        origin, group = kernel.origin, kernel.lowered.group
        if isinstance(origin, Node) and group is not None and kernel.lowered.kind == "matmul":
            e = express_node(origin)
            task = Task(e.group, e.kind, host(), 1, kernel.name)
            database.append(won(task, other_than_default(task)))
    assert len(database) > 0
    tuned = step(database=database)
    sources = [k.lowered.source for k in tuned.executable.kernels]
    assert [s for s in sources if s] == [str(r) for r in database.records]
    for _ in range(3):
        np.testing.assert_allclose(tuned(x, y)[0], plain(x, y)[0], rtol=1e-5)
    np.testing.assert_allclose(tuned.params["w"], plain.params["w"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["mnist_cntk", "mlp_b64", "lenet"])
def test_any_points_give_the_right_outputs(name: str) -> None:
    """Records of random points for every kernel of a model: each is taken, the answer is right."""
    asked, rng, database = case(name), Random(name), Database()
    graph = mc.load_onnx(asked.model)
    for task in tasks_of(graph):
        database.append(won(task, Trial(_sound_point(task, rng), Fate.OK, (1e-3,))))
    exe = mc.compile(graph, threads=1, database=database)
    assert all(k.lowered.source for k in exe.kernels)
    asked.check(exe(**asked.feeds))


def _sound_point(task: Task, rng: Random) -> Config:
    """A random one that is not the default and can be lowered: some tiles are too large."""
    for _ in range(50):
        config = task.space.random(rng)
        if config == task.default:
            continue
        with contextlib.suppress(CompileError):
            task.lower(config)
            return config
    raise AssertionError(f"{task.name}: no point of 50 can be lowered")


def test_a_fingerprint_says_which_records_win() -> None:
    records = [won(task, other_than_default(task)) for task in tasks()[:2]]
    known = Snapshot.of(holding(*records), host(), 1)
    assert known.fingerprint == Snapshot.of(holding(*reversed(records)), host(), 1).fingerprint
    assert known.fingerprint != Snapshot.of(holding(records[0]), host(), 1).fingerprint
    assert Snapshot.of(holding(*records), host(), 2).fingerprint == ""
    assert Snapshot.of(Database(), host(), 1).fingerprint == ""


def test_a_file_of_something_else_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("<html>\n</html>\n")
    with pytest.raises(TuneError, match="no file of tuning records") as caught:
        mc.compile(mc.trace(lambda x: mc.relu(x), mc.f32[4]), threads=1, database=path)
    assert caught.value.code == "MDLC1349"
