"""Ways to make a graph smaller that keep it valid: the steps of a reduction.

    kept_only(g, nodes)                             # the others become inputs where they are read
    for smaller in SIMPLIFICATIONS[0](g): …         # each kind gives candidates, the best first

Each candidate has fewer nodes, outputs, constants or elements than the graph, so that trying ends.
None stands for a candidate that an op refuses. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import cast

import numpy as np

from minidlc.expr.types import Array, TensorType
from minidlc.graph import Constant, Fused, Graph, Input, Node, Op, TupleType, Value, build
from minidlc.graph.inline import inlined, with_inputs
from minidlc.graph.printer import INLINE, value_names
from minidlc.ops.control_flow import If
from minidlc.support.errors import CompileError
from minidlc.transform.expand import expand
from minidlc.transform.rebuild import live_nodes, with_replaced


def uniquely_named(graph: Graph) -> Graph:
    """The same graph, its values named as its text names them: no two alike."""
    names = value_names(graph)
    new: dict[Value, Value] = {i: replace(i, name=names[i]) for i in graph.inputs}
    new |= {c: replace(c, name=names[c]) for c in graph.constants}
    for node in graph.nodes:
        new[node] = replace(with_inputs(node, new), name=names[node])
    inputs = tuple(cast(Input, new[i]) for i in graph.inputs)
    nodes = tuple(cast(Node, new[n]) for n in graph.nodes)
    return Graph(graph.name, inputs, nodes, tuple(new.get(o, o) for o in graph.outputs))


def kept_only(graph: Graph, kept: Container[Node]) -> Graph | None:
    """The graph of these nodes; what they read of others is an input of its name.

    Outputs are the old ones among them, and what none of them reads.
    """
    new: dict[Value, Value] = {}
    fresh: dict[Value, Input] = {}
    read: set[Value] = set()
    nodes: list[Node] = []
    for node in graph.nodes:
        if node not in kept:
            continue
        for v in node.inputs:
            if isinstance(v, Node) and v not in new:
                if not isinstance(v.type, TensorType):
                    return None
                fresh[v] = new[v] = Input(v.name, v.type, v.loc)
        read |= {v for v in node.inputs if v is not None}
        nodes.append(with_inputs(node, new))
        new[node] = nodes[-1]
    mine = [n for n in graph.nodes if n in kept and not isinstance(n.type, TupleType)]
    ends = [o for o in dict.fromkeys(graph.outputs) if not isinstance(o, Node) or o in kept]
    ends += [n for n in mine if n not in read and n not in ends]
    inputs = (*(i for i in graph.inputs if i in read or i in ends), *fresh.values())
    return Graph(graph.name, inputs, tuple(nodes), tuple(new.get(o, o) for o in ends))


def _tidied(graph: Graph) -> Graph:
    """Without nodes and inputs that nothing needs."""
    nodes = live_nodes(graph.nodes, graph.outputs)
    read = {v for n in nodes for v in n.inputs} | set(graph.outputs)
    return Graph(graph.name, tuple(i for i in graph.inputs if i in read), nodes, graph.outputs)


def fewer_outputs(graph: Graph) -> Iterator[Graph]:
    """One output only, then one output less; then no code that is dead, no input that is unread."""
    outputs = graph.outputs
    if len(outputs) > 2:
        yield from (_tidied(replace(graph, outputs=(o,))) for o in outputs)
    if len(outputs) > 1:
        for k in range(len(outputs)):
            yield replace(graph, outputs=(*outputs[:k], *outputs[k + 1 :]))
    yield _tidied(graph)


def bypassed(graph: Graph) -> Iterator[Graph]:
    """A node replaced by one of its inputs of the same type."""
    for node in reversed(graph.nodes):
        for value in dict.fromkeys(node.inputs):
            if value is not None and value.type == node.type:
                yield _tidied(with_replaced(graph, {node: value}))


def opened_bodies(graph: Graph) -> Iterator[Graph | None]:
    """A body alone; a fused group or a branch in place of its node; a body with a node bypassed."""
    for node in graph.nodes:
        yield from map(uniquely_named, _own_graphs(node.op).values())
        for body, skipped in _bodies_to_open(node):
            yield _attempt(partial(_opened_at, graph, node, body, skipped))
        for name, body in _own_graphs(node.op).items():
            for smaller in (*bypassed(body), *zeroed(body)):
                whole = replace(smaller, inputs=body.inputs)
                op = replace(node.op, **{name: whole})
                yield _attempt(partial(rebuilt, graph, ops={node: op}))


def _opened_at(graph: Graph, node: Node, body: Graph, skipped: int) -> Graph:
    """The body in place of its node; it takes the inputs of the node behind those skipped."""

    def results(other: Node) -> tuple[Value, ...] | None:
        if other.name != node.name or other.op is not node.op:
            return None
        given = cast("tuple[Value, ...]", other.inputs[skipped:])
        return inlined(body, dict[Value, Value](zip(body.inputs, given, strict=True)))

    return expand(graph, results)


def zeroed(graph: Graph) -> Iterator[Graph]:
    """A node replaced by a constant of zeros: where a body ends, no input can be added."""
    for node in reversed(graph.nodes):
        if isinstance(node.type, TensorType) and node.type.is_static:
            zeros = Constant(node.name, np.zeros(node.type.dims, node.type.dtype.numpy), node.loc)
            yield _tidied(with_replaced(graph, {node: zeros}))


def _bodies_to_open(node: Node) -> Iterator[tuple[Graph, int]]:
    """Bodies that run once, and how many inputs of the node are none of theirs."""
    match node.op:
        case Fused(body=body):
            yield body, 0
        case If(then_branch=then, else_branch=other):
            yield then, 1
            yield other, 1
        case _:
            pass


def _own_graphs(op: Op) -> dict[str, Graph]:
    return {name: g for name, g in op.attributes().items() if isinstance(g, Graph)}


def plainer_constants(graph: Graph) -> Iterator[Graph | None]:
    """A large constant as an input; else one that holds 0, or 1, everywhere."""
    for constant in graph.constants:
        array = constant.array
        if array.size > INLINE:
            given = Input(constant.name, constant.type, constant.loc)
            swapped = rebuilt(graph, {constant: given})
            yield replace(swapped, inputs=(*swapped.inputs, given))
        plain = array.size == 0 or (array.flat[0] in (0, 1) and (array == array.flat[0]).all())
        for number in (0, 1) if not plain else ():
            filled = Constant(constant.name, np.full_like(array, number), constant.loc)
            yield rebuilt(graph, {constant: filled})


def smaller_dims(graph: Graph) -> Iterator[Graph | None]:
    """One size of the graph, wherever it stands, cut to 1 or 2; in attributes as well or not."""
    sizes: dict[int, None] = {}
    for value in (*graph.inputs, *graph.constants):
        sizes |= dict.fromkeys(d for d in value.type.shape if isinstance(d, int) and d > 1)
    for size in sorted(sizes, reverse=True):
        for small in (n for n in (1, 2) if n < size):
            for everywhere in (False, True):
                yield _attempt(partial(_with_size, graph, size, small, everywhere))


def _with_size(graph: Graph, size: int, small: int, everywhere: bool) -> Graph:
    """Inputs and constants cut along every axis of this size; ops see what comes of it."""

    def cut(d: object) -> object:
        return small if type(d) is int and d == size else d

    new: dict[Value, Value] = {}
    for i in graph.inputs:
        shape = tuple(small if d == size else d for d in i.type.shape)
        new[i] = replace(i, type=TensorType(i.type.dtype, shape))
    for c in graph.constants:
        new[c] = replace(c, array=_cut_array(c.array, size, small))
    ops: dict[Node, Op] = {}
    for node in graph.nodes if everywhere else ():
        changed = {
            f.name: tuple(map(cut, cast("tuple[object, ...]", value)))
            for f in fields(node.op)
            if isinstance(value := getattr(node.op, f.name), tuple)
        }
        ops[node] = replace(node.op, **changed)
    return rebuilt(graph, new, ops)


def _cut_array(array: Array, size: int, small: int) -> Array:
    return array[tuple(slice(small) if d == size else slice(None) for d in array.shape)]


def rebuilt(
    graph: Graph, values: Mapping[Value, Value] | None = None, ops: Mapping[Node, Op] | None = None
) -> Graph:
    """The graph with other inputs, constants and ops; every type rule runs again, and may raise."""
    new: dict[Value, Value] = dict(values or {})
    nodes: list[Node] = []
    for node in graph.nodes:
        read = [None if v is None else new.get(v, v) for v in node.inputs]
        op = (ops or {}).get(node, node.op)
        nodes.append(build(op, read, name=node.name, loc=node.loc))
        new[node] = nodes[-1]
    inputs = tuple(cast(Input, new.get(i, i)) for i in graph.inputs)
    return Graph(graph.name, inputs, tuple(nodes), tuple(new.get(o, o) for o in graph.outputs))


def _attempt(make: Callable[[], Graph]) -> Graph | None:
    """What `make` gives, or None if an op does not take it."""
    try:
        return make()
    except CompileError:
        return None


SIMPLIFICATIONS: tuple[Callable[[Graph], Iterable[Graph | None]], ...] = (
    fewer_outputs,
    bypassed,
    opened_bodies,
    plainer_constants,
    smaller_dims,
)
