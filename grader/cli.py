"""The command line of the grader: a thin shell over its modules.

    python -m grader check assignments/a1_graph_ir
    python -m grader release assignments/a1_graph_ir --out dist/
    python -m grader grade assignments/a1_graph_ir submissions/ --out results/ --jobs 2
    python -m grader report results/ --format html
    python -m grader mark results/ bob --task 1.2 --points 8 --why "spoken of in class"

What is wrong with the input is said in one sentence, and exits with 1. docs/teaching.md is the
manual.
"""

from __future__ import annotations

import csv
import sqlite3
import sys
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from grader import check as check_module
from grader import doctor as doctor_module
from grader import release as release_module
from grader import reports, scheduler
from grader.gradebook import Gradebook, GradebookError
from grader.jobs import JobsError
from grader.manifest import ManifestError, load
from grader.notebook import SubmissionError
from grader.policy import PolicyError
from grader.reports.gradescope import autograder_zip
from grader.reports.klass import Class, Roster
from grader.sandbox import Isolation
from grader.similarity import write_pairs

app = typer.Typer(
    help="Release, check, grade and report assignments. The manual: grader/docs/teaching.md",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
out_console = Console(highlight=False, soft_wrap=True)

PROJECT = Path(__file__).parents[1]
FAULTS = (
    GradebookError,
    JobsError,
    ManifestError,
    PolicyError,
    SubmissionError,
    release_module.ReleaseError,
    scheduler.OrderError,
    OSError,
    ValueError,
    csv.Error,
    sqlite3.Error,
)


class Level(StrEnum):
    """Isolation levels by name."""

    RLIMITS = "rlimits"
    UID = "uid"
    NAMESPACES = "namespaces"


class Format(StrEnum):
    """Formats of `report`: those of grader/reports, and similarity."""

    HTML = "html"
    GRADESCOPE = "gradescope"
    CANVAS = "canvas"
    MOODLE = "moodle"
    JUNIT = "junit"
    CSV = "csv"
    SIMILARITY = "similarity"


Folder = Annotated[Path, typer.Argument(help="assignments/NAME, or NAME alone")]
Results = Annotated[Path, typer.Argument(help="the folder that `grade --out` wrote")]


def _folder(folder: Path) -> Path:
    """The folder of an assignment: as given, or of that name among the project's."""
    beside = PROJECT / "assignments" / folder
    return beside if not folder.is_dir() and beside.is_dir() else folder


@app.command()
def release(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="where the student's folder goes")] = Path("dist"),
    gradescope: Annotated[
        Path | None, typer.Option(help="also write the zip that grades on Gradescope")
    ] = None,
) -> None:
    """Build what students get: the notebook without solutions, public tests, glue."""
    built = release_module.release(_folder(folder), out)
    out_console.print(f"released  {built}", markup=False)
    if gradescope is not None:
        path = autograder_zip(PROJECT, _folder(folder), gradescope)
        out_console.print(f"zip       {path}", markup=False)


@app.command()
def check(
    folder: Folder,
    all_mutants: Annotated[bool, typer.Option(help="every mutant, not a sample")] = False,
) -> None:
    """Prove that an assignment holds: it can be solved, wrong work loses points, nothing leaks."""
    good = check_module.check(_folder(folder), out_console, all_mutants=all_mutants)
    raise typer.Exit(0 if good else 1)


@app.command()
def grade(
    folder: Folder,
    submissions: Annotated[Path, typer.Argument(help="one notebook or folder for each student")],
    out: Annotated[Path, typer.Option(help="results; kept and added to")] = Path("results"),
    jobs: Annotated[int, typer.Option(min=1, help="submissions at the same time")] = 2,
    cluster: Annotated[str, typer.Option(help="address of a Dask scheduler, HOST:PORT")] = "",
    resume: Annotated[bool, typer.Option(help="keep what stands and would be the same")] = False,
    only: Annotated[str, typer.Option(help="STUDENT, or STUDENT,TASK")] = "",
    isolation: Annotated[Level | None, typer.Option(help="use this level, not the best")] = None,
    require_isolation: Annotated[
        Level | None, typer.Option(help="refuse to grade below this level")
    ] = None,
    policy: Annotated[Path | None, typer.Option(help="policy.toml: deadline, lateness")] = None,
    public_only: Annotated[bool, typer.Option(help="public tests only; results say so")] = False,
    secret: Annotated[str, typer.Option(help="seeds hidden inputs; default: out/secret")] = "",
) -> None:
    """Grade every submission, each in processes of its own."""
    student, _, task = only.partition(",")
    order = scheduler.Order(
        submissions,
        out,
        jobs=jobs,
        cluster=cluster,
        resume=resume,
        only=(student, task) if only else None,
        isolation=_level(isolation),
        require=_level(require_isolation),
        secret=secret,
        policy=policy,
        public_only=public_only,
    )
    summary = scheduler.grade(load(_folder(folder)), order, out_console)
    for line in scheduler.lines_of(summary):
        out_console.print(line, markup=False)


def _level(level: Level | None) -> Isolation | None:
    return None if level is None else Isolation[level.name]


@app.command()
def report(
    results: Results,
    format: Annotated[Format, typer.Option(help="which format")] = Format.HTML,
    out: Annotated[
        Path | None, typer.Option(help="where it goes; default: RESULTS/report/FORMAT")
    ] = None,
    roster: Annotated[
        Path | None, typer.Option(help="export of Canvas, or worksheet of Moodle")
    ] = None,
    submissions: Annotated[
        Path | None, typer.Option(help="for similarity: the submissions themselves")
    ] = None,
) -> None:
    """Write results for a course system, or as pages."""
    target = out or results / "report" / format.value
    if format == Format.SIMILARITY:
        if submissions is None:
            raise ValueError("--format similarity compares the submissions: give --submissions")
        paths = write_pairs(submissions, _assignment_of(results), target)
    else:
        paths = reports.write(
            _class(results), format.value, target, Roster.read(roster) if roster else None
        )
    shown = paths[0] if len(paths) == 1 or format == Format.HTML else target
    out_console.print(f"written   {shown}", markup=False)


@app.command()
def mark(
    results: Results,
    student: Annotated[str, typer.Argument(help="whose")],
    task: Annotated[str, typer.Option(help="the task whose points are set")] = "",
    points: Annotated[float | None, typer.Option(help="points of that task")] = None,
    measured: Annotated[bool, typer.Option(help="let the graded points count again")] = False,
    until: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M%z"], help="an extension"),
    ] = None,
    excuse: Annotated[bool | None, typer.Option("--excuse/--no-excuse", help="no score")] = None,
    why: Annotated[str, typer.Option(help="the reason, kept with it")] = "",
) -> None:
    """Set points by hand, extend a deadline, excuse a student: kept apart from what was graded."""
    if bool(task) != (points is not None or measured):
        raise ValueError("--task goes with --points or --measured")
    if [points is not None, measured, until is not None, excuse is not None].count(True) != 1:
        raise ValueError("give one of --points, --measured, --until, --excuse, --no-excuse")
    with _gradebook(results) as book:
        if points is not None:
            book.override(student, task, points, why)
        elif measured:
            book.remove_override(student, task)
        elif until is not None:
            book.extend(student, until, why)
        else:
            book.excuse(student, why, excused=bool(excuse))
        unknown = "" if book.get(student) else " (nobody of that name has a result yet)"
    out_console.print(f"noted     {student}{unknown}", markup=False)


@app.command()
def doctor() -> None:
    """Say what this machine can hold apart, and whether grading works here."""
    raise typer.Exit(0 if doctor_module.doctor(out_console) else 1)


def _gradebook(results: Path) -> Gradebook:
    if not (results / "gradebook.sqlite").is_file():
        raise GradebookError(f"{results}: no gradebook.sqlite; `grade --out` writes one")
    return Gradebook(results)


def _assignment_of(results: Path) -> Path:
    with _gradebook(results) as book:
        return Path(book.note("folder"))


def _class(results: Path) -> Class:
    with _gradebook(results) as book:
        id, final = book.note("assignment"), book.final()
        return Class(id, book.note("title") or id, tuple(final), frozenset(book.excused()))


def main() -> None:
    """Entry point of `python -m grader`."""
    try:
        app()
    except FAULTS as fault:
        _fail(_said(fault))


def _said(fault: BaseException) -> str:
    """The fault in one sentence; of the system's, the file first and no number."""
    if isinstance(fault, sqlite3.Error):
        return f"the gradebook.sqlite of that folder: {fault}; put a copy of it back"
    if isinstance(fault, OSError) and fault.strerror and fault.filename is not None:
        return f"{fault.filename}: {fault.strerror[0].lower()}{fault.strerror[1:]}"
    return str(fault)


def _fail(text: str) -> NoReturn:
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {text}", markup=False)
    sys.exit(1)
