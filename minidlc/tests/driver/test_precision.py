"""precision=: strict code adds up in the order of the plain loops; fast takes finite numbers."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.support.errors import OptionError

pytestmark = pytest.mark.llvm
RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


PROGRAMS = {
    "matmul": (lambda a, b: mc.relu(a @ b + 1.0), ((37, 65), (65, 50))),
    "conv": (lambda x, w: mc.conv(x, w, pads=(1, 1, 1, 1)), ((1, 3, 9, 17), (8, 3, 3, 3))),
    "sum": (lambda x: mc.sum(x, axes=(1,)), ((5, 1000),)),
    "chain": (lambda x, y, z: x * y + z * 0.1 - x, ((7, 33), (7, 33), (7, 33))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_strict_is_bit_equal_to_the_plain_loops(name):
    fn, shapes = PROGRAMS[name]
    g = mc.trace(fn, *(mc.f32[s] for s in shapes))
    arrays = [floats(*s) for s in shapes]
    (plain,) = mc.compile(g, precision="strict", opt_level=0, threads=1)(*arrays)
    for width in (4, 8):
        target = mc.target.host(vector_width=width)
        (fast,) = mc.compile(g, precision="strict", target=target, threads=2)(*arrays)
        np.testing.assert_array_equal(fast, plain)


def test_strict_code_holds_no_fused_product_and_sum():
    fn, shapes = PROGRAMS["matmul"]
    g = mc.trace(fn, *(mc.f32[s] for s in shapes))
    strict = mc.compile(g, precision="strict").kernels[0].llvm
    default = mc.compile(g).kernels[0].llvm
    assert "contract" in default
    assert "contract" not in strict
    assert "reassoc" not in strict


def test_a_sum_in_order():
    x = np.array([[1e8, 1.0, -1e8, 1.0] * 8], np.float32)
    total = np.float32(0)
    for v in x[0]:
        total += v
    g = mc.trace(lambda x: mc.sum(x, axes=(1,)), mc.f32[1, 32])
    assert mc.compile(g, precision="strict")(x)[0].item() == total


@pytest.mark.parametrize(
    ("fn", "value"), [(lambda x: x * 0, 0), (lambda x: x - x, 0), (lambda x: x / x, 1)]
)
def test_fast_takes_every_number_for_finite(fn, value):
    g = mc.trace(fn, mc.f32[3])
    x = np.array([np.nan, np.inf, 2], np.float32)
    np.testing.assert_array_equal(mc.compile(g, precision="fast")(x)[0], [value] * 3)
    for precision in ("default", "strict"):
        np.testing.assert_array_equal(mc.compile(g, precision=precision)(x), mc.interpret(g, [x]))


def test_an_unknown_precision():
    with pytest.raises(OptionError, match="expected one of strict, default, fast, got 'strickt'"):
        mc.compile(mc.trace(lambda x: x, mc.f32[3]), precision="strickt")
