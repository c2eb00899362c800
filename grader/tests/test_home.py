"""check_here and keep: on a released folder, in a notebook, in a terminal, and without Unix."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import nbclient
import nbformat
import pytest

import grader
import minidlc as mc
from grader.home import Checked, HomeError, _state, checked, history, kept
from grader.model import Row, Status, Task, TaskResult
from grader.plain import PlainWorkers
from grader.release import release
from grader.tests.authoring import CLOSEST, ORDER, SETUP, WRONG_2, make
from minidlc import stack

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A released assignment."""
    folder = make(tmp_path_factory.mktemp("author") / "a0_small")
    return release(folder, folder.parent / "dist")


def says(home: Path, task: str, *cells: str) -> str:
    return checked(task, home, history(["", SETUP, *cells])).text()


def test_what_is_right_is_said_first(home: Path) -> None:
    assert says(home, "1.2", ORDER).splitlines() == [
        "1.2 Last operand first: the public test passes",
        "  ✓ order is defined, and ran 1 time",
        "  ✓ Of a sum, the second operand is computed first.",
        "  Public tests only; more run when it is handed in. Limit here: 30 s, no other.",
    ]


def test_a_wrong_graph_is_shown_with_a_picture_and_a_hint(home: Path) -> None:
    result = checked("1.2", home, history(["", SETUP, WRONG_2]))
    lines = result.lines()
    assert lines[0].endswith("the public test does not pass yet")
    assert lines[1] == "  ✓ order is defined, and ran 1 time"
    assert lines[2].startswith("  ✗ Of a sum, the second operand is computed first.")
    assert sum(line.startswith("  hint: ") for line in lines) == 1
    assert any("section 02 A graph IR" in line for line in lines)
    assert len(lines) <= 30
    assert result.picture().title == "node 0: exp expected, yours is relu"
    page = result._repr_mimebundle_()["text/html"]
    assert "<svg" in page
    assert "Of a sum, the second operand is computed first." in page


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("def order(outputs):\n    return 1 / 0", ["ZeroDivisionError", "line 2: return 1 / 0"]),
        ("def order(outputs):\n    import os\n    os._exit(3)", ["exit status 3"]),
        ("def order(outputs):\n    print('seen')\n    return 5", ["printed: seen"]),
    ],
)
def test_failures_have_the_students_frames_only(home: Path, cell: str, words: list[str]) -> None:
    text = says(home, "1.2", cell)
    assert all(word in text for word in words)
    assert not re.search(r"grader[/\\]|minidlc[/\\]|Traceback", text)


def test_the_deadline_ends_it(home: Path, tmp_path: Path) -> None:
    slow = release(make(tmp_path / "a0_small"), tmp_path / "dist")
    manifest = slow / "assignment.toml"
    manifest.write_text(manifest.read_text().replace("seconds = 10", "seconds = 1"))
    said = says(slow, "1.2", "def order(o):\n    while 1: pass")
    assert "It was ended: it took longer than its 3 seconds." in said


def test_withheld_parts_are_missing_at_home_too(home: Path) -> None:
    text = says(
        home, "1.1", "from minidlc.viz import boxes\ndef closest(w, k): boxes.bytes_text(3)"
    )
    assert "withheld: minidlc.viz.boxes:bytes_text" in text


def test_history_keeps_what_still_counts() -> None:
    book = history(["", "t = []", "t.append(1)", "def f(): 1", "def f(): 2", "x = 1", "x = x + 1"])
    sources = [cell.source for cell in book.cells]
    assert sources == ["t = []", "t.append(1)", "def f(): 2", "x = 1", "x = x + 1"]
    assert [cell.position for cell in book.cells] == [1, 2, 4, 5, 6]


def test_what_cannot_be_checked_is_said(home: Path, tmp_path: Path) -> None:
    book = history(["", SETUP])
    with pytest.raises(HomeError, match="order is not defined yet; run the cell"):
        checked("1.2", home, book)
    with pytest.raises(HomeError, match=r"a0_small has no task '1.9'; did you mean"):
        checked("1.9", home, book)
    with pytest.raises(HomeError, match="no public tests"):
        checked("1.3", home, history(["", SETUP, CLOSEST, ORDER]))
    changed = release(make(tmp_path / "a0_small"), tmp_path / "dist")
    (changed / "tests" / "public" / "test_1_2.py").write_text("")
    with pytest.raises(HomeError, match="the public tests were changed"):
        checked("1.2", changed, history(["", SETUP, ORDER]))


def test_no_folder_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grader.check_here("1.2", tmp_path)
    grader.keep("1.2", tmp_path)
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in said] == ["check_here('1.2')", "keep('1.2')"]
    assert all("there is no assignment.toml in" in line for line in said)


def many(count: int, details: int, good: int = 1) -> Checked:
    """A result with some right tests and many wrong ones."""
    long = "\n".join(f"line {i}" for i in range(details))
    wrong = [
        Row(f"test_{i}", True, Status.FAILED, claim=f"Claim {i}.", sentence="No.", details=long)
        for i in range(count)
    ]
    claims = ["Right.", *(f"Also {i}." for i in range(1, good))]
    right = [Row(claim, True, Status.PASSED, claim=claim) for claim in claims]
    rows = (*right, *wrong)
    task = Task("1.2", "Order", "order", 6, 10, 1, "order", "02")
    output = "\n".join("printed" for _ in range(50))
    return Checked(task, TaskResult("1.2", "Order", 6, rows, 3, "Look.", output), "Limits.")


@pytest.mark.parametrize("count", [1, 2, 5, 60])
@pytest.mark.parametrize("details", [0, 3, 20, 200])
def test_never_more_than_30_lines_and_always_the_hint(count: int, details: int) -> None:
    lines = many(count, details).lines()
    assert len(lines) <= 30
    assert lines[0] == f"1.2 Order: 1 of {count + 1} public tests pass"
    assert lines[2] == "  ✓ Right."
    assert lines[3].startswith("  ✗ Claim 0.")
    assert lines[-2:] == ["  hint: Look.", "  Limits."]
    assert count < 2 or sum("✗" in line for line in lines) >= 2


def test_cases_of_one_test_are_one_line() -> None:
    rows = tuple(Row(f"test[{i}]", True, Status.PASSED, claim="Right.") for i in range(4))
    task = Task("1.2", "Order", "order", 6, 10, 1, "order", "02")
    lines = Checked(task, TaskResult("1.2", "Order", 6, rows, 3)).lines()
    assert lines[0] == "1.2 Order: all 4 public tests pass"
    assert lines[2] == "  ✓ Right. (4 cases)"


def test_equal_failures_are_one_line_and_others_name_their_case() -> None:
    same = [Row(f"test[{i}]", True, Status.ERROR, claim="It ends.", sentence="No.") for i in "ab"]
    other = Row("test[c d]", True, Status.ERROR, claim="It ends.", sentence="Late.")
    task = Task("1.2", "Order", "order", 6, 10, 1, "order", "02")
    lines = Checked(task, TaskResult("1.2", "Order", 6, (*same, other), 3)).lines()
    assert lines[2:6] == [
        "  ✗ It ends. (2 cases) (error)",
        "      No.",
        "  ✗ It ends. [c d] (error)",
        "      Late.",
    ]


def test_what_is_no_function_is_said_once(home: Path) -> None:
    with pytest.raises(HomeError, match="order is not a function"):
        checked("1.2", home, history(["", SETUP, "order = 3"]))


def test_the_page_hangs_and_colours(home: Path) -> None:
    result = many(1, 3)
    result = replace(result, result=replace(result.result, hint="Take `a < b` first."))
    page = result._repr_mimebundle_()["text/html"]
    assert '<code style="font-family:monospace">a &lt; b</code>' in page
    assert page.count("<pre") == 2  # the details, and what it printed
    assert "No.\nline 0\nline 1\nline 2</pre>" in page
    assert page.count("<b style") == 3  # defined, right, wrong


def test_keep_says_that_a_part_is_wrong(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for cell, said in ((WRONG_2, "does not pass yet. It is kept as it is"), (ORDER, "test passes")):
        assert said in _state("1.2", home, history(["", SETUP, cell]))
    grader.keep("1.2", home)  # the blank one, from the notebook file
    assert "the public test does not pass yet. It is kept" in capsys.readouterr().out


def test_many_right_tests_leave_room_for_the_wrong_one() -> None:
    lines = many(3, 200, good=60).lines()
    assert len(lines) <= 30
    assert "  ✓ and 51 more" in lines
    assert [line for line in lines if "✗" in line] == [
        "  ✗ Claim 0. (failed)",
        "  ✗ Claim 1. (failed)",
        "  ✗ and 1 more",
    ]


def test_keep_writes_a_part_that_runs_in_the_compiler(home: Path) -> None:
    helper = "def operands(node):\n    return reversed(node.inputs)"
    cell = ORDER.replace("reversed(value.inputs)", "operands(value)")
    path = kept("1.2", home, history(["", SETUP, "left = 'out'", helper, cell]))
    assert path.name == "part_1_2.py"
    text = path.read_text()
    assert "left = 'out'" not in text
    assert text.count("import minidlc as mc") == 1
    mine = stack.load(path.parent)
    assert mine.rows() == [("1.2", "Last operand first", "toposort", "part_1_2.py")]
    with mc.use(**mine.parts):
        graph = mc.trace(lambda x: mc.relu(x) + mc.exp(x), mc.f32[2])
    assert [node.op.name for node in graph.nodes] == ["exp", "relu", "add"]
    with pytest.raises(HomeError, match="runs nowhere in the compiler"):
        kept("1.1", home, history(["", SETUP, CLOSEST]))


def test_keep_keeps_the_list_of_other_assignments(home: Path) -> None:
    mystack = home / "mystack"
    other = stack.Entry("0.9", "An older part", ("verify",))
    stack.write_index(mystack, [other, *stack.read_index(mystack)])
    kept("1.2", home, history(["", SETUP, ORDER]))
    assert [entry.task for entry in stack.read_index(mystack)] == ["0.9", "1.2"]


def test_in_a_terminal_the_notebook_file_is_read(home: Path) -> None:
    program = "import grader; grader.check_here('1.2')"
    done = run(program, home)
    assert "order is defined, and ran 1 time" in done.stdout  # the blank one
    assert "NotImplementedError" in done.stdout


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    root = str(Path(grader.__file__).parents[1])
    env = os.environ | {"PYTHONPATH": root, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=folder,
        env=env,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_without_what_windows_lacks(home: Path) -> None:
    """No resource, fcntl, pwd, grp, termios and no os.fork, in the child as well."""
    hidden = home.parent / "hidden"
    hidden.mkdir(exist_ok=True)
    (hidden / "sitecustomize.py").write_text(
        textwrap.dedent(
            """
            import os, sys
            for name in ("resource", "fcntl", "pwd", "grp", "termios"):
                sys.modules[name] = None
            for name in ("fork", "forkpty", "setsid", "killpg", "getuid", "geteuid"):
                if hasattr(os, name):
                    delattr(os, name)
            """
        )
    )
    program = f"""
        import importlib, os, sys
        sys.path.insert(0, {str(hidden)!r})
        os.environ["PYTHONPATH"] = {str(hidden)!r} + os.pathsep + os.environ["PYTHONPATH"]
        importlib.reload(importlib.import_module("sitecustomize"))
        assert not hasattr(os, "fork")
        from pathlib import Path
        from grader.home import checked, history
        from grader.tests.authoring import ORDER, SETUP, WRONG_2
        hidden_too = "import os; assert not hasattr(os, 'fork'); found = {{}}"
        same = ORDER.replace("found = {{}}", hidden_too)
        for cell in (same, WRONG_2):
            result = checked("1.2", Path("."), history(["", SETUP, cell]))
            print(result.text())
            print(result.picture())
    """
    said = run(program, home).stdout
    assert "the public test passes" in said
    assert "the public test does not pass yet" in said
    assert "<Picture 'node 0: exp expected, yours is relu'>" in said


def test_importing_grader_is_cheap() -> None:
    program = """
        import sys
        before = set(sys.modules)
        import grader
        heavy = {"numpy", "minidlc", "onnx", "llvmlite", "IPython", "nbformat", "jupytext"}
        print(sorted(heavy & (set(sys.modules) - before)))
    """
    assert run(program, Path.cwd()).stdout.strip() == "[]"


def test_in_a_notebook_a_table_and_a_picture_are_shown(home: Path) -> None:
    book = nbformat.read(home / "assignment.ipynb", as_version=4)
    keys = [cell.metadata["nbgrader"]["grade_id"] for cell in book.cells]
    book.cells[keys.index("task-1-2")].source = WRONG_2
    client = nbclient.NotebookClient(book, timeout=120, resources={"metadata": {"path": home}})
    client.execute()
    (shown,) = book.cells[keys.index("check-1-2")].outputs
    assert "<svg" in shown.data["text/html"]
    assert "the public test does not pass yet" in shown.data["text/plain"]
    blank = book.cells[keys.index("check-1-1")].outputs[0].data["text/plain"]
    assert "✓ closest is defined" in blank


def test_a_process_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grader.plain.emptied", lambda withheld: {"minidlc": "raise ValueError(7)"})
    with pytest.raises(RuntimeError, match=r"(?s)did not start.*ValueError: 7"):
        PlainWorkers().worker(Task("1.2", "", "order", 1, 1, 1, "", ""), 10)
