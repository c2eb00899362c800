"""HTML pages: one for each student, one for the class. Self-contained: no script, no network.

    write(klass, Path("out"))                       # out/class.html, out/students/ADA.html

A student's page never holds hidden values: it is made from the fields of a Row that are for
students. The class page, for the instructor, also holds the details of hidden tests.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

import minidlc as mc
from grader.files import put
from grader.model import Result, Row, Status, TaskResult
from grader.reports.klass import Class, Roster, date, file_name, grouped, number
from minidlc.support.errors import CompileError

BINS = 10  # of the distribution
MARKS = {Status.PASSED: "✓", Status.NOT_RUN: "–", Status.MISSING: "–", Status.GRADER_ERROR: "!"}


def _code(value: str) -> Markup:
    """What stands between backticks in typewriter letters."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(value))))


_pages = Environment(
    loader=PackageLoader("grader.reports"),
    autoescape=select_autoescape(["html"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_pages.filters["points"] = number
_pages.filters["date"] = date
_pages.filters["code"] = _code


def write(klass: Class, out: Path, roster: Roster | None = None) -> list[Path]:
    """All pages; the class page links to the others."""
    pages = [put(out / "students" / _page(r), student_page(klass, r)) for r in klass.results]
    return [put(out / "class.html", class_page(klass)), *pages]


def _page(result: Result) -> str:
    return file_name(result.student) + ".html"


def student_page(klass: Class, result: Result) -> str:
    """What one student may see."""
    template = _pages.get_template("student.html")
    return template.render(
        klass=klass,
        result=result,
        picture=picture,
        mark=_mark,
        grouped=grouped,
        passed=Status.PASSED,
    )


def _mark(row: Row) -> str:
    return MARKS.get(row.status, "✗")


def picture(row: Row) -> str:
    """SVG of 'expected / yours', or nothing if there are not two graphs."""
    if not row.expected or not row.yours:
        return ""
    try:
        expected, yours = mc.parse(row.expected), mc.parse(row.yours)
        return mc.viz.difference(expected, yours).svg
    except CompileError:
        return ""  # large constants do not stand in the text; the text itself is shown


@dataclass(frozen=True)
class Bin:
    """One bar of the distribution."""

    label: str
    students: int
    percent: float  # of the tallest bar


@dataclass(frozen=True)
class TaskRow:
    """One task on the class page."""

    task: TaskResult  # of any student: for id, title and full marks
    mean: float
    full: int  # students with full marks
    failures: list[tuple[str, str, int]]  # claim of a test, what was seen, students


def class_page(klass: Class) -> str:
    """What the instructor sees."""
    counted = [r for r in klass.results if r.counts and r.student not in klass.excused]
    scores = [result.score for result in counted]
    return _pages.get_template("class.html").render(
        klass=klass,
        page=_page,
        counted=len(counted),
        median=statistics.median(scores) if scores else 0.0,
        mean=statistics.fmean(scores) if scores else 0.0,
        bins=distribution(scores, klass.out_of),
        tasks=task_rows(counted),
        private=[(r, found) for r in klass.results if (found := hidden_failures(r))],
    )


@dataclass(frozen=True)
class HiddenFailures:
    """The hidden tests of a task that a student's code did not pass, with their details."""

    id: str
    title: str
    rows: tuple[Row, ...]

    @property
    def failed(self) -> int:
        """How many."""
        return len(self.rows)


def hidden_failures(result: Result) -> list[HiddenFailures]:
    """Of one student, by task; tasks without any are left out."""
    found = [
        HiddenFailures(
            task.id,
            task.title,
            tuple(row for row in task.rows if row.private and row.status != Status.PASSED),
        )
        for task in result.tasks
    ]
    return [task for task in found if task.rows]


def distribution(scores: list[float], out_of: float) -> list[Bin]:
    """Ten bars from 0 to full marks; full marks are in the last."""
    step = out_of / BINS or 1.0
    counts = Counter(min(BINS - 1, int(score / step)) for score in scores)
    tallest = max(counts.values(), default=1)
    return [
        Bin(f"{number(i * step)}–{number((i + 1) * step)}", counts[i], 100 * counts[i] / tallest)
        for i in range(BINS)
    ]


def task_rows(results: list[Result]) -> list[TaskRow]:
    """Mean, full marks and the most common failures of each task."""
    rows: list[TaskRow] = []
    for id in dict.fromkeys(task.id for result in results for task in result.tasks):
        same = [task for result in results for task in result.tasks if task.id == id]
        seen = Counter(what for task in same for what in _failures(task))
        common = sorted(seen.items(), key=lambda item: (-item[1], item[0]))[:5]
        full = sum(task.earned == task.points for task in same)
        mean = statistics.fmean(task.earned for task in same)
        rows.append(TaskRow(same[0], mean, full, [(*what, n) for what, n in common]))
    return rows


def _failures(task: TaskResult) -> set[tuple[str, str]]:
    """Claim and what was seen, of one student: each once, however many cases failed."""
    ended = (Status.PASSED, Status.NOT_RUN)
    return {(row.claim or row.test, _seen(row)) for row in task.rows if row.status not in ended}


def _seen(row: Row) -> str:
    return row.exception or row.sentence or str(row.status)
