"""What a node costs: the bytes of its result, and the operations that compute it.

    nbytes(node)                                    # 4096 for f32[32, 32]; None for f32["N", 32]
    operations(node)                                # 65536 for its product with f32[32, 32]
    graph_flops(g), graph_bytes(g)                  # of all its nodes; of all that its kernels move

Reads nodes. Operations are counted in the tensor expressions, as `loop.count.flops` counts them in
loops: a function such as `exp` is one, a multiply-add two. Treated in course chapter
02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Iterable

from minidlc.graph.fused import Fused
from minidlc.graph.graph import Constant, Graph, Node, Value, tensor_type
from minidlc.graph.op import OpKind, express
from minidlc.graph.types import result_types
from minidlc.loop.count import flops
from minidlc.loop.count import operations as operations_in
from minidlc.ops.aliases import starts_at
from minidlc.schedules.group import work
from minidlc.te import Tensor, placeholder, stages, unique_names
from minidlc.te.tensor import filled
from minidlc.transform.rebuild import bodies_of


def nbytes(value: Value) -> int | None:
    """Bytes of a value, of all its parts if it is a tuple; None if a size is symbolic."""
    types = result_types(value.type)
    return sum(t.nbytes for t in types) if all(t.is_static for t in types) else None


def operations(node: Node) -> int | None:
    """Operations that compute the result of a node once; None if sizes or loops are not known."""
    values = [v for v in node.inputs if v is not None]
    if any(nbytes(v) is None for v in (node, *values)):
        return None
    if node.op.is_view:
        return 0
    if isinstance(node.op, Fused):
        return graph_flops(node.op.body)
    if node.op.kind is not OpKind.COMPILED:
        return None
    if hasattr(type(node.op), "loops"):
        return flops(node.op.loops(*(None if v is None else v.type for v in node.inputs)))
    with unique_names():
        outputs = express(node.op, [_tensor(v, f"x{n}") for n, v in enumerate(node.inputs)])
    made = (t for t in stages(outputs) if t.body is not None)
    return sum(
        work(t) * (operations_in(t.body) + bool(t.reduce_axes)) for t in made if t.body is not None
    )


def _tensor(value: Value | None, name: str) -> Tensor | None:
    if value is None:
        return None
    if isinstance(value, Constant) and value.array.size == 1:
        return filled(value.type, value.array.item())
    return placeholder(tensor_type(value), name)


def graph_flops(graph: Graph) -> int | None:
    """Operations of one run; a body counts once. None if a node's are not known."""
    inside = (body for node in graph.nodes for body in bodies_of(node.op).values())
    own = (operations(node) for node in graph.nodes if not bodies_of(node.op))
    return _sum((*own, *map(graph_flops, inside)))


def graph_bytes(graph: Graph) -> int | None:
    """Bytes that kernels read and write if each reads every input once; views move none."""
    inside = (body for node in graph.nodes for body in bodies_of(node.op).values())
    kernels = [n for n in graph.nodes if not is_free(n) and not bodies_of(n.op)]
    touched = ((n, *dict.fromkeys(v for v in n.inputs if v is not None)) for n in kernels)
    own = (nbytes(v) for values in touched for v in values)
    return _sum((*own, *map(graph_bytes, inside)))


def is_free(node: Node) -> bool:
    """True for what moves no byte: a view, or a slice in one piece."""
    return node.op.is_view or starts_at(node) is not None


def _sum(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for n in numbers:
        if n is None:
            return None
        total += n
    return total
