"""Pools of blocked images: windows over pixels, vectors of channels; and plain ones."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import apply
from minidlc.schedules import implementation
from minidlc.tests.codegen.helpers import WIDTHS
from minidlc.tests.schedules.blocked import AVX2, agrees, image, lowered

pytestmark = pytest.mark.llvm

# op, height, width, kernel, stride, pad
POOLS = {
    "max 3/2": ("max_pool", 13, 9, 3, 2, 1),
    "max 2/2": ("max_pool", 8, 6, 2, 2, 0),
    "average 3/1": ("average_pool", 7, 5, 3, 1, 1),
    "average 2/2": ("average_pool", 8, 8, 2, 2, 0),
    "the whole image": ("max_pool", 7, 7, 7, 1, 0),
}


def pool(name, x, kernel, stride, pad):
    window = {"kernel_shape": (kernel, kernel, 1), "strides": (stride, stride, 1)}
    return apply(name, x, pads=(pad, pad, 0) * 2, **window)


@pytest.mark.parametrize("case", POOLS.values(), ids=POOLS)
@pytest.mark.parametrize("width", WIDTHS)
def test_blocked(case, width):
    name, height, columns, *window = case
    x = image(16, height, columns, 8, batch=2)
    agrees([x], pool(name, x, *window), mc.target.host(vector_width=width))


def test_nan_is_the_largest():
    x = image(8, 6, 6, 8)
    array = np.zeros((1, 1, 6, 6, 8), np.float32)
    array[0, 0, 2, 3, 5] = np.nan
    graph = mc.Graph.of("g", [x], [pool("max_pool", x, 3, 2, 1)])
    got = mc.compile(graph)(array)[0]
    np.testing.assert_array_equal(got, mc.interpret(graph, [array])[0])
    assert np.isnan(got).sum() > 0


def test_blocked_ones_work_on_vectors_of_channels():
    x = image(64, 112, 112, 8)
    kernel = lowered(pool("max_pool", x, 3, 2, 1), AVX2)
    assert kernel.implementation == "pool_blocked"
    assert "parallel(" in str(kernel.schedule.trace)


def test_windows_along_the_last_axis_take_the_plain_way():
    x = mc.Input("x", mc.f32[1, 3, 8, 9, 10])
    y = apply("max_pool", x, kernel_shape=(2, 2, 2), strides=(2, 2, 2))
    kernel = lowered(y, AVX2)
    assert kernel.implementation == "pool"
    assert implementation("pool", kernel.group, AVX2).name == "pool"
    agrees([x], y)
