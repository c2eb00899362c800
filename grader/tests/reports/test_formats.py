"""Each report format is what its reader expects, letter by letter where that is stated."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import pytest

from grader import reports
from grader.files import put
from grader.model import Row, Status, result_from_json, to_json
from grader.reports import canvas, gradescope, html, junit, moodle, table
from grader.reports.klass import Class, Roster, cell, date, feedback, file_name, grouped, number
from grader.tests.reports.examples import ADA, BOB, CLASS, EVE, MAX, SECRET, result, task

ROOT = Path(__file__).parents[3]


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def test_records_are_the_same_after_json():
    for one in CLASS.results:
        assert result_from_json(json.loads(json.dumps(to_json(one)))) == one


def test_points_by_weight_and_by_an_instructor():
    assert BOB.tasks[0].earned == 5
    assert BOB.score == 0.8 * 5
    assert dataclasses.replace(BOB.tasks[0], override=7.0).earned == 7
    assert not EVE.counts
    mended = dataclasses.replace(EVE.tasks[1], override=5.0)
    assert dataclasses.replace(EVE, tasks=(EVE.tasks[0], mended)).counts


def test_gradescope_has_exactly_the_fields_of_the_format():
    data = json.loads(gradescope.results_json(BOB))
    top = "score execution_time output visibility stdout_visibility extra_data tests leaderboard"
    assert set(data) == set(top.split())
    fields = "score max_score status name number output output_format tags visibility extra_data"
    assert all(set(test) == set(fields.split()) for test in data["tests"])
    assert data["visibility"] in ("hidden", "after_due_date", "after_published", "visible")
    assert data["score"] == 4
    assert [t["status"] for t in data["tests"]] == ["failed", "failed"]
    assert "2 days late" in data["output"]
    ada = json.loads(gradescope.results_json(ADA))
    assert ada["execution_time"] == 2
    assert ada["tests"][0]["extra_data"] == {"calls_reported_by_submission": ADA.tasks[0].calls}


def test_a_fault_of_ours_is_no_zero_anywhere(tmp_path: Path):
    data = json.loads(gradescope.results_json(EVE))
    assert "score" not in data
    assert "tests" not in data
    assert read(canvas.text(CLASS))[4][-1] == ""
    assert table.grades(CLASS)[3][3] == ""
    case = ET.fromstring(junit.document(CLASS)).findall(".//testcase")[5]
    assert case.find("error") is not None
    assert case.find(".//property[@name='points']") is None
    assert "Not graded yet" in html.student_page(CLASS, EVE)


def test_junit_is_xml_with_points():
    suites = ET.fromstring(junit.document(CLASS))
    assert [s.get("name") for s in suites] == [r.student for r in CLASS.results]
    bob = suites[1]
    assert (bob.get("tests"), bob.get("failures"), bob.get("errors")) == ("2", "2", "0")
    points = [p.get("value") for p in bob.iter("property") if p.get("name") == "points"]
    assert points == ["5", "0"]
    assert "\x00" not in (bob.find(".//failure").text or "")


def test_canvas_rows_and_columns():
    rows = read(canvas.text(CLASS))
    assert rows[0] == [*canvas.FIXED, "A graph IR"]
    assert rows[1][0].strip() == "Points Possible"
    assert rows[1][-1] == "15"
    assert rows[2] == ["ada", "", "", "ada", "", "15"]
    assert rows[3][0] == BOB.student
    assert rows[4][0] == "'=cmd()"
    assert rows[5][-1] == "EX"


def test_canvas_takes_names_and_its_column_from_the_export():
    roster = Roster(
        ("Student", "ID", "SIS User ID", "SIS Login ID", "Section", "A graph IR (4711)"),
        (
            {
                "Student": "Lovelace, Ada",
                "ID": "17",
                "SIS User ID": "u17",
                "SIS Login ID": "ADA",
                "Section": "A",
            },
        ),
    )
    rows = read(canvas.text(CLASS, roster))
    assert rows[0][-1] == "A graph IR (4711)"
    assert rows[2] == ["Lovelace, Ada", "17", "u17", "ADA", "A", "15"]


def test_moodle_needs_participant_numbers():
    with pytest.raises(ValueError, match="no participant number for ada"):
        moodle.text(CLASS)
    names = ("Ada Lovelace_1234_assignsubmission_file", "Participant_7", "Participant 8_x")
    klass = Class("a1", "A graph IR", tuple(result(n, task("1.1", 3)) for n in names))
    rows = read(moodle.text(klass))
    assert rows[0] == list(moodle.HEADER)
    assert [r[0] for r in rows[1:]] == ["Participant 1234", "Participant 7", "Participant 8"]


def test_moodle_with_its_worksheet(tmp_path: Path):
    sheet = tmp_path / "w.csv"
    sheet.write_text('\ufeffIdentifier,Full name\nParticipant 5,ada\n"Participant 6",max\n')
    klass = Class("a1", "A graph IR", (ADA, MAX))
    rows = read(moodle.text(klass, Roster.read(sheet)))
    assert [r[:2] for r in rows[1:]] == [["Participant 5", "15"], ["Participant 6", "0"]]
    assert "cut off in line 3" in rows[2][3]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx"])
def test_no_cell_is_a_formula(text: str):
    assert cell(text) == "'" + text


def test_the_students_page_holds_nothing_hidden():
    page = html.student_page(CLASS, BOB)
    assert SECRET not in page
    assert SECRET in html.class_page(CLASS)
    assert "seen: &lt;b&gt;" in page
    assert "hidden test" in page
    assert page.index("✓") < page.index("✗")
    assert "Public checks only" not in page
    assert "Public checks only" in html.student_page(
        CLASS, dataclasses.replace(BOB, public_only=True)
    )
    for format in ("gradescope", "junit", "moodle", "csv"):
        assert SECRET not in _everything(format)


def _everything(format: str) -> str:
    if format == "junit":
        return junit.document(CLASS).decode()
    if format == "moodle":
        names = [
            dataclasses.replace(r, student=f"Participant {i}") for i, r in enumerate(CLASS.results)
        ]
        return moodle.text(Class("a1", "t", tuple(names)))
    if format == "csv":
        return str(table.tests(CLASS))
    return "".join(gradescope.results_json(r) for r in CLASS.results)


def test_distribution_counts_everyone_once():
    bins = html.distribution([0, 1.5, 14.9, 15], 15)
    assert [b.students for b in bins] == [1, 1, 0, 0, 0, 0, 0, 0, 0, 2]
    assert html.distribution([], 0)[0].students == 0


def test_most_common_failures_first():
    twice = (BOB, dataclasses.replace(BOB, student="x"), ADA)
    failures = html.task_rows(list(twice))[1].failures
    assert failures == [("claim 0", "ZeroDivisionError", 2)]


def _cases(*names: str, public: bool = True, **fields: str) -> tuple[Row, ...]:
    row = Row("", public, Status.FAILED, claim="Ties.", sentence="It is not so.")
    return tuple(dataclasses.replace(row, test=f"test_ties[{n}]", **fields) for n in names)


def test_a_student_counts_once_however_many_cases_fail():
    cases = dataclasses.replace(ADA.tasks[0], rows=_cases("a", "b", "c"))
    ada = dataclasses.replace(ADA, tasks=(cases,))
    assert html.task_rows([ada, BOB])[0].failures[0] == ("Ties.", "It is not so.", 1)


def test_cases_are_grouped_and_public_ones_named():
    rows = (*_cases("a", "b"), *_cases("c d", details="input: 3"), *_cases("e", public=False))
    claims = [group.claim for group in grouped(rows)]
    assert claims == ["Ties. (2 cases)", "Ties. [c d]", "Ties."]
    task = dataclasses.replace(ADA.tasks[0], rows=rows)
    page = html.student_page(CLASS, dataclasses.replace(ADA, tasks=(task,)))
    assert page.count("Ties.") == 3
    assert feedback(task)[:2] == ["✗ Ties. (2 cases) (failed)", "    It is not so."]


def test_hidden_details_stand_by_student_and_task():
    page = html.class_page(CLASS)
    details = page[page.index("Hidden tests in detail") :]
    lines = re.findall("<summary>([^<]*)</summary>", details)
    assert lines[0].startswith("Bob, the")
    assert lines[0].endswith("2 failed")
    assert lines[1:3] == ["1.1 task 1.1: 1 failed", "test_1 (failed)"]
    assert not any("ada" in line for line in lines)


def test_backticks_become_code_and_nothing_becomes_markup():
    row = Row("t", True, Status.FAILED, claim="The point `a < b`.", sentence="Not `<b>`.")
    task = dataclasses.replace(ADA.tasks[0], rows=(row,), hint="See `mc.use`.")
    page = html.student_page(CLASS, dataclasses.replace(ADA, tasks=(task,)))
    assert "The point <code>a &lt; b</code>." in page
    assert "Not <code>&lt;b&gt;</code>." in page
    assert "See <code>mc.use</code>." in page


def test_dates_are_for_people():
    assert date("2026-11-30T06:37:06+00:00") == "30 November 2026, 06:37 UTC"
    assert date("2026-03-01T18:00:00+05:30") == "1 March 2026, 18:00 UTC+05:30"
    assert date("on paper") == "on paper"
    assert "handed in 30 November 2026, 12:00 UTC<" in html.student_page(CLASS, BOB)


def test_every_format_writes_the_same_bytes_twice(tmp_path: Path):
    klass = Class("a1", "t", tuple(dataclasses.replace(r, student=f"Participant {i}")
                                   for i, r in enumerate(CLASS.results)))  # fmt: skip
    for format in reports.WRITERS:
        first = [p.read_bytes() for p in reports.write(klass, format, tmp_path / "a")]
        assert first == [p.read_bytes() for p in reports.write(klass, format, tmp_path / "b")]
        assert first
    assert not list(tmp_path.rglob(".*"))


def test_a_file_is_there_as_a_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = put(tmp_path / "x.csv", "old")

    def fail(*args: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        put(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("student", ["../../etc/passwd", "..", "", "a/b", "x" * 300, "Zoë"])
def test_a_name_stays_in_its_folder(student: str, tmp_path: Path):
    name = file_name(student)
    assert (tmp_path / name).resolve().parent == tmp_path.resolve()
    assert 0 < len(name) <= 100


def test_two_students_never_share_a_page():
    names = ["ada b", "ada_b", "ada-b", "Ada_b", "x" * 300, "x" * 301, "=x", "_x", "..x", "x"]
    assert len({file_name(name).lower() for name in names}) == len(names)
    assert file_name("ada.b-c_d") == "ada.b-c_d"


def test_feedback_is_short_and_begins_with_what_is_right():
    many = task("1.1", 3, Status.PASSED, *[Status.ERROR] * 20, hint="count from the right")
    lines = feedback(many)
    assert len(lines) == 30
    assert lines[0].startswith("✓")
    assert lines[-2].startswith("… and")
    assert lines[-1] == "hint: count from the right"
    assert number(12.5) == "12.5"
    assert number(3.0) == "3"


def test_the_zip_for_gradescope(tmp_path: Path):
    folder = tmp_path / "a9_toy"
    (folder / "tests" / "hidden").mkdir(parents=True)
    (folder / "assignment.toml").write_text("")
    (folder / "tests" / "hidden" / "test_1_1.py").write_text("")
    (folder / "wrong").mkdir()
    (folder / "wrong" / "x.py").write_text("")
    path = gradescope.autograder_zip(ROOT, folder, tmp_path / "a9.zip")
    first = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        assert names[:2] == ["setup.sh", "run_autograder"]
        assert archive.getinfo("run_autograder").external_attr >> 16 & 0o111
        assert "grader/model.py" in names
        assert "minidlc/driver.py" in names
        assert "assignments/a9_toy/tests/hidden/test_1_1.py" in names
        assert not any("wrong" in n or "/tests/" in n for n in names if "hidden" not in n)
        assert b"assignments/a9_toy" in archive.read("run_autograder")
    assert gradescope.autograder_zip(ROOT, folder, path).read_bytes() == first
