"""What tuning one kernel gave: every trial, and the winner against the compiler's own choice.

    r = TaskResult(task, trials, best, default_seconds, best_seconds)
    r.ratio, r.interval                             # 0.83, (0.81, 0.85): below 1 is faster
    r.gain                                          # seconds a run of the model saves

The two are measured again at the end, in turns, so that no slow moment of the machine hits one of
them only; the search's own times served to choose whom. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from minidlc.support.timing import ratio_interval
from minidlc.tuning.space import Config
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Trial


@dataclass(frozen=True)
class TaskResult:
    """The trials of a task in order, and seconds of default and best, round by round.

    `count` says how many kernels of the model are of this task. Where nothing was found to be
    better, `best` is the task's default and the two series are one. `is_checked` is False where
    there was no time to measure the two in turns: the series are the default's of the search.
    `lost` says what the winner did in a later final, inside the model, where it is out again.
    """

    task: Task
    trials: tuple[Trial, ...]
    best: Config
    default_seconds: tuple[float, ...]
    best_seconds: tuple[float, ...]
    count: int = 1
    is_checked: bool = True
    lost: str = ""

    @property
    def is_better(self) -> bool:
        """True if something else than the default won."""
        return self.best != self.task.default

    @property
    def ratio(self) -> float:
        """Median of the best over that of the default."""
        return statistics.median(self.best_seconds) / statistics.median(self.default_seconds)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95 % bootstrap interval of the ratio."""
        return ratio_interval(self.best_seconds, self.default_seconds)

    @property
    def gain(self) -> float:
        """Seconds saved in a run of the model."""
        saved = statistics.median(self.default_seconds) - statistics.median(self.best_seconds)
        return self.count * saved


def curve(trials: Sequence[Trial]) -> list[float]:
    """The least cost after each trial; infinite before the first that ran."""
    found, least = list[float](), float("inf")
    for trial in trials:
        least = min(least, trial.cost)
        found.append(least)
    return found
