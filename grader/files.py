"""Writing files that nobody ever sees half of.

put(Path("results/ada.json"), "text")           # whole, or as it was before
put(Path("results/secret"), "text", mode=0o600)
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def put(path: Path, content: str | bytes, mode: int = 0o644) -> Path:
    """Write the file under another name, then move it into its place; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
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
