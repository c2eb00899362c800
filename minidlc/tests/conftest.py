"""Fixtures and options of all tests.

pytest --update-golden      rewrite the files of tests/golden with what the tests produce
pytest --full               also the tests marked slow, and more random examples
MINIDLC_MODELS=DIR pytest   also the tests on the large models, where that folder has them
"""

from __future__ import annotations

import difflib
import importlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import hypothesis
import pytest

GOLDEN = Path(__file__).parent / "golden"

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100)
hypothesis.settings.register_profile("full", deadline=None, max_examples=2000)

_cache = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden")
    parser.addoption("--full", action="store_true", help="run the tests marked slow as well")


def is_full(config: pytest.Config) -> bool:
    """True for `--full` or MINIDLC_FULL=1."""
    return bool(config.getoption("--full")) or os.environ.get("MINIDLC_FULL", "") not in ("", "0")


def pytest_configure(config: pytest.Config) -> None:
    hypothesis.settings.load_profile("full" if is_full(config) else "ci")
    if not hasattr(config, "workerinput"):  # xdist's workers inherit the environment
        config.stash[_cache] = tempfile.mkdtemp(prefix="minidlc-test-cache-")
        os.environ["MINIDLC_CACHE"] = config.stash[_cache]


def pytest_unconfigure(config: pytest.Config) -> None:
    if _cache in config.stash:
        shutil.rmtree(config.stash[_cache], ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect slow tests, unless they are asked for (pytest reports how many)."""
    if is_full(config) or "slow" in config.getoption("markexpr"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.fixture(autouse=True)
def no_schedule_is_refused(request: pytest.FixtureRequest) -> Iterator[None]:
    """A schedule of the library that is refused costs a user speed only; a test fails with it."""
    if not request.node.get_closest_marker("llvm"):
        yield
        return
    kernels = importlib.import_module("minidlc.lower.kernels")  # the others run without LLVM
    lowered = kernels._lower

    def lower(*args: object) -> object:
        kernel = lowered(*args)
        assert not kernel.refused, f"{kernel.name}: {', '.join(kernel.refused)}"
        return kernel

    with mock.patch.object(kernels, "_lower", lower):
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str | Path, str], None]:
    """`golden("loops/gemm.txt", text)` compares with tests/golden/loops/gemm.txt.

    An absolute path names a generated file elsewhere, such as a page of docs.
    """

    def check(name: str | Path, text: str) -> None:
        check_golden(GOLDEN / name, text, update=request.config.getoption("--update-golden"))

    return check


def check_golden(path: Path, text: str, *, update: bool) -> None:
    """Compare `text` with the file, or write the file; one newline ends both."""
    got = text.rstrip("\n") + "\n"
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(got, encoding="utf-8", newline="\n")
        return
    if not path.exists():
        pytest.fail(f"no golden file {path.name}: look at the text, then run --update-golden")
    want = path.read_text(encoding="utf-8")
    if got != want:
        diff = difflib.unified_diff(
            want.splitlines(), got.splitlines(), f"golden {path.name}", "this run", lineterm=""
        )
        pytest.fail("\n".join([*diff, "if the change is right: --update-golden"]), pytrace=False)


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """The folder of the large acceptance models: MINIDLC_MODELS."""
    value = os.environ.get("MINIDLC_MODELS")
    if not value:
        pytest.skip("MINIDLC_MODELS is not set: the large models are not part of the project")
    path = Path(value)
    if not path.is_dir():
        pytest.fail(f"MINIDLC_MODELS names no folder: {value}")
    return path
