"""Helpers of the hidden tests of assignment 1: random types, graphs and inputs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import minidlc as mc
from minidlc.graph import Constant, Graph, Input, Node, Value, apply, getitem
from minidlc.graph.types import TupleType

# ---- 1.2, 1.3, 1.4 -------------------------------------------------------------------------


class Drawing:
    """Draws a random graph of vectors, node by node. Names are n0, n1, …"""

    def __init__(self, rng: np.random.Generator, dtype: Any = mc.f32) -> None:
        self.rng = rng
        sizes = [int(n) for n in rng.integers(1, 40, 3)]
        self.inputs = [Input(f"x{i}", dtype[n]) for i, n in enumerate(sizes[:2])]
        array = rng.integers(-9, 9, sizes[2]).astype(dtype.numpy)
        self.vectors: list[Value] = [*self.inputs, Constant("c", array)]
        self.nodes: list[Node] = []

    def node(self, op: str, *reads: Value, **attributes: Any) -> Node:
        """A node more; it is a vector to read from, unless it has several results."""
        made = dataclasses.replace(apply(op, *reads, **attributes), name=f"n{len(self.nodes)}")
        self.nodes.append(made)
        if not isinstance(made.type, TupleType):
            self.vectors.append(made)
        return made

    def vector(self) -> Value:
        """Any vector, late ones more often."""
        pick = len(self.vectors) - 1 - int(self.rng.integers(0, len(self.vectors)) * 0.7)
        return self.vectors[pick]

    def step(self) -> None:
        """One op more, or three."""
        a, b = self.vector(), self.vector()
        match int(self.rng.integers(0, 6)):
            case 0:
                self.node(str(self.rng.choice(["relu", "neg", "abs"])), a)
            case 1 if a.type.shape[0] + b.type.shape[0] < 200:
                self.node("concat", a, b, axis=0)
            case 2:
                self.node("sum", a, axes=(0,))
            case 3:
                self.node("mul", a, self.node("sum", b, axes=(0,)))
            case 4:
                both = self.node("topk", a, k=int(self.rng.integers(1, a.type.shape[0] + 1)))
                self.named(getitem(both, 0))
            case _:
                self.node("add", a, a)

    def named(self, made: Node) -> None:
        """A node that was built elsewhere."""
        made = dataclasses.replace(made, name=f"n{len(self.nodes)}")
        self.nodes.append(made)
        self.vectors.append(made)


def random_graph(
    rng: np.random.Generator, steps: int = 9, *, dead: bool = True, dtype: Any = mc.f32
) -> Graph:
    """A valid graph whose nodes stand in a random order; `dead`: some that nobody needs."""
    drawing = Drawing(rng, dtype)
    for _ in range(steps):
        drawing.step()
    single = [n for n in drawing.nodes if not isinstance(n.type, TupleType)]
    outputs: list[Value] = [single[-1], single[int(rng.integers(0, len(single)))]]
    nodes = shuffled(rng, drawing.nodes)
    if not dead:
        needed = needs(outputs)
        nodes = [node for node in nodes if node in needed]
    return Graph("g", tuple(drawing.inputs), tuple(nodes), tuple(outputs))


def needs(outputs: Any) -> set[Node]:
    """The nodes that these values need."""
    found: set[Node] = set()
    stack = list(outputs)
    while stack:
        value = stack.pop()
        if isinstance(value, Node) and value not in found:
            found.add(value)
            stack += value.inputs
    return found


def shuffled(rng: np.random.Generator, nodes: list[Node]) -> list[Node]:
    """The nodes in a random order in which each stands after what it reads."""
    left, order = list(nodes), list[Node]()
    while left:
        waits = set(left)
        ready = [node for node in left if not any(v in waits for v in node.inputs)]
        order.append(ready[int(rng.integers(0, len(ready)))])
        left.remove(order[-1])
    return order


def arrays_for(rng: np.random.Generator, graph: Graph) -> list[Any]:
    """Whole numbers for the inputs of a graph: sums of them are exact."""
    return [rng.integers(-9, 9, i.type.dims).astype(i.type.dtype.numpy) for i in graph.inputs]


def recipe_of(graph: Graph) -> dict[str, Any]:
    """A graph as a recipe (see `built` in glue.py)."""
    nodes: dict[str, Any] = {}
    for node in graph.nodes:
        reads = [None if v is None else v.name for v in node.inputs]
        nodes[node.name] = [node.op.name, reads, node.op.attributes()]
    return {
        "inputs": {i.name: i.type for i in graph.inputs},
        "constants": {c.name: c.array for c in graph.constants},
        "nodes": nodes,
        "outputs": [o.name for o in graph.outputs],
    }
