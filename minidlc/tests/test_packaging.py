"""What an installed minidlc consists of."""

from __future__ import annotations

import hashlib
import re
from importlib import metadata
from pathlib import Path

import pytest

import minidlc

ROOT = Path(minidlc.__file__).parent


def test_every_folder_with_code_is_a_package() -> None:
    """A folder without __init__.py is invisible to the import-layer check."""
    folders = {path.parent for path in ROOT.rglob("*.py")}
    assert not [str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").exists()]


@pytest.mark.llvm
def test_command_is_installed() -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="minidlc")
    assert callable(script.load())


def test_models_are_the_files_whose_licence_is_stated() -> None:
    readme = (ROOT / "models" / "README.md").read_text(encoding="utf-8")
    stated = dict(re.findall(r"^\| `(\S+)` \|.*\| `([0-9a-f]{64})` \|$", readme, re.MULTILINE))
    present = [p for p in (ROOT / "models").iterdir() if p.suffix in (".onnx", ".npz")]
    assert {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in present} == stated


def test_no_name_of_the_api_is_a_module_as_well() -> None:
    """Importing the module would put it in the name's place: `mc.session` would be no function."""
    modules = {path.stem for path in Path(minidlc.__file__).parent.iterdir()}
    names = set(dir(minidlc)) - set(minidlc._MODULES)
    assert modules & names <= {"loop"}  # the op is built by apply("loop", …)
