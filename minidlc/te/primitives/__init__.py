"""The schedule primitives: of loops (loops.py) and of whole stages (stages.py).

Reads and writes `State`. Each docstring shows the loop nest before and after, each class says what
it refuses. Treated in course chapter 04_schedule.
"""

from minidlc.te.primitives.loops import Fuse, Parallel, Reorder, Split, Tile, Unroll, Vectorize
from minidlc.te.primitives.stages import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    ComputeInline,
    SetScope,
)

__all__ = [
    "CacheRead",
    "CacheWrite",
    "ComputeAt",
    "ComputeInline",
    "Fuse",
    "Parallel",
    "Reorder",
    "SetScope",
    "Split",
    "Tile",
    "Unroll",
    "Vectorize",
]
