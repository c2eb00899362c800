"""What every run of a loop computes again, computed once before it.

    def body(i, c, s, w):                       u = exp(w)
        u = exp(w)                              def body(i, c, s, u): …
        …                               ->      loop(…, s, u, body=body)
    loop(…, s, w, body=body)

Invariant is what depends only on constants, on captures, and on state that the body hands on
unchanged. A loop may run not at all, so unless it is known to run, only ops go out that are cheap
and cannot raise. What costs nothing to repeat stays: views, and what only spreads a smaller value.
Bodies are done innermost first, so an op leaves as many loops as it can. `loop` and `scan` alike.
Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from minidlc.graph.graph import Constant, Graph, Input, Node, Value, tensor_type
from minidlc.graph.inline import with_inputs
from minidlc.graph.op import Op, OpKind, Pattern
from minidlc.graph.types import TupleType
from minidlc.ops.control_flow import Loop
from minidlc.ops.movement import Expand, GetItem
from minidlc.ops.scan_loop import Scan
from minidlc.support.locations import Derived
from minidlc.support.names import Names
from minidlc.transform.block.weigh import nbytes
from minidlc.transform.log import Refusal, permitted, report
from minidlc.transform.pass_ import Pass, register_pass
from minidlc.transform.rebuild import live_nodes

CHEAP = (Pattern.ELEMENTWISE, Pattern.BROADCAST, Pattern.INJECTIVE)


@register_pass
@dataclass(frozen=True)
class HoistInvariants(Pass):
    """Move what does not change out of loops; of unknown loops up to results of `max_bytes`."""

    name = "hoist_invariants"
    level = 2
    max_bytes: int = 1 << 16

    def run(self, graph: Graph) -> Graph:
        """The graph whose loops compute less; the same if they have nothing to give."""
        nodes: list[Node] = []
        new: dict[Value, Value] = {}
        for node in graph.nodes:
            current = with_inputs(node, new)
            if isinstance(current.op, (Loop, Scan)):
                current = self._emptied(current, nodes)
            nodes.append(current)
            new[node] = current
        if all(old is now for old, now in new.items()):
            return graph
        outputs = tuple(new.get(o, o) for o in graph.outputs)
        return replace(graph, nodes=tuple(nodes), outputs=outputs)

    def _emptied(self, node: Node, before: list[Node]) -> Node:
        """The loop without its invariant work, which is put `before` it."""
        body = _body(node.op)
        outside = _unchanged(node, body)
        runs = _runs(node)
        moved: list[Node] = []
        for inner in body.nodes:
            if not all(v is None or v in outside or isinstance(v, Constant) for v in inner.inputs):
                continue
            reason = self._reason_against(inner, runs)
            if reason is not None:
                report(partial(Refusal, self.name, inner.name, reason, inner.loc))
                continue
            outside[inner] = replace(with_inputs(inner, outside), loc=Derived(self.name, inner.loc))
            moved.append(inner)
        kept = _permitted(body, _worth_it(body, moved))
        if not kept:
            return node
        before += [v for n in kept if isinstance(v := outside[n], Node)]
        return _without(node, body, {n: outside[n] for n in kept})

    def _reason_against(self, node: Node, runs: bool) -> str | None:
        """Why a node that is invariant has to stay in the body."""
        if not node.op.pure:
            return f"{node.op.name} gives another result each time"
        if runs:
            return None
        if node.op.kind is not OpKind.COMPILED or node.op.pattern not in CHEAP:
            return f"the loop may not run at all, and {node.op.name} is not cheap"
        if type(node.op).positions is not Op.positions:
            return f"the loop may not run at all, and {node.op.name} may raise"
        size = nbytes(node.type)
        if size > self.max_bytes:
            return f"the loop may not run at all, and {size} bytes are more than {self.max_bytes}"
        return None


def _body(op: Op) -> Graph:
    assert isinstance(op, (Loop, Scan))
    return op.body


def _unchanged(node: Node, body: Graph) -> dict[Value, Value]:
    """Inputs of the body that are the same in every run, and what they are outside."""
    op = node.op
    if isinstance(op, Loop):
        given, state, first = node.inputs[2:], op.carried, 1
        inputs, changing = body.inputs[2:], op.carried + op.scanned
    else:
        assert isinstance(op, Scan)
        given, state, first = node.inputs, op.states, 0
        inputs, changing = body.inputs, op.states + op.scanned
    pairs = list(zip(inputs, given, strict=True))
    same: dict[Value, Value] = {i: v for i, v in pairs[changing:] if v is not None}
    for number, (i, v) in enumerate(pairs[:state]):
        if body.outputs[first + number] is i and v is not None:
            same[i] = v  # handed on as it came
    return same


def _runs(node: Node) -> bool:
    """True if the body is known to run at least once."""
    op = node.op
    if isinstance(op, Scan):
        steps = tensor_type(node.inputs[op.states]).shape  # pyright: ignore[reportArgumentType]
        axis = op.input_axes[0] if op.input_axes else 0
        return isinstance(steps[axis], int) and steps[axis] != 0
    assert isinstance(op, Loop)
    if op.trips is not None:
        return op.trips > 0
    n, condition = node.inputs[:2]
    counted = n is None or (isinstance(n, Constant) and n.array.item() > 0)
    begins = condition is None or (isinstance(condition, Constant) and condition.array.item())
    return bool(counted and begins)


def _worth_it(body: Graph, moved: Sequence[Node]) -> list[Node]:
    """Without views and expansions that only the body reads: they cost nothing to repeat there."""
    users = body.users()
    left = dict.fromkeys(moved)
    for n in reversed(moved):
        free = isinstance(n.op, Expand) or (n.op.is_view and not isinstance(n.op, GetItem))
        if free and not any(u in left for u in users.get(n, ())):
            del left[n]
    return list(left)


def _permitted(body: Graph, moved: Sequence[Node]) -> list[Node]:
    """Those that may go: with all they read, and tuples with all that is taken of them."""
    users, gone = body.users(), set[Value](moved)
    for n in moved:
        if not gone.intersection(n.inputs) and permitted("out of the loop", n.name, n.loc):
            gone.discard(n)
    parts = {n: users.get(n, ()) for n in moved if isinstance(n.type, TupleType)}
    gone |= {v for n, read in parts.items() if gone.intersection(read) for v in (n, *read)}
    kept: list[Node] = []
    for n in moved:
        if n in gone or gone.intersection(n.inputs):
            gone.add(n)
        else:
            kept.append(n)
    return kept


def _without(node: Node, body: Graph, outside: dict[Node, Value]) -> Node:
    """The loop with values from `outside` as captures, in place of nodes of its body."""
    kept = [n for n in body.nodes if n not in outside]
    read = {v for n in kept for v in n.inputs} | set(body.outputs)
    names = Names(i.name for i in body.inputs)
    captured = {n: Input(names.fresh(n.name), tensor_type(n), n.loc) for n in outside if n in read}
    new: dict[Value, Value] = {**captured}
    nodes: list[Node] = []
    for n in kept:
        nodes.append(with_inputs(n, new))
        new[n] = nodes[-1]
    outputs = tuple(new.get(o, o) for o in body.outputs)
    inputs = (*body.inputs, *captured.values())
    smaller = Graph(body.name, inputs, live_nodes(nodes, outputs), outputs)
    given = (*node.inputs, *(outside[n] for n in captured))
    return _pruned(replace(node, op=replace(node.op, body=smaller), inputs=given))  # pyright: ignore


def _pruned(node: Node) -> Node:
    """The loop without captures that its body does not read any more."""
    body, op = _body(node.op), node.op
    assert isinstance(op, (Loop, Scan))
    first = 2 + op.carried + op.scanned if isinstance(op, Loop) else op.states + op.scanned
    read = {v for n in body.nodes for v in n.inputs} | set(body.outputs)
    kept = [k for k, i in enumerate(body.inputs) if k < first or i in read]
    smaller = replace(body, inputs=tuple(body.inputs[k] for k in kept))
    inputs = tuple(node.inputs[k] for k in kept)
    return replace(node, op=replace(op, body=smaller), inputs=inputs)
