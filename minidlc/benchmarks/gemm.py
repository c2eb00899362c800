"""Speed of one matrix product against NumPy's.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python -m minidlc.benchmarks.gemm 256 512

Interleaved rounds in one process, one thread each, thread CPU time; the ratio of the medians is
what counts (above 1: ours is faster). Machines change their clock between runs, so compare only
inside one.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from threadpoolctl import threadpool_limits

import minidlc as mc


def measure(n: int, rounds: int = 15) -> float:
    """Print and return NumPy's time / ours for an n x n x n product of f32."""
    a, b = mc.Input("a", mc.f32[n, n]), mc.Input("b", mc.f32[n, n])
    exe = mc.compile(mc.Graph.of(f"gemm_{n}", [a, b], [a @ b]), threads=1)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((n, n), np.float32) for _ in range(2))
    out = np.empty((n, n), np.float32)
    calls = max(1, round(2e8 / n**3))
    np.testing.assert_allclose(exe(x, y)[0], x @ y, atol=1e-4 * n**0.5)
    runs = {"numpy": lambda: np.matmul(x, y, out=out), "minidlc": lambda: exe(x, y, out=[out])}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.thread_time()
            for _ in range(calls):
                run()
            times[name].append((time.thread_time() - start) / calls)
    numpy_time, our_time = (statistics.median(times[name]) for name in runs)
    print(
        f"gemm {n}: numpy {numpy_time * 1e6:.0f} µs, minidlc {our_time * 1e6:.0f} µs "
        f"({2e-9 * n**3 / our_time:.0f} GFLOP/s), ratio {numpy_time / our_time:.2f}"
    )
    return numpy_time / our_time


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sizes", nargs="*", type=int, default=[256])
    with threadpool_limits(1):  # NumPy's BLAS, as we, on one core
        for size in parser.parse_args().sizes:
            measure(size)
