"""What a notebook shows for a graph and a schedule."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import minidlc.viz
from minidlc.viz.notebook import register
from minidlc.tests.viz.graphs import lenet
from minidlc.tests.viz.test_loops import gemm
{start}
print(register())
"""
SHELL = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.display_formatter.active_types = ["text/plain", "text/html", "image/svg+xml"]
assert register()
for thing, word in ((lenet(), "conv"), (gemm()[1], "io")):
    data, _ = shell.display_formatter.format(thing)
    assert word in data["image/svg+xml"] and "minidlc" in data["text/html"], data.keys()
"""


def run(start: str) -> str:
    program = PROGRAM.format(start=start)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.llvm  # the cache sizes are those of this machine
def test_graphs_and_schedules_show_themselves() -> None:
    pytest.importorskip("IPython")
    assert run(SHELL) == "True"


def test_without_ipython_nothing_is_imported_or_registered() -> None:
    check = "import sys; assert not {'IPython', 'matplotlib', 'llvmlite'} & set(sys.modules)"
    assert run(check) == "False"
