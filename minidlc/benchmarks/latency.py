"""Time of one call against ONNX Runtime's, interleaved in one process.

    python -m minidlc.benchmarks.latency lenet mlp_b1 --threads 1

Prints medians in microseconds and the ratio of the medians, ours over theirs: below 1 is faster.
Calls go through the public way of each, `exe(x)` and `session.run(None, feeds)`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx

import minidlc as mc
from minidlc.bench import OURS, THEIRS, Comparison, compare
from minidlc.benchmarks.models import MODELS

PACKAGED = Path(__file__).parents[1] / "models" / "mnist_cntk.onnx"
ROUNDS = 31


def load(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A benchmark model by name, or the digit classifier of the package."""
    if name != "mnist_cntk":
        return MODELS[name]()
    image = np.random.default_rng(0).uniform(0, 255, (1, 1, 28, 28)).astype(np.float32)
    return onnx.load(PACKAGED), {"Input3": image}


def against_onnxruntime(
    model: onnx.ModelProto, feeds: dict[str, np.ndarray], threads: int, rounds: int = ROUNDS
) -> Comparison:
    """Compile, check the answers against ONNX Runtime's, and time both in turns."""
    exe = mc.compile(model, threads=threads)
    found = compare(exe, model.SerializeToString(), feeds, threads, rounds)
    if found.difference is None or found.difference > 1e-4:
        raise SystemExit(f"{model.graph.name}: {found.reason or f'apart by {found.difference}'}")
    return found


def measure(name: str, threads: int) -> None:
    """Print one row of the table."""
    found = against_onnxruntime(*load(name), threads)
    ours, theirs = (1e6 * found.median(engine) for engine in (OURS, THEIRS))
    row = f"| {name} | {threads} | {ours:.0f} | {theirs:.0f} | {ours / theirs:.2f}"
    print(f"{row} | {found.kernels} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["mnist_cntk", *MODELS])
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    print("| model | threads | minidlc µs | ORT µs | ours / theirs | kernels |")
    print("| --- | --- | --- | --- | --- | --- |")
    for model in arguments.models:
        measure(model, arguments.threads)
