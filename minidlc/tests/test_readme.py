"""What README.md shows works as it stands there; what it and other pages name is there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import minidlc
from minidlc.tuning.search import RandomSearch

PACKAGE = Path(minidlc.__file__).parent
README = (PACKAGE.parent / "README.md").read_text(encoding="utf-8")


@pytest.mark.llvm
def test_the_api_in_ten_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    (code,) = (block for block in blocks if "load_onnx" in block)  # others train and tune
    shutil.copy(PACKAGE / "models" / "mnist_cntk.onnx", tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    with np.load(PACKAGE / "models" / "mnist_digits_40.npz") as digits:
        x = digits["x"][0]
    names = {"x": x, "my_cse": lambda graph: graph}
    exec(compile(code, "README.md", "exec"), names)
    (got,), (want,) = names["outs"], names["slow"]
    assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()
    assert names["exe"].report().overrides == {"pass.cse": 1}
    assert (tmp_path / "out" / "g.svg").stat().st_size > 0


@pytest.mark.llvm
def test_the_tuning_in_ten_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    (code,) = (block for block in blocks if "mc.tune(" in block)
    monkeypatch.chdir(tmp_path)
    names = {"mc": minidlc, "my_search": RandomSearch()}
    exec(compile(code, "README.md", "exec"), names)
    assert names["t"].overrides["search"] > 0
    assert len(names["t"].results[0].trials) == 16
    assert len((tmp_path / "tune.jsonl").read_text().splitlines()) >= 16
    assert (tmp_path / "out" / "tuning.svg").stat().st_size > 0


def test_every_link_leads_somewhere() -> None:
    for page in [*PACKAGE.parent.glob("*.md"), *PACKAGE.parent.glob("*/README.md")]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            assert target.startswith("http") or (page.parent / target).exists(), (page, target)


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_file_that_a_page_names_exists(page: str) -> None:
    text = (PACKAGE.parent / page).read_text(encoding="utf-8")
    for name in re.findall(r"[\w/]+\.py\b", text):
        below = (PACKAGE.parent, PACKAGE, PACKAGE / "tests")
        assert any((folder / name).exists() for folder in below), name


def test_the_figure_of_the_layers_is_the_list_that_is_checked() -> None:
    page = (PACKAGE.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    figure = page.partition("\n## Layers\n")[2].split("```")[1].split("\n")
    tools = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    (contract,) = (c for c in tools["importlinter"]["contracts"] if c["type"] == "layers")
    layers = [re.findall(r"[\w.]+", re.sub(r"\(\w+\)", "", x)) for x in contract["layers"]]
    assert [re.findall(r"[\w.]+", x) for x in figure if x.strip()] == [x for x in layers if x]


@pytest.mark.parametrize("folder", sorted(set(re.findall(r"`(\w+)/`", README))))
def test_every_folder_of_the_reading_order_exists(folder: str) -> None:
    assert (PACKAGE / folder).is_dir()


def test_the_numbers_of_ops_are_right() -> None:
    """Counted by a fresh Python: other tests register ops of their own."""
    count = "len(registered_ops()), len(known_op_types())"
    code = (
        "import minidlc.frontend.onnx.importer\n"
        "from minidlc.frontend.onnx.registry import known_op_types\n"
        f"from minidlc.graph import registered_ops\nprint({count})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ops, op_types = run.stdout.split()
    assert f" {ops} ops:" in README
    assert f" {op_types} op types " in README
