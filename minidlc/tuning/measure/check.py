"""What a candidate is run on, and what counts as the right result.

    values = inputs({"a": f32[8, 8]}, seed=0)       # multiples of 1/8 from -1 to 1
    differs(got, wanted, tolerance=1e-5)            # '' or 'y[3, 4] is 0.5, expected 0.25; …'

Products of such numbers are multiples of 1/64, and sums of up to 2^18 of them are exact in f32: in
whatever order a schedule adds them up, the bits are the same. What functions such as exp make of
them is not, so that floats are compared with a tolerance (`tolerance`). Machine code clamps
positions of lookups, so that small whole numbers are positions of any table.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping

import numpy as np

from minidlc.expr.types import Array, TensorType, bf16, f16, f32, f64
from minidlc.schedules import Group
from minidlc.te.tensor import stages

_EPSILON = {f64: 2.0**-52, f32: 2.0**-23, f16: 2.0**-10, bf16: 2.0**-7}
_ROUNDINGS = 8  # that a float may be away, for each of the roundings expected of its sum
_FEW = 16  # terms that any result is taken to be made of: functions are polynomials


def inputs(
    types: Mapping[str, TensorType], seed: int, *, positive: bool = False
) -> dict[str, Array]:
    """An array for each name, the same for the same seed. `positive`: floats from 1/8 to 1."""
    return {name: _array(type, name, seed, positive) for name, type in types.items()}


def _array(type: TensorType, name: str, seed: int, positive: bool) -> Array:
    rng = np.random.default_rng((seed, zlib.crc32(name.encode())))
    dtype, dims = type.dtype, type.dims
    if dtype.is_float:
        eighths = rng.integers(1 if positive else -8, 9, dims).astype(np.float32)
        return (eighths / 8).astype(dtype.numpy)
    if not dtype.is_integer:
        return rng.integers(0, 2, dims).astype(np.bool_)
    low = -8 if dtype.kind == "int" and dtype.bits == 8 else 0  # wider ones may be positions
    return rng.integers(low, 8 if dtype.bits == 8 else 64, dims).astype(dtype.numpy)


def tolerance(group: Group) -> float:
    """How far a float may be from the plain loops' one, relative to the size of the results.

    8 roundings of the narrowest float type among the stages, times the square root of the terms of
    the longest sum, by which errors of random sign grow (N. Higham, Accuracy and Stability of
    Numerical Algorithms, 2002). Results that are exact pass any tolerance. A f16 or bf16 is given 4
    roundings: its sums are taken in f32. 0 where there are no floats.
    """
    found = [t for t in stages(group.outputs) if t.dtype.is_float]
    terms = max((math.prod(n for _, n in t.reduce_axes) for t in found), default=1)
    grown = _ROUNDINGS * math.sqrt(max(terms, _FEW))
    widths = {t.dtype for t in found}
    return max(((grown if d.bits >= 32 else 4) * _EPSILON[d] for d in widths), default=0.0)


def is_finite(values: Mapping[str, Array]) -> bool:
    """False if a float among them is NaN or infinite."""
    floats = [x for x in values.values() if x.dtype.kind not in "iub"]
    return all(bool(np.isfinite(x.astype(np.float64)).all()) for x in floats)


def differs(name: str, got: Array, wanted: Array, tolerance: float) -> str:
    """Where two results differ first, and how many elements do; '' if none does.

    Floats may be `tolerance` times their size apart, or times the mean size of all where that is
    more. Whole numbers must be equal; where floats were rounded to them (`tolerance` > 0), they may
    be 1 apart.
    """
    if wanted.dtype.kind == "b":
        wrong = got.view(np.uint8) != wanted.view(np.uint8)
    elif wanted.dtype.kind in "iu":
        apart = np.maximum(got, wanted) - np.minimum(got, wanted)
        wrong = apart.astype(np.uint64) > (1 if tolerance else 0)
    else:
        wrong = _floats_differ(got.astype(np.float64), wanted.astype(np.float64), tolerance)
    if not wrong.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f"{name}[{', '.join(map(str, place))}]" if place else name
    count = f"{int(wrong.sum())} of {wrong.size} elements differ"
    return f"{where} is {got[place]}, expected {wanted[place]}; {count}"


def _floats_differ(got: Array, wanted: Array, tolerance: float) -> Array:
    sizes = np.abs(wanted)
    finite = np.isfinite(sizes)
    mean = float(sizes[finite].mean()) if finite.any() else 0.0
    with np.errstate(invalid="ignore"):
        near = np.abs(got - wanted) <= tolerance * np.maximum(sizes, mean)
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    return ~(same | (near & finite))
