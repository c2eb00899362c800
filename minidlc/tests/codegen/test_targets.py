"""Other machines: older x86 runs here, ARM is compiled and its assembly read."""

from __future__ import annotations

import pytest

from minidlc import target
from minidlc.codegen.asm import count, inner_loops
from minidlc.codegen.compile import compile_kernel
from minidlc.loop.text import parse_function
from minidlc.target import Target
from minidlc.tests.codegen.helpers import check
from minidlc.tests.codegen.test_gemm import gemm
from minidlc.tests.codegen.test_random import Program

pytestmark = pytest.mark.llvm

ARM = Target("aarch64-unknown-linux-gnu", "cortex-a76", "+neon,+fullfp16", 128, 32)
SSE = ("x86-64", "", 128)
AVX2 = ("haswell", "+avx2,+fma,+f16c", 256)

FUNCTIONS = """
def f(A: f32[37], C: f32[37], D: f16[37], E: bf16[37]):
    for i in vectorized(0, 37):
        C[i] = exp(A[i]) + tanh(A[i]) * erf(A[i]) + sigmoid(A[i]) + log(abs(A[i])) + floor(A[i])
    for i in vectorized(0, 37):
        D[i] = cast("f16", A[i]) * cast("f16", 2.0)
        E[i] = cast("bf16", A[36 - i]) + cast("bf16", 2.0)
"""


def older(machine: tuple[str, str, int]) -> Target:
    cpu, features, bits = machine
    return Target(target.host().triple, cpu, features, bits, 16)


def is_there(machine: tuple[str, str, int]) -> bool:
    host = target.host()
    return host.is_x86 and host.vector_bits >= machine[2]


@pytest.mark.parametrize("machine", [SSE, AVX2], ids=["sse", "avx2"])
def test_older_x86(machine: tuple[str, str, int]) -> None:
    if not is_there(machine):
        pytest.skip("this machine cannot run that code")
    check(FUNCTIONS, older(machine), rtol=2e-2)
    for seed in range(300, 312):
        program = Program(seed)
        if "register" not in (text := program.text()):
            check(text, older(machine), rtol=1e-4)


def test_avx2_tile_fits_sixteen_registers() -> None:
    kernel = compile_kernel(parse_function(gemm(252, 6, 2, 8)), older(AVX2), cache=False)
    busiest = max((count(x) for x in inner_loops(kernel.asm)), key=lambda c: c.fma)
    assert (busiest.fma, busiest.spills) == (12, 0)


def test_too_large_a_tile_spills_and_the_count_sees_it() -> None:
    kernel = compile_kernel(parse_function(gemm(252, 14, 2, 8)), older(AVX2), cache=False)
    assert max(count(x).spills for x in inner_loops(kernel.asm)) > 0


def test_arm() -> None:
    kernel = compile_kernel(parse_function(gemm(252, 7, 3, 4)), ARM, cache=False)
    busiest = max((count(x) for x in inner_loops(kernel.asm)), key=lambda c: c.fma)
    assert (busiest.fma, busiest.spills) == (21, 0)
    assert kernel.object[:4] == b"\x7fELF"
    other = compile_kernel(parse_function(FUNCTIONS), ARM, cache=False)
    assert "\tbl\t" not in other.asm
