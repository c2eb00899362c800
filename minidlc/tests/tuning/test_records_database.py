"""Databases: what is found, several writers, torn lines, joining and pruning, refusals."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minidlc.support.errors import OptionError, TuneError
from minidlc.tests.tuning.kernels import product, task_of
from minidlc.tuning import files
from minidlc.tuning.database import Database, why_default
from minidlc.tuning.records import Record
from minidlc.tuning.space import Config
from minidlc.tuning.trial import Fate, Trial

pytestmark = pytest.mark.ch06
TASK, OTHER = task_of(product()), task_of(product(m=8))
POINTS = list(TASK.space)[:6]


@cache
def plain(number: int) -> Record:
    """A record of a point; scheduling takes a few milliseconds."""
    return Record.of(TASK, Trial(POINTS[number], Fate.OK, (1.0,)))


def tried(seconds: float, number: int = 0, fate: Fate = Fate.OK) -> Record:
    times = (seconds,) if fate is Fate.OK else ()
    trial = Trial(POINTS[number], fate, times, "" if times else "no")
    return replace(plain(number), trial=trial)


def checked(seconds: float, default: float, number: int) -> Record:
    """A re-check of a point against point 0."""
    trial = Trial(POINTS[number], Fate.OK, (seconds,))
    return replace(plain(number), trial=trial, default=POINTS[0], default_seconds=(default,))


def holding(*records: Record) -> Database:
    database = Database()
    for record in records:
        database.append(record)
    return database


def test_the_stored_best_is_found() -> None:
    """FAULTS 150: the key of the look-up is the key it was stored with."""
    trials = [tried(3e-4), tried(1e-4, 1), tried(2e-4, 2), tried(0, 3, Fate.TIMEOUT)]
    database = holding(*trials, checked(1e-4, 3e-4, 1))
    best = database.best(task_of(product()).workload)
    assert best is not None
    assert best.config == POINTS[1]
    assert database.best(OTHER.workload) is None
    assert len(database.trials(TASK.workload)) == 4


def test_the_stored_best_is_found_in_another_process(tmp_path: Path) -> None:
    """FAULTS 150 once more: nothing of a key depends on the process."""
    path = tmp_path / "tune.jsonl"
    Database(path).append(checked(1e-4, 2e-4, 1))
    program = (
        "import sys\n"
        "from minidlc.tests.tuning.kernels import product, task_of\n"
        "from minidlc.tuning.database import Database\n"
        "print(Database(sys.argv[1]).best(task_of(product()).workload).config)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True)
    assert done.stdout.strip() == str(POINTS[1]), done.stderr


def test_trials_without_a_final_decide_nothing() -> None:
    database = holding(tried(3e-4), tried(1e-4, 1))
    assert database.best(TASK.workload) is None
    assert why_default(database.records) == "2 trials, no final yet: run minidlc tune again"


def test_the_winner_of_the_last_final_counts() -> None:
    first, second = checked(1.9e-4, 2e-4, 2), checked(3e-4, 4e-4, 3)
    assert holding(tried(1e-4, 1), first, tried(1e-5, 4)).best(TASK.workload) == first
    assert holding(first, second).best(TASK.workload) == second
    assert holding(second, first).best(TASK.workload) == first


def test_a_final_that_found_nothing_better_means_the_default() -> None:
    won = checked(1e-4, 2e-4, 1)
    for lost in (checked(2e-4, 2e-4, 0), checked(2.1e-4, 2e-4, 1), checked(2e-4, 2e-4, 2)):
        database = holding(tried(1e-4, 1), won, lost)
        assert database.best(TASK.workload) is None
        assert why_default(database.records) == "the default is the fastest known"
    failed = replace(won, trial=Trial(POINTS[1], Fate.CRASHED, reason="signal 11"))
    assert holding(won, failed).best(TASK.workload) is None


def test_a_point_that_was_ever_wrong_is_not_used() -> None:
    wrong, won = tried(0, 1, Fate.WRONG), checked(1e-4, 2e-4, 1)
    assert holding(wrong, won).best(TASK.workload) is None
    assert holding(won, wrong).best(TASK.workload) is None
    assert holding(wrong, checked(1e-4, 2e-4, 2)).best(TASK.workload) is not None


def test_queries() -> None:
    database = holding(tried(1e-4), tried(2e-4, 1), tried(0, 2, Fate.CRASHED))
    assert len(database.query(kind="matmul", op="kern", threads=1)) == 3
    assert len(database.query(fate="crashed")) == 1
    assert len(database.query(way=POINTS[0].way)) == 3
    assert (
        database.query(way="conv") == database.query(op="conv") == database.query(threads=2) == []
    )
    assert repr(database) == "<memory: 3 records of 1 kernel>"


def test_a_file_holds_what_was_added_and_nothing_is_read_twice(tmp_path: Path) -> None:
    path = tmp_path / "new" / "tune.jsonl"
    database = Database(path)
    assert not path.parent.exists()
    records = [tried(1e-4), tried(2e-4, 1)]
    for record in records:
        database.append(record)
    assert list(database.records) == list(Database(str(path)).records) == records
    assert path.read_bytes() == b"".join(r.line.encode() + b"\n" for r in records)


@pytest.mark.parametrize("cut", [1, 40, -1])
def test_a_torn_last_line_costs_that_line_only(cut: int, tmp_path: Path) -> None:
    path, line = tmp_path / "tune.jsonl", tried(5e-5, 1).line.encode()
    Database(path).append(tried(1e-4))
    with path.open("ab") as file:
        file.write(line[:cut])
    database = Database(path)
    assert [str(r) for r in database.refused] == [
        "tune.jsonl:2: the last line is cut off [MDLC1343]"
    ]
    database.append(tried(2e-4, 2))
    again = Database(path)
    assert [r.trial.cost for r in again.records] == [1e-4, 2e-4]
    assert len(again.refused) == 1


def test_a_last_line_without_its_line_break_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "tune.jsonl"
    path.write_bytes(tried(1e-4).line.encode())
    assert len(Database(path)) == 1
    Database(path).append(tried(2e-4, 1))
    assert len(Database(path)) == 2


WRITER = """
import sys
from pathlib import Path
from minidlc.tuning import files
path, name = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for n in range(200):
    files.append(path, f"{name} {n} {name * 3000}".encode())
    if n % 50 == 49:
        files.rewrite(path, lambda old: old)
"""


def writers(path: Path, names: str) -> Iterator[subprocess.Popen[str]]:
    for name in names:
        command = [sys.executable, "-c", WRITER, str(path), name]
        pipe = subprocess.PIPE
        yield subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)


def test_two_processes_that_add_and_rewrite_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    running = list(writers(path, "ab"))
    for process in running:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.wait(60) for process in running] == [0, 0]
    lines = path.read_text().splitlines()
    wanted = {f"{name} {n} {name * 3000}" for name in "ab" for n in range(200)}
    assert len(lines) == 400
    assert set(lines) == wanted
    for process in running:
        process.communicate()
    assert sorted(p.name for p in tmp_path.iterdir()) == [".lines.lock", "lines"]


def test_a_killed_writer_leaves_what_it_had_written(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    (process,) = writers(path, "k")
    assert process.stdin
    process.stdin.write("go\n")
    process.stdin.flush()
    while not path.exists() or path.stat().st_size < 20_000:
        assert process.poll() is None
    process.kill()
    process.communicate()
    files.append(path, b"after")  # its lock is gone with it
    lines = path.read_text().splitlines()
    assert lines[-1] == "after"
    assert lines[:-1] == [f"k {n} {'k' * 3000}" for n in range(len(lines) - 1)]


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tune.jsonl"
    database = Database(path)
    database.append(tried(1e-4))
    before, write = path.read_bytes(), os.write
    monkeypatch.setattr(files.os, "write", lambda handle, data: write(handle, data[:100]))
    with pytest.raises(TuneError, match=r"MDLC1342.*the disk is full"):
        database.append(tried(2e-4, 1))
    assert path.read_bytes() == before
    assert len(database) == 1


def test_what_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "a\0b"):
        with pytest.raises(TuneError, match="MDLC1340"):
            Database(path)
    with pytest.raises(OptionError, match="MDLC1001"):
        Database(5)  # pyright: ignore[reportArgumentType]
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(TuneError, match=r"MDLC1340.*no regular file"):
            Database(tmp_path / "pipe")


def test_what_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TuneError, match="MDLC1342"):
        files.append(tmp_path / "file" / "tune.jsonl", b"x")
    with pytest.raises(TuneError, match=r"MDLC1342.*no regular file"):
        files.append(tmp_path, b"x")


def test_what_can_be_written_is_known_before(tmp_path: Path) -> None:
    path = tmp_path / "new" / "tune.jsonl"
    Database(path).check_writable()
    assert not path.exists()
    Database(path).append(tried(1e-4))
    before = path.read_bytes()
    Database(path).check_writable()
    assert path.read_bytes() == before
    with pytest.raises(TuneError, match="MDLC1342"):
        files.check_writable(path / "tune.jsonl")


def test_a_file_that_is_read_only_is_known_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "tune.jsonl", os.open
    Database(path).append(tried(1e-4))

    def opened(place: Path, flags: int, mode: int = 0o777) -> int:
        if Path(place).name == path.name and flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied")
        return real(place, flags, mode)

    monkeypatch.setattr(os, "open", opened)
    with pytest.raises(TuneError, match="MDLC1342"):
        Database(path).check_writable()


@pytest.mark.parametrize("text", [b"\x08\x0a\x12 onnx", b"my notes\nof today\n", b"[1]\n", b"{}\n"])
def test_a_file_of_something_else_is_not_touched(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(text)
    database = Database(path)
    changes: list[Callable[[], object]] = [
        database.check_writable,
        lambda: database.append(tried(1e-4)),
        lambda: database.merge(holding(tried(1e-4))),
        lambda: database.prune(1),
    ]
    for change in changes:
        with pytest.raises(TuneError, match=r"MDLC1349.*is no file of tuning records"):
            change()
    assert path.read_bytes() == text


@pytest.mark.parametrize("keep", [1, 9, 10, 11, 200, -2])
def test_what_is_left_of_a_record_is_ours(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "tune.jsonl"
    path.write_bytes(tried(1e-4).line.encode()[:keep])
    database = Database(path)
    database.append(tried(2e-4, 1))
    assert len(Database(path)) == 1


def test_records_of_other_versions_are_refused() -> None:
    older, other = replace(tried(1e-4), kit="0.0.9"), replace(tried(1e-4, 1), llvm="14.0.6")
    database = holding(older, other, tried(3e-4, 2))
    assert database.records == (tried(3e-4, 2),)
    assert [r.code for r in database.refused] == ["MDLC1344", "MDLC1344"]
    reasons = [r.reason for r in database.refused]
    assert reasons[0].startswith(f"record {older.id} is of minidlc 0.0.9, here is ")
    assert reasons[1].startswith(f"record {other.id} is of LLVM 14.0.6, here is ")


def test_joining_takes_each_record_once(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for path, records in ((first, [tried(1e-4), tried(2e-4, 1)]), (second, [tried(2e-4, 1)])):
        for record in records:
            Database(path).append(record)
    database = Database(second)
    with second.open("ab") as file:  # by another process, after it was opened
        file.write(tried(5e-4, 3).line.encode() + b"\ntorn")
    assert database.merge(first, holding(tried(3e-4, 2))) == 2
    assert sorted(r.trial.cost for r in database.records) == [1e-4, 2e-4, 3e-4, 5e-4]
    assert len(database.refused) == 1
    assert database.merge(first) == 0
    with pytest.raises(TuneError, match="MDLC1341"):
        database.merge(tmp_path / "c.jsonl")
    memory = Database()
    assert memory.merge(first) == 2
    assert len(memory) == 2


def test_pruning_keeps_the_fastest_and_the_re_checks(tmp_path: Path) -> None:
    path = tmp_path / "tune.jsonl"
    times = [3e-4, 1e-4, 4e-4, 2e-4]
    records = [tried(t, n) for n, t in enumerate(times)]
    records += [checked(2e-4, 3e-4, 3), tried(0, 4, Fate.CRASHED), tried(0, 5, Fate.WRONG)]
    records += [Record.of(OTHER, Trial(OTHER.default, Fate.OK, (1.0,)))]
    for record in (*records, replace(records[0], kit="0.0.9")):
        Database(path).append(record)
    database = Database(path)
    assert database.prune(keep=2) == 4
    kept = [r.trial.cost for r in database.records]
    assert kept == [1e-4, 2e-4, 2e-4, float("inf"), 1.0]
    assert Database(path).records == database.records
    assert not database.refused
    with pytest.raises(TuneError, match="MDLC1348"):
        database.prune(keep=0)
    with pytest.raises(OptionError, match="MDLC1001"):
        database.prune(keep=True)


RECORDS = st.lists(
    st.builds(tried, st.floats(1e-6, 1e-3), st.integers(0, 5), st.sampled_from(Fate))
    | st.builds(checked, st.floats(1e-6, 1e-3), st.floats(1e-6, 1e-3), st.integers(0, 5)),
    max_size=12,
)


@given(RECORDS, st.integers(1, 3))
def test_pruning_changes_no_answer(records: list[Record], keep: int) -> None:
    database = holding(*records)
    best = database.best(TASK.workload)
    database.prune(keep=keep)
    assert database.best(TASK.workload) == best


LINE = tried(1e-4).line.encode()


@given(st.lists(st.binary(max_size=60) | st.just(LINE) | st.just(LINE[:200]), max_size=6))
def test_any_bytes_are_a_database(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(b"\n".join(pieces))
    database = Database(path)
    whole = sum(piece == LINE for piece in pieces)
    assert len(database) == whole
    if whole:
        assert database.records[0] == tried(1e-4)


@given(st.integers(0, len(LINE) - 1), st.integers(0, 7))
def test_a_flipped_bit_is_noticed(place: int, bit: int) -> None:
    """A space turned into another white space says the same; nothing else is taken for the line."""
    damaged = bytearray(LINE)
    damaged[place] ^= 1 << bit
    found = None
    with contextlib.suppress(TuneError):
        found = Record.parse(bytes(damaged))
    assert found in (None, tried(1e-4))


def test_records_of_any_seed_are_different_points(tmp_path: Path) -> None:
    """A whole search's records, read back in order."""
    path, rng = tmp_path / "tune.jsonl", Random(0)
    found = [TASK.space.random(rng) for _ in range(10)]
    for n, config in enumerate(found):
        Database(path).append(Record.of(TASK, Trial(config, Fate.OK, (1e-4 + n * 1e-6,)), seed=n))
    read = Database(path).trials(TASK.workload)
    assert [r.config for r in read] == found
    assert [r.seed for r in read] == list(range(10))
    assert all(json.loads(r.line)["id"] == r.id for r in read)
    assert all(isinstance(r.config, Config) for r in read)
