"""Arrays for the `examples()` of ops: seeded, several shapes, element types and special values.

    samples.array((3, 5))                           # f32, uniform in [-2, 2), the same every time
    samples.elementwise(2, ("float",), (-3, 3))     # (element type, (a, b)) pairs

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidlc.expr.types import DType, bool_, dtype, f32

SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, np.inf, -np.inf, np.nan, 1e-40, 3e38)
EDGES = (0, 1, -1, 2, -2, 3, -3, 7)  # of integers; the type's own limits are added

# shapes of the inputs: rank 0, size 1, odd sizes, broadcasting from the left and in the middle
SHAPES = ((((),), ((1,),), ((7,),), ((3, 5),), ((2, 3, 4),)), (
    ((), ()), ((5,), (5,)), ((3, 5), (5,)), ((3, 1), (1, 4)), ((), (2, 3)),
    ((2, 1, 3), (4, 1)), ((1, 3, 1, 5), (2, 1, 4, 1))),
    (((), (3,), (3,)), ((2, 3), (2, 3), (2, 3)), ((2, 1), (3,), (1, 1)), ((4, 1, 1), (5, 1), (2,))),
)  # fmt: skip
ELEMENTS = {
    "float": ("f32", "f64", "f16", "bf16"),
    "int": ("i32", "i8", "i64"),
    "uint": ("u8", "u32"),
    "bool": ("bool",),
}
# what a result of one rounding, or of a few, may differ by
TOLERANCES = {"f16": 2e-3, "bf16": 2e-2, "f32": 1e-5, "f64": 1e-11}


def array(
    shape: Sequence[int],
    element: DType | str = f32,
    low: float = -2.0,
    high: float = 2.0,
    seed: int = 0,
) -> NDArray[Any]:
    """Uniform in [low, high), rounded for integers; the same for the same arguments."""
    element = dtype(element)
    key = repr((tuple(shape), element.name, low, high, seed))
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    if element == bool_:
        return np.asarray(rng.random(tuple(shape)) < 0.5)
    if element.kind == "uint":
        low, high = max(low, 0.0), max(high, 1.0)
    values = rng.uniform(low, high, tuple(shape))
    return np.asarray(values if element.is_float else np.rint(values)).astype(element.numpy)


def positions(shape: Sequence[int], size: int, seed: int = 0) -> NDArray[Any]:
    """Positions on an axis of `size`, i64 in [-size, size); the same for the same arguments."""
    key = repr((tuple(shape), "positions", size, seed))
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    return rng.integers(-size, size, tuple(shape))


def special(element: DType | str) -> NDArray[Any]:
    """Zeros of both signs, infinities, NaN, a denormal; the limits of an integer type."""
    element = dtype(element)
    if element.is_float:
        with np.errstate(over="ignore"):
            return np.array(SPECIAL).astype(element.numpy)
    if element == bool_:
        return np.array([False, True])
    info = np.iinfo(element.numpy.name)
    values = [v for v in EDGES if v >= info.min]
    return np.array([*values, info.min, info.max, info.max - 1], element.numpy)


def pairs(element: DType | str, count: int) -> tuple[NDArray[Any], ...]:
    """Every combination of special values for `count` inputs: arrays that broadcast."""
    values = special(element)
    return tuple(values.reshape([-1] + [1] * (count - 1 - d)) for d in range(count))


def tolerance(element: DType | str) -> dict[str, float]:
    """`rtol` and `atol` for a formula of a few operations in this type; exact for integers."""
    bound = TOLERANCES.get(dtype(element).name, 0.0)
    return {"rtol": bound, "atol": bound / 10}


def elementwise(
    arity: int, kinds: Sequence[str], domain: tuple[float, float], *, specials: bool = True
) -> Iterator[tuple[DType, tuple[NDArray[Any], ...]]]:
    """Inputs for an elementwise op: shapes in its first element type, then the other types."""
    names = [name for kind in kinds for name in ELEMENTS[kind]]
    low, high = domain

    def draw(shapes: Sequence[tuple[int, ...]], name: str) -> tuple[NDArray[Any], ...]:
        wider = 1.0 if dtype(name).is_float else 4.0
        return tuple(array(s, name, low * wider, high * wider, n) for n, s in enumerate(shapes))

    for shapes in SHAPES[arity - 1]:
        yield dtype(names[0]), draw(shapes, names[0])
    for name in names:
        yield dtype(name), draw([(17,)] * arity, name)
        if specials:
            yield dtype(name), pairs(name, arity)
