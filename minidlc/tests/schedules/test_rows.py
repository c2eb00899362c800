"""Row kernels: sums in vector accumulators, rows kept in cache, one division a row."""

from __future__ import annotations

import re

import numpy as np
import pytest

import minidlc as mc
from minidlc.codegen.asm import count, inner_loops
from minidlc.expr.types import dtype
from minidlc.loop.interpret import interpret
from minidlc.schedules import Group, injective
from minidlc.schedules.rows import schedule_rows
from minidlc.te import compute, create_schedule, lower, placeholder, reduce_axis
from minidlc.te import max as te_max
from minidlc.te import sum as te_sum
from minidlc.tests.codegen.helpers import WIDTHS

pytestmark = pytest.mark.llvm

RNG = np.random.default_rng(0)
LENGTHS = (1, 7, 8, 10, 31, 32, 33, 64, 197, 1000)


def compiled(fn, *types, **options):
    exe = mc.compile(mc.trace(fn, *types), **{"threads": 1, **options})
    assert len(exe.kernels) == 1, exe.report()
    return exe


def values(t):
    if t.dtype.is_float:
        return RNG.uniform(-2, 2, t.dims).astype(t.dtype.numpy)
    return RNG.integers(-50 if t.dtype.kind == "int" else 0, 50, t.dims).astype(t.dtype.numpy)


def check(fn, *types, rtol=1e-5, atol=1e-5, **options):
    exe = compiled(fn, *types, **options)
    arrays = [values(t) for t in types]
    (want,) = mc.interpret(mc.trace(fn, *types), arrays)
    np.testing.assert_allclose(
        exe(*arrays)[0].astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol
    )
    return exe.kernels[0]


def softmax(x):
    return mc.softmax(x, axis=-1)


def layer_norm(x, s, b):
    return mc.layer_norm(x, s, b)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("n", [10, 197])
def test_rows(width, n):
    check_rows(n, target=mc.target.host(vector_width=width))


@pytest.mark.long
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("precision", ["default", "strict"])
def test_rows_of_every_length(width, precision):
    for n in LENGTHS:
        check_rows(n, target=mc.target.host(vector_width=width), precision=precision)


def check_rows(n, **options):
    check(softmax, mc.f32[3, n], **options)
    check(layer_norm, mc.f32[3, n], mc.f32[n], mc.f32[n], atol=1e-4, **options)
    check(lambda x: mc.sum(x, axes=(1,)), mc.f32[3, n], atol=1e-4, **options)
    check(lambda x: mc.max(x, axes=(-1,), keepdims=False), mc.f32[3, n], **options)


@pytest.mark.parametrize(
    "shape", [(5, 1), (1, 9), (2, 3, 5), pytest.param((2, 5, 3, 4), marks=pytest.mark.long)]
)
def test_every_set_of_axes(shape):
    rank = len(shape)
    for bits in range(1, 1 << rank):
        axes = tuple(a for a in range(rank) if bits >> a & 1)
        for keepdims in (True, False):
            check(lambda x, a=axes, k=keepdims: mc.mean(x, axes=a, keepdims=k), mc.f32[shape])
    for axis in range(rank):
        check(lambda x, a=axis: mc.softmax(x, axis=a), mc.f32[shape])
        check(lambda x, a=axis: mc.arg_max(x, axis=a), mc.f32[shape])


@pytest.mark.parametrize("element", ["f64", "f16", "bf16"])
def test_other_floats(element):
    t, bound = dtype(element), {"f64": 1e-12}.get(element, 2e-2)
    check(softmax, t[3, 37], rtol=bound, atol=bound)
    check(layer_norm, t[3, 37], t[37], t[37], rtol=bound, atol=4 * bound)


@pytest.mark.parametrize("element", ["i32", "i64", "u8", "i8"])
def test_integers_are_summed_in_vectors_also_in_strict_precision(element):
    t = dtype(element)
    for axes in ((1,), (0,), (0, 1)):
        kernel = check(
            lambda x, a=axes: mc.sum(x, axes=a), t[6, 200], rtol=0, atol=0, precision="strict"
        )
    assert "rfactor" in kernel.trace


def test_strict_precision_keeps_the_order_of_a_sum():
    kernel = check(lambda x: mc.sum(x, axes=(1,)), mc.f32[6, 200], precision="strict")
    assert "rfactor" not in kernel.trace
    kernel = check(softmax, mc.f32[6, 200], precision="strict")
    assert "factor" not in kernel.trace  # no reciprocal either
    assert kernel.lowered.implementation == "softmax_in_order"


def test_a_whole_tensor_is_summed_in_blocks_by_threads():
    x = np.ones((300, 1000), np.float32)
    exe = compiled(lambda x: mc.sum(x, keepdims=False), mc.f32[300, 1000], threads=2)
    assert "parallel(" in exe.kernels[0].trace
    assert exe(x)[0] == 300_000


def test_nan_and_infinity_in_a_row():
    x = np.zeros((4, 70), np.float32)
    x[0, 3], x[1, 65], x[2, 69] = np.nan, np.inf, -np.inf
    exe = compiled(softmax, mc.f32[4, 70])
    np.testing.assert_allclose(exe(x)[0], mc.interpret(exe.source, [x])[0], rtol=1e-5)
    largest = compiled(lambda x: mc.max(x, axes=(1,)), mc.f32[4, 70])
    np.testing.assert_array_equal(largest(x)[0][:, 0], [np.nan, np.inf, 0, 0])


AVX2 = mc.target.Target(
    "x86_64-unknown-linux-gnu", "haswell", "+avx,+avx2,+fma", vector_bits=256, registers=16
)


def assembly(fn, *types):
    graph = mc.trace(fn, *types)
    return mc.compile(graph, threads=1, target=AVX2).kernels[0].asm


def busiest(asm, instruction):
    return max(len(re.findall(rf"\b{instruction}\b", loop)) for loop in inner_loops(asm))


@pytest.mark.skipif(not mc.target.host().is_x86, reason="counts instructions of x86-64")
def test_a_sum_has_four_accumulators_and_one_load_for_each_addition():
    asm = assembly(lambda x: mc.sum(x, axes=(1,)), mc.f32[64, 1024])
    (loop,) = inner_loops(asm)
    added = [line for line in loop.splitlines() if "vaddps" in line]
    assert len(added) == 4
    assert all("(%" in line for line in added)  # the load is part of the addition
    assert len({line.split(",")[-1].strip() for line in added}) == 4
    assert count(asm).spills == 0


@pytest.mark.skipif(not mc.target.host().is_x86, reason="counts instructions of x86-64")
def test_columns_are_summed_in_registers():
    asm = assembly(lambda x: mc.sum(x, axes=(0,)), mc.f32[300, 1024])
    loop = max(inner_loops(asm), key=lambda text: text.count("vaddps"))
    assert loop.count("vaddps") == 8
    assert "vmovups" not in loop  # neither a load nor a store of a sum


@pytest.mark.skipif(not mc.target.host().is_x86, reason="counts instructions of x86-64")
def test_softmax_divides_once_a_row():
    asm = assembly(softmax, mc.f32[64, 256])
    assert busiest(asm, r"v?divps") == 0
    assert "masked" not in asm
    norm = assembly(layer_norm, mc.f32[64, 256], mc.f32[256], mc.f32[256])
    assert busiest(norm, r"vdivps") == busiest(norm, r"vsqrtss") == 0


def test_a_norm_is_one_kernel_and_so_is_what_follows_it():
    def gated(x, s, b):
        return mc.sigmoid(mc.layer_norm(x, s, b)) * 2.0

    check(gated, mc.f32[5, 70], mc.f32[70], mc.f32[70], atol=1e-4)
    check(lambda x: mc.softmax(x) * 0.5 + 1.0, mc.f32[5, 70])
    check(lambda x, s: mc.rms_norm(x, s), mc.f32[5, 70], mc.f32[70])
    check(lambda x, s, b: mc.instance_norm(x, s, b), mc.f32[2, 3, 7, 7], mc.f32[3], mc.f32[3])


def test_no_rows_and_no_columns():
    for shape in ((0, 5), (5, 0), (0, 0)):
        check(softmax, mc.f32[shape])
        check(lambda x: mc.sum(x, axes=(1,)), mc.f32[shape])


def test_the_weights_of_a_softmax_are_exponentials_until_they_do_not_count():
    x = np.linspace(-110, 0, 20_000, dtype=np.float32)
    exe = compiled(softmax, mc.f32[20_000, 2])
    pairs = np.stack([x, np.zeros_like(x)], axis=1)
    weights = exe(pairs)[0][:, 0]
    want = np.exp(x.astype(np.float64)) / (np.exp(x.astype(np.float64)) + 1)
    ends = want < 2.0**-126
    np.testing.assert_allclose(weights[~ends], want[~ends], rtol=4e-7)
    assert (weights[ends] <= 2.0**-126).all()
    assert (weights[x < -88] == 0).all()


def _random_row_op(rng, t, shape):
    """An op over some axes of `shape`, and the types that it takes."""
    axis, x = int(rng.integers(0, len(shape))), t[shape]
    axes = tuple(sorted({axis, int(rng.integers(0, len(shape)))}))
    keep = bool(rng.integers(0, 2))
    floats = (
        (lambda x: mc.softmax(x, axis=axis), x),
        (lambda x: mc.log_softmax(x, axis=axis), x),
        (lambda x: mc.gelu(mc.softmax(x, axis=axis) * 3.0) + x, x),
        (lambda x, s, b: mc.layer_norm(x, s, b, axis=axis), x, t[shape[axis:]], t[shape[axis:]]),
        (lambda x, s: mc.rms_norm(x, s, axis=axis), x, t[shape[axis:]]),
    )
    every = (
        (lambda x: mc.sum(x, axes=axes, keepdims=keep), x),
        (lambda x: mc.mean(x, axes=axes, keepdims=keep), x),
        (lambda x: mc.min(x, axes=axes, keepdims=keep), x),
        (lambda x: mc.arg_max(x, axis=axis, keepdims=keep), x),
    )
    choice = (*every, *floats) if t.is_float else every
    return choice[rng.integers(0, len(choice))]


@pytest.mark.long
def test_random_shapes_axes_types_and_threads(monkeypatch):
    sizes = (1, 2, 3, 5, 7, 8, 9, 16, 17, 31, 33, 65, 197)
    bounds = {"f32": 2e-4, "f64": 1e-9, "f16": 3e-2}
    for seed in range(80):
        rng = np.random.default_rng(seed)
        shape = tuple(int(n) for n in rng.choice(sizes, int(rng.integers(1, 4))))
        t = dtype(str(rng.choice(["f32", "f32", "f64", "f16", "i32", "i64", "u8"])))
        fn, *types = _random_row_op(rng, t, shape)
        monkeypatch.setattr(injective, "PARALLEL_WORK", int(rng.choice([50, 1 << 16])))
        check(
            fn,
            *types,
            rtol=bounds.get(t.name, 0),
            atol=bounds.get(t.name, 0),
            threads=int(rng.integers(1, 3)),
            precision=str(rng.choice(["default", "strict"])),
            target=mc.target.host(vector_width=int(rng.choice(WIDTHS))),
        )


def test_the_next_row_is_fetched_while_exponentials_are_computed():
    rows = AVX2.l2 // 4096 + 1
    trace = mc.compile(mc.trace(softmax, mc.f32[rows, 1024]), target=AVX2).kernels[0].trace
    assert 'prefetch("softmax_exp", "x", "jo", 128)' in trace  # 128 vectors: one row
    small = mc.compile(mc.trace(softmax, mc.f32[8, 1024]), target=AVX2).kernels[0].trace
    assert "prefetch" not in small


def deep(fn, steps=4):
    """An epilogue of which a stage is kept: the last one does not read the sums itself."""

    def long(*inputs):
        y = fn(*inputs)
        for _ in range(steps):
            y = mc.gelu(y, approximate="tanh")
        return y

    return long


@pytest.mark.parametrize("precision", ["default", "strict"])
@pytest.mark.parametrize("n", [5, 33])
def test_rows_that_the_last_stage_looks_up_through_a_kept_one(n, precision):
    """Sums are computed for each row and in registers, as without the epilogue."""
    channels = mc.f32[6]
    kernel = check(deep(mc.instance_norm), mc.f32[2, 6, n], channels, channels, precision=precision)
    loops = str(kernel.loops)
    kept = re.search(r"(gelu\S*) = alloc\(f32\[(.*)\], \"(.*)\"\)", loops)
    assert (kept[2], kept[3]) == (f"1, 1, {n}", "stack")


@pytest.mark.parametrize(("axis", "shape"), [(0, (7, 40)), (0, (7, 9, 40)), (1, (7, 9, 40))])
def test_columns_that_the_last_stage_looks_up_through_a_kept_one(axis, shape):
    check(deep(lambda x: mc.softmax(x, axis=axis)), mc.f32[shape])


def test_a_whole_tensor_that_the_last_stage_looks_up_through_a_kept_one():
    check(deep(lambda x: mc.softmax(x, axis=0)), mc.f32[280])


@pytest.mark.parametrize("columns", [40, 333])
def test_columns_of_which_one_needs_several_rows_of_another(columns):
    """Those rows are no registers: a loop runs over them."""
    x = placeholder(mc.f32[3, 5, columns], "x")
    p, q = reduce_axis(3, "p"), reduce_axis(5, "q")
    s = compute((3, columns), lambda i, w: te_sum(x[i, q, w], q), "s")
    t = compute((columns,), lambda w: te_max(s[p, w], p), "t")
    y = compute((3, 5, columns), lambda i, j, w: x[i, j, w] - t[w], "y")
    sch = create_schedule((y,), checked=False)
    schedule_rows(sch, Group((y,), t), mc.target.host(vector_width=WIDTHS[-1]))
    loops = lower(sch)
    assert "s = alloc(f32[3, " in str(loops)
    assert re.search(r't = alloc\(f32\[\d+\], "register"\)', str(loops))
    given = RNG.integers(-9, 9, (3, 5, columns)).astype(np.float32)
    got = np.empty_like(given)
    interpret(loops, {"x": given, "y": got})
    np.testing.assert_array_equal(got, given - given.sum(axis=1).max(axis=0))
