"""Facts about the machine code: what the main loops hold, counted in the assembly."""

from __future__ import annotations

import pytest

import minidlc as mc
from minidlc.codegen.asm import count, inner_loops
from minidlc.tests.driver.conftest import case

pytestmark = pytest.mark.llvm


def main_loop(kernel):
    """Counts of the innermost loop with the most multiply-adds."""
    return max((count(loop) for loop in inner_loops(kernel.asm)), key=lambda c: c.fma)


@pytest.fixture(scope="module")
def kernels():
    if not mc.target.host().has("fma") and not mc.target.host().is_arm:
        pytest.skip("this machine has no fused multiply-add")
    names = ("mnist_cntk", "lenet", "mlp_b1", "mlp_b64")
    lanes = min(8, mc.target.host().lanes(32))  # few channels do not fill a block of 16
    target = mc.target.host(vector_width=lanes)
    models = [case(name).model for name in names]
    return [k for m in models for k in mc.compile(m, threads=1, target=target).kernels]


@pytest.mark.parametrize("kind", ["conv_nchwc", "matmul"])
def test_main_loops_hold_vector_fmas_and_no_spills(kernels, kind):
    chosen = [k for k in kernels if k.lowered.kind == kind]
    assert len(chosen) >= 3
    for kernel in chosen:
        loop = main_loop(kernel)
        assert loop.fma >= 1, kernel.name
        assert loop.spills == 0, kernel.name
        assert loop.calls == 0, kernel.name


def test_a_large_product_is_mostly_multiply_adds():
    a, b = mc.Input("a", mc.f32[256, 256]), mc.Input("b", mc.f32[256, 256])
    (kernel,) = mc.compile(mc.Graph.of("gemm", [a, b], [a @ b]), threads=1).kernels
    loop = main_loop(kernel)
    assert loop.spills == 0
    assert loop.fma >= (16 if mc.target.host().registers >= 32 else 12)
    assert loop.fma >= 0.5 * loop.instructions
