"""Elements made ahead by threads or processes, and handed out in order.

    for batch in ahead(make, range(100), depth=4, workers=2):
        …                                           # make(0), make(1), …: while this runs, the next
    ahead(make, range(100), depth=4, workers=2, processes=True)

Because `make` is a function of the number, it does not matter who computes which element, nor how
many work. Threads help where the work is NumPy's or the disk's: both let other threads run. Where
it is Python's own, processes do, and pay for sending each element. Treated in course chapter
03_autodiff.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from itertools import islice
from multiprocessing.connection import wait
from typing import Any, TypeVar

from minidlc.support.errors import CompileError, TrainError
from minidlc.support.locations import caller

T = TypeVar("T")


def ahead(
    make: Callable[[int], T],
    numbers: Iterable[int],
    *,
    depth: int,
    workers: int,
    processes: bool = False,
) -> Generator[T]:
    """Yield make(n) for each of the numbers, made before they are asked for.

    So many are ahead of the one that is handed out: `depth`, or one for each worker if that is
    more. With 0 workers everything is made when it is asked for, by who asks. An exception of
    `make` is raised in its turn. When the generator ends, its workers have ended too, after what
    they were at. Raises TrainError: MDLC1280 a killed process, MDLC1281 what none can send.
    """
    if not workers:
        yield from map(make, numbers)
        return
    todo = iter(numbers)
    pool, job = _processes(make, workers) if processes else _threads(make, workers)
    try:
        coming: deque[Future[Any]] = deque()
        for n in islice(todo, max(depth, workers)):
            coming.append(pool.submit(job, n))
        while coming:
            element = coming.popleft().result()
            if processes:
                element = _received(element)
            for n in islice(todo, 1):
                coming.append(pool.submit(job, n))
            yield element
    except CompileError as e:
        e.at(caller())  # a worker has no line of the reader's program
        raise
    except BrokenExecutor:
        hint = "killed from outside, or out of memory: fewer workers, smaller batches"
        text = "a process that prepares data has ended before its work was done"
        raise TrainError(text, hint=hint, code="MDLC1280") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _threads(make: Callable[[int], T], workers: int) -> tuple[Executor, Callable[[int], T]]:
    return ThreadPoolExecutor(workers, "minidlc-data"), make


def can_fork() -> bool:
    """Can this system copy a process? Windows cannot."""
    return "fork" in multiprocessing.get_all_start_methods()


def _processes(make: Callable[[int], T], workers: int) -> tuple[Executor, Callable[[int], bytes]]:
    """Copies of this process: data and functions are there without being sent."""
    context = multiprocessing.get_context("fork")
    return ProcessPoolExecutor(workers, context, _adopt, (make,)), _made


_make: Callable[[int], Any] | None = None  # in a worker: what it is to do


def _adopt(make: Callable[[int], Any]) -> None:
    """Begin as a worker process: Ctrl-C is the parent's business, its end is also ours."""
    global _make
    _make = make
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"
    wait([parent.sentinel])
    os._exit(1)


def _made(n: int) -> bytes:
    """Element `n`, in the bytes that go to the parent: packed here, where a fault has a place."""
    assert _make is not None, "a worker adopts its work first"
    made = _make(n)
    try:
        return pickle.dumps(made, pickle.HIGHEST_PROTOCOL)
    except Exception as e:
        raise _unsendable(e) from None


def _received(sent: bytes) -> Any:
    try:
        return pickle.loads(sent)
    except Exception as e:
        raise _unsendable(e) from None


def _unsendable(error: Exception) -> TrainError:
    text = f"prefetch: an element cannot be sent from a process: {type(error).__name__}: {error}"
    hint = "let map return arrays, numbers, dicts, tuples; threads hand over anything"
    return TrainError(text, hint=hint, code="MDLC1281")
