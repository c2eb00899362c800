"""Data sets: the same elements for any number of workers, resumed anywhere, ended cleanly."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc.support.errors import CompileError, TrainError
from minidlc.train.data import Dataset, dataset, windows
from minidlc.train.loading import can_fork
from minidlc.train.records import Records, RecordWriter
from minidlc.train.stages import generator

pytestmark = pytest.mark.ch03

X = np.arange(50 * 6, dtype=np.float32).reshape(50, 2, 3)
Y = np.arange(50)
KINDS = [False, True] if can_fork() else [False]  # workers as threads, as processes


def noisy(record: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"x": record["x"] + rng.normal(size=(2, 3)).astype(np.float32), "y": record["y"]}


def augmented(workers: int, processes: bool = False) -> Dataset:
    data = dataset({"x": X, "y": Y}).shuffle(3).map(noisy, seed=7)
    return data.batch(8, drop_last=True).prefetch(3, workers=workers, processes=processes)


def epochs(data: Dataset, count: int) -> list[dict[str, np.ndarray]]:
    return [batch for _ in range(count) for batch in data]


def assert_same(got: list[dict[str, np.ndarray]], want: list[dict[str, np.ndarray]]) -> None:
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            assert a[name].tobytes() == b[name].tobytes()


def loaders() -> list[str]:
    """The threads and processes that prepare data now."""
    threads = [t.name for t in threading.enumerate() if t.name.startswith("minidlc-data")]
    return threads + [process.name for process in multiprocessing.active_children()]


@pytest.mark.parametrize("processes", KINDS)
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_batches_do_not_depend_on_the_number_of_workers(workers: int, processes: bool) -> None:
    want = epochs(augmented(0), 3)
    assert len(want) == 3 * 6
    assert_same(epochs(augmented(workers, processes), 3), want)
    assert not loaders()


def test_each_epoch_is_a_permutation_of_its_own() -> None:
    data = dataset({"y": Y}).shuffle(seed=1).batch(7)
    orders = [np.concatenate([batch["y"] for batch in data]) for _ in range(3)]
    for order in orders:
        assert sorted(order) == list(range(50))
    assert len({order.tobytes() for order in orders}) == 3
    other = dataset({"y": Y}).shuffle(seed=2).batch(50)
    assert next(iter(other))["y"].tobytes() != orders[0].tobytes()


def test_augmentation_belongs_to_the_record_not_to_its_place() -> None:
    """Noise is made from (seed, epoch, index): the order does not matter, the epoch does."""
    plain = dataset({"x": X, "y": Y}).map(noisy, seed=7)
    shuffled = dataset({"x": X, "y": Y}).shuffle(3).map(noisy, seed=7)
    by_index = {int(r["y"]): r["x"] for r in shuffled}
    for n, record in enumerate(plain):
        np.testing.assert_array_equal(record["x"], by_index[n])
    assert plain.at(0, 4)["x"].tobytes() != plain.at(1, 4)["x"].tobytes()
    assert plain.at(0, 4)["x"].tobytes() != (plain.at(0, 5)["x"] - X[5] + X[4]).tobytes()


def test_every_place_has_random_numbers_of_its_own() -> None:
    """Also place (3,) and (3, 0), which a plain list of seeds would take for one."""
    places = [(), (3,), (3, 0), (0, 3), (3, 1), (4,)]
    draws = [generator(seed, *place).integers(1 << 60) for place in places for seed in (5, 6)]
    assert len(set(draws)) == len(draws)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [0, 1, 5, 6, 8])
def test_a_resumed_data_set_goes_on_with_the_same_batches(workers: int, stop: int) -> None:
    want = epochs(augmented(0), 3)
    first = augmented(workers)
    got: list[dict[str, np.ndarray]] = []
    while len(got) < stop:
        for batch in first:
            got.append(batch)
            if len(got) == stop:
                break
    again = augmented(2 - workers)
    again.load_state(first.state())
    while again.epoch < 3:
        got += list(again)
    assert_same(got, want)


def test_a_loop_goes_on_where_the_last_one_was_left() -> None:
    data = dataset({"y": Y}).batch(10)
    for _ in data:
        break
    assert (data.epoch, data.position) == (0, 1)
    assert [int(b["y"][0]) for b in data] == [10, 20, 30, 40]
    assert (data.epoch, data.position) == (1, 0)
    assert int(data.at(5, 4)["y"][0]) == 40
    assert (data.epoch, data.position) == (1, 0)


def test_the_rest_of_an_epoch_is_a_batch_or_dropped() -> None:
    sizes = [len(b["y"]) for b in dataset({"y": Y}).batch(20)]
    assert sizes == [20, 20, 10]
    assert len(dataset({"y": Y}).batch(20, drop_last=True)) == 2


def test_records_from_a_file(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "a.rec", {"x": mc.f32[2, 3], "y": mc.i64[()]}) as writer:
        for x, y in zip(X, Y, strict=True):
            writer.append(x=x, y=y)
    with Records(tmp_path / "a.rec") as records:
        data = dataset(records).shuffle(3).map(noisy, seed=7).batch(8, drop_last=True).prefetch(2)
        assert_same(epochs(data, 2), epochs(augmented(0), 2))


def test_sequences_tuples_and_arrays() -> None:
    pairs = dataset([(x, y) for x, y in zip(X, Y, strict=True)]).batch(5)
    x, y = pairs.at(0, 1)
    np.testing.assert_array_equal(x, X[5:10])
    np.testing.assert_array_equal(y, Y[5:10])
    np.testing.assert_array_equal(dataset(range(10)).batch(4).at(0, 2), [8, 9])
    doubled = dataset(range(10)).batch(4).map(lambda batch: batch * 2)
    np.testing.assert_array_equal(doubled.at(0, 0), [0, 2, 4, 6])


def test_windows() -> None:
    data = windows(np.arange(20), 5, stride=4)
    np.testing.assert_array_equal(
        list(data), [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8], [8, 9, 10, 11, 12], [12, 13, 14, 15, 16]]
    )
    assert windows(np.arange(20), 20).batch(1).at(0, 0).shape == (1, 20)


def test_a_map_cannot_change_the_data() -> None:
    def adds(record: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        record["x"] += 1
        return record

    with pytest.raises(TrainError, match="read-only"):
        dataset({"x": X}).map(adds).at(0, 0)
    with pytest.raises(TrainError, match="read-only"):
        windows(X, 3).map(lambda window: np.add(window, 1, out=window)).at(0, 0)
    assert X.flags.writeable
    batch = dataset({"x": X}).batch(4).map(adds).at(0, 0)  # a batch is a copy
    np.testing.assert_array_equal(batch["x"], X[:4] + 1)


def test_parts_may_hold_parts() -> None:
    records = [{"a": {"b": 1.0, "c": (n, np.full(2, n))}} for n in range(4)]
    batch = dataset(records).batch(2).at(0, 1)
    assert batch["a"]["b"].dtype == np.float64
    first, second = batch["a"]["c"]
    np.testing.assert_array_equal(first, [2, 3])
    np.testing.assert_array_equal(second, [[2, 2], [3, 3]])
    ((one, ones), two) = dataset([((1, np.ones(3)), 2)] * 2).batch(2).at(0, 0)
    assert (one.shape, ones.shape, two.shape) == ((2,), (2, 3), (2,))


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (dataset([1, 2]).map(lambda _: None), "element 0 has None, which is no array"),
        (dataset([1, 2]).map(lambda _: object()), "element 0 has a object"),
        (dataset([{"a": 1}, {"a": None}]), "element 1 has None"),
        (dataset([(1, {"a": [1, [2]]})] * 2), "element 0 has a list that is no array"),
        (dataset({"x": np.array([None, {}])}), "'x' holds objects of Python"),
        (dataset([{"a": {"b": 1}}, {"a": {"c": 1}}]), "element 1 is {a: {c: int64[]}}, but"),
    ],
)
def test_what_does_not_make_a_batch(data: Dataset, part: str) -> None:
    with pytest.raises(TrainError) as raised:
        data.batch(2).at(0, 0)
    assert raised.value.code == "MDLC1272"
    assert part in raised.value.message


def test_a_function_without_return_gets_a_hint() -> None:
    with pytest.raises(TrainError, match="hint: does the function given to map return"):
        dataset([1, 2]).map(lambda _: None).batch(2).at(0, 0)


def breaks(data: Dataset) -> None:
    for _ in data:
        break


def interrupted(data: Dataset) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        for _ in data:
            raise KeyboardInterrupt


def map_raises(data: Dataset) -> None:
    with pytest.raises(TrainError):
        list(data.map(lambda batch: batch["nothing"]))


@pytest.mark.parametrize("processes", KINDS)
@pytest.mark.parametrize("end", [list, breaks, interrupted, map_raises])
def test_no_worker_is_left(end: Callable[[Dataset], object], processes: bool) -> None:
    end(augmented(2, processes))
    assert not loaders()


@pytest.mark.skipif(not can_fork(), reason="processes are copies of this one")
def test_a_process_that_is_killed() -> None:
    def dies(y: int) -> int:
        if y == 3:
            os.kill(os.getpid(), 9)
        return y

    data = dataset(range(20)).map(dies).prefetch(2, workers=2, processes=True)
    with pytest.raises(TrainError) as raised:
        list(data)
    assert raised.value.code == "MDLC1280"
    assert not loaders()


ORPHANS = """
import multiprocessing, os, signal
from minidlc.train.data import dataset
elements = iter(dataset(range(1000)).prefetch(4, workers=2, processes=True))
next(elements)
print(*(p.pid for p in multiprocessing.active_children()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="/proc says which processes are alive")
def test_processes_end_with_a_parent_that_is_killed() -> None:
    command = [sys.executable, "-c", ORPHANS]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60)
    pids = done.stdout.split()
    assert len(pids) == 2
    until = time.monotonic() + 30
    while any(map(is_alive, pids)):
        assert time.monotonic() < until, "a worker outlives its parent"
        time.sleep(0.01)


def is_alive(pid: str) -> bool:
    """True unless it has ended and only waits for somebody to ask how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_system_that_cannot_copy_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minidlc.train.data.can_fork", lambda: False)
    with pytest.raises(TrainError, match="cannot copy processes"):
        augmented(2, processes=True)


LEFT_OPEN = """
import numpy as np
from minidlc.train.data import dataset
elements = iter(dataset({"y": np.arange(1000)}).prefetch(4, workers=2))
print(next(elements))
"""


def test_a_program_ends_although_a_loop_is_open() -> None:
    command = [sys.executable, "-c", LEFT_OPEN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("{'y': np.int64(0)}\n", "")


@pytest.mark.parametrize("processes", KINDS)
@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_in_map_names_record_and_line(workers: int, processes: bool) -> None:
    def fussy(record: dict[str, Any]) -> dict[str, Any]:
        if record["y"] == 13:
            return {"x": np.zeros(3) + np.zeros(4)}  # line: fussy
        return record

    here = Path(__file__).read_text(encoding="utf-8").split("\n")
    line = next(n for n, text in enumerate(here, 1) if text.endswith("# line: fussy"))
    data = dataset({"x": X, "y": Y}).shuffle(5).map(fussy).batch(8)
    data = data.prefetch(2, workers=workers, processes=processes)
    with pytest.raises(TrainError) as raised:
        list(data)
    assert raised.value.code == "MDLC1271"
    assert "map: fussy failed on record 13: ValueError: operands could not" in raised.value.message
    assert str(raised.value.loc) == f"{__file__}:{line}"
    assert not loaders()


def test_a_second_loop_ends_the_first() -> None:
    data = dataset({"y": Y}).batch(10)
    first = iter(data)
    next(first)
    next(iter(data))
    with pytest.raises(TrainError) as raised:
        next(first)
    assert raised.value.code == "MDLC1274"


def test_the_state_of_another_data_set() -> None:
    with pytest.raises(TrainError) as raised:
        augmented(0).load_state(dataset({"x": X, "y": Y}).shuffle(4).batch(8).state())
    assert raised.value.code == "MDLC1273"
    assert "saved: arrays(x, y: 50) > shuffle(4) > batch(8)" in raised.value.notes
    data = augmented(0)
    list(data)
    for place in (
        {},
        {"epoch": 0},
        {"epoch": "a", "position": 0},
        {"epoch": -1, "position": 0},
        {"epoch": 0, "position": -1},
        {"epoch": 0, "position": 7},
        {"epoch": 0, "position": 0.0},
        {"epoch": None, "position": 0},
    ):
        with pytest.raises(TrainError, match="there is no epoch") as raised:
            data.load_state(place | {"of": str(data)})
        assert raised.value.code == "MDLC1273"
        assert (data.epoch, data.position) == (1, 0)
    data.load_state({"of": str(data), "epoch": np.int64(2), "position": 6})
    assert (list(data), data.epoch) == ([], 3)
    with pytest.raises(CompileError, match="state is a list, expected Mapping"):
        augmented(0).load_state([1])


def test_a_data_set_says_what_it_is() -> None:
    data = dataset({"y": Y}).shuffle(4).batch(8)
    next(iter(data))
    text = "arrays(y: 50) > shuffle(4) > batch(8); 7 in an epoch; next: epoch 0, position 1"
    assert repr(data) == f"<Dataset {text}>"


@pytest.mark.parametrize(
    ("make", "code", "message"),
    [
        (lambda: dataset({"x": [[1, 2], [3]]}), "MDLC1269", "dataset: 'x' is no array"),
        (lambda: windows([[1], [1, 2]], 1), "MDLC1269", "windows: this is no array"),
        (lambda: windows("abc", 1), "MDLC1269", "windows: text is no array"),
        (lambda: dataset({"x": X, "y": Y[:3]}), "MDLC1269", "differ in length"),
        (lambda: dataset({"x": 3}), "MDLC1269", "differ in length"),
        (lambda: dataset({}), "MDLC1269", "there is no record"),
        (lambda: dataset([]), "MDLC1269", "there is no record"),
        (lambda: dataset("digits.rec"), "MDLC1269", "text has no records"),
        (lambda: windows(np.arange(3), 4), "MDLC1269", "there is no record"),
        (lambda: dataset(Y).batch(3), "MDLC1001", "source is a ndarray"),
        (lambda: dataset({"y": Y}).batch(0), "MDLC1270", "size is 0, expected 1 or more"),
        (lambda: dataset({"y": Y}).batch(51, drop_last=True), "MDLC1270", "no batch of 51"),
        (lambda: dataset({"y": Y}).shuffle(-1), "MDLC1270", "seed is -1"),
        (lambda: dataset({"y": Y}).prefetch(0), "MDLC1270", "depth is 0"),
        (lambda: dataset({"y": Y}).prefetch(workers=-1), "MDLC1270", "workers is -1"),
        (lambda: dataset({"y": Y}).at(0, 50), "MDLC1270", "there is no element 50"),
        (lambda: dataset({"y": Y}).shuffle("0"), "MDLC1001", "seed is a str"),
        (lambda: dataset({"y": Y}).map(3), "MDLC1001", "function is a int"),
        (lambda: dataset([np.zeros(2), np.zeros(3)]).batch(2).at(0, 0), "MDLC1272", "element 1 is"),
        (lambda: dataset([{"a": 1}, {"b": 1}]).batch(2).at(0, 0), "MDLC1272", "element 1 is"),
        (lambda: dataset([(1,), (1, 2)]).batch(2).at(0, 0), "MDLC1272", "element 1 is"),
    ],
)
def test_what_is_no_data_set(make: Callable[[], object], code: str, message: str) -> None:
    with pytest.raises(CompileError) as raised:
        make()
    assert raised.value.code == code
    assert message in raised.value.message
