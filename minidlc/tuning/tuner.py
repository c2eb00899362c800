"""Tune one kernel: the compiler's own choice first, a guided search, a fair final, a record.

    with LocalMeasurer() as m:
        r = tune_task(task, m, trials=64, seed=0, database=Database("tune.jsonl"))
    r.best, r.ratio, r.interval                     # gemm(rows=6, …), 0.83, (0.81, 0.85)

Reads a `Task` and what the database knows of it, writes a `TaskResult` and a record for each trial
as it ends. The times of a search were taken at different moments, so its fastest points and the
default take turns in a final; a winner must be faster there with certainty, or the default stays.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from minidlc.expr.types import Array
from minidlc.support import extension
from minidlc.support.arguments import expect
from minidlc.support.errors import CompileError, TuneError
from minidlc.support.timing import ratio_interval
from minidlc.tuning.database import Database
from minidlc.tuning.kernel import KernelProblem
from minidlc.tuning.measure import Measurer
from minidlc.tuning.model import best_model
from minidlc.tuning.problem import CostModel, Samples, Search, explore
from minidlc.tuning.records import Record
from minidlc.tuning.result import TaskResult
from minidlc.tuning.search import Evolution
from minidlc.tuning.space import Config, Space
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Fate, Trial, best, why_none

FINALISTS = 3  # besides the default
FAR = 1.05  # times the default's time in the search
ROUNDS = 15
BATCH = 8
_OURS = {"search", "cost_model"}  # parts that change which points are tried, not what they are

Told = Callable[[Trial], None]


def tune_task(
    task: Task,
    measurer: Measurer,
    *,
    trials: int = 64,
    seed: int = 0,
    search: Search | None = None,
    model: CostModel | None = None,
    database: Database | None = None,
    known: Sequence[Samples] = (),
    told: Told | None = None,
) -> TaskResult:
    """Try up to `trials` points of a kernel; what the database holds of it counts among them.

    By default evolution searches, guided by `best_model()`; `known` are samples of other kernels.
    `told` hears of each new trial. Raises TuneError (MDLC1350) for less than one trial, TuneError
    where every trial failed (MDLC1351) or the default cannot be measured in the final (MDLC1352),
    or for a database while a part of the compiler is replaced (MDLC1354).
    """
    check_count("tune_task", "trials", trials)
    if database is not None:
        check_records("tune_task")
    run = TaskRun(task, measurer, seed, search, model, database, told)
    run.explore(trials, known)
    return run.result()


def check_count(who: str, name: str, value: object) -> None:
    """TuneError (MDLC1350) unless the value is a whole number from 1."""
    expect(who, name, value, int, np.integer)
    if value < 1:  # pyright: ignore[reportOperatorIssue, reportUnknownVariableType]
        text = f"{who}: {name} is {value}, expected at least 1"
        raise TuneError(text, hint=f"{name}=64", code="MDLC1350")


def check_records(who: str) -> None:
    """TuneError (MDLC1354) while a part of the compiler is replaced: its times are not ours."""
    parts = {name for name in extension.known() if extension.overridden(name)} - _OURS
    if parts:
        text = f"{who}: {', '.join(sorted(parts))} is replaced, so nothing is written to a database"
        hint = "database=None measures without records; only search and cost_model may be replaced"
        raise TuneError(text, hint=hint, code="MDLC1354")


class TaskRun:
    """A task while it is tuned, in one piece or a few trials at a time."""

    def __init__(
        self,
        task: Task,
        measurer: Measurer,
        seed: int = 0,
        search: Search | None = None,
        model: CostModel | None = None,
        database: Database | None = None,
        told: Told | None = None,
    ) -> None:
        self.task, self.measurer, self.seed = task, measurer, seed
        self.search, self.model = search or Evolution(), model or best_model()
        self.database, self.told = database, told
        self.kernel = KernelProblem(task, measurer)
        self.trials: list[Trial] = list(_recalled(task, database))
        self.recalled = len(self.trials)
        self.is_done = False  # nothing is left to try
        self.curve = [self.cost]  # least seconds before the first batch and after each

    @property
    def cost(self) -> float:
        """The least seconds so far; infinite before a trial ran."""
        found = best(self.trials)
        return float("inf") if found is None else found.cost

    def explore(self, trials: int, known: Sequence[Samples] = (), batch: int = BATCH) -> None:
        """Go on until `trials` points were tried, or the search has no more."""
        found = explore(
            _Once(self.kernel, {t.config: t for t in self.trials}),
            self.search,
            trials=trials,
            seed=self.seed,
            batch=batch,
            model=self.model,
            known=known,
            first=_first(self.task),
            earlier=self.trials,
            told=self._ended,
        )
        self.is_done = len(found) < trials
        self.curve.append(self.cost)

    def _ended(self, trial: Trial) -> None:
        self.trials.append(trial)
        if self.database is not None:
            self.database.append(Record.of(self.task, trial, seed=self.seed))
        if self.told:
            self.told(trial)

    @property
    def samples(self) -> Samples:
        """What other kernels can learn from the trials: those that have loops."""
        rows = self.kernel.features([t.config for t in self.trials])
        sound = ~np.isnan(rows).any(axis=1)
        return Samples(rows[sound], np.array([t.cost for t in self.trials])[sound])

    def result(self, count: int = 1, rounds: int = ROUNDS) -> TaskResult:
        """The winner of the final, which is recorded; TuneError (MDLC1351, MDLC1352)."""
        if not any(t.fate is Fate.OK for t in self.trials):
            text = f"{self.task.name}: no trial ran: {why_none(self.trials)}"
            hint = "the compiler's own choice stays; the counts say at which stage trials end"
            raise TuneError(text, hint=hint, code="MDLC1351")
        configs = [self.task.default, *self._finalists()]
        if len(configs) == 1 and (found := self._as_default(count)):
            result = replace(found, is_checked=True)  # nothing came near the default
        else:
            times = self.measurer.recheck(self.task, configs, rounds)
            if not times[0]:
                raise self._no_default()
            winner = _winner(times)
            series = times[0], times[winner]
            result = TaskResult(self.task, tuple(self.trials), configs[winner], *series, count)
        if self.database is not None:
            self.database.append(Record.checked(result, seed=self.seed))
        return result

    def _no_default(self) -> TuneError:
        default = next((t for t in self.trials if t.config == self.task.default), None)
        why = "" if default is None else f": in the search it was {default.fate}"
        text = f"{self.task.name}: the compiler's own choice cannot be measured{why}"
        return TuneError(text, hint="without it nothing can be called better", code="MDLC1352")

    def unchecked(self, count: int = 1) -> TaskResult | None:
        """Where there is no time for a final: what won the last one, else the default.

        None before the default ran. A winner of the search alone is none.
        """
        last = self._champion()
        if last is None:
            return self._as_default(count)
        trials, before, after = tuple(self.trials), last.default_seconds, last.trial.seconds
        return TaskResult(self.task, trials, last.config, before, after, count)

    def _champion(self) -> Record | None:
        """What won the last final on record, if it is still a point."""
        last = None if self.database is None else self.database.best(self.task.workload)
        return last if last is not None and last.config in self.task.space else None

    def _as_default(self, count: int) -> TaskResult | None:
        default = next((t for t in self.trials if t.config == self.task.default), None)
        if default is None or default.fate is not Fate.OK:
            return None
        trials, seconds = tuple(self.trials), default.seconds
        return TaskResult(self.task, trials, default.config, seconds, seconds, count, False)

    def _finalists(self) -> list[Config]:
        """The fastest points whose loops are not those of the default or of each other.

        None that is far behind the default: a final would not turn that round. What won an earlier
        final defends its place.
        """
        default = next((t.cost for t in self.trials if t.config == self.task.default), math.inf)
        found, seen = list[Config](), {_loops(self.task, self.task.default)}
        if last := self._champion():
            found.append(last.config)
            seen.add(_loops(self.task, last.config))
        for trial in sorted(self.trials, key=lambda t: t.cost):
            if trial.cost > FAR * default or trial.fate is not Fate.OK or len(found) == FINALISTS:
                break
            if (text := _loops(self.task, trial.config)) not in seen:
                seen.add(text)
                found.append(trial.config)
        return found


def _winner(times: Sequence[tuple[float, ...]]) -> int:
    """The fastest that is faster than the first with certainty; else the first."""
    default = times[0]
    sure = [i for i, t in enumerate(times) if i and t and ratio_interval(t, default)[1] <= 1.0]
    return min(sure, key=lambda i: statistics.median(times[i]), default=0)


def _first(task: Task) -> list[Config]:
    """The compiler's own choice, then the first points of the other ways."""
    found = [task.default]
    for name, knobs in task.space.ways.items():
        config = Config(name, tuple((knob, values[0]) for knob, values in knobs.items()))
        if config != task.default and config in task.space:
            found.append(config)
    return found[:BATCH]


def _recalled(task: Task, database: Database | None) -> Iterator[Trial]:
    """The last trial of each point that the database knows and the space still has."""
    records = database.trials(task.workload) if database is not None else []
    found = {r.config: r.trial for r in records if not r.is_check}
    yield from (t for t in found.values() if t.config in task.space)


def _loops(task: Task, config: Config) -> str:
    """The text of a point's loops; of one that has none, the point's own."""
    try:
        candidate = task.lower(config)
    except CompileError:
        return str(config)
    return "\n".join(map(str, (*candidate.init, candidate.loops)))


@dataclass
class _Once:
    """A kernel problem that measures no loops twice: other knobs may give the same ones."""

    kernel: KernelProblem
    tried: dict[Config, Trial]
    by_row: dict[bytes, list[Config]] | None = field(default=None, repr=False)

    @property
    def space(self) -> Space:
        """Of the kernel."""
        return self.kernel.space

    def features(self, configs: Sequence[Config]) -> Array:
        """Of the kernel."""
        return self.kernel.features(configs)

    def measure(self, configs: Sequence[Config]) -> Iterator[Trial]:
        """The trials in order, each as soon as it has ended."""
        twins = {c: twin for c in configs if (twin := self._twin(c))}
        measured = self.kernel.measured([c for c in configs if c not in twins])
        for config in configs:
            if config not in twins:
                trial = next(measured)
            else:
                trial = replace(self.tried[twins[config]], config=config, by="")
            self.tried[config] = trial
            yield trial

    def _twin(self, config: Config) -> Config | None:
        """A point that was tried before, or is about to be, whose loops are the same."""
        if self.by_row is None:
            self.by_row = {}
            for known in self.tried:
                self._remember(known)
        task = self.kernel.task
        for other in self._remember(config):
            if _loops(task, other) == _loops(task, config):
                return other
        return None

    def _remember(self, config: Config) -> list[Config]:
        """Those before it whose features are the same: only they can be twins."""
        assert self.by_row is not None
        row = self.kernel.features([config])[0]
        alike = self.by_row.setdefault(row.tobytes(), [])
        before = [] if np.isnan(row).any() else list(alike)
        alike.append(config)
        return before
