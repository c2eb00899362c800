"""Random small graphs over real ops, for property tests."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

import minidlc.ops  # noqa: F401  (fills the registry)
from minidlc.expr.types import DTYPES, TensorType, f32
from minidlc.graph import Constant, Graph, Input, Node, Value, apply
from minidlc.support.errors import TypeRuleError

UNARY = ("relu", "neg", "abs", "exp", "tanh", "floor", "identity", "sigmoid")
BINARY = ("add", "sub", "mul", "maximum")
SHAPES = ((4, 3), (3,), (1, 3), (4, 1), (), (3, 4), (2, 2, 3))
SPECIAL = (0.0, -0.0, 1.0, math.nan, math.inf, -math.inf, 0.1, 1e-45)


def constant(draw: Any, shape: tuple[int, ...]) -> Constant:
    """A constant, often with elements that rules look for."""
    size = math.prod(shape)
    elements = draw(st.lists(st.sampled_from(SPECIAL), min_size=size, max_size=size))
    if draw(st.booleans()):
        elements = [draw(st.sampled_from((0.0, -0.0, 1.0, 2.0)))] * size
    return Constant(draw(st.sampled_from("abc")), np.float32(elements).reshape(shape))


def step(draw: Any, values: list[Value]) -> Value | None:
    """One more node over the values so far, or None if the op does not fit them."""
    x = draw(st.sampled_from(values))
    assert isinstance(x.type, TensorType)
    rank, kind = x.type.rank, draw(st.integers(0, 9))
    try:
        if kind <= 2:
            return apply(draw(st.sampled_from(UNARY)), x)
        if kind <= 5:
            y = draw(st.sampled_from([*values, constant(draw, draw(st.sampled_from(SHAPES)))]))
            a, b = draw(st.permutations((x, y)))
            return apply(draw(st.sampled_from(BINARY)), a, b)
        if kind == 6:
            return apply("transpose", x, perm=tuple(draw(st.permutations(range(rank)))))
        if kind == 7:
            return apply("reshape", x, shape=draw(st.sampled_from(((-1,), (3, -1), (1, -1)))))
        if kind == 8:
            return apply("matmul", x, draw(st.sampled_from(values)))
        if rank:
            return apply("softmax", x, axis=draw(st.integers(-rank, rank - 1)))
    except TypeRuleError:
        pass
    return None


@st.composite
def graphs(draw: Any, max_nodes: int = 8) -> Graph:
    """A typed graph with one to three inputs and outputs."""
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3))
    inputs = [Input(f"x{i}", f32[s]) for i, s in enumerate(shapes)]
    values: list[Value] = list(inputs)
    for _ in range(draw(st.integers(1, max_nodes))):
        value = step(draw, values)
        if value is not None:
            values.append(value)
    outputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
    nodes = tuple(v for v in values if isinstance(v, Node))
    return Graph("g", tuple(inputs), nodes, tuple(outputs))


def feeds(graph: Graph, seed: int = 0) -> list[Any]:
    """Random input arrays, some elements of them special."""
    rng = np.random.default_rng(seed)
    arrays = []
    for i in graph.inputs:
        a = np.array(rng.standard_normal(i.type.dims) * 2, np.float32)
        special = rng.random(a.shape) < 0.2
        arrays.append(np.where(special, rng.choice(np.float32(SPECIAL), a.shape), a))
    return [np.asarray(a, np.float32) for a in arrays]


@st.composite
def constants(draw: Any) -> Constant:
    """A constant of any element type, as random bits."""
    element = draw(st.sampled_from(sorted(DTYPES)))
    shape = draw(st.sampled_from(((), (1,), (2, 3), (0, 4), (2, 1, 2))))
    size = math.prod(shape) * DTYPES[element].itemsize
    bits = draw(st.binary(min_size=size, max_size=size))
    if element == "bool":
        bits = bytes(b & 1 for b in bits)
    return Constant("c", np.frombuffer(bits, DTYPES[element].numpy).reshape(shape))
