"""Stages that are computed once because their expression is large and read more than once."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc

pytestmark = pytest.mark.llvm

RNG = np.random.default_rng(0)


def matmul():
    x, w = mc.Input("x", mc.f32[9, 12]), mc.Input("w", mc.f32[12, 40])
    return x @ w


def conv():
    x, w = mc.Input("x", mc.f32[1, 3, 12, 12]), mc.Input("w", mc.f32[6, 3, 3, 3])
    return mc.conv(x, w)


def pool():
    return mc.max_pool(mc.Input("x", mc.f32[1, 3, 12, 12]), kernel_shape=(2, 2))


def reduction():
    return mc.sum(mc.Input("x", mc.f32[9, 40]), axes=(1,))


def add():
    return mc.Input("x", mc.f32[9, 40]) + 1.0


@pytest.mark.parametrize("anchor", [matmul, conv, pool, reduction, add])
def test_a_long_epilogue_that_reads_its_values_twice(anchor):
    y = anchor()
    inputs = [v for v in y.inputs if isinstance(v, mc.Input)]
    for _ in range(4):
        y = mc.gelu(y, approximate="tanh")
    graph = mc.Graph.of("g", inputs, [y])
    exe = mc.compile(graph, threads=1)
    assert len(exe.kernels) == 1
    assert exe.kernels[0].loops.buffers().keys() - {p.name for p in exe.kernels[0].loops.params}
    arrays = [RNG.standard_normal(v.type.dims).astype(np.float32) for v in inputs]
    want = mc.interpret(graph, arrays)[0]
    np.testing.assert_allclose(exe(*arrays)[0], want, rtol=1e-4, atol=1e-5)
