"""Grading a folder of submissions: many at a time, resumable, and nothing is lost.

    order = Order(Path("submissions"), Path("results"), jobs=2, resume=True)
    summary = grade(load("assignments/a1_graph_ir"), order, console)
    summary.failed                                  # (("bob", "No notebook was handed in."), …)

Reads submissions, writes the results folder (gradebook.py) as each result comes in. With `resume` a
result is kept if nothing that decides it has changed. A job process that dies costs nobody: the
submissions it may have had are graded again, each alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

from rich.console import Console

from grader import notebook
from grader.files import put, read_text
from grader.gradebook import RESERVED, Gradebook
from grader.grading import Grader, Options, fault, time_of
from grader.jobs import executor, grade_one
from grader.model import Assignment, Result, result_from_json
from grader.notebook import SubmissionError
from grader.policy import load_policy
from grader.progress import Progress
from grader.sandbox import Isolation, best
from grader.workers import shared
from minidlc.support.errors import nearest

_LONGEST = 200  # bytes of a student's name, which becomes that of files
_ASIDE = (".csv", ".toml", ".json", ".md", ".sqlite")  # beside submissions, not one of them


class OrderError(Exception):
    """What was asked for cannot be done; the text says why."""


@dataclass(frozen=True)
class Order:
    """What to grade and how."""

    submissions: Path
    out: Path
    jobs: int = 1
    cluster: str = ""  # address of a Dask scheduler
    resume: bool = False
    only: tuple[str, str] | None = None  # student, task id or ""
    isolation: Isolation | None = None  # None: the best of this machine
    require: Isolation | None = None  # refuse to grade below this level
    secret: str = ""  # of the course; "": the file `secret` in `out`
    policy: Path | None = None
    public_only: bool = False


@dataclass
class Summary:
    """What came of it."""

    isolation: str
    students: int = 0
    graded: int = 0
    kept: int = 0  # of an earlier run
    failed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    seconds: float = 0.0


def grade(assignment: Assignment, order: Order, console: Console | None = None) -> Summary:
    """Grade what the order says. Raises OrderError, PolicyError, GradebookError, JobsError."""
    start = time.monotonic()
    console = console or Console(quiet=True)
    level = _level(order)
    found = _chosen(find_submissions(order.submissions, assignment.id), order)
    with ExitStack() as stack:
        book = stack.enter_context(Gradebook(order.out))
        _take_notes(book, assignment, order)
        overlays = "" if order.cluster else str(stack.enter_context(shared(assignment.tasks)))
        secret = order.secret or book.secret()
        options = Options(secret, _tasks(assignment, order), order.public_only, level, overlays)
        summary = Summary(level.name.lower(), students=len(found))
        todo = _todo(assignment, options, found, book, order, summary)
        run = _Run(assignment, order, options, book, summary)
        with Progress(console, len(todo)) as progress:
            run.all(todo, progress)
        _summarise(assignment, book, order.out, summary)
    summary.seconds = time.monotonic() - start
    return summary


def find_submissions(folder: Path, assignment: str) -> dict[str, Path]:
    """Student -> notebook or folder: `ada.ipynb`, `ada/….ipynb` or `ada/ASSIGNMENT/….ipynb`."""
    if not folder.is_dir():
        raise OrderError(f"{folder}: no such folder of submissions")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        inside = path.is_dir()
        if path.name.startswith((".", "__")) or (path.suffix in _ASIDE and not inside):
            continue
        student = path.name if inside else path.stem
        if student in found:
            raise OrderError(f"{student}: two submissions, {found[student].name} and {path.name}")
        if student in RESERVED or len(os.fsencode(student)) > _LONGEST or not student.isprintable():
            raise OrderError(
                f"{path.name!r:.60}: no student can be called {student!r:.60}; rename it"
            )
        inner = path / assignment
        linked = path.is_symlink() or inner.is_symlink()  # notebook.py refuses links
        found[student] = inner if inner.is_dir() and not linked else path
    if not found:
        raise OrderError(f"{folder}: no submissions in it")
    return found


def _level(order: Order) -> Isolation:
    level = best() if order.isolation is None else order.isolation
    if order.require is not None and level < order.require:
        wanted, have = order.require.name.lower(), level.name.lower()
        raise OrderError(f"isolation: {wanted} is required, this machine has {have}")
    return level


def _tasks(assignment: Assignment, order: Order) -> tuple[str, ...]:
    task = order.only[1] if order.only else ""
    ids = [one.id for one in assignment.tasks]
    if task and task not in ids:
        raise OrderError(f"no task {task!r}; {nearest(task, ids)}")
    return (task,) if task else ()


def _chosen(found: dict[str, Path], order: Order) -> dict[str, Path]:
    if order.only is None:
        return found
    student = order.only[0]
    if student not in found:
        raise OrderError(f"no submission of {student!r}; {nearest(student, found)}")
    return {student: found[student]}


def _take_notes(book: Gradebook, assignment: Assignment, order: Order) -> None:
    """The results folder belongs to one assignment; the policy stays with it."""
    known = book.note("assignment") or assignment.id
    if known != assignment.id:
        raise OrderError(f"{order.out} holds results of {known}, not of {assignment.id}")
    book.write_note("assignment", assignment.id)
    book.write_note("title", assignment.title)
    book.write_note("folder", str(assignment.folder.resolve()))
    if order.policy is not None:
        load_policy(order.policy)
        book.write_note("policy", read_text(order.policy))


def _todo(
    assignment: Assignment,
    options: Options,
    found: dict[str, Path],
    book: Gradebook,
    order: Order,
    summary: Summary,
) -> list[tuple[str, Path]]:
    """What has to be graded; with `resume`, without what stands and would come out the same."""
    if not order.resume:
        return list(found.items())
    todo: list[tuple[str, Path]] = []
    with Grader(assignment, options) as grader:
        for student, path in found.items():
            old = book.get(student)
            digest, submitted = _digest(grader, path, student)
            if old is None or not old.counts or old.digest != digest or not digest:
                todo.append((student, path))
                continue
            if old.submitted != submitted:  # the same again, at another time
                book.put(dataclasses.replace(old, submitted=submitted))
            summary.kept += 1
    return todo


def _digest(grader: Grader, path: Path, student: str) -> tuple[str, str]:
    try:
        file = notebook.find(path, grader.assignment.id)
        return grader.digest(notebook.read_bytes(file), student), time_of(path, file)
    except SubmissionError:
        return "", ""


@dataclass
class _Run:
    """The loop over an executor."""

    assignment: Assignment
    order: Order
    options: Options
    book: Gradebook
    summary: Summary

    def all(self, todo: list[tuple[str, Path]], progress: Progress) -> None:
        """Grade all; whatever a job process died of is found by grading its suspects alone."""
        waiting = deque(todo)
        while waiting:
            suspects = self._together(waiting, progress)
            for student, path in suspects:
                self._keep(self._alone(student, path), progress)

    def _together(
        self, waiting: deque[tuple[str, Path]], progress: Progress
    ) -> list[tuple[str, Path]]:
        """Empty `waiting`; returns early with those that ran when a job process died."""
        running: dict[Future[str], tuple[str, Path]] = {}
        try:
            with executor(self.order.jobs, self.order.cluster) as (pool, width):
                while waiting or running:
                    while waiting and len(running) < width + 1:  # one is there when one ends
                        future = pool.submit(grade_one, *self._call(*waiting[0]))
                        running[future] = waiting.popleft()
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        result = self._result(future, *running[future])
                        del running[future]
                        self._keep(result, progress)
        except BrokenExecutor:
            return list(running.values())
        return []

    def _alone(self, student: str, path: Path) -> Result:
        try:
            with executor(1, self.order.cluster) as (pool, _):
                future = pool.submit(grade_one, *self._call(student, path))
                return self._result(future, student, path)
        except BrokenExecutor as error:
            return self._fault(student, f"its job process died: {error}")

    def _call(self, student: str, path: Path) -> tuple[str, str, str, Options]:
        return str(self.assignment.folder.resolve()), os.path.abspath(path), student, self.options

    def _result(self, future: Future[str], student: str, path: Path) -> Result:
        try:
            return result_from_json(json.loads(future.result()))
        except BrokenExecutor:
            raise
        except Exception as error:
            return self._fault(student, f"{path}: {type(error).__name__}: {error}")

    def _fault(self, student: str, text: str) -> Result:
        return fault(self.assignment, self.options, student, text)

    def _keep(self, result: Result, progress: Progress) -> None:
        if self.options.tasks:
            result = _merged(self.book.get(result.student), result, self.assignment)
        self.book.put(result)
        self.summary.graded += 1
        progress.done(bool(result.error) or not result.counts)


def _merged(old: Result | None, new: Result, assignment: Assignment) -> Result:
    """The older result with the regraded tasks put in.

    If the rest is of another submission, or missing, the digest goes: `resume` grades all again.
    """
    fresh = {task.id: task for task in new.tasks}
    kept = {task.id: task for task in old.tasks} if old is not None else {}
    tasks = [fresh.get(task.id, kept.get(task.id)) for task in assignment.tasks]
    whole = old is not None and old.digest == new.digest and None not in tasks
    times = {**(old.times if old is not None else {}), **new.times}
    there = tuple(task for task in tasks if task is not None)
    return dataclasses.replace(new, tasks=there, digest=new.digest if whole else "", times=times)


def _summarise(assignment: Assignment, book: Gradebook, out: Path, summary: Summary) -> None:
    """summary.json, and the failed ones of the whole folder."""
    results = book.results()
    summary.failed = [(r.student, _why(r)) for r in results if r.error or not r.counts]
    scores = [r.score for r in book.final() if r.counts]
    data = {
        "assignment": assignment.id,
        "version": assignment.version,
        "students": len(results),
        "out_of": assignment.points,
        "mean": round(mean(scores), 2) if scores else None,
        "median": round(median(scores), 2) if scores else None,
        "isolation": sorted({r.isolation for r in results}),
        "failed": [{"student": student, "reason": why} for student, why in summary.failed],
    }
    put(out / "summary.json", json.dumps(data, sort_keys=True, indent=1, ensure_ascii=False) + "\n")


def _why(result: Result) -> str:
    tasks = ", ".join(task.id for task in result.tasks if not task.counts)
    return f"no score through a fault of the grader: task {tasks}" if tasks else result.error


def lines_of(summary: Summary) -> Iterator[str]:
    """What the command prints at the end."""
    kept = f", {summary.kept} kept of an earlier run" if summary.kept else ""
    yield f"{summary.graded} graded{kept} in {summary.seconds:.0f} s, isolation {summary.isolation}"
    if summary.failed:
        yield f"{len(summary.failed)} without a full result:"
        yield from (f"  {student}: {why}" for student, why in summary.failed)
