"""Tune a model's kernels together: the next trials go where they are expected to gain most.

    tuner = ModelTuner(tasks, variants, measurer, database=Database("tune.jsonl"))
    tuner.search(each=64)                           # or until=time.monotonic() + 240
    tuner.finish()                                  # finals: winners against defaults, in turns
    tuner.results, tuner.failed, tuner.layout       # TaskResults, reasons, the layout to take

Reads tasks and the layouts they belong to (a kernel may stand in several), writes TaskResults and
records. What finished trials taught about kernels of the same kind guides the next ones. A layout
that cannot win any more gets no further trials. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from minidlc.support.errors import TuneError
from minidlc.tuning.database import Database
from minidlc.tuning.measure import Measurer
from minidlc.tuning.model_tasks import ModelTask
from minidlc.tuning.problem import CostModel, Samples, Search
from minidlc.tuning.result import TaskResult
from minidlc.tuning.scheduler import Progress, next_task
from minidlc.tuning.space import Config
from minidlc.tuning.trial import Trial
from minidlc.tuning.tuner import BATCH, FINALISTS, ROUNDS, TaskRun

MORE = 16  # trials of a later batch: each costs the search dozens of points that it looks at
_BUILDING, _LEAST_TURN = 1.0, 0.003  # seconds of a final: to build the points, and of a turn
_TURNS, _LEAST_ROUNDS = 2.0, 9  # seconds of all turns of a final, but at least so many rounds
_OF_A_KERNEL = ("MDLC1351", "MDLC1352")  # nothing ran, or not the default
SLACK = 1.1  # a layout whose sum is more than this times the least is given up


class Ended(StrEnum):
    """Why a search has ended, or what is not tuned; NOT while it goes on, or was interrupted."""

    NOT = "it was stopped before"
    TRIALS = "the trials went to kernels that promise more"
    POINTS = "no layout that may win has it"
    TIME = "there was too little time"


@dataclass(frozen=True)
class Variant:
    """A layout of the model: calls of each task in a run, by key, and seconds of other kernels."""

    layout: Config
    counts: Mapping[str, int]
    rest: float

    def seconds(self, costs: Mapping[str, float]) -> float:
        """Of a run, if a call of each task takes as long as `costs` says by key."""
        return self.rest + sum(n * costs[key] for key, n in self.counts.items())


@dataclass(frozen=True)
class Step:
    """One trial of one task, for who watches: its number, the first and the least seconds."""

    task: ModelTask
    trial: Trial
    trials: int
    first: float
    best: float


class ModelTuner:
    """Tasks of a model in its `variants`, the first of which is the default.

    `estimates` are seconds of a call of each task's default, by key.
    """

    def __init__(
        self,
        tasks: Sequence[ModelTask],
        variants: Sequence[Variant],
        measurer: Measurer,
        *,
        estimates: Mapping[str, float],
        seed: int = 0,
        search: Search | None = None,
        model: CostModel | None = None,
        database: Database | None = None,
        told: Callable[[Step], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tasks, self.variants, self.estimates = tuple(tasks), tuple(variants), estimates
        self.told, self.clock = told, clock
        self.runs = [
            TaskRun(t.task, measurer, seed, search, model, database, self._hears(i))
            for i, t in enumerate(tasks)
        ]
        self.results: list[TaskResult] = []
        self.failed: dict[str, str] = {}
        self._counts = self._wanted()
        self._spent, self._new = 0.0, 0  # seconds of the search, and its trials
        self._last = dict.fromkeys(range(len(self.runs)), BATCH)
        self.ended = Ended.NOT

    def _hears(self, number: int) -> Callable[[Trial], None]:
        def hear(trial: Trial) -> None:
            if self.told:
                run = self.runs[number]
                first = run.trials[0].cost
                self.told(Step(self.tasks[number], trial, len(run.trials), first, run.cost))

        return hear

    @property
    def trials(self) -> int:
        """How many points were tried, those of earlier runs included."""
        return sum(len(run.trials) for run in self.runs)

    @property
    def costs(self) -> dict[str, float]:
        """Seconds of a call of each task as it is best by now, by key; the estimate at first."""
        return {
            t.key: run.cost if math.isfinite(run.cost) else self.estimates[t.key]
            for t, run in zip(self.tasks, self.runs, strict=True)
        }

    @property
    def layout(self) -> Config:
        """That of the variant whose kernels take least, of equals the first."""
        costs = self.final_costs()
        return min(self.variants, key=lambda v: v.seconds(costs)).layout

    def final_costs(self) -> dict[str, float]:
        """Seconds of a call of each task's winner; of the default where no final was held."""
        defaults = {
            t.key: run.trials[0].cost if run.trials and math.isfinite(run.trials[0].cost) else None
            for t, run in zip(self.tasks, self.runs, strict=True)
        }
        known = {key: self.estimates[key] if c is None else c for key, c in defaults.items()}
        return known | {r.task.workload.key: median(r.best_seconds) for r in self.results}

    def _wanted(self) -> list[int]:
        """Calls of each task in the layouts that may still win.

        A task that was not tried yet is taken to gain as much as the luckiest of those that were.
        """
        pairs = list(zip(self.tasks, self.runs, strict=True))
        shares = [run.cost / self.estimates[t.key] for t, run in pairs]
        luck = min((s for s in shares if math.isfinite(s)), default=1.0)
        hopes = {t.key: min(1.0, luck) * self.estimates[t.key] for t, r in pairs if not r.trials}
        costs = self.costs | hopes
        sums = [v.seconds(costs) for v in self.variants]
        alive = [v for v, s in zip(self.variants, sums, strict=True) if s <= SLACK * min(sums)]
        return [max(v.counts.get(t.key, 0) for v in alive) for t in self.tasks]

    def search(self, each: int | None = None, until: float | None = None) -> None:
        """Try points until a kernel has `each` trials in the mean, or the finals would not be done
        `until` then. Kernels of layouts that were given up do not count. `ended` says why.
        """
        while True:
            left = math.inf if each is None else self._left(each)
            number = next_task([self._progress(i) for i in range(len(self.runs))])
            if left < 1 or number is None:
                self.ended = Ended.TRIALS if left < 1 else Ended.POINTS
                break
            run = self.runs[number]
            share = BATCH if each is None else min(BATCH, each)
            count = min(MORE if run.trials else share, left)
            if until is not None:
                count = min(count, self._affordable(until - self.final_seconds(number)))
            if count < 1:
                self.ended = Ended.TIME
                break
            count, start, before = int(count), self.clock(), len(run.trials)
            run.explore(before + count, self._known(number), batch=count)
            found = len(run.trials) - before
            self._spent += self.clock() - start
            self._new += found
            self._last[number] = max(1, found)
            self._counts = self._wanted()

    def _left(self, each: int) -> int:
        """Trials until the kernels of the layouts that may still win have `each` in the mean."""
        wanted = [run for run, n in zip(self.runs, self._counts, strict=True) if n]
        return each * len(wanted) - sum(len(run.trials) for run in wanted)

    def _affordable(self, until: float) -> int:
        """How many trials fit in, each as long as those so far in the mean."""
        left = until - self.clock()
        if not self._new:
            return BATCH if left > 0 else 0
        return int(min(left * self._new / max(self._spent, 1e-9), MORE))

    def _progress(self, number: int) -> Progress:
        task, run = self.tasks[number], self.runs[number]
        costs = tuple(run.curve)
        if not run.trials:
            costs = (self.estimates[task.key],)
        return Progress(
            self._counts[number], len(run.trials), costs, self._last[number], run.is_done
        )

    def _known(self, number: int) -> list[Samples]:
        """Samples of the other tasks of its kind."""
        kind, others = self.tasks[number].task.kind, list[Samples]()
        for i, run in enumerate(self.runs):
            if i != number and run.trials and run.task.kind == kind:
                others.append(run.samples)
        return others

    def final_seconds(self, more: int) -> float:
        """An estimate of what the finals will take if task number `more` is tried too."""
        counted = [i for i, run in enumerate(self.runs) if run.trials or i == more]
        return sum(self._final_of(self.tasks[i]) for i in counted if self._counts[i])

    def _round_of(self, task: ModelTask) -> float:
        return (FINALISTS + 1) * max(_LEAST_TURN, 1.5 * self.estimates[task.key])

    def _rounds(self, task: ModelTask) -> int:
        """Of a task's final: fewer where a round is long, so that none takes all the time."""
        return max(_LEAST_ROUNDS, min(ROUNDS, int(_TURNS / self._round_of(task))))

    def _final_of(self, task: ModelTask) -> float:
        return _BUILDING + self._rounds(task) * self._round_of(task)

    def finish(self, until: float | None = None) -> None:
        """The finals, first where the search saw most to gain.

        A task that has none by `until` keeps what won its last final, else its default. TuneError
        (MDLC1351) if no task can be measured.
        """
        spent, planned = 0.0, 0.0
        for number in sorted(range(len(self.runs)), key=self._promise, reverse=True):
            task, run = self.tasks[number], self.runs[number]
            if not run.trials or not self._counts[number]:
                continue
            start, takes = self.clock(), self._final_of(task)
            pace = max(1.0, spent / planned) if planned else 1.0  # of the finals so far
            try:
                if until is not None and start + pace * takes > until:
                    found = run.unchecked(task.count)
                    self.results += [found] if found else []
                    continue
                self.results.append(run.result(task.count, self._rounds(task)))
            except TuneError as e:
                if e.code not in _OF_A_KERNEL:  # a file that cannot be written, a lost machine
                    raise
                self.failed[task.task.name] = e.message
            spent, planned = spent + self.clock() - start, planned + takes
        if self.failed and not self.results:
            name, reason = next(iter(self.failed.items()))
            text = f"none of {len(self.failed)} kernels could be measured; the first, {reason}"
            raise TuneError(text, hint=f"minidlc doctor, then {name} alone", code="MDLC1351")

    def stop(self) -> None:
        """The results so far, without finals: what won the last ones, else the defaults."""
        done = {id(r.task) for r in self.results}
        for task, run in zip(self.tasks, self.runs, strict=True):
            found = run.unchecked(task.count) if id(task.task) not in done else None
            self.results += [found] if found else []

    def _promise(self, number: int) -> tuple[float, float]:
        """Seconds of a run that the search saw a task save, and those that it takes."""
        count, task, run = self._counts[number], self.tasks[number], self.runs[number]
        first = run.trials[0].cost if run.trials else math.inf
        saved = first - run.cost if math.isfinite(first) else 0.0
        return count * saved, count * self.estimates[task.key]
