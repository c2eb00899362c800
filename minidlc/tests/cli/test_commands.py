"""The command line: each command on a real model, and its refusals."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import minidlc as mc
from minidlc.graph.text import save_text
from minidlc.tests.frontend.helpers import model, node

pytestmark = pytest.mark.llvm

PACKAGED = Path(__file__).parents[2] / "models"
MODEL = str(PACKAGED / "mnist_cntk.onnx")


def minidlc(
    *args: str, cwd: Path | None = None, encoding: str = "utf-8"
) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONIOENCODING": encoding, "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, "-m", "minidlc", *args],
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
    with np.load(case) as stored, np.load(tmp_path / "y.npz") as got:
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
    names = ("00_input", "01_decompose", "02_cse", "03_dce")
    assert [p.stem for p in sorted(tmp_path.glob("*.dlc"))] == list(names)


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


def test_a_console_without_arrows(tmp_path):
    """A pipe on Windows has no UTF-8: characters are replaced, nothing fails."""
    done = minidlc("compile", MODEL, "--threads", "1", encoding="ascii")
    assert done.returncode == 0, done.stderr
    assert re.search(r"12 nodes \? \d+ \? \d+ kernels", done.stdout)


@pytest.mark.parametrize(
    "args",
    [
        ("run", MODEL, "--threads", "1", "--save"),
        ("opt", MODEL, "--save"),
        ("opt", MODEL, "--dump-after-each"),
        ("tour", "--out"),
    ],
)
def test_a_file_that_cannot_be_written_is_reported(args, tmp_path):
    (tmp_path / "file").write_text("")
    done = minidlc(*args, str(tmp_path / "file" / "x"))
    assert done.returncode == 1
    assert "error[MDLC1024]" in done.stderr
    assert "Traceback" not in done.stderr


def test_arrays_that_cannot_be_read_are_reported(tmp_path):
    case = (PACKAGED / "mnist_cntk.case0.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(case[:300])
    (tmp_path / "empty.npy").write_bytes(b"")
    np.save(tmp_path / "f64.npy", np.zeros((1, 1, 28, 28)))
    for name in ("cut.npz", "empty.npy"):
        done = minidlc("run", MODEL, "--input", str(tmp_path / name))
        assert done.returncode == 1
        assert "error[MDLC1008]" in done.stderr
        assert name in done.stderr
    done = minidlc("run", MODEL, "--input", str(tmp_path / "f64.npy"))
    assert "error[MDLC0903]" in done.stderr
    assert "-->" not in done.stderr  # a line of typer is no place
    twice = ("--input", str(tmp_path / "f64.npy"))
    assert "given twice" in minidlc("run", MODEL, *twice, *twice).stderr


def test_which_input_a_file_is_for(tmp_path):
    x, y = mc.Input("x", mc.f32[2]), mc.Input("y", mc.f32[2])
    save_text(mc.Graph.of("g", [x, y], [x - y, mc.relu(x - y), mc.relu(y)]), tmp_path / "g.dlc")
    np.save(tmp_path / "one.npy", np.ones(2, np.float32))
    done = minidlc("run", str(tmp_path / "g.dlc"), "--input", str(tmp_path / "one.npy"))
    assert "for which input?" in done.stderr
    args = [f"--input={name}={tmp_path / 'one.npy'}" for name in "xy"]
    done = minidlc("run", str(tmp_path / "g.dlc"), *args)
    assert len({line.split(":")[0] for line in done.stdout.splitlines()[::2]}) == 3
    done = minidlc("compile", str(tmp_path / "g.dlc"), "--shape", "x=3")
    assert "--shape: all sizes of g are known" in done.stderr


@pytest.fixture
def open_sizes(tmp_path):
    """A model of an open size whose second input decides a shape, and arrays for it."""
    nodes = [node("Reshape", "x s", "y")]
    built = model(nodes, {"x": (TensorProto.FLOAT, ["N", 6]), "s": (TensorProto.INT64, [2])})
    onnx.save(built, tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.ones((2, 6), np.float32))
    np.save(tmp_path / "s.npy", np.array([3, 4]))
    return tmp_path


def test_run_takes_open_sizes_and_values_from_the_arrays(open_sizes):
    done = minidlc("run", "m.onnx", "--input", "x=x.npy", "--input", "s=s.npy", cwd=open_sizes)
    assert done.stdout.startswith("y: float32[3, 4]"), done.stderr
    done = minidlc("run", "m.onnx", "--input", "x=x.npy", cwd=open_sizes)
    assert "the value of input 's' decides shapes, and is not given" in done.stderr


@pytest.mark.parametrize("command", ["compile", "show"])
def test_open_sizes_are_given_by_an_option(command, open_sizes):
    done = minidlc(command, "m.onnx", cwd=open_sizes)
    assert done.returncode == 1
    assert "m.onnx leaves sizes or values open" in done.stderr
    assert "hint: --shape N=4" in done.stderr


def test_bench_prints_times_kernels_and_a_picture(tmp_path):
    picture = tmp_path / "roof.svg"
    done = minidlc(
        "bench", MODEL, "--threads", "1", "--rounds", "2", "--profile", "--roofline", str(picture)
    )
    assert done.returncode == 0, done.stderr
    assert "minidlc" in done.stdout
    assert "GFLOP/s" in done.stdout
    assert "outside" in done.stdout
    assert picture.read_text(encoding="utf-8").startswith("<svg")


def test_bench_takes_graph_texts_and_refuses_what_run_refuses(tmp_path):
    save_text(mc.trace(lambda x: mc.relu(x), mc.f32[4, 8]), tmp_path / "g.dlc")
    done = minidlc("bench", str(tmp_path / "g.dlc"), "--threads", "1", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    assert "minidlc" in done.stdout
    wrong = minidlc("bench", MODEL, "--input", "nothing.npy", "--rounds", "1")
    assert wrong.returncode == 1
    assert "MDLC1008" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_show_asm_says_what_instructions_came_from():
    done = minidlc("show", MODEL, "--level", "asm", "--threads", "1")
    assert done.returncode == 0, done.stderr
    assert "<- Conv" in done.stdout
    assert "# for " in done.stdout
