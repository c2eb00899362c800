"""Speed of single kernels against ONNX Runtime's, interleaved in one process.

    python -m minidlc.benchmarks.kernels softmax_1024 gelu_chain_4m --threads 1

Each model is one layer, built to ask one schedule for its best: a product, a row kernel, a chain
of pointwise ops, a convolution. A row of the table has the medians in microseconds and the ratio
of theirs over ours: above 1 is faster. Both are called in the public way, `exe(x)` and
`session.run(None, feeds)`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import onnxruntime

import minidlc as mc
from minidlc.benchmarks.builder import Builder, Model
from minidlc.benchmarks.transformers import gelu_tanh

ROUNDS = 31
ROUND_SECONDS = 0.02
REST_SECONDS = 0.05  # each engine's threads spin for a while after a call, on the other's cores


def _gemm(n: int) -> Model:
    b = Builder(f"gemm_{n}")
    return b.build(b.op("MatMul", b.input("a", [n, n]), b.input("b", [n, n])))


def _softmax(*shape: int) -> Model:
    b = Builder("softmax")
    return b.build(b.op("Softmax", b.input("x", shape), axis=-1))


def _layernorm(rows: int, columns: int) -> Model:
    b = Builder("layernorm")
    return b.build(b.layer_norm(b.input("x", [rows, columns]), columns))


def _gelu_chain() -> Model:
    b = Builder("gelu_chain_4m")
    return b.build(gelu_tanh(b, b.input("x", [2048, 2048])))


def _reduce(op: str, shape: tuple[int, ...], *axes: int) -> Model:
    """A reduction whose axes are an attribute, as opset 17 has them for all but the sum."""
    b = Builder(op.lower())
    return b.build(b.op(op, b.input("x", shape), axes=list(axes), keepdims=0))


def _transpose(shape: tuple[int, ...], *perm: int) -> Model:
    b = Builder("transpose")
    return b.build(b.op("Transpose", b.input("x", shape), perm=list(perm)))


def _conv(group: int) -> Model:
    b = Builder(f"conv3x3_64x56_{group}")
    x, w = b.input("x", [1, 64, 56, 56]), b.weights(64, 64 // group, 3, 3, fan_in=576 // group)
    attributes = {"strides": [1, 1], "pads": [1] * 4, "group": group, "dilations": [1, 1]}
    return b.build(b.op("Conv", x, w, kernel_shape=[3, 3], **attributes))


KERNELS: dict[str, Callable[[], Model]] = {
    "gemm_512": lambda: _gemm(512),
    "gemm_1024": lambda: _gemm(1024),
    "softmax_1024": lambda: _softmax(1024, 1024),
    "softmax_512x197": lambda: _softmax(512, 197),
    "softmax_64x10": lambda: _softmax(64, 10),
    "softmax_16x50257": lambda: _softmax(16, 50257),
    "layernorm_1024": lambda: _layernorm(1024, 1024),
    "layernorm_128x768": lambda: _layernorm(128, 768),
    "gelu_chain_4m": _gelu_chain,
    "mean_hw": lambda: _reduce("ReduceMean", (1, 512, 56, 56), 2, 3),
    "mean_rows": lambda: _reduce("ReduceMean", (1024, 1024), 0),
    "max_all": lambda: _reduce("ReduceMax", (2048, 2048), 0, 1),
    "transpose_1024": lambda: _transpose((1024, 1024), 1, 0),
    "transpose_nhwc": lambda: _transpose((1, 64, 56, 56), 0, 2, 3, 1),
    "transpose_heads": lambda: _transpose((1, 128, 12, 64), 0, 2, 1, 3),
    "conv3x3_64x56": lambda: _conv(1),
    "dwconv3x3_64x56": lambda: _conv(64),
}


def measure(name: str, threads: int) -> float:
    """Check the answers against each other, print one row of the table; returns the ratio."""
    model, feeds = KERNELS[name]()
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
            if threads > 1:
                time.sleep(REST_SECONDS)
            run()
            calls, start = 0, time.perf_counter()
            while time.perf_counter() - start < ROUND_SECONDS:
                run()
                calls += 1
            times[engine].append((time.perf_counter() - start) / calls * 1e6)
    ours, theirs = (statistics.median(times[engine]) for engine in runs)
    print(f"| {name} | {threads} | {ours:.1f} | {theirs:.1f} | {theirs / ours:.2f} |", flush=True)
    return theirs / ours


def main() -> None:
    """Print the table for the kernels named on the command line, or for all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="*", help=f"of {', '.join(KERNELS)}; default all")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if unknown := set(arguments.kernels) - KERNELS.keys():
        parser.error(f"unknown kernel {min(unknown)!r}; known: {', '.join(KERNELS)}")
    print("| kernel | threads | minidlc µs | ORT µs | theirs / ours |")
    print("| --- | --- | --- | --- | --- |")
    for name in arguments.kernels or KERNELS:
        measure(name, arguments.threads)


if __name__ == "__main__":
    main()
