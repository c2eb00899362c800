import json
import os

import pytest

from grader.notebook import (
    Notebook,
    SubmissionError,
    find,
    instructor,
    parse,
    read,
    source_notebook,
)
from grader.tests.threads import TOY

CELL = {"cell_type": "code", "metadata": {}, "outputs": [], "source": "def f():\n    return 1\n"}


def book(*cells, **extra):
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": list(cells)} | extra


def bytes_of(content, encoding="utf-8"):
    return json.dumps(content, ensure_ascii=False).encode(encoding)


def sources(data):
    return [cell.source for cell in parse(data).cells if cell.code]


def refused(data):
    with pytest.raises(SubmissionError) as caught:
        parse(data, "ada.ipynb")
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


def test_a_source_is_a_text_or_a_list_of_lines():
    lines = CELL | {"source": ["def f():\n", "    return 1\n"]}
    assert sources(bytes_of(book(CELL, lines))) == [CELL["source"]] * 2
    assert sources(bytes_of(book(CELL | {"source": "a = 1\r\nb = 2\r\n"}))) == ["a = 1\nb = 2\n"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_encodings(encoding):
    text = CELL | {"source": "# größer\nx = 1"}
    assert sources(bytes_of(book(text), encoding)) == ["# größer\nx = 1"]


@pytest.mark.parametrize(
    "cell",
    [
        {"cell_type": "code", "source": "x = 1"},  # no metadata, no outputs
        {"outputs": [], "source": "x = 1", "metadata": None},  # no cell_type
        {"cell_type": "code", "source": "x = 1", "metadata": {"nbgrader": 3}, "id": "twice"},
        {"cell_type": "code", "source": "x = 1", "outputs": "nonsense", "execution_count": "?"},
    ],
)
def test_what_does_not_matter_may_be_missing_or_wrong(cell):
    content = book(cell, {"id": "twice", **CELL}, None, 3)
    del content["metadata"], content["nbformat"]
    assert sources(bytes_of(content))[0] == "x = 1"


def test_nbformat_3_is_converted():
    old = {"cell_type": "code", "input": ["x = 1\n", "y = 2"], "outputs": [], "language": "python"}
    marks = {"nbgrader": {"grade_id": "task-1-1", "solution": True}}
    content = {"nbformat": 3, "nbformat_minor": 0, "metadata": {}}
    content["worksheets"] = [{"cells": [old | {"metadata": marks}], "metadata": {}}]
    [cell] = parse(bytes_of(content)).cells
    assert (cell.source, cell.grade_id, cell.solution) == ("x = 1\ny = 2", "task-1-1", True)
    content["worksheets"] = [{"cells": 7}]
    assert "old format" in refused(bytes_of(content))


def test_nothing_readable_is_one_sentence():
    whole = bytes_of(book(CELL))
    assert "cut off at its line 1" in refused(whole[:80])
    assert "cut off" in refused(whole[:-2])
    assert "not valid JSON at its line 1, column" in refused(whole.replace(b'"cells":', b'"cells"'))
    assert "is empty" in refused(b"")
    assert "does not begin as one" in refused(b"PK\x03\x04zip")
    assert "another kind" in refused(b"[1]")
    assert "no cells" in refused(b"{}")
    assert "no code cells" in refused(bytes_of(book({"cell_type": "markdown", "source": "hi"})))
    assert "no code cells" in refused(bytes_of(book(CELL | {"source": " \n"})))
    assert "encoding is broken" in refused(b"\xff\xfe{")
    assert "nested too deep" in refused(b'{"cells": ' + b"[" * 200_000)
    assert "160,000 characters of code" in refused(bytes_of(book(CELL | {"source": "x" * 160_001})))


def test_a_submission_is_a_file_or_a_folder_with_one(tmp_path):
    def write(name):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes_of(book(CELL)))
        return path

    renamed = write("ada/my work (2).ipynb")
    write("ada/.ipynb_checkpoints/old.ipynb")
    write("ada/__MACOSX/x.ipynb")
    assert find(tmp_path / "ada", "a1") == renamed
    assert find(renamed, "a1") == renamed
    named = write("ada/deep/a1.ipynb")
    assert find(tmp_path / "ada", "a1") == named
    with pytest.raises(SubmissionError, match="There are 2 notebooks"):
        find(tmp_path / "ada", "a2")
    (tmp_path / "bob").mkdir()
    with pytest.raises(SubmissionError, match="the folder holds nothing"):
        find(tmp_path / "bob", "a1")
    (tmp_path / "bob" / "work.py").write_text("x = 1")
    with pytest.raises(SubmissionError, match=r"the folder holds only work\.py"):
        find(tmp_path / "bob", "a1")
    with pytest.raises(SubmissionError, match="No notebook was handed in"):
        read(tmp_path / "eve.ipynb")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_links_and_pipes_are_not_followed(tmp_path):
    (tmp_path / "bob").mkdir()
    (tmp_path / "other.ipynb").write_bytes(bytes_of(book(CELL)))
    (tmp_path / "bob" / "a1.ipynb").symlink_to(tmp_path / "other.ipynb")
    with pytest.raises(SubmissionError, match=r"a1\.ipynb is a link"):
        find(tmp_path / "bob", "a1")
    with pytest.raises(SubmissionError, match="a link"):
        find(tmp_path / "bob" / "a1.ipynb", "a1")
    os.mkfifo(tmp_path / "pipe.ipynb")
    with pytest.raises(SubmissionError, match="not a plain file"):
        read(tmp_path / "pipe.ipynb")


def test_the_instructors_notebook_is_the_newer_of_text_and_notebook(tmp_path):
    text = (TOY / "assignment.py").read_text(encoding="utf-8")
    (tmp_path / "assignment.py").write_text(text, encoding="utf-8")
    from_text = instructor(tmp_path)
    built = (TOY / "assignment.ipynb").read_bytes()
    (tmp_path / "assignment.ipynb").write_bytes(built)
    assert instructor(tmp_path) == from_text
    (tmp_path / "assignment.py").write_text(text.replace("x + x", "x * 2"), encoding="utf-8")
    assert any("x * 2" in cell.source for cell in instructor(tmp_path).cells)
    (tmp_path / "assignment.py").unlink()
    assert instructor(tmp_path) == from_text
    own = [(cell.source, cell.cell_type == "code") for cell in source_notebook(tmp_path).cells]
    assert own == [(cell.source, cell.code) for cell in from_text.cells]
    (tmp_path / "assignment.ipynb").unlink()
    for reader in (instructor, source_notebook):
        with pytest.raises(FileNotFoundError, match="neither assignment"):
            reader(tmp_path)


def test_a_cell_can_be_replaced():
    own: Notebook = instructor(TOY)
    other = own.with_cell("task-9-1", "twice = None")
    changed = [b.source for a, b in zip(own.cells, other.cells, strict=True) if a != b]
    assert changed == ["twice = None"]
    with pytest.raises(KeyError):
        own.with_cell("task-9-7", "")
