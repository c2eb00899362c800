"""What a candidate is run on, and what counts as the right result.

    values = inputs({"a": f32[8, 8]}, seed=0)       # multiples of 1/8 from -1 to 1
    differs(got, wanted, tolerance=1e-5)            # '' or 'y[3, 4] is 0.5, expected 0.25; …'

Products of such numbers are multiples of 1/64, and sums of up to 2^18 of them are exact in f32: in
whatever order a schedule adds them up, the bits are the same. What functions such as exp make of
them is not, so that floats are compared with a tolerance (`tolerances`). Machine code clamps
positions of lookups, so that small whole numbers are positions of any table.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping

import numpy as np

from minidlc.expr.nodes import Binary, Call, Cast, Expr, Load, Reduce, Select
from minidlc.expr.types import Array, TensorType, bf16, f16, f32, f64
from minidlc.schedules import Group
from minidlc.te.tensor import Tensor, stages

_EPSILON = {f64: 2.0**-52, f32: 2.0**-23, f16: 2.0**-10, bf16: 2.0**-7}
_ROUNDINGS = 8  # that a float may be away, for each of the roundings expected of its sum
_FEW = 16  # terms that any result is taken to be made of: functions are polynomials
_USUAL = 0.1  # of the different sizes of results lie below a usual one
_FAR = 1024.0  # times a usual size: what is larger says nothing about the others


def inputs(
    types: Mapping[str, TensorType], seed: int, low: int = -8, high: int = 8
) -> dict[str, Array]:
    """An array for each name, the same for the same seed; floats from `low` to `high` eighths."""
    return {name: _array(type, name, seed, low, high) for name, type in types.items()}


def _array(type: TensorType, name: str, seed: int, least: int, most: int) -> Array:
    rng = np.random.default_rng((seed, zlib.crc32(name.encode())))
    dtype, dims = type.dtype, type.dims
    if dtype.is_float:
        eighths = rng.integers(least, most + 1, dims).astype(np.float32)
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


def tolerances(group: Group) -> dict[str, float]:
    """By output: the tolerance of floats; 1 for whole numbers that floats were made into, else 0.

    A float just below a half may come out just above, and its whole number 1 away. What floats only
    decide about, such as a position from `arg_max`, is exact.
    """
    found: dict[str, bool] = {}
    for t in stages(group.outputs):  # what is read comes before what reads it
        found[t.name] = t.body is not None and _is_rounded(t.body, found)
    relative = tolerance(group)
    return {t.name: relative if t.dtype.is_float else _steps(t, found) for t in group.outputs}


def _steps(t: Tensor, is_rounded: Mapping[str, bool]) -> float:
    return float(t.dtype.is_integer and is_rounded[t.name])


def _is_rounded(e: Expr, known: Mapping[str, bool]) -> bool:
    """Whether a float made into a whole number is part of the value, not only of a condition."""
    match e:
        case Cast(type, a):
            return (type.is_integer and a.dtype.is_float) or _is_rounded(a, known)
        case Binary(_, a, b) | Select(_, a, b):
            return _is_rounded(a, known) or _is_rounded(b, known)
        case Call(_, args):
            return any(_is_rounded(a, known) for a in args)
        case Reduce():
            return _is_rounded(e.body, known)
        case Load():
            return known[e.buffer]
        case _:
            return False


def finite(values: Mapping[str, Array]) -> float:
    """The part of all elements that are neither NaN nor infinite; 1 if there are none."""
    sound = [np.isfinite(x.astype(np.float64)).reshape(-1) for x in values.values()]
    whole = np.concatenate(sound) if sound else np.ones(0)
    return float(whole.mean()) if whole.size else 1.0


def unknown(values: Mapping[str, Array]) -> str:
    """The name of a result that is nothing but NaN, which any wrong code may give too; else ''."""
    for name, x in values.items():
        if x.size and np.isnan(x.astype(np.float64)).all():
            return name
    return ""


def differs(name: str, got: Array, wanted: Array, tolerance: float) -> str:
    """Where two results differ first, and how many elements do; '' if none does.

    Floats may be `tolerance` times their size apart, or times the usual size (`_usual_size`) where
    that is more. Whole numbers may be `tolerance` apart.
    """
    if wanted.dtype.kind == "b":
        wrong = got.view(np.uint8) != wanted.view(np.uint8)
    elif wanted.dtype.kind in "iu":
        apart = np.maximum(got, wanted) - np.minimum(got, wanted)
        wrong = apart.astype(np.uint64) > int(tolerance)
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
    usual = _usual_size(sizes[finite], tolerance)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(got - wanted) <= tolerance * np.maximum(sizes, usual)
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    return ~(same | (near & finite))


def _usual_size(sizes: Array, tolerance: float) -> float:
    """The mean size of results, f64, without those that are far larger than most.

    What a mask puts in, such as -3.4e38 or -1e4, must not hide that the others are wrong: only
    sizes up to 1024 times a usual one count, the first tenth of the different ones. Of inputs
    about 1, what is below the tolerance may be the rounding error of a difference.
    """
    different = np.unique(sizes[sizes > 0])
    if not different.size:
        return 0.0
    above = different[different > tolerance]
    ordered = above if above.size else different
    usual = float(ordered[int(_USUAL * (ordered.size - 1))])
    return float(sizes[sizes <= _FAR * usual].mean())
