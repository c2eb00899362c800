"""The last final: winners inside their model, then the whole model with them against without.

    final = ModelFinal(results, tasks, database, seed=0)
    exe = final.inside(default, compiled)           # a compiled model without what lost in it
    verdict(times, default_layout).layout           # end to end, in turns: what is taken
    final.undo(exe, ratio)                          # where the whole model came out slower

A kernel that is timed alone, again and again, finds its data in the caches and has the memory to
itself; between other kernels it has not. So each winner is timed once more in a run of the model,
kernel by kernel, in turns with the model as it is by default, and one that is not faster there
with certainty is given up. Each outcome is a record, the last of its kernel, so compilations go by
it. Reads compiled models through `Timed`, writes records and changed TaskResults. Treated in
course chapter 06_autotune.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, TypeVar

from minidlc.support.timing import ratio_interval
from minidlc.tuning.database import Database
from minidlc.tuning.records import Record
from minidlc.tuning.result import TaskResult
from minidlc.tuning.space import Config
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Fate, Trial
from minidlc.tuning.tuner import ROUNDS

TURN = 0.02  # seconds of a model's turn, at least one run
INSIDE, WHOLE = "in the model", "whole model"  # kinds of finals, `by` of their records

Seconds: TypeAlias = tuple[float, ...]


class Timed(Protocol):
    """A compiled model, ready to run. Tasks are told apart by the keys of their workloads."""

    @property
    def tuned(self) -> Collection[str]:
        """Tasks whose kernels are compiled from records."""
        ...

    def kernels(self) -> Mapping[str, float]:
        """Run once; seconds of a call of each task."""
        ...


M = TypeVar("M", bound=Timed)


class ModelFinal:
    """Finals in models that share `results` of their tasks, by key; `tasks` are all there are.

    `results` are changed: to the times inside the model, and to the default where a winner lost.
    """

    def __init__(
        self,
        results: dict[str, TaskResult],
        tasks: Iterable[Task],
        database: Database,
        *,
        seed: int = 0,
        rest: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.results, self.database, self.seed = results, database, seed
        self.tasks = {t.workload.key: t for t in tasks}
        self.rest, self.clock = rest, clock

    def inside(self, default: M, compiled: Callable[[], M]) -> M:
        """The model with the winners that are faster in it; `default` itself if none is.

        `compiled` compiles it with the database as it is by then; not if that has no winner.
        """
        if not any(self.database.best(t.workload) for t in self.tasks.values()):
            return default
        tuned = compiled()
        if not tuned.tuned:
            return default
        times = kernel_times(default, tuned, rest=self.rest, clock=self.clock)
        judged = sorted(key for key in tuned.tuned if key in times)  # the others did not run
        lost = [key for key in judged if not self._stays(key, *times[key])]
        if not lost:
            return tuned
        return default if len(lost) == len(tuned.tuned) else compiled()

    def _stays(self, key: str, before: Seconds, after: Seconds) -> bool:
        """Record how a winner did in the model; True if it is faster there with certainty."""
        task = self.tasks[key]
        winner = self.database.best(task.workload)
        assert winner is not None, "it was compiled from its record"
        high = ratio_interval(after, before)[1]
        if high >= 1.0:
            ratio = statistics.median(after) / statistics.median(before)
            text = f"{ratio:.2f} of the default (95 % up to {high:.2f}) with {winner.config}"
            self._back(task, before, INSIDE, text)
            return False
        trial = Trial(winner.config, Fate.OK, after, by=INSIDE)
        self.database.append(
            Record.of(task, trial, seed=self.seed, default=task.default, default_seconds=before)
        )
        if key in self.results:
            self.results[key] = replace(
                self.results[key], best=winner.config, default_seconds=before, best_seconds=after
            )
        return True

    def _back(self, task: Task, seconds: Seconds, kind: str, reason: str) -> None:
        """Record that the default of a task is taken again, and why."""
        trial = Trial(task.default, Fate.OK, seconds, reason, by=kind)
        self.database.append(
            Record.of(task, trial, seed=self.seed, default=task.default, default_seconds=seconds)
        )
        key = task.workload.key
        if key in self.results:
            series = {"default_seconds": seconds, "best_seconds": seconds}
            lost = f"{kind}: {reason}"
            self.results[key] = replace(self.results[key], best=task.default, lost=lost, **series)

    def undo(self, tuned: Timed, ratio: float) -> None:
        """Record that all winners of a model are out: with them a run takes `ratio` of before."""
        for key in sorted(tuned.tuned):
            task = self.tasks[key]
            winner = self.database.best(task.workload)
            if winner is not None:
                reason = f"a run took {ratio:.3f} of the default, with {winner.config}"
                self._back(task, winner.default_seconds, WHOLE, reason)


def kernel_times(
    default: Timed,
    tuned: Timed,
    *,
    rounds: int = ROUNDS,
    rest: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, tuple[Seconds, Seconds]]:
    """Seconds of a call of each task in the two models, which take turns, round by round.

    In its turn a model rests, runs once to warm up, then as often as fits into `TURN`; the times
    are medians over these runs.
    """
    series: tuple[dict[str, list[float]], ...] = ({}, {})
    for _ in range(rounds):
        for times, model in zip(series, (default, tuned), strict=True):
            time.sleep(rest)
            model.kernels()
            runs, start = list[Mapping[str, float]](), clock()
            while not runs or clock() - start < TURN:
                runs.append(model.kernels())
            for key in runs[0]:
                times.setdefault(key, []).append(statistics.median(r[key] for r in runs))
    before, after = series
    ran = [key for key in before if min(before[key]) > 0 and key in after]
    return {key: (tuple(before[key]), tuple(after[key])) for key in ran}


@dataclass(frozen=True)
class Verdict:
    """The layout that is taken end to end; `undone` holds the seconds of a tuned model that is not.

    `default_seconds` and `seconds` are runs of the model before and after, round by round; after an
    undoing they are one series.
    """

    layout: Config
    default_seconds: Seconds
    seconds: Seconds
    undone: Seconds = ()


def verdict(before: Seconds, tuned: Mapping[Config, Seconds]) -> Verdict:
    """Decide by seconds of the default model and of tuned ones by layout, the default's first.

    A tuned model whose median is above the default's is no gain. Another layout must beat what the
    default layout came to with certainty.
    """
    (usual, own), *others = tuned.items()
    slower = statistics.median(own) > statistics.median(before)
    found = Verdict(usual, before, before if slower else own, own if slower else ())
    for layout, seconds in others:
        if ratio_interval(seconds, found.seconds)[1] < 1.0:
            found = Verdict(layout, before, seconds)
    return found
