"""What a graph computes, apart from names: equality, hash, and the first difference of two graphs.

    parse(str(g)) == g                              # Graph.__eq__ compares `g.digest`
    difference(g1, g2)                              # 'node 3: … / …', or None

Two graphs are equal if their inputs have the same types in the same order, their nodes apply the
same ops with the same attributes to the same values in the same order, constants hold the same
bytes, and the same values come out. Names of inputs, nodes, constants and of the graph do not
count, as those of parameters and local variables do not count for a function; an order of
execution does. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator

from minidlc.graph.graph import DIGEST, Constant, Graph, Value
from minidlc.graph.literals import write_attribute
from minidlc.graph.op import Op


def op_key(op: Op) -> str:
    """Text equal for equal ops: class and attributes, to the bit (-0.0, 1, 1.0, True differ)."""
    cls = type(op)
    texts = (write_attribute(a, lambda g: f"graph {g.digest}") for a in op.attributes().values())
    return f"{op.name} {cls.__module__}.{cls.__qualname__}({', '.join(texts)})"


def constant_key(constant: Constant) -> str:
    """Text equal for constants of the same type and bytes."""
    return f"constant {constant.type} {constant.sha256}"


def skeleton(graph: Graph) -> Iterator[str]:
    """The graph line by line with numbers for names: equal lines mean equal graphs."""
    number: dict[int, str] = {}

    def key(value: Value | None) -> str:
        if value is None:
            return "None"
        if isinstance(value, Constant):
            return constant_key(value)
        return number.get(id(value), "undefined")

    for i, input in enumerate(graph.inputs):
        number[id(input)] = f"in{i}"
        yield f"input {i}: {input.type}"
    for i, node in enumerate(graph.nodes):
        inputs = ", ".join(map(key, node.inputs))
        number[id(node)] = f"%{i}"
        yield f"node {i}: {node.type} = {op_key(node.op)} of {inputs}"
    yield f"outputs: {', '.join(map(key, graph.outputs))}"


def difference(a: Graph, b: Graph) -> str | None:
    """The first line in which two graphs differ, or None if they are equal."""
    for left, right in itertools.zip_longest(skeleton(a), skeleton(b), fillvalue="nothing"):
        if left != right:
            return f"{left}  /  {right}"
    return None


def _digest(graph: Graph) -> str:
    digest = hashlib.sha256()
    for line in skeleton(graph):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()


DIGEST.append(_digest)
