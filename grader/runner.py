"""Running one task's tests on one submission: a row for every test, whatever happens.

    run = TaskRun(task, tests, program, glue, workers, seed)
    result = run.run()                              # TaskResult
    run.usage.cpu_seconds                           # of the worker

Runs in the parent. A fresh worker gets the cells one by one, as in a notebook: a cell that raises
does not stop the next. All tests of the task share that worker; when it dies, its row says why and
the rest is not_run. A timeout in which worker and parent waited for a core, or the machine for its
disk, for a quarter of the time says nothing of the code: the machine was busy, and the task runs
again with three times the time. (Not if the worker computed for half of the time; where the kernel
does not tell how long one waited, that alone decides.) The evaluator starts when a test first asks
for it. A test that stumbles over an answer is tried on the reference solution: if it passes there,
the answer was wrong, else the fault is ours and the task has no score.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from grader import feedback
from grader.collect import Test
from grader.feedback import GraderFault, row_of
from grader.model import Row, Status, Task, TaskResult
from grader.program import Program
from grader.sandbox.limits import Usage, lost
from grader.student import Channel, Died, Student, StudentRaised

_LEAST = 0.5  # seconds that an evaluator gets at least, however late it is asked for


class Process(Channel, Protocol):
    """A worker or evaluator that can be ended."""

    def close(self) -> Usage:
        """End it and all that it started."""
        ...


class Workers(Protocol):
    """Who starts the processes: fork servers, a plain child at home, a thread while testing."""

    def worker(self, task: Task, seconds: float) -> Process:
        """A fresh worker for that task, with that deadline."""
        ...

    def evaluator(self, task: Task, seconds: float) -> Process:
        """A fresh evaluator."""
        ...


def rng_of(seed: int, task: str, test: str) -> np.random.Generator:
    """The random inputs of one test for one student; the same whatever ran before."""
    words = hashlib.sha256(f"{seed}/{task}/{test}".encode()).digest()
    return np.random.default_rng(int.from_bytes(words[:16], "big"))


@dataclass
class _Guarded:
    """A channel whose own faults are told from what a test or a student did."""

    channel: Channel

    def request(self, message: dict[str, Any], answer: Callable[[int, list[Any]], Any]) -> Any:
        try:
            return self.channel.request(message, answer)
        except (Died, StudentRaised, AssertionError):
            raise
        except Exception as error:
            raise GraderFault(f"the channel to a worker failed: {error}") from error


class _EvaluatorDied(Died):
    """Not the worker: the tests that follow still run."""


@dataclass
class _Evaluator:
    """An evaluator that starts at its first request, and again if it died."""

    workers: Workers
    task: Task
    end: float  # of the last deadline, in time.monotonic
    process: Process | None = None
    usage: Usage = field(default_factory=Usage)

    def request(self, message: dict[str, Any], answer: Callable[[int, list[Any]], Any]) -> Any:
        if self.process is None:
            seconds = max(_LEAST, self.end - time.monotonic())
            self.process = self.workers.evaluator(self.task, seconds)
        try:
            return self.process.request(message, answer)
        except Died as died:
            self.close()
            said = died.sentence[:1].lower() + died.sentence[1:]
            raise _EvaluatorDied(died.status, f"While your result was evaluated: {said}") from None

    def close(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            used = dataclasses.replace(process.close(), output="", output_bytes=0)
            self.usage = _sum(self.usage, used)


@dataclass
class TaskRun:
    """One task of one submission."""

    task: Task
    tests: list[Test]
    program: Program
    glue: str
    workers: Workers
    seed: int
    reference: Callable[[], Any] | None = None  # gives the namespace of the solution cells
    reference_program: Program | None = None  # None: not here (a student at home)
    stop_early: bool = False  # at the first test that does not pass: enough for `check.py`
    usage: Usage = field(default_factory=Usage)
    calls: dict[str, int] = field(default_factory=dict[str, int])
    _worker: Process | None = None
    _channel: _Guarded | None = None

    def run(self) -> TaskResult:
        """A row for every test."""
        before = lost()
        result = self._once(self.task.seconds)
        late = any(row.status == Status.TIMEOUT for row in result.rows)
        if late and self._starved(before):
            self.usage, self.calls = Usage(), {}
            return self._once(3 * self.task.seconds)
        return result

    def _starved(self, before: float | None) -> bool:
        """The machine was busy with other things; `before`: what was lost until the run began."""
        if self.usage.cpu_seconds >= self.task.seconds / 2:
            return False  # it had the time; 16 threads of its own would wait for each other
        ours, theirs = lost(), self.usage.waited_seconds
        if before is None or ours is None or theirs is None:
            return True
        return ours - before + theirs > self.task.seconds / 4

    def _once(self, seconds: float) -> TaskResult:
        self._seconds, self._end = seconds, time.monotonic() + seconds
        self._evaluator = _Evaluator(self.workers, self.task, self._end)
        try:
            rows = self._rows()
        except Exception as error:  # ours: what a student's code does is caught where it happens
            rows = [feedback.broken(test, feedback.trace(error)) for test in self.tests]
        finally:
            self._close()
            self._evaluator.close()
            self.usage = _sum(self.usage, self._evaluator.usage)
        task, calls = self.task, self.calls
        count = sum(calls.values()) if task.end_to_end else calls.get(task.id, 0)
        hint = feedback.hint_for(task, rows)
        output = feedback.clean(self.usage.output)
        if not all(test.public for test in self.tests):
            output = ""  # it may hold the hidden inputs
        return TaskResult(task.id, task.title, task.points, tuple(rows), count, hint, output)

    def _rows(self) -> list[Row]:
        if self.program.missing:
            return self._missing(self.program.missing)
        try:
            missing = self._start()
        except (Died, StudentRaised) as error:
            return self._none_ran(error)
        if missing:
            return self._missing(tuple(sorted(missing)))
        rows: list[Row] = []
        for i, test in enumerate(self.tests):
            error = self._outcome(test)
            rows.append(self._row(test, error))
            if isinstance(error, Died) and not isinstance(error, _EvaluatorDied):
                rest = f"Not run: an earlier test ended the process ({error.status.value})."
                return rows + feedback.same_for_all(self.tests[i + 1 :], Status.NOT_RUN, rest)
            if error is not None and self.stop_early:
                rest = "Not run: an earlier test did not pass."
                return rows + feedback.same_for_all(self.tests[i + 1 :], Status.NOT_RUN, rest)
        return rows

    def _missing(self, ids: tuple[str, ...]) -> list[Row]:
        names = [f"{self.program.functions[id]} (task {id})" for id in ids]
        sentence = f"Not found in the notebook: {', '.join(names)}."
        return feedback.same_for_all(self.tests, Status.MISSING, sentence)

    def _none_ran(self, error: Died | StudentRaised) -> list[Row]:
        """The cells themselves failed: every test has that error, or was not run."""
        if isinstance(error, StudentRaised):
            return [row_of(test, error, self.program, self.task.withheld) for test in self.tests]
        rest = f"Not run: the cells ended the process ({error.status.value})."
        first = [row_of(test, error, self.program, self.task.withheld) for test in self.tests[:1]]
        return first + feedback.same_for_all(self.tests[1:], Status.NOT_RUN, rest)

    def _start(self) -> set[str]:
        """A fresh worker in which the cells have run; the ids whose function is not there.

        Raises what the first failing cell raised, if a function is missing and a cell failed.
        """
        self._worker = self.workers.worker(self.task, self._seconds)
        self._channel = _Guarded(self._worker)
        return self._student("").start(self.program.cells, self.glue, self.program.functions)

    def _student(self, test: str) -> Student:
        rng = rng_of(self.seed, self.task.id, test)
        assert self._channel is not None
        return Student(self._channel, _Guarded(self._evaluator), rng, self.calls)

    def _outcome(self, test: Test) -> BaseException | None:
        """What the test raised; None if it passed."""
        try:
            test.function(**test.arguments, **self._fixtures(test))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # pytest.fail is not an Exception
            return error
        return None

    def _fixtures(self, test: Test) -> dict[str, Any]:
        student = self._student(test.name)
        values: dict[str, Any] = {"student": student, "rng": student.rng}
        if "reference" in test.fixtures:
            try:
                assert self.reference is not None, "no reference here"
                values["reference"] = self.reference()
            except Exception as error:
                raise GraderFault(f"the reference solution failed: {error}") from error
        return {name: values[name] for name in test.fixtures}

    def _row(self, test: Test, error: BaseException | None) -> Row:
        if error is None or isinstance(error, feedback.ANSWERS) or self._passes(test):
            return row_of(test, error, self.program, self.task.withheld)
        return feedback.broken(test, feedback.trace(error))

    def _passes(self, test: Test) -> bool:
        """True if the test passes with the reference solution and the same random inputs."""
        program = self.reference_program
        if program is None:
            return True
        again = TaskRun(
            self.task, [test], program, self.glue, self.workers, self.seed, self.reference
        )
        return again.run().status == Status.PASSED

    def _close(self) -> None:
        if self._worker is not None:
            worker, self._worker = self._worker, None
            self.usage = _sum(self.usage, worker.close())


def _sum(first: Usage, second: Usage) -> Usage:
    return Usage(
        first.cpu_seconds + second.cpu_seconds,
        _sum_known(first.waited_seconds, second.waited_seconds),
        max(first.peak_bytes, second.peak_bytes),
        first.output + second.output,
        first.output_bytes + second.output_bytes,
        first.left_behind + second.left_behind,
    )


def _sum_known(first: float | None, second: float | None) -> float | None:
    return second if first is None else first + (second or 0.0)
