"""minidlc tune: a small model tuned for real, an interrupt, the page, and refusals."""

from __future__ import annotations

import html
import io
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

import minidlc as mc
from minidlc.cli import app
from minidlc.cli.tuning import Watch, command_line
from minidlc.graph import save_text
from minidlc.support.errors import OptionError
from minidlc.tests.tuning.fakes import planted_task
from minidlc.tuned import Update
from minidlc.tuning.database import Database
from minidlc.tuning.model_tasks import ModelTask
from minidlc.tuning.model_tuner import Step
from minidlc.tuning.trial import Fate, Trial

pytestmark = [pytest.mark.llvm, pytest.mark.ch06]

NET = mc.parse("""\
def net(x: f32[8, 16], w: f32[16, 8]):
    h: f32[8, 8] = matmul(x, w)
    y: f32[8, 8] = relu(h)
    return y
""")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_text(NET, tmp_path / "net.dlc")
    return tmp_path


def start(folder: Path, *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "minidlc", "tune", *args]
    env = os.environ | {"COLUMNS": "200", "PYTHONIOENCODING": "utf-8"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, env=env, text=True, encoding="utf-8", **pipes)


def test_a_model_is_tuned_and_the_file_and_the_page_are_there(folder: Path) -> None:
    done = start(folder, "net.dlc", "--trials", "3", "--report", "report.html")
    out, err = done.communicate(timeout=300)
    assert done.returncode == 0, err
    for phase in ("compile", "search", "finals", "whole model"):
        assert f"\n{phase}" in f"\n{out}"
    assert "net: 1 kernel tuned, 3 trials" in out
    assert 'use it:  mc.compile("net.dlc", threads=1, database="tune.jsonl")' in out
    kinds = [r.trial.by for r in Database(folder / "tune.jsonl").records if r.is_check]
    assert kinds.count("re-check") == 1
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "matmul" in page
    words = "minidlc tune net.dlc --trials 3 --database tune.jsonl --threads 1 --seed 0"
    assert f"{words} --report report.html</pre>" in page
    assert 'mc.compile(model, threads=1, database="tune.jsonl")' in html.unescape(page)
    assert "<dt>LLVM</dt>" in page
    assert "<dt>machine</dt>" in page


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for another process")
def test_an_interrupt_keeps_what_was_measured(folder: Path) -> None:
    done = start(folder, "net.dlc", "--trials", "5000", "--database", "t.jsonl")
    assert done.stdout is not None
    for line in done.stdout:
        if ": trial " in line:
            break
    done.send_signal(signal.SIGINT)
    out, err = done.communicate(timeout=120)
    assert done.returncode == 130, err
    assert "stopped early" in out
    assert "Traceback" not in err
    assert len(Database(folder / "t.jsonl")) >= 1


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("net.dlc", "--minutes", "0"), "MDLC1350"),
        (("net.dlc", "--trials", "0"), "MDLC1350"),
        (("net.dlc", "--report", "report.pdf"), "MDLC1022"),
        (("net.dlc", "--report", "folder.html"), "MDLC1024"),
        (("net.dlc", "--report", "net.dlc/report.html"), "MDLC1024"),
        (("net.dlc", "--database", "net.dlc"), "MDLC1349"),
        (("net.dlc", "--minutes", "1e-9"), "MDLC1356"),
        (("net.dlc", "--threads", "0"), "MDLC1006"),
        (("net.dlc", "--database", "."), "MDLC1340"),
        (("net.dlc", "--shape", "N=1"), "MDLC1008"),
    ],
)
def test_what_cannot_be_is_refused(folder: Path, args: tuple[str, ...], code: str) -> None:
    (folder / "folder.html").mkdir()
    before = (folder / "net.dlc").read_bytes()
    done = start(folder, *args)
    out, err = done.communicate(timeout=120)
    assert done.returncode == 1
    assert f"error[{code}]" in err
    assert "Traceback" not in err + out
    assert (folder / "net.dlc").read_bytes() == before
    assert not (folder / "tune.jsonl").exists()


def test_where_nothing_can_be_tuned_no_file_is_named_and_the_page_is_missed(folder: Path) -> None:
    copies = mc.parse("def f(x: f32[8]):\n    y: f32[8] = cumsum(x, axis=0)\n    return y\n")
    save_text(copies, folder / "f.dlc")
    done = start(folder, "f.dlc", "--trials", "1", "--report", "r.html")
    out, err = done.communicate(timeout=120)
    assert done.returncode == 1
    assert "f: 0 kernels tuned, 0 trials" in out
    assert "nothing is on record: there is no tune.jsonl" in out
    assert "use it" not in out
    assert "error[MDLC1360]" in err
    assert "its op writes the loops itself" in err
    assert not (folder / "r.html").exists()


def interrupted(watch: Watch, phase: str) -> None:
    with watch.told_where():
        watch.hear(Update(phase))
        raise KeyboardInterrupt


def test_an_interrupt_that_leaves_no_result_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    watch = Watch()
    with pytest.raises(typer.Exit) as e:
        interrupted(watch, "compile")
    assert e.value.exit_code == 130
    assert "stopped in the phase 'compile': nothing was measured yet" in capsys.readouterr().out


def test_the_command_that_does_it_again_is_that_which_was_given() -> None:
    options = {"--minutes": None, "--trials": 8, "--database": Path("my open's.jsonl")}
    text = command_line(Path("my net.onnx"), ["N=1", "x=1,3"], options)
    words = (
        "minidlc|tune|my net.onnx|--shape|N=1|--shape|x=1,3|--trials|8|--database|my open's.jsonl"
    )
    assert shlex.split(text) == words.split("|")


def test_the_picture_shows_each_kernel_with_its_fates() -> None:
    task = ModelTask(planted_task(), ("k0_matmul",), 3)
    watch = Watch()
    ok = Trial(task.task.default, Fate.OK, (2e-4,) * 5)
    bad = Trial(task.task.default, Fate.TIMEOUT, reason="no answer")
    watch.hear(Update("search", None, 12.0))
    watch.hear(Update("search", Step(task, ok, 1, 2e-4, 2e-4), 11.0))
    watch.hear(Update("search", Step(task, bad, 2, 2e-4, 1.5e-4), 10.0))
    console = Console(width=120, file=io.StringIO())
    with console.capture() as captured:
        console.print(watch.picture())
    text = captured.get()
    assert "search, 10 s left" in text
    assert "k0_matmul" in text
    assert "150 µs" in text
    assert "0.75" in text
    assert "1 ok, 1 timeout" in text


@pytest.mark.parametrize("place", ["model", "database"])
def test_a_page_is_never_written_over_model_or_records(tmp_path: Path, place: str) -> None:
    model, records = tmp_path / "m.html", tmp_path / "r.html"
    model.write_bytes(b"a model")
    report = {"model": model, "database": records}[place]
    done = CliRunner().invoke(
        app, ["tune", f"{model}", "--database", f"{records}", "--report", f"{report}"]
    )
    assert isinstance(done.exception, OptionError)
    assert done.exception.code == "MDLC1024"
    assert model.read_bytes() == b"a model"
