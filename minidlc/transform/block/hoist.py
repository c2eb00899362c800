"""Work goes up: first pick, then compute; and what both branches compute, before them.

    y = exp(x); z = slice(y, …)         ->      t = slice(x, …); z = exp(t)
    p = matmul(h, w); last = p[-1:]     ->      t = h[-1:]; last = matmul(t, w)
    if_(c, x): exp(x) + 1, exp(x)       ->      e = exp(x); if_(c, e): e + 1, e

A slice or gather, and an op whose result is narrower (a cast to f16), moves before the op that it
reads, if that op has no other reader and the two then read and write fewer bytes; so every move
lowers a count, and there is an end. Branches: what both compute from the same values is computed in
either case, so it may as well be computed before. Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Constant, Graph, Node, Value, build, tensor_type
from minidlc.graph.inline import nodes_made, with_inputs
from minidlc.graph.op import Op, evaluate
from minidlc.graph.types import TupleType
from minidlc.ops.elementwise import Elementwise, Unary
from minidlc.ops.indexing import Gather
from minidlc.ops.matmul import MatMul
from minidlc.ops.movement import Transpose
from minidlc.ops.reduction import AlongAxis
from minidlc.ops.slicing import Slice
from minidlc.support.locations import Derived
from minidlc.transform.block.hoist_branches import without_common_work
from minidlc.transform.block.weigh import traffic
from minidlc.transform.log import Refusal, permitted, report
from minidlc.transform.pass_ import Pass, register_pass
from minidlc.transform.rebuild import live_nodes

Made: TypeAlias = "Node | str"  # the source on smaller inputs; or the reason why not
# what stands for an operand of the source: the operand, less of it, or the reason why not
Less: TypeAlias = Callable[[Value], "Value | str"]


@register_pass
@dataclass(frozen=True)
class Hoist(Pass):
    """Pick first, compute after; compute once what both branches compute."""

    name = "hoist"
    level = 2

    def run(self, graph: Graph) -> Graph:
        """The graph that moves fewer bytes; the same if nothing can go up."""
        graph = without_common_work(graph)
        while True:
            raised = _sweep(graph)
            if raised is graph:
                return graph
            graph = raised


def _sweep(graph: Graph) -> Graph:
    """Every node that can goes before the one that it reads, once."""
    users, outputs = graph.users(), set(graph.outputs)
    new: dict[Value, Value] = {}
    nodes: dict[Node, None] = {}
    moved = False
    for node in graph.nodes:
        current = with_inputs(node, new)
        source = node.inputs[0] if node.inputs else None
        if _goes_up(node) and isinstance(source, Node) and source.op.pure:
            alone = users[source] == (node,) and node.inputs.count(source) == 1
            below = current.inputs[0]
            assert isinstance(below, Node)
            shared = "it has other readers" if not alone or source in outputs else None
            made = shared or _raised(current, below)
            if isinstance(made, str):
                report(partial(Refusal, "hoist", node.name, f"{source.name}: {made}", node.loc))
            elif permitted(f"hoist over {source.op.name}", node.name, node.loc):
                nodes |= dict.fromkeys(nodes_made(made, nodes))
                new[node], moved = made, True
                continue
        nodes[current] = None
        new[node] = current
    if not moved:
        return graph
    results = tuple(new.get(o, o) for o in graph.outputs)
    return replace(graph, nodes=live_nodes(list(nodes), results), outputs=results)


def _goes_up(node: Node) -> bool:
    return isinstance(node.op, (Slice, Gather)) or _narrows(node)


def _narrows(node: Node) -> bool:
    """True for one input, and a result of fewer bytes an element: casts, comparisons with 0."""
    if not isinstance(node.op, Unary) or not isinstance(node.type, TensorType):
        return False
    (x,) = node.inputs
    return x is not None and node.type.dtype.itemsize < tensor_type(x).dtype.itemsize


def _raised(node: Node, source: Node) -> Made:
    """The source applied to less: what the node makes of its inputs."""
    if isinstance(source.type, TupleType) or not _static(node, source):
        return "sizes are not known"
    if isinstance(node.op, Slice):
        made = _sliced(node, node.op, source)
    elif isinstance(node.op, Gather):
        made = _gathered(node, node.op, source)
    elif isinstance(source.op, (Transpose, Slice)):
        made = _rebuilt(node, source.op, source, lambda v: _applied(node, v))
    else:
        return f"{source.op.name} computes: the order of rounding matters"
    if isinstance(made, str):
        return made
    if made.type != node.type:
        return f"{made.type} is not {node.type}"
    before = traffic(node) + traffic(source)
    smaller = [v for v in made.inputs if isinstance(v, Node) and v not in source.inputs]
    after = traffic(made) + sum(map(traffic, smaller))
    return made if after < before else f"{after} bytes to read and write, {before} now"


def _static(*nodes: Node) -> bool:
    values = [v for n in nodes for v in (n, *n.inputs) if v is not None]
    return all(isinstance(v.type, TensorType) and v.type.is_static for v in values)


def _applied(node: Node, to: Value, op: Op | None = None) -> Value:
    """What the node does, done to another value; constants are worked out here and now."""
    op, inputs = op or node.op, (to, *node.inputs[1:])
    loc = Derived("hoist", node.loc)
    arrays = [v.array for v in inputs if isinstance(v, Constant)]
    if len(arrays) == len(inputs):
        array = evaluate(op, arrays)
        assert not isinstance(array, tuple), "slice, gather and cast have one result"
        return Constant(to.name, array, loc)
    return build(op, inputs, name=node.name, loc=loc)


def _rebuilt(node: Node, op: Op, source: Node, *less: Less) -> Made:
    """The op on less of each input of the source; the last of `less` is for all that follow."""
    inputs: list[Value | None] = []
    for number, v in enumerate(source.inputs):
        found = None if v is None else less[min(number, len(less) - 1)](v)
        if isinstance(found, str):
            return found
        inputs.append(found)
    return build(op, inputs, name=node.name, loc=Derived("hoist", source.loc))


def _sliced(node: Node, op: Slice, source: Node) -> Made:
    """A slice before an elementwise op, a transpose, a product, a softmax."""
    rank = tensor_type(source).rank
    axes = op.resolved_axes(rank)
    match source.op:
        case Elementwise():
            return _rebuilt(node, source.op, source, _cut(node, op, tensor_type(source).dims, axes))
        case Transpose():
            order = source.op.order(rank)
            moved = replace(op, axes=tuple(order[a] for a in axes))
            return _rebuilt(node, source.op, source, lambda v: _applied(node, v, moved))
        case AlongAxis() if source.op.axis % rank not in axes:
            return _rebuilt(node, source.op, source, lambda v: _applied(node, v))
        case MatMul():
            return _rows_and_columns(node, op, source, axes)
        case _:
            return f"{source.op.name} needs what is cut off"


def _cut(node: Node, op: Slice, dims: Sequence[int], axes: Sequence[int]) -> Less:
    """Cut an operand along those of `axes` that it has; where it has 1, it is the same for all."""

    def cut(value: Value) -> Value | str:
        own = tensor_type(value).dims
        skip = len(dims) - len(own)
        has = [n for n, a in enumerate(axes) if a >= skip and own[a - skip] == dims[a]]
        if any(dims[a] == 1 for a in axes):
            return "an axis of size 1 is sliced"
        return _applied(node, value, _along(op, has, [a - skip for a in axes])) if has else value

    return cut


def _along(op: Slice, chosen: Sequence[int], axes: Sequence[int]) -> Slice:
    """The slice along some of its axes only, which have these numbers."""
    starts, ends = (tuple(values[n] for n in chosen) for values in (op.starts, op.ends))
    steps = tuple(op.steps[n] for n in chosen) if op.steps else ()
    return Slice(starts, ends, tuple(axes[n] for n in chosen), steps)


def _rows_and_columns(node: Node, op: Slice, source: Node, axes: Sequence[int]) -> Made:
    """A slice of a product: of rows (and batches) from the left, of columns from the right."""
    a, b = source.inputs
    assert a is not None
    assert b is not None
    rank = tensor_type(a).rank
    if rank < 2 or tensor_type(b).rank != 2:
        return "only products by one matrix are taken apart"
    rows = [n for n, axis in enumerate(axes) if axis != rank - 1]
    columns = [n for n, axis in enumerate(axes) if axis == rank - 1]
    in_b = [1] * len(axes)
    return _rebuilt(
        node,
        source.op,
        source,
        lambda v: _applied(node, v, _along(op, rows, axes)) if rows else v,
        lambda v: _applied(node, v, _along(op, columns, in_b)) if columns else v,
    )


def _gathered(node: Node, op: Gather, source: Node) -> Made:
    """A gather before an elementwise op, or rows of a product."""
    indices = node.inputs[1]
    assert indices is not None
    count = tensor_type(indices).rank
    rank, dims = tensor_type(source).rank, tensor_type(source).dims
    axis = op.axis % rank
    if count > 1:
        return "its indices have more than one axis"
    if dims[axis] == 1:
        return "an axis of size 1 is gathered"

    def rows(value: Value) -> Value | str:
        own = tensor_type(value).dims
        place = axis - (rank - len(own))
        if place >= 0 and own[place] == dims[axis]:
            return _applied(node, value, Gather(place))
        if place >= 0 and count == 0:
            return f"{value.name} has an axis of size 1 that would have to go"
        return value

    match source.op:
        case Elementwise():
            return _rebuilt(node, source.op, source, rows)
        case MatMul() if count == 1 and axis < rank - 1 and tensor_type(source.inputs[1]).rank == 2:  # pyright: ignore
            return _rebuilt(node, source.op, source, rows, lambda v: v)
        case _:
            return f"{source.op.name} needs what is not gathered"
