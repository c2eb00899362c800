"""The page of `where`: what it marks is what where_to and where_from say, in both directions."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import minidlc as mc
from minidlc.expr.types import f32
from minidlc.graph import Graph, Input, apply
from minidlc.support.errors import OptionError
from minidlc.tests.viz.test_passes import CHROMIUM, Counter, data_of, dom_after
from minidlc.viz.levels import ASSEMBLY, GRAPH, KERNELS, LLVM, LOOPS, MODEL, Levels
from minidlc.viz.where import where

pytestmark = pytest.mark.llvm

MODEL_FILE = Path(mc.__file__).parent / "models" / "mnist_cntk.onnx"
SECOND = "Convolution110"  # a convolution that is fused with an add and a relu


@pytest.fixture(scope="module")
def exe() -> mc.Executable:
    lanes = min(8, mc.target.host().lanes(32))  # 8 channels do not fill a block of 16
    return mc.compile(mc.load_onnx(MODEL_FILE), target=mc.target.host(vector_width=lanes))


def rows_of(text: str) -> list[list[tuple[bool, dict[str, str], str]]]:
    """Column by column: is a row marked, its links, its text. Heads are left out."""
    columns: list[list[tuple[bool, dict[str, str], str]]] = []
    for section in re.findall(r"<section.*?</section>", text, flags=re.DOTALL):
        rows = re.findall(r'<div class="row( on)?"(.*?)>(.*?)</div>', section, flags=re.DOTALL)
        columns.append(
            [
                (bool(on), dict(re.findall(r'(data-\w+)="(.*?)"', links)), html.unescape(words))
                for on, links, words in rows
            ]
        )
    return columns


def test_the_page_is_complete_and_self_contained(exe: mc.Executable) -> None:
    page = where(exe, SECOND)
    reader = Counter()
    reader.feed(page.html)
    assert not reader.open
    assert not re.findall(r'(?:src|href)="|url\(|@import|https?://', page.html)
    assert page.title.startswith(f"{SECOND}: 1 kernel, ")
    assert len(rows_of(page.html)) == 6
    assert "<iframe srcdoc=" in page._repr_html_()


def test_a_node_is_marked_on_every_level(exe: mc.Executable) -> None:
    columns = rows_of(where(exe, SECOND).html)
    on = [[words for marked, _, words in rows if marked] for rows in columns]
    assert on[MODEL] == [f"Conv {SECOND}"]
    assert any(words.startswith("conv ") for words in on[GRAPH])
    assert any(words.startswith("conv2d_nchwc ") for words in on[GRAPH])  # after layout
    assert [words.split(" ")[0] for words in on[KERNELS]] == ["conv2d_nchwc"]
    assert all(on[column] for column in (LOOPS, LLVM, ASSEMBLY))
    assert {words for _, _, words in columns[MODEL]} > set(on[MODEL])  # the add and the relu


def test_marks_of_texts_are_those_of_where_to(exe: mc.Executable) -> None:
    (part,) = exe.where_to(SECOND).parts
    columns = rows_of(where(exe, SECOND).html)
    for column, ranges in ((LOOPS, part.loop_lines), (LLVM, part.llvm_lines)):
        wanted = {line for a, b in ranges for line in range(a, b + 1)}
        marked = {n for n, (on, _, _) in enumerate(columns[column], 1) if on}
        linked = {n for n, (_, links, _) in enumerate(columns[column], 1) if links}
        assert wanted & linked <= marked
        if column == LLVM:
            assert marked == wanted & linked
    texts = [words for _, _, words in columns[LLVM]]
    llvm = exe.kernel(part.kernel).llvm.rstrip("\n").split("\n")
    assert texts == [line or " " for line in llvm]


def test_every_line_of_llvm_leads_back_as_where_from_says(exe: mc.Executable) -> None:
    """To the statement, the node and the places of the model."""
    kernel = exe.where_to(SECOND).parts[0].kernel
    levels = Levels.of(exe, [kernel], ())
    nodes = list(exe.kernel(kernel).provenance.nodes())
    loops = [e for e in levels.entries if e.column == LOOPS and not e.head]
    count = len(exe.kernel(kernel).llvm.rstrip("\n").split("\n"))
    followed = 0
    for line in range(1, count + 1, 5):
        origin = exe.where_from(f"{kernel}:{line}")
        number = levels.statement_at[kernel, line]
        assert (origin.statement is None) == (number is None)
        if number is None:
            continue
        texts = {e.text.strip() for e in loops if e.statement == number}
        assert texts == {origin.statement}
        mine = levels.nodes_of[number]
        if origin.stage is not None and mine:
            assert origin.node in [nodes[n] for n in mine]
            found = {levels.places[p] for n in mine for p in levels.places_of[n]}
            assert set(origin.places) <= found
            followed += 1
    assert followed > count // 15


def test_from_an_instruction(exe: mc.Executable) -> None:
    kernel = exe.where_to("ReLU114").parts[0].kernel
    llvm = exe.kernel(kernel).llvm.split("\n")
    lines = range(1, len(llvm))
    line = next(n for n in lines if exe.where_from(f"{kernel}:{n}").stage == "relu")
    page = where(exe, f"{kernel}:{line}")
    assert page.title == f"{kernel}:{line}: {llvm[line - 1].strip()}"
    columns = rows_of(page.html)
    assert columns[LLVM][line - 1][0]
    on = [words for marked, _, words in columns[LOOPS] if marked]
    assert {words.strip() for words in on} == {exe.where_from(f"{kernel}:{line}").statement}
    assert "Relu ReLU114" in [words for marked, _, words in columns[MODEL] if marked]


def test_an_instruction_by_its_text(exe: mc.Executable) -> None:
    kernel = exe.where_to(SECOND).parts[0].kernel
    lines = [text.strip() for text in exe.kernel(kernel).llvm.split("\n")]
    others = [t.strip() for k in exe.kernels if k.name != kernel for t in k.llvm.split("\n")]
    text = next(t for t in lines if " = " in t and lines.count(t) == 1 and t not in others)
    assert where(exe, text).title == f"{kernel}:{lines.index(text) + 1}: {text}"


def test_what_has_no_kernel_says_what_became_of_it(exe: mc.Executable) -> None:
    page = where(exe, "Parameter193_reshape1")
    assert page.title == "Parameter193_reshape1: no kernel"
    columns = rows_of(page.html)
    said = [words for _, _, words in columns[GRAPH]]
    assert any("fold" in words for words in said)
    assert columns[LOOPS] == []


def test_wrong_arguments(exe: mc.Executable) -> None:
    with pytest.raises(OptionError, match="exe is a Graph, expected Executable") as error:
        where(exe.graph, SECOND)  # pyright: ignore[reportArgumentType]
    assert error.value.code == "MDLC1001"
    assert "mc.compile(…)" in str(error.value)
    with pytest.raises(OptionError, match="what is a int, expected str") as error:
        where(exe, 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError, match="no node 'Convolution111'") as error:
        where(exe, "Convolution111")
    assert error.value.code == "MDLC1031"
    with pytest.raises(OptionError, match="has no line 99999") as error:
        where(exe, f"{exe.kernels[0].name}:99999")
    assert error.value.code == "MDLC1032"


def test_pictures_can_be_imported_without_llvm() -> None:
    program = "import sys, minidlc.viz; sys.exit('llvmlite' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


SCRIPT = """
const log = {}, on = n => [...document.querySelectorAll("section")][n].querySelectorAll(".row.on");
const click = row => row.dispatchEvent(new MouseEvent("click", { bubbles: true }));
const texts = n => [...on(n)].map(row => row.textContent.trim());
log.first = texts(0);
click([...document.querySelectorAll("section")][0].querySelectorAll(".row")[2]);
log.model = [texts(0), texts(2).map(t => t.split(" ")[0])];
log.loops = texts(3);
const llvm = on(4)[0];
click(llvm);
log.back = [texts(0), texts(2).map(t => t.split(" ")[0])];
log.statement = [...new Set(texts(3))];
log.same = [...on(4)].includes(llvm);
document.body.setAttribute("data-log", JSON.stringify(log));
"""


@pytest.mark.long  # starts a browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium or Chrome on the PATH")
def test_clicks_in_a_browser(exe: mc.Executable, tmp_path: Path) -> None:
    page = where(exe, SECOND)
    dom = dom_after(page, SCRIPT, tmp_path)
    assert "CONSOLE" not in dom, dom[-500:]
    log: dict[str, Any] = json.loads(html.unescape(re.findall(r'data-log="(.*?)"', dom)[0]))
    assert log["first"] == [f"Conv {SECOND}"]
    assert log["model"] == [["Relu ReLU114"], ["relu"]]
    assert log["loops"]
    assert "Relu ReLU114" in log["back"][0]
    assert len(log["statement"]) == 1
    assert log["same"]
    assert data_of(page)["marked"]["places"] == [0]


def test_a_name_that_reads_as_a_line_is_a_name_first() -> None:
    x = Input("x", f32[4])
    for name in ("<script>alert(1)</script>2", "y:0", "a = b"):
        exe = mc.compile(Graph.of("g", [x], [replace(apply("relu", x), name=name)]))
        assert where(exe, name).title.startswith(f"{name}: 1 kernel")
