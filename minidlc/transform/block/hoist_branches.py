"""What both branches of an `if_` compute, computed before it.

    without_common_work(g)                          # g itself if no two branches share work

Two nodes are the same if op, attributes and inputs are, captures standing for what they capture.
Either branch computes them, so nothing is computed that was not. Reads and writes graphs. Treated
in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Constant, Graph, Input, Node, Value, tensor_type
from minidlc.graph.inline import with_inputs
from minidlc.graph.structure import constant_key, op_key
from minidlc.ops.control_flow import If
from minidlc.support.locations import Derived
from minidlc.support.names import Names
from minidlc.transform.log import permitted
from minidlc.transform.rebuild import live_nodes


def without_common_work(graph: Graph) -> Graph:
    """The graph whose branches share no work."""
    nodes: list[Node] = []
    new: dict[Value, Value] = {}
    for node in graph.nodes:
        current = with_inputs(node, new)
        if isinstance(current.op, If):
            current = _split(current, current.op, nodes)
        nodes.append(current)
        new[node] = current
    if all(old is now for old, now in new.items()):
        return graph
    outputs = tuple(new.get(o, o) for o in graph.outputs)
    return replace(graph, nodes=tuple(nodes), outputs=outputs)


def _split(node: Node, op: If, before: list[Node]) -> Node:
    """The `if_` without common work, which is put `before` it."""
    number: dict[Hashable, int] = {}
    yes, no = (_keys(b, node.inputs[1:], number) for b in (op.then_branch, op.else_branch))
    common = _common(op.then_branch, yes, set(no.values()))
    outside: dict[int, Value] = {
        yes[i]: v
        for i, v in zip(op.then_branch.inputs, node.inputs[1:], strict=True)
        if v is not None
    }
    moved: dict[int, Node] = {}
    for n in common:
        if yes[n] in moved or not all(_is_outside(v, yes, outside) for v in n.inputs):
            continue  # its twin went already, or what it reads may not go
        if permitted("out of both branches", n.name, n.loc):
            new = {v: outside[yes[v]] for v in n.inputs if v is not None and yes[v] in outside}
            made = replace(with_inputs(n, new), loc=Derived("hoist", n.loc))
            outside[yes[n]] = moved[yes[n]] = made
    if not moved:
        return node
    before += moved.values()
    branches = ((op.then_branch, yes), (op.else_branch, no))
    read = {keys[v] for branch, keys in branches for v in _read(branch, keys, moved)}
    captured = {key: made for key, made in moved.items() if key in read}
    then_branch, else_branch = (_smaller(b, keys, moved, captured) for b, keys in branches)
    inputs = (*node.inputs, *captured.values())
    return replace(node, op=If(then_branch, else_branch), inputs=inputs)


def _keys(
    branch: Graph, captured: Sequence[Value | None], number: dict[Hashable, int]
) -> dict[Value, int]:
    """A number for each value of a branch: equal numbers, equal values."""

    def numbered(key: Hashable) -> int:
        return number.setdefault(key, len(number))

    keys: dict[Value, int] = {}
    for i, v in zip(branch.inputs, captured, strict=True):
        keys[i] = numbered(constant_key(v) if isinstance(v, Constant) else ("outside", id(v)))
    for constant in branch.constants:
        keys[constant] = numbered(constant_key(constant))
    for n in branch.nodes:
        own = "" if n.op.pure else id(n)
        keys[n] = numbered((op_key(n.op), own, *(None if v is None else keys[v] for v in n.inputs)))
    return keys


def _common(branch: Graph, keys: dict[Value, int], others: set[int]) -> list[Node]:
    """Nodes that the other branch has too; no views that only the branches read."""
    users = branch.users()
    common = {n: None for n in branch.nodes if keys[n] in others and isinstance(n.type, TensorType)}
    for n in reversed(list(common)):
        if n.op.is_view and not any(u in common for u in users.get(n, ())):
            del common[n]
    return list(common)


def _is_outside(value: Value | None, keys: dict[Value, int], outside: dict[int, Value]) -> bool:
    return value is None or isinstance(value, Constant) or keys[value] in outside


def _read(branch: Graph, keys: dict[Value, int], moved: dict[int, Node]) -> list[Value]:
    """Values that are moved out and still read inside."""
    kept = [n for n in branch.nodes if keys[n] not in moved]
    values = [v for n in kept for v in n.inputs if v is not None] + list(branch.outputs)
    return [v for v in values if keys[v] in moved]


def _smaller(
    branch: Graph, keys: dict[Value, int], moved: dict[int, Node], captured: dict[int, Node]
) -> Graph:
    """The branch with captures in place of what was moved out."""
    names = Names(i.name for i in branch.inputs)
    inputs = {k: Input(names.fresh(n.name), tensor_type(n), n.loc) for k, n in captured.items()}
    new: dict[Value, Value] = {v: inputs[k] for v, k in keys.items() if k in inputs}
    nodes: list[Node] = []
    for n in branch.nodes:
        if keys[n] not in moved:
            nodes.append(with_inputs(n, new))
            new[n] = nodes[-1]
    outputs = tuple(new.get(o, o) for o in branch.outputs)
    kept = live_nodes(nodes, outputs)
    return Graph(branch.name, (*branch.inputs, *inputs.values()), kept, outputs)
