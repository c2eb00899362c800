"""The best records for one machine, as the compiler asks for them, kernel by kernel.

    known = Snapshot.of(Database("tune.jsonl"), target, threads=1)
    known(express_node(node))                       # Choice: a way and its knobs
    known.fingerprint                               # changes when other records win

A snapshot does not see what is added to its file later: all kernels of a model, and what is
compiled for other sizes at a later call, are decided by the same records. A record that was found
and is not used is a `NotTaken` with the reason: it was made on another machine, for other threads,
by another version, or its schedule is no longer the one that was measured. Treated in course
chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TypeAlias

from minidlc.codegen.cache import digest
from minidlc.graph import Graph
from minidlc.lower.express import Expressed
from minidlc.lower.kernels import NotTaken
from minidlc.schedules import Choice
from minidlc.support.errors import CompileError, TuneError
from minidlc.target import Target
from minidlc.transform import Pipeline
from minidlc.tuning import layouts
from minidlc.tuning.database import Database, best_of, records_a_final, why_default
from minidlc.tuning.records import Record, canonical_task
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Fate
from minidlc.tuning.workload import Workload, is_tunable

Computation: TypeAlias = tuple[str, str, str, tuple[str, ...]]


@dataclass(frozen=True)
class Snapshot:
    """The record to use of each workload, by key, and why others are not used, by computation."""

    target: Target
    threads: int
    records: Mapping[str, Record]
    others: Mapping[Computation, NotTaken]
    note: str = ""  # why all of the database is of no use here, and what to do

    @staticmethod
    def of(database: Database, target: Target, threads: int) -> Snapshot:
        """What the database knows of a machine now."""
        best = dict[str, Record]()
        others = dict(_foreign(database, target, threads))
        for key, records in database.workloads().items():
            work = records[0].workload
            if (work.target, work.threads) != (target, threads):
                continue
            if found := best_of(records):
                best[key] = found
            else:
                others[_computation(work)] = NotTaken(why_default(records), brief=_brief(records))
        return Snapshot(target, threads, best, others, _other_threads(database, target, threads))

    @staticmethod
    def unused(target: Target, threads: int) -> Snapshot:
        """For a compilation whose level takes no records."""
        note = "the database is not used: records are taken with opt_level=3 only"
        return Snapshot(target, threads, {}, {}, note)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of all that may decide machine code; "" if nothing does."""
        found = sorted(record.id for record in self.records.values())
        return digest(*found) if found else ""

    def best(self, workload: Workload) -> Record | None:
        """The record to use of a workload, if there is one."""
        return self.records.get(workload.key)

    @property
    def without_layouts(self) -> Snapshot:
        """The same for a caller who decides himself which passes a model goes through."""
        kernels = {key: r for key, r in self.records.items() if r.workload.kind != layouts.KIND}
        return replace(self, records=kernels)

    def passes(self, passes: Pipeline, graph: Graph) -> tuple[Pipeline, str]:
        """The pipeline with the fastest layout of images on record for this graph, and a line for
        the report; `passes` and "" if there is none."""
        record = self.best(layouts.model_workload(graph, self.target, self.threads))
        found = layouts.chosen(passes, record, self.target)
        if record is None or found is passes:
            return passes, ""
        return found, f"layout of images: {record.config}, {record}"

    def __call__(self, expressed: Expressed) -> Choice | NotTaken | None:
        """What the compiler is to take for a kernel; None if no record is of it."""
        if not is_tunable(expressed.group):
            return None
        work = Workload.of(expressed.group, expressed.kind, self.target, self.threads)
        record = self.best(work)
        if record is None:
            return self.others.get(_computation(work))
        try:
            check_schedule(record)
        except CompileError as e:
            return NotTaken(f"record {record.id}: {e.message}", e.code)
        task = Task(expressed.group, expressed.kind, self.target, self.threads)
        return task.choice(record.config, str(record))


def check_schedule(record: Record) -> None:
    """Raise unless the record's point still means the schedule that was measured.

    TuneError: MDLC1302, 1303 the point is gone, 1346 its schedule is another; ScheduleError where
    it is illegal by now.
    """
    own = canonical_task(record.workload)
    own.way(record.config.way)
    own.space.check(record.config)
    if own.schedule(record.config).trace != record.trace:
        text = f"the schedule of {record.config} is no longer the one that was measured"
        raise TuneError(text, hint="tune the kernel again", code="MDLC1346")


def _other_threads(database: Database, target: Target, threads: int) -> str:
    """Where this machine has records, but none for so many threads: that, and what to do."""
    known = {r.workload.threads for r in database.records if r.workload.target == target}
    if not known or threads in known:
        return ""
    listed = " and ".join(f"threads={n}" for n in sorted(known))
    text = f"no record is taken: they are for {listed}, and this is compiled for threads={threads}"
    return f"{text}; compile with threads={min(known)}, or tune with threads={threads}"


def _foreign(
    database: Database, target: Target, threads: int
) -> Iterator[tuple[Computation, NotTaken]]:
    """Kernels of which a record of another version, machine or thread count exists."""
    for refused in database.refused:
        if refused.record is not None:
            yield _computation(refused.record.workload), NotTaken(refused.reason, refused.code)
    for record in database.records:
        if reason := foreign(record, target, threads):
            reason = f"record {record.id} is {reason}"
            yield _computation(record.workload), NotTaken(reason, "MDLC1345")


def foreign(record: Record, target: Target, threads: int) -> str:
    """Why a record says nothing of this compilation: 'for 2 threads, not 1'; "" if it does."""
    work = record.workload
    if work.threads != threads:
        return f"for {work.threads} thread{'s' * (work.threads != 1)}, not {threads}"
    return foreign_machine(work.target, target)


def foreign_machine(other: Target, target: Target) -> str:
    """What of another machine differs from this one, such as 'of cpu i486, not znver4'."""
    for field in fields(Target):
        theirs, ours = getattr(other, field.name), getattr(target, field.name)
        if theirs != ours and field.name == "features":
            known = {name for name in theirs.split(",") if name.startswith("+")}
            here = {name for name in ours.split(",") if name.startswith("+")}
            differing = sorted(known ^ here) or ["how they are written"]
            return f"of a machine with other features: {', '.join(differing[:4])}"
        if theirs != ours:
            return f"of {field.name} {theirs}, not {ours}"
    return ""


def _computation(work: Workload) -> Computation:
    """What a kernel computes, whatever the machine."""
    return work.text, work.kind, work.anchor, work.constants


def _brief(records: Sequence[Record]) -> str:
    """What a summary counts a kernel as that keeps its default."""
    if records_a_final(records):
        return "best by default"
    ran = any(r.trial.fate is Fate.OK for r in records)
    return "with trials, no final" if ran else "with failed trials only"
