"""What became of a point that was tried: a time, or the reason why there is none.

    t = Trial(config, Fate.OK, seconds=(4.1e-4, 4.0e-4, 4.2e-4))
    t.cost                                          # 0.00041, the median
    Trial(config, Fate.TIMEOUT, reason="no answer within 2 s").cost     # inf

A failed trial is a result like any other: searches and models learn from it, reports count it.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from minidlc.tuning.space import Config


class Fate(StrEnum):
    """How a trial ended."""

    OK = "ok"
    REFUSED = "refused"  # a primitive, or a check of the loops, says no
    NOT_COMPILED = "not compiled"  # code generation or LLVM says no
    WRONG = "wrong result"
    TIMEOUT = "timeout"
    CRASHED = "crashed"  # the worker process died


@dataclass(frozen=True)
class Trial:
    """A tried point: `seconds` of one run, in each repeat; empty if it failed, for `reason`.

    `predicted` is what the model believed before (its own unit, lower is faster; None without a
    model), `by` the search that proposed it, `figures` what else was counted, by name: the
    objectives beside time.
    """

    config: Config
    fate: Fate
    seconds: tuple[float, ...] = ()
    reason: str = ""
    predicted: float | None = None
    by: str = ""
    figures: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def cost(self) -> float:
        """Median seconds of a run; infinite for a failed trial."""
        return statistics.median(self.seconds) if self.fate is Fate.OK else math.inf


def best(trials: Iterable[Trial]) -> Trial | None:
    """The trial of the least cost, the first of equals; None if all failed."""
    found = [t for t in trials if t.fate is Fate.OK]
    return min(found, key=lambda t: t.cost, default=None)


def fates(trials: Iterable[Trial]) -> dict[str, int]:
    """How many trials ended how."""
    counts = Counter(str(t.fate) for t in trials)
    return {str(fate): counts[str(fate)] for fate in Fate if counts[str(fate)]}


def why_none(trials: Iterable[Trial]) -> str:
    """For trials that all failed: the first reason, and counts by fate."""
    all_trials = tuple(trials)
    if not all_trials:
        return "nothing was tried"
    counts = ", ".join(f"{count} {fate}" for fate, count in fates(all_trials).items())
    first = all_trials[0]
    return f"{counts}; the first, {first.config}: {first.fate}: {first.reason}"
