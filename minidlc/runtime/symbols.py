"""Functions of the C library that compiled code may call, and their addresses.

    address("expf")                                 # an integer, found through ctypes

Reads the process's own C library; nothing is linked. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

LIBM = (
    *("exp", "log", "sqrt", "pow", "fmod", "erf"),
    *("sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)
"""Names of the f64 functions; the f32 ones end in `f`."""

ROUNDING = ("floor", "ceil", "rint")
"""LLVM calls these on a CPU without such an instruction (x86 before SSE4.1)."""

ALL = tuple(name + end for name in (*LIBM, *ROUNDING) for end in ("", "f"))


@cache
def _libraries() -> tuple[ctypes.CDLL, ...]:
    usual = {"win32": "ucrtbase", "darwin": "libm.dylib"}.get(sys.platform, "libm.so.6")
    found: list[ctypes.CDLL] = []
    for name in (usual, None):  # None: the process itself
        try:
            found.append(ctypes.CDLL(name))
        except (OSError, TypeError):
            continue
    return tuple(found)


@cache
def address(name: str) -> int | None:
    """The address of a C function; None if this system has none of that name."""
    for library in _libraries():
        function = getattr(library, name, None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value
    return None
