"""An overlay lacks exactly what is withheld, and cannot be made to give it back."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import grader.overlay as overlay_module
from grader.overlay import OverlayError, build_overlay, without
from grader.tests.sandboxes import whole_overlay

pytestmark = pytest.mark.long

TEXT = '''"""Module."""
import math


def plain(x):
    # the secret of plain
    y = x + 1  # a secret

    # another secret
    return y
    # the last secret
# a line of the module


def documented(x: int) -> int:
    """What it does.

    At length.
    """
    if x:
        def inner(): return "the secret of inner"
        return inner()
    return 0


def short(x): return "the secret of short"


if math:
    def guarded(): return 1


class Op:
    """An op."""

    size = 4

    @property
    def rule(self):
        return "the secret of rule"

    @staticmethod
    def 規則(x): "é"; return "the secret of 規則"

    async def later(self):
        return "the secret of later"
'''


def module(names: list[str]) -> tuple[str, dict[str, object]]:
    text = without(TEXT, names, "minidlc.m")
    space: dict[str, object] = {}
    exec(compile(text, "m", "exec"), space)
    return text, space


def test_a_function_is_emptied() -> None:
    text, space = module(["plain"])
    assert "secret of plain" not in text
    assert "another secret" not in text
    assert "last secret" not in text
    assert "# a line of the module" in text
    assert "secret of rule" in text
    with pytest.raises(NotImplementedError, match=r"withheld: minidlc\.m:plain"):
        space["plain"](1)
    assert space["short"](1) == "the secret of short"


def test_the_docstring_and_the_signature_stay() -> None:
    text, space = module(["documented"])
    assert space["documented"].__doc__.startswith("What it does.")
    assert space["documented"].__annotations__ == {"x": "int", "return": "int"} or (
        space["documented"].__annotations__["x"] is int
    )
    assert "inner" not in text
    with pytest.raises(NotImplementedError):
        space["documented"](1)


def test_a_method() -> None:
    text, space = module(["Op.rule", "Op.規則"])
    assert "secret of rule" not in text
    assert "secret of 規則" not in text
    assert "secret of later" in text
    op = space["Op"]()
    with pytest.raises(NotImplementedError, match=r"Op\.rule"):
        _ = op.rule
    with pytest.raises(NotImplementedError):
        op.規則(1)
    assert op.size == 4


def test_a_class_is_all_its_methods() -> None:
    text, space = module(["Op"])
    assert "secret of later" not in text
    assert "secret of short" in text
    assert space["Op"].size == 4


def test_a_module_is_all_its_functions() -> None:
    text, space = module([""])
    assert "secret" not in text
    for name in ("plain", "documented", "short"):
        with pytest.raises(NotImplementedError):
            space[name](1)
    with pytest.raises(NotImplementedError):
        space["guarded"]()


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(OverlayError, match=r"'minidlc.m:plane': not in minidlc.m, which has plain"):
        without(TEXT, ["plane"], "minidlc.m")


@pytest.mark.parametrize("part", ["minidlc.nothing:f", "os:system", "minidlc.graph..x:f"])
def test_a_module_that_is_not_there(part: str) -> None:
    with pytest.raises(OverlayError, match="there is no module"):
        build_overlay((part,), whole_overlay().parent)


PART = "minidlc.graph.graph:toposort"


@pytest.fixture(scope="module")
def lacking() -> Path:
    return build_overlay((PART, "minidlc.graph.structure"), whole_overlay().parent)


def python(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-S",
        "-P",
        "-B",
        "-c",
        f"import sys; sys.path.append({str(folder)!r})",
    ]
    command[-1] += f"; sys.path.append({str(folder)!r})\n{program}"
    return subprocess.run(command, capture_output=True, text=True, cwd="/", env={}, check=False)


def test_the_part_raises_and_the_rest_works(lacking: Path) -> None:
    program = """
import minidlc as mc
from minidlc.graph.graph import toposort
assert mc.f32[4].rank == 1
try:
    toposort(())
except NotImplementedError as error:
    print(error)
"""
    done = python(lacking, program)
    assert done.stdout == f"withheld: {PART} is for you to write\n", done.stderr


def test_no_copy_of_it_is_left(lacking: Path) -> None:
    """Neither in a source nor in a compiled file of the overlay."""
    whole = whole_overlay() / "minidlc/graph/structure.py"
    line = next(t for t in map(str.strip, whole.read_text().splitlines()) if t[:4] == "for ")
    assert not any(line in path.read_text() for path in lacking.rglob("structure.py"))
    compiled = [path.read_bytes() for path in lacking.rglob("structure.*.pyc")]
    assert all(b"withheld" in data for data in compiled)
    assert "withheld" not in whole.read_text()  # links of the other overlay are untouched


def test_what_is_not_in_an_overlay() -> None:
    overlay = whole_overlay()
    assert not (overlay / "minidlc/tests").exists()
    assert not (overlay / "minidlc/benchmarks").exists()
    assert not any(overlay.rglob("RESULTS.md"))
    names = {path.name for path in (overlay / "grader").rglob("*.py")}
    assert names == {"__init__.py", "wire.py", "serve.py", "warm.py"} | {
        f"{name}.py" for name in overlay_module._INNER
    }
    program = """
import importlib.util
for name in ("pytest", "onnxruntime", "onnx.reference", "onnx.backend", "grader.model", "pip"):
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        found = None
    assert found is None, name
import numpy, onnx, ml_dtypes, llvmlite.binding, matplotlib, grader
assert grader.check_here("1.2") is None
print(importlib.metadata.version("onnx"))
"""
    done = python(overlay, program)
    assert done.stdout.strip() == importlib.metadata.version("onnx"), done.stderr


def test_equal_contents_are_built_once() -> None:
    folder = whole_overlay().parent
    assert build_overlay((), folder) == whole_overlay()
    one = build_overlay((PART, "minidlc.graph.verify"), folder)
    assert build_overlay(("minidlc.graph.verify", PART), folder) == one
    assert one != whole_overlay()
    assert not list(folder.glob(".new-*"))


def test_other_users_can_read_it() -> None:
    assert whole_overlay().stat().st_mode & 0o005 == 0o005
