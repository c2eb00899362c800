"""A worker process of a measurer as its parent sees it, and several of them at once.

    worker = WorkerProcess("run")                   # starts when it is first asked
    worker.ask(10.0, "trial", built, 5, inf)        # its answer, or ChildLost: it is replaced
    in_threads(one, configs, workers)               # one(config) of each, by all workers

Reads and writes what worker.py answers and is asked. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from minidlc.support.child import Child, ChildLost
from minidlc.support.errors import TuneError
from minidlc.tuning.measure.worker import Setting

_SERVE = (
    "import sys; sys.path[:] = {path!r}; from minidlc.tuning.measure.worker import serve; serve()"
)
_START = 60.0  # seconds until a new worker must have greeted: imports, mostly

C = TypeVar("C")
T = TypeVar("T")


class WorkerProcess:
    """A worker process; it starts when it is first asked, and again after it was lost.

    `ready_for` is the task it is prepared for, `holds` the finalists that it has loaded.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.child: Child | None = None
        self.ready_for: Setting | None = None
        self.holds: set[int] = set()

    @property
    def is_alive(self) -> bool:
        """False before it is first asked, and after it was lost."""
        return self.child is not None and self.child.process.poll() is None

    def ask(self, seconds: float, question: str, *args: object) -> object:
        """Its answer; ChildLost if there is none in time. TuneError (MDLC1322) if none starts."""
        if not self.is_alive:
            self.end()
            self.child = self._start()
        assert self.child is not None
        try:
            return self.child.ask((question, args), seconds)
        except ChildLost:
            self.end()
            raise

    def _start(self) -> Child:
        child = Child.start(_SERVE)
        why = "no Python process can be started"
        if child is not None:
            try:
                child.ask(("greet", ()), _START)
                return child
            except ChildLost as lost:
                child.end()
                child.close()
                why = str(lost)
        hint = "tuning runs candidates in processes of their own: it needs a plain Python"
        raise TuneError(f"the {self.kind} worker: {why}", hint=hint, code="MDLC1322")

    def check(self, seconds: float) -> None:
        """End it if it does not answer: somebody stopped it while it had nothing to do."""
        if self.is_alive:
            with suppress(ChildLost):
                self.ask(seconds, "greet")

    def kill(self) -> None:
        """End the process while another thread waits for its answer: it is told so."""
        if (child := self.child) is not None:
            child.process.kill()

    def end(self) -> None:
        """End the process; the next question starts a new one."""
        if self.child is not None:
            self.child.end()
            self.child.close()
        self.child, self.ready_for, self.holds = None, None, set()


def in_threads(
    one: Callable[[C], T], configs: Sequence[C], workers: Sequence[WorkerProcess]
) -> list[T]:
    """`one` of each, a thread for each worker; if interrupted, the workers end at once."""
    pool = ThreadPoolExecutor(max(1, len(workers)))
    try:
        return list(pool.map(one, configs))
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.kill()
        raise
    finally:
        pool.shutdown()
