"""Checkpoints: bit for bit, whole or not there, damage found, killed at any time."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import minidlc as mc
from minidlc.expr.types import DTYPES
from minidlc.support.errors import TrainError
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
        ({}, {"a": np.float32(1)}, "meta cannot be written as JSON"),
    ):
        with pytest.raises(TrainError) as raised:
            save(path, bad, meta)
        assert raised.value.code == "MDLC1276"
        assert part in raised.value.message
    assert_same(load(path).state, state(1))


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "run", keep=2)
    assert kept.latest() is None
    for step in (9, 10, 100, 11):
        kept.save(step, {"step": np.asarray(step)}, {"step": step})
    assert [p.name for p in kept.paths()] == ["step-00000011.mdlt", "step-00000100.mdlt"]
    found = kept.latest()
    assert found is not None
    assert found.meta == {"step": 100}
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
        assert not list(tmp_path.glob(".*.tmp"))
        found = kept.latest()
        assert kept.refused == ()
        assert found is not None
        assert found.meta["step"] in (saved, saved + 1)
        assert (found.state["w"] == found.meta["step"]).all()
