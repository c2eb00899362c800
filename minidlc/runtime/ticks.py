"""The machine's counter of time that native code reads, and how fast it runs.

    begin = ticks(); work(); seconds = (ticks() - begin) / ticks_per_second()

On x86 the time-stamp counter, which runs at a constant rate on every machine of the last fifteen
years; elsewhere the steady counter of the system. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import ctypes
import platform
import time
from collections.abc import Callable
from functools import cache

from minidlc.runtime.native import link_text

_CALIBRATION = 0.02  # seconds: errors of the clock are then far below a thousandth


def counter() -> str:
    """Name of LLVM's intrinsic that reads the counter here."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64", "x86")
    return "llvm.readcyclecounter" if is_x86 else "llvm.readsteadycounter"


@cache
def _native() -> tuple[Callable[[], int], object]:
    text = f"""
declare i64 @{counter()}()
define i64 @minidlc_ticks() nounwind {{
  %now = call i64 @{counter()}()
  ret i64 %now
}}
"""
    library = link_text(text, ("minidlc_ticks",))
    return ctypes.CFUNCTYPE(ctypes.c_uint64)(library.address("minidlc_ticks")), library


def ticks() -> int:
    """The counter now."""
    return _native()[0]()


@cache
def ticks_per_second() -> float:
    """Rate of the counter, measured once against the system's clock."""
    ticks()  # the first call links it
    start, begin = time.perf_counter(), ticks()
    while time.perf_counter() - start < _CALIBRATION:
        pass
    return (ticks() - begin) / (time.perf_counter() - start)
