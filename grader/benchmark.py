"""What grading costs: figures for minidlc/benchmarks/RESULTS.md.

    python -m grader.benchmark cpu                  # a submission against one pytest process
    python -m grader.benchmark klass --count 100    # a made-up class, graded in one command
    python -m grader.benchmark workers              # one job against two

The class is made from the assignment's reference, wrong solutions and a few hostile cells; the same
seed makes the same class. CPU seconds are those of the command and of all its children.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from grader import notebook
from grader.manifest import load
from grader.model import Assignment
from grader.notebook import Notebook
from grader.release import blank

app = typer.Typer(add_completion=False, no_args_is_help=True)

A1 = Path(__file__).parents[1] / "assignments" / "a1_graph_ir"
HOSTILE = (
    "while True: pass\n",
    "import os\nos._exit(0)\n",
    "import ctypes\nctypes.string_at(0)\n",
    "for _ in range(300): print('x' * 100_000)\n",
    "import os, time\nfor _ in range(50):\n    if os.fork() == 0: time.sleep(1000)\n",
)
# Of ten submissions: right, several mistakes, half done, blank, broken file, hostile.
KINDS = ("right", "right", "right", "wrong", "wrong", "partial", "partial", "blank", "broken")

Folder = Annotated[Path, typer.Option(help="the assignment")]


def solution_id(task: str) -> str:
    """The grade_id of a task's solution cell."""
    return f"task-{task.replace('.', '-')}"


def make_class(assignment: Assignment, folder: Path, count: int, seed: int = 0) -> Counter[str]:
    """Write `count` submissions; returns how many of each kind."""
    rng = random.Random(seed)
    own = notebook.instructor(assignment.folder)
    made: Counter[str] = Counter()
    for number in range(count):
        kind = "hostile" if number % 10 == 9 else KINDS[number % 10]
        made[kind] += 1
        text = text_of(submission(assignment, own, kind, rng))
        path = folder / f"student{number:04}" / "assignment.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(text[: len(text) // 2] if kind == "broken" else text, encoding="utf-8")
    return made


def submission(assignment: Assignment, own: Notebook, kind: str, rng: random.Random) -> Notebook:
    """One notebook of that kind."""
    tasks = [task.id for task in assignment.tasks if task.function]
    chosen: list[str] = []
    if kind == "partial":
        chosen = rng.sample(tasks, rng.randint(1, len(tasks) - 1))
    elif kind == "blank":
        chosen = tasks
    for task in chosen:
        own = own.with_cell(solution_id(task), blank(source_of(own, task)))
    if kind == "wrong":
        for task in rng.sample(tasks, 2):
            files = sorted((assignment.folder / "wrong").glob(f"{task.replace('.', '_')}_*.py"))
            own = own.with_cell(solution_id(task), rng.choice(files).read_text(encoding="utf-8"))
    if kind == "hostile":
        task = rng.choice(tasks)
        source = source_of(own, task) + "\n" + rng.choice(HOSTILE)
        own = own.with_cell(solution_id(task), source)
    return own


def source_of(book: Notebook, task: str) -> str:
    """The source of a task's solution cell."""
    return next(cell.source for cell in book.cells if cell.grade_id == solution_id(task))


def text_of(book: Notebook) -> str:
    """The notebook as a file."""
    cells: list[dict[str, object]] = [
        {
            "cell_type": "code",
            "execution_count": None,
            "outputs": [],
            "source": cell.source,
            "metadata": {"nbgrader": {"grade_id": cell.grade_id, "solution": cell.solution,
                                      "grade": cell.grade, "locked": cell.locked}},
        }
        for cell in book.cells
        if cell.code
    ]  # fmt: skip
    content: dict[str, object] = {
        "cells": cells,
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1)


# ---- measuring -----------------------------------------------------------------------------


def run(*command: str) -> tuple[float, float]:
    """Wall and CPU seconds of a command and its children; its output is shown if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, cwd=A1.parents[1])
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu


def grade(folder: Path, submissions: Path, out: Path, jobs: int) -> tuple[float, float]:
    """Grade a class as a teaching assistant would; wall and CPU seconds."""
    shutil.rmtree(out, ignore_errors=True)
    paths = (str(folder), str(submissions), "--out", str(out), "--jobs", str(jobs))
    return run(sys.executable, "-m", "grader", "grade", *paths)


@contextmanager
def work() -> Generator[Path]:
    """A folder for one measurement."""
    with tempfile.TemporaryDirectory(prefix="grader-benchmark-") as name:
        yield Path(name)


def right_class(folder: Path, out: Path, count: int) -> None:
    """Write the reference solution as `count` submissions."""
    text = text_of(notebook.instructor(folder))
    for number in range(count):
        path = out / f"s{number:03}" / "assignment.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")


@app.command()
def cpu(folder: Folder = A1, copies: int = 20, rounds: int = 3) -> None:
    """CPU of a reference submission against one process that runs the same tests with pytest."""
    assignment = load(folder)
    pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder / "tests"))
    alone: list[float] = []
    graded: list[float] = []
    with work() as place:
        right_class(folder, place / "class", copies)
        for _ in range(rounds):
            alone.append(run(*pytest)[1])
            graded.append(grade(folder, place / "class", place / "out", 1)[1] / copies)
    ratio = statistics.median(graded) / statistics.median(alone)
    print(f"{assignment.id}: pytest {statistics.median(alone):.2f} s CPU,")
    print(f"  a submission of {copies} {statistics.median(graded):.2f} s CPU: {ratio:.2f} ×")


@app.command()
def klass(folder: Folder = A1, count: int = 100, jobs: int = 2, seed: int = 0) -> None:
    """Grade a made-up class in one command."""
    with work() as place:
        made = make_class(load(folder), place / "class", count, seed)
        wall, cpu_seconds = grade(folder, place / "class", place / "out", jobs)
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(made.items()))
    print(f"{count} submissions ({kinds}), {jobs} jobs: {wall:.0f} s, {cpu_seconds:.0f} s CPU")
    print(f"  {wall / count:.2f} s and {cpu_seconds / count:.2f} s CPU each")


@app.command()
def workers(folder: Folder = A1, count: int = 40, rounds: int = 3) -> None:
    """Two jobs against one, on right submissions, in turns."""
    ratios: list[float] = []
    with work() as place:
        right_class(folder, place / "class", count)
        for _ in range(rounds):
            one = grade(folder, place / "class", place / "out", 1)[0]
            two = grade(folder, place / "class", place / "out", 2)[0]
            ratios.append(one / two)
            print(f"one job {one:.1f} s, two jobs {two:.1f} s: {one / two:.2f} ×")
    print(f"median {statistics.median(ratios):.2f} ×")


if __name__ == "__main__":
    app()
