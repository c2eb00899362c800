"""One training step on one engine, in a process of its own: what benchmarks/train.py starts.

    python -m minidlc.benchmarks.train_engines jax cnn adam 1      # then numbers of steps on stdin

Answers each line with the seconds that so many steps took and the loss after them. The models start
from the same weights and see the same batch, so that equal losses show equal steps. Each step hands
its loss to Python, as a loop that shows its progress does.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

BATCH, CLASSES = 64, 10
RATE, MOMENTUM, BETAS, EPSILON = 1e-3, 0.9, (0.9, 0.999), 1e-8
Arrays = dict[str, np.ndarray]


def weights(shapes: dict[str, tuple[int, ...]]) -> Arrays:
    """Seeded values: scaled by the number of inputs, biases 0."""
    rng = np.random.default_rng(0)
    made: Arrays = {}
    for name, shape in shapes.items():
        fan_in = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
        drawn = rng.standard_normal(shape) / np.sqrt(fan_in)
        made[name] = (drawn if len(shape) > 1 else np.zeros(shape)).astype(np.float32)
    return made


MLP = weights({"w0": (784, 512), "b0": (512,), "w1": (512, 512), "b1": (512,), "w2": (512, 10),
               "b2": (10,)})  # fmt: skip
CNN = weights({"k0": (8, 1, 5, 5), "c0": (8,), "k1": (16, 8, 5, 5), "c1": (16,),
               "w0": (256, 64), "b0": (64,), "w1": (64, 10), "b1": (10,)})  # fmt: skip


def batch(model: str) -> tuple[np.ndarray, np.ndarray]:
    """64 images of 28 x 28 and their classes."""
    rng = np.random.default_rng(1)
    shape = (BATCH, 784) if model == "mlp" else (BATCH, 1, 28, 28)
    return rng.standard_normal(shape, np.float32), rng.integers(0, CLASSES, BATCH)


def ours(model: str, optimizer: str, threads: int) -> Callable[[], float]:
    """The step as minidlc compiles it."""
    import minidlc as mc

    def mlp(x: Any, y: Any, p: Any) -> Any:
        h = mc.relu(x @ p["w0"] + p["b0"])
        h = mc.relu(h @ p["w1"] + p["b1"])
        return mc.train.cross_entropy(h @ p["w2"] + p["b2"], y)

    def cnn(x: Any, y: Any, p: Any) -> Any:
        h = mc.relu(mc.conv(x, p["k0"], p["c0"]))
        h = mc.max_pool(h, kernel_shape=(2, 2), strides=(2, 2))
        h = mc.relu(mc.conv(h, p["k1"], p["c1"]))
        h = mc.max_pool(h, kernel_shape=(2, 2), strides=(2, 2)).reshape(BATCH, -1)
        h = mc.relu(h @ p["w0"] + p["b0"])
        return mc.train.cross_entropy(h @ p["w1"] + p["b1"], y)

    function, parameters = (mlp, MLP) if model == "mlp" else (cnn, CNN)
    x, y = batch(model)
    types = {name: mc.TensorType(mc.f32, array.shape) for name, array in parameters.items()}
    loss = mc.trace(function, mc.TensorType(mc.f32, x.shape), mc.i64[BATCH], types)
    rules = {
        "momentum": lambda: mc.train.momentum(RATE, MOMENTUM),
        "adam": lambda: mc.train.adam(RATE),
    }
    start = {f"p_{name}": array for name, array in parameters.items()}
    step = mc.compile_train_step(loss, start, optimizer=rules[optimizer](), threads=threads)
    return lambda: float(step(x, y)[0])


def torchs(model: str, optimizer: str, threads: int) -> Callable[[], float]:
    """The step as PyTorch runs it, op by op; its fused optimisers update all in one call."""
    import torch
    from torch import nn

    torch.set_num_threads(threads)
    p = {n: torch.from_numpy(a.copy()) for n, a in (MLP if model == "mlp" else CNN).items()}
    functions = torch.nn.functional
    for parameter in p.values():
        parameter.requires_grad_()

    def mlp(x: Any) -> Any:
        h = functions.relu(torch.addmm(p["b0"], x, p["w0"]))
        h = functions.relu(torch.addmm(p["b1"], h, p["w1"]))
        return torch.addmm(p["b2"], h, p["w2"])

    def cnn(x: Any) -> Any:
        h = functions.max_pool2d(functions.relu(functions.conv2d(x, p["k0"], p["c0"])), 2)
        h = functions.max_pool2d(functions.relu(functions.conv2d(h, p["k1"], p["c1"])), 2)
        h = functions.relu(torch.addmm(p["b0"], h.flatten(1), p["w0"]))
        return torch.addmm(p["b1"], h, p["w1"])

    forward = mlp if model == "mlp" else cnn
    rules: dict[str, Callable[[], Any]] = {
        "momentum": lambda: torch.optim.SGD(p.values(), RATE, MOMENTUM, fused=True),
        "adam": lambda: torch.optim.Adam(p.values(), RATE, BETAS, EPSILON, fused=True),
    }
    rule, loss_of = rules[optimizer](), nn.CrossEntropyLoss()
    x, y = map(torch.from_numpy, batch(model))

    def step() -> float:
        rule.zero_grad(set_to_none=True)
        loss = loss_of(forward(x), y)
        loss.backward()
        rule.step()
        return loss.item()

    return step


def jaxs(model: str, optimizer: str, threads: int) -> Callable[[], float]:
    """The step as one function under jax.jit, its state donated; images with channels last."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def mlp(p: Any, x: Any) -> Any:
        h = jax.nn.relu(x @ p["w0"] + p["b0"])
        return jax.nn.relu(h @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]

    def convolved(x: Any, k: Any, c: Any) -> Any:
        axes = ("NHWC", "HWIO", "NHWC")
        y = lax.conv_general_dilated(x, k, (1, 1), "VALID", dimension_numbers=axes)
        return jax.nn.relu(y + c)

    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def cnn(p: Any, x: Any) -> Any:
        h = pooled(convolved(x, p["k0"], p["c0"]))
        h = pooled(convolved(h, p["k1"], p["c1"])).reshape(BATCH, -1)
        return jax.nn.relu(h @ p["w0"] + p["b0"]) @ p["w1"] + p["b1"]

    forward = mlp if model == "mlp" else cnn

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        log_p = jax.nn.log_softmax(forward(p, x))
        return -jnp.take_along_axis(log_p, y[:, None], 1).mean()

    def sgd(p: Any, g: Any, slots: Any, t: Any) -> tuple[Any, Any]:
        v = jax.tree.map(lambda v, g: MOMENTUM * v + g, slots[0], g)
        return jax.tree.map(lambda p, v: p - RATE * v, p, v), (v, slots[1])

    def adam(p: Any, g: Any, slots: Any, t: Any) -> tuple[Any, Any]:
        b1, b2 = BETAS
        m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, slots[0], g)
        v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, slots[1], g)
        rate = RATE / (1 - b1**t)

        def moved(p: Any, m: Any, v: Any) -> Any:
            return p - rate * m / (jnp.sqrt(v / (1 - b2**t)) + EPSILON)

        return jax.tree.map(moved, p, m, v), (m, v)

    rule = sgd if optimizer == "momentum" else adam

    def whole(p: Any, slots: Any, t: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        return *rule(p, g, slots, t + 1), t + 1, loss

    step = jax.jit(whole, donate_argnums=(0, 1, 2))
    arrays, (x, y) = (MLP if model == "mlp" else channels_last(CNN)), batch(model)
    p = {n: jnp.array(a) for n, a in arrays.items()}
    x, y = jnp.array(x if model == "mlp" else np.moveaxis(x, 1, -1)), jnp.array(y)
    state: Any = (p, tuple(jax.tree.map(jnp.zeros_like, p) for _ in range(2)), jnp.float32(0))

    def run() -> float:
        nonlocal state
        *state, loss = step(*state, x, y)
        return float(loss)

    return run


def channels_last(cnn: Arrays) -> Arrays:
    """The same weights for images of another order: taps, then channels; rows of w0 alike."""
    moved = {n: np.transpose(a, (2, 3, 1, 0)) if a.ndim == 4 else a for n, a in cnn.items()}
    pixels = cnn["w0"].reshape(16, 4, 4, -1)  # channel, row, column
    return moved | {"w0": np.moveaxis(pixels, 0, 2).reshape(cnn["w0"].shape)}


ENGINES = {"minidlc": ours, "jax": jaxs, "torch": torchs}


def main(engine: str, model: str, optimizer: str, threads: str) -> None:
    """Serve steps until stdin ends."""
    if int(threads) == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before any pool is made
    step = ENGINES[engine](model, optimizer, int(threads))
    for line in sys.stdin:
        begin, loss = time.perf_counter(), 0.0
        for _ in range(int(line)):
            loss = step()
        print(time.perf_counter() - begin, loss, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
