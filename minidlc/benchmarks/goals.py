"""What the compiler is meant to reach, measured in one run: a row a goal, and whether it is met.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python -m minidlc.benchmarks.goals

Against NumPy (OpenBLAS) and ONNX Runtime in turns, one thread each, medians of wall time; then two
threads against one; then a cold compilation and a start from the cache, each in a process of its
own. Takes about three minutes on two idle cores; other work on the machine makes ratios wander.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from minidlc.benchmarks.gemm import compiled
from minidlc.benchmarks.kernels import KERNELS
from minidlc.benchmarks.latency import against_onnxruntime, load
from minidlc.benchmarks.models import MODELS
from minidlc.support.timing import interleaved

ROUNDS = 31
FASTER = {"softmax_1024": 1.0, "layernorm_1024": 1.0, "gelu_chain_4m": 2.0, "conv3x3_64x56": 0.9}
LATENCY = {
    "resnet18": 1.3,
    "mobilenet_v2": 1.3,
    "bert_layer": 1.3,
    "bert_tiny": 1.3,
    "lenet": 1.0,
    "mlp_b1": 1.0,
}
START = """
import sys, time
import numpy as np
import llvmlite.binding, onnx
import minidlc as mc
compile = mc.compile  # loads the compiler's modules
with np.load(sys.argv[2]) as stored:
    x = dict(stored)
begin = time.perf_counter()
exe = compile(sys.argv[1], threads=2)
compiled = time.perf_counter()
exe(x)
print(compiled - begin, time.perf_counter() - begin)
"""


def row(what: str, measured: float, goal: float, *, at_least: bool) -> None:
    """One line of the table."""
    met = measured >= goal if at_least else measured <= goal
    sign = "≥" if at_least else "≤"
    print(f"| {what} | {measured:.2f} | {sign} {goal:g} | {'yes' if met else 'no'} |", flush=True)


def ratio(slow: str, fast: str, runs: dict[str, Callable[[], object]], rest: float = 0.0) -> float:
    """Median time of `slow` over that of `fast`."""
    times = interleaved(runs, rounds=ROUNDS, rest=rest)
    return statistics.median(times[slow]) / statistics.median(times[fast])


def product(n: int) -> float:
    """NumPy's time for the product of two n x n matrices over ours."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((n, n), np.float32) for _ in range(2))
    exe = compiled(n)
    with threadpool_limits(1):
        return ratio("numpy", "ours", {"numpy": lambda: x @ y, "ours": lambda: exe(x, y)})


def speed_up(n: int) -> float:
    """One thread's time for such a product over that of two."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((n, n), np.float32) for _ in range(2))
    one, two = compiled(n), compiled(n, 2)
    return ratio("one", "two", {"one": lambda: one(x, y), "two": lambda: two(x, y)}, rest=0.01)


def starts(name: str) -> tuple[float, float]:
    """Seconds of a cold compilation, and from `compile` to the first result out of the cache."""
    model, feeds = MODELS[name]()
    with tempfile.TemporaryDirectory() as folder:
        path, arrays = Path(folder) / "model.onnx", Path(folder) / "inputs.npz"
        path.write_bytes(model.SerializeToString())
        np.savez(arrays, **feeds)  # pyright: ignore[reportArgumentType]
        env = os.environ | {"MINIDLC_CACHE": str(Path(folder) / "cache")}
        found = [
            subprocess.run(
                [sys.executable, "-c", START, str(path), str(arrays)],
                env=env,
                check=True,
                capture_output=True,
                text=True,
            ).stdout.split()
            for _ in range(6)
        ]
    return float(found[0][0]), statistics.median(float(total) for _, total in found[1:])


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    print("| what | measured | goal | met |\n| --- | --- | --- | --- |")
    for n in (256, 512, 1024):
        row(f"GEMM {n}: NumPy's time / ours", product(n), 0.95, at_least=True)
    row("GEMM 512: one thread's time / two threads'", speed_up(512), 1.6, at_least=True)
    for name, goal in FASTER.items():
        found = against_onnxruntime(*KERNELS[name](), 1)
        assert found.ratio
        row(f"{name}: ONNX Runtime's time / ours", 1 / found.ratio, goal, at_least=True)
    for threads in (1, 2):
        for name, goal in LATENCY.items():
            found = against_onnxruntime(*load(name), threads, rounds=15)
            assert found.ratio
            plural = "s" * (threads > 1)
            what = f"{name}, {threads} thread{plural}: our time / ONNX Runtime's"
            row(what, found.ratio, goal, at_least=False)
    cold, start = starts("resnet18")
    row("resnet18: cold compilation, s", cold, 10.0, at_least=False)
    row("resnet18: from the cache to the first result, s", start, 0.2, at_least=False)


if __name__ == "__main__":
    main()
