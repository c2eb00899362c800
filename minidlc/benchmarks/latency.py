"""Time of one call against ONNX Runtime's, interleaved in one process.

    python -m minidlc.benchmarks.latency lenet mlp_b1 --threads 1

Prints medians in microseconds and the ratio of the medians, ours over theirs: below 1 is faster.
Calls go through the public way of each, `exe(x)` and `session.run(None, feeds)`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import minidlc as mc
from minidlc.benchmarks.models import MODELS

PACKAGED = Path(__file__).parents[1] / "models" / "mnist_cntk.onnx"
ROUNDS = 31
ROUND_SECONDS = 0.02
REST_SECONDS = 0.05  # each engine's threads spin for a while after a call, on the other's cores


def load(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A benchmark model by name, or the digit classifier of the package."""
    if name != "mnist_cntk":
        return MODELS[name]()
    image = np.random.default_rng(0).uniform(0, 255, (1, 1, 28, 28)).astype(np.float32)
    return onnx.load(PACKAGED), {"Input3": image}


def measure(name: str, threads: int) -> None:
    """Check the answers against each other, then print one row of the table."""
    model, feeds = load(name)
    exe = mc.compile(model, threads=threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, ["CPUExecutionProvider"]
    )
    for ours, theirs in zip(exe(feeds), session.run(None, feeds), strict=True):
        assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(theirs).max(), name
    runs = {"minidlc": lambda: exe(feeds), "ort": lambda: session.run(None, feeds)}
    times: dict[str, list[float]] = {engine: [] for engine in runs}
    for _ in range(ROUNDS):
        for engine, run in runs.items():
            time.sleep(REST_SECONDS)
            run()
            calls, start = 0, time.perf_counter()
            while time.perf_counter() - start < ROUND_SECONDS:
                run()
                calls += 1
            times[engine].append((time.perf_counter() - start) / calls * 1e6)
    ours, theirs = (statistics.median(times[engine]) for engine in runs)
    kernels = len(exe.kernels)
    print(f"| {name} | {threads} | {ours:.0f} | {theirs:.0f} | {ours / theirs:.2f} | {kernels} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["mnist_cntk", *MODELS])
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    for model in arguments.models:
        measure(model, arguments.threads)
