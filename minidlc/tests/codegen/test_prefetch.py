"""Prefetch instructions: one a cache line, without effect on what is computed."""

from __future__ import annotations

import re

import pytest

from minidlc import target
from minidlc.codegen.compile import compile_kernel
from minidlc.loop.text import parse_function
from minidlc.target import Target
from minidlc.tests.codegen.helpers import check

pytestmark = [pytest.mark.llvm, pytest.mark.ch05]
ARM = Target("aarch64-unknown-linux-gnu", "cortex-a76", "+neon", 128, 32)

ROWS = """
def f(A: f32[100], B: f32[100, 48], C: f32[48]):
    for k in {kind}(0, 100{ahead}):
        for v in unrolled(0, 3):
            for j in vectorized(0, 16):
                C[16*v + j] = C[16*v + j] + A[k] * B[k, 16*v + j]
"""


def fetches(text: str, machine: Target | None = None) -> int:
    kernel = compile_kernel(parse_function(text), machine or target.host(), cache=False)
    return len(re.findall(r"\s(?:prefetcht0|prfm\s+pldl1keep,)\s", kernel.asm))


def rows(ahead: str, kind: str = "serial") -> str:
    return ROWS.format(kind=kind, ahead=f", prefetch={{{ahead}}}" if ahead else "")


def test_one_instruction_a_cache_line() -> None:
    assert fetches(rows("")) == 0
    assert fetches(rows('"B": 8')) in (3, 4)  # 48 floats are three lines, or touch a fourth
    assert fetches(rows('"A": 16')) == 1
    assert fetches(rows('"B": 8'), ARM) in (3, 4)


@pytest.mark.parametrize("distance", [1, 8, 1000])
def test_results_do_not_change(distance: int) -> None:
    check(rows(f'"B": {distance}, "A": {distance}'), target.host())


def test_addresses_far_past_the_end_are_no_poison() -> None:
    text = rows('"B": 1000000000000')
    kernel = compile_kernel(parse_function(text), target.host(), cache=False)
    assert "inbounds" not in kernel.llvm
    check(text, target.host())


def test_parallel_loops_and_local_buffers() -> None:
    text = """
def f(A: f32[64, 32], C: f32[64, 32]):
    for i in parallel(0, 64, prefetch={"A": 2}):
        T = alloc(f32[32], "stack")
        for j in vectorized(0, 32):
            T[j] = A[i, j] * 2.0
        for j in serial(0, 32, prefetch={"T": 16}):
            C[i, j] = T[j]
"""
    kernel = check(text, target.host(), threads=2)
    assert kernel.asm.count("prefetcht0") >= (3 if target.host().is_x86 else 0)


def test_positions_in_blocks_are_moved_as_a_whole() -> None:
    text = """
def f(A: f32[8, 16], C: f32[128]):
    for i in serial(0, 128, prefetch={"A": 40}):
        C[i] = A[i//16, i%16]
"""
    check(text, target.host())
    assert fetches(text) == 1


def test_registers_and_lookups_are_left_alone() -> None:
    text = """
def f(A: f32[8], ids: i64[8], C: f32[8]):
    R = alloc(f32[1], "register")
    R[0] = 0.0
    for i in serial(0, 8, prefetch={"A": 2, "R": 1}):
        R[0] = R[0] + A[at(ids[i], 8)]
        C[i] = R[0]
"""
    check(text, target.host())
    assert fetches(text) == 0
