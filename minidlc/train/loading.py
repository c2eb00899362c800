"""Elements made ahead by threads, and handed out in order.

    for batch in ahead(make, range(100), depth=4, workers=2):
        …                                           # make(0), make(1), …: while this runs, the next

Because `make` is a function of the number, it does not matter who computes which element, nor how
many work. Threads do help where the work is NumPy's or the disk's: both let other threads run.
Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def ahead(
    make: Callable[[int], T], numbers: Iterable[int], *, depth: int, workers: int
) -> Generator[T]:
    """Yield make(n) for each of the numbers, up to `depth` of them made before they are asked for.

    With 0 workers everything is made when it is asked for, by who asks. An exception of `make` is
    raised in its turn. When the generator ends, however it ends, its threads have ended too; what
    they are at is finished first.
    """
    if not workers:
        yield from map(make, numbers)
        return
    todo = iter(numbers)
    pool = ThreadPoolExecutor(workers, "minidlc-data")
    try:
        coming: deque[Future[T]] = deque()
        for n in islice(todo, max(depth, workers)):
            coming.append(pool.submit(make, n))
        while coming:
            element = coming.popleft().result()
            for n in islice(todo, 1):
                coming.append(pool.submit(make, n))
            yield element
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
