"""Compiled code on disk, so that a model compiled before starts in milliseconds.

    cache = KernelCache()
    cache.write(key, llvm_text, object_bytes); cache.read(key)

The folder is MINIDLC_CACHE or the user's cache folder; MINIDLC_CACHE=off means none. An entry is
one file, named by a digest of all that decides it: magic, checksum, sizes, LLVM text (compressed),
object. What is truncated, foreign or unreadable counts as absent and is written anew; files are
replaced as a whole, so several processes may share the folder. Least recently used entries go when
the folder exceeds its limit. A folder that cannot be written means no cache, not an error.
Whole models lie beside the kernels (model_cache.py). Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import sys
import tempfile
import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import ClassVar, TypeVar

T = TypeVar("T")

_MAGIC = b"minidlc-kernel-2\n"
_SWEEPS = 16  # the folder is looked at whenever another 1/16 of its limit has been written


def digest(*parts: str) -> str:
    """A name for everything that `parts` say."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def folder() -> Path:
    """Where the cache lies: MINIDLC_CACHE, or the place the operating system has for caches.

    OSError if there is none: MINIDLC_CACHE=off, or a user without a home.
    """
    chosen = os.environ.get("MINIDLC_CACHE")
    if chosen == "off":
        raise OSError("MINIDLC_CACHE=off")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or _home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = _home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache")
    return base / "minidlc"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as e:  # a user without an entry in the system's table
        raise OSError(str(e)) from None


@cache
def source_digest() -> str:
    """Digest of the code generator's own source: a changed compiler makes new kernels."""
    package = Path(__file__).parents[1]
    folders = ("codegen", "loop", "expr")
    files = sorted(f for folder in folders for f in package.glob(f"{folder}/*.py"))
    return digest(*(f.read_text(encoding="utf-8") for f in files))


class EntryFolder:
    """A bounded folder of files; counts `hits` and `misses` of those who read entries."""

    kind: ClassVar[str]  # name of the folder
    suffix: ClassVar[str]
    limit_bytes: ClassVar[int]

    def __init__(self, root: Path | None = None, limit: int | None = None) -> None:
        self._root = root
        self._limit = self.limit_bytes if limit is None else limit
        self._unswept: int | None = None  # bytes written since the folder was looked at; or never
        self.hits = 0
        self.misses = 0

    @property
    def root(self) -> Path:
        """The folder of the entries; OSError if there is to be no cache."""
        return self._root or folder() / self.kind

    def path(self, key: str) -> Path:
        """The file of an entry."""
        return self.root / key[:2] / f"{key}.{self.suffix}"

    def counted(self, key: str, found: T | None) -> T | None:
        """What was found under a key, noted as used now; None is counted as a miss."""
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        with contextlib.suppress(OSError):
            os.utime(self.path(key))
        return found

    def store(self, key: str, *parts: bytes | memoryview) -> None:
        """Keep an entry, replacing what is there in one step; half an entry is never seen."""
        size = sum(len(part) for part in parts)
        if size > self._limit:
            return
        try:
            path = self.path(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        except OSError:
            return
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(parts)
            os.replace(name, path)
        except BaseException as e:
            with contextlib.suppress(OSError):
                os.unlink(name)
            if not isinstance(e, OSError):  # Ctrl-C
                raise
            return
        self._wrote(size)

    def _wrote(self, size: int) -> None:
        first = self._unswept is None
        self._unswept = (self._unswept or 0) + size
        if first or self._unswept > self._limit // _SWEEPS:
            self.sweep()

    def sweep(self) -> None:
        """Delete the entries used longest ago until the folder is within its limit."""
        self._unswept = 0
        for path in _oldest(self.root.glob("*/*"), self._limit):
            with contextlib.suppress(OSError):
                path.unlink()


def _oldest(paths: Iterable[Path], limit: int) -> list[Path]:
    """The files used longest ago, so many that the rest takes no more than `limit` bytes."""
    entries: list[tuple[float, int, Path]] = []
    for path in paths:
        with contextlib.suppress(OSError):
            status = path.stat()
            entries.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in entries)
    leaving: list[Path] = []
    for _, size, path in sorted(entries):
        if total <= limit:
            break
        leaving.append(path)
        total -= size
    return leaving


class KernelCache(EntryFolder):
    """The LLVM text and the object file of every kernel."""

    kind = "kernels"
    suffix = "kernel"
    limit_bytes = 256 << 20

    def read(self, key: str) -> tuple[str, bytes] | None:
        """LLVM text and object of an entry; None if there is none that can be trusted."""
        try:
            found = _decode(self.path(key).read_bytes(), key)
        except OSError:
            found = None
        return self.counted(key, found)

    def write(self, key: str, text: str, code: bytes) -> None:
        """Keep an entry, replacing what is there in one step."""
        self.store(key, _encode(key, text, code))


def _encode(key: str, text: str, code: bytes) -> bytes:
    packed = zlib.compress(text.encode(), 1)
    body = struct.pack("<QQ", len(packed), len(code)) + packed + code
    return _MAGIC + hashlib.sha256(key.encode() + body).digest() + body


def _decode(data: bytes, key: str) -> tuple[str, bytes] | None:
    start = len(_MAGIC)
    checksum, body = data[start : start + 32], data[start + 32 :]
    if data[:start] != _MAGIC or checksum != hashlib.sha256(key.encode() + body).digest():
        return None
    packed, code = struct.unpack_from("<QQ", body)
    text = zlib.decompress(body[16 : 16 + packed]).decode()
    return text, body[16 + packed : 16 + packed + code]
