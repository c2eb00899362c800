"""Fresh random numbers at every call: draws take a key that the caller gives.

    g = with_key(g)                                 # one more input, key: i64[()]
    exe(x, np.array(step))                          # other numbers for each step, equal for equal

Without a key a draw is the same at every call. A key is an input like any other, so that a call
stays a function of its inputs. Reads and writes a graph. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from dataclasses import replace

from minidlc.expr.types import i64
from minidlc.graph.graph import Graph, Input, Node, Value, bodies
from minidlc.graph.inline import with_inputs
from minidlc.ops.composing import scalar
from minidlc.ops.gradient_control import CustomGradient
from minidlc.support.names import Names
from minidlc.transform.rebuild import regraph


def with_key(graph: Graph, name: str = "key") -> Graph:
    """The graph with an input more, which every draw without a key takes; itself if none draws.

    Draws in bodies too: branches and loops hand the key in. All runs of a loop have the same one.
    """
    if not _draws(graph):
        return graph
    names = Names()
    for value in (*graph.inputs, *graph.nodes):
        names.fresh(value.name)
    key = Input(names.fresh(name), i64[()])
    new: dict[Value, Value] = {}
    for node in graph.nodes:
        new[node] = _keyed(with_inputs(node, new), key)
    keyed = regraph(graph, (new[n] for n in graph.nodes), new)  # pyright: ignore
    return replace(keyed, inputs=(*graph.inputs, key))


def _keyed(node: Node, key: Input) -> Node:
    op = node.op
    if op.drawn:
        place = op.optional[-1]  # the key comes last, and may be left out
        given = (*node.inputs, None)[place]
        return node if given is not None else replace(node, inputs=(*node.inputs[:place], key))
    if not any(map(_draws, bodies(node))):
        return node
    graphs = {name: g for name, g in op.attributes().items() if isinstance(g, Graph)}
    changed = {name: _takes_key(g) for name, g in graphs.items()}
    if isinstance(op, CustomGradient):
        changed["backward"] = _key_before_dys(changed["backward"], len(node.inputs))
    return replace(node, op=replace(op, **changed), inputs=(*node.inputs, key))


def _takes_key(body: Graph) -> Graph:
    """The body with the key as its last input, be it read or not: branches take equal inputs."""
    keyed = with_key(body)
    return (
        keyed if keyed is not body else replace(body, inputs=(*body.inputs, Input("key", i64[()])))
    )


def _key_before_dys(backward: Graph, place: int) -> Graph:
    """The key, last among the inputs of `backward`, put at this place; nothing flows back to it."""
    *inputs, key = backward.inputs
    outputs = (*backward.outputs, scalar(0, i64))
    return replace(backward, inputs=(*inputs[:place], key, *inputs[place:]), outputs=outputs)


def _draws(graph: Graph) -> bool:
    """True if something in the graph, or in a body in it, draws without a key."""
    return any(_draws_alone(n) for n in graph.nodes)


def _draws_alone(node: Node) -> bool:
    if node.op.drawn:
        return (*node.inputs, None)[node.op.optional[-1]] is None
    return any(map(_draws, bodies(node)))
