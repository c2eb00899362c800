"""Where the elements of a resized axis come from: positions in the source, and weights.

    x = source_positions("half_pixel", 4, 8, 2.0)   # -0.25, 0.25, 0.75, …: 8 places on 4
    t = linear_table(x, 4, 2.0, antialias=False, exclude_outside=False)
    t.first, t.weights                              # y[i] = sum of weights[i, k] * x[first[i] + k]

Shapes are static, so all of it is computed once, in NumPy, with 64-bit floats. Treated in course
chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

TRANSFORMATIONS = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
# position -> element
ROUNDINGS: dict[str, Callable[[Floats], Floats]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@dataclass(frozen=True, eq=False)
class Table:
    """Element i of the result is the sum over k of weights[i, k] * x[first[i] + k].

    Positions outside stand for the first and the last element. Positions lie `slope` apart.
    """

    first: Ints
    weights: Floats
    slope: float

    def positions(self, size: int) -> Ints:
        """[i, k] -> the element of an axis of `size` that weight k multiplies."""
        taps: Ints = np.arange(self.weights.shape[1], dtype=np.int64)
        places: Ints = self.first[:, None] + taps
        return np.clip(places, 0, max(size - 1, 0))

    def picks(self) -> bool:
        """True if each element of the result is one of the source."""
        return self.weights.shape[1] == 1 and bool(np.all(self.weights == 1))

    def trimmed(self) -> Table:
        """Without the outer taps that no element gives a weight."""
        used = np.flatnonzero(np.any(self.weights != 0, axis=0))
        if not used.size:
            return self
        return Table(self.first + used[0], self.weights[:, used[0] : used[-1] + 1], self.slope)

    def evenly(self) -> tuple[int, int, int] | None:
        """(step, shift, divisor) with first[i] = (i * step + shift) // divisor, if there are."""
        return evenly(self.first, self.slope)


def source_positions(
    transformation: str,
    size: int,
    out: int,
    scale: float,
    region: tuple[float, float] = (0.0, 1.0),
) -> Floats:
    """Where in `size` elements each of `out` lies; `region` is that of tf_crop_and_resize."""
    i, width = np.arange(out, dtype=np.float64), scale * size
    centre = (i + 0.5) / scale - 0.5
    match transformation:
        case "half_pixel":
            return centre
        case "pytorch_half_pixel":
            return centre if out > 1 else np.zeros(out)
        case "half_pixel_symmetric":  # the centre of the source is that of the result
            return size / 2 * (1 - out / width) + centre
        case "align_corners":
            return i * (size - 1) / (width - 1) if width != 1 else np.zeros(out)
        case "asymmetric":
            return i / scale
        case "tf_half_pixel_for_nn":
            return (i + 0.5) / scale
        case _:
            start, end = region
            last = size - 1
            if width == 1:
                return np.full(out, 0.5 * (start + end) * last)
            return start * last + i * (end - start) * last / (width - 1)


def nearest_table(x: Floats, rounding: str) -> Table:
    """One element for each."""
    return Table(ROUNDINGS[rounding](x).astype(np.int64), np.ones((x.size, 1)), _slope(x))


def linear_table(
    x: Floats, size: int, scale: float, *, antialias: bool, exclude_outside: bool
) -> Table:
    """A triangle, 2 elements wide, or 2 / scale if it is stretched to antialias."""

    def triangle(distance: Floats) -> Floats:
        return np.clip(1 - np.abs(distance), 0, 1)

    return _kernel_table(x, size, scale, triangle, 1, antialias, exclude_outside)


def cubic_table(
    x: Floats, size: int, scale: float, a: float, *, antialias: bool, exclude_outside: bool
) -> Table:
    """Keys' cubic of parameter `a`, 4 elements wide, or 4 / scale."""

    def keys(distance: Floats) -> Floats:
        d = np.abs(distance)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))

    return _kernel_table(x, size, scale, keys, 2, antialias, exclude_outside)


def _kernel_table(
    x: Floats,
    size: int,
    scale: float,
    kernel: Callable[[Floats], Floats],
    radius: int,
    antialias: bool,
    exclude_outside: bool,
) -> Table:
    stretch = min(scale, 1.0) if antialias else 1.0
    start = math.floor(-radius / stretch) + 1
    base = np.floor(x).astype(np.int64)
    taps = np.arange(start, 2 - start)
    weights = kernel((taps - (x - base)[:, None]) * stretch)
    if exclude_outside:
        places = base[:, None] + taps
        weights = np.where((places >= 0) & (places < size), weights, 0)
    if antialias or exclude_outside:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return Table(base + start, weights, _slope(x)).trimmed()


def _slope(x: Floats) -> float:
    return float(x[-1] - x[0]) / (x.size - 1) if x.size > 1 else 0.0


def evenly(first: Ints, slope: float) -> tuple[int, int, int] | None:
    """(step, shift, divisor) with first[i] = (i * step + shift) // divisor for all i, or None.

    Of fractions near `slope` the simplest one that fits.
    """
    if not first.size:
        return 0, 0, 1
    i = np.arange(first.size)
    for largest in (1, 2, 4, 8, 16, 64, 256, 1024, 4096):
        ratio = Fraction(slope).limit_denominator(largest)
        step, divisor = ratio.numerator, ratio.denominator
        low = int(np.max(first * divisor - i * step))
        high = int(np.min(first * divisor - i * step)) + divisor - 1
        if low <= high:
            return step, low, divisor
    return None
