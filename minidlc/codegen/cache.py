"""Compiled kernels on disk, so that a model compiled before starts in milliseconds.

    cache = KernelCache()
    cache.write(key, llvm_text, object_bytes); cache.read(key)

The folder is MINIDLC_CACHE or the user's cache folder. An entry is one file: magic, checksum,
sizes, LLVM text (compressed), object. What is truncated, foreign or unreadable counts as absent
and is written anew; files are replaced as a whole, so several processes may share the folder.
Least recently used entries go when the folder exceeds its limit. A folder that cannot be written
means no cache, not an error. Treated in course chapter 05_codegen.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import sys
import tempfile
import zlib
from functools import cache
from pathlib import Path

_MAGIC = b"minidlc-kernel-2\n"
LIMIT_BYTES = 256 << 20
_SWEEP_EVERY = 64  # writes between two looks at the size of the folder


def digest(*parts: str) -> str:
    """A name for everything that `parts` say."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def folder() -> Path:
    """Where the cache lies: MINIDLC_CACHE, or the place the operating system has for caches."""
    chosen = os.environ.get("MINIDLC_CACHE")
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
    files = sorted([*package.glob("codegen/*.py"), *package.glob("expr/*.py")])
    return digest(*(f.read_text(encoding="utf-8") for f in files))


class KernelCache:
    """A bounded folder of entries; counts `hits` and `misses`."""

    def __init__(self, root: Path | None = None, limit: int = LIMIT_BYTES) -> None:
        self._root = root
        self._limit = limit
        self._writes = 0
        self.hits = 0
        self.misses = 0

    @property
    def root(self) -> Path:
        """The folder of the entries."""
        return self._root or folder() / "kernels"

    def path(self, key: str) -> Path:
        """The file of an entry."""
        return self.root / key[:2] / f"{key}.kernel"

    def read(self, key: str) -> tuple[str, bytes] | None:
        """LLVM text and object of an entry; None if there is none that can be trusted."""
        try:
            found = _decode(self.path(key).read_bytes(), key)
        except OSError:
            found = None
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        with contextlib.suppress(OSError):
            os.utime(self.path(key))  # the time of last use
        return found

    def write(self, key: str, text: str, code: bytes) -> None:
        """Keep an entry, replacing what is there in one step."""
        try:
            path = self.path(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        except OSError:
            return
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_encode(key, text, code))
            os.replace(name, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name)
            return
        self._writes += 1
        if self._writes % _SWEEP_EVERY == 1:
            self.sweep()

    def sweep(self) -> None:
        """Delete the entries used longest ago until the folder is within its limit."""
        entries: list[tuple[float, int, Path]] = []
        for path in self.root.glob("*/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self._limit:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size


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
