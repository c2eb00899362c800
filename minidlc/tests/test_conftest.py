"""The tests' own machinery can fail."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from minidlc.tests.conftest import check_golden, models_dir, pytest_collection_modifyitems

find_models = models_dir.__wrapped__  # the function below the fixture


def test_golden_shows_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "nest.txt"
    check_golden(path, "for i:\n  for j:", update=True)
    check_golden(path, "for i:\n  for j:\n", update=False)
    with pytest.raises(pytest.fail.Exception, match=r"-  for j:\n\+  for k:\n.*--update-golden"):
        check_golden(path, "for i:\n  for k:", update=False)


def test_golden_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"no golden file new\.txt"):
        check_golden(tmp_path / "new.txt", "text", update=False)
    assert not (tmp_path / "new.txt").exists()


def test_large_models_are_skipped_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MINIDLC_MODELS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="MINIDLC_MODELS is not set"):
        find_models()
    monkeypatch.setenv("MINIDLC_MODELS", str(tmp_path / "typo"))
    with pytest.raises(pytest.fail.Exception, match=r"names no folder: .*typo"):
        find_models()
    monkeypatch.setenv("MINIDLC_MODELS", str(tmp_path))
    assert find_models() == tmp_path


def test_the_kernel_cache_is_of_this_run_only() -> None:
    assert Path(os.environ["MINIDLC_CACHE"]).name.startswith("minidlc-test-cache-")


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"full": False, "markexpr": ""}, ["fast"]),
        ({"full": True, "markexpr": ""}, ["fast", "slow"]),
        ({"full": False, "markexpr": "slow"}, ["fast", "slow"]),  # pytest selects after this hook
        ({"full": False, "markexpr": "not llvm"}, ["fast"]),
    ],
)
def test_slow_tests_run_when_asked_for(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, object], kept: list[str]
) -> None:
    monkeypatch.delenv("MINIDLC_FULL", raising=False)
    reported: list[str] = []
    config = SimpleNamespace(
        getoption=lambda name: options[name.removeprefix("--")],
        hook=SimpleNamespace(pytest_deselected=lambda items: reported.extend(names(items))),
    )
    items = [
        SimpleNamespace(name=name, get_closest_marker=lambda mark, name=name: mark == name)
        for name in ("fast", "slow")
    ]
    pytest_collection_modifyitems(config, items)
    assert names(items) == kept
    assert sorted(kept + reported) == ["fast", "slow"]


def names(items: list[SimpleNamespace]) -> list[str]:
    return [item.name for item in items]
