"""Writing files that nobody ever sees half of, and reading text with a clear word if it is none.

put(Path("results/ada.json"), "text")           # whole, or as it was before
put(Path("results/secret"), "text", mode=0o600)
read_text(Path("roster.csv"))                   # ValueError: 'roster.csv: line 3: byte 0xe9 …'
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def read_text(path: Path) -> str:
    """The text of a file in UTF-8, with or without its mark. Raises OSError, ValueError."""
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"line {line}: byte {data[error.start]:#04x} is not UTF-8"
        if data.startswith(_UTF16):
            found = "the text is UTF-16, not UTF-8"
        hint = 'save the file as UTF-8; a spreadsheet calls it "CSV UTF-8"'
        raise ValueError(f"{path}: {found}; {hint}") from None


def glue_of(folder: Path) -> str:
    """The text of `glue.py`, "" if there is none."""
    path = folder / "glue.py"
    return read_text(path) if path.exists() else ""


def put(path: Path, content: str | bytes, mode: int = 0o644) -> Path:
    """Write the file under another name, then move it into its place; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    data = content.encode() if isinstance(content, str) else content
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path
