"""A temporary folder that does not outlive its process for long, however that ends.

    folder = Folder()
    folder.path                                     # /tmp/minidlc-tuning-…, None on a full disk
    folder.close()                                  # or when it is forgotten, or Python ends

A process that is killed removes nothing: the next one does, when it makes a folder of its own. Who
uses a folder holds a lock of the file `owner` in it, and the system lets go of the locks of the
dead; a number of a process would be given to another one, and means nothing in another container.
On Windows nothing is known of locks here, and folders of killed processes stay.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

_PREFIX = "minidlc-tuning-"
_OWNER = "owner"


class Folder:
    """A new folder; `path` is None where none can be made."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self._remove = weakref.finalize(self, lambda: None)
        try:
            _remove_abandoned(Path(tempfile.gettempdir()))
            self.path, lock = _made()
        except OSError:  # no room, or no temporary folder at all
            return
        self._remove = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def close(self) -> None:
        """Remove it, with all that is in it."""
        self._remove()
        self.path = None


def _made() -> tuple[Path, int]:
    """A folder, and the handle of the lock of its owner."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        try:
            lock = os.open(path / _OWNER, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
            raise
        # Between the two lines another process may have taken it for one of a dead owner.
        if _is_locked(lock) and (path / _OWNER).exists():
            return path, lock
        os.close(lock)


def _remove(path: Path, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # a process that was forked off still shares the folder
        shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders whose owners are dead."""
    if sys.platform == "win32":
        return
    for path in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # of another user, or just being removed
            lock = os.open(path / _OWNER, os.O_RDWR | os.O_NOFOLLOW)
            try:
                if _is_locked(lock):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


if sys.platform == "win32":

    def _is_locked(lock: int) -> bool:
        return True

else:
    import fcntl

    def _is_locked(lock: int) -> bool:
        """Lock a file, unless somebody else holds the lock."""
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
