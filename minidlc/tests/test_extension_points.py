"""docs/extension_points.md is the table that `mc.use` knows."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path

import pytest

import minidlc
from minidlc.support import extension

pytestmark = pytest.mark.llvm  # imports every module, code generation too

PAGE = Path(minidlc.__file__).parent / "docs" / "extension_points.md"
HEAD = """\
# Extension points

Made from the `declare` calls of the source by `pytest --update-golden`; edit those.

`with mc.use(**{"pass.cse": my_cse}):` replaces a stage for the calls inside the block, in this
thread or task only. The override is part of every cache key, and `exe.report().overrides` counts
its calls. Inside the override the name means the shipped stage again, so it can be wrapped.
An unknown name is an error that lists the known ones. A name in capitals stands for a member:
`pass.NAME` for `pass.cse`, `compute.OP` for `compute.softmax` (the op as it is printed),
`onnx.OP` for `onnx.Softmax` (ONNX's op_type).

| point | signature | what it does |
|---|---|---|
"""


def import_everything() -> None:
    skip = ("minidlc.tests", "minidlc.benchmarks", "minidlc.__main__")
    for module in pkgutil.walk_packages(minidlc.__path__, "minidlc."):
        if not module.name.startswith(skip):
            importlib.import_module(module.name)


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def test_page_is_the_table(golden: Callable[[str | Path, str], None]) -> None:
    import_everything()
    rows = [
        f"| `{point.name}` | `{cell(point.signature)}` | {cell(point.doc)} |"
        for point in extension.table()
    ]
    assert rows
    golden(PAGE, HEAD + "\n".join(rows))
