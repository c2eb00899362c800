"""Measurement you can believe: built elsewhere, run apart, checked first, timed in repeats.

    with LocalMeasurer() as m:                      # or DaskMeasurer("tcp://scheduler:8786")
        trials = m.measure(task, configs)           # a Trial for each, failed ones with a reason
        rounds = m.recheck(task, finalists)         # seconds by round, in turns

Reads tasks and points, writes trials. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from minidlc.tuning.measure.cluster import DaskMeasurer
from minidlc.tuning.measure.local import LocalMeasurer
from minidlc.tuning.space import Config
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Trial


class Measurer(Protocol):
    """What compiles and runs the points of a task, here or elsewhere."""

    def measure(self, task: Task, configs: Sequence[Config]) -> list[Trial]:
        """A trial for each point, in order."""
        ...

    def recheck(
        self, task: Task, configs: Sequence[Config], rounds: int = 15
    ) -> list[tuple[float, ...]]:
        """Seconds of one run of each point in each round, taken in turns; () where one failed."""
        ...


__all__ = ["DaskMeasurer", "LocalMeasurer", "Measurer"]
