"""The command `check`: its report, its exit code, and ranges of inputs that are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import minidlc as mc
from minidlc.cli import app
from minidlc.graph import save_text
from minidlc.support.errors import OptionError
from minidlc.tests.transform.rule_cases import graph

pytestmark = [pytest.mark.ch02, pytest.mark.llvm]

MODEL = Path(mc.__file__).parent / "models" / "mnist_cntk.onnx"


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "f.dlc"
    save_text(graph("y = log(x)"), path)
    run = CliRunner().invoke
    found = run(app, ["check", str(path)])
    assert found.exit_code == 1
    assert "domain: y: log: an element may be 0 or below" in found.stdout
    assert found.stdout.endswith("f: 1 finding in 1 nodes\n")
    clean = run(app, ["check", str(path), "--range", "x=0.5,1"])
    assert (clean.exit_code, clean.stdout) == (0, "f: 0 findings in 1 nodes\n")
    assert run(app, ["check", str(MODEL)]).exit_code == 0
    for wrong in ("x", "x=1", "x=2,1", "x=a,b", "x=nan,1"):
        error = run(app, ["check", str(path), "--range", wrong]).exception
        assert isinstance(error, OptionError)
        assert "expected NAME=LOWEST,HIGHEST" in str(error)
