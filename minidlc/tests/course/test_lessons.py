"""What course/README.md and the reader of a lesson may rely on, in every lesson."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from minidlc.tests.course.builder import COURSE, build

TEXTS = build.texts([])
PARTS = (  # of COURSE.md; the question stands in the first cell, its own test
    "build it from nothing",
    "see it",
    "then the real one",
    "plug yours in",
    "break it",
    "in the field",
    "check yourself",
)
lesson = pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.stem)


@functools.cache
def cells(text: Path) -> tuple[Any, ...]:
    return tuple(nbformat.read(build.notebook_of(text), as_version=4).cells)


def prose(text: Path) -> str:
    return "\n\n".join(cell.source for cell in cells(text) if cell.cell_type == "markdown")


def code(text: Path) -> list[Any]:
    return [cell for cell in cells(text) if cell.cell_type == "code"]


def test_there_are_lessons() -> None:
    assert [t.stem[:2] for t in TEXTS if t.parts[-3] == "01_graph_ir"][:1] == ["01"]


def test_every_notebook_has_a_text() -> None:
    assert sorted(COURSE.glob("*/*.ipynb")) == sorted(map(build.notebook_of, TEXTS))


@lesson
def test_the_notebook_agrees_with_its_text(text: Path) -> None:
    assert build.difference(text) == "", f"python course/build.py {text.stem}"


@lesson
def test_outputs_are_stored(text: Path) -> None:
    counts = [cell.execution_count for cell in code(text)]
    assert counts == list(range(1, len(counts) + 1))
    assert sum(bool(cell.outputs) for cell in code(text)) >= 10


@lesson
def test_the_parts_are_there_in_order(text: Path) -> None:
    headings = [h.lower() for h in re.findall(r"^#+ +(.+)$", prose(text), re.MULTILINE)]
    places = [next((i for i, h in enumerate(headings) if part in h), -1) for part in PARTS]
    missing = [part for part, place in zip(PARTS, places, strict=True) if place < 0]
    assert not missing
    assert places == sorted(places), "the parts stand in another order"


@lesson
def test_the_first_cell_asks_and_says_how_long(text: Path) -> None:
    first = cells(text)[0].source
    assert first.startswith("# ")
    assert "?" in first
    assert "minutes" in first


@lesson
def test_the_last_cell_says_what_comes_next(text: Path) -> None:
    last = cells(text)[-1]
    assert last.cell_type == "markdown"
    assert re.search(r"(?i)\b(next|chapter)\b", last.source)
    assert "what you have now" in last.source.lower()


@lesson
def test_cells_are_short(text: Path) -> None:
    lengths = {cell.source.split("\n")[0]: len(cell.source.split("\n")) for cell in code(text)}
    assert {first: n for first, n in lengths.items() if n > 25} == {}


@lesson
def test_what_changes_from_run_to_run_is_marked(text: Path) -> None:
    for cell in code(text):
        if build.UNCHECKED not in cell.metadata.get("tags", ()):
            build.check_cell(0, cell)


@lesson
def test_a_picture_a_replaced_part_and_questions(text: Path) -> None:
    shown = [output.get("data", {}) for cell in code(text) for output in cell.outputs]
    assert any("image/svg+xml" in data or "<svg" in data.get("text/html", "") for data in shown)
    everything = "\n".join(cell.source for cell in code(text))
    assert "mc.use(" in everything or "Pipeline" in everything
    assert ".overrides" in everything or "counting()" in everything  # that yours ran
    assert 3 <= everything.count("lesson.ask(") <= 6
    assert "lesson.source(" in everything


@lesson
def test_the_voice(text: Path) -> None:
    plain = re.sub(r"```.*?```|`[^`]*`|\$[^$]*\$", "", prose(text), flags=re.DOTALL)
    assert "!" not in plain.replace("![", "[")
    assert re.findall(r"(?i)\b(simply|obviously)\b", plain) == []
