"""Checkpoints: bit for bit, whole or not there, damage found, killed at any time."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest

import minidlc as mc
from minidlc.expr.types import DTYPES
from minidlc.support.errors import CompileError, TrainError
from minidlc.train.atomic import atomic_file
from minidlc.train.checkpoint import Checkpoints, load, save

pytestmark = pytest.mark.ch03


def state(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    made = {t.name: rng.integers(0, 2, (3, 5)).astype(t.numpy) for t in DTYPES.values()}
    odd = np.array([np.nan, -np.nan, np.inf, -0.0, 5e-324])
    return made | {
        "odd": odd,
        "one": np.float32(0.1),
        "none": np.zeros((0, 4)),
        "turned": odd[::-1],
    }


def assert_same(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert got.keys() == want.keys()
    for name in want:
        assert got[name].dtype == want[name].dtype
        assert got[name].shape == want[name].shape
        assert got[name].tobytes() == want[name].tobytes()


def refused(path: Path, part: str) -> None:
    with pytest.raises(TrainError) as raised:
        load(path)
    assert raised.value.code == "MDLC1275"
    assert str(path) in raised.value.message
    assert part in raised.value.message


def test_every_bit_comes_back(tmp_path: Path) -> None:
    meta = {
        "step": 3,
        "rate": 0.1,
        "bad": math.inf,
        "data": {"epoch": 1, "of": "日本"},
        "h": [1, 2],
    }
    save(tmp_path / "new" / "c.mdlt", state(), meta)
    found = load(tmp_path / "new" / "c.mdlt")
    assert_same(found.state, state())
    assert found.meta == meta
    assert found.kit == mc.__version__
    assert all(a.flags.writeable for a in found.state.values())
    save(tmp_path / "none", {})
    assert load(tmp_path / "none").state == {}


def test_what_is_cut_off_damaged_or_foreign(tmp_path: Path) -> None:
    path = tmp_path / "c.mdlt"
    save(path, state(), {"step": 1})
    whole = bytearray(path.read_bytes())
    for size in range(20, len(whole), 97):
        path.write_bytes(whole[:size])
        refused(path, "cut off")
    for place in range(20, len(whole), 61):
        damaged = whole.copy()
        damaged[place] ^= 1
        path.write_bytes(damaged)
        refused(path, "damaged")
    path.write_bytes(b"PK\x03\x04" + bytes(1000))
    refused(path, "no checkpoint of minidlc")
    path.write_bytes(b"")
    refused(path, "no checkpoint of minidlc")
    refused(tmp_path / "missing", "No such file")


def test_a_checkpoint_of_the_future(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "c", {})
    monkeypatch.setattr("minidlc.train.checkpoint._VERSION", 0)
    refused(tmp_path / "c", "version 1, this minidlc reads 0")


def test_what_cannot_be_saved_and_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "c.mdlt"
    save(path, state(1))
    for bad, meta, part in (
        ({"a": "text"}, {}, "'a' is a str"),
        ({"a": [object()]}, {}, "no array of numbers"),
        ({"a": np.zeros(2, complex)}, {}, "complex128"),
        ({"a": [[1], [1, 2]]}, {}, "'a' is a list that is no array"),
        ({}, {"a": np.float32(1)}, "meta cannot be written as JSON"),
        ({}, {"a": [{1: 2, "1": 3}]}, "the key 1 is no text"),
    ):
        with pytest.raises(TrainError) as raised:
            save(path, bad, meta)
        assert raised.value.code == "MDLC1276"
        assert part in raised.value.message
    with pytest.raises(CompileError, match="meta is a int, expected Mapping"):
        save(path, {}, 5)  # pyright: ignore[reportArgumentType]
    assert_same(load(path).state, state(1))


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "run", keep=2)
    assert kept.latest() is None
    for step in (9, 10, 100, np.int64(100), 123_456_789):
        kept.save(step, {"step": np.asarray(step)}, {"step": int(step)})
    assert [p.name for p in kept.paths()] == ["step-00000100.mdlt", "step-123456789.mdlt"]
    found = kept.latest()
    assert found is not None
    assert found.meta == {"step": 123_456_789}
    with pytest.raises(TrainError, match="keep is 0") as raised:
        Checkpoints(tmp_path, keep=0)
    assert raised.value.code == "MDLC1278"


def test_a_damaged_one_is_passed_over(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path, keep=3)
    for step in (1, 2, 3):
        kept.save(step, state(step), {"step": step})
    paths = kept.paths()
    paths[2].write_bytes(paths[2].read_bytes()[:-100])
    paths[1].write_bytes(b"something else")
    found = kept.latest()
    assert found is not None
    assert found.meta == {"step": 1}
    assert [part.partition(".mdlt ")[2][:6] for part in kept.refused] == ["is cut", "is no "]


def test_steps_do_not_fall(tmp_path: Path) -> None:
    """Else `latest()` would hand a new run the state of the old one."""
    for step in (100, 101):
        Checkpoints(tmp_path, keep=2).save(step, {}, {"step": step})
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(TrainError, match=r"has step-00000101\.mdlt already: step 1 is") as raised:
        Checkpoints(tmp_path, keep=2).save(1, {})
    assert raised.value.code == "MDLC1279"
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.parametrize("keep", [1, 2])
def test_a_run_goes_on_behind_a_damaged_checkpoint(tmp_path: Path, keep: int) -> None:
    for step in (10, 20):
        Checkpoints(tmp_path, keep=2).save(step, {}, {"step": step})
    Checkpoints(tmp_path).paths()[-1].write_bytes(b"")
    kept = Checkpoints(tmp_path, keep=keep)
    names: list[list[int]] = []
    for step in (15, 20, 25, 30):
        found = kept.latest()
        assert found is not None
        assert found.meta["step"] == (step - 5 if step > 15 else 10)
        kept.save(step, {}, {"step": step})
        names.append([int(p.stem[5:]) for p in kept.paths()])
    if keep == 1:
        assert names == [[15, 20], [20], [25], [30]]
    else:
        assert names == [[10, 15, 20], [15, 20], [20, 25], [25, 30]]


def test_a_damaged_checkpoint_is_one_too_many_in_time(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path, keep=2)
    kept.save(1, {})
    kept.save(2, {})
    kept.paths()[-1].write_bytes(b"")
    kept.latest()
    for step in (3, 4):
        kept.save(step, {})
    assert [p.name[5:13] for p in kept.paths()] == ["00000003", "00000004"]


def test_steps_that_cannot_be_meant(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    for step, code in (("a", "MDLC1001"), (1.5, "MDLC1001"), (True, "MDLC1001"), (-1, "MDLC1278")):
        with pytest.raises(CompileError) as raised:
            kept.save(step, {})  # pyright: ignore[reportArgumentType]
        assert raised.value.code == code
    assert not list(tmp_path.iterdir())


def test_a_folder_with_the_name_of_a_checkpoint_is_none(tmp_path: Path) -> None:
    (tmp_path / "step-00000001.mdlt").mkdir()
    kept = Checkpoints(tmp_path, keep=1)
    assert kept.latest() is None
    kept.save(2, {})
    kept.save(3, {})
    assert [p.name for p in kept.paths()] == ["step-00000003.mdlt"]


def test_only_half_written_checkpoints_are_swept(tmp_path: Path) -> None:
    """And not before this run writes there itself."""
    half = [".step-00000007.mdlt.4711-0.tmp"]
    foreign = [".notes.tmp", ".cache.12-3.tmp", ".step-00000007.mdlt.tmp", "step-1.mdlt.1-1.tmp"]
    for name in half + foreign:
        (tmp_path / name).write_text("")
    kept = Checkpoints(tmp_path)
    assert kept.latest() is None
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(half + foreign)
    path = kept.save(8, {})
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*foreign, path.name])
    (tmp_path / half[0]).write_text("")  # of a thread that writes there now
    kept.save(9, {})
    assert (tmp_path / half[0]).exists()


def test_threads_may_save_one_path(tmp_path: Path) -> None:
    failed: list[BaseException] = []

    def write(seed: int) -> None:
        try:
            for _ in range(10):
                save(tmp_path / "c", {"w": np.full(1000, seed)})
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(set(load(tmp_path / "c").state["w"])) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_a_disk_that_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def write(self, data: bytes) -> None:
            raise OSError(errno.ESTALE, "Stale file handle")

    @contextlib.contextmanager
    def gone(path: Path) -> Generator[Gone]:
        with atomic_file(path):
            yield Gone()

    monkeypatch.setattr("minidlc.train.checkpoint.atomic_file", gone)
    with pytest.raises(TrainError, match="cannot be written: Stale file handle") as raised:
        save(tmp_path / "c", {})
    assert raised.value.code == "MDLC1265"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["", ".", "/", "a\0b"])
def test_paths_that_name_no_file(path: str) -> None:
    with pytest.raises(TrainError) as raised:
        save(path, {})
    assert raised.value.code == "MDLC1265"
    assert repr(path) in raised.value.message
    assert str(raised.value.loc).startswith(__file__)
    with pytest.raises(TrainError) as raised:
        load(path)
    assert raised.value.code == "MDLC1275"


WRITER = """
import sys
import numpy as np
from minidlc.train.checkpoint import Checkpoints
kept = Checkpoints(sys.argv[1], keep=2)
begin = kept.latest()
step = begin.meta["step"] if begin else 0
while True:
    step += 1
    kept.save(step, {"w": np.full(200_000, step, np.float32)}, {"step": step})
    print(step, flush=True)
"""


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="kill -9 is POSIX's")
def test_a_process_killed_at_any_time_loses_nothing(tmp_path: Path) -> None:
    """Every step that was reported as saved, or a later one, is there and whole."""
    rng = np.random.default_rng(0)
    saved = 0
    for _ in range(8):
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            saved = int(process.stdout.readline())
            time.sleep(rng.uniform(0, 0.03))
            process.send_signal(signal.SIGKILL)
            saved = max([saved, *map(int, process.stdout.read().split())])
        kept = Checkpoints(tmp_path, keep=2)
        assert len(list(tmp_path.glob(".*.tmp"))) <= 1  # that of this process, not of those before
        found = kept.latest()
        assert kept.refused == ()
        assert found is not None
        assert found.meta["step"] in (saved, saved + 1)
        assert (found.state["w"] == found.meta["step"]).all()
    Checkpoints(tmp_path).save(saved + 2, {})
    assert not list(tmp_path.glob(".*.tmp"))
