"""Rematerialisation of a deep MLP: how much memory it saves, and how much time it costs.

    python -m minidlc.benchmarks.remat

Loss and gradients of 16 layers, 512 wide, batch 512 and 1024, one thread: as it is, and with the
pass `remat` behind `fuse`. Both must give the same bits. They take turns; the ratio is the median
of the ratios of neighbours in the processor's time, its interval the middle 95 % of 10,000
bootstrap samples. The peak is the arena, scratch of kernels included.
"""

from __future__ import annotations

import time

import numpy as np

import minidlc as mc
from minidlc.expr.types import Array, f32
from minidlc.graph import Graph
from minidlc.transform import Pipeline, Remat

LAYERS, WIDTH, ROUNDS = 16, 512, 40


def gradient(batch: int) -> Graph:
    """Loss and gradients of the weights and biases."""

    def loss(x, y, *params):
        h = x
        for n in range(LAYERS):
            h = mc.relu(h @ params[2 * n] + params[2 * n + 1])
        return mc.mean((h - y) * (h - y))

    types = [f32[WIDTH, WIDTH], f32[WIDTH]] * LAYERS
    g = mc.trace(loss, f32[batch, WIDTH], f32[batch, WIDTH], *types)
    return mc.value_and_grad(g, [i.name for i in g.inputs[2:]])


def seconds(exe: mc.Executable, arrays: list[Array]) -> float:
    """Of one call: the processor's time, which other programs do not lengthen."""
    start = time.process_time()
    exe(*arrays)
    return time.process_time() - start


def measure(batch: int) -> str:
    """One row."""
    g, rng = gradient(batch), np.random.default_rng(0)
    arrays = [np.asarray(rng.standard_normal(i.type.dims) * 0.05, np.float32) for i in g.inputs]
    plain = mc.compile(g, threads=1)
    less = mc.compile(g, threads=1, pipeline=Pipeline.default(3).insert_after("fuse", Remat()))
    for a, b in zip(plain(*arrays), less(*arrays), strict=True):
        if not np.array_equal(a, b):
            raise SystemExit("the numbers differ")
    pairs = np.array(
        [
            (seconds(plain, arrays), seconds(less, arrays))
            if turn % 2
            else (seconds(less, arrays), seconds(plain, arrays))[::-1]
            for turn in range(ROUNDS)
        ]
    )
    ratios = pairs[:, 1] / pairs[:, 0]
    drawn = np.random.default_rng(0).integers(0, ROUNDS, (10_000, ROUNDS))
    low, high = np.quantile(np.median(ratios[drawn], axis=1), (0.025, 0.975))
    before, after = (exe.memory_plan.arena_bytes for exe in (plain, less))
    peaks = f"{before / 1e6:.1f} | {after / 1e6:.1f} | {after / before:.2f}"
    times = " | ".join(f"{1e3 * t:.0f}" for t in np.median(pairs, axis=0))
    return f"| {batch} | {peaks} | {times} | {np.median(ratios):.2f} | {low:.2f} to {high:.2f} |"


if __name__ == "__main__":
    print("| batch | peak MB | with remat | ratio | ms | with remat | ratio | 95 % |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for size in (512, 1024):
        print(measure(size), flush=True)
