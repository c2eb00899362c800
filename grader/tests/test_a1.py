"""The assignment of chapter 1 holds: every line of `python -m grader check`, on the real one."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from grader.check import check

ROOT = Path(__file__).parents[2]
A1 = ROOT / "assignments" / "a1_graph_ir"


@pytest.mark.long
@pytest.mark.llvm
def test_the_assignment_holds():
    text = io.StringIO()
    good = check(A1, Console(file=text, width=100))
    print(text.getvalue())
    assert good, text.getvalue()


@pytest.mark.long
def test_its_notebook_agrees_with_its_text():
    build = (sys.executable, str(ROOT / "course" / "build.py"), "--check", "--no-run")
    done = subprocess.run([*build, str(A1 / "assignment.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
