"""What an input or an output of a compiled model is: name, element type, shape.

    spec = ArraySpec("x", np.dtype("f4"), (4, 8))
    spec.nbytes                                     # 128
    str(spec)                                       # 'x: float32[4, 8]'

Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minidlc.support.locations import Loc


@dataclass(frozen=True)
class ArraySpec:
    """Name, dtype and shape of an input or output; `loc` is where the model declares it."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    loc: Loc | None = field(default=None, compare=False)

    @property
    def nbytes(self) -> int:
        """Bytes of such an array."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.name}[{', '.join(map(str, self.shape))}]"
