"""Running machine code where nothing but its own arrays can be touched unnoticed.

    outputs = run_fenced(kernel, {"A": a, "B": b}, threads=2)       # {"C": …}

Inputs end where readable memory ends, so that an element too far is a crash. Outputs lie between
margins of known bytes, and start as NaN, as the workspace does: what is read before it was written
spoils the result.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import cache

import numpy as np

from minidlc.codegen.compile import Kernel
from minidlc.expr.types import Array
from minidlc.runtime import pool
from minidlc.runtime.memory import aligned
from minidlc.runtime.native import NativeLibrary

MARGIN, SIZE = 64, 1 << 18
MARK, NAN = 0xA5, 0xFF  # a float of bytes 0xFF is NaN in every format


def run_fenced(kernel: Kernel, arrays: dict[str, Array], threads: int) -> dict[str, Array]:
    """What the kernel stores, by parameter; AssertionError if it changes anything else.

    Parameters that `arrays` does not hold are outputs.
    """
    outputs = {p.name: _Fresh(p.type.dims, p.type.dtype.numpy) for p in kernel.fn.params}
    outputs = {name: x for name, x in outputs.items() if name not in arrays}
    places = {p.name: n for n, p in enumerate(kernel.fn.params) if p.name in arrays}
    inputs = {name: _at_end(n, arrays[name]) for name, n in places.items()}
    workspace = _Fresh((kernel.workspace_bytes(threads),), np.dtype(np.uint8))
    given = {**inputs, **{name: x.array for name, x in outputs.items()}}
    _call(kernel, [given[p.name] for p in kernel.fn.params], workspace.array, threads)
    for name, x in inputs.items():
        assert x.tobytes() == arrays[name].tobytes(), f"the input {name} was changed"
    for name, x in {**outputs, "the workspace": workspace}.items():
        assert x.is_intact(), f"memory beside {name} was changed"
    return {name: x.array for name, x in outputs.items()}


def _call(kernel: Kernel, arrays: list[Array], workspace: Array, threads: int) -> None:
    pool.ensure(threads)
    imports = {"minidlc_parallel_for": pool.parallel_for_address()}
    library = NativeLibrary((kernel.object,), (kernel.symbol,), imports)
    types = [ctypes.c_void_p] * (len(arrays) + 1) + [ctypes.c_int32]
    function = ctypes.CFUNCTYPE(None, *types)(library.address(kernel.symbol))
    function(*(a.ctypes.data for a in (*arrays, workspace)), threads)


class _Fresh:
    """An array of NaN between two margins; it begins on a cache line."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        count = int(np.prod(shape)) * dtype.itemsize
        self.whole = aligned(count + 2 * MARGIN)
        self.whole[:] = MARK
        middle = self.whole[MARGIN : MARGIN + count]
        middle[:] = NAN
        self.array: Array = middle.view(dtype).reshape(shape)

    def is_intact(self) -> bool:
        """Whether the margins are as they were."""
        behind = MARGIN + self.array.nbytes
        return bool((self.whole[:MARGIN] == MARK).all() and (self.whole[behind:] == MARK).all())


def _at_end(number: int, x: Array) -> Array:
    """A copy of `x` that ends where readable memory does; `number` keeps several apart."""
    block = _fenced(number)
    place = block[SIZE - x.nbytes : SIZE].view(x.dtype).reshape(x.shape)
    place[...] = x
    return place


@cache
def _fenced(number: int) -> Array:
    """SIZE bytes, and behind them a page that may not be read."""
    block = mmap.mmap(-1, SIZE + mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    if sys.platform != "win32":
        fence, size = ctypes.c_void_p(address + SIZE), ctypes.c_size_t(mmap.PAGESIZE)
        assert ctypes.CDLL(None).mprotect(fence, size, 0) == 0
    return np.frombuffer(block, np.uint8)[:SIZE]
