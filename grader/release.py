"""From an assignment's folder to what students get: built, never edited.

    folder = release(Path("assignments/a1_graph_ir"), Path("dist"))   # dist/a1_graph_ir
    blank("def f(x):\\n    ### BEGIN SOLUTION\\n    return x\\n    ### END SOLUTION\\n", "task-1-1")
    # 'def f(x):\\n    # YOUR CODE HERE\\n    raise NotImplementedError\\n'

Reads `assignment.py` (or `.ipynb`), `assignment.toml`, `glue.py` and `tests/public/`. Writes the
notebook without solutions and outputs, the manifest without what is hidden, and a `mystack/` to
keep parts in. Stops with ReleaseError, and writes nothing, if a marker is malformed, if nbgrader
could not read the cells' metadata, or if a line of a solution or of a hidden test would get out.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from grader import leaks
from grader.manifest import FILE, load
from grader.model import Assignment, Task
from grader.notebook import source_notebook
from minidlc.stack import INDEX, Entry, write_index

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
BLANK = ("# YOUR CODE HERE", "raise NotImplementedError")
_LIKE_A_MARKER = re.compile(r"#+\s*(BEGIN|END)[\s_]+(SOLUTION|HIDDEN)", re.IGNORECASE)
_KINDS = {"grade": bool, "solution": bool, "locked": bool, "task": bool}
_KEYS = {*_KINDS, "schema_version", "grade_id", "points", "checksum", "cell_type"}
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
_HIDDEN = ("mistakes", "hidden_tests")  # of a task, in the manifest
_RELEASED = [f.name for f in dataclasses.fields(Task) if f.name not in _HIDDEN]
_ASIDE = ("__pycache__", ".ipynb_checkpoints", ".pytest_cache")


class ReleaseError(Exception):
    """The assignment cannot be released; `faults` has one line for each reason."""

    def __init__(self, folder: Path, faults: Iterable[str]) -> None:
        self.faults = list(faults)
        super().__init__("\n".join(f"{folder.name}: {fault}" for fault in self.faults))


def release(folder: Path, out: Path) -> Path:
    """Build `out/<id>` and return it. Raises ReleaseError, or ManifestError."""
    assignment = load(folder)
    target = out / assignment.id
    faults = _in_the_way(target, folder)
    if faults:
        raise ReleaseError(folder, faults)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".building-") as scratch:
        built = Path(scratch) / assignment.id
        _build(assignment, built)
        found = leaks.find(folder, built)
        if found:
            raise ReleaseError(folder, map(str, found))
        if target.exists():
            shutil.rmtree(target)
        built.rename(target)
    return target


def _in_the_way(target: Path, folder: Path) -> list[str]:
    """Files that stand in the target and that no release wrote: somebody's work."""
    if target.resolve() == folder.resolve():
        return ["the release would replace the assignment itself; give another --out"]
    known = {"README.md", "assignment.ipynb", FILE, "glue.py", "mystack/README.md"}
    known.add(f"mystack/{INDEX}")
    found = [p.relative_to(target) for p in target.rglob("*") if p.is_file()]
    strange = [
        p.as_posix()
        for p in found
        if p.as_posix() not in known
        and p.parts[:2] != ("tests", "public")
        and not set(p.parts) & set(_ASIDE)
    ]
    return [f"{target / name} is not of a release; move it away first" for name in strange[:5]]


def _build(assignment: Assignment, built: Path) -> None:
    folder = assignment.folder
    book = released_notebook(assignment)
    (built / "mystack").mkdir(parents=True)
    _library("nbformat").write(book, built / "assignment.ipynb")
    _write(built / FILE, released_manifest(assignment))
    _write(built / "README.md", _readme(assignment))
    _write(built / "mystack" / "README.md", _MYSTACK)
    parts = [Entry(t.id, t.title, t.extension) for t in assignment.tasks if t.extension]
    write_index(built / "mystack", parts)
    if (folder / "glue.py").exists():
        shutil.copyfile(folder / "glue.py", built / "glue.py")
    shutil.copytree(
        folder / "tests" / "public",
        built / "tests" / "public",
        ignore=shutil.ignore_patterns(*_ASIDE),
    )


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def _library(name: str) -> Any:
    """jupytext or nbformat: seconds of import that only who builds a notebook pays."""
    return importlib.import_module(name)


def released_notebook(assignment: Assignment) -> Any:
    """The student's notebook. Raises ReleaseError with everything that is wrong."""
    book = source_notebook(assignment.folder)
    faults = metadata_faults(book, assignment)
    cells: list[Any] = []
    for number, cell in enumerate(book.cells, 1):
        marks: dict[str, Any] = dict(cell.metadata.get("nbgrader", {}))
        where = marks.get("grade_id") or f"cell {number}"
        try:
            source = released_source(cell, marks, where)
        except ValueError as error:
            faults.append(str(error))
            continue
        cells.append(_cell(cell.cell_type, source, marks, where))
    if faults:
        raise ReleaseError(assignment.folder, faults)
    made = {"kernelspec": _KERNEL, "language_info": {"name": "python"}}
    content = {"cells": cells, "metadata": made, "nbformat": 4, "nbformat_minor": 5}
    node = _library("nbformat").from_dict(content)
    _library("nbformat").validate(node)
    return node


def _cell(kind: str, source: str, marks: dict[str, Any], where: str) -> dict[str, Any]:
    """A cell as students get it: no output, nbgrader's checksum, an id that stays the same."""
    cell: dict[str, Any] = {"cell_type": kind, "source": source, "metadata": {}}
    cell["id"] = hashlib.sha256(where.encode()).hexdigest()[:8]
    if kind == "code":
        cell |= {"outputs": [], "execution_count": None}
    if marks:
        marks |= {"cell_type": kind, "checksum": checksum(kind, source, marks)}
        cell["metadata"] = {"nbgrader": dict(sorted(marks.items()))}
    return cell


def checksum(kind: str, source: str, marks: Mapping[str, Any]) -> str:
    """As nbgrader's `compute_checksum`, by which it finds locked cells that were changed."""
    grade, solution = bool(marks.get("grade")), bool(marks.get("solution"))
    locked = not solution and (grade or bool(marks.get("locked")))
    parts = [source, kind, str(grade), str(solution), str(locked), str(marks["grade_id"])]
    if grade:
        parts.append(str(float(marks["points"])))
    return hashlib.md5("".join(parts).encode(), usedforsecurity=False).hexdigest()


def released_source(cell: Any, marks: Mapping[str, Any], where: str) -> str:
    """The source of a cell as students get it; ValueError for markers where none may stand."""
    marked = _LIKE_A_MARKER.search(cell.source)
    if cell.cell_type == "code" and marks.get("solution"):
        if not marked:
            raise ValueError(f"{where}: a solution cell without {BEGIN!r}: it would get out whole")
        return blank(cell.source, where)
    if marked:
        raise ValueError(f"{where}: {marked[0]!r} in a cell that is no solution cell")
    return str(cell.source)


def blank(source: str, where: str = "cell") -> str:
    """The source with each solution replaced by BLANK; ValueError for malformed markers."""
    lines: list[str] = []
    inside = 0  # the line of the open marker
    for number, line in enumerate(source.split("\n"), 1):
        marker = line.strip()
        if _LIKE_A_MARKER.search(line) and marker not in (BEGIN, END):
            raise ValueError(f"{where}, line {number}: {marker!r} is neither {BEGIN!r} nor {END!r}")
        if (marker == BEGIN and inside) or (marker == END and not inside):
            raise ValueError(f"{where}, line {number}: {marker!r} without its other half")
        if marker == BEGIN:
            inside = number
            indent = line[: len(line) - len(line.lstrip())]
            lines += [indent + text for text in BLANK]
        elif marker == END:
            inside = 0
        elif not inside:
            lines.append(line)
    if inside:
        raise ValueError(f"{where}, line {inside}: {BEGIN!r} without its other half")
    return "\n".join(lines)


def metadata_faults(book: Any, assignment: Assignment) -> list[str]:
    """What nbgrader's schema v3 or our conventions do not allow in the cells' metadata."""
    faults: list[str] = []
    seen: dict[str, Mapping[str, Any]] = {}
    for number, cell in enumerate(book.cells, 1):
        marks: Any = cell.metadata.get("nbgrader")
        if marks is None:
            continue
        where = f"{marks.get('grade_id') or f'cell {number}'}"
        faults += [f"{where}: {fault}" for fault in cell_faults(cell.cell_type, marks)]
        if where in seen:
            faults.append(f"{where}: two cells have this grade_id")
        seen[where] = marks
    for task in assignment.tasks:
        faults += _task_faults(task, seen)
    return faults


def cell_faults(kind: str, marks: Mapping[str, Any]) -> list[str]:
    """What is wrong with the nbgrader metadata of one cell."""
    faults = [f"nbgrader knows no key {key!r}" for key in marks if key not in _KEYS]
    if marks.get("schema_version") != 3:
        faults.append(f"schema_version is {marks.get('schema_version')!r}, expected 3")
    for key, wanted in _KINDS.items():
        if not isinstance(marks.get(key, False if key == "task" else None), wanted):
            faults.append(f"{key} is {marks.get(key)!r}, expected true or false")
    if not re.fullmatch(r"[a-zA-Z0-9_\-]+", str(marks.get("grade_id", ""))):
        faults.append(f"grade_id is {marks.get('grade_id')!r}, expected letters, digits, _ and -")
    points: Any = marks.get("points")
    if marks.get("grade") and not (isinstance(points, (int, float)) and points >= 0):
        faults.append(f"points are {points!r}, expected a number, as it is graded")
    if not marks.get("grade") and points is not None:
        faults.append("points without grade")
    if kind == "markdown" and bool(marks.get("grade")) != bool(marks.get("solution")):
        faults.append("a markdown cell is graded and a solution, or neither")
    return faults


def _task_faults(task: Task, seen: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The cells of a task: text, solution unless it is the end-to-end run, and check."""
    key = task.id.replace(".", "-")
    kinds = ("text", "check") if task.end_to_end else ("text", "task", "check")
    faults = [f"there is no cell {kind}-{key}" for kind in kinds if f"{kind}-{key}" not in seen]
    points = seen.get(f"check-{key}", {}).get("points", task.points)
    if points != task.points:
        faults.append(f"check-{key}: {points} points, assignment.toml says {task.points}")
    if not seen.get(f"task-{key}", {"solution": True}).get("solution"):
        faults.append(f"task-{key}: solution is not true")
    return faults


def released_manifest(assignment: Assignment) -> str:
    """`assignment.toml` without hidden tests, common mistakes and everything else of the author."""
    lines = ["[assignment]"]
    for key in ("id", "title", "version"):
        lines.append(f"{key} = {_toml(getattr(assignment, key))}")
    for task in assignment.tasks:
        lines += ["", "[[task]]"]
        lines += [f"{key} = {_toml(getattr(task, key))}" for key in _RELEASED]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    """A text, number or list of texts; TOML's basic strings have the escapes of JSON."""
    return json.dumps(value, ensure_ascii=False)


def _readme(assignment: Assignment) -> str:
    rows = [f"| {t.id} | {t.title} | {t.points:g} | {t.minutes} |" for t in assignment.tasks]
    minutes = sum(task.minutes for task in assignment.tasks)
    lines = [
        f"# {assignment.title}",
        "",
        f"{len(assignment.tasks)} tasks, {assignment.points:g} points, about {minutes} minutes.",
        "Open `assignment.ipynb` in Jupyter, from this folder. Write where it says YOUR CODE HERE,",
        "then run the cell below: it says what is right and what is not yet.",
        "",
        "| task | | points | minutes |",
        "|---|---|---|---|",
        *rows,
        "",
        "| here | what it is |",
        "|---|---|",
        "| `assignment.ipynb` | your work, and all you hand in |",
        "| `tests/public/` | the tests behind `grader.check_here`; read them |",
        "| `glue.py` | how a test calls your function, and what becomes of its result |",
        '| `mystack/` | the parts you keep: `grader.keep("1.2")` |',
        "",
        "More tests run when it is handed in. They ask for the same things, with other inputs.",
    ]
    return "\n".join(lines) + "\n"


_MYSTACK = """\
# Your stack

The parts of the compiler that you wrote, one file each. `grader.keep("1.2")` in the notebook writes
`part_1_2.py` here; you may edit it. Copy the folder into the next assignment: later parts build on
it, and what you have not written is supplied.

    minidlc doctor --stack mystack        # which part is yours, and does it run?

```python
import minidlc as mc
from minidlc import stack

with mc.use(**stack.load("mystack").parts):
    exe = mc.compile("model.onnx")        # on your parts
print(exe.report())                       # how often each was called
```
"""
