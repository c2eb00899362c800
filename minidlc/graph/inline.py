"""A body put in the place of its node, and the nodes that lie between values.

    inlined(body, {x: a})                           # the results of body, reading a for its input x
    nodes_made(y, placed={a})                       # the nodes under y down to a, inputs first

Reads graphs and values, makes nodes. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from minidlc.graph.graph import Graph, Node, Value


def with_inputs(node: Node, new: Mapping[Value, Value]) -> Node:
    """The node reading replaced values; the same object if none of its inputs is replaced."""
    inputs = tuple(None if v is None else new.get(v, v) for v in node.inputs)
    return node if inputs == node.inputs else replace(node, inputs=inputs)


def inlined(body: Graph, inputs: Mapping[Value, Value]) -> tuple[Value, ...]:
    """The results of a body with values in place of its inputs: a call, opened.

    Nodes of the body that `inputs` names are replaced like inputs.
    """
    current = dict(inputs)
    for node in body.nodes:
        if node not in current:
            current[node] = with_inputs(node, current)
    return tuple(current.get(o, o) for o in body.outputs)


def nodes_made(result: Value, placed: Container[Value]) -> list[Node]:
    """The nodes under `result`, itself included, that are not `placed` yet, inputs first."""
    made: dict[Node, None] = {}
    stack: list[tuple[Value | None, bool]] = [(result, False)]
    while stack:
        value, inputs_done = stack.pop()
        if not isinstance(value, Node) or value in placed or value in made:
            continue
        if inputs_done:
            made[value] = None
        else:
            stack.append((value, True))
            stack += [(v, False) for v in reversed(value.inputs)]
    return list(made)
