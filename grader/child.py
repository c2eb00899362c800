"""The process of student code at home: no sandbox, on every system. `python -m grader.child`.

Reads one line of JSON, {module: source}: modules of minidlc with withheld parts emptied. Then it
serves requests on its standard input and output; what student code prints goes to standard error.
Started by `home.py`, and by it ended.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
import types
from collections.abc import Sequence
from typing import IO, Any


class Withheld(importlib.abc.MetaPathFinder):
    """Loads some modules from other sources than those that are installed."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = sources

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The installed module's place, with our source."""
        if name not in self.sources:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(name, spec.origin, self.sources[name])
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self.source = source

    def get_code(self, fullname: str) -> types.CodeType:
        """The code of the other source; nothing cached."""
        return compile(self.source, self.path, "exec")


def main() -> None:
    """Serve until the input ends."""
    source: IO[bytes] = os.fdopen(os.dup(0), "rb")
    sink: IO[bytes] = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.meta_path.insert(0, Withheld(json.loads(source.readline())))
    serve: Any = importlib.import_module("grader.serve")
    grader: Any = importlib.import_module("grader")
    grader.check_here = grader.keep = lambda *args, **kwargs: None  # pyright: ignore
    sink.write(b"\n")  # ready: the deadline runs from here
    sink.flush()
    serve.serve(source, sink)


if __name__ == "__main__":
    main()
