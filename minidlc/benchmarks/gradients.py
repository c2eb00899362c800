"""Time of single gradients against PyTorch's autograd, in turns in one process.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python -m minidlc.benchmarks.gradients

The table of an embedding, attention, and an LSTM over 32 steps: forward and backward together, but
for the table, whose forward is a copy. Run it in an environment that has torch beside minidlc, on
one thread: two pools of threads in one process would wait for each other. Results must agree. The
ratio is that of the medians, ours over theirs: below 1 is faster; with its 95 % bootstrap interval.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import minidlc as mc
from minidlc.graph import Constant, Graph, Input, apply, getitem
from minidlc.support.timing import ratio_interval

ROUNDS, WARM_UP = 100, 5

Arrays = Sequence[np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Rival:
    """One gradient: the graph that makes it, its arrays, and the same as a function of torch."""

    graph: Graph
    arrays: Arrays
    theirs: Callable[[Any, Arrays], Callable[[], Sequence[Any]]]


def normal(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    """Numbers to start with."""
    return np.random.default_rng(seed).normal(0, 0.3, shape).astype(np.float32)


def embedding(rows: int) -> Rival:
    """2,048 tokens of 64 numbers, of a table of so many rows."""
    ids = np.random.default_rng(0).integers(0, rows, (64, 32))
    table = normal(1, rows, 64)
    inputs = [Input("table", mc.f32[rows, 64]), Input("ids", mc.i64[64, 32])]
    graph = mc.grad(Graph.of("embedding", inputs, [apply("gather", *inputs)]))

    def theirs(torch: Any, arrays: Arrays) -> Callable[[], Sequence[Any]]:
        _, places, dy = map(torch.from_numpy, arrays)
        backward = torch.ops.aten.embedding_dense_backward
        return lambda: [backward(dy, places, rows, -1, False)]

    return Rival(graph, (table, ids, normal(2, 64, 32, 64)), theirs)


def attention() -> Rival:
    """Causal, 16 sequences of 64, 4 heads of 16."""
    inputs = [Input(name, mc.f32[16, 4, 64, 16]) for name in "qkv"]
    y = getitem(apply("attention", *inputs, is_causal=True), 0)
    arrays = [normal(n, 16, 4, 64, 16) for n in range(4)]

    def theirs(torch: Any, arrays: Arrays) -> Callable[[], Sequence[Any]]:
        *given, dy = map(torch.from_numpy, arrays)
        for x in given:
            x.requires_grad_(True)

        def run() -> Sequence[Any]:
            y = torch.nn.functional.scaled_dot_product_attention(*given, is_causal=True)
            return [y.detach(), *torch.autograd.grad(y, given, dy)]

        return run

    return Rival(mc.value_and_grad(Graph.of("attention", inputs, [y])), arrays, theirs)


def lstm(steps: int = 32, batch: int = 32, width: int = 64) -> Rival:
    """The square of the last state, by the weights; gates in torch's order."""
    h, c, x = (Input(name, mc.f32[batch, width]) for name in "hcx")
    w, u = (Input(name, mc.f32[4 * width, width]) for name in "wu")
    gates = x @ w.T + h @ u.T
    i, f, g, o = (
        apply("slice", gates, starts=(k,), ends=(k + width,), axes=(1,))
        for k in range(0, 4 * width, width)
    )
    memory = apply("sigmoid", f) * c + apply("sigmoid", i) * apply("tanh", g)
    cell = Graph.of("cell", [h, c, x, w, u], [apply("sigmoid", o) * apply("tanh", memory), memory])
    xs, zero = Input("xs", mc.f32[steps, batch, width]), Constant("z", 0 * normal(0, batch, width))
    last = getitem(apply("scan", zero, zero, xs, w, u, body=cell, states=2), 0)
    loss = Graph.of("lstm", [xs, w, u], [apply("sum", last * last, keepdims=False)])
    arrays = normal(0, steps, batch, width), *(normal(n, 4 * width, width) for n in (1, 2))

    def theirs(torch: Any, arrays: Arrays) -> Callable[[], Sequence[Any]]:
        net = torch.nn.LSTM(width, width, bias=False)
        xs, *weights = map(torch.from_numpy, arrays)
        with torch.no_grad():
            for parameter, weight in zip(net.parameters(), weights, strict=True):
                parameter.copy_(weight)

        def run() -> Sequence[Any]:
            loss = (net(xs)[1][0] ** 2).sum()
            return [loss.detach(), *torch.autograd.grad(loss, list(net.parameters()))]

        return run

    return Rival(mc.value_and_grad(loss, ["w", "u"]), arrays, theirs)


RIVALS: dict[str, Callable[[], Rival]] = {
    "embedding_65": lambda: embedding(65),
    "embedding_50000": lambda: embedding(50_000),
    "attention": attention,
    "lstm": lstm,
}


def measure(name: str, rounds: int) -> None:
    """Check the answers against each other, print one row of the table."""
    import torch  # not a dependency: whoever runs this has it

    torch.set_num_threads(1)
    rival = RIVALS[name]()
    exe = mc.compile(rival.graph, threads=1)
    theirs = rival.theirs(torch, rival.arrays)
    for a, b in zip(exe(*rival.arrays), theirs(), strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-3, atol=1e-3)
    seconds: list[list[float]] = [[], []]
    for turn in range(rounds + WARM_UP):
        for n, run in enumerate((lambda: exe(*rival.arrays), theirs)):
            begin = time.perf_counter()
            run()
            if turn >= WARM_UP:
                seconds[n].append(time.perf_counter() - begin)
    mine, peer = map(np.array, seconds)
    ratio = float(np.median(mine) / np.median(peer))
    low, high = ratio_interval(mine, peer)
    medians = f"{1e6 * np.median(mine):.0f} | {1e6 * np.median(peer):.0f}"
    print(f"| {name} | {medians} | {ratio:.2f} | {low:.2f} to {high:.2f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gradients", nargs="*", help=f"of {', '.join(RIVALS)}; default all")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    if unknown := set(arguments.gradients) - RIVALS.keys():
        parser.error(f"unknown gradient {min(unknown)!r}; known: {', '.join(RIVALS)}")
    print("| gradient | minidlc µs | torch µs | ratio | 95 % |")
    print("| --- | --- | --- | --- | --- |")
    for name in arguments.gradients or RIVALS:
        measure(name, arguments.rounds)
