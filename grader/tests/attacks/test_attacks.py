"""Every attack gets exactly the points that it deserves, and hurts nobody else.

The table of GRADER rule 12: what a cell does stands in `table/`, what a whole file does is below.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_output

from grader import wire
from grader.grading import Grader, Options
from grader.manifest import load
from grader.model import Result, Status
from grader.sandbox import Isolation, best
from grader.tests.attacks.cases import FOLDER, FULL, Case, load_cases
from grader.tests.attacks.submissions import RIGHT, solution, submission

pytestmark = pytest.mark.long

CASES = load_cases()
PATCHED = re.compile(r"^grader\.wire\.(\w+) =", re.MULTILINE)


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    """At the best isolation level of this machine."""
    with Grader(load(FOLDER), Options(seed="attacks")) as it:
        yield it


def points(result: Result) -> dict[str, float]:
    assert result.counts
    return {task.id: task.earned for task in result.tasks}


def full_marks_but(task: str, earned: float) -> dict[str, float]:
    return {id: earned if id == task else FULL for id in RIGHT}


@pytest.mark.parametrize("name", CASES)
def test_a_cell(grader: Grader, name: str, tmp_path: Path):
    case = CASES[name]
    if case.needs and best() < Isolation[case.needs.upper()]:
        pytest.skip(f"stopped for certain from level {case.needs} on; here: {best().name.lower()}")
    with listening(case) as source:
        result = grader.grade(submission(tmp_path, {case.task: source}), name)
    assert points(result) == full_marks_but(case.task, case.deserved)
    if case.status:
        task = next(task for task in result.tasks if task.id == case.task)
        assert task.status == Status(case.status)
    assert points(grader.grade(submission(tmp_path / "next", {}), "next")) == dict.fromkeys(
        RIGHT, FULL
    )


@contextmanager
def listening(case: Case) -> Iterator[str]:
    """The case's source with the port of a server on loopback that would tell the truth."""
    if "PORT = 0" not in case.source:
        yield case.source
        return
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=tell, args=(server,), daemon=True).start()
        yield case.source.replace("PORT = 0", f"PORT = {server.getsockname()[1]}")


def tell(server: socket.socket) -> None:
    try:
        with server.accept()[0] as asked:
            asked.sendall(b"the truth")
    except OSError:
        return  # nobody asked


def test_the_table_is_whole():
    """Every kind of attack that the contract lists is there, and nothing else than tasks 9.x."""
    assert len(CASES) >= 45
    assert {case.task for case in CASES.values()} == set(RIGHT)
    patched = {name for case in CASES.values() for name in PATCHED.findall(case.source)}
    assert len(patched) >= 2
    assert all(hasattr(wire, name) for name in patched), "an attack on what is not there any more"


# ---- whole files ---------------------------------------------------------------------------


def book(folder: Path, change) -> Path:
    """A right submission whose notebook was changed."""
    path = submission(folder, {}) / "assignment.ipynb"
    notebook = nbformat.read(path, as_version=4)
    change(notebook)
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return path.parent


def delete_checks(book):
    book.cells = [c for c in book.cells if not c.metadata.nbgrader.grade]


def duplicate_checks(book):
    book.cells = [c for c in book.cells for _ in range(1 + c.metadata.nbgrader.grade)]


def reorder(book):
    book.cells.reverse()


def edit_points(book):
    for cell in book.cells:
        if "points" in cell.metadata.nbgrader:
            cell.metadata.nbgrader.points = 1000


def edit_checks(book):
    for cell in book.cells:
        if cell.metadata.nbgrader.grade:
            cell.source = "import os\nos._exit(0)"


def forget_metadata(book):
    for cell in book.cells:
        cell.metadata = {}


def stale_outputs(book):
    for cell in book.cells:
        cell.outputs = [new_output("stream", text="10 of 10 points")]


FILES = [
    delete_checks, duplicate_checks, reorder, edit_points, edit_checks, forget_metadata,
    stale_outputs,
]  # fmt: skip


@pytest.mark.parametrize("change", FILES, ids=lambda f: f.__name__)
def test_cells_moved_or_edited_around_right_code(grader: Grader, change, tmp_path: Path):
    result = grader.grade(book(tmp_path, change), change.__name__)
    assert points(result) == dict.fromkeys(RIGHT, FULL)
    assert result.out_of == 4 * FULL


def test_wrong_code_with_stale_right_outputs(grader: Grader, tmp_path: Path):
    folder = submission(tmp_path, {"9.1": "def double(x):\n    return x\n"})
    path = folder / "assignment.ipynb"
    data = nbformat.read(path, as_version=4)
    stale_outputs(data)
    nbformat.write(data, path)
    assert points(grader.grade(folder, "stale")) == full_marks_but("9.1", 0)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1", "utf-16"])
def test_other_encodings(grader: Grader, encoding: str, tmp_path: Path):
    source = "def double(x):\n    return 2 * x  # für später\n"
    path = submission(tmp_path, {"9.1": source}) / "assignment.ipynb"
    text = path.read_text(encoding="utf-8").replace("\\u00fc", "ü")
    path.write_bytes(text.encode(encoding))
    assert points(grader.grade(path.parent, encoding)) == dict.fromkeys(RIGHT, FULL)


def missing(folder: Path) -> None:
    (folder / "assignment.ipynb").unlink()


def truncated(folder: Path) -> None:
    path = folder / "assignment.ipynb"
    path.write_text(path.read_text()[:700])


def binary(folder: Path) -> None:
    (folder / "assignment.ipynb").write_bytes(bytes(range(256)) * 40)


def other_json(folder: Path) -> None:
    (folder / "assignment.ipynb").write_text('{"cells": 5}')


def empty(folder: Path) -> None:
    (folder / "assignment.ipynb").write_text("")


def deep(folder: Path) -> None:
    (folder / "assignment.ipynb").write_text("[" * 200_000)


def a_pipe(folder: Path) -> None:
    (folder / "assignment.ipynb").unlink()
    __import__("os").mkfifo(folder / "assignment.ipynb")


def a_link(folder: Path) -> None:
    (folder / "assignment.ipynb").unlink()
    (folder / "assignment.ipynb").symlink_to(FOLDER / "assignment.ipynb")


@pytest.mark.parametrize(
    "change",
    [missing, truncated, binary, other_json, empty, deep, a_pipe, a_link],
    ids=lambda f: f.__name__,
)
def test_a_file_that_cannot_be_read_is_named(grader: Grader, change, tmp_path: Path):
    folder = submission(tmp_path, {})
    change(folder)
    result = grader.grade(folder, change.__name__)
    assert result.counts
    assert result.score == 0
    assert result.error.strip().endswith(".")
    assert "\n" not in result.error
    assert "Traceback" not in result.error
    assert all(row.status == Status.MISSING for task in result.tasks for row in task.rows)


def test_a_renamed_notebook(grader: Grader, tmp_path: Path):
    folder = submission(tmp_path, {})
    (folder / "assignment.ipynb").rename(folder / "Kopie von assignment (2).ipynb")
    assert points(grader.grade(folder, "renamed")) == dict.fromkeys(RIGHT, FULL)


def test_a_duplicated_solution_cell_counts_as_run_from_top_to_bottom(
    grader: Grader, tmp_path: Path
):
    def change(book):
        cell = solution("9.1", "def double(x):\n    return x + x\n")
        wrong = solution("9.1", "def double(x):\n    return 0\n")
        book.cells = [wrong, *book.cells, cell]

    assert points(grader.grade(book(tmp_path, change), "twice")) == dict.fromkeys(RIGHT, FULL)
