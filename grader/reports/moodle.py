"""Moodle: the offline grading worksheet.

    write(klass, Path("out"), Roster.read(Path("worksheet.csv")))   # out/moodle.csv

Moodle knows students by `Participant n`. The number comes from the worksheet that Moodle exports,
or from the folder names of its download, `Ada Lovelace_1234_assignsubmission_file`. The format:
Moodle, "Assignment settings", offline grading worksheet.
"""

from __future__ import annotations

import re
from pathlib import Path

from grader.files import put
from grader.model import Result
from grader.reports.klass import Class, Roster, csv_text, feedback, number, summary

HEADER = ("Identifier", "Grade", "Last modified (grade)", "Feedback comments")
_FOLDER = re.compile(r".*_(\d+)_assignsubmission_.*|Participant[ _](\d+)(?:_.*)?")
_KEYS = ("Identifier", "Username", "ID number", "Email address", "Full name")


def write(klass: Class, out: Path, roster: Roster | None = None) -> list[Path]:
    """One file for the class; ValueError names students without a participant number."""
    return [put(out / "moodle.csv", "\ufeff" + text(klass, roster))]


def text(klass: Class, roster: Roster | None = None) -> str:
    """The CSV text."""
    found = {r.student: _identifier(r.student, roster) for r in klass.results}
    unknown = [student for student, identifier in found.items() if not identifier]
    if unknown:
        names = ", ".join(unknown[:10]) + (" …" if len(unknown) > 10 else "")
        raise ValueError(
            f"no participant number for {names}: give Moodle's worksheet with --roster, "
            "or keep the folder names of its download"
        )
    rows: list[tuple[str, ...]] = [HEADER]
    for result in klass.results:
        grade = number(result.score) if _counts(klass, result) else ""
        rows.append((found[result.student], grade, _when(result), _comment(result)))
    return csv_text(rows)


def _counts(klass: Class, result: Result) -> bool:
    return result.counts and result.student not in klass.excused


def _identifier(student: str, roster: Roster | None) -> str:
    row = roster.find(student, _KEYS) if roster else None
    if row is not None and row.get("Identifier"):
        return row["Identifier"]
    match = _FOLDER.fullmatch(student)
    return f"Participant {match[1] or match[2]}" if match else ""


def _when(result: Result) -> str:
    return result.submitted


def _comment(result: Result) -> str:
    if not result.counts:
        return ""
    lines = [text for text in (result.error, result.late) if text]
    for task in result.tasks:
        lines.append(summary(task))
        lines += [f"  {line}" for line in feedback(task, lines=10) if not line.startswith("✓")]
    return "\n".join(lines)
