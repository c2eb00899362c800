"""Lessons show the same on machines with other vectors: what they print may not depend on ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minidlc.tests.course.builder import COURSE

# Python runs a file of this name first. Code for wider vectors than the machine's runs too: LLVM
# takes two registers for one.
PRETEND = """
import sys
if any("ipykernel" in argument for argument in sys.orig_argv):
    import dataclasses
    import minidlc.target
    module = sys.modules["minidlc.target.host"]
    machine = dataclasses.replace(
        module._detect(), vector_bits={bits}, registers={registers}, l1=48 << 10, l2=2 << 20
    )
    module._detect = lambda: machine
"""


MACHINES = ((128, 16), (128, 32), (256, 16), (512, 32))


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("bits", "registers", "lessons"),
    [  # make test: vectors that are not ours, and the lesson that shows most code
        pytest.param(128, 32, "01_graph_ir/01_why_a_compiler.ipynb", marks=pytest.mark.long),
        *(pytest.param(*m, "", marks=pytest.mark.slow) for m in MACHINES),
    ],
)
def test_another_machine_shows_the_same(
    bits: int, registers: int, lessons: str, tmp_path: Path
) -> None:
    pretend = PRETEND.format(bits=bits, registers=registers)
    (tmp_path / "sitecustomize.py").write_text(pretend, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-q", "--color=no", "--nbval", "--nbval-current-env"]
    command += ["--nbval-cell-timeout", "120", str(COURSE / lessons)]
    run = subprocess.run(
        command,
        cwd=COURSE.parent,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=900,
    )
    failures = [line for line in run.stdout.split("\n") if line.startswith(("FAILED", "ERROR"))]
    assert failures == []
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
