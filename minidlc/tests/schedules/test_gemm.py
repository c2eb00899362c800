"""Matrix products: what the ladder of gemm.py counts, which step is chosen, and the results."""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

import minidlc as mc
from minidlc.benchmarks.gemm import LADDER, compiled
from minidlc.expr.types import dtype
from minidlc.schedules import gemm, gemm_deep, tiles
from minidlc.schedules.product import Product
from minidlc.schedules.tiles import register_tile
from minidlc.target import host
from minidlc.tests.codegen.helpers import WIDTHS
from minidlc.tests.schedules.products import (
    AVX2,
    AVX512,
    MACHINES,
    busiest,
    check,
    chosen,
    kernel,
    lowered,
    only,
    product,
    takes,
)

pytestmark = pytest.mark.llvm
STEPS = ("gemm", "gemm_packed", "gemm_strips", "gemm_blocks")
RNG = np.random.default_rng(0)


def square(n: int) -> mc.Graph:
    return product(mc.f32[n, n], mc.f32[n, n])


@contextmanager
def small():
    """Within it, loops run in parallel and blocks are used at sizes that tests have."""
    with (
        mock.patch.object(gemm, "LARGE", 0),
        mock.patch.object(tiles, "PARALLEL_SUMS", 50),
        mock.patch.object(gemm_deep, "DEPTH", (12,)),
        mock.patch.object(Product, "is_deep", property(lambda p: p.depth > 12)),
    ):
        yield


# the ladder


@pytest.mark.parametrize(("name", "size"), [*((s, 192) for s in STEPS[:3]), ("gemm_blocks", 1024)])
def test_loads_for_a_multiply_add_with_avx2(name, size):
    with only(name):
        step = busiest(kernel(square(size), AVX2))
    assert (step.fma, step.broadcasts, step.loads, step.spills) == (24, 12, 4, 0)  # 2 steps of k
    assert step.loads_each == pytest.approx(1 / 6 + 1 / 2)  # 1/MR + 1/NV
    assert step.others <= 4  # counting, comparing, jumping; all addresses are in the instructions


def test_loads_for_a_multiply_add_with_avx512():
    step = busiest(kernel(square(448), AVX512))
    assert (step.fma, step.loads, step.spills) == (28, 2, 0)
    assert step.broadcasts == 14
    assert step.others <= 4


def test_a_large_tile_is_not_unrolled_over_k():
    assert 'unroll("matmul_c", "ki")' in str(lowered(square(256), AVX2).schedule.trace)
    assert 'unroll("matmul_c", "ki")' not in str(lowered(square(256), AVX512).schedule.trace)


@pytest.mark.parametrize("machine", MACHINES)
def test_sums_stay_in_registers(machine):
    for left, right in (((84, 768), (768, 768)), ((7, 40), (40, 333))):
        code = kernel(product(mc.f32[left], mc.f32[right]), MACHINES[machine])
        assert busiest(code).spills == 0


def test_every_tile_leaves_registers_for_the_operands():
    for registers in (16, 29, 32):
        for lanes in (4, 8, 16):
            for rows in range(1, 40):
                for columns in (1, 5, 16, 31, 64, 300, 1000):
                    height, vectors = register_tile(rows, columns, lanes, registers)
                    assert height <= rows
                    assert (vectors - 1) * lanes < columns
                    assert height * vectors + vectors + 1 <= registers


def test_a_packed_constant_needs_no_mask_at_its_edge():
    w = RNG.standard_normal((40, 13)).astype(np.float32)
    code = kernel(product(mc.f32[18, 40], w), AVX2)
    assert "masked.load" not in code.llvm
    assert "masked.store" in code.llvm  # of the result, 13 wide


# the choice


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "constant", "name"),
    [
        (12, 512, 512, False, "gemm"),  # a copy costs as much as the product
        (128, 64, 64, False, "gemm"),  # the right operand lies in the first cache
        (256, 256, 256, False, "gemm_packed"),
        (512, 512, 512, False, "gemm_strips"),
        (1024, 1024, 1024, False, "gemm_blocks"),
        (256, 256, 16384, False, "gemm_deep"),
        (4, 256, 16384, False, "gemm"),
        (8, 10, 64, True, "gemm_packed"),
        (128, 768, 3072, True, "gemm_strips"),
    ],
)
def test_how_far_up_the_ladder(rows, columns, depth, constant, name):
    right = np.zeros((depth, columns), np.float32) if constant else mc.f32[depth, columns]
    assert chosen(product(mc.f32[rows, depth], right), AVX2) == name


def test_a_constant_is_packed_at_compile_time():
    w = RNG.standard_normal((64, 42)).astype(np.float32)
    found = lowered(product(mc.f32[32, 64], w), AVX2)
    types = [str(p.type) for p in found.loops.params]
    assert types == ["f32[32, 64]", "f32[2, 64, 24]", "f32[32, 42]"]
    assert "prepack" in str(found.schedule.trace)
    assert set(found.loops.buffers()) == {"matmul_c", *(p.name for p in found.loops.params)}


def test_a_right_operand_of_all_batches_is_packed_once():
    with only("gemm_strips"):
        loops = str(lowered(product(mc.f32[4, 12, 40], mc.f32[40, 32]), AVX2).loops)
    assert loops.index("for jo") < loops.index("b_p[") < loops.index("for b0")


def test_the_same_tensor_on_both_sides_is_not_packed():
    g = mc.trace(lambda a: a @ a, mc.f32[64, 64])
    a = RNG.standard_normal((64, 64)).astype(np.float32)
    assert check(g, [a], host()).implementation == "gemm"


def test_blocks_of_terms_are_added_up_in_memory_and_what_follows_comes_after():
    with small():
        graph = product(mc.f32[24, 40], mc.f32[40, 260], mc.relu)
        with only("gemm_deep"):
            loops = str(lowered(graph, AVX2).loops)
            step = busiest(kernel(graph, AVX2))
    assert "for ko" in loops
    assert loops.index("for ko") < loops.index("a_p[") < loops.index("b_p[") < loops.index("relu[")
    assert (step.fma, step.spills) == (24, 0)


def test_strict_code_keeps_the_order_of_the_terms():
    strict = replace(AVX2, precision="strict")
    graph = product(mc.f32[256, 16384], mc.f32[16384, 256])
    assert chosen(graph, strict) != "gemm_deep"
    integers = product(mc.i32[256, 16384], mc.i32[16384, 256])
    assert chosen(integers, strict) == "gemm_deep"


# the epilogue


def test_a_bias_and_an_activation_are_applied_to_the_registers():
    g = product(mc.f32[64, 64], mc.f32[64, 64], lambda y: mc.relu(y + 1.0))
    found = lowered(g, AVX2)
    assert "stack" not in str(found.loops)
    assert busiest(kernel(g, AVX2)).spills == 0


@pytest.mark.parametrize("fn", [mc.gelu, mc.sigmoid, mc.tanh])
def test_a_polynomial_reads_a_tile_on_the_stack(fn):
    g = product(mc.f32[64, 64], mc.f32[64, 64], fn)
    text = str(lowered(g, AVX2).loops)
    assert 'matmul = alloc(f32[6, 16], "stack")' in text
    code = kernel(g, AVX2)
    assert busiest(code).spills == 0
    one_copy = code.llvm.count("stage ")  # the polynomial is written once for a tile, not 12 times
    assert one_copy < 150


# results


@pytest.mark.long
@pytest.mark.parametrize("part", range(1, 6))
def test_more_results(part):
    for seed in range(12 * part, 12 * part + 12):
        check_seed(seed)


def test_results():
    for seed in range(12):
        check_seed(seed)


def check_seed(seed):
    """A product of any size, element, batch and epilogue, by any step, shared by threads."""
    draw = random.Random(seed).choice
    rows, columns, depth = (draw((1, 2, 5, 6, 7, 13, 16, 17, 31, 48, 64, 100)) for _ in range(3))
    batch = draw(((), (), (3,), (2, 5)))
    element = dtype(draw(("f32", "f32", "f32", "f64", "f16", "bf16", "i32", "i8")))
    epilogues = [lambda y: y, mc.relu, lambda y: y + y]
    if element.is_float:
        epilogues += [mc.gelu, lambda y: mc.relu(mc.gelu(y) + y)]
    shape = (*draw((batch, ())), depth, columns)
    rng = np.random.default_rng(seed)
    x, w = (rng.integers(-3, 4, s).astype(element.numpy) for s in ((*batch, rows, depth), shape))
    right = draw((w, element[shape]))
    graph = product(element[x.shape], right, draw(epilogues))
    arrays, machine = [x] if right is w else [x, w], host(draw(WIDTHS))
    with small():
        name = draw((None, *STEPS, "gemm_deep"))
        with only(name if takes(name, graph, machine) else None):
            check(graph, arrays, machine, threads=draw((1, 2)))


@pytest.mark.parametrize("name", STEPS)
def test_strict_code_adds_up_in_order(name):
    a, b = (RNG.standard_normal(s).astype(np.float32) for s in ((37, 65), (65, 50)))
    g = product(mc.f32[37, 65], mc.f32[65, 50])
    (plain,) = mc.compile(g, precision="strict", opt_level=0)(a, b)
    with only(name), small():
        (fast,) = mc.compile(g, precision="strict", threads=2)(a, b)
    np.testing.assert_array_equal(fast, plain)


@pytest.mark.parametrize("shape", [((0, 4), (4, 3)), ((3, 0), (0, 4)), ((3, 4), (4, 0))])
def test_nothing_to_add_up(shape):
    arrays = [np.ones(s, np.float32) for s in shape]
    for right in (arrays[1], mc.f32[shape[1]]):
        g = product(mc.f32[shape[0]], right)
        check(g, arrays if right is not arrays[1] else arrays[:1], host())


def test_vectors_are_as_wide_as_what_is_computed():
    for element, lanes in (("f64", 4), ("f32", 8), ("f16", 8), ("i8", 8), ("i64", 4)):
        t = dtype(element)
        trace = str(lowered(product(t[32, 32], t[32, 64]), AVX2).schedule.trace)
        assert f'"ji", {lanes}, ["jv", "jl"]' in trace


@pytest.mark.parametrize("step", LADDER)
def test_each_step_of_the_benchmark_computes_the_product(step):
    a, b = (RNG.standard_normal((50, 50)).astype(np.float32) for _ in range(2))
    np.testing.assert_allclose(compiled(50, step=LADDER[step])(a, b)[0], a @ b, atol=1e-4)
