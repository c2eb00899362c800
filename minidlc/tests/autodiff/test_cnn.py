"""The gradients of a small CNN, compiled: right, and by schedules of their own."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc

pytestmark = [pytest.mark.llvm, pytest.mark.ch03]

BATCH = 4
SHAPES = {
    "x": (BATCH, 1, 20, 20), "k0": (8, 1, 5, 5), "c0": (8,), "k1": (16, 8, 3, 3), "c1": (16,),
    "w": (256, 10), "b": (10,),
}  # fmt: skip


def lenet(x, k0, c0, k1, c1, w, b):
    """Convolution, relu and pool, twice; then a product."""
    h = mc.relu(mc.conv(x, k0, c0))
    h = mc.max_pool(h, kernel_shape=(2, 2), strides=(2, 2))
    h = mc.relu(mc.conv(h, k1, c1, pads=(1, 1, 1, 1)))
    h = mc.max_pool(h, kernel_shape=(2, 2), strides=(2, 2))
    return h.reshape(BATCH, -1) @ w + b


@pytest.fixture(scope="module")
def gradient():
    types = [mc.TensorType(mc.f32, shape) for shape in SHAPES.values()]
    graph = mc.trace(lenet, *types)
    assert [i.name for i in graph.inputs] == list(SHAPES)
    return mc.grad(graph, list(SHAPES)[1:])


@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_gradients_are_those_of_the_interpreter(gradient, threads):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(i.type.dims).astype(np.float32) for i in gradient.inputs]
    got = mc.compile(gradient, threads=threads)(*arrays)
    for dx, want in zip(got, mc.interpret(gradient, arrays), strict=True):
        np.testing.assert_allclose(dx, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


def test_each_gradient_has_a_schedule_of_its_own(gradient):
    report = str(mc.compile(gradient).report())
    kinds = [line.split("schedule ")[1].split()[0] for line in report.splitlines() if " = " in line]
    assert kinds.count("conv_weight") == 2
    assert kinds.count("pool_gradient") == 2
    assert "plain" not in report


def test_the_mask_of_relu_is_in_the_kernel_of_the_pool_s_gradient(gradient):
    spread = [n for n in mc.compile(gradient).graph.nodes if "max_pool_gradient" in str(n.op)]
    assert len(spread) == 2
    assert all("greater" in str(node.op) and "where" in str(node.op) for node in spread)
