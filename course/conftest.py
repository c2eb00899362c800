"""The notebooks as tests: `pytest --nbval course` runs each cell and compares what it shows.

--full or MINIDLC_FULL=1 runs the cells tagged slow as well. Kernels and models are compiled into a
cache of their own, empty at the start: times are those of a reader who opens the lesson first.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from wheel_dot import use_wheel_dot

COURSE = Path(__file__).parent

_cache = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --full, unless minidlc/tests/conftest.py did: both folders may be given."""
    with contextlib.suppress(ValueError):
        parser.addoption("--full", action="store_true", help="run the cells tagged slow as well")


def pytest_configure(config: pytest.Config) -> None:
    """Make the empty cache, and pictures the same everywhere."""
    if not hasattr(config, "workerinput"):  # xdist's workers inherit the environment
        config.stash[_cache] = tempfile.mkdtemp(prefix="minidlc-course-cache-")
        os.environ["MINIDLC_CACHE"] = config.stash[_cache]
        use_wheel_dot(Path(config.stash[_cache]))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove it."""
    if _cache in config.stash:
        shutil.rmtree(config.stash[_cache], ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the slow cells of the lessons, and nobody else's tests."""
    if config.getoption("--full") or os.environ.get("MINIDLC_FULL", "") not in ("", "0"):
        return
    slow = [item for item in items if is_slow_cell(item)]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


def is_slow_cell(item: pytest.Item) -> bool:
    """Is this a cell of a lesson with the tag slow? nbval keeps the cell in the item."""
    cell = getattr(item, "cell", None)
    return item.path.is_relative_to(COURSE) and "slow" in getattr(cell, "metadata", {}).get(
        "tags", ()
    )
