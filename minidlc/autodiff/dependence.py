"""Which results of nodes depend on a value, through branches and loops too.

    found = depending(g.nodes, [x])
    found[y]                                        # (True,): y does; (True, False): its first does
    found.get(z)                                    # None: it does not

A loop takes many values and stacks many; its states are followed until no more of them depend.
Reads nodes, decides nothing: forward mode asks it if a gradient is linear. Treated in course
chapter 03_autodiff.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, cast

from minidlc.graph.graph import Graph, Node, Value
from minidlc.graph.types import result_types
from minidlc.ops.control_flow import If, Loop

Dependence: TypeAlias = dict[Value | None, tuple[bool, ...]]
"""For each value that depends, or of which a result does: which of its results."""


def depending(nodes: Iterable[Node], on: Iterable[Value]) -> Dependence:
    """Which results of these nodes, inputs first, depend on one of the values `on`."""
    found: Dependence = {v: (True,) for v in on}
    for node in nodes:
        reads = [any(found.get(v, ())) for v in node.inputs]
        if any(reads):
            results = _results(node, reads, found)
            if any(results):
                found[node] = results
    return found


def _results(node: Node, reads: Sequence[bool], found: Dependence) -> tuple[bool, ...]:
    op = node.op
    if op.name == "getitem":
        return (found[node.inputs[0]][cast(int, op.attributes()["index"])],)
    if isinstance(op, If) and not reads[0]:
        then, other = (_through(b, reads[1:]) for b in (op.then_branch, op.else_branch))
        return tuple(a or b for a, b in zip(then, other, strict=True))
    if isinstance(op, Loop) and not any(reads[:2]):
        return _of_loop(op, reads[2:])
    return (True,) * len(result_types(node.type))


def _through(body: Graph, reads: Sequence[bool]) -> list[bool]:
    """Which results of a body depend, if these of its inputs do."""
    found = depending(body.nodes, (v for v, r in zip(body.inputs, reads, strict=True) if r))
    return [any(found.get(o, ())) for o in body.outputs]


def _of_loop(op: Loop, reads: Sequence[bool]) -> tuple[bool, ...]:
    """A state depends if it starts so, or after some run."""
    states, others = list(reads[: op.carried]), reads[op.carried :]
    while True:
        goes_on, *outputs = _through(op.body, [False, False, *states, *others])
        if goes_on and op.trips is None:
            return (True,) * len(outputs)
        after = [a or b for a, b in zip(states, outputs[: op.carried], strict=True)]
        if after == states:
            return (*states, *outputs[op.carried :])
        states = after
