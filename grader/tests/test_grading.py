"""One submission from its notebook to its result, in real sandboxes, on the toy assignment."""

import dataclasses
import json
import os
import shutil

import pytest

from grader.gradebook import text_of
from grader.grading import Grader, Options, fault, time_of
from grader.manifest import load
from grader.model import Status, result_from_json
from grader.notebook import instructor
from grader.tests.threads import TOY, toy_overlays

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="sandboxes need fork"),
]
OWN = instructor(TOY)
BLANK = "def twice(x):\n    raise NotImplementedError\n"


def options(seed="", **fields):
    return Options(seed, overlays=toy_overlays(), **fields)


@pytest.fixture(scope="module")
def grader():
    with Grader(load(TOY), options("the course's secret")) as made:
        yield made


def outcome(result):
    return {task.id: (task.earned, task.status.value) for task in result.tasks}


PASSED = {"9.1": (4, "passed"), "9.2": (6, "passed"), "9.3": (2, "passed")}


def test_the_reference_gets_full_marks_and_its_functions_ran(grader):
    result = grader.grade(TOY, "ada")
    assert outcome(result) == PASSED
    assert (result.score, result.out_of) == (12, 12)
    assert [task.calls for task in result.tasks] == [5, 4, 4]
    assert [len(task.rows) for task in result.tasks] == [5, 4, 2]
    assert result.isolation == grader.level.name.lower()
    assert result.times["worker"] > 0
    assert len(result.digest) == 64


@pytest.mark.parametrize(
    ("cell", "source", "expected"),
    [
        ("task-9-1", BLANK, {"9.1": (0, "error"), "9.3": (0, "error")}),
        (
            "task-9-1",
            "def twice(x):\n    input('?')\n    return x + x\n",
            {"9.1": (0, "error"), "9.3": (0, "error")},
        ),
        ("task-9-1", "", {"9.1": (0, "missing"), "9.3": (0, "missing")}),
        ("task-9-1", "def twice(x) return x", {"9.1": (0, "error"), "9.3": (0, "error")}),
        (
            "task-9-1",
            "import os\ndef twice(x):\n    os._exit(0)\n",
            {"9.1": (0, "crashed"), "9.3": (0, "crashed")},
        ),
        (
            "task-9-1",
            "def twice(x):\n    return x + x if x != -1 else [][0]\n",
            {"9.1": (2, "error"), "9.3": (2, "passed")},
        ),
        ("task-9-2", "def without_repeats(graph):\n    return graph\n", None),
    ],
)
def test_a_fault_costs_its_own_task_and_the_run_of_all(grader, cell, source, expected):
    result = grader.grade_notebook(OWN.with_cell(cell, source), "ada")
    if expected is None:
        expected = {"9.2": (1.2, "failed"), "9.3": (0, "failed")}
    if "[][0]" in source:
        # arrays cannot be compared with -1 in an `if`, functions and texts are doubled as texts
        expected = {"9.1": (result.tasks[0].earned, result.tasks[0].status.value)} | {
            "9.3": expected["9.3"]
        }
        assert result.tasks[0].rows[0].status == Status.PASSED
        assert result.tasks[0].rows[1].exception == "IndexError"
    assert outcome(result) == PASSED | expected


def test_two_gradings_are_the_same_but_for_times(grader):
    book = OWN.with_cell("task-9-1", "def twice(x):\n    return object()\n")

    def graded(with_grader, student="ada"):
        result = with_grader.grade_notebook(book, student)
        return text_of(dataclasses.replace(result, times={}))

    first = graded(grader)
    assert graded(grader) == first
    with Grader(load(TOY), options("the course's secret")) as again:
        assert graded(again) == first
    with Grader(load(TOY), options("another")) as other:
        assert graded(other) != first
    assert result_from_json(json.loads(first)) == result_from_json(json.loads(graded(grader)))


def test_seeds_are_the_students_own(grader):
    assert grader.seed("ada") == grader.seed("ada")
    assert grader.seed("ada") != grader.seed("bob")
    assert 0 <= grader.seed("ada") < 1 << 48


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("ada.ipynb", None, "No notebook was handed in."),
        ("ada.ipynb", b'{"cells": [', "is cut off"),
        ("ada.ipynb", b"", "is empty"),
        ("ada.py", b"def twice(x): return x + x", "does not begin as one"),
    ],
)
def test_an_unreadable_submission_has_every_row_and_one_sentence(
    grader, tmp_path, name, data, sentence
):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    result = grader.grade(tmp_path / name, "ada")
    assert sentence in result.error
    assert (result.score, result.out_of, result.counts) == (0, 12, True)
    rows = [row for task in result.tasks for row in task.rows]
    assert len(rows) == 11
    assert {row.status for row in rows} == {Status.MISSING}
    assert rows[0].test == "test_twice[three]"


@pytest.fixture
def toy(tmp_path):
    """A copy of the assignment that may be broken."""
    folder = tmp_path / "toy"
    shutil.copytree(TOY, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_tests_of_ours_that_do_not_import_are_no_zero(toy, tmp_path):
    (toy / "tests" / "hidden" / "test_9_1.py").write_text("import no_such_module\n")
    with Grader(load(toy), options()) as grader:
        result = grader.grade(TOY, "ada")
        assert [task.counts for task in result.tasks] == [False, True, True]
        rows = result.tasks[0].rows
        assert [row.status for row in rows] == [Status.GRADER_ERROR] * 5
        assert "no_such_module" in rows[0].private
        assert "no_such_module" not in rows[0].sentence
        broken = grader.grade(tmp_path / "none.ipynb", "ada")
        assert not broken.tasks[0].rows[0].private or not broken.counts


def test_public_only_at_home(toy):
    shutil.rmtree(toy / "tests" / "hidden")
    with Grader(load(toy), options(public_only=True)) as grader:
        result = grader.grade(TOY, "ada")
    assert result.public_only
    assert outcome(result) == PASSED
    assert [len(task.rows) for task in result.tasks] == [2, 1, 1]


def test_chosen_tasks(toy):
    with Grader(load(toy), options(tasks=("9.2",))) as grader:
        assert outcome(grader.grade(TOY, "ada")) == {"9.2": (6, "passed")}


def test_the_digest_changes_with_whatever_decides_a_score(toy):
    def digest(options=None, data=b"x", student="ada"):
        return Grader(load(toy), options or Options(seed="s")).digest(data, student)

    first = digest()
    assert digest() == first
    assert digest(data=b"y") != first
    assert digest(student="bob") != first
    assert digest(Options(seed="t")) != first
    assert digest(Options(seed="s", public_only=True)) != first
    test = toy / "tests" / "hidden" / "test_9_1.py"
    test.write_text(test.read_text() + "\n")
    assert digest() != first


def test_when_it_was_handed_in(tmp_path):
    book = tmp_path / "a.ipynb"
    book.write_text("{}")
    os.utime(book, (1_790_000_000, 1_790_000_000))
    assert time_of(tmp_path, book) == "2026-09-21T14:13:20+00:00"
    for text in (
        "2026-10-01 10:00:00 UTC",
        "2026-10-01T12:00:00+02:00",
        "2026-10-01 10:00:00.0 UTC",
    ):
        (tmp_path / "timestamp.txt").write_text(text)
        assert time_of(tmp_path, book).startswith("2026-10-01T10:00:00")
    (tmp_path / "timestamp.txt").write_text("yesterday")
    assert time_of(tmp_path, book) == "2026-09-21T14:13:20+00:00"


def test_a_fault_of_ours_has_rows_and_no_score():
    result = fault(load(TOY), Options(), "ada", "the disk is full")
    assert not result.counts
    assert len([row for task in result.tasks for row in task.rows]) == 11
    assert result.tasks[0].rows[0].private == "the disk is full"
