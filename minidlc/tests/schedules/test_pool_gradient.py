"""Gradients of pools: every element asks its windows, in vectors along the row."""

from __future__ import annotations

import re

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import apply
from minidlc.tests.schedules.blocked import AVX2, AVX512, adds_up_in_order

pytestmark = [pytest.mark.llvm, pytest.mark.ch03]

# shape, kernel, strides, pads, dilations
CASES = {
    "2/2": ((2, 3, 24, 24), (2, 2), (2, 2), (), ()),
    "2/2 with a rest": ((2, 3, 7, 9), (2, 2), (2, 2), (), ()),
    "3/2": ((2, 4, 14, 15), (3, 3), (2, 2), (1, 1, 1, 1), ()),
    "3/1": ((1, 2, 6, 18), (3, 3), (1, 1), (1, 1, 1, 1), ()),
    "apart": ((1, 2, 9, 20), (2, 2), (3, 3), (), ()),
    "dilated": ((1, 2, 9, 20), (2, 3), (2, 1), (1, 0, 0, 2), (3, 2)),
    "one-sided": ((1, 2, 8, 8), (3, 2), (1, 3), (0, 1, 2, 0), ()),
    "1-D": ((2, 3, 37), (3,), (2,), (1, 1), ()),
    "3-D": ((1, 2, 4, 6, 8), (2, 2, 2), (2, 2, 2), (), ()),
}


def gradient(op, case, relu=False):
    """The graph of dx, dy being an input."""
    shape, kernel, strides, pads, dilations = case
    x = mc.Input("x", mc.TensorType(mc.f32, shape))
    fields = {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations}
    y = apply(op, mc.relu(x) if relu else x, **fields)
    return mc.grad(mc.Graph.of("pool", [x], [y]))


def ordinary(graph, *, whole):
    """Arrays; of whole numbers, of which many are equal."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(i.type.dims).astype(np.float32) for i in graph.inputs]
    return [np.rint(arrays[0]), arrays[1]] if whole else arrays


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("op", ["max_pool", "average_pool"])
def test_right(case, op):
    for relu in (False, True):
        graph = gradient(op, case, relu)
        for target in (mc.target.host(), mc.target.host(vector_width=4)):
            exe = mc.compile(graph, target=target, threads=2)
            assert "schedule pool_gradient\n" in f"{exe.report()}\n"
            for whole in (False, True):
                arrays = ordinary(graph, whole=whole)
                want = mc.interpret(graph, arrays)[0]
                np.testing.assert_allclose(exe(*arrays)[0], want, rtol=1e-5, atol=1e-6)


def test_a_gradient_of_a_gradient():
    shape, kernel, strides, *_ = CASES["3/2"]
    x = mc.Input("x", mc.TensorType(mc.f32, shape))
    y = apply("max_pool", x, kernel_shape=kernel, strides=strides)
    graph = mc.jvp(mc.grad(mc.Graph.of("g", [x], [apply("sum", y * y * y, keepdims=False)])))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(i.type.dims).astype(np.float32) for i in graph.inputs]
    want = mc.interpret(graph, arrays)[-1]
    np.testing.assert_allclose(mc.compile(graph)(*arrays)[-1], want, rtol=1e-4, atol=1e-5)


def test_strict_adds_up_in_the_order_of_the_plain_loops():
    graph = gradient("average_pool", CASES["3/2"])
    exe = adds_up_in_order(list(graph.inputs), graph.outputs[0])
    assert "schedule pool_gradient" in str(exe.report())


@pytest.mark.parametrize("target", [AVX2, AVX512], ids=["avx2", "avx512"])
def test_no_scatter_and_no_gather(target):
    graph = gradient("max_pool", ((64, 8, 24, 24), (2, 2), (2, 2), (), ()), relu=True)
    exe = mc.compile(graph, threads=2)
    spread = next(k for k in exe.kernels if "share" in k.trace)
    assert "parallel(" in spread.trace
    assert not re.search("scatter|gather", spread.llvm)
    loops = str(spread.loops)
    # the share of a window is computed once for each window, not once for each element of it
    assert re.search(r"share = alloc\(f32\[1, 1, 12, 12\], \"stack\"\)", loops)
