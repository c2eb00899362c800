"""Counting instructions in assembly text."""

from __future__ import annotations

from minidlc.codegen.asm import count, inner_loops

X86 = """
f:
\tpushq\t%rbx
.LBB0_1:
\tmovq\t%rsi, %r8
.LBB0_2:
\tvbroadcastss\t-4(%rdi,%r11,4), %zmm30
\tvfmadd231ps\t%zmm29, %zmm30, %zmm27
\tvfmadd231ss\t%xmm1, %xmm2, %xmm3
\tvmovups\t%zmm3, 64(%rsp)
\tvmovaps\t-32(%rsp), %ymm3
\tmovq\t%rax, 8(%rsp)
\tcallq\texpf@PLT
\tjb\t.LBB0_2
\tvmovups\t%zmm27, (%rcx,%r10,4)
\tjne\t.LBB0_1
.LBB0_3:
\tvaddps\t%xmm1, %xmm2, %xmm3
\tjmp\t.LBB0_3
\tretq
"""

ARM = """
f:
.LBB0_1:
\tldr\tq0, [x1], #16
\tfmla\tv2.4s, v0.4s, v1.s[0]
\tfmadd\ts0, s1, s2, s3
\tstr\tq3, [sp, #16]
\tsubs\tx8, x8, #1
\tb.ne\t.LBB0_1
\tret
"""


def test_loops_of_x86() -> None:
    inner, last = inner_loops(X86)
    found = count(inner)
    assert (found.fma, found.spills, found.calls) == (1, 2, 1)
    assert found.instructions == 8
    assert count(last).fma == 0


def test_loops_of_arm() -> None:
    (loop,) = inner_loops(ARM)
    found = count(loop)
    assert (found.fma, found.spills) == (1, 1)


def test_no_loop() -> None:
    assert inner_loops("f:\n\tretq\n") == []
    assert count("").instructions == 0


def test_an_array_that_starts_at_rbp_is_no_spill() -> None:
    array = "\tvbroadcastss\t-1596(%rbp,%r9,4), %ymm13\n\tvmovss\t-64(%rbp), %xmm8\n"
    stack = "\tvmovaps\t64(%rsp), %ymm13\n"
    assert (count(array).spills, count(stack).spills) == (0, 1)
