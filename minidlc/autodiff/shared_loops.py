"""A loop that does what another one does, and more, takes its place: forward is run once.

    y = loop(h, w, body=f)                          →  y, rows = loop(h, w, body=f_and_rows)
    y_again, rows = loop(h, w, body=f_and_rows)

The second loop is what the gradient of the first reads (`control_flow.py`). Its body is made of the
very nodes of the first one, so that equal bodies are found without comparing what they compute.
Reads values, makes nodes. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

from minidlc.graph.graph import Graph, Node, Value, getitem, located
from minidlc.graph.inline import nodes_made, with_inputs
from minidlc.ops.control_flow import Loop
from minidlc.ops.gradients import given
from minidlc.ops.scan_loop import Scan
from minidlc.support.locations import Derived


def with_loops(graph: Graph) -> Graph:
    """The graph with each scan as the loop that it is; the same object if there is none."""
    if not any(isinstance(node.op, Scan) for node in graph.nodes):
        return graph
    new: dict[Value, Value] = {}
    parts: dict[Value | None, tuple[Value, ...]] = {}
    for node in graph.nodes:
        current = with_inputs(node, new)
        if isinstance(node.op, Scan):
            with located(Derived("decompose scan", node.loc)):
                made = node.op.decompose(*given(current))
            parts[node] = made if isinstance(made, tuple) else (made,)
            new[node] = _named(parts[node][0], node)
        elif node.op.name == "getitem" and node.inputs[0] in parts:
            part = parts[node.inputs[0]][cast(int, node.op.attributes()["index"])]
            new[node] = _named(part, node)
        else:
            new[node] = current
    outputs = tuple(new.get(o, o) for o in graph.outputs)
    nodes: dict[Node, None] = {}
    for value in (*new.values(), *outputs):
        nodes |= dict.fromkeys(nodes_made(value, nodes))
    return Graph(graph.name, graph.inputs, tuple(nodes), outputs)


def _named(value: Value, like: Node) -> Value:
    """A value under the name that the reader gave it."""
    return replace(value, name=like.name) if isinstance(value, Node) else value


def with_shared_loops(values: Sequence[Value]) -> dict[Value, Value]:
    """For each node under these values that reads a loop which another one includes: its successor.

    Empty if there is no such loop.
    """
    nodes: dict[Node, None] = {}
    for value in values:
        nodes |= dict.fromkeys(nodes_made(value, nodes))
    including = _including(nodes)
    new: dict[Value, Value] = {}
    stack: list[tuple[Value | None, bool]] = [(v, False) for v in reversed(values)]
    while stack and including:
        value, inputs_done = stack.pop()
        if not isinstance(value, Node) or value in new:
            continue
        loop, index = _result(value)
        other = including.get(loop)
        if not inputs_done:
            stack.append((value, True))
            below = value.inputs if other is None else (other,)
            stack += [(v, False) for v in reversed(below)]
        elif other is not None:
            new[value] = _named(getitem(new[other], index), value)
        else:
            new[value] = with_inputs(value, new)
    return new


def _result(node: Node) -> tuple[Node, int]:
    """Of which node it is which result."""
    if node.op.name == "getitem" and isinstance(node.inputs[0], Node):
        return node.inputs[0], cast(int, node.op.attributes()["index"])
    return node, 0


def _including(nodes: Iterable[Node]) -> dict[Node, Node]:
    """Loop -> the loop with the most results that has its own in front."""
    same: dict[Hashable, list[Node]] = {}
    for node in nodes:
        if isinstance(node.op, Loop):
            op = node.op
            key = (op.carried, op.scanned, op.trips, *_ids(node.inputs), *_ids(op.body.inputs))
            same.setdefault(key, []).append(node)
    found: dict[Node, Node] = {}
    for loops in same.values():
        most = max(loops, key=lambda n: len(_results(n)))
        found |= {n: most for n in loops if n is not most and _starts_with(most, n)}
    return found


def _ids(values: Iterable[Value | None]) -> Iterator[int]:
    return map(id, values)


def _results(loop: Node) -> tuple[Value, ...]:
    assert isinstance(loop.op, Loop)
    return loop.op.body.outputs


def _starts_with(most: Node, loop: Node) -> bool:
    pairs = zip(_results(most), _results(loop), strict=False)
    return len(_results(most)) > len(_results(loop)) and all(a is b for a, b in pairs)
