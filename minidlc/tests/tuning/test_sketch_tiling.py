"""Tiling sketches: every point computes the kernel, and its trace holds every decision."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

import minidlc as mc
from minidlc.te import Schedule, parse_trace
from minidlc.te.primitive import Trace
from minidlc.tests.tuning.kernels import product, tasks_of
from minidlc.tests.tuning.sketch_kernels import (
    AVX2,
    KERNELS,
    STRICT,
    interpreted,
    plain,
    sketch_points,
    task,
    values,
)
from minidlc.tuning.space import Config, Space
from minidlc.tuning.task import Task

pytestmark = [pytest.mark.ch06, pytest.mark.long]


@pytest.mark.parametrize("target", [AVX2, STRICT], ids=["default", "strict"])
@pytest.mark.parametrize("name", KERNELS)
def test_points_compute_the_kernel(name: str, target: mc.target.Target) -> None:
    kernel = task(name, target)
    given = values(kernel)
    want = plain(kernel, given)
    points = sketch_points(kernel, 1, seed=int(target is STRICT))
    assert points
    for config in points:
        got = interpreted(kernel, kernel.lower(config), given)
        for mine, other in zip(got, want, strict=True):
            scale = float(np.abs(other).max())
            np.testing.assert_allclose(mine, other, 1e-6, 1e-6 * scale, err_msg=str(config))


@pytest.mark.parametrize("name", KERNELS)
def test_the_trace_of_a_point_becomes_that_of_another_by_its_knobs(name: str) -> None:
    kernel = task(name)
    for way in (w for w in kernel.ways if w.startswith("sketch")):
        one, other = (p for p in sketch_points(kernel, 2, seed=3) if p.way == way)
        schedule = kernel.schedule(one)
        changed = schedule.trace.with_knobs(**other.values)
        assert str(changed) == str(kernel.schedule(other).trace)
        assert changed.knobs.keys() == other.values.keys()
        assert Trace.from_json(changed.to_json()) == changed
        assert parse_trace(str(changed)) == changed
        again = Schedule(schedule.outputs, changed, constants=kernel.group.constants, checked=False)
        assert str(again.lower()) == str(kernel.schedule(other).lower())


def large(constant: bool) -> list[Task]:
    """GEMM 512 and a 3x3 convolution of 64 channels at 56x56."""
    x, w = mc.Input("x", mc.f32[1, 64, 56, 56]), mc.Input("w", mc.f32[64, 64, 3, 3])
    weights = mc.Constant("w", np.ones((64, 64, 3, 3), np.float32)) if constant else w
    y = mc.conv(x, weights, pads=(1, 1, 1, 1))
    graph = mc.Graph.of("conv", [x] if constant else [x, w], [y])
    conv = next(t for t in tasks_of(graph, AVX2) if t.group.anchor is not None)
    gemm = product(512, 512, 512, constant=constant)
    return [Task(gemm, "matmul", AVX2, 1), conv]


@pytest.mark.parametrize("constant", [False, True])
def test_large_kernels_have_large_spaces(constant: bool) -> None:
    for kernel in large(constant):
        for way in (w for w in kernel.ways if w.startswith("sketch")):
            space = Space({way: kernel.space.ways[way]}, kernel.is_allowed)
            assert sum(1 for _ in islice(space, 3_000)) == 3_000, way


def test_defaults_are_allowed() -> None:
    for name in KERNELS:
        kernel = task(name)
        for way in (w for n, w in kernel.ways.items() if n.startswith("sketch")):
            knobs = way.defaults(way.variant(kernel.group), kernel.target)
            assert Config.of(way.name, knobs) in kernel.space


def test_tiles_beyond_the_registers_are_left_out() -> None:
    kernel = Task(product(64, 64, 64), "matmul", AVX2, 1)
    point = {"tile_i": 6, "tile_j": 16, "block_i": 1, "block_j": 1, "unroll_k": 1}
    assert kernel.is_allowed(Config.of("sketch_tile", point))
    assert not kernel.is_allowed(Config.of("sketch_tile", {**point, "tile_i": 7}))
    assert not kernel.is_allowed(Config.of("sketch_tile", {**point, "block_j": 8}))
    wide = replace(AVX2, registers=32)
    assert Task(product(64, 64, 64), "matmul", wide, 1).is_allowed(
        Config.of("sketch_tile", {**point, "tile_i": 7})
    )
