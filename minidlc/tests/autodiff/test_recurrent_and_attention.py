"""Gradients of larger parts: an LSTM that learns, and attention, which keeps what it computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc.expr.types import f32, f64, i64
from minidlc.graph import Constant, Graph, Input, Value, apply, getitem
from minidlc.graph.graph import bodies

pytestmark = [pytest.mark.ch03, pytest.mark.llvm]

BATCH, STEPS, WORDS, WIDTH = 8, 6, 5, 8


def cell() -> Graph:
    """One step of a long short-term memory, the four gates side by side in one product."""
    h, c, x = (Input(n, f32[BATCH, WIDTH]) for n in "hcx")
    w, u = (Input(n, f32[WIDTH, 4 * WIDTH]) for n in "wu")
    gates = x @ w + h @ u
    i, f, o, g = (
        apply("slice", gates, starts=(k,), ends=(k + WIDTH,), axes=(1,))
        for k in range(0, 4 * WIDTH, WIDTH)
    )
    memory = apply("sigmoid", f) * c + apply("sigmoid", i) * apply("tanh", g)
    return Graph.of("cell", [h, c, x, w, u], [apply("sigmoid", o) * apply("tanh", memory), memory])


def classifier() -> Graph:
    """Words to vectors, an LSTM over them, and the cross-entropy of two classes."""
    ids, y = Input("ids", i64[BATCH, STEPS]), Input("y", i64[BATCH])
    table, out = Input("table", f32[WORDS, WIDTH]), Input("out", f32[WIDTH, 2])
    w, u = (Input(n, f32[WIDTH, 4 * WIDTH]) for n in "wu")
    zero = Constant("zero", np.zeros((BATCH, WIDTH), np.float32))
    words = apply("gather", table, ids)
    how = {"states": 2, "scanned": 1, "input_axes": (1,)}
    run = apply("scan", zero, zero, words, w, u, body=cell(), **how)
    scores = apply("log_softmax", getitem(run, 0) @ out)
    right = apply("one_hot", y, np.array([0, 1], np.float32), depth=2)
    loss = apply("sum", scores * right, keepdims=False) * (-1 / BATCH)
    return Graph.of("classifier", [ids, y, table, w, u, out], [loss])


def start(g: Graph) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {i.name: rng.normal(0, 0.5, i.type.dims).astype(np.float32) for i in g.inputs[2:]}


def batch(rng: np.random.Generator) -> dict[str, Any]:
    """Does the sum of the words exceed its mean?"""
    ids = rng.integers(0, WORDS, (BATCH, STEPS))
    return {"ids": ids, "y": (ids.sum(1) > (WORDS - 1) * STEPS / 2).astype(np.int64)}


def test_the_gradient_of_a_recurrent_net_compiles() -> None:
    g = mc.value_and_grad(classifier())
    given = start(classifier()) | batch(np.random.default_rng(1))
    for a, b in zip(mc.compile(g)(given), mc.interpret(g, given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_a_recurrent_net_learns() -> None:
    rng = np.random.default_rng(2)
    step = mc.compile_train_step(
        classifier(), start(classifier()), optimizer=mc.train.adam(1e-2)
    )  # fmt: skip
    losses = [float(step(**batch(rng))[0]) for _ in range(150)]
    assert np.mean(losses[-20:]) < 0.4 * np.mean(losses[:20])


def attention(element: mc.DType = f32, mask: Any = None, **attributes: Any) -> Graph:
    q, k, v = (Input(n, element[2, 2, 4, 3]) for n in "qkv")
    extra = [] if mask is None else [mask]
    y = getitem(apply("attention", q, k, v, *extra, **attributes), 0)
    return Graph.of("attention", [q, k, v], [y])


def names(g: Graph) -> list[str]:
    """All ops, those inside fused groups too."""
    return [n.op.name for n in g.nodes] + [m for n in g.nodes for b in bodies(n) for m in names(b)]


def numbers(g: Graph) -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(i.type.dims).astype(i.type.dtype.numpy) for i in g.inputs]


def test_attention_computes_its_weights_once() -> None:
    exe = mc.compile(mc.value_and_grad(attention(is_causal=True)))
    assert names(exe.graph).count("softmax") == 1
    assert names(exe.graph).count("matmul") == 6  # two forward, four back


def test_queries_that_see_no_key_get_no_nan() -> None:
    seen: Value = Constant(
        "mask", np.array([[True] * 4, [False] * 4, [True, False] * 2, [False] * 4])
    )
    g = mc.grad(attention(f64, seen))
    dq, dk, dv = mc.interpret(g, numbers(g))
    assert all(np.isfinite(d).all() for d in (dq, dk, dv))
    assert not dq[:, :, [1, 3]].any()
    assert dq[:, :, [0, 2]].all()


def test_compiled_attention_is_the_interpreted_one() -> None:
    for attributes in ({}, {"is_causal": True}, {"softcap": 2.0, "left_window_size": 1}):
        g = mc.value_and_grad(attention(**attributes))
        given = numbers(g)
        for a, b in zip(mc.compile(g)(*given), mc.interpret(g, given), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
