"""Submissions of the attacked assignment, right but for the cells that a test gives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

from grader.tests.attacks.cases import FOLDER


def _solutions() -> dict[str, str]:
    """Task id -> source of the instructor's solution cell."""
    found: dict[str, str] = {}
    for cell in (FOLDER / "assignment.py").read_text().split("# %% ")[1:]:
        head, _, source = cell.partition("\n")
        if '"grade_id": "task-' in head:
            id = head.split('"grade_id": "task-')[1].split('"')[0].replace("-", ".")
            found[id] = source
    return found


RIGHT = _solutions()


def solution(task: str, source: str) -> Any:
    """The solution cell of a task."""
    return _cell(f"task-{task.replace('.', '-')}", source, solution=True)


def _cell(grade_id: str, source: str, **more: Any) -> Any:
    fields = {"grade": False, "solution": False, "locked": False, "task": False, **more}
    fields |= {"grade_id": grade_id, "schema_version": 3, "cell_type": "code"}
    return new_code_cell(source, metadata={"nbgrader": fields})


def submission(folder: Path, cells: Mapping[str, str]) -> Path:
    """The folder of a student, with one notebook."""
    book = new_notebook()
    book.cells.append(_cell("setup", "import minidlc as mc\nimport numpy as np\n", locked=True))
    for task, right in RIGHT.items():
        book.cells.append(solution(task, cells.get(task, right)))
        check = f'grader.check_here("{task}")'
        id = f"check-{task.replace('.', '-')}"
        book.cells.append(_cell(id, check, grade=True, locked=True, points=10))
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(book, folder / "assignment.ipynb")
    return folder
