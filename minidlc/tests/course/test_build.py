"""Texts become notebooks: the same bytes twice, and what would change later is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from minidlc.tests.course.builder import COURSE, build

TEXT = """# %% [markdown]
# # Toy

# %% tags=["slow"] nbgrader={"grade": true, "points": 3}
print("slow")

# %%
print("a"); print("b")

# %% tags=["nbval-ignore-output"]
import time
print(time.time_ns())
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "chapter" / "text" / "01_toy.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_what_a_cell_says_about_itself_is_kept(tmp_path: Path) -> None:
    book = build.to_notebook(write(tmp_path, TEXT))
    assert book.cells[1].metadata == {"tags": ["slow"], "nbgrader": {"grade": True, "points": 3}}
    assert [cell.cell_type for cell in book.cells] == ["markdown", "code", "code", "code"]


def test_a_cell_keeps_its_id_when_another_changes(tmp_path: Path) -> None:
    before = build.to_notebook(write(tmp_path, TEXT))
    after = build.to_notebook(write(tmp_path, TEXT.replace('"slow")', '"other")')))
    same = [a.id == b.id for a, b in zip(before.cells, after.cells, strict=True)]
    assert same == [True, False, True, True]
    doubled = build.to_notebook(write(tmp_path, TEXT + TEXT))
    assert len({cell.id for cell in doubled.cells}) == 8


@pytest.mark.long
def test_an_assignment_is_written_beside_its_text(tmp_path: Path) -> None:
    path = tmp_path / "assignment.py"
    path.write_text(TEXT, encoding="utf-8")
    script = [sys.executable, str(COURSE / "build.py"), "--no-run", str(path)]
    subprocess.run(script, check=True, capture_output=True, timeout=120)
    book = nbformat.read(tmp_path / "assignment.ipynb", as_version=4)
    assert [cell.get("outputs", []) for cell in book.cells] == [[]] * 4
    assert build.difference(path, executed=False) == ""
    assert build.difference(path) == "cell 2 was not run"


@pytest.mark.parametrize(
    ("source", "output", "message"),
    [
        ("lesson.times({})", [], 'needs tags=["nbval-ignore-output"]'),
        ("f", [nbformat.v4.new_output("execute_result", {"text/plain": "<f at 0x7f12345678>"})],
         "an address in memory"),
        ("f()", [nbformat.v4.new_output("stream", name="stdout", text=f"in {Path.home()}/x.py")],
         "a path of this machine"),
        ("f()", [nbformat.v4.new_output("stream", name="stderr", text="warning")], "stderr"),
    ],
)  # fmt: skip
def test_what_changes_from_run_to_run_is_refused(
    source: str, output: list[nbformat.NotebookNode], message: str
) -> None:
    cell = nbformat.v4.new_code_cell(source, outputs=output)
    with pytest.raises(build.BuildError, match=message.replace("[", r"\[")):
        build.check_cell(1, cell)


def test_pieces_of_a_stream_are_one() -> None:
    pieces = [nbformat.v4.new_output("stream", name="stdout", text=t) for t in ("a\n", "b\n")]
    error = nbformat.v4.new_output("stream", name="stderr", text="c\n")
    merged = build.merged_streams([*pieces, error])
    assert [(output.name, output.text) for output in merged] == [
        ("stdout", "a\nb\n"),
        ("stderr", "c\n"),
    ]


@pytest.mark.long
def test_built_twice_and_compared_by_nbval(tmp_path: Path) -> None:
    """The whole chain on a lesson of four cells: build, build again, compare, break, compare."""
    text = write(tmp_path, TEXT)
    path = build.build(text)
    first = json.loads(path.read_text(encoding="utf-8"))
    second = json.loads(build.build(text).read_text(encoding="utf-8"))
    for book in (first, second):
        assert book["cells"].pop()["outputs"], "the cell that may differ"
    assert first == second

    for name in ("conftest.py", "wheel_dot.py"):
        shutil.copy(COURSE / name, tmp_path / name)
    assert "2 passed, 1 deselected" in nbval(tmp_path)
    changed = path.read_text(encoding="utf-8").replace('"b\\n"', '"c\\n"')
    path.write_text(changed, encoding="utf-8")
    assert "1 failed, 2 passed" in nbval(tmp_path, "--full")
    broken = changed.replace('print(\\"a\\")', "print(1 / 0)")
    assert broken != changed
    path.write_text(broken, encoding="utf-8")
    assert "ZeroDivisionError" in nbval(tmp_path)


@pytest.mark.long
def test_a_failing_cell_writes_nothing(tmp_path: Path) -> None:
    text = write(tmp_path, "# %%\n1 / 0\n")
    with pytest.raises(build.BuildError, match="ZeroDivisionError"):
        build.build(text)
    assert not build.notebook_of(text).exists()


def nbval(folder: Path, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
    command += ["--nbval", "--nbval-current-env", "--nbval-cell-timeout", "60", *options, "."]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    return run.stdout + run.stderr
