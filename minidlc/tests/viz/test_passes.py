"""The page of the passes: complete, self-contained, and its data say what each pass did and why."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from minidlc.expr.types import f32
from minidlc.graph import Graph, Input, apply
from minidlc.support.errors import OptionError
from minidlc.tests.viz.geometry import check_legible, read_svg
from minidlc.tests.viz.graphs import lenet, recurrent, resnet, weight, without_repeats
from minidlc.transform import Canonicalize, FoldConstants, Fuse, Pair, Pipeline, Record
from minidlc.viz import Page, changes, graph, passes
from minidlc.viz.boxes import chart_of
from minidlc.viz.changes import Shown
from minidlc.viz.drawing import writable
from minidlc.viz.picture import Picture

CHROMIUM = next(
    (p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None
)


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


def records(g: Graph) -> Sequence[Record]:
    return Pipeline.default().run(g)[1]


def data_of(page: Page) -> dict[str, Any]:
    """The JSON block of a page."""
    block = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.html)
    return json.loads(block[0])


def test_page_is_complete_and_self_contained() -> None:
    found = records(folding())
    page = passes(found)
    reader = Counter()
    reader.feed(page.html)
    assert not reader.open
    assert reader.seen.count("section") == len(found)
    assert reader.seen.count("button") == len(found)
    links = re.findall(r'(?:src|href)="|url\(|@import|https?://[^"]+', page.html)
    assert set(links) <= {"http://www.w3.org/2000/svg"}
    assert "ArrowRight" in page.html
    assert "<b>a" not in page.html  # the graph's name is escaped
    assert page.title.startswith("a<b>: ")


def test_graphs_that_a_pass_left_as_they_are_stand_in_the_page_once() -> None:
    found = records(resnet(2))
    page = passes(found)
    left = [id(r.before) for r in found if not r.changed]
    assert len(left) > len(set(left))
    pictures = sum(r.changed for r in found) + len(set(left))
    assert page.html.count('class="pictures"') == pictures
    pairs = zip(found, data_of(page)["steps"], strict=True)
    kept = {(id(r.before), s["picture"]) for r, s in pairs if not r.changed}
    assert len(kept) == len(set(left))


def test_the_data_say_what_each_pass_changed() -> None:
    found = records(folding())
    data = data_of(passes(found))
    assert [s["name"] for s in data["steps"]] == [r.name for r in found]
    for step, record in zip(data["steps"], found, strict=True):
        assert step["changed"] == record.changed
        assert step["nodes"] == [record.nodes_before, record.nodes_after]
        assert step["milliseconds"] == round(1000 * record.seconds, 3)
        assert step["events"] == [str(e) for e in record.events]
        shown = Shown.of(record.before, record.after)
        assert step["counts"] == shown.found.counts()
    fold = next(s for s in data["steps"] if s["name"] == "fold_constants" and s["changed"])
    assert fold["counts"] == {"removed": 1}


def test_why_not_is_there_for_every_node_that_an_event_names() -> None:
    """Refusals of rules by node, fusion by both nodes of a pair."""
    g = lenet()
    found = Pipeline((Canonicalize(), Fuse())).run(g)[1]
    for record, step in zip(found, data_of(passes(found))["steps"], strict=True):
        assert record.events
        for name in {n.name for n in record.before.nodes}:
            wanted = {
                str(e)
                for e in (*record.refusals, *record.rewrites, *record.fusion)
                if name in (getattr(e, "node", ""), *_pair(e))
            }
            boxes = [b for b in step["boxes"].values() if _about(b, name)]
            said = {step["events"][n] for b in boxes for n in b["events"]}
            assert wanted <= said, name


def _pair(event: object) -> tuple[str, str]:
    return getattr(event, "producer", ""), getattr(event, "consumer", "")


def _about(box: dict[str, Any], name: str) -> bool:
    return re.search(rf"\b{name}(_\d+)?$", box["title"]) is not None


def test_nodes_of_one_name_have_each_their_own_reasons() -> None:
    x = Input("x", f32[4])
    first, second = apply("add", x, weight("a", 4)), apply("add", x, weight("b", 4))
    g = Graph.of("g", [x], [first * second])
    (record,) = Pipeline((Canonicalize(),)).run(g)[1]
    boxes = data_of(passes([record]))["steps"][0]["boxes"]
    at = {r.loc for r in record.refusals if r.node == "add"}
    assert len(at) <= 2  # the two stand in one line of this file, or in two
    assert boxes["add_1"]["events"]


def test_what_blocks_hold_has_reasons_too() -> None:
    (record,) = Pipeline((Canonicalize(),)).run(without_repeats(100))[1]
    found = [replace(record, after=record.before)]  # as if it had only refused
    page = passes(found)
    (step,) = data_of(page)["steps"]
    blocks = [key for key in step["boxes"] if key.startswith("many ")]
    assert blocks
    parts = re.findall(r"<details data-block=(.*?)>", page.html)
    assert parts
    assert {part.strip('"') for part in parts} == set(blocks)
    named = {event.node for event in found[0].events if not isinstance(event, Pair)}
    nodes = {b.key: b.node for b in chart_of(found[0].before).boxes}
    shown = set(re.findall(r'class="box" data-key="(\w+)"', page.html)) & nodes.keys()
    said = {key for key in shown if (node := nodes[key]) is not None and node.name in named}
    assert len(said) > 40
    assert said <= step["boxes"].keys()
    longest = max(step["boxes"].values(), key=lambda b: len(b["events"]) + b.get("more", 0))
    assert len(longest["events"]) <= 40


def test_kernels_say_what_made_them() -> None:
    found = Pipeline((Fuse(),)).run(lenet())[1]
    (step,) = data_of(passes(found))["steps"]
    kernels = [b for key, b in step["boxes"].items() if "kernel" in b["title"]]
    assert kernels
    assert all(any(" fused" in step["events"][n] for n in b["events"]) for b in kernels)


def test_data_cannot_end_the_script() -> None:
    x = Input("x", f32[4])
    g = Graph.of("</script><b>", [x], [apply("relu", x)])
    page = passes(records(g))
    assert page.html.count("</script>") == 2
    assert data_of(page)["title"].startswith("</script><b>")


def test_removed_ops_are_marked() -> None:
    (record,) = Pipeline((FoldConstants(),)).run(folding())[1]
    page = passes([record])
    assert page.html.count(">−</text>") == 2  # the box, and the legend
    assert ">+</text>" not in page.html


@pytest.mark.parametrize("g", [lenet(), recurrent()], ids=["lenet", "recurrent"])
def test_the_pictures_of_the_page_are_legible(g: Graph) -> None:
    for record in records(g):
        if record.changed:
            check_legible(read_svg(Picture(Shown.of(record.before, record.after).drawing()).svg))


def test_counts_and_times_are_listed() -> None:
    found = records(folding())
    text = passes(found).html
    assert all(f"<b>{r.name}</b>" in text for r in found)
    fold = next(r for r in found if r.name == "fold_constants" and r.changed)
    assert f"{fold.nodes_before} → {fold.nodes_after}" in text
    assert "no change" in text
    assert '<b class="removed" title="removed">−1</b>' in text
    widths = [float(w) for w in re.findall(r'<i style="width:([\d.]+)%">', text)]
    assert len(widths) == len(found)
    assert max(widths) == 100


def test_saving(tmp_path: Path) -> None:
    page = passes(records(lenet()))
    assert page.save(tmp_path / "out" / "p.html").read_text(encoding="utf-8") == str(page)
    frame = page._repr_html_()
    assert frame.startswith("<iframe srcdoc=")
    assert html.unescape(frame.split('"')[1]) == page.html  # nothing ends the attribute early
    with pytest.raises(OptionError) as error:
        page.save(tmp_path / "p.png")
    assert error.value.code == "MDLC1022"


def test_no_records_is_an_error() -> None:
    with pytest.raises(OptionError, match="the list of records is empty") as error:
        passes([])
    assert error.value.code == "MDLC1023"


# in a browser

SCRIPT = """
const faults = [];
window.addEventListener("error", e => faults.push(e.message));
const log = {}, press = key => document.dispatchEvent(new KeyboardEvent("keydown", { key }));
const shown = () => document.querySelector("button[aria-current]").dataset.step;
log.start = shown();
press("ArrowRight"); press("ArrowRight"); log.right = shown();
press("ArrowLeft"); log.left = shown();
for (let n = 0; n < 99; n += 1) press("ArrowRight");
log.last = shown();
log.visible = [...document.querySelectorAll(".pictures")].filter(p => !p.hidden).length;
log.slider = document.querySelector("input").value;
const open = [...document.querySelectorAll(".pictures")].find(p => !p.hidden);
const box = [...open.querySelectorAll("g.box")].find(g => g.dataset.key === "KEY");
box.dispatchEvent(new MouseEvent("click", { bubbles: true }));
log.why = [...document.querySelectorAll("#why li")].map(li => li.textContent);
log.chosen = document.querySelectorAll("g.chosen").length;
press("Escape");
log.after = document.querySelectorAll("#why li").length;
document.querySelectorAll("button[data-step]")[0].click();
log.clicked = shown();
log.faults = faults;
document.body.setAttribute("data-log", JSON.stringify(log));
"""


def dom_after(page: Page, script: str, folder: Path) -> str:
    """The page as it is after a script has run in a headless browser; messages at the end."""
    path = folder / "page.html"
    text = page.html.replace("</body>", f"<script>{script}</script></body>")
    path.write_text(text, encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    flags += [f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", "--v=0"]
    command = [str(CHROMIUM), *flags, "--virtual-time-budget=3000", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    return done.stdout + "".join(x for x in done.stderr.splitlines(True) if "CONSOLE" in x)


@pytest.mark.long  # starts a browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium or Chrome on the PATH")
def test_keys_and_clicks_in_a_browser(tmp_path: Path) -> None:
    found = Pipeline((Canonicalize(), FoldConstants(), Fuse())).run(lenet())[1]
    page = passes(found)
    step = data_of(page)["steps"][-1]
    key = next(k for k, b in step["boxes"].items() if b["title"].startswith("conv conv_1"))
    dom = dom_after(page, SCRIPT.replace("KEY", key), tmp_path)
    assert "CONSOLE" not in dom, dom[-500:]
    log = json.loads(html.unescape(re.findall(r'data-log="(.*?)"', dom)[0]))
    assert log["faults"] == []
    assert [log[k] for k in ("start", "right", "left", "last")] == ["0", "2", "1", "2"]
    assert (log["visible"], log["slider"], log["clicked"], log["after"]) == (1, "2", "0", 0)
    wanted = [step["events"][n] for n in step["boxes"][key]["events"]]
    assert log["why"][-len(wanted) :] == wanted
    assert log["chosen"] == 2  # before and after


def test_a_list_of_records_is_wanted() -> None:
    with pytest.raises(OptionError, match="expected list or tuple") as error:
        passes(lenet())  # pyright: ignore[reportArgumentType]
    assert error.value.code == "MDLC1001"


EVIL = ("<!--<script>", "</script>", "\x00nul", "\ud800", "\x1b[0m", "a\ufffeb")


@pytest.mark.parametrize("name", EVIL, ids=ascii)
def test_names_that_html_and_xml_do_not_like(name: str, tmp_path: Path) -> None:
    """U+FFFD stands for what XML cannot hold; the JSON block has no `<` that HTML could read."""
    x = Input("x", f32[4])
    g = Graph.of(name, [x], [replace(apply("relu", apply("exp", x)), name=name)])
    after, records = Pipeline((Fuse(),)).run(g)
    shown = passes(records, title=name)
    text = shown.save(tmp_path / "page.html").read_text(encoding="utf-8")
    block = text.partition('id="data">')[2].partition("</script>")[0]
    assert "<" not in block
    assert json.loads(block)["title"] == writable(name)
    counter = Counter()
    counter.feed(text)
    assert counter.open == []
    assert counter.seen.count("script") == 2
    for picture in (graph(g, title=name), changes(g, after)):
        ElementTree.fromstring(picture.svg)
        picture.save(tmp_path / "picture.svg")
        picture.save(tmp_path / "picture.html")
    graph(g).save(tmp_path / "picture.png")


def test_what_xml_can_hold_stays() -> None:
    text = "ab\t\n\r日本 \U0001f600 &<>"
    assert writable(text) == text
    assert writable("\x00a\ud800\uffff") == "\ufffda\ufffd\ufffd"
