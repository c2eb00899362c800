"""Tasks: the space of a kernel, its default, the loops of a point; and keys by content."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import minidlc as mc
from minidlc.loop.interpret import interpret
from minidlc.support.errors import TuneError
from minidlc.tests.tuning.kernels import product, task_of, tasks_of
from minidlc.tuning.space import Config
from minidlc.tuning.workload import Workload

pytestmark = pytest.mark.ch06


def test_the_default_is_what_the_compiler_takes() -> None:
    task = task_of(product())
    assert task.default in task.space
    assert task.default.way == next(iter(task.ways))


def test_any_point_computes_the_product() -> None:
    task, rng = task_of(product(constant=True)), Random(0)
    a = rng_array((24, 16), 1)
    b = rng_array((16, 32), 2)
    for _ in range(8):
        c = task.lower(task.space.random(rng))
        arrays = {"a": a, "b": b}
        for fn in c.init:
            out = fn.params[-1]
            arrays[out.name] = np.zeros(out.type.dims, np.float32)
            interpret(fn, {p.name: arrays[p.name] for p in fn.params})
        result = np.full((24, 32), np.nan, np.float32)
        interpret(c.loops, {p.name: arrays.get(p.name, result) for p in c.loops.params})
        np.testing.assert_allclose(result, np.maximum(a @ b, 0), rtol=1e-5, atol=1e-5)


def rng_array(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32) / 8


def test_no_way_of_that_name() -> None:
    with pytest.raises(TuneError, match="MDLC1303"):
        task_of(product()).schedule(Config("gem"))


def test_knobs_stay_open_in_the_trace() -> None:
    task = task_of(product())
    config = next(c for c in task.space if "unroll" in c.values)
    assert task.schedule(config).trace.knobs.keys() <= config.values.keys()


def test_a_key_says_what_is_computed_and_nothing_else() -> None:
    def two(first: str, second: str) -> mc.Graph:
        text = (
            f"def g({first}: f32[8, 16], {second}: f32[16, 8]):\n"
            f"    p: f32[8, 8] = matmul({first}, {second})\n"
            "    y: f32[8, 8] = relu(p)\n"
            "    return y\n"
        )
        return mc.parse(text)

    one, other = (tasks_of(two(*names))[0] for names in (("a", "b"), ("relu", "in1")))
    assert one.workload == other.workload
    assert one.workload.key == other.workload.key
    larger = task_of(product(25)).workload.key
    keys = {task_of(product(24)).workload.key, larger, one.workload.key}
    keys.add(task_of(product(constant=True)).workload.key)
    assert len(keys) == 4


def test_a_workload_gives_its_group_again() -> None:
    group = product(constant=True)
    work = task_of(group).workload
    again = work.group
    assert Workload.of(again, work.kind, work.target, work.threads) == work
    assert again.anchor is not None
    assert again.constants == {"in1"}
