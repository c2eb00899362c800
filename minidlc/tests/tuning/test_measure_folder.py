"""Temporary folders end with their owner, or with the next one if it was killed."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from minidlc.tuning.measure import folder as module
from minidlc.tuning.measure.folder import Folder

pytestmark = pytest.mark.ch06

SCRIPT = """
import sys, time
sys.path[:] = {path!r}
from minidlc.tuning.measure.folder import Folder
folder = Folder()
print(folder.path, flush=True)
time.sleep({seconds})
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def started(seconds: float) -> tuple[subprocess.Popen[str], Path]:
    """A process with a folder, and the folder."""
    script = SCRIPT.replace("{path!r}", repr(sys.path)).replace("{seconds}", str(seconds))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_it_ends_when_it_is_closed_or_forgotten(temporary: Path) -> None:
    one, other = Folder(), Folder()
    assert one.path is not None
    assert other.path is not None
    (one.path / "file").touch()
    assert len(list(temporary.iterdir())) == 2
    one.close()
    assert list(temporary.iterdir()) == [other.path]
    del other
    gc.collect()
    assert not list(temporary.iterdir())


def test_it_ends_with_the_process(temporary: Path) -> None:
    process, path = started(seconds=0)
    process.communicate(timeout=20)
    assert path.parent == temporary
    assert not list(temporary.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="locks of dead owners are not known there")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_that_of_a_killed_process_is_removed_by_the_next(
    how: signal.Signals, temporary: Path
) -> None:
    (temporary / "minidlc-tuning-of-somebody").mkdir()  # has no owner: nothing is known of it
    living, alive = started(seconds=100)
    killed, left = started(seconds=100)
    (left / "0").mkdir()
    killed.send_signal(how)
    killed.communicate(timeout=20)
    try:
        assert left.exists()
        folder = Folder()
        names = {alive.name, "minidlc-tuning-of-somebody"}
        assert folder.path is not None
        assert {p.name for p in temporary.iterdir()} == {folder.path.name, *names}
    finally:
        living.kill()
        living.communicate()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there")
def test_a_fork_leaves_it_alone() -> None:
    folder = Folder()
    assert folder.path is not None
    child = os.fork()
    if not child:
        folder.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert folder.path.exists()


def test_a_folder_that_was_taken_for_a_dead_one_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([False, True])
    monkeypatch.setattr(module, "_is_locked", lambda _: next(answers, False))
    assert Folder().path is not None
    assert next(answers, None) is None


def test_without_room_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: str) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", full)
    folder = Folder()
    assert folder.path is None
    folder.close()
