"""The command line: each command on a real model, and its refusals."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.llvm

PACKAGED = Path(__file__).parents[2] / "models"
MODEL = str(PACKAGED / "mnist_cntk.onnx")


def minidlc(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONIOENCODING": "utf-8", "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, "-c", "from minidlc.cli import main; main()", *args],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=env,
        cwd=cwd,
        timeout=300,
    )


def test_tour_writes_its_pictures_and_is_right(tmp_path):
    done = minidlc("tour", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert "40 of 40 digits right" in done.stdout
    written = {p.name for p in (tmp_path / "out").iterdir()}
    assert {"1_graph.svg", "2_passes.html", "4_loops.svg", "6_code.s"} <= written


def test_doctor():
    done = minidlc("doctor")
    assert done.returncode == 0, done.stdout
    assert "right" in done.stdout


def test_compile_reports_kernels():
    done = minidlc("compile", MODEL, "--threads", "1")
    assert done.returncode == 0, done.stderr
    assert "kernels" in done.stdout
    assert "arena" in done.stdout


def test_run_reads_and_writes_arrays(tmp_path):
    case = PACKAGED / "mnist_cntk.case0.npz"
    done = minidlc("run", MODEL, "--input", str(case), "--save", str(tmp_path / "y.npz"))
    assert done.returncode == 0, done.stderr
    stored, got = np.load(case), np.load(tmp_path / "y.npz")
    (name,) = got.files
    want = stored[f"out::{name}"]
    assert np.abs(got[name] - want).max() <= 1e-4 * np.abs(want).max()


@pytest.mark.parametrize(
    ("level", "word"),
    [
        ("graph", "def "),
        ("te", "compute("),
        ("trace", "split("),
        ("loops", "for "),
        ("llvm", "define "),
        ("asm", "ret"),
    ],
)
def test_show_prints_every_level(level, word):
    done = minidlc("show", MODEL, "--level", level)
    assert done.returncode == 0, done.stderr
    assert word in done.stdout


def test_opt_runs_passes_and_dumps(tmp_path):
    done = minidlc(
        "opt", MODEL, "--passes", "decompose,cse,dce", "--dump-after-each", str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    assert "def " in done.stdout
    assert len(list(tmp_path.glob("*.dlc"))) == 3


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("compile", "no_such_file.onnx"), "no_such_file.onnx"),
        (("compile", __file__), "error[MDLC01"),
        (("compile", MODEL, "-O", "7"), "opt_level"),
        (("compile", MODEL, "--shape", "N"), "expected NAME=NUMBER"),
        (("show", MODEL, "--kernel", "nothing"), "no kernel 'nothing'"),
        (("opt", MODEL, "--passes", "fsue"), "did you mean 'fuse'"),
        (("run", MODEL, "--input", "Input3=nothing.npy"), "nothing.npy"),
    ],
)
def test_bad_input_is_reported_without_a_traceback(args, message):
    done = minidlc(*args)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
