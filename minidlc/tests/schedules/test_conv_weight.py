"""Gradients of the weights of convolutions: lanes along a row, tiles of outputs and taps."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import apply
from minidlc.tests.schedules.blocked import (
    AVX2,
    AVX512,
    adds_up_in_order,
    agrees,
    busiest,
    lowered,
)

pytestmark = [pytest.mark.llvm, pytest.mark.ch03]


def node(x, outputs, kernel, element="f32", **attributes):
    """Inputs x, dy and the gradient of the weights."""
    image = mc.Input("x", mc.TensorType(mc.f32, x).with_dtype(getattr(mc, element)))
    w = mc.Input("w", image.type.with_shape((outputs, x[1] // attributes.get("group", 1), *kernel)))
    above = mc.Input("dy", apply("conv", image, w, **attributes).type)
    fields = {"kernel_shape": kernel, **attributes}
    return [image, above], apply("conv_weight_gradient", image, above, **fields)


# rows of 1 to 33 pixels: of less than a vector, with a rest, with one masked
CASES = {
    "one pixel": ((3, 4, 1, 1), 6, (1, 1), {}),
    "rows of 4": ((4, 8, 4, 4), 16, (3, 3), {"pads": (1,) * 4}),
    "rows of 7": ((2, 3, 7, 7), 5, (3, 3), {"pads": (1,) * 4}),
    "rows of 8": ((3, 2, 12, 12), 8, (5, 5), {}),
    "rows of 13": ((2, 5, 15, 15), 7, (3, 3), {}),
    "rows of 17": ((2, 3, 17, 17), 4, (1, 3), {"pads": (0, 1, 0, 1)}),
    "rows of 28": ((1, 4, 28, 28), 6, (3, 3), {"pads": (1,) * 4}),
    "rows of 33": ((1, 2, 9, 35), 3, (3, 3), {}),
    "1 x 1": ((2, 12, 6, 6), 9, (1, 1), {}),
    "stride 2": ((2, 4, 13, 14), 6, (3, 3), {"strides": (2, 2), "pads": (1,) * 4}),
    "stride 2 of 1 x 1": ((2, 4, 8, 9), 6, (1, 1), {"strides": (2, 2)}),
    "stride 3 without pads": ((1, 3, 10, 11), 4, (2, 2), {"strides": (3, 3)}),
    "stride and dilation": (
        (1, 3, 17, 19), 4, (3, 3), {"strides": (2, 2), "dilations": (3, 3), "pads": (0, 2, 1, 0)},
    ),
    "dilation": ((2, 3, 12, 12), 4, (3, 2), {"dilations": (2, 3), "pads": (2, 1, 0, 3)}),
    "groups": ((2, 6, 9, 9), 8, (3, 3), {"group": 2, "pads": (1,) * 4}),
    "depthwise": ((2, 6, 9, 10), 6, (3, 3), {"group": 6, "pads": (1,) * 4}),
    "depthwise twice": ((2, 4, 8, 8), 8, (3, 3), {"group": 4, "pads": (1,) * 4}),
    "a wide kernel": ((2, 2, 5, 40), 3, (1, 31), {}),
    "1-D": ((2, 3, 21), 4, (5,), {"strides": (2,), "pads": (2, 2)}),
    "3-D": ((1, 2, 5, 6, 9), 3, (2, 3, 2), {"pads": (1, 0, 1, 0, 1, 0)}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_right(case):
    x, outputs, kernel, attributes = case
    inputs, dw = node(x, outputs, kernel, **attributes)
    exe = agrees(inputs, dw)
    assert "schedule conv_weight (conv_weight_" in str(exe.report())  # no plain loops
    agrees(inputs, dw * 2 - 1, mc.target.host(vector_width=4), threads=2)


@pytest.mark.parametrize("element", ["f64", "f16"])
def test_other_elements(element):
    inputs, dw = node((2, 3, 9, 9), 4, (3, 3), element, pads=(1,) * 4)
    graph = mc.Graph.of("g", inputs, [dw])
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(v.type.dims).astype(v.type.dtype.numpy) for v in inputs]
    exe = mc.compile(graph)
    assert "schedule conv_weight (conv_weight_" in str(exe.report())
    want = mc.interpret(graph, arrays)[0]
    np.testing.assert_allclose(exe(*arrays)[0], want, rtol=2e-2 if element == "f16" else 1e-10)


@pytest.mark.parametrize("rows", [12, 4])
def test_an_update_in_the_same_kernel(rows):
    inputs, dw = node((8, 8, rows, rows), 16, (3, 3), pads=(1,) * 4)
    velocity = mc.Input("v", dw.type)
    exe = agrees([*inputs, velocity], velocity * 0.9 + mc.tanh(dw), threads=2)
    assert "schedule conv_weight" in str(exe.report())


def test_strict_adds_up_in_the_order_of_the_plain_loops():
    inputs, dw = node((2, 3, 9, 9), 4, (3, 3), pads=(1,) * 4)
    exe = adds_up_in_order(inputs, dw)
    assert "conv_weight_in_order" in str(exe.report())


@pytest.mark.parametrize(("target", "sums"), [(AVX2, 8), (AVX512, 16)], ids=["avx2", "avx512"])
@pytest.mark.parametrize(
    ("x", "outputs", "kernel", "attributes"),
    [
        ((64, 1, 28, 28), 8, (5, 5), {}),
        ((64, 8, 12, 12), 16, (5, 5), {}),
        ((8, 64, 32, 32), 64, (3, 3), {"pads": (1,) * 4}),
        ((8, 64, 64, 64), 64, (3, 3), {"pads": (1,) * 4, "strides": (2, 2)}),
        ((8, 128, 28, 28), 128, (1, 1), {}),
    ],
    ids=["5x5 of 1", "5x5 of 8", "3x3", "3x3 stride 2", "1x1"],
)
def test_a_tile_of_sums_in_registers_and_few_loads(x, outputs, kernel, attributes, target, sums):
    _, dw = node(x, outputs, kernel, **attributes)
    kernel_ = lowered(dw, target)
    assert kernel_.implementation == f"conv_weight_{target.lanes(32)}"
    counts, code = busiest(kernel_, target)
    assert counts.fma >= sums
    assert counts.spills == 0
    assert not any("gather" in line for line in code)
    loads = sum("(" in line and line.startswith("v") for line in code)
    assert loads <= 0.75 * counts.fma


def test_short_rows_go_along_the_outputs():
    inputs, dw = node((16, 8, 4, 4), 32, (3, 3), pads=(1,) * 4)
    for target in (AVX2, AVX512):
        kernel = lowered(dw, target)
        assert kernel.implementation == "conv_weight_channels"
        counts, _ = busiest(kernel, target)
        assert counts.fma >= 8
        assert counts.spills == 0
    exe = agrees(inputs, dw, threads=2)
    assert "schedule conv_weight (conv_weight_channels)" in str(exe.report())
    agrees(inputs, mc.relu(dw * 2 - 1))
    _, groups = node((16, 8, 4, 4), 32, (3, 3), pads=(1,) * 4, group=2)
    assert lowered(groups, AVX512).implementation == "conv_weight_16"


def test_pixels_of_a_1x1_are_one_axis():
    _, dw = node((8, 128, 28, 28), 128, (1, 1))
    assert "h" not in {loop.split()[1] for loop in str(lowered(dw, AVX512).loops).splitlines()
                       if loop.strip().startswith("for")}  # fmt: skip


def test_what_is_read_more_often_is_the_smaller_one():
    def outermost(x, outputs, **attributes):
        _, dw = node(x, outputs, (3, 3), pads=(1,) * 4, **attributes)
        trace = str(lowered(dw, AVX512).schedule.trace)
        return next(line for line in trace.splitlines() if line.startswith("reorder"))

    assert '["oo", "co"' in outermost((8, 64, 28, 28), 64)
    assert '["co", "oo"' in outermost((8, 64, 56, 56), 60, strides=(2, 2))


def test_threads():
    inputs, dw = node((16, 8, 12, 12), 16, (5, 5))
    exe = agrees(inputs, dw, threads=2)
    assert "parallel(" in exe.kernels[0].trace
