"""Random graphs over rows: light ops, reductions along the last axis, softmax, layer_norm.

    g = row_graph(random.Random(7))                 # f32[5, 40], and one f32[40]
    arrays = arrays_for(g, 7)

Values are read by several nodes, and one to three of them are outputs: what kernels with several
results are made of.
"""

from __future__ import annotations

import random

import numpy as np

import minidlc.ops  # noqa: F401
from minidlc.expr.types import Array, f32
from minidlc.graph import Graph, Input, Node, Value, apply

SHAPES = ((5, 40), (3, 4, 33), (70,), (2, 96), (1, 64), (8, 16), (3, 1))
LIGHT = ("relu", "tanh", "exp", "neg", "abs", "sigmoid")


def row_graph(choose: random.Random, shape: tuple[int, ...] | None = None) -> Graph:
    """A graph of 3 to 11 ops."""
    dims = choose.choice(SHAPES) if shape is None else shape
    x, v = Input("x", f32[dims]), Input("v", f32[dims[-1:]])
    full: list[Value] = [x]
    rows: list[Value] = []
    for _ in range(choose.randrange(3, 12)):
        a = choose.choice(full)
        match choose.randrange(9):
            case 0 | 1:
                full.append(apply(choose.choice(LIGHT), a))
            case 2 | 3:
                op = choose.choice(("add", "sub", "mul", "maximum"))
                full.append(apply(op, a, choose.choice([*full, *rows, v])))
            case 4 | 5:
                op = choose.choice(("sum", "max", "mean"))
                rows.append(apply(op, apply("tanh", a), axes=(len(dims) - 1,)))
            case 6 if rows:
                rows.append(apply(choose.choice(("tanh", "neg", "abs")), choose.choice(rows)))
            case 7:
                full.append(apply("softmax", a))
            case _:
                full.append(apply("layer_norm", a, v))
    made = [n for n in (*full, *rows) if isinstance(n, Node)]
    outputs = [made[-1], *(choose.choice(made) for _ in range(choose.randrange(3)))]
    return Graph.of("g", [x, v], outputs)


def arrays_for(g: Graph, seed: int) -> list[Array]:
    """Arrays for the inputs."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(i.type.dims).astype(np.float32) for i in g.inputs]
