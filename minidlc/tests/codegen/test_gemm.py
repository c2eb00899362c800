"""A register-tiled matrix product: the code that matters, checked in the assembly."""

from __future__ import annotations

import numpy as np
import pytest

from minidlc import target
from minidlc.codegen.asm import count, inner_loops
from minidlc.codegen.compile import Kernel, compile_kernel, run_kernel
from minidlc.codegen.llvm import emit
from minidlc.loop.text import parse_function
from minidlc.tests.codegen.helpers import WIDTHS
from minidlc.tests.counting import python_calls

AVX2 = target.Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma,+f16c", 256, 16)

pytestmark = pytest.mark.llvm


def gemm(size: int, rows: int, vectors: int, width: int) -> str:
    """`size`**3 by tiles of rows x (vectors * width) in registers; rows must divide."""
    columns = vectors * width
    tile = f"""
                for ii in unrolled(0, {rows}):
                    for jv in unrolled(0, {vectors}):
                        for jl in vectorized(0, {width}):
"""
    return f"""
def gemm(A: f32[{size}, 256], B: f32[256, 256], C: f32[{size}, 256]):
    for io in serial(0, {size // rows}):
        for jo in serial(0, {256 // columns}):
            acc = alloc(f32[{rows}, {columns}], "register")
            for z in serial(0, 1):{tile}
                            acc[ii, {width}*jv + jl] = 0.0
            for k in serial(0, 256):{tile}
                            acc[ii, {width}*jv + jl] = acc[ii, {width}*jv + jl] + \
A[{rows}*io + ii, k] * B[k, {columns}*jo + {width}*jv + jl]
            for z in serial(0, 1):{tile}
                            C[{rows}*io + ii, {columns}*jo + {width}*jv + jl] = \
acc[ii, {width}*jv + jl]
"""


def tile(width: int) -> tuple[int, int, int]:
    """Size of the product, rows and vectors of a tile that fits the registers."""
    return (252, 14, 2) if target.host().registers >= 32 else (252, 6, 2)


def compiled(width: int) -> Kernel:
    size, rows, vectors = tile(width)
    source = gemm(size, rows, vectors, width)
    return compile_kernel(parse_function(source), target.host(width), cache=False)


@pytest.mark.parametrize("width", WIDTHS)
def test_inner_loop_is_fma_without_spills(width: int) -> None:
    kernel = compiled(width)
    _, rows, vectors = tile(width)
    loops = [count(loop) for loop in inner_loops(kernel.asm)]
    busiest = max(loops, key=lambda c: c.fma)
    if target.host().has("fma") or target.host().is_arm:
        assert busiest.fma == rows * vectors
    assert busiest.spills == 0
    assert busiest.calls == 0
    # with AVX2 a broadcast is an instruction of its own, with AVX-512 part of the FMA
    broadcasts, loads, loop = rows, vectors, 4
    assert busiest.instructions <= rows * vectors + broadcasts + loads + loop


@pytest.mark.parametrize("width", WIDTHS)
def test_result(width: int) -> None:
    kernel = compiled(width)
    rng = np.random.default_rng(0)
    a = rng.standard_normal((tile(width)[0], 256)).astype(np.float32)
    b = rng.standard_normal((256, 256)).astype(np.float32)
    c = np.full_like(a, np.nan)
    run_kernel(kernel, [a, b, c])
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_loops_say_how_often_they_run() -> None:
    text = compiled(WIDTHS[-1]).llvm
    size, rows, _ = tile(WIDTHS[-1])
    for trips in (256, size // rows):  # k, io
        assert f'!prof !{{!"branch_weights", i32 {trips - 1}, i32 1}}' in text


def test_sums_stay_in_registers_beside_an_epilogue_of_two_short_loops() -> None:
    """LLVM would keep the constants of the polynomial in them, as the deeper loops look busier."""
    source = gemm(252, 6, 2, 8).replace('"register")', '"register")', 1)
    head, tail = source.rsplit("for z in serial(0, 1):", 1)
    assert "C[" in tail
    copy = tail.replace("C[6*io + ii, 16*jo + 8*jv + jl]", "t[ii, 8*jv + jl]")
    epilogue = """
            for ii in serial(0, 6):
                for jv in serial(0, 2):
                    for jl in vectorized(0, 8):
                        C[6*io + ii, 16*jo + 8*jv + jl] = sigmoid(t[ii, 8*jv + jl])
"""
    stack = 't = alloc(f32[6, 16], "stack")\n            for z in serial(0, 1):'
    text = (head + stack + copy.rstrip() + epilogue).replace("serial(0, 256)", "serial(0, 64)")
    kernel = compile_kernel(parse_function(text), AVX2, cache=False)
    busiest = max((count(loop) for loop in inner_loops(kernel.asm)), key=lambda c: c.fma)
    assert (busiest.fma, busiest.spills) == (12, 0)


def test_emitting_is_little_work() -> None:
    fn = parse_function(gemm(252, 6, 2, 8))
    lines = len(emit(fn, AVX2, "f").splitlines())
    assert lines < 250  # what LLVM has to read
    assert python_calls(lambda: emit(fn, AVX2, "f")) < 100 * lines
