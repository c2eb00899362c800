"""What tuning gains, kernel by kernel, and how near it comes to the best point there is.

    python -m minidlc.benchmarks.tuning                         # all kernels, 64 trials each
    python -m minidlc.benchmarks.tuning softmax --exhaustive    # every point of the space as well

The ratio is that of the medians of the final rounds, in which the compiler's own choice and the
winner take turns: below 1 is faster; its interval is the middle 95 % of 10,000 bootstrap samples.
With --exhaustive every point of the ways that have few is measured, the ten fastest once more
beside the winner of the 64 trials: the last column says how many points there were, and the time of
the best of them over that of the winner.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time

import numpy as np

import minidlc as mc
from minidlc.benchmarks.tables import Plan, conv, product
from minidlc.tuning.measure import LocalMeasurer, Measurer
from minidlc.tuning.result import TaskResult
from minidlc.tuning.space import Space
from minidlc.tuning.task import Task
from minidlc.tuning.trial import Trial
from minidlc.tuning.tuner import tune_task

FINALISTS, ROUNDS, BATCH = 10, 25, 64
MOST = 10_000


def depthwise(channels: int, size: int) -> mc.Graph:
    """A 3 x 3 convolution of each channel by itself, between two of 1 x 1, as in MobileNet."""
    rng = np.random.default_rng(0)
    mix, taps = (
        rng.standard_normal((channels, *shape)).astype(np.float32)
        for shape in ((channels, 1, 1), (1, 3, 3))
    )

    def model(x: mc.Graph) -> mc.Graph:
        y = mc.relu(mc.conv(mc.relu(mc.conv(x, mix)), taps, pads=(1, 1, 1, 1), group=channels))
        return mc.conv(y, mix)

    return mc.trace(model, mc.f32[1, channels, size, size])


def softmax(rows: int, columns: int) -> mc.Graph:
    """softmax(x) along the rows."""
    return mc.trace(lambda x: mc.softmax(x, axis=-1), mc.f32[rows, columns])


KERNELS = {
    "gemm_512": Plan(product(512, 512, 512), "matmul"),
    "gemm_1024": Plan(product(1024, 1024, 1024), "matmul"),
    "conv3x3_64x56": Plan(conv(64, 56), "conv_nchwc"),
    "conv3x3_128x28": Plan(conv(128, 28), "conv_nchwc"),
    "conv3x3_256x14": Plan(conv(256, 14), "conv_nchwc"),
    "conv3x3_512x7": Plan(conv(512, 7), "conv_nchwc"),
    "depthwise_96x56": Plan(depthwise(96, 56), "depthwise_nchwc"),
    "softmax": Plan(softmax(512, 197), "softmax"),
}


def exhaustive(measurer: Measurer, task: Task, result: TaskResult) -> tuple[int, float]:
    """How many points were measured, and the time of the best of them over that of the winner.

    All of every way that has at most MOST points: the hand-written schedules, and small sketches.
    """
    ways = {w: k for w, k in task.space.ways.items() if math.prod(map(len, k.values())) <= MOST}
    points, found = list(Space(ways, task.is_allowed)), list[Trial]()
    for i in range(0, len(points), BATCH):
        found += measurer.measure(task, points[i : i + BATCH])
    fastest = sorted((t for t in found if t.seconds), key=lambda t: t.cost)[:FINALISTS]
    configs = list(dict.fromkeys([result.best, *(t.config for t in fastest)]))
    times = [statistics.median(t) for t in measurer.recheck(task, configs, ROUNDS) if t]
    return len(points), min(times) / times[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="*", default=list(KERNELS))
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--exhaustive", action="store_true")
    a = parser.parse_args()
    print(
        "| kernel | points | default µs | tuned µs | ratio | 95 % | way | seconds | best of all |"
    )
    print("|" + " --- |" * 8)
    with LocalMeasurer() as measurer:
        for name in a.kernels:
            task, start = KERNELS[name].task(), time.perf_counter()
            r = tune_task(task, measurer, trials=a.trials, seed=a.seed)
            spent = time.perf_counter() - start
            low, high = r.interval
            before, after = (
                1e6 * statistics.median(t) for t in (r.default_seconds, r.best_seconds)
            )
            row = f"| {name} | {before:.0f} | {after:.0f}"
            row += f" | {r.ratio:.3f} | {low:.3f} to {high:.3f} | {r.best} | {spent:.0f}"
            share = "{}: {:.3f}".format(*exhaustive(measurer, task, r)) if a.exhaustive else ""
            print(f"{row} | {share} |", flush=True)
