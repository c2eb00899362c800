"""Products with vectors: one row, dots along the rows of a matrix."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.target import host
from minidlc.tests.schedules.products import AVX2, busiest, check, kernel, lowered, product

pytestmark = pytest.mark.llvm
RNG = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("left", "right", "name"),
    [
        ((1, 40), (40, 300), "gemv"),
        ((40,), (40, 7), "gemv"),
        ((3, 1, 40), (40, 30), "gemv"),
        ((3, 1, 40), (3, 40, 30), "gemv"),
        ((50, 40), (40,), "gemv_dots"),
        ((50, 40), (40, 1), "gemv_dots"),
        ((3, 50, 40), (40,), "gemv_dots"),
        ((1, 40), (40, 1), "gemv_dots"),
        ((40,), (3, 40, 20), "gemm"),  # a matrix each: no right operand of all rows
    ],
)
def test_which_way_the_matrix_is_read(left, right, name):
    arrays = [array(*left), array(*right)]
    graph = product(mc.f32[left], mc.f32[right], mc.relu)
    assert check(graph, arrays, host()).implementation == name
    assert check(product(mc.f32[left], arrays[1], mc.relu), arrays[:1], host()).kind == "matmul"


def test_a_row_loads_the_matrix_once():
    step = busiest(kernel(product(mc.f32[1, 512], mc.f32[512, 512]), AVX2))
    assert step.fma == step.loads == 4 * 7  # 7 vectors of columns, 4 steps of k
    assert step.broadcasts == 4
    assert step.spills == 0
    assert step.others <= 8


def test_a_constant_matrix_is_read_from_one_end_to_the_other():
    found = lowered(product(mc.f32[1, 64], array(64, 512)), AVX2)
    assert str(found.loops.params[1].type) == "f32[10, 64, 56]"


def test_a_constant_matrix_on_the_left_is_packed_for_columns():
    w = array(256, 64)
    found = lowered(mc.trace(lambda x: w @ x, mc.f32[64]), AVX2)
    assert "prepack" in str(found.schedule.trace)


@pytest.mark.parametrize("left", [(1, 300), (17, 300)])
def test_strict_code_adds_up_in_order(left):
    right = (300, 33) if left[0] == 1 else (300,)
    a, b = array(*left), array(*right)
    g = product(mc.f32[left], mc.f32[right])
    (plain,) = mc.compile(g, precision="strict", opt_level=0)(a, b)
    np.testing.assert_array_equal(mc.compile(g, precision="strict")(a, b)[0], plain)
