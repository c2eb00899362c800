"""A file that is there as a whole or not at all, whatever happens while it is written.

    with atomic_file("runs/step-100.mdlt") as file: # writes .step-100.mdlt.4711-0.tmp
        file.write(b"…")
    # now the file stands under its name; if the block raised, nothing has changed

The bytes go to a temporary file in the same folder and to the disk (fsync), then the file takes its
name in one step, then the folder goes to the disk as well. A process that is killed in between
leaves a temporary file, which `sweep` deletes. Its name has the process and a count: several may
write one file at the same time, and the last one wins. A name that is a link stays one: what it
leads to is written. Source: Pillai and others, "All file systems
are not created equal", OSDI 2014. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from minidlc.support.arguments import expect
from minidlc.support.errors import TrainError

_NO_ROOM = {errno.ENOSPC, errno.EFBIG, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC)}
_TEMPORARY = re.compile(r"\.(.+)\.\d+-\d+\.tmp")
_count = itertools.count()


def path_of(function: str, name: str, path: str | os.PathLike[str]) -> Path:
    """An argument that says where a file is; OptionError (MDLC1001) if it is none."""
    expect(function, name, path, str, os.PathLike)
    return Path(os.fsdecode(path))  # a PathLike may give bytes


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Generator[BinaryIO]:
    """Open a file for writing that takes its name when the block ends without an exception.

    Folders that are missing are made. Raises TrainError (MDLC1265) if the system cannot write, or
    if the name is taken by what is no regular file, such as a pipe or a device.
    """
    target = path_of("atomic_file", "path", path)
    if not target.name:  # "", "." and "/"
        raise _refusal(repr(os.fsdecode(path)), "it names no file")
    place = _place(target)
    temporary = place.with_name(f".{place.name}.{os.getpid()}-{next(_count)}.tmp")
    try:
        with refusing(target):
            place.parent.mkdir(parents=True, exist_ok=True)
            file = temporary.open("wb")
        with file:
            yield file
            with refusing(target):
                file.flush()
                os.fsync(file.fileno())
        with refusing(target):
            os.replace(temporary, place)
            _sync_folder(place.parent)
    except BaseException as e:
        with contextlib.suppress(OSError, ValueError):
            temporary.unlink()
        if isinstance(e, OSError) and e.errno in _NO_ROOM:  # raised by a write within the block
            raise _refusal(target, e.strerror or str(e)) from None
        raise


def _place(target: Path) -> Path:
    """Where the file is to stand: what a link leads to, so that the link is not replaced."""
    with refusing(target):
        place = Path(os.path.realpath(target)) if target.is_symlink() else target
        in_circles = place.is_symlink()  # a link that leads to itself
        if in_circles or (place.exists() and not place.is_file()):
            raise OSError(errno.EINVAL, "it is there already, and is no regular file")
        return place


def sweep(folder: Path, name: re.Pattern[str]) -> None:
    """Delete what killed processes left half written of files with such a name.

    No process may be writing one of them now. All other files stay.
    """
    for path in folder.glob(".*.tmp"):
        half = _TEMPORARY.fullmatch(path.name)
        if half and name.fullmatch(half[1]):
            with contextlib.suppress(OSError):
                path.unlink()


@contextlib.contextmanager
def refusing(target: Path) -> Generator[None]:
    """Make TrainError (MDLC1265) of what the system says while `target` is written."""
    try:
        yield
    except OSError as e:
        raise _refusal(target, e.strerror or str(e)) from None
    except ValueError as e:  # a path with a zero byte
        raise _refusal(repr(str(target)), str(e)) from None


def _refusal(target: object, reason: str) -> TrainError:
    text = f"{target} cannot be written: {reason}"
    hint = "nothing was changed: the file before it, if any, is still there"
    return TrainError(text, hint=hint, code="MDLC1265")


def _sync_folder(folder: Path) -> None:
    """Put the new name on the disk; Windows can open no folder, and needs not."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
