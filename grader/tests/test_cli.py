"""The commands, as a teaching assistant types them; what is wrong is said in one sentence."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from grader.cli import main
from grader.gradebook import Gradebook
from grader.manifest import load
from grader.notebook import instructor
from grader.release import blank
from grader.tests.threads import TOY

pytestmark = pytest.mark.long

COMMANDS = ("release", "check", "grade", "report", "mark", "doctor")


def typed(*words: object, code: int = 0) -> str:
    """Run `python -m grader …` as it is typed; what it said."""
    command = [sys.executable, "-m", "grader", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def grader(*words: object, code: int = 0) -> str:
    """The same in this process, without the second that starting one takes."""
    said, ended = io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(said):
        patch.setattr(sys, "argv", ["grader", *map(str, words)])
        try:
            main()
        except SystemExit as end:
            ended = end.code or 0
    assert ended == code, said.getvalue()
    return said.getvalue()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two who handed in the same, and one who handed in nothing of their own; graded once."""
    folder = tmp_path_factory.mktemp("class")
    book = json.loads((TOY / "assignment.ipynb").read_text(encoding="utf-8"))
    for student in ("ada", "bob", "eve"):
        if student == "eve":
            for cell in book["cells"]:
                cell["source"] = blank("".join(cell["source"]))
        path = folder / "in" / student / "assignment.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(book), encoding="utf-8")
    grader("grade", TOY, folder / "in", "--out", folder / "out", "--jobs", 1, "--secret", "s")
    return folder / "out"


def test_as_it_is_typed():
    whole = typed("--help")
    assert all(command in whole for command in COMMANDS)
    assert typed("release", "nowhere", code=1).startswith("error: nowhere")


def test_every_command_explains_itself():
    whole = grader("--help")
    assert all(command in whole for command in COMMANDS)
    for command in COMMANDS:
        assert "Usage" in grader(command, "--help")


@pytest.mark.parametrize("format", ["html", "gradescope", "canvas", "junit", "csv"])
def test_a_report_of_each_format(results: Path, format: str):
    said = grader("report", results, "--format", format)
    assert said.startswith("written")
    assert any((results / "report" / format).iterdir())


def test_moodle_asks_for_participants(results: Path, tmp_path: Path):
    said = grader("report", results, "--format", "moodle", code=1)
    assert said.startswith("error: no participant number for ada, bob, eve")
    sheet = tmp_path / "sheet.csv"
    sheet.write_text(
        "Identifier,Full name\nParticipant 1,ada\nParticipant 2,bob\nParticipant 3,eve\n"
    )
    grader("report", results, "--format", "moodle", "--roster", sheet, "--out", tmp_path)
    rows = list(csv.reader((tmp_path / "moodle.csv").read_text("utf-8-sig").splitlines()))
    assert rows[1][0] == "Participant 1"


def test_pairs_that_look_alike(results: Path, tmp_path: Path):
    said = grader("report", results, "--format", "similarity", code=1)
    assert "--submissions" in said
    more = ("--submissions", results.parent / "in", "--out", tmp_path)
    grader("report", results, "--format", "similarity", *more)
    rows = list(csv.reader((tmp_path / "similarity.csv").read_text().splitlines()))
    assert rows[0] == ["first", "second", "share", "common fingerprints"]
    assert all("eve" not in row for row in rows), "what the release gives does not count"


def test_no_submission_to_compare(results: Path, tmp_path: Path):
    (tmp_path / "ada").mkdir()
    wrong = ("--submissions", tmp_path)
    said = grader("report", results, "--format", "similarity", *wrong, code=1)
    assert said == f"error: {tmp_path}: none of the submissions there can be read\n"


def test_a_zip_that_is_a_folder(tmp_path: Path):
    (tmp_path / "z").mkdir()
    where = ("--out", tmp_path / "out", "--gradescope", tmp_path / "z")
    assert grader("release", TOY, *where, code=1).endswith(
        f"error: {tmp_path / 'z'}: is a directory\n"
    )


def test_points_by_hand_and_back(results: Path, tmp_path: Path):
    task = load(TOY).tasks[0]

    def points(student: str) -> str:
        grader("report", results, "--format", "csv", "--out", tmp_path)
        rows = list(csv.DictReader((tmp_path / "grades.csv").read_text().splitlines()))
        return next(row[task.id] for row in rows if row["student"] == student)

    assert float(points("eve")) == 0
    grader("mark", results, "eve", "--task", task.id, "--points", 1, "--why", "spoken of")
    assert float(points("eve")) == 1
    grader("mark", results, "eve", "--task", task.id, "--measured")
    assert float(points("eve")) == 0
    grader("mark", results, "eve", "--excuse", "--why", "ill")
    grader("report", results, "--format", "canvas", "--out", tmp_path)
    assert "EX" in (tmp_path / "canvas.csv").read_text("utf-8-sig")
    grader("mark", results, "eve", "--no-excuse")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["grade", "nowhere", "in"], "nowhere"),
        (["grade", TOY, "nowhere"], "no such folder of submissions"),
        (["grade", TOY, ".", "--only", "nobody"], "nobody"),
        (["report", "nowhere"], "no gradebook.sqlite"),
        (["mark", "nowhere", "ada", "--excuse"], "no gradebook.sqlite"),
        (["release", "nowhere"], "nowhere"),
        (["check", "nowhere"], "nowhere"),
    ],
    ids=lambda value: " ".join(map(str, value))[:30] if isinstance(value, list) else "",
)
def test_what_is_wrong_in_one_sentence(words: list[object], said: str, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    (tmp_path / "ada.ipynb").write_text("{}")
    text = grader(*words, code=1)
    assert text.startswith("error: ")
    assert said in text
    assert len(text.strip().splitlines()) == 1


LATIN = "Identifier,Full name\nParticipant 1,Zoë\n".encode("latin-1")
WIDE = "Identifier,Full name\n".encode("utf-16")
UTF8 = 'save the file as UTF-8; a spreadsheet calls it "CSV UTF-8"'


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("roster.csv", LATIN, f"line 2: byte 0xeb is not UTF-8; {UTF8}"),
        ("roster.csv", WIDE, f"the text is UTF-16, not UTF-8; {UTF8}"),
        ("roster.csv", b"", "no header line; give the CSV export of Canvas, or the worksheet"),
        (
            "roster.csv",
            b'a,b\n"1,2\n' + b"x" * 200_000,
            "after line 1: field larger than field limit",
        ),
        ("roster.csv", None, "no such file or directory"),
        ("gradebook.sqlite", b"no database " * 99, "not an SQLite database, or a damaged one; put"),
        ("policy.toml", b"# f\xfcr alle\n", f"line 1: byte 0xfc is not UTF-8; {UTF8}"),
        ("policy.toml", b"due = \n", "not valid TOML"),
        ("policy.toml", None, "cannot be read: No such file or directory"),
        ("assignment.toml", b"# f\xfcr alle\n", f"line 1: byte 0xfc is not UTF-8; {UTF8}"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_rule_and_hint(
    name: str, data: bytes | None, said: str, tmp_path: Path
):
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    if name == "roster.csv":
        Gradebook(tmp_path).close()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "ada.ipynb").write_text("{}")
    words = {
        "roster.csv": ["report", tmp_path, "--format", "canvas", "--roster", path],
        "gradebook.sqlite": ["report", tmp_path],
        "policy.toml": ["grade", TOY, tmp_path / "in", "--out", tmp_path / "o", "--policy", path],
        "assignment.toml": ["release", tmp_path],
    }
    text = grader(*words[name], code=1)
    assert text.startswith(f"error: {path}: {said}")
    assert len(text.splitlines()) == 1


def test_a_gradebook_of_something_else_is_named(tmp_path: Path):
    with sqlite3.connect(tmp_path / "gradebook.sqlite") as base:
        base.execute("CREATE TABLE results (title TEXT)")
    base.close()
    text = grader("report", tmp_path, code=1)
    assert text.startswith("error: the gradebook.sqlite of that folder: no such column: student")


def test_the_reference_is_not_needed_to_release(tmp_path: Path):
    said = grader("release", TOY, "--out", tmp_path, "--gradescope", tmp_path / "toy.zip")
    assert "released" in said
    assert (tmp_path / "toy.zip").is_file()
    assert instructor(TOY).cells
