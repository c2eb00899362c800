"""What all report formats read: the graded class, the roster of a course system, safe cells.

klass = Class("a1_graph_ir", "A graph IR", results, excused={"eve"})
roster = Roster.read(Path("canvas-export.csv"))
put(Path("out/x.csv"), "text")                  # whole or not at all
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grader.model import Result, Row, Status, TaskResult

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Class:
    """All results of one assignment."""

    id: str
    title: str
    results: tuple[Result, ...]  # by student
    excused: frozenset[str] = field(default_factory=frozenset[str])

    @property
    def out_of(self) -> float:
        """Full marks."""
        return max((result.out_of for result in self.results), default=0.0)


@dataclass(frozen=True)
class Roster:
    """The students as the course system exports them: header and one row each."""

    header: tuple[str, ...]
    rows: tuple[dict[str, str], ...]

    @staticmethod
    def read(path: Path) -> Roster:
        """A CSV file with a header; ValueError if it has none."""
        text = path.read_text(encoding="utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""))
        if not reader.fieldnames:
            raise ValueError(f"{path}: no header line")
        rows = tuple({k: v or "" for k, v in row.items() if k} for row in reader)
        return Roster(tuple(reader.fieldnames), rows)

    def find(self, student: str, columns: Iterable[str]) -> dict[str, str] | None:
        """The row in which one of the columns says `student`."""
        wanted = student.casefold()
        for column in columns:
            for row in self.rows:
                if row.get(column, "").strip().casefold() == wanted:
                    return row
        return None


def cell(value: object) -> str:
    """A value for a CSV cell: what a spreadsheet would take for a formula gets an apostrophe."""
    text = str(value)
    return "'" + text if text.startswith(_FORMULA) else text


def csv_text(rows: Sequence[Sequence[object]]) -> str:
    """CSV by RFC 4180: quoted where needed, CRLF line ends, no formulas."""
    out = io.StringIO(newline="")
    csv.writer(out).writerows([cell(value) for value in row] for row in rows)
    return out.getvalue()


def number(value: float) -> str:
    """Points without needless zeros: 12, 7.5."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def file_name(student: str) -> str:
    """A name of a file or folder that cannot leave its folder: one for each student.

    Where it is not the student's own name, or another's may differ in case only, a digest follows.
    """
    safe = re.sub(r"[^\w.@-]", "_", student).lstrip(".") or "_"
    if safe == student and len(safe) <= 100 and safe == safe.lower():
        return safe
    digest = hashlib.sha256(student.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{safe[:90]}-{digest[:8]}"


def summary(task: TaskResult) -> str:
    """One line: '1.2 order: 8 of 12, 5 of 7 tests passed'."""
    if not task.counts:
        return f"{task.id} {task.title}: not graded yet, the grader failed"
    passed = sum(row.status == Status.PASSED for row in task.rows)
    points = f"{number(task.earned)} of {number(task.points)}"
    return f"{task.id} {task.title}: {points} points, {passed} of {len(task.rows)} tests passed"


def feedback(task: TaskResult, lines: int = 30) -> list[str]:
    """What a student reads of one task: what is right first, then what is not; no hidden values."""
    good = [row for row in task.rows if row.status == Status.PASSED]
    bad = [row for row in task.rows if row.status != Status.PASSED]
    text = [f"✓ {row.claim or row.test}" for row in good]
    for row in bad:
        text += row_lines(row)
    hint = [f"hint: {task.hint}"] if bad and task.hint else []
    room = lines - len(hint)
    if len(text) > room:
        text = [*text[: room - 1], f"… and {len(text) - room + 1} lines more"]
    return text + hint


def row_lines(row: Row) -> list[str]:
    """One test that did not pass."""
    lines = [f"✗ {row.claim or row.test} ({row.status})"]
    if row.sentence:
        lines.append(f"    {row.sentence}")
    lines += [f"    {frame}" for frame in row.frames]
    lines += [f"    {line}" for line in row.details.splitlines()]
    return lines
