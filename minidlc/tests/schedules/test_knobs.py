"""Knobs of the schedules: every point that is allowed gives the same results, on any machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest

import minidlc as mc
from minidlc.codegen.compile import compile_kernel, run_kernel
from minidlc.expr.types import Array
from minidlc.loop.nodes import LoopFunction
from minidlc.lower.express import express_node
from minidlc.schedules import IMPLEMENTATIONS
from minidlc.schedules.implementation import no_knobs
from minidlc.target import Target, host
from minidlc.te import create_schedule, lower, stages
from minidlc.tests.schedules.blocked import conv, depthwise, image
from minidlc.tests.schedules.products import AVX512, NEON, busiest, product
from minidlc.tests.schedules.test_conv_weight import node as weights
from minidlc.transform import Pipeline
from minidlc.tuning.space import Config, Space
from minidlc.tuning.task import Task

pytestmark = pytest.mark.ch06

RNG = np.random.default_rng(0)
WEIGHTS = RNG.standard_normal((16, 50)).astype(np.float32)
MACHINES = {"8 lanes": (256, 16), "16 lanes": (512, 32), "4 lanes": (128, 32)}  # bits, registers


def kernel(graph: mc.Graph, target: Target) -> Task:
    """The one kernel of a graph: after the default passes, or as it is if those leave several."""
    passed, _ = Pipeline.default().run(graph)
    (node,) = passed.nodes if len(passed.nodes) == 1 else graph.nodes
    found = express_node(node)
    return Task(found.group, found.kind, target, 1)


def relu(y: mc.Value) -> mc.Value:
    return mc.relu(y)


def blocked(build: Callable[..., tuple[list[mc.Value], mc.Value]], *given: object) -> mc.Graph:
    inputs, y = build(*given)
    return mc.Graph.of("g", inputs, [y])


def plain_conv(channels: int, outputs: int, height: int, width: int, stride: int) -> mc.Graph:
    types = mc.f32[1, channels, height, width], mc.f32[outputs, channels, 3, 3]
    return mc.trace(lambda x, w: mc.conv(x, w, strides=(stride, stride), pads=(1, 1, 1, 1)), *types)


def pool(window: int, *shape: int) -> mc.Graph:
    """A window of the first two spatial axes; a third is the place in a block."""
    one = (1,) * (len(shape) - 4)
    kernel, pads = (window, window, *one), (1, 1, *(0 for _ in one))
    return mc.trace(lambda x: mc.max_pool(x, kernel_shape=kernel, pads=pads * 2), mc.f32[shape])


PROGRAMS = {
    "product": product(mc.f32[23, 16], mc.f32[16, 50], relu),
    "product of a constant": product(mc.f32[23, 16], WEIGHTS, relu),
    "products": product(mc.f32[3, 9, 7], mc.f32[3, 7, 33]),
    "product, small caches": product(mc.f32[23, 16], mc.f32[16, 50]),
    "product of many terms": product(mc.f32[9, 300], mc.f32[300, 20]),
    "column": product(mc.f32[9, 70], mc.f32[70, 1]),
    "row": product(mc.f32[1, 16], mc.f32[16, 50]),
    "row of a constant": product(mc.f32[1, 16], WEIGHTS),
    "direct": blocked(conv, image(16, 9, 8, 8), 32, 3),
    "direct, stride 2": blocked(conv, image(16, 9, 7, 16), 32, 3, 2),
    "channels": plain_conv(3, 32, 9, 10, 2),
    "rows": plain_conv(2, 6, 7, 19, 1),
    "depthwise": blocked(depthwise, image(16, 9, 8, 8), 3),
    "depthwise, stride 2": blocked(depthwise, image(32, 9, 9, 16), 3, 2),
    "pool": pool(3, 1, 3, 9, 11),
    "pool, blocked": pool(3, 1, 2, 9, 8, 8),
    "weights": blocked(weights, (2, 6, 8, 9), 4, (3, 3)),
    "weights, in order": blocked(weights, (2, 6, 8, 9), 4, (3, 3)),
    "weights, short rows": blocked(weights, (3, 4, 4, 4), 16, (3, 3)),
    "softmax": mc.trace(lambda x: mc.softmax(x, axis=-1), mc.f32[7, 133]),
    "softmax down": mc.trace(lambda x: mc.softmax(x, axis=0), mc.f32[7, 133]),
    "sums": mc.trace(lambda x: mc.sum(x, axes=(1,)), mc.f32[7, 133]),
    "one sum": mc.trace(lambda x: mc.sum(x, axes=(0, 1)), mc.f32[70, 133]),
    "norm": mc.trace(
        lambda x, g, b: mc.layer_norm(x, g, b), mc.f32[7, 133], mc.f32[133], mc.f32[133]
    ),
    "tanh": mc.trace(lambda x: mc.tanh(x) + 1.0, mc.f32[7, 133]),
    "turned": mc.trace(lambda x: mc.transpose(x, perm=(1, 0)), mc.f32[40, 70]),
}


FIELDS = {
    "product, small caches": {"l2": 128},
    "weights, in order": {"precision": "strict"},
}


def task_of(name: str, machine: str) -> Task:
    """A program on a machine as this one, but of other vectors."""
    bits, registers = MACHINES[machine]
    fields = FIELDS.get(name, {})
    target = replace(host(), vector_bits=bits, registers=registers)
    return kernel(PROGRAMS[name], replace(target, **fields))


def ways(task: Task) -> list[str]:
    """The ways that are written by hand."""
    return [name for name in task.ways if any(i.name == name for i in IMPLEMENTATIONS)]


def default(task: Task, way: str) -> Config:
    """The first candidate of each knob."""
    return Config.of(way, {name: values[0] for name, values in task.space.ways[way].items()})


def points(task: Task, way: str, count: int, seed: int) -> list[Config]:
    """The default of a way, and random points of it."""
    space = space_of(task, way)
    return [default(task, way), *space.distinct(count, Random(seed), [default(task, way)])]


def run(functions: Sequence[LoopFunction], task: Task, given: Mapping[str, Array]) -> Array:
    """What machine code gives: copies of constants are made first, then the kernel runs."""
    memory = dict(given)
    for fn in functions:
        for p in fn.params:
            memory.setdefault(p.name, np.full(p.type.dims, 77, p.type.dtype.numpy))
        compiled = compile_kernel(fn, task.target, cache=False)
        run_kernel(compiled, [memory[p.name] for p in fn.params])
    return memory[task.group.last.name]


def plain_loops(task: Task) -> LoopFunction:
    """The kernel without a schedule."""
    return lower(create_schedule(task.group.outputs))


@pytest.mark.llvm
@pytest.mark.long
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_random_points_give_the_results_of_plain_loops(name: str, machine: str) -> None:
    task = task_of(name, machine)
    inputs = [t for t in stages(task.group.outputs) if t.body is None]
    rng = np.random.default_rng(1)
    given = {t.name: rng.standard_normal(t.shape).astype(np.float32) for t in inputs}
    want = run([plain_loops(task)], task, given)
    count = 1 if name.startswith("product") else 2  # of products there are many
    for way in ways(task):
        for config in points(task, way, count, len(name)):
            candidate = task.lower(config)
            got = run([*candidate.init, candidate.loops], task, given)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=str(config))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_default_is_allowed(name: str, machine: str) -> None:
    task = task_of(name, machine)
    for way in ways(task):
        assert default(task, way) in task.space
    assert task.default == default(task, ways(task)[0])


@pytest.mark.parametrize("name", PROGRAMS)
def test_points_for_another_machine_are_legal(name: str) -> None:
    """One that has other registers, and other instructions for broadcasts."""
    task = kernel(PROGRAMS[name], NEON)
    for way in ways(task):
        for config in points(task, way, 1, len(name)):
            assert config in task.space
            task.lower(config)


def test_every_way_that_has_knobs_is_tried_above() -> None:
    tried = {
        way for name in PROGRAMS for machine in MACHINES for way in ways(task_of(name, machine))
    }
    assert {i.name for i in IMPLEMENTATIONS if i.knobs is not no_knobs} <= tried


@pytest.mark.parametrize("machine", MACHINES)
def test_tiles_larger_than_the_register_file_are_left_out(machine: str) -> None:
    """14 x 2 sums, two vectors of b and a broadcast are 31 registers: no more fit."""
    bits, registers = MACHINES[machine]
    target = replace(host(), vector_bits=bits, registers=registers)
    task = kernel(product(mc.f32[64, 64], mc.f32[64, 512]), target)
    tiles = {(c.values["rows"], c.values["columns"] * 32 // bits) for c in space_of(task, "gemm")}
    assert all(r * v + v + 1 <= registers for r, v in tiles)
    assert ((14, 2) in tiles) == (registers == 32)
    assert (13, 3) not in tiles
    assert (6, 2) in tiles
    assert space_of(task, "gemm").size > 2 * len(list(space_of(task, "gemm")))


@pytest.mark.llvm
def test_what_is_left_out_spills() -> None:
    """Sums that find no register are stored and loaded again in every step of k."""
    task = kernel(product(mc.f32[64, 64], mc.f32[64, 512]), AVX512)

    def spills(rows: int, columns: int) -> tuple[bool, int]:
        order = {"unroll": 1, "columns_outside": 1}
        config = Config.of("gemm", {"rows": rows, "columns": columns, **order})
        code = compile_kernel(task.lower(config).loops, AVX512, cache=False)
        return config in task.space, busiest(code).spills

    assert spills(14, 32) == (True, 0)
    allowed, count = spills(13, 48)
    assert not allowed
    assert count >= 2 * (13 * 3 - 32)


def space_of(task: Task, way: str) -> Space:
    """The points of one way."""
    return Space({way: task.space.ways[way]}, task.is_allowed)


def test_numbers_that_are_passed_on_stay_open_in_the_trace() -> None:
    task = kernel(PROGRAMS["product"], host())
    config = default(task, "gemm_strips")
    assert {"rows", "columns"} <= task.schedule(config).trace.knobs.keys()
