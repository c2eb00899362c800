"""Everything above code generation works, and is tested, without LLVM."""

from __future__ import annotations

import subprocess
import sys

PARTS = ("expr", "loop", "te", "graph", "ops", "transform", "frontend", "schedules")
PROGRAM = """
import importlib, sys
for part in sys.argv[1:]:
    importlib.import_module(f"minidlc.{part}")
    if "llvmlite" in sys.modules:
        sys.exit(f"importing minidlc.{part} imports llvmlite")
"""


def test_imports_leave_llvmlite_alone() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *PARTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
