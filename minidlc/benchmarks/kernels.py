"""Speed of single kernels against ONNX Runtime's, interleaved in one process.

    python -m minidlc.benchmarks.kernels softmax_1024 gelu_chain_4m --threads 1

Each model is one layer, built to ask one schedule for its best: a product, a row kernel, a chain
of pointwise ops, a convolution. A row of the table has the medians in microseconds and the ratio
of theirs over ours: above 1 is faster. Both are called in the public way, `exe(x)` and
`session.run(None, feeds)`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from minidlc.bench import OURS, THEIRS
from minidlc.benchmarks.builder import Builder, Model
from minidlc.benchmarks.latency import against_onnxruntime
from minidlc.benchmarks.transformers import gelu_tanh


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
    found = against_onnxruntime(model, feeds, threads)
    ours, theirs = (1e6 * found.median(engine) for engine in (OURS, THEIRS))
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
