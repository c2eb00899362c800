"""Fixtures for writing this assignment: its tests run under plain pytest, on any solution.

    pytest assignments/a1_graph_ir/tests -k 1_2     # the reference solution must pass
    pytest … --solution wrong/1_2_no_ties.py        # that file's cell in place of task 1.2's

The student's side runs in a thread of this process: for authors only, nothing is contained. The
grader never reads this file.
"""

from __future__ import annotations

import sys
import tomllib
import types
from functools import cache
from pathlib import Path

import jupytext
import numpy as np
import pytest

from grader.local import local_student
from grader.serve import _run
from grader.student import Student

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "tests" / "public"), str(HERE / "tests" / "hidden")]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--solution FILE`."""
    parser.addoption("--solution", help="a file of wrong/ or right/, e.g. wrong/1_2_no_ties.py")


def pytest_configure(config: pytest.Config) -> None:
    """The weight of a test; two files may have one name, in tests/public and tests/hidden."""
    config.option.importmode = "importlib"
    config.addinivalue_line("filterwarnings", "ignore:unclosed:ResourceWarning")  # of the thread
    config.addinivalue_line("markers", "points(weight): the weight of a test within its task")


@cache
def cells() -> dict[str, str]:
    """The code cells of the assignment by grade_id."""
    book = jupytext.read(HERE / "assignment.py")
    code = (cell for cell in book.cells if cell.cell_type == "code")
    return {cell.metadata["nbgrader"]["grade_id"]: cell.source for cell in code}


def program(solution: str | None) -> list[list[str]]:
    """The cells of all tasks (label, source), one of them replaced by the file `solution`."""
    found = {key.removeprefix("task-"): cells()[key] for key in cells() if "check" not in key}
    if solution:
        path = Path(solution) if Path(solution).exists() else HERE / solution
        found["-".join(path.name.split("_")[:2])] = path.read_text(encoding="utf-8")
    return [[f"cell {key.replace('-', '.')}", source] for key, source in found.items()]


def functions() -> dict[str, str]:
    """Task id -> the name of its function."""
    tasks = tomllib.loads((HERE / "assignment.toml").read_text(encoding="utf-8"))["task"]
    return {task["id"]: task["function"] for task in tasks if task["function"]}


@pytest.fixture(scope="module")
def _student(request: pytest.FixtureRequest) -> Student:
    glue = (HERE / "glue.py").read_text(encoding="utf-8")
    return local_student(program(request.config.getoption("--solution")), glue, functions())


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers of this module."""
    return np.random.default_rng(sum(request.module.__name__.encode()))


@pytest.fixture
def student(_student: Student, rng: np.random.Generator) -> Student:
    """The solution under test."""
    _student.rng = rng
    return _student


@pytest.fixture(scope="module")
def reference() -> types.SimpleNamespace:
    """The names of the reference solution."""
    namespace: dict[str, object] = {}
    for label, source in program(None):
        _run(namespace, f"reference {label}", source)
    return types.SimpleNamespace(**namespace)
