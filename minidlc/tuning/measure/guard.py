"""Memory that shows who leaves it: an array between two fences.

    block = Guarded.like(x)                         # a copy of x
    Guarded.empty(f32[8, 8])                        # NaN everywhere
    Guarded.empty(f32[8, 8], nan=False)             # -2.9e-16 everywhere
    block.is_intact()                               # False if anything beside the array changed

Behind the array, up to a cache line later, lies a page that may not be touched, and one before it:
who reads or writes there dies of SIGSEGV. The few bytes between array and page, and the rest of the
first page, hold a mark. Where pages cannot be protected (Windows), there are the marks only.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np

from minidlc.expr.types import Array, TensorType
from minidlc.runtime.memory import ALIGNMENT

_MARK, _NAN = 0xA5, 0xFF  # a float of bytes 0xFF is NaN in every format
_PAGE = mmap.PAGESIZE


class Guarded:
    """`array`, of this dtype and shape, begins on a cache line between two fences.

    MemoryError if there is no room for it.
    """

    def __init__(
        self, dtype: np.dtype[np.generic], shape: tuple[int, ...], fill: int = _NAN
    ) -> None:
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        room = -(-max(size, 1) // _PAGE) * _PAGE
        try:
            block = mmap.mmap(-1, room + 2 * _PAGE)
        except OSError as error:
            raise MemoryError(str(error)) from None
        whole = np.frombuffer(block, np.uint8)
        self._inner = whole[_PAGE : _PAGE + room]
        self._inner[:] = _MARK
        self._start = (room - size) // ALIGNMENT * ALIGNMENT
        self._end = self._start + size
        part = self._inner[self._start : self._end]
        part[:] = fill
        self.array: Array = part.view(dtype).reshape(shape)
        _protect(whole, 0)
        _protect(whole, _PAGE + room)

    @staticmethod
    def like(values: Array) -> Guarded:
        """A copy of an array."""
        block = Guarded(values.dtype, values.shape)
        block.array[...] = values
        return block

    @staticmethod
    def empty(type: TensorType, *, nan: bool = True) -> Guarded:
        """NaN, or a number that is unlikely; what was not written shows."""
        fill = _NAN if nan and type.dtype.is_float else _MARK
        return Guarded(type.dtype.numpy, type.dims, fill)

    def is_intact(self) -> bool:
        """Whether the bytes beside the array are as they were."""
        beside = (self._inner[: self._start], self._inner[self._end :])
        return all(bool((part == _MARK).all()) for part in beside)


def _protect(whole: Array, offset: int) -> None:
    """Make a page untouchable, where the system can."""
    if sys.platform == "win32":
        return
    address, size = ctypes.c_void_p(whole.ctypes.data + offset), ctypes.c_size_t(_PAGE)
    ctypes.CDLL(None).mprotect(address, size, 0)  # 0: PROT_NONE
