"""Graphs to draw: a chain, one with branches, a wide one, deep ones."""

from __future__ import annotations

import numpy as np

import minidlc.ops  # noqa: F401  registers the ops
from minidlc.expr.types import f32
from minidlc.graph import Constant, Graph, Input, Node, Value, apply


def weight(name: str, *shape: int) -> Constant:
    return Constant(name, np.ones(shape, np.float32))


def conv(x: Value, channels: int, out: int, pad: int = 1, size: int = 3) -> Node:
    w, b = weight("w", out, channels, size, size), weight("b", out)
    return apply("conv", x, w, b, pads=(pad,) * 4)


def pool(x: Value) -> Node:
    return apply("max_pool", x, kernel_shape=(2, 2), strides=(2, 2))


def lenet() -> Graph:
    x = Input("image", f32[1, 1, 28, 28])
    h = pool(apply("relu", conv(x, 1, 6, 2, 5)))
    h = apply("flatten", pool(apply("relu", conv(h, 6, 16, 0, 5))))
    for i, o in ((400, 120), (120, 84), (84, 10)):
        h = apply("matmul", h, weight("w", i, o)) + weight("b", o)
        h = apply("relu", h) if o != 10 else h
    return Graph.of("lenet", [x], [h])


def resnet(blocks: int) -> Graph:
    """Residual blocks: each value with two readers."""
    x = Input("image", f32[1, 3, 16, 16])
    h: Value = apply("relu", conv(x, 3, 8))
    for _ in range(blocks):
        h = apply("relu", conv(apply("relu", conv(h, 8, 8)), 8, 8) + h)
    y = apply("matmul", apply("flatten", pool(h)), weight("w", 512, 10))
    return Graph.of("resnet", [x], [apply("softmax", y, axis=1)])


def wide(branches: int = 6) -> Graph:
    """Branches of different length, symbolic sizes, an early output and an input returned."""
    x = Input("x", f32["N", 64])
    ends: list[Value] = []
    for i in range(branches):
        h: Value = x
        for _ in range(i % 3 + 1):
            h = apply("relu", apply("matmul", h, weight("w", 64, 64)))
        ends.append(h)
    return Graph.of("wide", [x], [apply("concat", *ends, axis=1), ends[1], x])


def many_kinds(length: int) -> Graph:
    """A long chain without repeats: ops drawn from a fixed sequence that has no period."""
    x = Input("x", f32[8, 8])
    h: Value = x
    names = ("relu", "exp", "tanh", "sigmoid", "neg", "abs", "sqrt")
    for i in range(length):
        h = apply(names[(i * i + i // 7) % len(names)], h)
    return Graph.of("chain", [x], [h])
