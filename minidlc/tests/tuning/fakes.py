"""A measurer that runs nothing: costs are a function of the point, so tuning is a function too."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from minidlc.expr.types import Array
from minidlc.tests.tuning.kernels import product
from minidlc.tests.tuning.results import MACHINE, Planted
from minidlc.tuning.problem import Samples
from minidlc.tuning.space import Config
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Fate, Trial

Cost = Callable[[Task, Config], float]


def digest(text: str) -> float:
    """A number from 0 to 1 that is the same in every process."""
    return zlib.crc32(text.encode()) / 0xFFFFFFFF


def scattered(task: Task, config: Config) -> float:
    """1 to 2 ms by the point's text, nothing more; the default is in the middle."""
    return 1.5e-3 if config == task.default else 1e-3 * (1 + digest(str(config)))


def indifferent(known: Sequence[Samples], asked: Array) -> Array:
    """A cost model without an opinion."""
    return np.zeros(len(asked))


@dataclass
class FakeMeasurer:
    """`cost` gives seconds, infinite for a crash; `final` those of the re-check, if not the same.

    `asked` holds what was measured, in order; `takes` seconds of a clock go by for each trial.
    """

    cost: Cost = scattered
    final: Cost | None = None
    takes: float = 0.0
    now: float = 0.0
    asked: list[tuple[str, Config]] = field(default_factory=list[tuple[str, Config]])
    rechecked: list[Config] = field(default_factory=list[Config])

    def clock(self) -> float:
        """Seconds that went by."""
        return self.now

    def measure(self, task: Task, configs: Sequence[Config]) -> list[Trial]:
        """A trial each."""
        return list(self.trials(task, configs))

    def trials(self, task: Task, configs: Sequence[Config]) -> Iterator[Trial]:
        """A trial each, as it ends."""
        for config in configs:
            self.now += self.takes
            self.asked.append((task.workload.key, config))
            seconds = self.cost(task, config)
            if seconds == float("inf"):
                yield Trial(config, Fate.CRASHED, reason="signal 11 (SIGSEGV)")
            else:
                yield Trial(config, Fate.OK, (seconds,) * 5)

    def recheck(
        self, task: Task, configs: Sequence[Config], rounds: int = 15
    ) -> list[tuple[float, ...]]:
        """Seconds by round; a little noise that all share."""
        self.now += self.takes * len(configs)
        self.rechecked += configs
        cost = self.final or self.cost
        times = [cost(task, c) for c in configs]
        noise = [1 + 0.05 * digest(str(i)) for i in range(rounds)]
        return [() if t == float("inf") else tuple(t * n for n in noise) for t in times]


def planted_task(name: str = "kernel", rows: int = 24) -> Task:
    """A small product with ways that are quickly lowered."""
    return Planted(product(rows, 32, 16), "matmul", MACHINE, 1, name)
