"""Many kernels to machine code, in several processes where that is quicker.

    natives = compile_kernels(functions, target)    # as compile_kernel for each, in order

LLVM as Python sees it has one lock, so that threads would wait for each other. This process begins
alone; if the rest would take longer than it takes to start helpers (worker.py), one is started for
each core but one, and all take kernels from one list. What a helper does not bring, because it
died, cannot be started or is late, is compiled here: helpers change nothing but the time.
MINIDLC_JOBS says how many processes, 1 for this one alone. Treated in course chapter
05_backend_opt.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from minidlc.codegen import compile as compiler
from minidlc.codegen.cache import source_digest
from minidlc.codegen.compile import Kernel, build_kernel, kernel_key, kernel_symbol
from minidlc.loop.nodes import LoopFunction
from minidlc.support import extension
from minidlc.support.child import Child, ChildLost
from minidlc.support.errors import OptionError
from minidlc.target import Target

_START_SECONDS = 1.0  # of a helper: imports, mostly
_PATIENCE = 60.0  # seconds that the last kernels may take in helpers, when all others are done
_SERVE = "import sys; sys.path[:] = {path!r}; from minidlc.codegen.worker import serve; serve()"

Built = tuple[str, bytes]  # LLVM text and object


def jobs() -> int:
    """How many processes may compile: MINIDLC_JOBS, or the cores this process may use.

    OptionError (MDLC1006) for what is no number from 1.
    """
    if chosen := os.environ.get("MINIDLC_JOBS", ""):
        if not (chosen.isascii() and chosen.isdigit()) or int(chosen) < 1:
            text = f"MINIDLC_JOBS: expected a number from 1, got {chosen!r}"
            raise OptionError(text, hint="unset it for one process a core", code="MDLC1006")
        return int(chosen)
    usable = getattr(os, "sched_getaffinity", None)  # Linux
    return len(usable(0)) if usable else os.cpu_count() or 1


def compile_kernels(
    functions: Sequence[LoopFunction], target: Target, *, cache: bool = True
) -> list[Kernel]:
    """The machine code of each function; equal ones are compiled once. Errors of compile_kernel."""
    if extension.active():  # where a reader's part stands in it is to be called, and here
        return [compiler.compile_kernel(fn, target, cache=cache) for fn in functions]
    keys = [kernel_key(fn, target) for fn in functions]
    wanted = dict(zip(keys, functions, strict=True))
    built: dict[str, Built] = {}
    for key in wanted if cache else ():
        if (stored := compiler.kernel_cache.read(key)) is not None:
            built[key] = stored
    missing = {key: fn for key, fn in wanted.items() if key not in built}
    made = _Work(missing, target, cache).done()
    return [
        Kernel(kernel_symbol(key), fn, target, *(made.get(key) or built[key]))
        for key, fn in zip(keys, functions, strict=True)
    ]


@dataclass(frozen=True)
class _Job:
    key: str
    fn: LoopFunction
    size: int  # of its text, by which its time is guessed


class _Work:
    """Kernels that wait, are away with a helper, or are done."""

    def __init__(self, missing: dict[str, LoopFunction], target: Target, cache: bool) -> None:
        waiting = [_Job(key, fn, len(str(fn))) for key, fn in missing.items()]
        self.waiting = deque(sorted(waiting, key=lambda job: -job.size))  # the longest first
        self.away: dict[str, _Job] = {}
        self.built: dict[str, Built] = {}
        self.changed = threading.Condition()
        self.helpers: list[_Helper] = []
        self.target = target
        self.cache = cache

    def done(self) -> dict[str, Built]:
        """All of them, compiled; helpers are gone when this returns, however it does."""
        begin, finished = time.perf_counter(), 0
        try:
            while (job := self.next_here()) is not None:
                self.add(job, build_kernel(job.fn, self.target, kernel_symbol(job.key)))
                finished += job.size
                with self.changed:
                    rest = sum(waiting.size for waiting in self.waiting)
                seconds = (time.perf_counter() - begin) * rest / max(1, finished)
                if seconds > _START_SECONDS and not self.helpers:
                    self.hire(min(jobs(), len(self.waiting)) - 1)
        finally:
            self.dismiss()
        return self.built

    def hire(self, count: int) -> None:
        """Start helpers, as many as can be started."""
        for _ in range(count):
            helper = _Helper.start()
            if helper is None:
                return
            self.helpers.append(helper)
            threading.Thread(target=self.feed, args=(helper,), daemon=True).start()

    def feed(self, helper: _Helper) -> None:
        """In a thread: give the helper one job after the other; what it does not do comes back."""
        ready = helper.greets()
        while ready and (job := self.next_away()) is not None:
            found = helper.build(job, self.target)
            if found is not None:
                self.add(job, found)
            with self.changed:
                if self.away.pop(job.key, None) is not None and found is None:
                    self.waiting.append(job)
                self.changed.notify()
            ready = found is not None
        helper.close()

    def add(self, job: _Job, found: Built) -> None:
        """Note what came out, on disk too."""
        if self.cache:
            compiler.kernel_cache.write(job.key, *found)
        self.built[job.key] = found

    def next_away(self) -> _Job | None:
        """A job for a helper; None if no more wait."""
        with self.changed:
            if not self.waiting:
                return None
            job = self.waiting.popleft()
            self.away[job.key] = job
            return job

    def next_here(self) -> _Job | None:
        """A job for this process; None if all are done. Waits for helpers, but not for ever."""
        end = time.monotonic() + _PATIENCE
        with self.changed:
            while not self.waiting and self.away:
                if not self.changed.wait(max(0.0, end - time.monotonic())):
                    self.dismiss()
                    self.waiting.extend(self.away.values())
                    self.away.clear()
            return self.waiting.popleft() if self.waiting else None

    def dismiss(self) -> None:
        """End the helpers."""
        for helper in self.helpers:
            helper.end()


class _Helper:
    """A child process that compiles what it is given."""

    def __init__(self, child: Child) -> None:
        self.child = child

    @staticmethod
    def start() -> _Helper | None:
        """A new one; None where there can be none."""
        child = Child.start(_SERVE)
        return None if child is None else _Helper(child)

    def greets(self) -> bool:
        """True once it is there and runs the same code generator as this process."""
        return self._answer(None) == source_digest()

    def build(self, job: _Job, target: Target) -> Built | None:
        """What the helper made of a job; None if nothing, for whatever reason."""
        found = self._answer((job.fn, target, kernel_symbol(job.key)))
        match found:
            case (str() as text, bytes() as code):
                return text, code
            case _:
                return None

    def _answer(self, request: object) -> object:
        try:
            return self.child.ask(request)
        except (ChildLost, RecursionError, pickle.PickleError):
            return None

    def end(self) -> None:
        """End the process, whatever it does."""
        self.child.end()

    def close(self) -> None:
        """Close the pipes: by the thread that uses them, or it might be waited for."""
        self.child.close()
