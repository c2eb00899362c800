"""Loop IR printed and parsed back (what is malformed: tests/errors/test_loop_text.py)."""

from __future__ import annotations

import pytest

from minidlc.loop.nodes import Alloc, Block, For, LoopFunction, walk
from minidlc.loop.text import parse_function, print_function, print_stmt

MATMUL = """\
def matmul(A: f32[4, 8], B: f32[8, 3], C: f32[4, 3]):
    for i in parallel(0, 4):
        for j in serial(0, 3):
            C[i, j] = 0.0
            for k in serial(0, 8):
                C[i, j] = C[i, j] + A[i, k] * B[k, j]
"""

TILED = """\
def tiled(A: f32[127, 64], D: f32[127, 64], s: f32[()], N: i64[4]):
    for io in serial(0, 10):
        C = alloc(f32[14, 32], "register")
        for ii in unrolled(0, min(14, 127 - 14*io)):
            for ji in vectorized(0, 32):
                C[ii, ji] = select(ii - 1 >= 0 and 5 - io >= 0, A[14*io + ii, ji], f32("-inf"))
                if 60 - ji >= 0:
                    D[14*io + ii, ji] = max(C[ii, ji], s[()]) * cast("f32", index(ji%4) + N[ji//16])
    T = alloc(bool[1], "stack")
    T[0] = True
    del T
    U = alloc(f32[2], "arena")
    U[0] = where(s[()] < 0.5, exp(s[()]), -1.5)
    D[0, 0] = U[0]
"""


@pytest.mark.parametrize("text", [MATMUL, TILED, "def nothing(A: f32[4]):\n    pass\n"])
def test_round_trip(text: str) -> None:
    fn = parse_function(text)
    assert str(fn) == text == print_function(fn)
    assert parse_function(str(fn)) == fn


def test_symbolic_sizes_are_variables() -> None:
    text = (
        'def f(A: f32["N", 8], C: f32["N + 1", 8]):\n'
        "    for i in serial(0, N):\n"
        "        C[i + 1, 0] = A[N - i - 1, 0]\n"
    )
    assert str(parse_function(text)) == text


def test_an_allocation_lives_to_the_end_of_its_block_or_its_del() -> None:
    fn = parse_function(TILED)
    assert isinstance(fn.body, Block)
    loop, short, long = fn.body.stmts
    assert isinstance(loop, For)
    assert isinstance(short, Alloc)
    assert isinstance(long, Alloc)
    assert len(list(walk(short.body))) == 1
    assert len(list(walk(long.body))) == 3


def test_text_of_a_statement_alone() -> None:
    body = parse_function(MATMUL).body
    assert print_stmt(body).startswith("for i in parallel(0, 4):\n    for j in serial(0, 3):\n")


def test_outputs_are_what_is_stored() -> None:
    fn = parse_function(MATMUL)
    assert isinstance(fn, LoopFunction)
    assert fn.outputs == ("C",)
