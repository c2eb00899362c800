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
from datetime import datetime
from pathlib import Path

from grader.files import read_text
from grader.model import Result, Row, Status, TaskResult

_MONTHS = (  # not strftime's, which are in the language of the machine
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
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
        """A CSV file in UTF-8 with a header. Raises OSError, ValueError."""
        reader = csv.DictReader(io.StringIO(read_text(path), newline=""))
        wanted = "the CSV export of Canvas, or the worksheet of Moodle"
        try:
            header = tuple(reader.fieldnames or ())
            rows = tuple({k: v or "" for k, v in row.items() if k} for row in reader)
        except csv.Error as error:
            raise ValueError(
                f"{path}: after line {reader.line_num}: {error}; give {wanted}"
            ) from None
        if not any(header):
            raise ValueError(f"{path}: no header line; give {wanted}")
        return Roster(header, rows)

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
    groups = grouped(task.rows)
    good = [group for group in groups if group.first.status == Status.PASSED]
    bad = [group for group in groups if group.first.status != Status.PASSED]
    text = [f"✓ {group.claim}" for group in good]
    for group in bad:
        text += group.lines()
    hint = [f"hint: {task.hint}"] if bad and task.hint else []
    room = lines - len(hint)
    if len(text) > room:
        text = [*text[: room - 1], f"… and {len(text) - room + 1} lines more"]
    return text + hint


@dataclass(frozen=True)
class Group:
    """Rows that say the same: cases of one parametrised test."""

    rows: tuple[Row, ...]

    @property
    def first(self) -> Row:
        """The one that is shown."""
        return self.rows[0]

    @property
    def claim(self) -> str:
        """'Ties. [two roots]', 'Ties. (3 cases)'; cases of hidden tests are not named."""
        claim = self.first.claim or self.first.test.partition("[")[0]
        if len(self.rows) > 1:
            return f"{claim} ({len(self.rows)} cases)"
        _, _, case = self.first.test.partition("[")
        named = case and self.first.public and self.first.status != Status.PASSED
        return f"{claim} [{case}" if named else claim

    def lines(self) -> list[str]:
        """One test that did not pass: the claim, what was seen, the details."""
        row = self.first
        seen = [row.sentence, *row.frames, *row.details.splitlines()]
        return [f"✗ {self.claim} ({row.status})", *(f"    {line}" for line in seen if line)]


def grouped(rows: Iterable[Row]) -> list[Group]:
    """Rows of one test with the same outcome are one group; the order is that of the first."""
    groups: dict[object, list[Row]] = {}
    for row in rows:
        said = () if row.status == Status.PASSED else (row.sentence, row.frames, row.details)
        key = (row.claim or row.test.partition("[")[0], row.public, row.status, said)
        groups.setdefault(key, []).append(row)
    return [Group(tuple(group)) for group in groups.values()]


def date(iso: str) -> str:
    """'30 November 2026, 12:00 UTC' of ISO 8601; any other text as it is."""
    try:
        time = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    zone = f" {time.tzname()}" if time.tzinfo else ""
    return f"{time.day} {_MONTHS[time.month - 1]} {time.year}, {time:%H:%M}{zone}"
