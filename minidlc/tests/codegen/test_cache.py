"""The kernel cache: hits, and everything that must not be trusted."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import numpy as np
import pytest

from minidlc import target
from minidlc.codegen import cache as disk
from minidlc.codegen import compile as compiler
from minidlc.codegen.cache import KernelCache
from minidlc.codegen.compile import compile_kernel, kernel_key, run_kernel
from minidlc.codegen.llvm import emit
from minidlc.loop.text import parse_function
from minidlc.support.extension import use

pytestmark = pytest.mark.llvm

SOURCE = "def f(A: f32[8]):\n    for i in vectorized(0, 8):\n        A[i] = A[i] + 1.0\n"


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KernelCache:
    """A fresh cache that compile_kernel uses."""
    fresh = KernelCache(tmp_path / "kernels")
    monkeypatch.setattr(compiler, "kernel_cache", fresh)
    return fresh


def compile_once(source: str = SOURCE) -> compiler.Kernel:
    kernel = compile_kernel(parse_function(source), target.host())
    a = np.zeros(kernel.fn.params[0].type.dims, np.float32)
    run_kernel(kernel, [a])
    assert (a != 0).all()
    return kernel


def test_second_time_is_a_hit(kernels: KernelCache) -> None:
    first, second = compile_once(), compile_once()
    assert (kernels.hits, kernels.misses) == (1, 1)
    assert (first.llvm, first.object) == (second.llvm, second.object)
    assert second.asm


def test_key_says_everything(kernels: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, machine = parse_function(SOURCE), target.host()
    keys = {kernel_key(fn, machine), kernel_key(fn, target.host(4))}
    keys.add(kernel_key(parse_function(SOURCE.replace("1.0", "2.0")), machine))
    keys.add(kernel_key(parse_function(SOURCE.replace("vectorized", "serial")), machine))
    with use(emit=lambda fn, target, symbol: emit(fn, target, symbol)):
        keys.add(kernel_key(fn, machine))
    with use(vectorize=lambda index, lane: "gather"):
        keys.add(kernel_key(fn, machine))
    monkeypatch.setattr(disk, "source_digest", lambda: "another compiler")
    keys.add(kernel_key(fn, machine))
    monkeypatch.setattr(compiler, "LLVM_VERSION", "1.0")
    keys.add(kernel_key(fn, machine))
    assert len(keys) == 7 + (target.host().lanes(32) > 4)
    renamed = parse_function(SOURCE.replace("def f", "def " + "g" * 200))
    monkeypatch.undo()
    assert kernel_key(renamed, machine) == kernel_key(fn, machine)


def test_symbols_are_short_whatever_the_name() -> None:
    kernel = compile_kernel(
        parse_function(SOURCE.replace("def f", "def " + "n" * 400)), target.host()
    )
    assert len(kernel.symbol) < 24


@pytest.mark.parametrize("damage", ["empty", "half", "foreign", "flipped", "other entry", "folder"])
def test_what_cannot_be_trusted_is_ignored_and_rewritten(damage: str, kernels: KernelCache) -> None:
    kernel = compile_once()
    path = kernels.path(kernel_key(kernel.fn, kernel.target))
    good = path.read_bytes()
    bad = {
        "empty": b"",
        "half": good[: len(good) // 2],
        "foreign": b"#!/bin/sh\necho hello\n" * 20,
        "flipped": good[:-9] + bytes([good[-9] ^ 1]) + good[-8:],
    }
    if damage == "other entry":
        other = compile_once(SOURCE.replace("1.0", "5.0"))
        os.replace(kernels.path(kernel_key(other.fn, other.target)), path)
    elif damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(bad[damage])
    again = compile_once()
    assert again.object == kernel.object
    if damage != "folder":
        assert path.read_bytes() == good


def test_unwritable_folder_means_no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setattr(compiler, "kernel_cache", KernelCache(blocked / "kernels"))
    compile_once()
    compile_once()
    assert blocked.read_text() == "not a folder"


def test_least_recently_used_entries_go(tmp_path: Path) -> None:
    full = KernelCache(tmp_path)
    for n in range(8):
        full.write(f"{n:02}" * 20, "text", bytes(900))
        os.utime(full.path(f"{n:02}" * 20), (n, n))
    kernels = KernelCache(tmp_path, limit=5000)
    assert kernels.read("00" * 20) is not None  # now the latest
    kernels.sweep()
    kept = [n for n in range(8) if kernels.path(f"{n:02}" * 20).exists()]
    assert 0 in kept
    assert 1 not in kept
    assert sum(p.stat().st_size for p in tmp_path.glob("*/*")) <= 5000
    for n in range(20, 40):  # writing looks by itself
        kernels.write(f"{n:02}" * 20, "text", bytes(900))
        assert sum(p.stat().st_size for p in tmp_path.glob("*/*")) <= 5000
    kernels.write("50" * 20, "text", bytes(6000))  # alone larger than the limit
    assert kernels.read("50" * 20) is None


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_nothing(
    problem: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise problem

    kernels = KernelCache(tmp_path)
    monkeypatch.setattr(disk.os, "replace", fail)
    with contextlib.suppress(KeyboardInterrupt):
        kernels.write("ab" * 32, "text", b"code")
        assert isinstance(problem, OSError)
    assert [p for p in tmp_path.glob("*/*")] == []


def test_off_means_no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINIDLC_CACHE", "off")
    monkeypatch.chdir(tmp_path)
    cache = KernelCache()
    cache.write("ab" * 32, "text", b"code")
    assert cache.read("ab" * 32) is None
    assert list(tmp_path.iterdir()) == []


def test_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINIDLC_CACHE", str(tmp_path / "here"))
    assert KernelCache().root == tmp_path / "here" / "kernels"
    monkeypatch.delenv("MINIDLC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(disk.sys, "platform", "linux")
    assert disk.folder() == tmp_path / "xdg" / "minidlc"
    monkeypatch.setattr(disk.sys, "platform", "darwin")
    assert disk.folder().parts[-3:] == ("Library", "Caches", "minidlc")
    monkeypatch.setattr(disk.sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert disk.folder() == tmp_path / "local" / "minidlc"


def test_no_home_folder_means_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("MINIDLC_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    cache = disk.KernelCache()
    cache.write("ab" * 32, "text", b"code")
    assert cache.read("ab" * 32) is None
