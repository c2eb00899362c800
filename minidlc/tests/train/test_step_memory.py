"""What a training step needs: no arena for what it updates, and no more than is alive at once."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.expr.types import Array, f32, i64
from minidlc.graph import Graph
from minidlc.transform.dataflow.reorder import Costs

pytestmark = [pytest.mark.llvm, pytest.mark.ch03]

BATCH = 16


def mlp() -> tuple[Graph, list[tuple[int, ...]]]:
    """Three products."""

    def loss(x, y, w1, b1, w2, b2, w3, b3):
        h = mc.relu(mc.relu(x @ w1 + b1) @ w2 + b2)
        return mc.train.cross_entropy(h @ w3 + b3, y)

    shapes = [(64, 128), (128,), (128, 128), (128,), (128, 10), (10,)]
    types = [f32[shape] for shape in shapes]
    return mc.trace(loss, f32[BATCH, 64], i64[BATCH], *types), shapes


def cnn() -> tuple[Graph, list[tuple[int, ...]]]:
    """Two convolutions with pools, two products."""

    def loss(x, y, w1, b1, w2, b2, w3, b3, w4, b4):
        h = x
        for w, b in ((w1, b1), (w2, b2)):
            h = mc.relu(mc.conv(h, w, b, pads=(2, 2, 2, 2)))
            h = mc.max_pool(h, kernel_shape=(2, 2), strides=(2, 2))
        h = mc.relu(mc.reshape(h, shape=(BATCH, -1)) @ w3 + b3)
        return mc.train.cross_entropy(h @ w4 + b4, y)

    shapes = [(8, 1, 5, 5), (8,), (16, 8, 5, 5), (16,), (256, 32), (32,), (32, 10), (10,)]
    types = [f32[shape] for shape in shapes]
    return mc.trace(loss, f32[BATCH, 1, 16, 16], i64[BATCH], *types), shapes


def transformer() -> tuple[Graph, list[tuple[int, ...]]]:
    """Two layers, 16 wide, of one head; embeddings of 12 characters."""
    steps, width, known = 8, 16, 12
    layer = [(width,), (width,), *[(width, width)] * 4, (width, 64), (64,), (64, width), (width,)]

    def loss(ids, y, table, *params):
        h = mc.gather(table, ids, axis=0)
        for n in range(2):
            scale, bias, q, k, v, o, w1, b1, w2, b2 = params[10 * n : 10 * n + 10]
            a = mc.layer_norm(h, scale, bias)
            score = mc.softmax((a @ q) @ mc.transpose(a @ k, perm=(0, 2, 1)) * 0.25, axis=-1)
            h = h + score @ (a @ v) @ o
            h = h + mc.gelu(h @ w1 + b1) @ w2 + b2
        logits = mc.reshape(h @ params[-1], shape=(BATCH * steps, known))
        return mc.train.cross_entropy(logits, mc.reshape(y, shape=(BATCH * steps,)))

    shapes = [(known, width), *layer, *layer, (width, known)]
    types = [f32[shape] for shape in shapes]
    return mc.trace(loss, i64[BATCH, steps], i64[BATCH, steps], *types), shapes


def parameters(g: Graph, shapes: list[tuple[int, ...]]) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    names = [i.name for i in g.inputs[2:]]
    arrays = (np.asarray(rng.standard_normal(s) * 0.1, np.float32) for s in shapes)
    return dict(zip(names, arrays, strict=True))


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("model", [mlp, cnn, transformer])
def test_the_arena_is_what_is_alive_at_once(model, optimizer: str) -> None:
    """Every update is in place, and the plan is within a tenth of the bound of its order."""
    g, shapes = model()
    step = mc.compile_train_step(
        g, parameters(g, shapes), optimizer=getattr(mc.train, optimizer)(0.01), threads=1
    )
    plan = step.executable.memory_plan
    assert plan.arena_bytes <= 1.10 * plan.peak_bytes
    assert len(plan.updates) == len(step.state())
    assert all(" updated in place by " in str(u) for u in plan.updates)


def test_adam_needs_no_arena_for_what_it_writes() -> None:
    """Three arrays of each parameter are written: none of them has a place of its own."""
    g, shapes = mlp()
    arenas = [
        mc.compile_train_step(
            g, parameters(g, shapes), optimizer=optimizer, threads=1
        ).executable.memory_plan
        for optimizer in (mc.train.sgd(0.01), mc.train.adam(0.01))
    ]
    largest = 4 * max(map(np.prod, shapes))  # Adam reads the gradient twice, so it must lie there
    assert arenas[1].arena_bytes <= arenas[0].arena_bytes + largest + 1024
    assert len(arenas[1].updates) == 3 * len(shapes) + 1


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("model", [mlp, cnn])
def test_no_order_of_the_nodes_needs_much_less(model, optimizer: str) -> None:
    """Some node reads and writes so many bytes that every order has them alive at once."""
    g, shapes = model()
    step = mc.compile_train_step(
        g, parameters(g, shapes), optimizer=getattr(mc.train, optimizer)(0.01), threads=1
    )
    costs = Costs.of(step.executable.program.graph)
    bound = max(
        made + sum(costs.nbytes[r] for r in read)
        for made, read in zip(costs.nbytes, costs.roots, strict=True)
    )
    assert costs.peak(range(len(costs.needs))) <= 1.10 * bound
