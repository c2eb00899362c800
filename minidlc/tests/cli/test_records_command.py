"""`minidlc records`: rows, refused lines, joining and pruning, files that are not there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import minidlc as mc
from minidlc.cli import app
from minidlc.cli.common import out
from minidlc.support.errors import TuneError
from minidlc.tests.tuning.kernels import product, task_of, tasks_of, won
from minidlc.tuning.database import Database
from minidlc.tuning.records import Record
from minidlc.tuning.trial import Fate, Trial

pytestmark = pytest.mark.ch06
TASK, OTHER = task_of(product()), task_of(product(m=8))


def run(*args: object, command: str = "records", width: int = 200) -> str:
    """What the command prints; it raises what it raises."""
    out.width = width  # the variable COLUMNS was read when the console was made
    done = CliRunner().invoke(app, [command, *map(str, args)])
    if done.exception is not None:
        raise done.exception
    return done.stdout


def file(path: Path, records: Sequence[Record]) -> Path:
    for record in records:
        Database(path).append(record)
    return path


def records() -> list[Record]:
    """Two kernels: one with a re-check, one of which every trial failed."""
    points = list(TASK.space)[:3]
    found = [Record.of(TASK, Trial(c, Fate.OK, (1e-4 * n,))) for n, c in enumerate(points, 1)]
    found.append(Record.of(TASK, Trial(points[2], Fate.TIMEOUT, reason="2 s")))
    check = Trial(points[1], Fate.OK, (1.5e-4,))
    found.append(Record.of(TASK, check, default=TASK.default, default_seconds=(2e-4,)))
    return [*found, Record.of(OTHER, Trial(OTHER.default, Fate.CRASHED, reason="signal 11"))]


def test_a_row_for_each_kernel_and_the_reasons_of_refusals(tmp_path: Path) -> None:
    found = records()
    path = file(tmp_path / "tune.jsonl", [*found, replace(found[0], kit="0.0.9")])
    with path.open("ab") as more:
        more.write(b"{")
    text = run(path, "--wide")
    rows = text.splitlines()
    assert rows[1].startswith(f"{found[4].id} ")
    assert "150 µs  0.75   3 ok, 1 timeout" in rows[1]
    assert "f32[8, 16], f32[16, 32] → f32[8, 32]" in text
    assert "all 1 trials on record failed" in text
    assert "1 crashed" in text
    assert "<tune.jsonl: 6 records of 2 kernels, 2 refused>" in text
    assert re.search(r"refused tune.jsonl:7: record \w+ is of minidlc 0.0.9, here is", text)
    assert "refused tune.jsonl:8: the last line is cut off [MDLC1343]" in text


def test_a_row_is_one_line_of_a_narrow_terminal(tmp_path: Path) -> None:
    found = records()
    text = run(file(tmp_path / "tune.jsonl", found), width=80)
    head, first, second, *_ = text.splitlines()
    assert head.split() == ["kernel", "threads", "time", "ratio", "way", "trials"]
    way = found[4].config.way
    cells = [found[4].op, "1", "150 µs", "0.75", way, "3 ok, 1 timeout"]
    assert first.split() == " ".join(cells).split()
    assert "default; all failed" in second
    assert max(map(len, text.splitlines())) <= 80


def test_why_the_default_stays_is_said_in_few_words(tmp_path: Path) -> None:
    pair = {"default": TASK.default, "default_seconds": (2e-4,)}
    lost = Trial(TASK.default, Fate.OK, (2e-4,), "1.04 of the default", by="in the model")
    searched = Record.of(TASK, Trial(TASK.default, Fate.OK, (2e-4,)))
    for last, words in (
        (searched, "no final yet"),
        (Record.of(TASK, replace(lost, reason="", by="re-check"), **pair), "default is best"),
        (Record.of(TASK, lost, **pair), "default; winner lost in the model"),
    ):
        path = file(tmp_path / words.replace(" ", "_"), [searched, last])
        assert words in run(path)


def test_only_what_a_compilation_would_use(tmp_path: Path) -> None:
    text = run(file(tmp_path / "tune.jsonl", records()), "--best", "--wide")
    assert "f32[24, 32]" in text
    assert "f32[8, 32]" not in text


def test_any_name_can_be_shown(tmp_path: Path) -> None:
    """A name that looks like rich's markup; the layout of a model, which has no shapes."""
    record = replace(records()[0], op="[/red] [link]", inputs=(), outputs=())
    text = run(file(tmp_path / "tune.jsonl", [record]), "--wide")
    assert "[/red] [link]" in text
    assert "a whole model" in text


def test_joining_and_pruning(tmp_path: Path) -> None:
    found = records()
    one, other = file(tmp_path / "a", found[:2]), file(tmp_path / "b", found[1:])
    text = run(one, "--merge", other, "--prune", 1)
    assert "4 records added" in text
    assert "4 lines taken away" in text
    assert [r.trial.cost for r in Database(one).records] == [1e-4, 1.5e-4]


def test_records_of_another_machine_say_so(tmp_path: Path) -> None:
    foreign = replace(TASK, target=replace(TASK.target, cpu="i486"))
    record = Record.of(foreign, Trial(foreign.default, Fate.OK, (1e-4,)))
    assert "of cpu i486, not " in " ".join(run(file(tmp_path / "a", [record])).split())


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TuneError, match="MDLC1341"):
        run(tmp_path / "tune.jsonl")
    with pytest.raises(TuneError, match="MDLC1348"):
        run(file(tmp_path / "a", records()[:1]), "--prune", 0)


@pytest.mark.llvm
def test_commands_take_a_database(tmp_path: Path) -> None:
    graph = tmp_path / "g.dlc"
    graph.write_text(
        "def g(a: f32[24, 16], b: f32[16, 32]):\n"
        "    m: f32[24, 32] = matmul(a, b)\n"
        "    r: f32[24, 32] = relu(m)\n"
        "    return r\n"
    )
    task = tasks_of(mc.parse(graph.read_text()))[0]
    config = next(c for c in task.space if c != task.default)
    record = won(task, Trial(config, Fate.OK, (1e-4,)))
    path = file(tmp_path / "tune.jsonl", [record])
    text = run(graph, "--database", path, "--threads", 1, command="compile")
    assert str(record) in text
    assert "tuning records: 1 tuned" in text
    shown = run(graph, "--database", path, "--threads", 1, "--level", "trace", command="show")
    assert str(task.schedule(config).trace) in shown
    assert "r: float32[24, 32]" in run(graph, "--database", path, command="run")
    with pytest.raises(TuneError, match="MDLC1341"):
        run(graph, "--database", tmp_path / "no", command="run")
