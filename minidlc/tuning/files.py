"""A file of lines that several processes add to, and that a killed one leaves readable.

    append("tune.jsonl", b'{"record": 1, …}')       # one write, behind everything that is there
    check_writable("tune.jsonl")                    # before hours of work that end in `append`
    rewrite("tune.jsonl", lambda old: keep(old))    # the file is replaced in one step

A writer holds a lock meanwhile: that of an empty file beside it, `.tune.jsonl.lock`, because the
file itself may be replaced. What a killed process or a full disk left of a last line ends there:
the next line begins on a line of its own. Reads and writes bytes. Treated in course chapter
06_autotune.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TypeAlias

from minidlc.support.errors import TuneError

Change: TypeAlias = Callable[[bytes], bytes]

if sys.platform == "win32":
    import msvcrt

    def _lock(handle: int) -> None:
        while True:
            with contextlib.suppress(OSError):  # it gives up after ten seconds
                return msvcrt.locking(handle, msvcrt.LK_LOCK, 1)

else:
    try:
        import fcntl
    except ImportError:  # a Python without it, such as one for browsers: there is one process
        fcntl = None

    def _lock(handle: int) -> None:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)


def read(path: Path) -> bytes | None:
    """The bytes of a file, None if there is none.

    TuneError (MDLC1340) for what cannot be read or is no regular file, such as a folder or a pipe.
    """
    try:
        mode = os.stat(path).st_mode  # unlike exists(), it tells a wrong name from an absent file
        if not stat.S_ISREG(mode):
            what = "a folder" if stat.S_ISDIR(mode) else "no regular file"
            raise _unreadable(path, f"it is {what}")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as e:  # ValueError: a path with a zero byte
        raise _unreadable(path, _reason(e)) from None


def append(path: Path, line: bytes) -> None:
    """Add a line; all of it is there, or (TuneError, MDLC1342) nothing."""
    assert b"\n" not in line, "a line is one line"
    with _changing(path) as place:
        handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_APPEND | _BINARY, 0o666)
        try:
            size = os.lseek(handle, 0, os.SEEK_END)
            if size:
                os.lseek(handle, -1, os.SEEK_END)
                line = line if os.read(handle, 1) == b"\n" else b"\n" + line
            _write(handle, line + b"\n", size)
        finally:
            os.close(handle)


def check_writable(path: Path) -> None:
    """TuneError (MDLC1342) where `append` would fail now; the file is neither made nor changed."""
    with _changing(path) as place:
        if place.exists():
            os.close(os.open(place, os.O_RDWR | os.O_APPEND | _BINARY))


def rewrite(path: Path, change: Change) -> None:
    """Replace what the file holds now by what `change` makes of it, in one step."""
    with _changing(path) as place:
        old = read(place)
        new = change(old or b"")
        handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(new)
                file.flush()
                os.fsync(file.fileno())
            if old is not None:
                os.chmod(name, place.stat().st_mode & 0o777)
            os.replace(name, place)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


_BINARY = getattr(os, "O_BINARY", 0)


def _write(handle: int, data: bytes, size: int) -> None:
    """One write, taken back if the disk has no room for all of it."""
    done = 0
    try:
        done = os.write(handle, data)
        if done < len(data):
            raise OSError("the disk is full")
    except OSError:
        if done:
            os.ftruncate(handle, size)
        raise


@contextlib.contextmanager
def _changing(path: Path) -> Generator[Path]:
    """Hold the lock of the file; what the system says against a write is a TuneError."""
    try:
        place = Path(os.path.realpath(path))  # a link stays one
        if place.exists() and not place.is_file():
            raise OSError("it is no regular file")
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(place.with_name(f".{place.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(lock)
            yield place
        finally:
            os.close(lock)
    except (OSError, ValueError) as e:
        text = f"{path} cannot be written: {_reason(e)}"
        hint = "nothing was changed: what the file held is still there"
        raise TuneError(text, hint=hint, code="MDLC1342") from None


def _reason(e: OSError | ValueError) -> str:
    return (e.strerror if isinstance(e, OSError) else None) or str(e)


def _unreadable(path: Path, reason: str) -> TuneError:
    text = f"the database {str(path)!r} cannot be read: {reason}"
    return TuneError(text, hint="a file of records, one a line", code="MDLC1340")
