"""Tensors without elements: nothing has to run for them, and little for what is made of them.

    z: f32[0, 8] = relu(x)              ->      const, of that type
    c = concat(a, z, b, axis=0)         ->      concat(a, b, axis=0)
    s: f32[8] = sum(z, axes=(0,))       ->      const(0.0), the sum of nothing; max gives -inf
    p = matmul of f32[4, 0] and f32[0, 3]   ->  const, zeros of f32[4, 3]
    scatter_elements(x, z', z'')        ->      x
    loop of 0 runs                      ->      its first state

There is one tensor of each such type, so its value is known: it counts as a constant, and an op
that reads one and constants otherwise is evaluated by its own reference, as in fold_constants.
Positions are still checked: an op that may raise stays. A symbolic size may be 0 and may not: it
stays. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from minidlc.expr.types import TensorType, dtype
from minidlc.graph.graph import Constant, Graph, Node, Value, build
from minidlc.graph.inline import with_inputs
from minidlc.graph.op import Op, OpKind, evaluate
from minidlc.graph.types import TupleType, Type
from minidlc.ops.control_flow import Loop
from minidlc.ops.movement import Concat
from minidlc.ops.scatter import ScatterElements, ScatterNd
from minidlc.support.locations import Derived
from minidlc.transform.expand import expand
from minidlc.transform.log import Refusal, permitted, report
from minidlc.transform.pass_ import Pass, register_pass
from minidlc.transform.rebuild import regraph


@register_pass
@dataclass(frozen=True)
class EliminateZeroSize(Pass):
    """Constants for what has no elements or is made of that, up to results of `max_bytes`."""

    name = "eliminate_zero_size"
    level = 2
    max_bytes: int = 1 << 26

    def run(self, graph: Graph) -> Graph:
        """The graph without nodes that have nothing to do."""
        graph = expand(graph, _no_runs)
        new: dict[Value, Value] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            current = with_inputs(node, new)
            simpler = self._simpler(current)
            if simpler is None:
                nodes.append(current)
                new[node] = current
            elif isinstance(simpler, Node) and simpler not in nodes:
                nodes.append(simpler)
                new[node] = simpler
            else:
                new[node] = simpler
        return graph if all(a is b for a, b in new.items()) else regraph(graph, nodes, new)

    def _simpler(self, node: Node) -> Value | None:
        """What stands in place of a node; None if nothing simpler does."""
        if not node.op.pure or isinstance(node.type, TupleType):
            return None
        found, why = self._found(node)
        if isinstance(found, str):
            report(partial(Refusal, self.name, node.name, found, node.loc))
            return None
        if found is None or not permitted(why, node.name, node.loc):
            return None
        return found

    def _found(self, node: Node) -> tuple[Value | str | None, str]:
        """What stands in place of a node and why, or the reason against it."""
        if is_empty(node.type):
            return _nothing(node) if _is_safe(node) else "it checks positions", "no elements"
        match node.op:
            case Concat():
                return _concat(node, node.op), "empty parts"
            case ScatterElements() | ScatterNd() if is_empty(_type(node.inputs[2])):
                return node.inputs[0], "no updates"
            case _ if any(is_empty(_type(v)) for v in node.inputs) and _are_known(node):
                return self._value(node), f"{node.op.name} of nothing"
            case _:
                return None, ""

    def _value(self, node: Node) -> Constant | str:
        """The one value that a node can have."""
        if not _is_safe(node):
            return "it checks positions"
        if not isinstance(node.type, TensorType) or not node.type.is_static:
            return "the size of the result is not known"
        if node.type.nbytes > self.max_bytes:
            return f"{node.type.nbytes} bytes are more than {self.max_bytes}"
        try:
            array = evaluate(node.op, [_array(v) for v in node.inputs])
        except Exception as e:  # whatever the reference raises belongs to the run
            return f"its reference raises {type(e).__name__}: {e}"
        assert not isinstance(array, tuple), "the node has one result"
        if TensorType(dtype(array.dtype), array.shape) != node.type:
            return f"its reference returns {array.dtype}{list(array.shape)}, not {node.type}"
        return Constant(node.name, array, Derived(self.name, node.loc))


def is_empty(type: Type | None) -> bool:
    """True for a tensor that has no elements, whatever its symbols are: an axis of size 0."""
    return isinstance(type, TensorType) and 0 in type.shape


def _type(value: Value | None) -> Type | None:
    return None if value is None else value.type


def _nothing(node: Node) -> Constant | None:
    """The tensor without elements; None for one of symbolic shape, which has no array."""
    assert isinstance(node.type, TensorType)
    if not node.type.is_static:
        return None
    array = np.empty(node.type.dims, node.type.dtype.numpy)
    return Constant(node.name, array, Derived("eliminate_zero_size", node.loc))


def _is_safe(node: Node) -> bool:
    """True if leaving the node out takes no error away: it has no positions, or none to check."""
    if node.op.kind is OpKind.CONTROL:
        return False
    if type(node.op).positions is Op.positions:
        return True
    types = [v.type for v in node.inputs if v is not None and isinstance(v.type, TensorType)]
    given = (*types, *[None] * (len(node.inputs) - len(types)))
    return all(is_empty(_type(node.inputs[p.input])) for p in node.op.positions(*given))


def _are_known(node: Node) -> bool:
    """True if every input is a constant, or the one tensor of a type without elements."""
    return all(
        v is None or isinstance(v, Constant) or (is_empty(v.type) and _is_static(v.type))
        for v in node.inputs
    )


def _is_static(type: Type) -> bool:
    return isinstance(type, TensorType) and type.is_static


def _array(value: Value | None) -> np.ndarray | None:
    if value is None or isinstance(value, Constant):
        return None if value is None else value.array
    assert isinstance(value.type, TensorType)
    return np.empty(value.type.dims, value.type.dtype.numpy)


def _concat(node: Node, op: Concat) -> Value | None:
    """The concatenation of the parts that have elements; one of them is itself."""
    parts = [v for v in node.inputs if not is_empty(_type(v))]
    if len(parts) == len(node.inputs):
        return None
    if len(parts) == 1:
        return parts[0]
    return build(op, parts, name=node.name, loc=Derived("eliminate_zero_size", node.loc))


def _no_runs(node: Node) -> tuple[Value, ...] | None:
    """The results of a loop that does not run: its first state, and stacks of no rows."""
    if not isinstance(node.op, Loop):
        return None
    n, condition, *rest = node.inputs
    never = node.op.trips == 0 or (isinstance(n, Constant) and n.array.item() <= 0)
    if not (never or (isinstance(condition, Constant) and not condition.array.item())):
        return None
    types = node.type.items if isinstance(node.type, TupleType) else (node.type,)
    state, stacks = rest[: node.op.carried], types[node.op.carried :]
    if not all(t.is_static for t in stacks) or not permitted("no runs", node.name, node.loc):
        return None
    loc = Derived("eliminate_zero_size", node.loc)
    rows = (Constant(node.name, np.empty(t.dims, t.dtype.numpy), loc) for t in stacks)
    return (*(v for v in state if v is not None), *rows)
