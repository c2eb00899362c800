"""Time of convolutions, pools and their gradients against PyTorch, layer by layer.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python -m minidlc.benchmarks.windows --threads 1

Weights are inputs, as they are while a model is trained: nothing is packed at compile time. Run it
where torch lies beside minidlc. Both engines are called in turns in one process; with one thread
the figure is processor time. The ratio is that of the medians, ours over theirs: below 1 is faster.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import minidlc as mc
from minidlc.graph import apply

ROUNDS, ROUND_SECONDS = 15, 0.01


@dataclass(frozen=True)
class Layer:
    """A square convolution; `pool` 0, or a maximum pool of that size behind a relu."""

    batch: int
    channels: int
    size: int
    outputs: int = 0
    kernel: int = 3
    pad: int = 0
    stride: int = 1
    group: int = 1
    pool: int = 0

    def __str__(self) -> str:
        shape = f"{self.batch} x {self.channels} x {self.size}²"
        if self.pool:
            return f"{shape}, pool {self.pool}/{self.stride}"
        stride = f" /{self.stride}" if self.stride > 1 else ""
        group = f", {self.group} groups" if self.group > 1 else ""
        return f"{shape} → {self.outputs}, {self.kernel}²{stride}{group}"


LAYERS = (
    Layer(64, 1, 28, 8, 5), Layer(64, 8, 12, 16, 5), Layer(64, 1, 8, 16, 3, 1),
    Layer(64, 16, 8, 32, 3, 1), Layer(64, 32, 4, 64, 3, 1), Layer(16, 32, 14, 64, 3, 1),
    Layer(8, 64, 28, 64, 3, 1), Layer(4, 64, 56, 64, 3, 1), Layer(8, 64, 56, 64, 3, 1, 2),
    Layer(8, 128, 28, 128, 1), Layer(8, 32, 32, 32, 3, 1, 1, 32), Layer(4, 3, 224, 64, 7, 3, 2),
    Layer(64, 8, 24, stride=2, pool=2), Layer(64, 16, 8, stride=2, pool=2),
    Layer(16, 32, 28, pad=1, stride=2, pool=3),
)  # fmt: skip

Run = Callable[[], Any]


def runs(layer: Layer, threads: int) -> Iterator[tuple[str, Run, Run]]:
    """What is measured of a layer: a name, our call, theirs."""
    import torch

    torch.set_num_threads(threads)
    functions, rng = torch.nn.functional, np.random.default_rng(0)
    pads, strides = (layer.pad,) * 4, (layer.stride,) * 2
    x = mc.Input("x", mc.f32[layer.batch, layer.channels, layer.size, layer.size])

    def call(graph: mc.Graph, *arrays: Any) -> Run:
        exe = mc.compile(graph, threads=threads)
        return lambda: exe(*arrays)

    if layer.pool:
        window = {"kernel_shape": (layer.pool,) * 2, "strides": strides, "pads": pads}
        f = mc.Graph.of("f", [x], [apply("max_pool", mc.relu(x), **window)])
        g = mc.value_and_grad(f)
        ax, ady = (rng.standard_normal(i.type.dims).astype(np.float32) for i in g.inputs)
        tx, tdy = torch.from_numpy(ax).requires_grad_(), torch.from_numpy(ady)

        def both() -> None:
            tx.grad = None
            y = functions.max_pool2d(functions.relu(tx), layer.pool, layer.stride, layer.pad)
            y.backward(tdy)

        yield "relu, pool and back", call(g, ax, ady), both
        return
    shape = (layer.outputs, layer.channels // layer.group, layer.kernel, layer.kernel)
    w = mc.Input("w", mc.TensorType(mc.f32, shape))
    y = apply("conv", x, w, strides=strides, pads=pads, group=layer.group)
    f = mc.Graph.of("f", [x, w], [y])
    dx, dw = mc.grad(f, ["x"]), mc.grad(f, ["w"])
    ax, aw, ady = (rng.standard_normal(i.type.dims).astype(np.float32) for i in dx.inputs)
    tx, tw, tdy = map(torch.from_numpy, (ax, aw, ady))
    given = {"stride": layer.stride, "padding": layer.pad, "groups": layer.group}
    back = torch.nn.grad
    yield "y", call(f, ax, aw), lambda: functions.conv2d(tx, tw, **given)
    yield "dx", call(dx, ax, aw, ady), lambda: back.conv2d_input(tx.shape, tw, tdy, **given)
    yield "dw", call(dw, ax, aw, ady), lambda: back.conv2d_weight(tx, tw.shape, tdy, **given)


def medians(ours: Run, theirs: Run, clock: Callable[[], float]) -> tuple[float, float]:
    """Seconds of one call of each."""
    seconds: tuple[list[float], list[float]] = [], []
    counts = [
        max(1, round(ROUND_SECONDS / max(_time(run, 2, clock), 1e-7))) for run in (ours, theirs)
    ]
    for _ in range(ROUNDS):
        for run, count, found in zip((ours, theirs), counts, seconds, strict=True):
            found.append(_time(run, count, clock))
    return float(np.median(seconds[0])), float(np.median(seconds[1]))


def _time(run: Run, count: int, clock: Callable[[], float]) -> float:
    begin = clock()
    for _ in range(count):
        run()
    return (clock() - begin) / count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    clock = time.process_time if threads == 1 else time.perf_counter
    print("| layer | what | minidlc µs | PyTorch µs | ratio |\n| --- | --- | --- | --- | --- |")
    for layer in LAYERS:
        for what, ours, theirs in runs(layer, threads):
            mine, other = medians(ours, theirs, clock)
            row = f"| {layer} | {what} | {1e6 * mine:.0f} | {1e6 * other:.0f}"
            print(f"{row} | {mine / other:.2f} |", flush=True)
