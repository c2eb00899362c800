"""Record files: what is written comes back; what is damaged is named."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

import minidlc as mc
from minidlc.support.errors import CompileError, TrainError
from minidlc.train.atomic import atomic_file
from minidlc.train.records import Records, RecordWriter

pytestmark = pytest.mark.ch03

SCHEMA = {"x": mc.f32[2, 3], "y": mc.i64[()], "text": mc.u8["N"], "h": mc.bf16["M", 2]}


def record(n: int) -> dict[str, np.ndarray]:
    return {
        "x": np.full((2, 3), n, np.float32),
        "y": np.asarray(n),
        "text": np.arange(n, dtype=np.uint8),
        "h": np.full((n % 3, 2), n, mc.bf16.numpy),
    }


class Odd:
    """What NumPy takes for an array, and is none."""

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise RuntimeError("not today")


def write(path: Path, *records: Any) -> None:
    with RecordWriter(path, SCHEMA) as writer:
        for fields in records:
            writer.append(**fields)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "a.rec", *map(record, range(10)))
    return tmp_path / "a.rec"


def refused(path: Path, *parts: str) -> None:
    with pytest.raises(TrainError) as raised:
        Records(path)
    assert raised.value.code == "MDLC1266"
    assert str(path) in raised.value.message
    for part in parts:
        assert part in raised.value.message


def test_records_come_back_bit_for_bit(path: Path) -> None:
    with Records(path) as records:
        assert len(records) == 10
        assert records.schema == SCHEMA
        for n in (7, 0, 9):
            for name, want in record(n).items():
                got = records[n][name]
                assert got.dtype == want.dtype
                assert got.flags.writeable
                np.testing.assert_array_equal(got, want)
        assert records[-1]["y"] == 9
        assert [int(r["y"]) for r in records] == list(range(10))
        with pytest.raises(IndexError):
            records[10]
    with pytest.raises(TrainError, match="is closed"):
        records[0]


def test_no_records_are_a_file_too(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "none.rec", SCHEMA):
        pass
    with Records(tmp_path / "none.rec") as records:
        assert list(records) == []


def test_threads_read_at_the_same_time(path: Path) -> None:
    with Records(path) as records:
        wrong: list[int] = []

        def read(seed: int) -> None:
            for n in np.random.default_rng(seed).integers(0, 10, 300):
                if int(records[n]["y"]) != n:
                    wrong.append(int(n))

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_every_shortened_file_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        refused(path)
    path.write_bytes(whole[:40])
    refused(path, "cut off at byte 40")
    path.write_bytes(whole + b"more")
    refused(path, "no index at its end")


def codes_of_reading(path: Path) -> list[str]:
    """The codes of all errors while a file is opened and its records are read."""
    found: list[str] = []
    try:
        with Records(path) as records:
            for n in range(len(records)):
                try:
                    records[n]
                except TrainError as e:
                    found.append(f"{e.code} {n in map(int, re.findall('record ([0-9]) ', str(e)))}")
    except TrainError as e:
        found.append(e.code)
    return found


def test_every_changed_byte_is_found(path: Path) -> None:
    """In header, index and footer when the file is opened, in a record when that is read."""
    whole = bytearray(path.read_bytes())
    assert codes_of_reading(path) == []
    met: set[str] = set()
    for place in range(0, len(whole), 3):
        damaged = whole.copy()
        damaged[place] ^= 0x20
        path.write_bytes(damaged)
        (code,) = codes_of_reading(path)
        met.add(code)
    assert met == {"MDLC1266", "MDLC1267 True"}


def test_foreign_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "foreign").write_bytes(b"PK\x03\x04" + bytes(100))
    refused(tmp_path / "foreign", "no record file")
    refused(tmp_path / "missing", "cannot be read", "No such file")
    refused(tmp_path, "cannot be read")


def test_a_file_of_the_future(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minidlc.train.records._VERSION", 0)
    refused(path, "version 1, this minidlc reads 0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((3, 2), np.float32)}, "x: float32[3, 2], expected f32[2, 3]"),
        ({"x": np.zeros((2, 3))}, "x: float64[2, 3], expected f32[2, 3]"),
        ({"y": np.zeros(1, np.int64)}, "y: int64[1], expected i64[()]"),
        ({"z": 1}, "x, y, text, h, z, expected x, y, text, h"),
        ({"x": [[1], [1, 2]]}, "x, which is no array: "),
        ({"x": Odd()}, "x, which is no array: not today"),
    ],
)
def test_a_record_that_does_not_fit_and_no_file(
    tmp_path: Path, change: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(TrainError) as raised:
        write(tmp_path / "a.rec", record(0), record(1) | change)
    assert raised.value.code == "MDLC1268"
    assert f"record 1 has {message}" in raised.value.message
    assert not list(tmp_path.iterdir())


def test_a_writer_is_used_within_its_block(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "a.rec", SCHEMA)
    with pytest.raises(TrainError, match="outside of the with block"):
        writer.append(**record(0))
    with pytest.raises(TrainError, match="names no array"):
        RecordWriter(tmp_path / "a.rec", {})
    with pytest.raises(CompileError, match="schema\\['x'\\] is a tuple, expected TensorType"):
        RecordWriter(tmp_path / "a.rec", {"x": (2, 3)})


def test_a_writer_has_one_block(path: Path) -> None:
    writer = RecordWriter(path, {"y": mc.i64[()]})
    with writer:
        writer.append(y=np.asarray(1))
        with pytest.raises(TrainError, match="has had its with block"):
            writer.__enter__()
    with pytest.raises(TrainError, match="has had its with block") as raised, writer:
        pass
    assert raised.value.code == "MDLC1268"
    with pytest.raises(TrainError, match="outside of the with block"):
        writer.append(y=np.asarray(2))
    with Records(path) as records:
        assert [int(r["y"]) for r in records] == [1]


def test_a_symbol_is_one_number_in_a_record(path: Path) -> None:
    schema = {"x": mc.f32["N", "N"], "y": mc.f32["N", "M"]}
    with RecordWriter(path, schema) as writer:
        for n in (2, 3):
            writer.append(x=np.ones((n, n), np.float32), y=np.ones((n, 7 - n), np.float32))
        for x, y, part in (
            ((2, 3), (2, 1), 'x: float32[2, 3], expected f32["N", "N"], N is 2'),
            ((4, 4), (5, 4), 'y: float32[5, 4], expected f32["N", "M"], N is 4'),
        ):
            with pytest.raises(TrainError) as raised:
                writer.append(x=np.ones(x, np.float32), y=np.ones(y, np.float32))
            assert part in raised.value.message
    with Records(path) as records:
        assert [r["y"].shape for r in records] == [(2, 5), (3, 4)]


def test_a_size_is_no_formula(path: Path) -> None:
    n = mc.f32["N"].shape[0]
    with pytest.raises(TrainError, match=r"schema\['x'\] has the size N \+ 1") as raised:
        RecordWriter(path, {"x": mc.f32[n + 1]})
    assert raised.value.code == "MDLC1268"


def test_any_name_may_stand_in_a_schema(path: Path) -> None:
    with RecordWriter(path, {"self": mc.i64[()], "number": mc.i64[()]}) as writer:
        writer.append(**{"self": np.asarray(1), "number": np.asarray(2)})
    with Records(path) as records:
        assert records[0] == {"self": 1, "number": 2}
    with pytest.raises(CompileError, match="a name in schema is a int"):
        RecordWriter(path, {1: mc.i64[()]})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("pread", [True, False])
def test_a_file_that_changes_while_it_is_open(
    path: Path, monkeypatch: pytest.MonkeyPatch, pread: bool
) -> None:
    """A map into memory would end the process here (SIGBUS)."""
    if not pread:
        monkeypatch.delattr(os, "pread", raising=False)
    write(path, *(record(n) | {"text": np.zeros(10_000, np.uint8)} for n in range(5)))
    whole = path.read_bytes()
    with Records(path) as records:
        os.truncate(path, 15_000)
        assert int(records[0]["y"]) == 0
        for n in (1, 4, -1):
            with pytest.raises(TrainError, match=f"record {n % 5} of .* was shortened") as raised:
                records[n]
            assert raised.value.code == "MDLC1267"
        path.write_bytes(whole[:25_000] + bytes(len(whole) - 25_000))
        assert int(records[1]["y"]) == 1
        with pytest.raises(TrainError, match=r"record 3 of .* its checksum is wrong"):
            records[3]


def test_records_without_pread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pread", raising=False)
    test_records_come_back_bit_for_bit(path)
    test_threads_read_at_the_same_time(path)
    test_every_shortened_file_is_refused(path)


def test_the_place_is_the_line_of_the_reader(path: Path) -> None:
    """Not one of `contextlib` or of a mixin of Python's."""
    whole = bytearray(path.read_bytes())
    whole[whole.index(np.full((2, 3), 4, np.float32).tobytes())] ^= 1
    path.write_bytes(whole)
    with Records(path) as records, pytest.raises(TrainError) as raised:
        list(records)
    assert str(raised.value.loc).startswith(f"{__file__}:")
    with pytest.raises(TrainError) as raised, RecordWriter(path / "b", SCHEMA):
        pass
    assert raised.value.code == "MDLC1265"
    assert str(raised.value.loc).startswith(f"{__file__}:")


@pytest.mark.parametrize("bad", ["", ".", "a\0b"])
def test_paths_that_name_no_file(bad: str) -> None:
    with pytest.raises(TrainError) as raised, RecordWriter(bad, SCHEMA):
        pass
    assert raised.value.code == "MDLC1265"
    with pytest.raises(TrainError) as raised:
        Records(bad)
    assert raised.value.code == "MDLC1266"


def test_a_path_may_be_of_bytes(tmp_path: Path) -> None:
    class Entry:
        """As `os.scandir` gives them for a folder of bytes."""

        def __fspath__(self) -> bytes:
            return os.fsencode(tmp_path / "b.rec")

    with RecordWriter(Entry(), SCHEMA) as writer:  # pyright: ignore[reportArgumentType]
        writer.append(**record(2))
    with Records(Entry()) as records:  # pyright: ignore[reportArgumentType]
        assert records.path == tmp_path / "b.rec"
        assert int(records[0]["y"]) == 2


def test_an_exception_leaves_the_file_before(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(TypeError, match="must be a mapping"):
        write(path, record(0), 3)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


FULL_FILE = """
import resource, sys
import numpy as np
import minidlc as mc
from minidlc.support.errors import TrainError
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    with mc.train.RecordWriter(sys.argv[1], {"x": mc.u8["N"]}) as writer:
        for _ in range(100):
            try:
                writer.append(x=np.zeros(1000, np.uint8))
            except TrainError as e:
                print(e.code)
except TrainError as e:
    print("at the end", e.code, e.message)
"""


@pytest.mark.skipif(os.name != "posix", reason="a limit on the size of files is POSIX's")
def test_a_write_that_failed_is_not_passed_over(path: Path) -> None:
    """Who catches what `append` raises gets no file with a hole."""
    before = path.read_bytes()
    command = [sys.executable, "-c", FULL_FILE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *codes, last = done.stdout.splitlines()
    assert set(codes) == {"MDLC1265"}
    assert last == f"at the end MDLC1265 {path} cannot be written: File too large"
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


class FullOnce:
    """A file that has no room for its write number `n`; then there is room again."""

    def __init__(self, file: BinaryIO, n: int) -> None:
        self.file, self.n = file, n

    def write(self, data: bytes) -> None:
        self.n -= 1
        if self.n == 0:
            raise OSError(errno.ESTALE, "Stale file handle")
        self.file.write(data)


def write_what_goes(path: Path) -> None:
    with RecordWriter(path, SCHEMA) as writer:
        for n in range(3):
            with contextlib.suppress(TrainError):
                writer.append(**record(n))


@pytest.mark.parametrize("n", [1, 2, 4, 5])
def test_nor_if_there_is_room_again(path: Path, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    """The header is write 1, the index write 5."""

    @contextlib.contextmanager
    def full_once(path: Path) -> Generator[FullOnce]:
        with atomic_file(path) as file:
            yield FullOnce(file, n)

    before = path.read_bytes()
    monkeypatch.setattr("minidlc.train.records.atomic_file", full_once)
    with pytest.raises(TrainError, match="cannot be written: Stale file handle") as raised:
        write_what_goes(path)
    assert raised.value.code == "MDLC1265"
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]
