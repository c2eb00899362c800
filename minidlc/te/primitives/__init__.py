"""The schedule primitives.

Of loops (loops.py), reductions (reductions.py), whole stages (stages.py), constants
(constants.py) and instructions (hints.py). Reads and writes `State`. Each docstring shows the loop
nest before and after, each class says what it refuses. Treated in course chapter 04_lowering.
"""

from minidlc.te.primitives.constants import Prepack
from minidlc.te.primitives.hints import Prefetch, Tensorize
from minidlc.te.primitives.layouts import CacheRead, TransformLayout
from minidlc.te.primitives.loops import Fuse, Parallel, Reorder, Split, Tile, Unroll, Vectorize
from minidlc.te.primitives.reductions import RFactor
from minidlc.te.primitives.stages import (
    CacheWrite,
    ComputeAt,
    ComputeInline,
    SetScope,
    StoreAt,
)

__all__ = [
    "CacheRead",
    "CacheWrite",
    "ComputeAt",
    "ComputeInline",
    "Fuse",
    "Parallel",
    "Prefetch",
    "Prepack",
    "RFactor",
    "Reorder",
    "SetScope",
    "Split",
    "StoreAt",
    "Tensorize",
    "Tile",
    "TransformLayout",
    "Unroll",
    "Vectorize",
]
