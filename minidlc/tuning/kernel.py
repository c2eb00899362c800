"""A kernel and the machine as a problem: features from its loops, costs from running them.

    with LocalMeasurer() as m:
        trials = explore(KernelProblem(task, m), Evolution(), model=best_model())
    trials[0].figures["energy"]                     # objectives beside time

Points are compiled and run by the measurer, elsewhere, where a crash does no harm. Their features
too are made there where it can (`Rows`): a search looks at many more points than it tries, and its
build workers have nothing else to do then. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from minidlc.expr.types import Array
from minidlc.support.errors import CompileError
from minidlc.tuning.measure.build import row
from minidlc.tuning.model.features import FEATURES
from minidlc.tuning.objectives import COUNTED, figures
from minidlc.tuning.space import Config, Space
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Fate, Trial


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


@runtime_checkable
class Rows(Protocol):
    """A measurer whose workers lower points and read the features off their loops."""

    def features(self, task: Task, configs: Sequence[Config]) -> Array:
        """f64[n, len(FEATURES)]; a row of NaN for a point that cannot be lowered."""
        ...


@dataclass(frozen=True)
class KernelProblem:
    """A task, measured by `measurer`. The row of a point is made once, whoever asks."""

    task: Task
    measurer: Measures
    _rows: dict[Config, Array] = field(default_factory=dict[Config, Array], repr=False)

    @property
    def space(self) -> Space:
        """Of the task."""
        return self.task.space

    def features(self, configs: Sequence[Config]) -> Array:
        """f64[n, len(FEATURES)]; a row of NaN for a point that cannot be lowered."""
        if not configs:
            return np.zeros((0, len(FEATURES)))
        new = [c for c in dict.fromkeys(configs) if c not in self._rows]
        if new:
            self._rows.update(zip(new, self._new_rows(new), strict=True))
        return np.stack([self._rows[c] for c in configs])

    def _new_rows(self, configs: Sequence[Config]) -> Iterable[Array]:
        if isinstance(self.measurer, Rows):
            return self.measurer.features(self.task, configs)
        return [row(self.task, c) for c in configs]

    def measure(self, configs: Sequence[Config]) -> list[Trial]:
        """The trials of the measurer, with the objectives beside time in `figures`."""
        return list(self.measured(configs))

    def measured(self, configs: Sequence[Config]) -> Iterator[Trial]:
        """As `measure`, each trial as soon as it has ended, where the measurer tells."""
        measurer = self.measurer
        ask = measurer.trials if isinstance(measurer, Streams) else measurer.measure
        for t in ask(self.task, configs) if configs else ():
            # whoever lowered a point to compile it has told them; a failed one may do harm here
            if t.fate is not Fate.OK or t.figures.keys() >= COUNTED:
                yield t
            else:
                yield replace(t, figures={**self._figures(t.config), **t.figures})

    def _figures(self, config: Config) -> Mapping[str, float]:
        task = self.task
        try:
            return figures(task.lower(config), task.target, task.threads)
        except CompileError:  # the measurer finds it too, and says why in its trial
            return {}
