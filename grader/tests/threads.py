"""Workers in threads of this process: the messages are real, nothing is contained."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import threading
from contextlib import suppress
from pathlib import Path
from socket import SHUT_RDWR, socketpair

from grader.exchange import StreamChannel
from grader.manifest import load
from grader.model import Assignment, Task
from grader.sandbox.limits import Usage
from grader.serve import serve
from grader.workers import shared

TOY = Path(__file__).parent / "fixtures" / "toy"


@functools.cache
def toy() -> Assignment:
    """The toy with nothing withheld: a single fork server serves all its tasks."""
    whole = load(TOY)
    tasks = tuple(dataclasses.replace(task, withheld=()) for task in whole.tasks)
    return dataclasses.replace(whole, tasks=tasks)


@functools.cache
def toy_overlays() -> str:
    """The overlays of the toy, built once for all tests of this process."""
    folder = shared(load(TOY).tasks)
    atexit.register(folder.__exit__, None, None, None)
    return str(folder.__enter__())


class ThreadProcess:
    def __init__(self) -> None:
        self._sockets = socketpair()
        self._mine, theirs = (end.makefile("rwb") for end in self._sockets)
        self._thread = threading.Thread(target=serve, args=(theirs, theirs), daemon=True)
        self._thread.start()
        self._streams = (self._mine, theirs)

    def request(self, message, answer):
        return StreamChannel(self._mine, self._mine).request(message, answer)

    def close(self) -> Usage:
        for stream, end in zip(self._streams, self._sockets, strict=True):
            with suppress(OSError):
                end.shutdown(SHUT_RDWR)
            self._thread.join(5)
            stream.close()
            end.close()
        return Usage()


class ThreadWorkers:
    """Counts what it starts."""

    def __init__(self) -> None:
        self.workers = self.evaluators = 0

    def worker(self, task: Task, seconds: float) -> ThreadProcess:
        self.workers += 1
        return ThreadProcess()

    def evaluator(self, task: Task, seconds: float) -> ThreadProcess:
        self.evaluators += 1
        return ThreadProcess()
