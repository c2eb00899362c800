"""Grading one submission: read it, run every task's tests, and write down what came of it.

    with Grader(load("assignments/a1_graph_ir"), Options(seed="course secret")) as grader:
        result = grader.grade(Path("submissions/ada"), "ada")
    result.score, result.error                      # a named fault of the whole submission, if any

Everything that costs time is made once: the test modules, the reference solution, the fork servers.
The seed of a student's hidden inputs comes from the course's secret. `grade_submission` is what a
process of the scheduler runs; it keeps its Grader from call to call.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import importlib
import linecache
import multiprocessing.util
import platform
import threading
import time
import types
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import minidlc
from grader import feedback, notebook
from grader.closing import Closing
from grader.collect import BrokenTests, Tests
from grader.files import glue_of
from grader.model import Assignment, Result, Row, Status, Task, TaskResult
from grader.notebook import Notebook, SubmissionError
from grader.program import Parts, Program, make_parts
from grader.runner import TaskRun, Workers
from grader.sandbox import Isolation, best, forkserver
from grader.workers import servers_for

_SKIPPED = ("tests", "benchmarks", "docs", "reports", "__pycache__")  # decide no score


@dataclass(frozen=True)
class Options:
    """How to grade."""

    seed: str = ""  # the course's secret
    tasks: tuple[str, ...] = ()  # only these; () is all
    public_only: bool = False
    isolation: Isolation | None = None  # None: the best that this machine has
    overlays: str = ""  # a folder that processes of this machine share; "": one of its own


class Grader(Closing):
    """Grades submissions of one assignment, one after the other."""

    def __init__(
        self, assignment: Assignment, options: Options | None = None, workers: Workers | None = None
    ) -> None:
        self.assignment = assignment
        self.options = options or Options()
        self.level = best() if self.options.isolation is None else self.options.isolation
        late = forkserver.LLVM if assignment.llvm else ()
        for name in (*forkserver.PRELOADED, *late):  # now, not while the first deadline runs
            importlib.import_module(name)
        self.stop_early = False  # at a task's first test that does not pass: for `check.py`
        self.tests = Tests(assignment, self.options.public_only)
        overlays = Path(self.options.overlays) if self.options.overlays else None
        self._servers = servers_for(assignment, self.level, overlays)
        self._workers: Workers = workers or self._servers

    def grade(self, submission: Path, student: str) -> Result:
        """The result of a notebook, or of the folder that holds it. Raises nothing."""
        start, cpu = time.perf_counter(), time.thread_time()
        submitted = ""
        try:
            path = notebook.find(submission, self.assignment.id)
            data = notebook.read_bytes(path)
            submitted = time_of(submission, path)
            book = notebook.parse(data, path.name)
        except SubmissionError as error:
            return self._without(student, str(error), submitted)
        read = time.thread_time() - cpu
        result = self.grade_notebook(book, student)
        times = result.times | {
            "wall": time.perf_counter() - start,
            "read": read,
            "parent": time.thread_time() - cpu,
        }
        digest = self.digest(data, student)
        return dataclasses.replace(result, digest=digest, submitted=submitted, times=times)

    def grade_notebook(self, book: Notebook, student: str) -> Result:
        """The result of a notebook that has been read."""
        cpu = time.thread_time()
        parts = make_parts(book, self.own, self.assignment)
        times = {"program": time.thread_time() - cpu, "worker": 0.0}
        tasks: list[TaskResult] = []
        for task in self.tasks():
            wall = time.perf_counter()
            result, worker = self._task(task, parts, self.seed(student))
            tasks.append(result)
            times["worker"] += worker
            times[f"task {task.id}"] = time.perf_counter() - wall
        return self.result(student, tasks, times=times)

    def seed(self, student: str) -> int:
        """Of this student's hidden inputs."""
        text = f"{self.assignment.id}/{student}".encode()
        key = hmac.digest(self.options.seed.encode(), text, "sha256")
        return int.from_bytes(key[:6], "big")  # 48 bits: exact in every reader of JSON

    def digest(self, data: bytes, student: str) -> str:
        """Of all that decides the result of a submission with these bytes."""
        chosen = [self.seed(student), self.options.public_only, self.level.name]
        words = [hashlib.sha256(data).hexdigest(), self._base, *map(str, chosen)]
        return hashlib.sha256("/".join(words).encode()).hexdigest()

    @cached_property
    def own(self) -> Notebook:
        """The instructor's notebook."""
        return notebook.instructor(self.assignment.folder)

    @cached_property
    def glue(self) -> str:
        """How tests call the functions."""
        return glue_of(self.assignment.folder)

    @cached_property
    def _base(self) -> str:
        return f"{digest_of_files(self.assignment.folder)}/{digest_of_grader()}"

    @cached_property
    def _reference_parts(self) -> Parts:
        return make_parts(self.own, self.own, self.assignment)

    @cached_property
    def _reference(self) -> types.SimpleNamespace:
        """The names of the solution cells, run in this process: they are ours."""
        namespace: dict[str, Any] = {"__name__": f"reference_{self.assignment.id}"}
        for cell in self.own.cells:
            if cell.code and not cell.grade:
                file = f"<reference {self.assignment.id} {cell.grade_id or cell.position}>"
                lines = cell.source.splitlines(keepends=True)
                linecache.cache[file] = (len(cell.source), None, lines, file)
                exec(compile(cell.source, file, "exec"), namespace)
        return types.SimpleNamespace(**namespace)

    def _try_reference(self) -> None:
        with suppress(Exception):  # the tests that need it will say so
            _ = self._reference

    def tasks(self) -> list[Task]:
        """The tasks that are graded."""
        chosen = self.options.tasks
        return [task for task in self.assignment.tasks if not chosen or task.id in chosen]

    def _task(self, task: Task, parts: Parts, seed: int) -> tuple[TaskResult, float]:
        """The result, and the CPU seconds of its worker."""
        try:
            tests = self.tests.of(task)
        except BrokenTests as error:
            return self.unrun(task, Status.GRADER_ERROR, str(error)), 0.0
        if any("reference" in test.fixtures for test in tests):
            self._try_reference()  # before a deadline runs
        run = TaskRun(
            task,
            tests,
            parts.program(task),
            self.glue,
            self._workers,
            seed,
            lambda: self._reference,
            self._reference_program(task),
            self.stop_early,
        )
        return run.run(), run.usage.cpu_seconds

    def _reference_program(self, task: Task) -> Program | None:
        return None if self.options.public_only else self._reference_parts.program(task)

    def unrun(self, task: Task, status: Status, text: str) -> TaskResult:
        """A task of which no test ran."""
        try:
            if status == Status.GRADER_ERROR:
                raise BrokenTests(text)
            rows: list[Row] = feedback.same_for_all(self.tests.of(task), status, text)
        except BrokenTests:
            rows = feedback.placeholders(task, self.options.public_only, status, text)
        return TaskResult(task.id, task.title, task.points, tuple(rows))

    def _without(self, student: str, error: str, submitted: str) -> Result:
        """The result of a submission that cannot be read: every test is missing."""
        tasks = [self.unrun(task, Status.MISSING, error) for task in self.tasks()]
        return self.result(student, tasks, error=error, submitted=submitted)

    def result(self, student: str, tasks: Iterable[TaskResult], **fields: Any) -> Result:
        """A result of this assignment with these tasks."""
        return Result(
            student,
            self.assignment.id,
            tuple(tasks),
            public_only=self.options.public_only,
            isolation=self.level.name.lower(),
            seed=self.seed(student),
            **fields,
        )

    def close(self) -> None:
        """End the fork servers."""
        self._servers.close()


def time_of(submission: Path, path: Path) -> str:
    """When it was handed in: `timestamp.txt` as nbgrader writes it, else the file's time."""
    stamp = submission / "timestamp.txt"
    if stamp.is_file() and not stamp.is_symlink():
        text = stamp.read_text(encoding="utf-8", errors="replace")[:100].strip()
        try:
            return datetime.fromisoformat(text.removesuffix(" UTC") + "+00:00").isoformat()
        except ValueError:
            try:
                return datetime.fromisoformat(text).astimezone(UTC).isoformat()
            except ValueError:
                pass
    return datetime.fromtimestamp(int(path.stat().st_mtime), UTC).isoformat()


def digest_of_files(folder: Path) -> str:
    """Of the names and bytes of all files in that folder that can decide a score."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder)
        if path.suffix in (".py", ".toml", ".ipynb") and "__pycache__" not in inner.parts:
            found.update(f"{inner.as_posix()}\0".encode())
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


@lru_cache(maxsize=1)
def digest_of_grader() -> str:
    """Of the grader, the compiler, and the versions below them."""
    found = hashlib.sha256(f"{platform.python_version()} {np.__version__}".encode())
    for package in (Path(__file__).parent, Path(minidlc.__file__).parent):
        for path in sorted(package.rglob("*.py")):
            if not set(_SKIPPED) & set(path.relative_to(package).parts):
                found.update(path.read_bytes())
    return found.hexdigest()


def fault(assignment: Assignment, options: Options, student: str, text: str) -> Result:
    """The result of a submission that could not be graded through a fault of ours."""
    grader = Grader(assignment, options)
    tasks = [grader.unrun(task, Status.GRADER_ERROR, text) for task in grader.tasks()]
    return grader.result(student, tasks, error=feedback.OURS)


_kept = threading.local()  # of a process of the scheduler: a Grader for each of its threads


def grade_submission(
    assignment: Assignment, submission: Path, student: str, options: Options
) -> Result:
    """Grade with this thread's Grader, which is made anew when assignment or options change."""
    key = (assignment, options)
    if getattr(_kept, "key", None) != key:
        if hasattr(_kept, "grader"):
            _kept.grader.close()
        _kept.grader = Grader(assignment, options)
        _kept.key = key
        multiprocessing.util.Finalize(_kept.grader, _kept.grader.close, exitpriority=10)
    return _kept.grader.grade(submission, student)
