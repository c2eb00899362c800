"""What each primitive of a library schedule gains: every prefix of its trace, timed.

    python -m minidlc.benchmarks.ladder softmax conv_3x3 depthwise

For each kernel the schedule that the compiler chose is replayed primitive by primitive; each prefix
is lowered, compiled and run on one core. A row is a primitive after which the loops take another
time, and how many times longer than the whole schedule they take there: the first row is the plain
loops, the last is 1. Prefixes take turns in each round; medians of thread CPU time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

import minidlc as mc
from minidlc.codegen.compile import compile_kernel, kernel_caller
from minidlc.expr.types import Array
from minidlc.levels import CompiledKernel
from minidlc.loop.nodes import LoopFunction
from minidlc.support.errors import CompileError
from minidlc.target import host

ROUNDS = 5
CHANGE = 0.15  # of the time: less is noise
SLOWEST = 2.0  # seconds that a prefix may take


def _graph(name: str, build: Callable[..., object], **shapes: tuple[int, ...]) -> mc.Graph:
    """The graph of one layer; names in capitals are weights."""
    rng = np.random.default_rng(0)
    values: list[mc.Value] = []
    inputs: list[mc.Input] = []
    for key, shape in shapes.items():
        if key.isupper():
            values.append(mc.Constant(key.lower(), rng.standard_normal(shape, np.float32)))
        else:
            inputs.append(mc.Input(key, mc.f32[shape]))
            values.append(inputs[-1])
    return mc.Graph.of(name, inputs, [build(*values)])


def _conv(x: mc.Value, w: mc.Value, pad: int) -> mc.Value:
    return mc.conv(x, w, pads=(pad,) * 4)


def _image(channels: int, size: int) -> tuple[int, ...]:
    """The shape of a square image in blocks: alone, such a layer would not be worth packing for."""
    lanes = host().lanes(32)
    return 1, channels // lanes, size, size, lanes


def _depthwise(channels: int, size: int) -> mc.Graph:
    _, blocks, *_, lanes = image = _image(channels, size)

    def layer(x: mc.Value, w: mc.Value) -> object:
        return mc.depthwise_nchwc(x, w, pads=(1,) * 4)

    return _graph("conv", layer, x=image, W=(blocks, 3, 3, lanes))


def _max_pool(x: mc.Value) -> object:
    return mc.max_pool(x, kernel_shape=(3, 3, 1), strides=(2, 2, 1))


KERNELS: dict[str, Callable[[], mc.Graph]] = {
    "gemm": lambda: _graph("gemm", lambda a, b: a @ b, a=(512, 512), b=(512, 512)),
    "dense": lambda: _graph("dense", lambda a, b: mc.relu(a @ b), a=(128, 768), B=(768, 768)),
    "gemv": lambda: _graph("gemv", lambda a, b: a @ b, a=(1, 1024), B=(1024, 1024)),
    "batched": lambda: _graph("batched", lambda a, b: a @ b, a=(12, 128, 64), b=(12, 64, 128)),
    "conv_3x3": lambda: _graph(
        "conv", lambda x, w: _conv(x, w, 1), x=(1, 64, 56, 56), W=(64, 64, 3, 3)
    ),
    "conv_1x1": lambda: _graph(
        "conv", lambda x, w: _conv(x, w, 0), x=(1, 64, 56, 56), W=(256, 64, 1, 1)
    ),
    "depthwise": lambda: _depthwise(96, 56),
    "max_pool": lambda: _graph("pool", _max_pool, x=_image(64, 112)),
    "softmax": lambda: _graph("softmax", lambda x: mc.softmax(x, axis=-1), x=(1024, 1024)),
    "layer_norm": lambda: _graph(
        "norm", lambda x, s, b: mc.layer_norm(x, s, b), x=(1024, 1024), S=(1024,), B=(1024,)
    ),
    "sum_rows": lambda: _graph("sum", lambda x: mc.sum(x, axes=(1,)), x=(1024, 1024)),
    "gelu": lambda: _graph("gelu", lambda x: mc.gelu(x), x=(1024, 1024)),
    "transpose": lambda: _graph("transpose", lambda x: mc.transpose(x), x=(1024, 1024)),
}


def prefixes(kernel: CompiledKernel) -> list[tuple[str, LoopFunction]]:
    """Each primitive that changes the loops, and the loops after it; first the plain ones."""
    found: list[tuple[str, LoopFunction]] = []
    for schedule in kernel.schedule.prefixes():
        step = str(schedule.trace[-1]) if len(schedule.trace) else "plain loops"
        try:
            fn = schedule.lower(kernel.name)
        except CompileError:
            continue  # a buffer of registers before its loops are unrolled, for example
        if not found or fn.body != found[-1][1].body:
            found.append((step, fn))
    return found


def measure(kernel: CompiledKernel) -> list[tuple[str, float]]:
    """(primitive, seconds of a call) for each prefix that machine code can be made of."""
    runs: list[tuple[str, Callable[[], None]]] = []
    keep: list[Sequence[Array]] = []
    rng = np.random.default_rng(0)
    for step, fn in prefixes(kernel):
        shapes = ((p.type.dims, p.type.dtype.numpy) for p in fn.params)
        arrays = [rng.standard_normal(dims).astype(dtype) for dims, dtype in shapes]
        target = replace(host(), precision="default")
        try:
            run = kernel_caller(compile_kernel(fn, target, cache=False), arrays)
        except CompileError:
            continue
        start = time.thread_time()
        run()
        if time.thread_time() - start < SLOWEST:
            runs.append((step, run))
            keep.append(arrays)
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for n, (_, run) in enumerate(runs):
            start = time.thread_time()
            run()
            times[n].append(time.thread_time() - start)
    return [(step, statistics.median(t)) for (step, _), t in zip(runs, times, strict=True)]


def main() -> None:
    """Print the ladder of each kernel."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="*", default=list(KERNELS), help=", ".join(KERNELS))
    for name in parser.parse_args().kernels:
        exe = mc.compile(KERNELS[name](), threads=1)
        kernel = max(exe.kernels, key=lambda k: len(k.lowered.schedule.trace) if k.trace else 0)
        rows = measure(kernel)
        final = rows[-1][1]
        print(f"\n{name}: {kernel}, whole schedule {final * 1e6:.0f} µs", flush=True)
        print("| after | times as long |\n| --- | --- |")
        shown = float("inf")
        for n, (step, seconds) in enumerate(rows):
            if n in (0, len(rows) - 1) or abs(seconds - shown) > CHANGE * shown:
                print(f"| `{step}` | {seconds / final:.3g} |")
                shown = seconds


if __name__ == "__main__":
    main()
