"""Canvas: the CSV that its gradebook imports.

    write(klass, Path("out"), Roster.read(Path("export.csv")))      # out/canvas.csv

First the header, then the row `Points Possible`, then a row for each student. With the gradebook's
own export as roster the rows keep its names and numbers, and its column is found by the
assignment's name; without one the student's key stands for name and login. `EX` excuses; a cell
stays empty where there is no score yet. The format: Canvas, "How do I import grades in the
Gradebook?".
"""

from __future__ import annotations

import re
from pathlib import Path

from grader.files import put
from grader.model import Result
from grader.reports.klass import Class, Roster, csv_text, number

FIXED = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
_KEYS = ("SIS Login ID", "SIS User ID", "ID", "Student")


def write(klass: Class, out: Path, roster: Roster | None = None) -> list[Path]:
    """One file for the class."""
    return [put(out / "canvas.csv", "\ufeff" + text(klass, roster))]


def text(klass: Class, roster: Roster | None = None) -> str:
    """The CSV text."""
    possible = ["    Points Possible", "", "", "", "", number(klass.out_of)]
    rows = [[*FIXED, _column(klass, roster)], possible]
    rows += [[*_who(result, roster), _grade(klass, result)] for result in klass.results]
    return csv_text(rows)


def _column(klass: Class, roster: Roster | None) -> str:
    """`name (id)`: the id is Canvas's, from its export; a new column has none."""
    pattern = re.compile(rf"{re.escape(klass.title)} \(\d+\)")
    known = [name for name in (roster.header if roster else ()) if pattern.fullmatch(name)]
    return known[0] if known else klass.title


def _who(result: Result, roster: Roster | None) -> list[str]:
    row = roster.find(result.student, _KEYS) if roster else None
    if row is None:
        return [result.student, "", "", result.student, ""]
    return [row.get(name, "") for name in FIXED]


def _grade(klass: Class, result: Result) -> str:
    if result.student in klass.excused:
        return "EX"
    return number(result.score) if result.counts else ""
