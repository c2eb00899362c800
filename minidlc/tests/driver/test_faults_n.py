"""Tuning, caches and engines: FAULTS class N, a test a row.

Row 150 is tested on the database alone too (tests/tuning/test_records_database.py), row 155 with
every kind of bad point (tests/tuning/test_measure.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import minidlc as mc
from minidlc.codegen.compile import compile_kernel
from minidlc.loop.text import parse_function
from minidlc.runtime.native import NativeLibrary
from minidlc.support.errors import TuneError
from minidlc.target import host
from minidlc.tests.frontend.helpers import model, node
from minidlc.tests.tuning.fakes import FakeMeasurer, indifferent
from minidlc.tests.tuning.hostile import hostile, point
from minidlc.tests.tuning.kernels import product, task_of, tasks_of
from minidlc.tuning.database import Database
from minidlc.tuning.measure import LocalMeasurer
from minidlc.tuning.search import RandomSearch
from minidlc.tuning.trial import Fate
from minidlc.tuning.tuner import tune_task

pytestmark = [pytest.mark.llvm, pytest.mark.ch06]

QUICK: Any = {"search": RandomSearch(), "model": indifferent}


def small() -> onnx.ModelProto:
    """relu(x @ w)."""
    w = np.linspace(-1, 1, 64 * 48, dtype=np.float32).reshape(64, 48)
    nodes = [node("MatMul", "x w", "t"), node("Relu", "t", "y")]
    return model(nodes, {"x": (TensorProto.FLOAT, [40, 64])}, weights={"w": w})


def run(program: str, *args: object, **environment: str) -> str:
    """What a fresh process prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, args)],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


ASK = """
import sys
import minidlc as mc
exe = mc.compile(sys.argv[1], threads=1, database=sys.argv[2])
print(exe.kernels[0])
print(exe.kernels[0].trace)
"""


def test_150_the_stored_best_is_returned(tmp_path: Path) -> None:
    """Tuned here, asked for in another process, from the file alone."""
    onnx.save(small(), tmp_path / "small.onnx")
    task, path = tasks_of(mc.load_onnx(small()))[0], tmp_path / "tune.jsonl"
    result = tune_task(task, FakeMeasurer(), trials=12, **QUICK, database=Database(path))
    assert result.is_better
    best = Database(path).best(task.workload)
    assert best is not None
    assert best.config == result.best
    first, *trace = run(ASK, tmp_path / "small.onnx", path).splitlines()
    assert f"({result.best.way}), record {best.id}, " in first
    assert "\n".join(trace) == str(task.schedule(result.best).trace)


COUNT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import minidlc as mc
from minidlc import driver
from minidlc.codegen import compile as kernels
assert Path(mc.__file__).is_relative_to(sys.argv[1])
mc.compile(sys.argv[2], threads=1, **eval(sys.argv[3]))
print(driver.model_cache.hits, driver.model_cache.misses, kernels.kernel_cache.misses > 0)
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiler's source, to be edited, with a cache of its own and a model."""
    folder = tmp_path_factory.mktemp("edited")
    skipped = shutil.ignore_patterns("tests", "models", "benchmarks")
    shutil.copytree(Path(mc.__file__).parent, folder / "minidlc", ignore=skipped)
    onnx.save(small(), folder / "small.onnx")
    return folder


def counts(folder: Path, **options: object) -> str:
    """'hits misses True': of the cache of models, asked twice; whether a kernel was compiled."""
    cache = {"MINIDLC_CACHE": str(folder / "cache"), "MINIDLC_JOBS": "1"}
    return run(COUNT, folder, folder / "small.onnx", options, **cache).strip()


def test_152_settings_and_the_compiler_itself_are_in_the_keys(copy: Path) -> None:
    """A flag that changes code, an edited pass, an edited code generator: missed each time.

    What passes can change of a kernel are its loops, and those are in its key.
    """
    assert counts(copy) == "0 2 True"
    assert counts(copy) == "1 0 False"
    assert counts(copy, precision="strict") == "0 2 True"
    for name, kernels_too in (("transform/rebuild.py", False), ("codegen/statements.py", True)):
        with (copy / "minidlc" / name).open("a", encoding="utf-8") as file:
            file.write("EDITED = 1\n")
        assert counts(copy) == f"0 2 {kernels_too}"


def test_152_other_records_are_another_model(copy: Path, tmp_path: Path) -> None:
    """The kernels that the database decides are compiled, and the model is put together anew."""
    task, path = tasks_of(mc.load_onnx(small()))[0], tmp_path / "tune.jsonl"
    path.touch()
    options: dict[str, object] = {"database": str(path), "max_bytes": 1 << 30}
    assert counts(copy, **options).startswith("0 2")
    tune_task(task, FakeMeasurer(), trials=12, **QUICK, database=Database(path))
    assert counts(copy, **options) == "0 2 True"
    assert counts(copy, **options) == "1 0 False"


def test_153_when_every_candidate_fails_the_first_reason_is_said() -> None:
    task = task_of(product())
    nothing_runs = FakeMeasurer(cost=lambda task, config: float("inf"))
    database = Database()
    with pytest.raises(TuneError) as caught:
        tune_task(task, nothing_runs, trials=6, **QUICK, database=database)
    assert "no trial ran: 6 crashed; the first, " in caught.value.message
    assert f"{task.default}: crashed: signal 11 (SIGSEGV)" in caught.value.message
    assert len(database.query(fate=Fate.CRASHED)) == 6
    assert database.best(task.workload) is None


def test_155_a_bad_candidate_does_not_take_the_tuner_down() -> None:
    """It writes far outside of its arrays, in a process of its own; the next one is measured."""
    with LocalMeasurer(jobs=1) as m:
        bad, good = m.measure(hostile(), [point("writes far away"), point("right")])
    assert bad.fate is Fate.CRASHED
    assert "SIGSEGV" in bad.reason
    assert good.fate is Fate.OK


def same_but_for_names(one: object, other: object, names: dict[str, str]) -> bool:
    """True if texts of the one stand for texts of the other, each for one; `names` takes them."""
    if isinstance(one, str) and isinstance(other, str):
        return names.setdefault(one, other) == other
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(same_but_for_names(a, b, names) for a, b in pairs)
    return one == other


def test_156_the_code_is_that_of_the_best_record() -> None:
    """Two runs, one database: the report names the record with its time; it can be run again."""
    graph = mc.load_onnx(small())
    task, database = tasks_of(graph)[0], Database()
    for seed in (0, 1):
        tune_task(task, FakeMeasurer(), trials=8, seed=seed, **QUICK, database=database)
    best = database.best(task.workload)
    assert best is not None
    (kernel,) = mc.compile(graph, threads=1, database=database).kernels
    assert str(kernel).endswith(str(best))
    assert f"record {best.id}, 1." in str(kernel)
    assert " ms, 0." in str(kernel)

    assert best.trace is not None
    steps, done = ([s.to_list() for s in t] for t in (best.trace, kernel.schedule.trace))
    names: dict[str, str] = {}
    assert same_but_for_names(steps, done, names)
    assert len(set(names.values())) == len(names)
    assert kernel.schedule.trace.knobs == best.trace.knobs
    assert best.schedule().trace == best.trace


ENGINES = """
import numpy as np
import minidlc as mc
from minidlc.codegen.compile import compile_kernel
from minidlc.loop.text import parse_function
from minidlc.runtime.native import NativeLibrary
from minidlc.target import host

kernel = compile_kernel(parse_function(
    "def f(A: f32[1], C: f32[1]):\\n    C[0] = A[0] + 1.0\\n"), host())
found = set()
for _ in range(1000):
    library = NativeLibrary((kernel.object,), (kernel.symbol,))
    assert library.address(kernel.symbol)
    del library
last = [NativeLibrary((kernel.object,), (kernel.symbol,)) for _ in range(50)]
print("made")
"""


def test_158_long_names_and_many_engines() -> None:
    """Names of 300 characters reach no symbol; 1,000 engines come and go, and the process ends."""
    name = "n" * 300
    fn = parse_function(f"def {name}(A: f32[1], C: f32[1]):\n    C[0] = A[0] + 1.0\n")
    kernel = compile_kernel(fn, host())
    assert len(kernel.symbol) < 32
    assert name.encode() not in kernel.object
    assert NativeLibrary((kernel.object,), (kernel.symbol,)).address(kernel.symbol)
    graph = mc.parse(f"def g(x: f32[4]):\n    {name}: f32[4] = relu(x)\n    return {name}\n")
    x = np.array([-1, 2, -3, 4], np.float32)
    np.testing.assert_array_equal(mc.compile(graph, threads=1)(x)[0], np.maximum(x, 0))
    assert run(ENGINES) == "made\n"


def test_158_a_kernel_of_a_long_name_is_tuned() -> None:
    task, database = replace(task_of(product()), name="n" * 300), Database()
    tune_task(task, FakeMeasurer(), trials=4, **QUICK, database=database)
    assert database.query(op="n" * 300)
