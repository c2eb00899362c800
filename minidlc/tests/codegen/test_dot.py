"""dot4 as machine code: exact on this machine, one instruction where a machine has it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from minidlc import target
from minidlc.codegen.asm import inner_loops
from minidlc.codegen.compile import compile_kernel, run_kernel
from minidlc.loop.text import parse_function
from minidlc.target import Target
from minidlc.tests.codegen.helpers import WIDTHS, check
from minidlc.tests.te.test_tensorize import arrays, packed, product, tiled

pytestmark = [pytest.mark.llvm, pytest.mark.ch05]

LINUX = "x86_64-unknown-linux-gnu"
AVX512 = "+avx512f,+avx512bw,+avx512vl"
CASCADE_LAKE = Target(LINUX, "cascadelake", f"{AVX512},+avx512vnni", 512, 32)
SKYLAKE = Target(LINUX, "skylake-avx512", AVX512, 512, 32)
ALDER_LAKE = Target(LINUX, "alderlake", "+avx2,+fma,+avxvnni", 256, 16)
HASWELL = Target(LINUX, "haswell", "+avx2,+fma", 256, 16)
NEHALEM = Target(LINUX, "nehalem", "", 128, 16)
NEOVERSE = Target("aarch64-unknown-linux-gnu", "neoverse-v1", "+neon,+i8mm", 128, 32)
CORTEX = Target("aarch64-unknown-linux-gnu", "cortex-a72", "+neon", 128, 32)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("shape", [(6, 16, 12), (5, 21, 14), (4, 40, 64)])
def test_a_product_of_bytes_is_exact(shape: tuple[int, int, int], width: int) -> None:
    machine = target.host(vector_width=width)
    sch = tiled(*shape, lanes=width)
    given = arrays(*shape)
    buffers = packed(sch, given)
    fn = sch.lower(lanes=width)
    kernel = compile_kernel(fn, machine, cache=False)
    run_kernel(kernel, [buffers[p.name] for p in fn.params])
    np.testing.assert_array_equal(buffers["C"], product(given))


@pytest.mark.parametrize("a", [0, 128, 255])
@pytest.mark.parametrize("b", [-128, -1, 127])
def test_extremes(a: int, b: int) -> None:
    text = dot(16)
    given = {
        "A": np.array([a, 255, a, 255], np.uint8),
        "B": np.full((16, 4), b, np.int8),
        "C": np.full(16, 2**31 - 5, np.int32),
    }
    given["B"][::2, 1:3] = -128
    given["B"][1::3, 3] = 127
    for width in WIDTHS:
        check(text, target.host(vector_width=width), arrays=given)


def dot(n: int, a: str = "A[{n}]", b: str = "B[j, {n}]", dims: str = "4") -> str:
    """One dot4 a lane."""
    factors = [x.format(n=n) for x in (a, b) for n in range(4)]
    return (
        f"def f(A: u8[{dims}], B: i8[{n}, 4], C: i32[{n}]):\n"
        f"    for j in vectorized(0, {n}):\n"
        f"        C[j] = dot4(C[j], {', '.join(factors)})\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        dot(13),
        dot(13, "A[4*j + {n}]", "B[j, {n}]", "52"),
        dot(13, "A[4*j + {n}]", "B[2, {n}]", "52"),
        dot(13, "A[j + {n}]", "B[j, {n}]", "16"),  # not side by side: a gather
        dot(13, "A[3 - {n}]", "B[j, {n}]"),
        dot(13, "A[2]", "B[j, {n}]"),
        dot(13, "A[{n}]", "B[j, {n}]").replace("vectorized", "serial"),
        dot(13).replace("C[j] = dot4(", "if 9 - j >= 0:\n            C[j] = dot4("),
    ],
)
@pytest.mark.parametrize("width", WIDTHS)
def test_wherever_the_bytes_lie(text: str, width: int) -> None:
    rng = np.random.default_rng(3)
    fn = parse_function(text)
    given = {
        p.name: rng.integers(np.iinfo(p.type.dtype.numpy).min, np.iinfo(p.type.dtype.numpy).max, p.type.dims, endpoint=True).astype(p.type.dtype.numpy)  # noqa: E501
        for p in fn.params
    }  # fmt: skip
    check(fn, target.host(vector_width=width), arrays=given)


def instructions(machine: Target, lanes: int) -> tuple[str, str]:
    """The innermost loop with most dot products, and all the assembly."""
    kernel = compile_kernel(tiled(6, 64, 64, lanes).lower(), machine, cache=False)
    found = max(inner_loops(kernel.asm), key=len)
    return found, kernel.asm


@pytest.mark.parametrize(
    ("machine", "lanes", "instruction", "times"),
    [
        (CASCADE_LAKE, 16, r"vpdpbusd\s.*%zmm", 2),
        (ALDER_LAKE, 8, r"vpdpbusd\s.*%ymm", 2),
        (SKYLAKE, 16, r"vpmaddwd\s.*%zmm", 4),
        (HASWELL, 8, r"vpmaddwd\s.*%ymm", 4),
        (NEHALEM, 4, r"pmaddwd\s.*%xmm", 4),
        (NEOVERSE, 4, r"usdot\s+v\d+\.4s", 2),
    ],
)
def test_the_instruction_of_each_machine(
    machine: Target, lanes: int, instruction: str, times: int
) -> None:
    """Two rows of one vector: two dot products, an instruction for each or two."""
    loop, asm = instructions(machine, lanes)
    assert len(re.findall(instruction, loop)) == times
    assert "pmaddubsw" not in asm  # it saturates


def test_other_machines_multiply_words() -> None:
    _, asm = instructions(CORTEX, 4)
    assert re.search(r"\bmla\s+v\d+\.4s", asm)
