import dataclasses
import json
import os
import sqlite3
import stat
from datetime import datetime

import pytest

from grader.gradebook import Gradebook, GradebookError, text_of
from grader.model import Result, Row, Status, TaskResult


def result(student, earned=1.0, status=Status.PASSED, **fields):
    rows = (Row("t1", True, status, earned, 1.0, frames=("cell 1, line 2: x",)),)
    tasks = (TaskResult("1.1", "One", 4, rows), TaskResult("1.2", "Two", 6, rows))
    return Result(student, "a1", tasks, digest=f"d-{student}", **fields)


def test_a_result_is_a_row_and_a_file(tmp_path):
    with Gradebook(tmp_path) as book:
        ada = result("ada", times={"wall": 1.5})
        book.put(result("zoë"))
        book.put(ada)
        assert book.get("ada") == ada
        assert book.get("bob") is None
        assert [r.student for r in book.results()] == ["ada", "zoë"]
        data = json.loads((tmp_path / "ada.json").read_text(encoding="utf-8"))
        assert data["tasks"][0]["rows"][0]["status"] == "passed"
        book.put(dataclasses.replace(ada, error="gone"))
        assert [r.error for r in book.results()] == ["gone", ""]
        assert book.final()[0].score == 10
    assert text_of(ada) == text_of(dataclasses.replace(ada))


def test_overrides_stay_apart_and_survive_grading_again(tmp_path):
    with Gradebook(tmp_path) as book:
        book.put(result("ada", 0.0, Status.GRADER_ERROR))
        book.override("ada", "1.2", 5, "read by hand")
        book.override("ada", "1.1", 1, "half")
        book.put(result("ada", 0.0, Status.FAILED))
        assert book.results()[0].score == 0
        [final] = book.final()
        assert (final.score, final.tasks[1].override) == (6, 5)
        assert book.overrides() == [("ada", "1.1", 1, "half"), ("ada", "1.2", 5, "read by hand")]
        book.remove_override("ada", "1.1")
        assert book.final()[0].score == 5
        assert "override" in (tmp_path / "ada.json").read_text()
        assert json.loads((tmp_path / "ada.json").read_text())["tasks"][1]["override"] is None
        with pytest.raises(GradebookError, match="no result of 'bob'"):
            book.override("bob", "1.1", 1, "")
        with pytest.raises(GradebookError, match=r"no task '1\.9'"):
            book.override("ada", "1.9", 1, "")
        for points in (-1, 500, float("nan"), float("inf")):
            with pytest.raises(GradebookError, match=r"task 1\.1 has 0 to .* points, got"):
                book.override("ada", "1.1", points, "")
        with pytest.raises(GradebookError, match=r"no points of 'ada' were set for task '1\.1'"):
            book.remove_override("ada", "1.1")


def test_policy_and_extensions_are_applied_when_results_are_read(tmp_path):
    late = "2026-10-16T12:00:00+00:00"
    with Gradebook(tmp_path) as book:
        book.put(result("ada", submitted=late))
        book.put(result("bob", submitted=late))
        book.write_note("policy", "due = 2026-10-14T12:00:00Z\npercent_per_day = 25\ndays = 3\n")
        book.extend("bob", datetime.fromisoformat("2026-10-20T00:00:00+00:00"), "ill")
        with pytest.raises(GradebookError, match="time zone"):
            book.extend("bob", datetime(2026, 10, 20), "ill")
        assert [(r.score, r.factor) for r in book.final()] == [(5, 0.5), (10, 1.0)]
        assert book.results()[0].score == 10
        assert book.final()[0].late == "2 days late: 50 % off."


def test_the_secret_is_made_once_and_is_ours_alone(tmp_path):
    with Gradebook(tmp_path) as book:
        secret = book.secret()
        assert len(secret) == 32
        assert book.secret() == secret
    with Gradebook(tmp_path) as book:
        assert book.secret() == secret
    if os.name == "posix":
        for name in ("secret", "gradebook.sqlite"):
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_gradebook_that_cannot_be_used(tmp_path):
    (tmp_path / "gradebook.sqlite").write_text("this is no database, and never was one. " * 40)
    with pytest.raises(GradebookError, match=r"gradebook\.sqlite: not an SQLite database.* copy"):
        Gradebook(tmp_path)
    with pytest.raises(GradebookError, match=r"gradebook\.sqlite: is a file; results go into"):
        Gradebook(tmp_path / "gradebook.sqlite")
    other = tmp_path / "other"
    Gradebook(other).close()
    base = sqlite3.connect(other / "gradebook.sqlite")
    base.execute("UPDATE notes SET value='9' WHERE key='version'")
    base.commit()
    base.close()
    with pytest.raises(GradebookError, match="version 9"):
        Gradebook(other)


@pytest.mark.parametrize("text", ["no JSON", "[]", "{}", '{"tasks": [{"rows": [3]}]}'])
def test_a_row_that_this_grader_did_not_write(tmp_path, text):
    with Gradebook(tmp_path) as book:
        book.put(result("ada"))
        with sqlite3.connect(tmp_path / "gradebook.sqlite") as base:
            base.execute("UPDATE results SET result=?", (text,))
        base.close()
        said = r"gradebook\.sqlite: the result of 'ada' is not one of this grader; .*--only ada"
        for read in (book.results, book.final, lambda: book.get("ada")):
            with pytest.raises(GradebookError, match=said):
                read()


def test_half_a_file_is_never_seen(tmp_path, monkeypatch):
    with Gradebook(tmp_path) as book:
        book.put(result("ada"))
        before = (tmp_path / "ada.json").read_bytes()

        def killed(*arguments):
            raise OSError("no space")

        monkeypatch.setattr(os, "replace", killed)
        with pytest.raises(OSError, match="no space"):
            book.put(result("ada", 0.0))
        assert (tmp_path / "ada.json").read_bytes() == before
        assert book.get("ada").score == 10
        assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_excused_and_taken_back(tmp_path):
    with Gradebook(tmp_path) as book:
        book.excuse("eve", "ill")
        book.excuse("bob", "away")
        assert book.excused() == ["bob", "eve"]
        book.excuse("bob", "", excused=False)
    with Gradebook(tmp_path) as book:
        assert book.excused() == ["eve"]
