"""`grader check`: a good assignment passes every line, and each line can fail."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from rich.console import Console

from grader import check as module
from grader.check import Bars, Line, check
from grader.manifest import ManifestError, load
from grader.model import Assignment, Result, Row, Status, Task, TaskResult
from grader.probes import Author, Probe, broken, mutated, right, shipped, wrong
from grader.release import release
from grader.tests.authoring import CLOSEST, HIDDEN_3, PUBLIC_1, RIGHT_1, WRONG_1, make
from grader.workers import overlay_folder

pytestmark = pytest.mark.long

LOW = Bars(wrong=1, right=1, mutants=3)


@pytest.fixture(scope="module")
def overlays() -> Iterator[Path]:
    """Built once: they cost seconds."""
    with overlay_folder() as folder:
        yield folder


@pytest.fixture
def _shared_overlays(overlays: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "shared", lambda tasks: nullcontext(overlays))


def said(folder: Path, bars: Bars = LOW) -> tuple[bool, str]:
    text = io.StringIO()
    good = check(folder, Console(file=text, width=200), bars, jobs=1)
    return good, text.getvalue()


@pytest.mark.llvm
@pytest.mark.usefixtures("_shared_overlays")
def test_a_good_assignment_passes_every_line(tmp_path: Path) -> None:
    good, text = said(make(tmp_path / "a0_small"))
    assert good, text
    lines = text.splitlines()
    assert lines[0] == "a0_small: A small assignment"
    assert [line[0] for line in lines[1:]] == ["✓"] * 11
    assert "12 of 12 points; 7 rows, manifest 7" in text
    assert re.search(r"killed (\d+) of \1 \(100%\)", text)
    assert "a digit classifier compiles to the same numbers" in text


@pytest.mark.llvm
@pytest.mark.usefixtures("_shared_overlays")
def test_a_bad_assignment_is_told_everything(tmp_path: Path) -> None:
    folder = make(tmp_path / "a0_small")
    (folder / "wrong" / "1_1_right_after_all.py").write_text(RIGHT_1)
    (folder / "right" / "1_1_wrong_after_all.py").write_text(WRONG_1)
    blind = HIDDEN_3.replace("expect.equal(name", "# expect.equal(name")
    (folder / "tests" / "hidden" / "test_1_3.py").write_text(blind)
    lazy = PUBLIC_1.replace('    """The name with the nearest length is returned."""\n', "")
    (folder / "tests" / "public" / "test_1_1.py").write_text(lazy)
    good, text = said(folder, Bars(wrong=2, right=1, mutants=2))
    assert not good
    for words in (
        "claims: 1.1 test_nearest_length: no docstring says what is asked",
        "wrong ones lose: wrong/1_1_right_after_all.py: full marks in 1.1",
        "wrong ones lose: 1.2: 1 wrong solutions, 2 are asked for",
        "right ones 100: right/1_1_wrong_after_all.py: 1.1",
    ):
        assert f"✗ {words}" in text
    assert "✓  blank 0" in text


@pytest.mark.usefixtures("_shared_overlays")
def test_a_reference_that_fails_stops_it(tmp_path: Path) -> None:
    folder = make(tmp_path / "a0_small", task_1_1=CLOSEST.strip().replace("min(", "max("))
    good, text = said(folder)
    assert not good
    assert "✗ reference 100: 1.1 test_nearest_length (failed)" in text
    assert "mutants" not in text


def test_what_cannot_be_released_stops_it(tmp_path: Path) -> None:
    folder = make(tmp_path / "a0_small", task_1_1=CLOSEST.strip().replace("### END", "### FIN"))
    good, text = said(folder)
    assert not good
    assert "✗ release: task-1-1, line 3: '### BEGIN SOLUTION' without its other half" in text
    (folder / "assignment.toml").write_text("")
    with pytest.raises(ManifestError):
        said(folder)


@pytest.fixture
def author(tmp_path: Path) -> Author:
    folder = make(tmp_path / "a0_small")
    return Author.of(load(folder), release(folder, tmp_path / "dist"))


def test_probes_of_the_small_assignment(author: Author, tmp_path: Path) -> None:
    assert [(p.name, p.graded) for p in wrong(author)] == [
        ("wrong/1_1_first.py", ("1.1",)),
        ("wrong/1_2_first_operand.py", ("1.2",)),
    ]
    file = author.assignment.folder / "wrong" / "1_2_first_operand.py"
    file.write_text("# fails: 1.2 1.3\n" + file.read_text())
    assert wrong(author)[1].graded == ("1.2", "1.3")
    assert [p.task.id for p in right(author)] == ["1.1", "1.2"]
    assert [p.graded for p in broken(author)] == [("1.1", "1.3"), ("1.2", "1.3")]
    imported, pasted = shipped(author)
    assert "closest = _shipped.bytes_text" in imported.source
    assert "def bytes_text(n: int)" in pasted.source
    assert pasted.source.rstrip().endswith("closest = bytes_text")
    assert len(mutated(author, 3)) == 6
    assert len(mutated(author, None)) > 10
    (author.assignment.folder / "wrong" / "9_9_none.py").write_text("x = 1")
    with pytest.raises(ValueError, match=r"9_9_none.py: there is no task '9.9'"):
        wrong(author)


def test_methods_and_whole_modules_are_pasted(author: Author) -> None:
    from grader.probes import _shipped

    task = author.assignment.task("1.2")
    imported, pasted = _shipped(task, "minidlc.ops.activation", ["HardSwish.reference"])
    assert "order = _shipped.HardSwish.reference" in imported.source
    assert "\ndef reference(self" in pasted.source
    compile(pasted.source, "pasted", "exec")
    whole = list(_shipped(task, "minidlc.graph.structure", [""]))
    assert [p.name for p in whole[:2]] == [
        "minidlc.graph.structure:op_key, imported",
        "minidlc.graph.structure:op_key, pasted",
    ]
    compile(whole[1].source, "pasted", "exec")


ONE = Task("1.1", "One", "one", 4, 5, 1, "t", "s", public_tests=2)
END = Task("1.2", "End", "", 2, 5, 1, "t", "s", hidden_tests=1)
SMALL = Assignment("a", "A", Path("a"), (ONE, END))


def outcome(
    one: list[Status], end: Status | None = None, name: str = "probe"
) -> list[tuple[Probe, Result]]:
    """A probe of task 1.1, and what its rows and the end-to-end row came to."""

    def graded(task: Task, statuses: list[Status]) -> TaskResult:
        rows = [
            Row(f"test_{i}", True, s, float(s == Status.PASSED), claim="c")
            for i, s in enumerate(statuses)
        ]
        return TaskResult(task.id, task.title, task.points, tuple(rows), 1, hint="h")

    tasks = [graded(ONE, one)] + ([graded(END, [end])] if end else [])
    return [(Probe(ONE, name, "", ("1.1",)), Result("s", "a", tuple(tasks)))]


GOOD, BAD, OURS = Status.PASSED, Status.FAILED, Status.GRADER_ERROR
Judge = Callable[[Assignment, list[tuple[Probe, Result]], Bars], Line]


@pytest.mark.parametrize(
    ("judge", "found", "fault"),
    [
        (module._wrong, outcome([GOOD, BAD]), ""),
        (module._wrong, outcome([GOOD, GOOD]), "probe: full marks in 1.1"),
        (
            module._wrong,
            outcome([BAD, OURS]),
            "the grader failed on 1 rows, first probe: 1.1 test_1",
        ),
        (module._right, outcome([GOOD, GOOD]), ""),
        (module._right, outcome([GOOD, BAD]), "probe: 1.1 test_1 (failed)"),
        (module._alive, outcome([BAD, BAD], BAD), ""),
        (module._alive, outcome([GOOD, BAD], BAD), "probe: test_0 pass in 1.1"),
        (module._alive, outcome([BAD, BAD], GOOD), "the end-to-end run 1.2 does not notice"),
        (module._shipped, outcome([GOOD, BAD]), ""),
        (module._shipped, outcome([GOOD, GOOD]), "probe: full marks in 1.1"),
        (module._mutants, outcome([GOOD, BAD]), ""),
        (module._mutants, outcome([GOOD, GOOD]), "0% killed, 85% are asked for"),
        (module._mutants, [], "0% killed"),
    ],
)
def test_each_line_can_fail(judge: Judge, found: list[tuple[Probe, Result]], fault: str) -> None:
    line = judge(SMALL, found, LOW)
    assert bool(line.faults) == bool(fault), line.faults
    assert not fault or any(fault in said for said in line.faults)


def test_lines_of_reference_and_blank_can_fail() -> None:
    ((_, good),) = outcome([GOOD, GOOD], GOOD)
    assert not module._reference(SMALL, good).faults
    ((_, fewer),) = outcome([GOOD], GOOD)
    assert "2 rows, the manifest states 3" in module._reference(SMALL, fewer).faults
    assert module._blank(good).faults[0] == "1.1: 4 points: test_0 passes"
    ((_, zero),) = outcome([BAD, BAD], BAD)
    assert not module._blank(zero).faults


def test_feedback_that_shows_the_grader_fails() -> None:
    found = outcome([GOOD, BAD])
    assert not module._teaching(found).faults
    probe, result = found[0]
    task = result.tasks[0]
    row = Row("test_1", True, BAD, claim="c", details='File "grader/runner.py", line 3')
    shown = TaskResult(task.id, task.title, task.points, (row,), 1)
    faults = module._teaching([(probe, Result("s", "a", (shown,)))]).faults
    assert faults == ["probe: 1.1 shows 'grader/'", "probe: 1.1 gives no hint"]
