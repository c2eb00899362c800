"""report.html: one file, complete, the same bytes for the same results, and harmless."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from pathlib import Path

import pytest

from minidlc.support.errors import OptionError, TuneError
from minidlc.tests.tuning.kernels import product
from minidlc.tests.tuning.results import MACHINE, planted, tuning_of
from minidlc.tests.viz.test_passes import CHROMIUM, Counter, data_of, dom_after
from minidlc.tuning.database import Database
from minidlc.tuning.records import Record
from minidlc.tuning.result import TaskResult
from minidlc.tuning.space import Config
from minidlc.tuning.summary import believed
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Fate, Trial
from minidlc.viz import write_report
from minidlc.viz.tuning_report import chosen, report

pytestmark = pytest.mark.ch06
MODEL = [planted(30, seed=n, name=f"k{n}_conv", count=n + 1) for n in range(3)]


def test_it_is_one_file_without_network(tmp_path: Path) -> None:
    path = write_report(MODEL, tmp_path / "new" / "report.html", environment={"date": "today"})
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=(?!\"#kernel)", text)
    assert not re.search(r"@import|url\(|https?://(?!www\.w3\.org/2000/svg)", text)
    counter = Counter()
    counter.feed(text)
    assert not counter.open
    assert counter.seen.count("svg") == 1 + 3 * 4  # tasks; trials, space, nests, objectives


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    again = [planted(30, seed=n, name=f"k{n}_conv", count=n + 1) for n in range(3)]
    for name, results in (("a", MODEL), ("b", again)):
        write_report(results, tmp_path / f"{name}.html", environment={"seed": "0"}, command="x")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_every_trial_stands_in_it_with_its_reason() -> None:
    result = planted(64)
    text = report(result).html
    table = text[text.index("All 64 trials") :]
    rows = re.findall(r"<tr><td class=\"n\">(\d+)</td><td>(.*?)</td>", table)
    assert [int(n) for n, _ in rows] == list(range(1, 65))
    assert [point for _, point in rows] == [str(t.config) for t in result.trials]
    for trial in result.trials:
        if trial.fate is not Fate.OK:
            assert html.escape(trial.reason) in table
    assert "All 64 trials: 46 ok, 5 refused, 2 not compiled" in text
    assert table.count("signal 11") == 1  # the others say: as trial 5
    assert table.count("as trial 5<") == 4


def test_of_many_trials_gains_failures_and_the_fastest_are_listed() -> None:
    trials = planted(490).trials
    kept = chosen(trials, 200)
    assert len(kept) == 200
    numbers = {n for n, _ in kept}
    least = min(range(490), key=lambda n: trials[n].cost)
    assert least + 1 in numbers
    assert {t.fate for _, t in kept} == set(Fate)
    assert "200 are listed" in report(planted(490)).html
    assert chosen(trials[:10], 200) == list(enumerate(trials[:10], 1))


def test_a_model_of_thirty_kernels_is_below_three_megabytes() -> None:
    page = report([planted(200, seed=n, name=f"k{n}_conv2d_bias_relu") for n in range(30)])
    assert len(page.html.encode()) < 3_000_000


EVIL = ("<!--<script>", "</script><b>", "\x00nul", "\ud800", '" onclick="x', "a\ufffeb")


@pytest.mark.parametrize("name", EVIL, ids=ascii)
def test_names_and_reasons_cannot_break_the_page(name: str) -> None:
    result = planted(12, fails=1.0, name=name)
    trials = tuple(dataclasses.replace(t, reason=name, by=name) for t in result.trials)
    result = dataclasses.replace(result, trials=trials)
    page = report([result, MODEL[0]], environment={name: name}, command=name)
    counter = Counter()
    counter.feed(page.html)
    assert not counter.open
    assert counter.seen.count("script") == 2
    assert "onclick" not in counter.seen
    assert page.html.encode()
    assert len(data_of(page)["tasks"]) == 2


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_tried_is_a_page_too(count: int) -> None:
    text = report(planted(count)).html
    assert ("No trials" if count == 0 else ">1 trial: 1 ok<") in text


def test_it_says_where_and_how() -> None:
    text = report(MODEL, environment={"seed": "7", "LLVM": "20.1.8"}, command="minidlc tune m").html
    for words in ("<dt>seed</dt><dd>7</dd>", "20.1.8", "<pre>minidlc tune m</pre>", "+avx2"):
        assert words in text
    data = json.loads(re.findall(r'id="data">(.*?)</script>', text)[0])
    assert {t["kernels"] for t in data["tasks"]} == {1, 2, 3}


def test_a_whole_model_says_what_a_run_takes() -> None:
    text = report(tuning_of(*MODEL)).html
    words = "net.onnx: a run 10 ms → 8 ms, 0.800 of the compiler&#x27;s own choice (95 %:"
    assert words in text
    assert "kernels alone: 3 kernels: 90 trials, " in text
    assert "of their defaults" in text
    assert "layout of images" not in text
    assert "one way and no knobs" in text
    bare = dataclasses.replace(tuning_of(*MODEL), default_seconds=(), seconds=())
    assert "no run of the whole model was timed" in report(bare).html


def test_the_gain_of_a_layout_is_told_from_that_of_the_kernels() -> None:
    usual, taken = Config.of("layout", {"block": 16}), Config.of("layout", {"block": 8})
    whole = dataclasses.replace(
        tuning_of(*MODEL), layout=taken, layouts={usual: 2e-5, taken: 1e-5}, trials=122
    )
    text = html.unescape(report(whole).html)
    words = "its layout of images, layout(block=8) for layout(block=16); kernels are compared in"
    assert words in text
    assert "122 trials in all, 32 of them were of kernels" in text
    assert "A part of the model" not in report(tuning_of(*MODEL)).html


def test_what_was_undone_and_what_lost_is_not_shown_as_won() -> None:
    run = (0.01, 0.0101, 0.0099)
    undone = tuple(1.05 * s for s in run)
    why = "in the model: 1.04 of the default (95 % up to 1.08) with tiled(rows=6)"
    loser = dataclasses.replace(
        MODEL[0],
        best=MODEL[0].task.default,
        best_seconds=MODEL[0].default_seconds,
        lost=why,
    )
    whole = dataclasses.replace(
        tuning_of(loser, MODEL[1]), default_seconds=run, seconds=run, undone=undone
    )
    text = html.unescape(report(whole).html)
    words = "a run stays at 10 ms; with the winners of the kernels it took 1.050 of that: undone"
    assert f"<title>net.onnx: {words}</title>" in text
    assert f"the default stays; {why}" in text
    assert "1 had a winner that was faster alone and lost inside the model" in text
    assert "lost in the model: default" in text
    assert "what won alone lost in the model: the default stays" in text


def test_places_of_the_model_are_told_and_sorted_by() -> None:
    result = planted(64)
    text = report(result).html
    table = text[text.index("All 64 trials") :]
    assert "The model's place: where the model, as it was" in html.unescape(table)
    rows = re.findall(r"<tr><td class=\"n\">(\d+)</td>.*?</tr>", table)
    assert len(rows) == 64
    known = believed(result.trials)
    first = min(known, key=lambda t: t.predicted or 0.0)
    row = table[table.index(f'<td class="n">{result.trials.index(first) + 1}</td>') :]
    assert '<td class="n">1</td><td>Evolution</td>' in row[: row.index("</tr>")].replace(
        " data-v=1", ""
    )


def test_records_are_named(tmp_path: Path) -> None:
    task = Task(product(), "matmul", MACHINE, 1, "k3_matmul")
    database = Database(tmp_path / "tune.jsonl")
    other = list(task.space)[3]
    for config, seconds in ((task.default, 4e-4), (other, 3e-4)):
        database.append(Record.of(task, Trial(config, Fate.OK, (seconds,) * 3)))
    checked = Record.checked(TaskResult(task, (), other, (4e-4,) * 5, (3e-4,) * 5))
    database.append(checked)
    path = write_report(tmp_path / "tune.jsonl", tmp_path / "r.html")
    text = html.unescape(path.read_text(encoding="utf-8"))
    assert f"record {checked.id}, 300 µs, 0.75 of the default" in text
    assert 'mc.compile(model, threads=1, database="tune.jsonl")' in text
    tuned = dataclasses.replace(tuning_of(MODEL[0]), database=str(tmp_path / "tune.jsonl"))
    assert f"record {checked.id}" in report(tuned).html  # the kernel is the same
    assert "no record: the default" in report(tuned, database=Database()).html
    with pytest.raises(TuneError, match="MDLC1341"):
        write_report(tmp_path / "no.jsonl", tmp_path / "r.html")


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="MDLC1022"):
        write_report(MODEL, tmp_path / "report.pdf")
    with pytest.raises(TuneError, match="MDLC1360"):
        write_report([], tmp_path / "report.html")
    for wrong in ({"environment": "today"}, {"command": 7}, {"database": "x.jsonl"}):
        with pytest.raises(OptionError, match="MDLC1001"):
            write_report(MODEL, tmp_path / "report.html", **wrong)  # pyright: ignore[reportArgumentType]
    assert not list(tmp_path.iterdir())


SORT = """
const faults = [], log = {};
window.addEventListener("error", e => faults.push(e.message));
const table = [...document.querySelectorAll("table")].pop();
const buttons = table.querySelectorAll("th button");
const column = n => [...table.tBodies[0].rows].map(row => row.cells[n].textContent);
buttons[3].click(); log.up = column(0);
buttons[3].click(); log.down = column(0);
buttons[2].click(); log.fates = column(2);
log.sorted = table.querySelectorAll("th[aria-sort]").length;
location.hash = "#kernel1";
dispatchEvent(new Event("hashchange"));
log.open = document.getElementById("kernel1").open;
log.faults = faults;
document.body.setAttribute("data-log", JSON.stringify(log));
"""


@pytest.mark.long  # starts a browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium or Chrome on the PATH")
def test_tables_sort_in_a_browser(tmp_path: Path) -> None:
    results = [planted(30, name="slow", count=9), planted(20, seed=3)]
    dom = dom_after(report(results), SORT, tmp_path)
    assert "CONSOLE" not in dom, dom[-500:]
    log = json.loads(html.unescape(re.findall(r'data-log="(.*?)"', dom)[0]))
    trials = results[1].trials
    by_cost = sorted(range(len(trials)), key=lambda n: trials[n].cost)  # failed ones last
    assert log["up"] == [str(n + 1) for n in by_cost]
    ran = [n for n in by_cost if trials[n].fate is Fate.OK]
    assert log["down"][: len(ran)] == [str(n + 1) for n in reversed(ran)]
    assert log["fates"] == sorted(log["fates"])
    assert (log["sorted"], log["open"], log["faults"]) == (1, True, [])
