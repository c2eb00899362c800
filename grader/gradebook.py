"""The gradebook: an SQLite file of results, overrides and extensions, each kept apart.

    with Gradebook(Path("results")) as book:        # results/gradebook.sqlite
        book.put(result)                            # and results/ada.json, both atomically
        book.override("ada", "1.2", 9, "cell was fine, my hidden test was not")
        book.final()                                # results with overrides, policy, extensions

Written by the parent only; workers cannot see the folder. Grading again leaves overrides and
extensions alone: they are applied when results are read for export.
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

from grader.closing import Closing
from grader.files import put, read_text
from grader.model import Result, result_from_json, to_json
from grader.policy import Policy, parse_policy

FILE = "gradebook.sqlite"
RESERVED = ("summary",)  # names of files beside those of the students
_VERSION = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS notes (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS results
    (student TEXT PRIMARY KEY, digest TEXT NOT NULL, submitted TEXT NOT NULL, result TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS overrides
    (student TEXT, task TEXT, points REAL NOT NULL, reason TEXT NOT NULL,
     PRIMARY KEY (student, task));
CREATE TABLE IF NOT EXISTS extensions
    (student TEXT PRIMARY KEY, due TEXT NOT NULL, reason TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS excused (student TEXT PRIMARY KEY, reason TEXT NOT NULL);
"""


class GradebookError(Exception):
    """The gradebook cannot be used; the text says why."""


class Gradebook(Closing):
    """The results folder of one assignment in one course."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        except FileExistsError:
            raise GradebookError(f"{folder}: is a file; results go into a folder") from None
        except OSError as error:
            raise GradebookError(f"{path}: cannot be used: {error.strerror}") from None
        try:
            self._base = sqlite3.connect(path, timeout=30.0, isolation_level=None)
        except sqlite3.Error as error:
            raise GradebookError(f"{path}: {_reason(error)}") from None
        try:
            self._begin()
        except sqlite3.Error as error:
            self.close()
            raise GradebookError(f"{path}: {_reason(error)}") from None
        except GradebookError:
            self.close()
            raise

    def _begin(self) -> None:
        """Make the tables, or see that they are those of this grader."""
        self._base.execute("PRAGMA journal_mode=WAL")
        self._base.executescript(_TABLES)
        version = self.note("version") or self._noted("version", str(_VERSION))
        if version != str(_VERSION):
            path = self.folder / FILE
            raise GradebookError(f"{path}: version {version}, this grader writes {_VERSION}")

    def note(self, key: str) -> str:
        """A note, "" if there is none: "assignment", "policy"."""
        with closing(self._base.execute("SELECT value FROM notes WHERE key=?", (key,))) as rows:
            row = rows.fetchone()
        return row[0] if row else ""

    def write_note(self, key: str, value: str) -> None:
        """Set a note."""
        self._base.execute("REPLACE INTO notes VALUES (?, ?)", (key, value))

    def _noted(self, key: str, value: str) -> str:
        self.write_note(key, value)
        return value

    def secret(self) -> str:
        """The course's secret, from which the students' seeds come; made at the first call."""
        path = self.folder / "secret"
        if not path.exists():
            put(path, secrets.token_hex(16) + "\n", mode=0o600)
        return read_text(path).strip()

    def put(self, result: Result) -> None:
        """Store a result, in place of an older one: its JSON file, then the row."""
        text = text_of(result)
        put(self.folder / f"{result.student}.json", text)
        row = (result.student, result.digest, result.submitted, text)
        self._base.execute("REPLACE INTO results VALUES (?, ?, ?, ?)", row)

    def get(self, student: str) -> Result | None:
        """That student's result as graded."""
        query = "SELECT result FROM results WHERE student=?"
        with closing(self._base.execute(query, (student,))) as rows:
            row = rows.fetchone()
        return self._read(student, row[0]) if row else None

    def results(self) -> list[Result]:
        """All results as graded, by student."""
        query = "SELECT student, result FROM results ORDER BY student"
        with closing(self._base.execute(query)) as rows:
            return [self._read(student, text) for student, text in rows]

    def _read(self, student: str, text: str) -> Result:
        """A row's result. GradebookError if this grader did not write it."""
        try:
            return result_from_json(json.loads(text))
        except (AttributeError, KeyError, TypeError, ValueError):
            hint = f"grade it again with --only {student}"
            said = f"the result of {student!r} is not one of this grader; {hint}"
            raise GradebookError(f"{self.folder / FILE}: {said}") from None

    def override(self, student: str, task: str, points: float, reason: str) -> None:
        """Set the points of a task by hand. GradebookError if there is no such result or task."""
        result = self.get(student)
        if result is None:
            raise GradebookError(f"no result of {student!r}")
        most = {one.id: one.points for one in result.tasks}
        if task not in most:
            raise GradebookError(f"{student!r} has no task {task!r}")
        if not 0 <= points <= most[task]:  # nan is neither
            raise GradebookError(f"task {task} has 0 to {most[task]:g} points, got {points:g}")
        row = (student, task, points, reason)
        self._base.execute("REPLACE INTO overrides VALUES (?, ?, ?, ?)", row)

    def remove_override(self, student: str, task: str) -> None:
        """Let the graded points count again. GradebookError if none were set by hand."""
        query = "DELETE FROM overrides WHERE student=? AND task=?"
        with closing(self._base.execute(query, (student, task))) as rows:
            if not rows.rowcount:
                raise GradebookError(f"no points of {student!r} were set for task {task!r}")

    def overrides(self) -> list[tuple[str, str, float, str]]:
        """Student, task, points, reason."""
        with closing(self._base.execute("SELECT * FROM overrides ORDER BY 1, 2")) as rows:
            return rows.fetchall()

    def extend(self, student: str, due: datetime, reason: str) -> None:
        """Give a student until `due`, a time with its zone."""
        if due.tzinfo is None:
            raise GradebookError(f"the extension of {student!r} needs a time zone")
        row = (student, due.isoformat(), reason)
        self._base.execute("REPLACE INTO extensions VALUES (?, ?, ?)", row)

    def extensions(self) -> dict[str, datetime]:
        """Of each student who has one."""
        with closing(self._base.execute("SELECT student, due FROM extensions")) as rows:
            return {student: datetime.fromisoformat(due) for student, due in rows}

    def excuse(self, student: str, reason: str, *, excused: bool = True) -> None:
        """Excuse a student: reports say so in place of a score; `excused=False` takes it back."""
        if excused:
            self._base.execute("REPLACE INTO excused VALUES (?, ?)", (student, reason))
        else:
            self._base.execute("DELETE FROM excused WHERE student=?", (student,))

    def excused(self) -> list[str]:
        """Who is excused."""
        with closing(self._base.execute("SELECT student FROM excused ORDER BY 1")) as rows:
            return [student for (student,) in rows]

    def final(self) -> list[Result]:
        """All results as they count: with overrides, late policy and extensions."""
        text = self.note("policy")
        policy = parse_policy(text) if text else Policy()
        points = {(student, task): value for student, task, value, _ in self.overrides()}
        longer = self.extensions()
        return [_final(r, points, policy, longer.get(r.student)) for r in self.results()]

    def close(self) -> None:
        """Close the file."""
        self._base.close()


def _final(
    result: Result,
    points: dict[tuple[str, str], float],
    policy: Policy,
    extension: datetime | None,
) -> Result:
    tasks = tuple(
        dataclasses.replace(task, override=points.get((result.student, task.id)))
        for task in result.tasks
    )
    verdict = policy.judge(result.student, result.submitted, extension)
    return dataclasses.replace(result, tasks=tasks, late=verdict.sentence, factor=verdict.factor)


def _reason(error: sqlite3.Error) -> str:
    """What is wrong with the file, and what to do."""
    if isinstance(error, sqlite3.OperationalError):  # locked, read-only, another's tables
        return f"cannot be used: {error}"
    hint = "put a copy of it back, or grade into another folder"
    return f"not an SQLite database, or a damaged one; {hint}"


def text_of(result: Result) -> str:
    """The JSON of a result: the same bytes for the same result."""
    return json.dumps(to_json(result), sort_keys=True, indent=1, ensure_ascii=False) + "\n"
