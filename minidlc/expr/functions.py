"""Scalar functions: the one table of what exp, erf, round … mean.

NumPy is the meaning; the loop interpreter, constant folding and the tests use `numpy`, code
generation has its own table of how to compute each on vectors, tested against this one.

    FUNCTIONS["erf"].numpy(np.float32(0.5))

Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Function:
    """A pure scalar function of `arity` arguments; `result` is 'same' (as the first) or 'bool'.

    `types` names the element types of the arguments where they differ; else all have one.
    """

    name: str
    arity: int
    numpy: Callable[..., Any]
    result: str = "same"
    types: tuple[str, ...] = ()


def _dot4(total: Any, *factors: Any) -> Any:
    """total + a0*b0 + … + a3*b3 of four u8 and four i8; exact, the sum wraps as i32 does."""
    a, b = (np.asarray(part).astype(np.int32) for part in (factors[:4], factors[4:]))
    with np.errstate(over="ignore"):
        return (np.asarray(total) + np.sum(a * b, axis=0, dtype=np.int32)).astype(np.int32)[()]


def _erf(x: Any) -> Any:
    x = np.asarray(x)
    wide = np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64))
    return wide.astype(x.dtype)[()]


def _sigmoid(x: Any) -> Any:
    x = np.asarray(x)
    wide = x.astype(np.float64)
    with np.errstate(over="ignore"):
        return (1.0 / (1.0 + np.exp(-wide))).astype(x.dtype)[()]


def _truncdiv(x: Any, y: Any) -> Any:
    """Integer division rounding toward zero; x / 0 is 0 and MIN / -1 is MIN, by definition here."""
    a: NDArray[Any] = np.asarray(x)
    b: NDArray[Any] = np.asarray(y)
    safe: NDArray[Any] = np.where(b == 0, np.ones_like(b), b)
    if a.dtype.kind == "u":
        return np.where(b == 0, np.zeros_like(a), a // safe)[()]
    minimum = np.iinfo(a.dtype).min
    overflow: NDArray[Any] = (a == minimum) & (safe == -1)
    safe = np.where(overflow, np.ones_like(safe), safe)
    quotient, remainder = np.divmod(a, safe)
    fix: NDArray[Any] = (remainder != 0) & ((a < 0) != (safe < 0))
    result: NDArray[Any] = np.where(overflow, a, quotient + fix.astype(a.dtype))
    return np.where(b == 0, np.zeros_like(a), result)[()]


def _floormod(a: Any, b: Any) -> Any:
    """Remainder with the sign of the divisor; of integers, x mod 0 is 0 by definition here."""
    a, b = np.asarray(a), np.asarray(b)
    with np.errstate(all="ignore"):
        return np.mod(a, b)[()]


def _fmod(a: Any, b: Any) -> Any:
    """Remainder with the sign of the dividend (C fmod); of integers, x mod 0 is 0."""
    with np.errstate(all="ignore"):
        return np.fmod(np.asarray(a), np.asarray(b))[()]


def _ipow(a: Any, b: Any) -> Any:
    """Power; integer exponents below zero follow ONNX's cast of the float result."""
    a, b = np.asarray(a), np.asarray(b)
    with np.errstate(all="ignore"):
        if a.dtype.kind in "iu":
            if b.dtype.kind in "iu" and not np.any(b < 0):
                return np.power(a, b.astype(a.dtype))[()]
            return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)[()]
        return _power(a, b.astype(a.dtype))[()]


def _power(a: Any, b: Any) -> Any:
    """C's pow of floats. NumPy takes a square root where one exponent 0.5 is meant for several
    bases or for a scalar, and then (-inf) ** 0.5 is NaN: so every base gets its own exponent."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    exponents = np.array(np.broadcast_to(b, shape))
    return np.power(np.atleast_1d(a), np.atleast_1d(exponents)).reshape(shape)


def _quiet(f: Callable[..., Any]) -> Callable[..., Any]:
    def quiet(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return f(*args)

    return quiet


_UNARY: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "exp": np.exp,
    "exp_negative": np.exp,  # of x <= 0; results that are denormal may be 0
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "tanh": np.tanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sign": np.sign,
    "invert": np.invert,
    "erf": _erf,
    "sigmoid": _sigmoid,
}

FUNCTIONS: dict[str, Function] = {
    **{name: Function(name, 1, _quiet(f)) for name, f in _UNARY.items()},
    "isnan": Function("isnan", 1, np.isnan, "bool"),
    "isinf": Function("isinf", 1, np.isinf, "bool"),
    "pow": Function("pow", 2, _ipow),
    "truncdiv": Function("truncdiv", 2, _truncdiv),
    "floormod": Function("floormod", 2, _floormod),
    "fmod": Function("fmod", 2, _fmod),
    "dot4": Function("dot4", 9, _dot4, types=("i32", *["u8"] * 4, *["i8"] * 4)),
}
