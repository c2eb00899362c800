"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from minidlc.expr.types import f32
from minidlc.support.errors import TrainError
from minidlc.train.atomic import atomic_file
from minidlc.train.checkpoint import save
from minidlc.train.records import RecordWriter

pytestmark = pytest.mark.ch03


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(TrainError, match="cannot be written") as raised,
        atomic_file(tmp_path / "file" / "a"),
    ):
        pass
    assert raised.value.code == "MDLC1265"


@pytest.mark.skipif(os.name != "posix", reason="Windows has no named pipes in folders")
@pytest.mark.parametrize("through", ["pipe", "link", "circle"])
def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path, through: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "circle").symlink_to("circle")
    writers: list[Callable[[Path], object]] = [
        lambda path: save(path, {}),
        lambda path: RecordWriter(path, {"x": f32[2]}).__enter__(),
    ]
    for write in writers:
        with pytest.raises(TrainError, match="is no regular file") as raised:
            write(tmp_path / through)
        assert raised.value.code == "MDLC1265"
    assert pipe.is_fifo()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["circle", "link", "pipe"]
    assert (tmp_path / "circle").is_symlink()


@pytest.mark.parametrize("before", ["old", None])
def test_a_link_stays_a_link(tmp_path: Path, before: str | None) -> None:
    """The file that it leads to is written, be it there or not."""
    other = tmp_path / "other"
    other.mkdir()
    if before is not None:
        (other / "file").write_text(before)
    (tmp_path / "link").symlink_to(Path("other", "file"))
    with atomic_file(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert [p.name for p in other.iterdir()] == ["file"]
    assert (other / "file").read_bytes() == b"new"


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
