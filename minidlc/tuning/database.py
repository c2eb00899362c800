"""Records of many kernels in one file, and which of them is best for a kernel.

    database = Database("tune.jsonl")               # Database() keeps them in memory only
    database.append(Record.of(task, trial))
    database.best(task.workload)                    # Record, or None: take the default
    database.refused                                # lines that are not used, each with its reason

A file may be copied, joined with others, and cut short by a kill at any byte: what cannot be used
is refused with a reason and never in the way. Records of another machine, thread count or precision
are no fault of a file: they are found under their own workload only (lookup.py says why a compile
takes none of them). Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType

from minidlc.support.arguments import expect
from minidlc.support.errors import TuneError
from minidlc.tuning import files
from minidlc.tuning.records import Record, kit_version, llvm_version
from minidlc.tuning.trial import Fate
from minidlc.tuning.workload import Workload

_BEGIN = b'{"record": '  # of each line: what a killed writer leaves of it is still ours


@dataclass(frozen=True)
class Refused:
    """A line that is not used: where it stands, why, and the record if it could be read."""

    place: str  # "tune.jsonl:12"
    code: str
    reason: str
    record: Record | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.reason} [{self.code}]"


@dataclass(frozen=True)
class _Line:
    text: bytes
    record: Record | None
    refused: Refused | None

    @property
    def is_ours(self) -> bool:
        """True for a record, of whatever version, and for what is left of one."""
        known = self.record is not None or (self.refused is not None and self.refused.record)
        return bool(known) or self.text.lstrip().startswith(_BEGIN[: len(self.text)])


class Database:
    """The records of a file, read when it is opened; `append` adds to both.

    A file that is not there yet is made by the first `append`. Raises OptionError (MDLC1001) for
    what is no path, TuneError: MDLC1340 a file that cannot be read, 1342 one that cannot be
    written, 1349 (when it is to be changed) one that holds something else than records.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        expect("Database", "path", path, str, os.PathLike, NoneType)
        self.path = None if path is None else Path(os.fsdecode(path))
        self._reset(self._read())

    def check_writable(self) -> None:
        """Raise what `append` would: TuneError (MDLC1342, MDLC1349). Nothing is written."""
        if self.path is not None:
            self.check_ours()
            files.check_writable(self.path)

    def check_ours(self) -> None:
        """TuneError (MDLC1349) if the file holds lines, and none of them ever was a record."""
        if self._is_strange:
            text = f"{str(self.path)!r} is no file of tuning records"
            hint = "give the name of a new file, or of one that mc.tune has made"
            raise TuneError(text, notes=[str(self._refused[0])], hint=hint, code="MDLC1349")

    @property
    def records(self) -> tuple[Record, ...]:
        """The records that may be used, in the order of the file."""
        return tuple(self._records)

    @property
    def refused(self) -> tuple[Refused, ...]:
        """What stands in the file and is not used."""
        return tuple(self._refused)

    def append(self, record: Record) -> None:
        """Add a record; the line is in the file when this returns."""
        expect("Database.append", "record", record, Record)
        if self.path is not None:
            self.check_ours()
            files.append(self.path, record.line.encode())
        self._take(_judged(record, "appended"))

    def best(self, workload: Workload) -> Record | None:
        """What to use for a kernel on its machine and threads; None for the compiler's default."""
        return best_of(self._by_key.get(workload.key, ()))

    def trials(self, workload: Workload) -> list[Record]:
        """The trials of a kernel, in order; re-checks are left out."""
        return [r for r in self._by_key.get(workload.key, ()) if not r.is_check]

    def query(
        self,
        *,
        kind: str | None = None,
        op: str | None = None,
        way: str | None = None,
        fate: Fate | str | None = None,
        threads: int | None = None,
    ) -> list[Record]:
        """The records that agree in all that is given: `op` is the kernel's name, or a part."""
        return [
            r
            for r in self._records
            if kind in (None, r.workload.kind)
            and (op is None or op in r.op)
            and way in (None, r.config.way)
            and (fate is None or str(fate) == str(r.trial.fate))
            and threads in (None, r.workload.threads)
        ]

    def workloads(self) -> dict[str, list[Record]]:
        """The records by key of their kernel, in the order of the file."""
        return {key: list(records) for key, records in self._by_key.items()}

    def merge(self, *others: str | os.PathLike[str] | Database) -> int:
        """Add the records of others that are not here yet; returns how many.

        TuneError (MDLC1341) for a file that is not there. Records with one id are the same.
        """
        opened = [o if isinstance(o, Database) else existing(o, "merge") for o in others]
        added = 0

        def change(old: bytes) -> bytes:
            nonlocal added
            known = {line.record.id for line in _lines(old, self._name) if line.record}
            new = {r.id: r for o in opened for r in o._records if r.id not in known}
            added = len(new)
            start = b"" if not old or old.endswith(b"\n") else b"\n"
            return old + start + b"".join(r.line.encode() + b"\n" for r in new.values())

        self._change(change)
        return added

    def prune(self, keep: int = 8) -> int:
        """Keep of each kernel its re-checks and the `keep` fastest trials; returns how many went.

        What cannot be used goes as well; records of other machines stay, each with their kernel.
        `best` answers as before. TuneError (MDLC1348) for less than 1.
        """
        expect("prune", "keep", keep, int)
        if keep < 1:
            text = f"prune: keep is {keep}, expected at least 1"
            raise TuneError(text, hint="the number of trials a kernel", code="MDLC1348")
        gone = 0

        def change(old: bytes) -> bytes:
            nonlocal gone
            lines = list(_lines(old, self._name))
            kept = dict[str, Record]()
            for record in _worth_keeping([x.record for x in lines if x.record], keep):
                kept.pop(record.id, None)  # of two the later stays: the last re-check counts
                kept[record.id] = record
            gone = len(lines) - len(kept)
            return b"".join(r.line.encode() + b"\n" for r in kept.values())

        self._change(change)
        return gone

    def _change(self, change: files.Change) -> None:
        """Rewrite the file, or what memory holds in its place, and read the result."""
        if self.path is None:
            old = b"".join(r.line.encode() + b"\n" for r in self._records)
            self._reset(_lines(change(old), self._name))
        else:
            self.check_ours()
            files.rewrite(self.path, change)
            self._reset(self._read())

    @property
    def _name(self) -> str:
        return "memory" if self.path is None else self.path.name

    def _read(self) -> Iterator[_Line]:
        data = None if self.path is None else files.read(self.path)
        return _lines(data or b"", self._name)

    def _reset(self, lines: Iterable[_Line]) -> None:
        self._records: list[Record] = []
        self._refused: list[Refused] = []
        self._by_key: defaultdict[str, list[Record]] = defaultdict(list)
        read = list(lines)
        self._is_strange = bool(read) and not any(line.is_ours for line in read)
        for line in read:
            self._take(line)

    def _take(self, line: _Line) -> None:
        if line.refused:
            self._refused.append(line.refused)
        elif line.record:
            self._records.append(line.record)
            self._by_key[line.record.workload.key].append(line.record)

    def __len__(self) -> int:
        return len(self._records)

    def __bool__(self) -> bool:
        return True  # an empty database is one too

    def __repr__(self) -> str:
        refused = f", {len(self._refused)} refused" if self._refused else ""
        return f"<{self._name}: {len(self)} records of {_kernels(len(self._by_key))}{refused}>"


def _kernels(count: int) -> str:
    return f"{count} kernel{'s' * (count != 1)}"


def existing(path: str | os.PathLike[str], who: str) -> Database:
    """The database of a file that must be there.

    TuneError: MDLC1341 for a misspelt name, MDLC1349 for a file of something else.
    """
    database = Database(path)
    if database.path is not None and not database.path.exists():
        raise TuneError(
            f"{who}: there is no database {str(database.path)!r}",
            hint="mc.tune and `minidlc tune` make one; an empty file is one too",
            code="MDLC1341",
        )
    database.check_ours()
    return database


def best_of(records: Sequence[Record]) -> Record | None:
    """The record to use of one kernel's: what won its last final; None for the default.

    Trials alone decide nothing: their times are of different moments. Neither does an earlier
    final: its winner has lost since, alone or inside a model. A point that ever gave a wrong
    result is never used.
    """
    last = next((r for r in reversed(records) if r.is_check), None)
    if last is None or last.config == last.default or last.ratio is None or last.ratio >= 1:
        return None
    is_wrong = any(r.config == last.config and r.trial.fate is Fate.WRONG for r in records)
    return None if is_wrong else last


def records_a_final(records: Sequence[Record]) -> bool:
    """True once a winner and the default were measured in turns."""
    return any(r.is_check for r in records)


def why_default(records: Sequence[Record]) -> str:
    """Why none of a kernel's records is used, where `best_of` finds none."""
    last = next((r for r in reversed(records) if r.is_check), None)
    if last is not None:
        where = f" {last.trial.by}: {last.trial.reason}" if last.trial.reason else ""
        return f"the default is the fastest known{where}"
    ran = sum(r.trial.fate is Fate.OK for r in records)
    if not ran:
        return f"all {len(records)} trials on record failed"
    count = "1 trial" if len(records) == 1 else f"{len(records)} trials"
    return f"{count}, no final yet: run minidlc tune again"


def _worth_keeping(records: Iterable[Record], keep: int) -> Iterator[Record]:
    """Of each kernel: re-checks, points that gave wrong results, and the fastest trials."""
    kernels: defaultdict[str, list[Record]] = defaultdict(list)
    for record in records:
        kernels[record.workload.key].append(record)
    for found in kernels.values():
        wrong = {r.config for r in found if r.trial.fate is Fate.WRONG}
        trials = [r for r in found if not r.is_check and r.trial.fate is Fate.OK]
        trials = [r for r in trials if r.config not in wrong]
        fastest = {r.id for r in sorted(trials, key=lambda r: r.trial.cost)[:keep]}
        for r in found:
            if r.is_check or r.trial.fate is Fate.WRONG or r.id in fastest:
                yield r


def _lines(data: bytes, name: str) -> Iterator[_Line]:
    """Every line that is not empty, with its record or the reason why there is none."""
    rows = data.split(b"\n")
    for number, text in enumerate(rows, 1):
        if not text.strip():
            continue
        place = f"{name}:{number}"
        try:
            record = Record.parse(text)
        except TuneError as e:
            torn = number == len(rows)  # no line break: whoever wrote it was stopped
            reason = "the last line is cut off" if torn else e.message
            yield _Line(text, None, Refused(place, e.code, reason))
        else:
            yield _judged(record, place, text)


def _judged(record: Record, place: str, text: bytes = b"") -> _Line:
    """The record, or why it is stale: times and traces of other versions say nothing here."""
    for what, theirs, ours in (
        ("minidlc", record.kit, kit_version()),
        ("LLVM", record.llvm, llvm_version()),
    ):
        if theirs != ours:
            reason = f"record {record.id} is of {what} {theirs or 'none'}, here is {ours or 'none'}"
            return _Line(text, None, Refused(place, "MDLC1344", reason, record))
    return _Line(text, record, None)
