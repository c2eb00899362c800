"""Everything above code generation works, and is tested, without LLVM."""

from __future__ import annotations

import subprocess
import sys

import pytest

PARTS = ("expr", "loop", "te", "graph", "ops", "transform", "frontend", "schedules")


@pytest.mark.parametrize("part", PARTS)
def test_import_leaves_llvmlite_alone(part: str) -> None:
    code = f"import sys, minidlc.{part}; sys.exit('llvmlite' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or f"minidlc.{part} imports llvmlite"
