"""The names of `mc.train`: all there, found on first use, without LLVM where none is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from minidlc import train

pytestmark = pytest.mark.ch03

WITHOUT_LLVM = ("atomic", "records", "stages", "loading", "data", "checkpoint", "trainer")
PROGRAM = """
import importlib, sys
for part in sys.argv[1:]:
    importlib.import_module(f"minidlc.train.{part}")
    if "llvmlite" in sys.modules:
        sys.exit(f"importing minidlc.train.{part} imports llvmlite")
"""


@pytest.mark.llvm
def test_every_name_is_there() -> None:
    for name in dir(train):
        assert getattr(train, name).__module__.startswith("minidlc.train."), name


def test_a_misspelt_name() -> None:
    with pytest.raises(AttributeError, match="has no 'Trainr'; did you mean 'Trainer'"):
        train.Trainr  # noqa: B018


def test_data_and_checkpoints_need_no_llvm() -> None:
    command = [sys.executable, "-c", PROGRAM, *WITHOUT_LLVM]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
