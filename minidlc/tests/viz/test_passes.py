"""The page of the passes: complete, self-contained, and it marks what changed."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from minidlc.expr.types import f32
from minidlc.graph import Graph, Input, apply
from minidlc.support.errors import OptionError
from minidlc.tests.viz.graphs import lenet, weight
from minidlc.transform import Pipeline
from minidlc.viz import passes


class Counter(HTMLParser):
    """Counts tags, and fails on one that is closed without being open."""

    void = ("meta", "input", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def folding() -> Graph:
    """A graph with two constants to add, and with names that HTML must escape."""
    x = Input("x", f32[4])
    folded = apply("add", weight("a", 4), weight("b", 4))
    return Graph.of("a<b>", [x], [apply("relu", x + folded)])


def test_page_is_complete_and_self_contained() -> None:
    _, records = Pipeline.default().run(folding())
    page = passes(records)
    reader = Counter()
    reader.feed(page.html)
    assert not reader.open
    assert reader.seen.count("section") == len(records)
    assert reader.seen.count("button") == len(records)
    assert reader.seen.count("svg") == sum(2 if r.changed else 1 for r in records)
    links = re.findall(r'(?:src|href)="|url\(|@import|https?://[^"]+', page.html)
    assert set(links) <= {"http://www.w3.org/2000/svg"}
    assert "ArrowRight" in page.html
    assert "<b>a" not in page.html  # the graph's name is escaped
    assert page.title.startswith("a<b>: ")


def test_removed_and_new_ops_are_marked() -> None:
    _, records = Pipeline.default().run(folding())
    fold = next(i for i, r in enumerate(records) if r.name == "fold_constants" and r.changed)
    sections = re.findall(r"<section.*?</section>", passes(records).html, flags=re.DOTALL)
    before, after = re.findall(r"<figure>.*?</figure>", sections[fold], flags=re.DOTALL)
    assert before.count(">−</text>") == 1
    assert "−" not in after
    assert ">+</text>" not in after


def test_counts_and_times_are_listed() -> None:
    _, records = Pipeline.default().run(folding())
    html = passes(records).html
    assert all(f"<b>{r.name}</b>" in html for r in records)
    fold = next(r for r in records if r.name == "fold_constants" and r.changed)
    assert f"{fold.nodes_before} → {fold.nodes_after}" in html
    assert "no change" in html
    assert "done: 1" in html


def test_saving(tmp_path: Path) -> None:
    _, records = Pipeline.default().run(lenet())
    page = passes(records)
    assert page.save(tmp_path / "out" / "p.html").read_text(encoding="utf-8") == str(page)
    assert "<iframe srcdoc=" in page._repr_html_()
    with pytest.raises(OptionError) as error:
        page.save(tmp_path / "p.png")
    assert error.value.code == "MDLC1022"


def test_no_records_is_an_error() -> None:
    with pytest.raises(OptionError, match="the list of records is empty") as error:
        passes([])
    assert error.value.code == "MDLC1023"
