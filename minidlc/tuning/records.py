"""What one trial gave, as a line of JSON that says all that is needed to run it again.

    r = Record.of(task, trial, seed=0)              # a Trial of a Task
    r.line                                          # '{"record": 1, "id": "3f2a9c04b1d7", …}'
    Record.parse(r.line) == r                       # True
    r.schedule().lower("kernel")                    # the loops again; no model is needed

A line holds the kernel as tensor expressions, the machine, threads, versions, the point with the
trace of its schedule, and what became of it. Names are those of the workload (workload.py), so the
line says nothing of the model it was found in. `Record.checked` is the last word on a kernel: the
winner against the default, measured in turns. docs/tuning_records.md lists the fields. Source of
the idea: the log files of AutoTVM (T. Chen et al., Learning to Optimize Tensor Programs, 2018).
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, cached_property, lru_cache
from importlib import import_module
from typing import Any

from minidlc.support.errors import CompileError, TuneError
from minidlc.support.timing import readable
from minidlc.target import Target
from minidlc.te import Schedule, Trace, create_schedule, parse_te, print_te
from minidlc.te.tensor import stages
from minidlc.tuning.fields import Fields, parsed
from minidlc.tuning.result import TaskResult
from minidlc.tuning.space import Config
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Fate, Trial
from minidlc.tuning.workload import Workload

VERSION = 1  # of the line's form


@dataclass(frozen=True)
class Record:
    """One trial of one kernel, or (with `default`) the re-check of a winner against the default.

    `op` names the kernel as the tuner did, `inputs` and `outputs` are the types of its tensors, for
    readers. `stages` are the tensor expressions that the trace schedules: the workload's own, or
    those that the way computes in their place. `steps` is the trace as JSON, "" where a primitive
    was refused. `default_seconds` go round by round with the seconds of the trial.
    """

    workload: Workload
    trial: Trial
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    stages: str
    steps: str
    seed: int
    default: Config | None
    default_seconds: tuple[float, ...]
    kit: str
    llvm: str

    @staticmethod
    def of(
        task: Task,
        trial: Trial,
        *,
        seed: int = 0,
        default: Config | None = None,
        default_seconds: tuple[float, ...] = (),
    ) -> Record:
        """The record of a trial; TuneError (MDLC1302, MDLC1303) if its point is none of them."""
        workload = task.workload
        own = canonical_task(workload)
        types = {t.name: str(t.type) for t in stages(own.group.outputs)}
        outputs = [t.name for t in own.group.outputs]
        made, steps = _scheduled(own, trial.config)
        return Record(
            workload,
            trial,
            task.name,
            tuple(types[name] for name in own.placeholders),
            tuple(types[name] for name in outputs),
            made,
            steps,
            seed,
            default,
            default_seconds,
            kit_version(),
            llvm_version(),
        )

    @staticmethod
    def checked(result: TaskResult, *, seed: int = 0) -> Record:
        """The record of the final re-check of a task: its winner and its default, in turns."""
        task = result.task
        trial = Trial(result.best, Fate.OK, result.best_seconds, by="re-check")
        pair = task.default, result.default_seconds
        return Record.of(task, trial, seed=seed, default=pair[0], default_seconds=pair[1])

    @property
    def config(self) -> Config:
        """The point that was tried."""
        return self.trial.config

    @property
    def is_check(self) -> bool:
        """True for a re-check of a winner, False for a trial of the search."""
        return self.default is not None

    @property
    def ratio(self) -> float | None:
        """Median seconds over those of the default: below 1 is faster; None for a mere trial."""
        if not self.is_check or self.trial.fate is not Fate.OK:
            return None
        return statistics.median(self.trial.seconds) / statistics.median(self.default_seconds)

    @cached_property
    def trace(self) -> Trace | None:
        """The schedule's primitives; None where one was refused. ParseError (MDLC034x)."""
        return Trace.from_json(self.steps) if self.steps else None

    def schedule(self) -> Schedule:
        """The schedule again, from the record alone.

        Raises TuneError (MDLC1347) for a record without a trace, ScheduleError where a primitive
        is refused, ParseError for texts that are damaged.
        """
        if self.trace is None:
            text = f"record {self.id} has no schedule: {self.trial.fate}: {self.trial.reason}"
            raise TuneError(text, hint="take one that ran: its fate is ok", code="MDLC1347")
        outputs = parse_te(self.stages or self.workload.text).outputs
        sch = create_schedule(outputs, constants=self.workload.constants, checked=False)
        for step in self.trace:
            sch.apply(step)
        return sch

    @cached_property
    def id(self) -> str:
        """Twelve digits of the digest of the content: two records of one id are the same."""
        return digest_of(self._content)

    @property
    def line(self) -> str:
        """The record as one line of JSON in ASCII, without a line break at its end."""
        head: dict[str, object] = {"record": VERSION, "id": self.id}
        return json.dumps(head | self._content, allow_nan=False)

    @cached_property
    def _content(self) -> dict[str, object]:
        work, trial = self.workload, self.trial
        return {
            "what": "checked" if self.is_check else "trial",
            "key": work.key,
            "op": plain(self.op),
            "kind": work.kind,
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "te": work.text,
            "anchor": work.anchor,
            "constants": list(work.constants),
            "target": asdict(work.target),
            "threads": work.threads,
            "kit": self.kit,
            "llvm": self.llvm,
            "config": _config(trial.config),
            "stages": self.stages,
            "trace": json.loads(self.steps) if self.steps else None,
            "fate": str(trial.fate),
            "seconds": [float(s) for s in trial.seconds],
            "reason": plain(trial.reason),
            "predicted": _finite(trial.predicted),
            "by": plain(trial.by),
            "figures": {
                plain(n): v for n, x in trial.figures.items() if (v := _finite(x)) is not None
            },
            "seed": int(self.seed),
            "default": None if self.default is None else _config(self.default),
            "default_seconds": [float(s) for s in self.default_seconds],
        }

    @staticmethod
    def parse(line: str | bytes) -> Record:
        """The record of a line; TuneError (MDLC1343) for what is none, or is not as it was written.

        Nothing is scheduled, and no tensor expression read: that is done when it is used.
        """
        row = Fields(parsed(line))
        form = row.take("record", int)
        if form != VERSION:
            row.refuse(f"is of version {form}, this minidlc reads {VERSION}")
        content = {name: value for name, value in row.items.items() if name not in ("record", "id")}
        try:
            own = digest_of(content)
        except ValueError:  # such as 1e999
            row.refuse("has a number that is too large")
        if row.take("id", str) != own:
            row.refuse("is not as it was written: its id is not that of its content")
        work = Workload(
            row.take("te", str),
            row.take("kind", str),
            row.take("anchor", str),
            row.texts("constants"),
            _target(row.inner("target")),
            row.take("threads", int),
        )
        if row.take("key", str) != work.key:
            row.refuse("has a key that is not that of its kernel")
        default = None if row.items.get("default") is None else row.inner("default").config()
        steps = row.items.get("trace")
        return Record(
            work,
            _trial(row),
            row.take("op", str),
            row.texts("inputs"),
            row.texts("outputs"),
            row.take("stages", str),
            "" if steps is None else json.dumps(steps),
            row.take("seed", int),
            default,
            row.seconds("default_seconds"),
            row.take("kit", str),
            row.take("llvm", str),
        )

    def __str__(self) -> str:
        """'record 3f2a9c04b1d7, 412 µs, 0.83 of the default'."""
        what = readable(self.trial.cost) if math.isfinite(self.trial.cost) else str(self.trial.fate)
        share = "" if self.ratio is None else f", {self.ratio:.2f} of the default"
        return f"record {self.id}, {what}{share}"


def _target(row: Fields) -> Target:
    triple, cpu, features = (row.take(name, str) for name in ("triple", "cpu", "features"))
    sizes = {name: row.take(name, int) for name in ("vector_bits", "registers", "l1", "l2")}
    return Target(triple, cpu, features, **sizes, precision=row.take("precision", str))


def _trial(row: Fields) -> Trial:
    fate = row.take("fate", str)
    if fate not in list(Fate):
        row.refuse(f"has the fate {fate!r}")
    seconds = row.seconds("seconds")
    if (fate == Fate.OK) != bool(seconds):
        row.refuse(f"has the fate {fate!r} and {len(seconds)} times")
    return Trial(
        row.inner("config").config(),
        Fate(fate),
        seconds,
        row.take("reason", str),
        None if row.items.get("predicted") is None else row.number("predicted"),
        row.take("by", str),
        row.inner("figures").numbers(),
    )


def _scheduled(task: Task, config: Config) -> tuple[str, str]:
    """Tensor expressions that are not the task's own ("" otherwise), and the trace as JSON."""
    task.way(config.way)
    task.space.check(config)
    try:
        sch = task.schedule(config)
    except CompileError:
        return "", ""
    made = print_te(sch.outputs)
    return "" if made == task.workload.text else made, sch.trace.to_json()


@lru_cache(maxsize=64)
def canonical_task(workload: Workload) -> Task:
    """The kernel of a workload under the workload's own names: what traces of records speak of."""
    return Task(workload.group, workload.kind, workload.target, workload.threads)


@cache
def kit_version() -> str:
    """The version of this package, such as '0.1.0'."""
    metadata: Any = import_module("importlib.metadata")  # slow to import: who tunes pays for it
    return str(metadata.version("minidlc"))


@cache
def llvm_version() -> str:
    """The version of LLVM that makes machine code here, such as '20.1.8'; '' without LLVM."""
    try:
        llvm: Any = import_module("llvmlite.binding")
    except ImportError:
        return ""
    return ".".join(map(str, llvm.llvm_version_info))


def digest_of(content: Mapping[str, object]) -> str:
    """Twelve digits that say the content of a line, whatever the order of its fields.

    ValueError for a number that is not finite.
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def plain(text: str) -> str:
    """A text that any reader of JSON takes: halves of surrogate pairs are replaced."""
    return text.encode("utf-8", "replace").decode()


def _config(config: Config) -> dict[str, object]:
    return {"way": config.way, "knobs": {name: int(value) for name, value in config.knobs}}


def _finite(number: float | None) -> float | None:
    """JSON has no word for infinity, nor for what is not a number."""
    return None if number is None or not math.isfinite(number) else float(number)
