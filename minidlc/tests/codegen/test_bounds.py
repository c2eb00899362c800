"""Nothing outside a parameter is read or written: its end is the end of readable memory."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys

import pytest

from minidlc import target
from minidlc.codegen.llvm import emit
from minidlc.loop.text import parse_function
from minidlc.tests.codegen.helpers import WIDTHS

pytestmark = [
    pytest.mark.llvm,
    pytest.mark.skipif(sys.platform == "win32", reason="uses mprotect"),
]

PAGE = mmap.PAGESIZE

SCRIPT = """
import ctypes, mmap, sys
import numpy as np
from minidlc import target
from minidlc.codegen.compile import compile_kernel
from minidlc.loop.text import parse_function
from minidlc.runtime.native import NativeLibrary
from minidlc.tests.codegen.test_bounds import guarded

source, width = sys.argv[1], int(sys.argv[2])
fn = parse_function(source)
kernel = compile_kernel(fn, target.host(width), cache=False)
library = NativeLibrary((kernel.object,), (kernel.symbol,))
kinds = [ctypes.c_void_p] * (len(fn.params) + 1) + [ctypes.c_int32]
call = ctypes.CFUNCTYPE(None, *kinds)(library.address(kernel.symbol))
for at_end in (True, False):
    call(*(guarded(p.type.nbytes, at_end) for p in fn.params), None, 1)
"""

_keep: list[object] = []


def guarded(nbytes: int, at_end: bool) -> int:
    """Address of a block with a forbidden page right behind it (or right before it)."""
    pages = -(-nbytes // PAGE) + 2
    block = mmap.mmap(-1, pages * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    libc = ctypes.CDLL(None)
    for page in (0, pages - 1):
        assert libc.mprotect(ctypes.c_void_p(address + page * PAGE), PAGE, 0) == 0
    _keep.append(block)
    return address + (pages - 1) * PAGE - nbytes if at_end else address + PAGE


def runs(source: str, width: int) -> bool:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, source, str(width)], capture_output=True, timeout=60
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode == 0


PROGRAM = """
def f(A: f32[4, 19], B: f32[19], C: f32[4, 19], S: f32[4]):
    for i in serial(0, 4):
        for j in vectorized(0, 19):
            C[i, j] = A[i, j] + select(j - 1 >= 0, B[j - 1], 0.0)
        for j in vectorized(0, 19):
            C[i, j] = C[i, j] + select(16 - j >= 0, A[i, j + 2], B[18 - j])
        for j in vectorized(0, 3):
            C[i, j] = select(i - 1 >= 0, A[i - 1, j], 1.0) + select(j - 50 >= 0, B[j + 100], 0.0)
        for j in vectorized(0, 19):
            if j - 3 >= 0:
                C[i, j - 3] = B[j - 3] + select(j - 30 >= 0, S[i + 9], 0.0)
        for j in vectorized(0, 19):
            S[i] = S[i] + A[i, j]
"""


@pytest.mark.parametrize("width", [4, 16])
def test_masks_and_conditions_guard_every_access(width: int) -> None:
    assert runs(PROGRAM, min(width, WIDTHS[-1]))


def test_the_guard_bites() -> None:
    assert not runs("def f(A: f32[19]):\n    for i in serial(0, 20):\n        A[i] = 1.0\n", 4)


def test_the_last_vector_is_masked_only_where_it_would_reach_over_the_end() -> None:
    def text(rows: str) -> str:
        source = f"""
def f(A: f32[4, 7], C: f32[4, 7]):
    for i in serial(0, {rows}):
        for j in vectorized(0, 7):
            C[i, j] = A[i, j]
"""
        return emit(parse_function(source), target.host(4), "f")

    assert "masked.load" in text("4")  # the last row ends with the buffer
    assert "masked.load" not in text("3")
    assert "masked.store" in text("3")
