"""Direct convolution of blocked images: right at every shape, and the loads that are claimed."""

from __future__ import annotations

import pytest

import minidlc as mc
from minidlc.lower.express import express_node
from minidlc.schedules.pixels import flatten_pixels, has_pixels
from minidlc.tests.codegen.helpers import WIDTHS
from minidlc.tests.schedules.blocked import (
    ARM,
    AVX2,
    AVX512,
    MACHINES,
    adds_up_in_order,
    agrees,
    busiest,
    conv,
    image,
    lowered,
)

pytestmark = pytest.mark.llvm

# channels, height, width, outputs, kernel, stride, pad
SHAPES = {
    "3 x 3": (16, 9, 7, 24, 3, 1, 1),
    "a rest of one pixel": (8, 7, 7, 16, 3, 1, 1),
    "two strides": (16, 9, 11, 16, 3, 2, 1),
    "1 x 1": (24, 5, 5, 40, 1, 1, 0),
    "1 x 1, two strides": (16, 8, 8, 16, 1, 2, 0),
    "one pixel": (32, 1, 1, 32, 1, 1, 0),
    "5 x 5": (8, 10, 6, 8, 5, 1, 2),
    "no border": (8, 8, 8, 16, 3, 1, 0),
}
EPILOGUES = {
    "none": lambda y, x: y,
    "relu": lambda y, x: mc.relu(y),
    "clip": lambda y, x: mc.clip(y, min=0.0, max=6.0),
    "residual": lambda y, x: mc.relu(y + x),
    "silu": lambda y, x: y * mc.sigmoid(y),
    "hard_swish": lambda y, x: mc.hard_swish(y),
    "long": lambda y, x: mc.gelu(mc.gelu(mc.gelu(mc.gelu(y, approximate="tanh")))),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_shapes(shape, width):
    channels, height, columns, outputs, kernel, stride, pad = shape
    x = image(channels, height, columns, 8, batch=2)
    inputs, y = conv(x, outputs, kernel, stride, pad)
    agrees(inputs, mc.relu(y), mc.target.host(vector_width=width))


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues(name):
    inputs, y = conv(image(16, 6, 7, 8), 16, 3)
    other = mc.Input("other", y.type)
    z = EPILOGUES[name](y, other)
    agrees([*inputs, other] if name == "residual" else inputs, z)


@pytest.mark.parametrize("block", [2, 4, 16])
def test_blocks_that_are_no_vector(block):
    inputs, y = conv(image(2 * block, 6, 5, block), 3 * block, 3)
    agrees(inputs, mc.relu(y))


def test_a_plain_image():
    inputs, y = conv(mc.Input("x", mc.f32[1, 3, 17, 15]), 16, 7, 2)
    agrees(inputs, mc.relu(y))


@pytest.mark.parametrize("shape", [(64, 14, 14, 64), (128, 7, 7, 128), (16, 56, 56, 16)])
def test_threads(shape):
    channels, height, width, outputs = shape
    inputs, y = conv(image(channels, height, width, 8, batch=2), outputs, 3)
    exe = agrees(inputs, mc.relu(y), threads=2)
    assert "parallel(" in exe.kernels[0].trace


def test_strict_adds_up_in_the_order_of_the_plain_loops():
    inputs, y = conv(image(16, 6, 7, 8), 16, 3)
    adds_up_in_order(inputs, mc.relu(y))


def test_pixels_become_one_axis():
    _, y = conv(image(8, 6, 7, 8), 8, 3)
    group = express_node(y).group
    assert has_pixels(group, AVX2)
    flat = flatten_pixels(group)
    assert flat.anchor.shape == (1, 1, 42, 8)
    assert "kh + q//7, kw + q%7" in str(flat.anchor)
    assert flat.last.shape == group.last.shape
    assert has_pixels(flat, AVX2)


def test_eight_loads_for_twelve_multiply_adds():
    _, y = conv(image(64, 56, 56, 8), 64, 3)
    counts, code = busiest(lowered(y, AVX2), AVX2)
    broadcasts = [x for x in code if x.startswith("vbroadcastss")]
    vectors = [x for x in code if x.startswith("vmovups") and "(" in x.split(",")[0]]
    # 6 pixels x 2 vectors, for each of 8 channels of a block
    assert (counts.fma, len(broadcasts), len(vectors)) == (96, 48, 16)
    assert counts.spills == 0


@pytest.mark.long
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    "shape", [(64, 56, 64, 3), (512, 7, 512, 3), (96, 14, 576, 1), (144, 56, 24, 1)]
)
def test_nothing_spills(machine, shape):
    target = MACHINES[machine]
    channels, size, outputs, kernel = shape
    lanes = target.lanes(32)
    _, y = conv(image(channels, size, size, lanes), outputs // lanes * lanes, kernel)
    counts, _ = busiest(lowered(y, target), target)
    assert counts.spills == 0
    assert counts.fma >= 64


@pytest.mark.parametrize(("target", "least"), [(AVX2, 12), (AVX512, 24), (ARM, 18)])
def test_sums_fill_the_registers(target, least):
    lanes = target.lanes(32)
    _, y = conv(image(64, 56, 56, lanes), 64, 3)
    kernel = lowered(y, target)
    (sums,) = (t for n, t in kernel.loops.buffers().items() if n == "conv2d_nchwc")
    assert sums.size * sums.dtype.bits // target.vector_bits >= least


def test_late_layers_keep_channels_outside_and_early_ones_lines():
    def outer(channels, size):
        _, y = conv(image(channels, size, size, 8), channels, 3)
        return str(lowered(y, AVX2).schedule.trace)

    assert '"qs"' in outer(64, 56)
    assert '"qs"' not in outer(512, 7)
