"""Depthwise convolution of blocked images: right at every shape, and the loads that are claimed."""

from __future__ import annotations

import re

import pytest

import minidlc as mc
from minidlc.tests.codegen.helpers import WIDTHS
from minidlc.tests.schedules.blocked import (
    AVX2,
    MACHINES,
    adds_up_in_order,
    agrees,
    busiest,
    depthwise,
    image,
    lowered,
)

pytestmark = pytest.mark.llvm

# channels, height, width, kernel, stride, pad
SHAPES = {
    "3 x 3": (16, 9, 7, 3, 1, 1),
    "two strides": (16, 9, 11, 3, 2, 1),
    "5 x 5": (8, 10, 13, 5, 1, 2),
    "no border": (8, 8, 8, 3, 1, 0),
    "one pixel": (16, 3, 3, 3, 1, 0),
    "one tap": (8, 4, 5, 1, 1, 0),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_shapes(shape, width):
    channels, height, columns, kernel, stride, pad = shape
    inputs, y = depthwise(image(channels, height, columns, 8, batch=2), kernel, stride, pad)
    agrees(inputs, mc.clip(y, min=0.0, max=6.0), mc.target.host(vector_width=width))


@pytest.mark.parametrize("block", [2, 4, 16])
def test_blocks_that_are_no_vector(block):
    inputs, y = depthwise(image(2 * block, 6, 5, block), 3)
    agrees(inputs, y)


@pytest.mark.parametrize("epilogue", [mc.sigmoid, mc.hard_swish, mc.relu])
def test_epilogues(epilogue):
    inputs, y = depthwise(image(16, 6, 7, 8), 3)
    agrees(inputs, epilogue(y))


@pytest.mark.parametrize("size", [14, 56])
def test_threads(size):
    inputs, y = depthwise(image(96, size, size, 8, batch=2), 3)
    exe = agrees(inputs, mc.relu(y), threads=2)
    assert "parallel(" in exe.kernels[0].trace


def test_strict_adds_up_in_the_order_of_the_plain_loops():
    inputs, y = depthwise(image(16, 6, 7, 8), 3)
    adds_up_in_order(inputs, mc.relu(y))


def test_a_pixel_is_loaded_once_for_the_windows_over_it():
    _, y = depthwise(image(32, 112, 112, 8), 3)
    counts, code = busiest(lowered(y, AVX2), AVX2)
    loads = [x for x in code if x.startswith("v") and re.search(r"\(%r\w+[,)].*%ymm", x)]
    assert counts.fma == 8 * 9  # pixels x taps
    assert len(loads) <= 3 * (8 + 2 + 3) + 1  # for each line 10 pixels, 3 weights; and the bias
    assert counts.spills == 0


@pytest.mark.long
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("size", "stride"), [(112, 2), (14, 1), (7, 1)])
def test_hardly_anything_spills(machine, size, stride):
    target = MACHINES[machine]
    _, y = depthwise(image(64, size, size, target.lanes(32)), 3, stride)
    counts, _ = busiest(lowered(y, target), target)
    assert counts.spills <= (2 if stride > 1 else 0)  # one vector, out and in
    assert counts.fma >= 9 * 4


def test_a_strip_and_its_border_stay_in_part_of_the_cache():
    _, y = depthwise(image(32, 112, 112, 8), 3)
    border = next(t for n, t in lowered(y, AVX2).loops.buffers().items() if n.startswith("pad"))
    assert border.nbytes <= AVX2.l2 // 4
    assert border.shape[:2] == (1, 1)
