"""Graphs to draw: a chain, one with branches, a wide one, deep ones."""

from __future__ import annotations

import random

import numpy as np

import minidlc.ops  # noqa: F401  registers the ops
from minidlc.autodiff import value_and_grad
from minidlc.expr.types import bool_, f32, i64
from minidlc.graph import Constant, Graph, Input, Node, Value, apply, getitem


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


def without_repeats(length: int) -> Graph:
    """A chain whose ops are drawn by chance: hardly a run of four occurs twice in a row."""
    x, chance = Input("x", f32[8, 8]), random.Random(0)
    h: Value = x
    for _ in range(length):
        h = apply(chance.choice(("relu", "exp", "tanh", "sigmoid", "neg", "abs", "sqrt")), h)
    return Graph.of("chain", [x], [h])


def irregular(count: int) -> Graph:
    """About `count` ops, each of values near it, drawn by chance: branches, joins, no blocks."""
    x, chance = Input("x", f32[8, 8]), random.Random(0)
    values: list[Value] = [x, apply("neg", x)]
    for _ in range(count * 3 // 2):  # the rest is dead
        name = chance.choice(("relu", "tanh", "sigmoid", "abs", "add", "mul", "sub", "matmul"))
        operands = 2 if name in ("add", "mul", "sub", "matmul") else 1
        values.append(apply(name, *chance.sample(values[-6:], operands)))
    return Graph.of("irregular", [x], values[-1:])


def bert(layers: int, size: int = 16) -> Graph:
    """Encoder layers as in BERT, of `size` features: about 30 ops each."""
    x = Input("x", f32[1, 8, size])
    h: Value = x
    for _ in range(layers):
        h = _normalized(h + _attention(h, size))
        wide = _linear(h, size, 4 * size)
        wide = wide * 0.5 * (apply("erf", wide * 0.7071) + 1.0)
        h = _normalized(h + _linear(wide, 4 * size, size))
    return Graph.of("bert", [x], [h])


def _linear(x: Value, size: int, out: int) -> Value:
    return apply("matmul", x, weight("w", size, out)) + weight("b", out)


def _normalized(x: Value) -> Value:
    centred = x - apply("mean", x, axes=(-1,), keepdims=True)
    variance = apply("mean", centred * centred, axes=(-1,), keepdims=True)
    return centred / apply("sqrt", variance + 1e-5) * weight("g", 1) + weight("b", 1)


def _attention(x: Value, size: int, heads: int = 2) -> Value:
    def split(perm: tuple[int, ...]) -> Value:
        rows = apply("reshape", _linear(x, size, size), shape=(1, 8, heads, size // heads))
        return apply("transpose", rows, perm=perm)

    query, key, value = split((0, 2, 1, 3)), split((0, 2, 3, 1)), split((0, 2, 1, 3))
    scores = apply("softmax", apply("matmul", query, key) * 0.25, axis=-1)
    mixed = apply("transpose", apply("matmul", scores, value), perm=(0, 2, 1, 3))
    return _linear(apply("reshape", mixed, shape=(1, 8, size)), size, size)


def branch() -> Graph:
    """An if_ whose branches capture a value, a weight, and return one as it is."""
    c, x = Input("c", bool_[()]), Input("x", f32[4, 8])
    h = apply("exp", x)
    y, v = Input("y", h.type), Input("v", f32[8, 8])
    yes = Graph.of("yes", [y, v], [apply("relu", apply("matmul", y, v)), y])
    no = Graph.of("no", [y, v], [apply("tanh", y), apply("mul", y, 2.0)])
    node = apply("if_", c, h, weight("w", 8, 8), then_branch=yes, else_branch=no)
    return Graph.of("branch", [c, x], [getitem(node, 0) + getitem(node, 1)])


def step(cells: int = 1) -> Graph:
    """The body of an RNN: h' = tanh(h @ w + row), `cells` times over; every h' is stacked."""
    i, go = Input("i", i64[()]), Input("go", bool_[()])
    h, row, w = Input("h", f32[1, 16]), Input("row", f32[1, 16]), Input("w", f32[16, 16])
    new: Value = h
    for _ in range(cells):
        new = apply("tanh", apply("matmul", new, w) + row)
    return Graph.of("step", [i, go, h, row, w], [go, new, new])


def recurrent(cells: int = 1) -> Graph:
    """A loop over rows, its weight captured."""
    x, h = Input("x", f32[6, 1, 16]), Input("h0", f32[1, 16])
    body = step(cells)
    node = apply(
        "loop", None, None, h, x, weight("w", 16, 16), body=body, carried=1, scanned=1, trips=6
    )
    rows = apply("relu", getitem(node, 1))
    return Graph.of("recurrent", [x, h], [getitem(node, 0), rows])


def nested() -> Graph:
    """A while loop whose body has an if_: halve what is large, add a captured value else."""
    x, top = Input("x", f32[8]), Input("top", f32[()])
    i, go, v, bound = (
        Input("i", i64[()]),
        Input("go", bool_[()]),
        Input("v", f32[8]),
        Input("b", f32[()]),
    )
    large = apply("less", bound, apply("max", v, axes=(0,), keepdims=False))
    a, b = Input("a", f32[8]), Input("b", f32[()])
    halve = Graph.of("halve", [a, b], [a * 0.5])
    grow = Graph.of("grow", [a, b], [apply("exp", a) + b])
    new = apply("if_", large, v, bound, then_branch=halve, else_branch=grow)
    body = Graph.of("body", [i, go, v, bound], [large, new])
    node = apply(
        "loop", np.int64(10), Constant("start", np.array(True)), x, top, body=body, carried=1
    )
    return Graph.of("nested", [x, top], [apply("neg", node)])


def in_a_loop(body: Graph, runs: int = 3) -> Graph:
    """A graph of one value, run several times."""
    (value,) = body.inputs
    i, go, x = Input("i", i64[()]), Input("go", bool_[()]), Input("x", value.type)
    step = Graph.of(body.name, [i, go, value], [go, *body.outputs])
    node = apply("loop", None, None, x, body=step, carried=1, trips=runs)
    return Graph.of("looped", [x], [node])


def gradient_of_a_layer() -> Graph:
    x, w = Input("x", f32[4, 8]), Input("w", f32[8, 3])
    h = apply("relu", apply("matmul", x, w))
    return value_and_grad(Graph.of("layer", [x, w], [apply("sum", h, axes=(0, 1), keepdims=False)]))


def gradient_of_where() -> Graph:
    """Where x is below 1, x, else its root: arrows that Graphviz leads through a label."""
    x = Input("x", f32[1])
    h = apply("where", apply("less", x, 1), x, apply("sqrt", x))
    return value_and_grad(Graph.of("f", [x], [apply("sum", h, axes=(0,), keepdims=False)]))
