"""Times of several things that do the same work, fair on a machine that does other work too.

    times = interleaved({"ours": f, "theirs": g}, rounds=15)
    median(times["ours"]) / median(times["theirs"])     # below 1: ours is faster

The candidates take turns within a round, so that a slow moment of the machine hits all of them;
medians over rounds leave out the moments that hit one. Only ratios inside one run mean anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np


def interleaved(
    candidates: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 15,
    seconds: float = 0.02,
    rest: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of one call of each candidate, in every round.

    In its turn a candidate rests, runs once to warm up, then as often as fits into `seconds`, at
    least once; its time is the mean of these, by `clock`.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            time.sleep(rest)
            run()
            calls, start = 0, clock()
            while calls == 0 or clock() - start < seconds:
                run()
                calls += 1
            times[name].append((clock() - start) / calls)
    return times


def readable(seconds: float) -> str:
    """A time in words: '31.4 µs', '2.17 ms', '1.20 s'."""
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def ratio_interval(
    ours: Sequence[float], theirs: Sequence[float], *, samples: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """The middle 95 % of bootstrap samples of median(ours) / median(theirs).

    Rounds are drawn in pairs: times of one round share the state of the machine. B. Efron,
    Bootstrap Methods: Another Look at the Jackknife, 1979.
    """
    a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    drawn = np.random.default_rng(seed).integers(0, len(a), (samples, len(a)))
    ratios = np.median(a[drawn], axis=1) / np.median(b[drawn], axis=1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return float(low), float(high)
