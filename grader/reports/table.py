"""A plain table: a row for each student, a column for each task.

    write(klass, Path("out"))                       # out/grades.csv, out/tests.csv

`grades.csv` has the points, `tests.csv` every expected test of every student with its outcome.
"""

from __future__ import annotations

from pathlib import Path

from grader.files import put
from grader.model import Result
from grader.reports.klass import Class, Roster, csv_text, number


def write(klass: Class, out: Path, roster: Roster | None = None) -> list[Path]:
    """Both tables."""
    return [
        put(out / "grades.csv", csv_text(grades(klass))),
        put(out / "tests.csv", csv_text(tests(klass))),
    ]


def grades(klass: Class) -> list[list[str]]:
    """Header and one row a student; empty where there is no score yet."""
    ids = list(dict.fromkeys(task.id for result in klass.results for task in result.tasks))
    rows = [["student", *ids, "score", "out of", "late", "factor", "remark"]]
    for result in klass.results:
        points = {task.id: number(task.earned) for task in result.tasks if task.counts}
        score = number(result.score) if result.counts else ""
        tail = [score, number(result.out_of), result.late, number(result.factor)]
        rows.append([result.student, *(points.get(id, "") for id in ids), *tail, _remark(result)])
    excused = klass.excused
    return [[*row[:-1], "excused"] if row[0] in excused else row for row in rows]


def _remark(result: Result) -> str:
    if not result.counts:
        return "not graded yet: the grader failed"
    return result.error or ("public checks only" if result.public_only else "")


def tests(klass: Class) -> list[list[str]]:
    """Header and one row an expected test."""
    rows = [["student", "task", "test", "public", "status", "exception", "sentence"]]
    for result in klass.results:
        for task in result.tasks:
            rows += [
                [
                    result.student,
                    task.id,
                    row.test,
                    "yes" if row.public else "no",
                    str(row.status),
                    row.exception,
                    row.sentence,
                ]
                for row in task.rows
            ]
    return rows
