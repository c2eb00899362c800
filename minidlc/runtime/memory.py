"""Aligned memory for arenas, workspaces and constants.

    block = aligned(1 << 20)                        # uint8 array, starts on a cache line

Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64


def aligned(nbytes: int, *, zero: bool = False) -> NDArray[np.uint8]:
    """A fresh uint8 array of `nbytes` bytes at an address divisible by 64; never empty."""
    make = np.zeros if zero else np.empty
    block = make(max(nbytes, 1) + ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + max(nbytes, 1)]
