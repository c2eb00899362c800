"""Speed of one matrix product against NumPy's; each step of the ladder; two threads against one.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python -m minidlc.benchmarks.gemm 256 512 1024
    … python -m minidlc.benchmarks.gemm 512 --ladder
    … python -m minidlc.benchmarks.gemm 512 --threads 2

Interleaved rounds in one process; the ratio of the medians is what counts (above 1: ours is
faster). With one thread the time is what the process computed (NumPy held to one thread too), with
more it is the wall's, and where others compute too only the least of the rounds says something.
Machines change their clock between runs, so compare only inside one.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

import minidlc as mc
from minidlc.schedules import Group, plain
from minidlc.schedules.gemm import (
    schedule_blocks,
    schedule_gemm,
    schedule_packed,
    schedule_strips,
)
from minidlc.schedules.gemm_deep import schedule_deep
from minidlc.schedules.implementation import Knobs
from minidlc.support.timing import interleaved
from minidlc.target import Target
from minidlc.te import Schedule

Step: TypeAlias = Callable[[Schedule, Group, Target], None]

ROUNDS = 15
ROUND_SECONDS = 0.02


def vectorized(sch: Schedule, group: Group, target: Target) -> None:
    """The loop over columns inside that over k, in vectors: C is loaded and stored each time."""
    stage = sch[group.last]
    jo, ji = stage.split("j", target.lanes(32))
    stage.reorder("i", "k", jo, ji)
    stage.vectorize(ji)


def _step(schedule: Callable[[Schedule, Group, Target, Knobs], None], **knobs: int) -> Step:
    def apply(sch: Schedule, group: Group, target: Target) -> None:
        schedule(sch, group, target, knobs)

    return apply


LADDER: dict[str, Step] = {
    "naive i j k": plain,
    "i k j, vectorised": vectorized,
    "tile in registers": _step(schedule_gemm, unroll=1),
    "k unrolled by 2": _step(schedule_gemm, unroll=2),
    "B packed as a whole": _step(schedule_packed, unroll=2),
    "B packed strip by strip": _step(schedule_strips, unroll=2),
    "A packed, columns in blocks": _step(schedule_blocks, unroll=2, block=512),
    "both packed, k in blocks": _step(schedule_deep, unroll=2, depth=256),
}


def compiled(n: int, threads: int = 1, step: Step | None = None) -> mc.Executable:
    """The product of two n x n matrices; with the schedule `step`, if one is given."""
    a, b = mc.Input("a", mc.f32[n, n]), mc.Input("b", mc.f32[n, n])
    graph = mc.Graph.of(f"gemm_{n}", [a, b], [a @ b])
    with mc.use(**({} if step is None else {"schedule.matmul": step})):
        return mc.compile(graph, threads=threads)


def measure(n: int, steps: dict[str, Step | None], threads: int, rounds: int = ROUNDS) -> None:
    """Print a row for each step: µs, GFLOP/s, NumPy's time / ours, and the least of the rounds."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((n, n), np.float32) for _ in range(2))
    runs: dict[str, Callable[[], object]] = {"NumPy": lambda: x @ y}
    for name, step in steps.items():
        exe = compiled(n, threads, step)
        np.testing.assert_allclose(exe(x, y)[0], x @ y, atol=1e-4 * n**0.5)
        runs[name] = partial(exe, x, y)
    if threads > 1:
        runs["minidlc, one thread"] = partial(compiled(n), x, y)
    clock = time.process_time if threads == 1 else time.perf_counter
    times = interleaved(runs, rounds=rounds, seconds=ROUND_SECONDS, clock=clock)
    medians = {name: statistics.median(found) for name, found in times.items()}
    for name, median in medians.items():
        rate, ratio = 2e-9 * n**3 / median, medians["NumPy"] / median
        cells = f"{median * 1e6:.0f} | {rate:.1f} | {ratio:.2f} | {min(times[name]) * 1e6:.0f}"
        print(f"| {n} | {name} | {cells} |", flush=True)


def main() -> None:
    """Read the arguments, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sizes", nargs="*", type=int, default=[256])
    parser.add_argument("--ladder", action="store_true", help="each step of the schedule")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    chosen: dict[str, Step | None] = {"minidlc": None}
    steps = {**LADDER, **chosen} if arguments.ladder else chosen
    print("| n | what | µs | GFLOP/s | x NumPy | least µs |\n" + "| --- " * 6 + "|")
    with threadpool_limits(arguments.threads):  # NumPy's BLAS, on as many cores as we
        for size in arguments.sizes:
            measure(size, steps, arguments.threads, rounds=5 if arguments.ladder else ROUNDS)


if __name__ == "__main__":
    main()
