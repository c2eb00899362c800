"""Which nodes of an ONNX graph the outputs need, in an order in which they can run.

Reads a GraphProto; writes nothing. ONNX asks for sorted nodes; files in the wild are not always,
and sorting them changes no meaning. What has no order, a cycle, is refused. Treated in course
chapter 01_graph_ir.
"""

from __future__ import annotations

import heapq

import onnx

from minidlc.support.errors import OnnxImportError, nearest
from minidlc.support.locations import OnnxLoc


def needed_nodes(graph: onnx.GraphProto, model: str, given: set[str]) -> list[onnx.NodeProto]:
    """Nodes that outputs depend on, inputs first, otherwise as they stand in the file.

    `given` are the names of inputs and initializers. Raises OnnxImportError: MDLC0109 a name
    defined twice, 0108 a name that nothing defines or a cycle (0121).
    """
    nodes = list(graph.node)
    producer = _producers(nodes, model, given)
    needed: set[int] = set()
    stack = [_lookup(o.name, producer, given, model, "output", o.name) for o in graph.output]
    while stack:
        number = stack.pop()
        if number is None or number in needed:
            continue
        needed.add(number)
        for name in names_read(nodes[number]):
            label = node_label(nodes[number])
            stack.append(_lookup(name, producer, given, model, nodes[number].op_type, label))
    return [nodes[n] for n in _sorted(nodes, needed, producer, model)]


def node_label(node: onnx.NodeProto) -> str:
    """The node's name, or that of its first output."""
    return node.name or next(filter(None, node.output), node.op_type)


def names_read(node: onnx.NodeProto) -> list[str]:
    """Names that a node reads: its inputs, and what its subgraphs take from outside."""
    names = dict.fromkeys(filter(None, node.input))
    for graph in subgraphs(node):
        names |= dict.fromkeys(captured_names(graph))
    return list(names)


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs among a node's attributes: branches and bodies."""
    found: list[onnx.GraphProto] = []
    for attribute in node.attribute:
        found += [attribute.g] if attribute.HasField("g") else []
        found += attribute.graphs
    return found


def captured_names(graph: onnx.GraphProto) -> list[str]:
    """Names that a subgraph reads and does not define itself, in order of first use."""
    own = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    own.update(name for node in graph.node for name in node.output)
    read = [name for node in graph.node for name in names_read(node)]
    read += [v.name for v in graph.output]
    return [name for name in dict.fromkeys(read) if name and name not in own]


def _producers(nodes: list[onnx.NodeProto], model: str, given: set[str]) -> dict[str, int]:
    producer: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in producer or name in given:
                other = node_label(nodes[producer[name]]) if name in producer else "an input"
                loc = OnnxLoc(model, node_label(node), node.op_type)
                text = f"{name!r} is defined twice, by {other!r} and {node_label(node)!r}"
                hint = "every value of a graph has a name of its own"
                raise OnnxImportError(text, loc=loc, hint=hint, code="MDLC0109")
            producer[name] = number
    return producer


def _lookup(
    name: str, producer: dict[str, int], given: set[str], model: str, kind: str, label: str
) -> int | None:
    """The number of the node that defines `name`; None for inputs and initializers."""
    if name in given:
        return None
    if name not in producer:
        text = f"{label!r} reads {name!r}, which nothing defines"
        hint = nearest(name, [*producer, *given])
        if hint is None or not hint.startswith("did"):
            hint = "an initializer, input or node of this name is missing"
        raise OnnxImportError(text, loc=OnnxLoc(model, label, kind), hint=hint, code="MDLC0108")
    return producer[name]


def _sorted(
    nodes: list[onnx.NodeProto], needed: set[int], producer: dict[str, int], model: str
) -> list[int]:
    """Kahn's algorithm; of several that could run, the one that comes first in the file."""
    waits = {n: {producer[i] for i in names_read(nodes[n]) if i in producer} for n in needed}
    readers: dict[int, list[int]] = {n: [] for n in needed}
    for number, sources in waits.items():
        for source in sources:
            readers[source].append(number)
    ready = [n for n in needed if not waits[n]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        for reader in readers[number]:
            waits[reader].discard(number)
            if not waits[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(needed):
        raise _cycle(nodes, {n: w for n, w in waits.items() if w}, model)
    return order


def _cycle(nodes: list[onnx.NodeProto], waits: dict[int, set[int]], model: str) -> OnnxImportError:
    """Walk backwards from a waiting node until one comes again: that is the cycle."""
    path = [min(waits)]
    while True:
        following = min(waits[path[-1]])
        if following in path:
            path = [*path[path.index(following) :], following]
            break
        path.append(following)
    text = " -> ".join(repr(node_label(nodes[n])) for n in reversed(path))
    first = nodes[path[-1]]
    loc = OnnxLoc(model, node_label(first), first.op_type)
    hint = "a node cannot read what depends on it; a loop is a Loop node"
    return OnnxImportError(f"the nodes form a cycle: {text}", loc=loc, hint=hint, code="MDLC0121")
