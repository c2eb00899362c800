"""A kernel and the machine as a problem: features from its loops, costs from running them.

    with LocalMeasurer() as m:
        trials = explore(KernelProblem(task, m), Evolution(), model=best_model())
    trials[0].figures["energy"]                     # objectives beside time

Points are lowered here, in this process, which is quick; they are compiled and run by the
measurer, elsewhere, where a crash does no harm. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from minidlc.expr.types import Array
from minidlc.support.errors import CompileError
from minidlc.tuning.model.features import FEATURES, loop_features
from minidlc.tuning.objectives import figures
from minidlc.tuning.space import Config, Space
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Trial


class Measures(Protocol):
    """What compiles and runs points: tuning/measure."""

    def measure(self, task: Task, configs: Sequence[Config]) -> list[Trial]:
        """A trial for each point, in order."""
        ...


@runtime_checkable
class Streams(Protocol):
    """A measurer that does not keep a trial to itself until the others have ended."""

    def trials(self, task: Task, configs: Sequence[Config]) -> Iterator[Trial]:
        """A trial for each point, in order."""
        ...


@dataclass(frozen=True)
class _Seen:
    """What is kept of a lowered point: its row of features, and objectives beside time."""

    row: Array
    figures: Mapping[str, float]


@dataclass(frozen=True)
class KernelProblem:
    """A task, measured by `measurer`. Each point is lowered once, whoever asks."""

    task: Task
    measurer: Measures
    _seen: dict[Config, _Seen] = field(default_factory=dict[Config, _Seen], repr=False)

    @property
    def space(self) -> Space:
        """Of the task."""
        return self.task.space

    def features(self, configs: Sequence[Config]) -> Array:
        """f64[n, len(FEATURES)]; a row of NaN for a point that cannot be lowered."""
        if not configs:
            return np.zeros((0, len(FEATURES)))
        return np.stack([self._lowered(c).row for c in configs])

    def measure(self, configs: Sequence[Config]) -> list[Trial]:
        """The trials of the measurer, with the objectives beside time in `figures`."""
        return list(self.measured(configs))

    def measured(self, configs: Sequence[Config]) -> Iterator[Trial]:
        """As `measure`, each trial as soon as it has ended, where the measurer tells."""
        measurer = self.measurer
        ask = measurer.trials if isinstance(measurer, Streams) else measurer.measure
        for t in ask(self.task, configs) if configs else ():
            yield replace(t, figures={**self._lowered(t.config).figures, **t.figures})

    def _lowered(self, config: Config) -> _Seen:
        if config not in self._seen:
            self._seen[config] = self._lower(config)
        return self._seen[config]

    def _lower(self, config: Config) -> _Seen:
        task = self.task
        try:
            candidate = task.lower(config)
        except CompileError:  # the measurer finds it too, and says why in its trial
            return _Seen(np.full(len(FEATURES), np.nan), {})
        row = loop_features(candidate.loops, task.target, task.threads)
        return _Seen(row, figures(candidate, task.target, task.threads))
