"""A release: what is in it, what is not, and what stops it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from grader import leaks
from grader.manifest import load
from grader.notebook import read, source_notebook
from grader.release import (
    ReleaseError,
    blank,
    cell_faults,
    checksum,
    metadata_faults,
    release,
)
from grader.tests.authoring import CLOSEST, make, marks
from minidlc.stack import read_index


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path / "a0_small")


def faults_of(folder: Path, out: Path) -> str:
    with pytest.raises(ReleaseError) as error:
        release(folder, out)
    assert not (out / "a0_small").exists()
    assert not list(out.glob(".building*"))
    return str(error.value)


def test_release_holds_what_students_need(folder: Path, tmp_path: Path) -> None:
    built = release(folder, tmp_path / "dist")
    names = {p.relative_to(built).as_posix() for p in built.rglob("*") if p.is_file()}
    assert names == {
        "README.md",
        "assignment.ipynb",
        "assignment.toml",
        "glue.py",
        "mystack/README.md",
        "mystack/stack.toml",
        "tests/public/a0_public.py",
        "tests/public/test_1_1.py",
        "tests/public/test_1_2.py",
    }
    assert "| 1.2 | Last operand first | 6 | 10 |" in (built / "README.md").read_text()
    assert [(e.task, e.points) for e in read_index(built / "mystack")] == [("1.2", ("toposort",))]


def test_notebook_is_blank(folder: Path, tmp_path: Path) -> None:
    book = read(release(folder, tmp_path / "dist") / "assignment.ipynb")
    sources = {cell.grade_id: cell.source for cell in book.cells}
    assert sources["task-1-1"] == (
        "def closest(word, known):\n"
        '    """The name whose length is nearest to the word\'s; the first of several."""\n'
        "    # YOUR CODE HERE\n    raise NotImplementedError"
    )
    assert sources["check-1-2"] == 'grader.check_here("1.2")'


def test_manifest_of_the_release_is_valid_and_hides_the_hidden(
    folder: Path, tmp_path: Path
) -> None:
    built = release(folder, tmp_path / "dist")
    given, full = load(built), load(folder)
    assert [t.id for t in given.tasks] == [t.id for t in full.tasks]
    assert given.task("1.1").hints == full.task("1.1").hints
    assert given.task("1.1").withheld == full.task("1.1").withheld
    assert given.task("1.1").mistakes == ()
    assert given.task("1.1").hidden_tests == 0


def test_metadata_is_that_of_nbgrader(folder: Path, tmp_path: Path) -> None:
    built = release(folder, tmp_path / "dist")
    content = json.loads((built / "assignment.ipynb").read_text(encoding="utf-8"))
    for cell in content["cells"]:
        found = cell["metadata"]["nbgrader"]
        assert not cell_faults(cell["cell_type"], found)
        assert found["cell_type"] == cell["cell_type"]
        assert len(found["checksum"]) == 32
        assert cell.get("outputs", []) == []


def test_checksum_is_that_of_nbgrader() -> None:
    """The parts in nbgrader's order, written out."""
    found = marks("check-1-1", locked=True, grade=True) | {"points": 4}
    wanted = hashlib.md5(b"x = 1" + b"code" + b"True" + b"False" + b"True" + b"check-1-1" + b"4.0")
    assert checksum("code", "x = 1", found) == wanted.hexdigest()
    solution = marks("task-1-1", solution=True, locked=True)  # nbgrader: a solution is not locked
    wanted = hashlib.md5(b"x = 1" + b"code" + b"False" + b"True" + b"False" + b"task-1-1")
    assert checksum("code", "x = 1", solution) == wanted.hexdigest()


def test_release_twice_is_the_same(folder: Path, tmp_path: Path) -> None:
    def all_bytes() -> dict[Path, bytes]:
        built = release(folder, tmp_path / "dist")
        return {p.relative_to(built): p.read_bytes() for p in built.rglob("*") if p.is_file()}

    assert all_bytes() == all_bytes()


def test_somebodys_work_is_not_overwritten(folder: Path, tmp_path: Path) -> None:
    built = release(folder, tmp_path / "dist")
    (built / "mystack" / "part_1_1.py").write_text("PARTS = {}")
    with pytest.raises(ReleaseError, match=r"part_1_1\.py is not of a release"):
        release(folder, tmp_path / "dist")
    assert (built / "mystack" / "part_1_1.py").exists()
    with pytest.raises(ReleaseError, match="would replace the assignment itself"):
        release(folder, tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("    ### END SOLUTION", "", "line 3: '### BEGIN SOLUTION' without its other half"),
        ("    ### BEGIN SOLUTION\n", "", "line 5: '### END SOLUTION' without its other half"),
        ("### BEGIN", "## BEGIN", "'## BEGIN SOLUTION' is neither"),
        ("### BEGIN SOLUTION", "### begin solution", "is neither"),
        ("### BEGIN SOLUTION", "### BEGIN SOLUTION ok", "is neither"),
        ("### END SOLUTION", "### BEGIN SOLUTION", "line 6: '### BEGIN SOLUTION' without"),
        ("### END SOLUTION", "### END HIDDEN TESTS", "is neither"),
    ],
)
def test_malformed_markers_stop_it(tmp_path: Path, old: str, new: str, words: str) -> None:
    folder = make(tmp_path / "a0_small", task_1_1=CLOSEST.strip().replace(old, new))
    assert words in faults_of(folder, tmp_path / "dist")


def test_markers_where_none_may_stand_stop_it(tmp_path: Path) -> None:
    plain = make(tmp_path / "a", task_1_1="def closest(word, known):\n    return 1")
    assert "task-1-1: a solution cell without" in faults_of(plain, tmp_path / "dist")
    setup = make(tmp_path / "b", setup="### BEGIN SOLUTION\nimport grader\n### END SOLUTION")
    assert "setup: '### BEGIN SOLUTION' in a cell that is no" in faults_of(setup, tmp_path / "dist")


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    bad = CLOSEST.strip().replace("### END", "### FIN")
    folder = make(tmp_path / "a0_small", task_1_1=bad, task_1_2=bad)
    assert len(faults_of(folder, tmp_path / "dist").splitlines()) == 2


def test_several_solutions_in_a_cell() -> None:
    text = (
        "a = 0\n### BEGIN SOLUTION\nb = 1\n### END SOLUTION\n"
        "if a:\n\t### BEGIN SOLUTION\n\tc = 2\n\t### END SOLUTION"
    )
    assert blank(text) == (
        "a = 0\n# YOUR CODE HERE\nraise NotImplementedError\n"
        "if a:\n\t# YOUR CODE HERE\n\traise NotImplementedError"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema_version": 2}, "schema_version is 2, expected 3"),
        ({"grade_id": "task 1"}, "grade_id is 'task 1'"),
        ({"grade": True}, "points are None"),
        ({"points": 3}, "points without grade"),
        ({"locked": None}, "locked is None"),
        ({"remark": "x"}, "nbgrader knows no key 'remark'"),
    ],
)
def test_metadata_that_nbgrader_would_refuse(change: dict[str, Any], words: str) -> None:
    assert not cell_faults("code", marks("task-1-1", solution=True))
    assert words in "\n".join(cell_faults("code", marks("task-1-1", solution=True) | change))


def test_a_task_has_its_cells(folder: Path) -> None:
    assignment = load(folder)
    book = source_notebook(folder)
    assert metadata_faults(book, assignment) == []
    book.cells = [c for c in book.cells if c.metadata["nbgrader"]["grade_id"] != "task-1-2"]
    book.cells[3].metadata["nbgrader"]["points"] = 5
    assert metadata_faults(book, assignment) == [
        "check-1-1: 5 points, assignment.toml says 4",
        "there is no cell task-1-2",
    ]


TELLING = "distance = {name: abs(len(name) - len(word)) for name in known}"


@pytest.mark.parametrize(
    ("file", "line", "words"),
    [
        ("glue.py", f"    {TELLING}", "glue.py holds a line of the solution of task-1-1"),
        ("tests/public/a0_public.py", TELLING, "a0_public.py holds a line of the solution"),
        ("glue.py", "        known  = ['relu', 'sigmoid', 'tanh', 'exp']", ""),
        (
            "glue.py",
            'kinds = ["relu", "relu"] if shared else list(rng.permutation(["tanh", "exp"]))',
            "holds a line of the hidden test test_1_2.py",
        ),
        ("glue.py", "### BEGIN SOLUTION", "holds a marker"),
    ],
)
def test_leaks_stop_it(folder: Path, tmp_path: Path, file: str, line: str, words: str) -> None:
    path = folder / file
    path.write_text(path.read_text() + f"\n\ndef more():\n    {line}\n", encoding="utf-8")
    if words:
        assert words in faults_of(folder, tmp_path / "dist")
    else:  # another text than in the hidden test: no leak
        assert release(folder, tmp_path / "dist")


def test_leaks_in_metadata_and_whole_tests_are_seen(folder: Path, tmp_path: Path) -> None:
    built = release(folder, tmp_path / "dist")
    assert leaks.find(folder, built) == []
    book = built / "assignment.ipynb"
    content = json.loads(book.read_text())
    content["metadata"]["old"] = [f"    {TELLING}\n"]
    book.write_text(json.dumps(content))
    (built / "tests" / "public" / "test_1_3.py").write_text(
        (folder / "tests" / "hidden" / "test_1_3.py").read_text()
    )
    (built / "cache.pyc").write_bytes(b"\0")
    found = [(leak.file, leak.what) for leak in leaks.find(folder, built)]
    assert ("assignment.ipynb", "a line of the solution of task-1-1") in found
    assert ("tests/public/test_1_3.py", "a whole hidden test") in found
    assert ("cache.pyc", "what no release has") in found
