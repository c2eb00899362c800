"""Which kernel of a model gets the next trials: the one where they are expected to gain most.

    p = Progress(count=3, trials=8, costs=(4e-4, 3.1e-4))   # seconds before and after its batches
    expected_gain(p)                                # seconds of a run that a trial may save
    next_task([p, q, r])                            # 1; None when all spaces are exhausted

A function of measured times alone, so the same times give the same order. The estimate is that of
Ansor (L. Zheng et al., OSDI 2020, section 6) without its term for similar tasks, as here the cost
model carries what one kernel teaches about another. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

RECENT = 0.2  # weight of what the last batch gained; the rest is hope, that shrinks with trials
FLOOR = 0.125  # no task falls behind this share of an equal one
SMALL = 0.005  # of a run: a task of less waits until others promise no more


@dataclass(frozen=True)
class Progress:
    """A task so far: calls in a run, trials, least seconds before and after each batch.

    Before the first batch `costs` holds an estimate of the default's time, or infinity.
    """

    count: int
    trials: int
    costs: tuple[float, ...]
    batch: int = 8  # trials of the last batch
    is_done: bool = False


def expected_gain(p: Progress) -> float:
    """Seconds of a run that one more trial is expected to save.

    Hope: the n-th trial may save a n-th of the time. Experience: what a trial of the last batch
    saved. A task that never ran hopes for all of its time.
    """
    now = p.costs[-1]
    if math.isinf(now):
        return math.inf if p.trials == 0 else 0.0
    before = p.costs[-2] if len(p.costs) > 1 else now
    recent = (before - now) / p.batch if math.isfinite(before) else 0.0
    return p.count * (RECENT * recent + (1 - RECENT) * now / max(1, p.trials))


def next_task(tasks: Sequence[Progress]) -> int | None:
    """The number of the task to go on with; of equals the first. None if all are done.

    First come those without a trial, the heaviest first, then those below the floor; but tasks that
    matter little in a run have no such right.
    """
    open_tasks = [i for i, p in enumerate(tasks) if not p.is_done and p.count]
    if not open_tasks:
        return None
    weights = [p.count * p.costs[-1] for p in tasks]
    whole = sum(w for w in weights if math.isfinite(w))
    large = [i for i in open_tasks if weights[i] >= SMALL * whole]
    fresh = [i for i in large if not tasks[i].trials]
    least = FLOOR * sum(p.trials for p in tasks) / len(tasks)
    starved = [i for i in large if tasks[i].trials < least]
    chosen = fresh or starved or open_tasks
    return max(chosen, key=lambda i: (expected_gain(tasks[i]), -i))
