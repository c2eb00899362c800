"""The thread pool: one per process, its fork-join loop in LLVM, its threads hosted by Python.

    ensure(2)                                       # at least one worker beside the caller
    parallel_for_address()                          # what compiled code calls

`minidlc_parallel_for(body, context, n, threads)` publishes the job, counts up a *generation* that
workers watch, takes part itself, and returns when all is done: about a microsecond when the workers
still spin. Ranges are handed out by an atomic counter, so a slow core takes fewer, and a worker
that does not come in time is not waited for. Workers spin a little, then sleep on a condition
variable; a second concurrent caller, and a loop inside a loop, runs serially. After fork the child
starts without workers; at exit they are woken and joined.
Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from functools import cache
from typing import Any

from minidlc.runtime.native import link_text
from minidlc.runtime.pool_text import pool_text

_SPINS = 2000  # pauses before a worker sleeps: about 0.1 ms
_EXPORTS = (
    "minidlc_parallel_for",
    "minidlc_pool_worker",
    "minidlc_pool_count",
    "minidlc_pool_reset",
    "minidlc_pool_stop",
)

_lock = threading.Lock()
_threads: list[threading.Thread] = []


class _Pool:
    """The linked pool code."""

    def __init__(self) -> None:
        self.library = link_text(pool_text(), _EXPORTS)
        self.worker = ctypes.CFUNCTYPE(None)(self.library.address("minidlc_pool_worker"))
        self.count = ctypes.CFUNCTYPE(ctypes.c_int32)(self.library.address("minidlc_pool_count"))
        self.reset = ctypes.CFUNCTYPE(None, ctypes.c_int32)(
            self.library.address("minidlc_pool_reset")
        )
        self.stop = ctypes.CFUNCTYPE(None)(self.library.address("minidlc_pool_stop"))


@cache
def _pool() -> _Pool:
    made = _Pool()
    made.reset(_SPINS)
    atexit.register(_at_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)
    return made


def parallel_for_address() -> int:
    """Address of `minidlc_parallel_for(ptr body, ptr context, i64 n, i32 threads)`."""
    return _pool().library.address("minidlc_parallel_for")


def ensure(threads: int) -> None:
    """Grow the pool to `threads` - 1 workers beside the caller; it never shrinks.

    Fewer, if the system starts no more threads: loops then run on those there are.
    """
    if len(_threads) >= threads - 1:
        return
    pool = _pool()
    with _lock:
        while len(_threads) < threads - 1:
            name = f"minidlc-worker-{len(_threads) + 1}"
            thread = threading.Thread(target=_host, args=(pool.worker,), name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return
            _threads.append(thread)


def _host(worker: Any) -> None:
    worker()  # without the GIL, until the pool stops


def workers() -> int:
    """Number of workers that are ready now."""
    return int(_pool().count())


def _at_exit() -> None:
    _pool().stop()
    for thread in _threads:
        thread.join(timeout=1.0)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _threads.clear()
    _pool().reset(_SPINS)
