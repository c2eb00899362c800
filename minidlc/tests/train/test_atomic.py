"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minidlc.support.errors import TrainError
from minidlc.train.atomic import atomic_file

pytestmark = pytest.mark.ch03


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(TrainError, match="cannot be written") as raised,
        atomic_file(tmp_path / "file" / "a"),
    ):
        pass
    assert raised.value.code == "MDLC1265"


FULL_DISK = """
import resource, sys
from minidlc.support.errors import TrainError
from minidlc.train.atomic import atomic_file
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    with atomic_file(sys.argv[1]) as file:
        for _ in range(100):
            file.write(bytes(1000))
except TrainError as e:
    print(e.code, e.message)
"""


@pytest.mark.skipif(os.name != "posix", reason="a limit on the size of files is POSIX's")
def test_no_room_on_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("before")
    command = [sys.executable, "-c", FULL_DISK, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"MDLC1265 {path} cannot be written: File too large\n"
    assert path.read_text() == "before"
    assert [p.name for p in path.parent.iterdir()] == [path.name]
