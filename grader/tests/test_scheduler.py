"""Folders of submissions: many at a time, killed, resumed, on a cluster; the toy assignment."""

import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from rich.console import Console

from grader import jobs, progress, scheduler
from grader.gradebook import Gradebook, GradebookError
from grader.manifest import load
from grader.model import Result, Status
from grader.progress import Progress, left_in_words
from grader.sandbox import Isolation, best
from grader.scheduler import Order, OrderError, find_submissions, grade, lines_of
from grader.tests.threads import TOY, toy, toy_overlays

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="sandboxes need fork"),
]
BOOK = json.loads((TOY / "assignment.ipynb").read_text(encoding="utf-8"))
SQUARE = "def twice(x):\n    return x * x\n"
HANGS = "def twice(x):\n    while True: pass\n"


def write(path: Path, **cells: str) -> Path:
    """A submission: the reference with some cells replaced, `task_9_1=…`."""
    book = json.loads(json.dumps(BOOK))
    for cell in book["cells"]:
        name = cell["metadata"]["nbgrader"]["grade_id"].replace("-", "_")
        cell["source"] = cells.get(name, cell["source"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(book), encoding="utf-8")
    os.utime(path, (1_790_000_000, 1_790_000_000))
    return path


def order(folder: Path, **fields) -> Order:
    return Order(folder / "in", folder / "out", **({"secret": "s"} | fields))


def files(folder: Path) -> dict[str, str]:
    """The JSON files without times."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        data.pop("times", None)
        found[path.name] = json.dumps(data, ensure_ascii=False)
    return found


def final(folder: Path) -> list[Result]:
    with Gradebook(folder) as book:
        return book.final()


def scores(folder: Path) -> dict[str, float]:
    return {result.student: result.score for result in final(folder)}


@pytest.fixture(scope="module", autouse=True)
def _overlays():
    """Those of this process, instead of new ones for every call of `grade`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "shared", lambda tasks: nullcontext(toy_overlays()))
        yield


TEN = {"ada": 12, "bob": 0, "eve": 6, "hung": 6, "kim": 12, "lee": 12, "max": 0, "zoë": 12}
TEN |= {"sam": 12, "tom": 12}


@pytest.fixture(scope="module")
def ten(tmp_path_factory):
    """Ten submissions, one of which hangs, graded by two jobs."""
    folder = tmp_path_factory.mktemp("ten")
    for name in ("ada", "kim", "lee", "sam", "zoë"):
        write(folder / "in" / f"{name}.ipynb")
    write(folder / "in" / "eve.ipynb", task_9_1=SQUARE)
    write(folder / "in" / "hung.ipynb", task_9_1=HANGS)
    write(folder / "in" / "tom" / "toy" / "my homework.ipynb")
    (folder / "in" / "bob.ipynb").write_text('{"cells": [')
    (folder / "in" / "max").mkdir()
    ended = []
    with pytest.MonkeyPatch.context() as patch:
        put = Gradebook.put
        patch.setattr(Gradebook, "put", lambda self, r: (ended.append(r.student), put(self, r)))
        summary = grade(toy(), order(folder, jobs=2))
    return folder, summary, ended


def test_ten_submissions_get_what_they_deserve(ten):
    folder, summary, _ = ten
    assert scores(folder / "out") == TEN
    assert (summary.students, summary.graded, summary.kept) == (10, 10, 0)
    assert summary.isolation == best().name.lower()
    assert [student for student, _ in summary.failed] == ["bob", "max"]
    text = "\n".join(lines_of(summary))
    assert "10 graded in" in text
    assert "  bob: bob.ipynb is cut off at its line 1; save it and hand it in again." in text
    hung = next(r for r in final(folder / "out") if r.student == "hung")
    assert [task.status for task in hung.tasks] == [Status.TIMEOUT, Status.PASSED, Status.TIMEOUT]


def test_a_hung_student_delays_nobody(ten):
    _, _, ended = ten
    assert ended.index("hung") >= 7  # it came fourth


def test_the_results_folder(ten):
    folder, _, _ = ten
    names = {path.name for path in (folder / "out").iterdir()}
    assert names >= {f"{student}.json" for student in TEN} | {"summary.json", "gradebook.sqlite"}
    assert not [name for name in names if name.startswith(".")]
    data = json.loads((folder / "out" / "summary.json").read_text(encoding="utf-8"))
    assert (data["students"], data["out_of"], data["mean"], data["median"]) == (10, 12, 8.4, 12)
    assert [one["student"] for one in data["failed"]] == ["bob", "max"]
    assert "graded" not in data  # the same bytes after `resume`


def test_graded_again_the_files_are_the_same(ten, tmp_path):
    folder, _, _ = ten
    few = tmp_path / "in"
    few.mkdir()
    for name in ("ada.ipynb", "eve.ipynb", "bob.ipynb"):
        shutil.copy2(folder / "in" / name, few)
    grade(toy(), order(tmp_path))
    again, first = files(tmp_path / "out"), files(folder / "out")
    assert len(again) == 4
    del again["summary.json"]
    assert again == {name: first[name] for name in again}


@pytest.fixture
def results(ten, tmp_path):
    """A copy of the ten with their results, and few submissions that take long."""
    folder, _, _ = ten
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_resume_grades_only_what_changed(results):
    before = files(results / "out")
    summary = grade(toy(), order(results, resume=True))
    assert (summary.graded, summary.kept) == (2, 8)  # the two that cannot be read
    assert files(results / "out") == before
    write(results / "in" / "kim.ipynb", task_9_1=SQUARE)
    os.utime(results / "in" / "ada.ipynb", (1_790_000_060, 1_790_000_060))
    summary = grade(toy(), order(results, resume=True))
    assert (summary.graded, summary.kept) == (3, 7)
    assert scores(results / "out") == TEN | {"kim": 6}
    ada = next(r for r in final(results / "out") if r.student == "ada")
    assert ada.submitted == "2026-09-21T14:14:20+00:00"
    with Gradebook(results / "out") as book:
        rows = tuple(dataclasses.replace(r, status=Status.GRADER_ERROR) for r in ada.tasks[0].rows)
        broken = dataclasses.replace(ada.tasks[0], rows=rows)
        book.put(dataclasses.replace(ada, tasks=(broken, *ada.tasks[1:])))
    summary = grade(toy(), order(results, resume=True, secret="s"))
    assert (summary.graded, summary.kept) == (3, 7)  # what had no score through our fault
    assert scores(results / "out")["ada"] == 12


def test_one_task_of_one_student_again(results):
    before = files(results / "out")
    write(results / "in" / "kim.ipynb", task_9_1=SQUARE)
    summary = grade(toy(), order(results, only=("kim", "9.1")))
    assert summary.graded == 1
    assert scores(results / "out") == TEN | {"kim": 8}  # 9.3 is still the one of before
    with Gradebook(results / "out") as book:
        assert book.get("kim").digest == ""  # tasks of two submissions: resume grades all again
    write(results / "in" / "kim.ipynb")
    grade(toy(), order(results, only=("kim", "")))
    assert files(results / "out") == before
    for only, message in ((("kin", ""), "did you mean 'kim'?"), (("kim", "9.9"), "no task '9.9'")):
        with pytest.raises(OrderError, match=message.replace("?", r"\?")):
            grade(toy(), order(results, only=only))


def test_orders_that_cannot_be_carried_out(tmp_path, monkeypatch):
    with pytest.raises(OrderError, match="no such folder"):
        grade(toy(), order(tmp_path))
    assert not (tmp_path / "out").exists()
    write(tmp_path / "in" / "ada.ipynb")
    need = {"isolation": Isolation.UID, "require": Isolation.NAMESPACES}
    with pytest.raises(OrderError, match="isolation: namespaces is required, this machine has uid"):
        grade(toy(), order(tmp_path, **need))
    with Gradebook(tmp_path / "out") as book:
        book.write_note("assignment", "a1")
    with pytest.raises(OrderError, match="holds results of a1, not of toy"):
        grade(toy(), order(tmp_path))
    (tmp_path / "blocked").write_text("")
    with pytest.raises(GradebookError):
        grade(toy(), Order(tmp_path / "in", tmp_path / "blocked"))


def test_submissions_are_files_and_folders(tmp_path):
    write(tmp_path / "ada.ipynb")
    write(tmp_path / "bob" / "x.ipynb")
    write(tmp_path / "eve" / "a1" / "x.ipynb")
    for name in (".hidden", "roster.csv", "policy.toml"):
        (tmp_path / name).write_text("")
    (tmp_path / "kim.zip").write_bytes(b"PK")
    found = find_submissions(tmp_path, "a1")
    assert {name: path.name for name, path in found.items()} == {
        "ada": "ada.ipynb",
        "bob": "bob",
        "eve": "a1",
        "kim": "kim.zip",
    }
    (tmp_path / "ada").mkdir()
    with pytest.raises(OrderError, match=r"ada: two submissions, ada and ada\.ipynb"):
        find_submissions(tmp_path, "a1")
    shutil.rmtree(tmp_path / "ada")
    write(tmp_path / "summary.ipynb")
    with pytest.raises(OrderError, match="no student can be called 'summary'"):
        find_submissions(tmp_path, "a1")


@pytest.mark.parametrize("name", ["x" * 201, "a\nb", "a\udcffb"])
def test_a_name_that_no_file_can_have(name, tmp_path):
    (tmp_path / name).mkdir()
    with pytest.raises(OrderError, match=r"no student can be called .* rename it"):
        find_submissions(tmp_path, "a1")


def test_links_are_not_followed(tmp_path):
    real = write(tmp_path / "elsewhere" / "toy" / "x.ipynb")
    (tmp_path / "in" / "zed").mkdir(parents=True)
    (tmp_path / "in" / "zed" / "toy").symlink_to(real.parent)
    (tmp_path / "in" / "lea.ipynb").symlink_to(real)
    (tmp_path / "in" / "kim").symlink_to(real.parent)
    write(tmp_path / "in" / "ada.ipynb")
    summary = grade(toy(), order(tmp_path))
    assert scores(tmp_path / "out") == {"ada": 12, "kim": 0, "lea": 0, "zed": 0}
    assert [text for _, text in summary.failed] == [
        f"{name} is a link; hand in the notebook itself." for name in ("kim", "lea.ipynb", "toy")
    ]


def test_names_with_dots_are_names(tmp_path):
    with pytest.raises(OrderError, match="no submissions in it"):
        find_submissions(tmp_path, "a1")
    write(tmp_path / "ada.byron.ipynb")
    write(tmp_path / "ada.lovelace.ipynb")
    write(tmp_path / "kim.md" / "x.ipynb")
    assert list(find_submissions(tmp_path, "a1")) == ["ada.byron", "ada.lovelace", "kim.md"]


def test_the_policy_stays_with_the_results(tmp_path):
    write(tmp_path / "in" / "ada.ipynb")
    policy = tmp_path / "policy.toml"
    policy.write_text("due = 2026-09-20T00:00:00Z\npercent_per_day = 25\ndays = 3\n")
    summary = grade(toy(), order(tmp_path, policy=policy, secret=""))
    [result] = final(tmp_path / "out")
    assert (result.score, result.late) == (6, "2 days late: 50 % off.")
    assert summary.graded == 1
    assert (tmp_path / "out" / "secret").exists()
    data = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert data["mean"] == 6


def test_a_test_of_ours_that_kills_its_process_costs_one_student(tmp_path):
    toy = tmp_path / "toy"
    shutil.copytree(TOY, toy, ignore=shutil.ignore_patterns("__pycache__"))
    hidden = toy / "tests" / "hidden" / "test_9_1.py"
    kill = '    if student.call("9.1", 4) == 666:\n        os._exit(9)\n'
    text = hidden.read_text().replace("    [first, second]", f"{kill}    [first, second]")
    hidden.write_text(text.replace("import numpy", "import os\n\nimport numpy", 1))
    for name in ("ada", "eve"):
        write(tmp_path / "in" / f"{name}.ipynb")
    write(tmp_path / "in" / "bob.ipynb", task_9_1="def twice(x):\n    return 666\n")
    summary = grade(load(toy), order(tmp_path))
    found = {r.student: r for r in final(tmp_path / "out")}
    assert {name: r.counts for name, r in found.items()} == {"ada": True, "bob": False, "eve": True}
    assert (found["ada"].score, found["eve"].score) == (12, 12)
    assert "its job process died" in found["bob"].tasks[0].rows[0].private
    assert summary.failed == [("bob", "no score through a fault of the grader: task 9.1, 9.2, 9.3")]


SCRIPT = """
import sys
from pathlib import Path
from grader.scheduler import Order, grade
from grader.tests.threads import toy
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    grade(toy(), Order(folder / "in", folder / "out", jobs=2, secret="s", resume=True))
"""


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes that have this temporary folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in words and int(entry.name) != os.getpid():
            found.append((entry / "cmdline").read_bytes().decode(errors="replace"))
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks into /proc")
def test_killed_half_way_and_resumed(ten, tmp_path):
    folder, _, _ = ten
    shutil.copytree(folder / "in", tmp_path / "in")
    (tmp_path / "grade.py").write_text(SCRIPT)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, str(tmp_path / "grade.py"), str(tmp_path)]
    environment = os.environ | {"TMPDIR": str(scratch)}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    process = subprocess.Popen(command, env=environment)
    end = time.monotonic() + 300
    while len(list((tmp_path / "out").glob("*.json"))) < 4 and time.monotonic() < end:
        assert process.poll() is None
        time.sleep(0.02)
    assert processes_of(scratch)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    end = time.monotonic() + 30
    while processes_of(scratch) and time.monotonic() < end:
        time.sleep(0.1)
    assert processes_of(scratch) == []
    with Gradebook(tmp_path / "out") as book:
        done = [result.student for result in book.results()]
    assert 3 <= len(done) < 10
    summary = grade(toy(), order(tmp_path, resume=True, jobs=2))
    unreadable = len({"bob", "max"} & set(done))
    assert summary.kept == len(done) - unreadable
    assert files(tmp_path / "out") == files(folder / "out")


def test_a_dask_cluster_of_two_workers(ten, tmp_path):
    distributed = pytest.importorskip("distributed", reason='needs "minidlc[cluster]"')
    folder, _, _ = ten
    (tmp_path / "in").mkdir()
    for name in ("ada", "eve", "kim", "bob"):
        shutil.copy2(folder / "in" / f"{name}.ipynb", tmp_path / "in")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    )
    with cluster:
        summary = grade(toy(), order(tmp_path, cluster=cluster.scheduler_address))
    assert summary.graded == 4
    first = files(folder / "out")
    again = files(tmp_path / "out")
    del again["summary.json"]
    assert again == {name: first[name] for name in again}


def test_clusters_that_are_not_there(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(jobs, "_PATIENCE", "1s")
    write(tmp_path / "in" / "ada.ipynb")
    with pytest.raises(jobs.JobsError, match="no Dask scheduler answers at tcp://127"):
        grade(toy(), order(tmp_path, cluster="tcp://127.0.0.1:9"))
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(jobs.JobsError, match=r"minidlc\[cluster\]"):
        grade(toy(), order(tmp_path, cluster="tcp://127.0.0.1:9"))


def test_progress_says_how_far_and_how_long(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    out = io.StringIO()
    with Progress(Console(file=out, width=80), 10) as shown:
        for failed in (False, True, False):
            now[0] += 20
            shown.done(failed)
    assert out.getvalue().splitlines() == [
        "1 of 10 · about 3 min left",
        "2 of 10 · 1 failed · about 3 min left",
        "3 of 10 · 1 failed · about 2 min left",
    ]
    bar = io.StringIO()
    with Progress(Console(file=bar, force_terminal=True, width=80), 4) as shown:
        now[0] += 10
        shown.done(False)
        assert shown.estimate() == "about 30 s left"
    assert left_in_words(7200) == "about 2.0 h left"
