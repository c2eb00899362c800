"""Convolution of plain images: vectors of output channels, or of the pixels of a line."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.expr.types import dtype
from minidlc.tests.codegen.helpers import WIDTHS
from minidlc.tests.schedules.blocked import (
    AVX2,
    AVX512,
    adds_up_in_order,
    agrees,
    busiest,
    lowered,
)

pytestmark = pytest.mark.llvm

# x, w, attributes
CASES = {
    "two strides": ((2, 3, 17, 15), (16, 3, 3, 3), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
    "lines of one tile": ((1, 8, 9, 12), (32, 8, 3, 3), {"pads": (1, 1, 1, 1)}),
    "dilated": ((1, 4, 12, 11), (24, 4, 3, 3), {"dilations": (2, 3)}),
    "groups": ((1, 16, 8, 8), (32, 4, 3, 3), {"group": 4, "pads": (1, 1, 1, 1)}),
    "strided groups": ((1, 32, 9, 9), (32, 8, 3, 3), {"group": 4, "strides": (2, 2)}),
    "1-D": ((2, 10, 40), (16, 10, 3), {"strides": (2,), "pads": (1, 1)}),
    "3-D": ((1, 3, 5, 6, 7), (8, 3, 2, 3, 3), {"pads": (0, 1, 1, 0, 1, 1)}),
    "1 x 1": ((1, 24, 7, 7), (40, 24, 1, 1), {}),
}


def plain(x, w, attributes, element="f32"):
    inputs = [mc.Input("x", dtype(element)[x]), mc.Input("w", dtype(element)[w])]
    inputs.append(mc.Input("b", dtype(element)[w[:1]]))
    return inputs, mc.conv(*inputs, **attributes)


def of_size(channels, size, outputs, kernel, **attributes):
    x, w = (1, channels, size, size), (outputs, channels, kernel, kernel)
    return plain(x, w, {"pads": (kernel // 2,) * 4, **attributes})[1]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("width", WIDTHS)
def test_cases(case, width):
    inputs, y = plain(*case)
    agrees(inputs, mc.relu(y), mc.target.host(vector_width=width))


@pytest.mark.parametrize("epilogue", [mc.sigmoid, mc.hard_swish, lambda y: y * mc.sigmoid(y)])
def test_epilogues(epilogue):
    inputs, y = plain(*CASES["two strides"])
    agrees(inputs, epilogue(y))


def test_a_residual():
    inputs, y = plain(*CASES["lines of one tile"])
    other = mc.Input("other", y.type)
    agrees([*inputs, other], mc.relu(y + other))


@pytest.mark.parametrize("element", ["f64", "f16", "i32"])
def test_elements(element):
    inputs, y = plain((1, 4, 9, 9), (16, 4, 3, 3), {"strides": (2, 2)}, element)
    graph = mc.Graph.of("g", inputs, [y])
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, v.type.dims).astype(v.type.dtype.numpy) for v in inputs]
    np.testing.assert_array_equal(mc.compile(graph)(*arrays)[0], mc.interpret(graph, arrays)[0])


def test_constant_weights_are_packed_at_compile_time():
    x, w, attributes = CASES["strided groups"]
    weights = np.random.default_rng(1).standard_normal(w).astype(np.float32)
    y = mc.conv(mc.Input("x", mc.f32[x]), mc.Constant("w", weights), **attributes)
    kernel = lowered(y, AVX2)
    assert kernel.implementation == "conv_channels"
    assert "prepack" in str(kernel.schedule.trace)
    assert not any(name.startswith("w_p") for name in kernel.loops.buffers() if name not in {
        p.name for p in kernel.loops.params
    })  # fmt: skip
    agrees([v for v in y.inputs if isinstance(v, mc.Input)], y)


def test_threads():
    inputs, y = plain((1, 64, 28, 28), (128, 64, 3, 3), {"strides": (2, 2), "pads": (1,) * 4})
    exe = agrees(inputs, mc.relu(y), threads=2)
    assert "parallel(" in exe.kernels[0].trace


@pytest.mark.parametrize("case", ["two strides", "groups", "dilated"])
def test_strict_adds_up_in_the_order_of_the_plain_loops(case):
    inputs, y = plain(*CASES[case])
    adds_up_in_order(inputs, mc.relu(y))


@pytest.mark.long
@pytest.mark.parametrize("target", [AVX2, AVX512], ids=["avx2", "avx512"])
@pytest.mark.parametrize("shape", [(64, 56, 128, 3), (3, 224, 64, 7), (128, 28, 128, 3)])
def test_a_stride_costs_no_gathers(target, shape):
    kernel = lowered(of_size(*shape, strides=(2, 2)), target)
    assert kernel.implementation == "conv_channels"
    counts, code = busiest(kernel, target)
    assert counts.fma >= 8
    assert counts.spills <= counts.fma // 10
    assert not any("gather" in x or "vpinsr" in x or "vinsertps" in x for x in code)


def test_each_way_where_it_is_cheaper():
    def chosen(*shape, **attributes):
        return lowered(of_size(*shape, **attributes), AVX2).implementation

    assert chosen(64, 56, 64, 3) == "conv_channels"
    assert chosen(64, 56, 128, 3, strides=(2, 2)) == "conv_channels"
    assert chosen(1, 28, 6, 5) == "conv"  # 6 channels are no vectors
    assert chosen(512, 7, 512, 3) == "conv"  # weights would be copied in every call
    x, w = (1, 96, 56, 56), (96, 1, 3, 3)
    _, depthwise = plain(x, w, {"group": 96, "pads": (1, 1, 1, 1)})
    assert lowered(depthwise, AVX2).implementation == "conv"


def test_lines_share_their_loads():
    counts, code = busiest(lowered(of_size(1, 28, 6, 5), AVX2), AVX2)
    loads = [x for x in code if x.startswith("vmovups") and "(" in x.split(",")[0]]
    assert len(loads) < counts.fma
