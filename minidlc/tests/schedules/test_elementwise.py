"""Pointwise kernels: rows that memory runs through are one loop, whatever the axes."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.codegen.asm import count, inner_loops
from minidlc.expr.types import dtype
from minidlc.tests.codegen.helpers import WIDTHS
from minidlc.tests.schedules.test_rows import AVX2

pytestmark = pytest.mark.llvm

RNG = np.random.default_rng(0)


def values(t):
    if t.dtype.kind == "bool":
        return RNG.integers(0, 2, t.dims).astype(np.bool_)
    if t.dtype.is_float:
        return RNG.uniform(-2, 2, t.dims).astype(t.dtype.numpy)
    return RNG.integers(0, 50, t.dims).astype(t.dtype.numpy)


def check(fn, *types, rtol=1e-5, **options):
    graph = mc.trace(fn, *types)
    exe = mc.compile(graph, **{"threads": 1, **options})
    arrays = [values(t) for t in types]
    for got, want in zip(exe(*arrays), mc.interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=rtol
        )
    return exe.kernels[0]


def serial_loops(kernel):
    return str(kernel.loops).count("in serial(")


@pytest.mark.parametrize("width", WIDTHS)
def test_axes_are_one_loop_where_memory_runs_on(width):
    target = mc.target.host(vector_width=width)
    same = check(lambda x, y: x * y + x, mc.f32[30, 7, 10], mc.f32[30, 7, 10], target=target)
    assert serial_loops(same) == 1
    number = check(lambda x: x * 2.0 + 1.0, mc.f32[30, 10], target=target)
    assert serial_loops(number) == 1


def test_a_bias_leaves_its_axis_a_loop():
    kernel = check(lambda x, b: x + b, mc.f32[2, 5, 7, 7], mc.f32[5, 1, 1])
    assert 'fuse("add", "k", "l"' in kernel.trace
    assert kernel.trace.count("fuse(") == 1
    assert "gather" not in kernel.llvm
    rows = check(lambda x, b: x + b, mc.f32[2, 5, 30], mc.f32[30])
    assert 'fuse("add", "j", "k"' not in rows.trace


def test_outputs_of_different_sizes_and_types():
    def fn(x, y):
        s = x + y
        return mc.relu(x), s > 0.0, mc.sigmoid(s)

    check(fn, mc.f32[3, 1, 10], mc.f32[4, 10])
    check(fn, mc.f64[3, 1, 10], mc.f64[4, 10], rtol=1e-12)


@pytest.mark.parametrize("element", ["f64", "f16", "bf16", "i8", "u16", "i64"])
def test_lanes_are_those_of_the_widest_type(element):
    bound = {"f64": 1e-12, "f16": 2e-3, "bf16": 2e-2}.get(element, 0)
    t = dtype(element)
    check(lambda x, y: x * y + x, t[5, 37], t[5, 37], rtol=bound)
    check(lambda x: mc.cast(x, to="f32") * 0.5, t[5, 37])
    check(lambda x: mc.cast(x * 3.0, to=element), mc.f32[5, 37], rtol=bound)


def test_none_and_one():
    for shape in ((), (1,), (1, 1), (0,), (3, 0), (0, 3)):
        check(lambda x: mc.exp(x) + 1.0, mc.f32[shape])


def test_long_rows_are_shared_by_threads_in_pieces():
    kernel = check(lambda x: x * 2.0, mc.f32[100_003], threads=2)
    assert "parallel(" in kernel.trace
    assert "parallel(" not in check(lambda x: x * 2.0, mc.f32[1000], threads=2).trace


@pytest.mark.skipif(not mc.target.host().is_x86, reason="counts instructions of x86-64")
def test_a_chain_loads_once_stores_once_and_does_not_spill():
    def gelu(x):
        cubic = x + mc.pow(x, 3.0) * 0.044715
        return x * (mc.tanh(cubic * 0.7978845608) + 1.0) * 0.5

    graph = mc.trace(gelu, mc.f32[64, 64])
    kernels = mc.compile(graph, threads=1, target=AVX2).kernels
    assert len(kernels) == 1
    found = count(kernels[0].asm)
    assert found.calls == 0  # x**3 is two products
    (loop,) = inner_loops(kernels[0].asm)
    assert sum("(%rdi" in line for line in loop.splitlines()) == 1
    assert sum("(%rsi" in line for line in loop.splitlines()) == 1
    assert count(loop).spills == 0
