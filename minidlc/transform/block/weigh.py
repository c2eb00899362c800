"""What a node costs, counted from types: bytes that it reads and writes, operations that it does.

    nbytes(f32[4, 8])                               # 128
    traffic(node)                                   # bytes of its inputs and results; a view has 0
    operations_of(op, inputs, result)               # matmul of f32[4, 8] and f32[8, 3]: 192

Passes that weigh one form of a graph against another count with these. Types are enough, and they
may be symbolic: a symbol counts as `SYMBOL`, which can make a choice worse, never wrong.
(fusion_costs counts exactly, in tensor expressions of known sizes.) Treated in course chapter
02_frontend_opt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from minidlc.expr.index import Index
from minidlc.expr.types import Dim, TensorType
from minidlc.graph.graph import Node
from minidlc.graph.op import Op, Pattern
from minidlc.graph.substitute import size_of
from minidlc.graph.types import Type, result_types
from minidlc.ops.conv import Conv
from minidlc.ops.matmul import MatMul

SYMBOL = 64


def size(dim: Dim) -> int:
    """The size of a dim, each symbol in it counted as `SYMBOL`."""
    if not isinstance(dim, Index):
        return dim
    found = size_of(dim, dict.fromkeys(dim.vars(), SYMBOL))
    return found if isinstance(found, int) else SYMBOL


def elements(type: Type) -> int:
    """Elements of a tensor, or of all tensors of a tuple."""
    return sum(math.prod(map(size, t.shape)) for t in result_types(type))


def nbytes(type: Type | None) -> int:
    """Bytes of a tensor, or of all tensors of a tuple; an input that is left out has none."""
    types = () if type is None else result_types(type)
    return sum(elements(t) * t.dtype.itemsize for t in types)


def traffic(node: Node) -> int:
    """Bytes that a node reads and writes; a view moves none."""
    return traffic_of(node.op, [None if v is None else v.type for v in node.inputs], node.type)


def traffic_of(op: Op, inputs: Sequence[Type | None], result: Type) -> int:
    """The same of an op on inputs of these types."""
    return 0 if op.is_view else sum(map(nbytes, inputs)) + nbytes(result)


def operations_of(op: Op, inputs: Sequence[Type | None], result: Type) -> int:
    """Arithmetic operations: a multiply-add is two, moving an element is none."""
    first, *rest = (t for t in (*inputs, None) if t is None or isinstance(t, TensorType))
    match op:
        case MatMul() if first is not None:
            return 2 * elements(result) * size(first.shape[-1])
        case Conv() if rest[0] is not None:
            return 2 * elements(result) * math.prod(map(size, rest[0].shape[1:]))
        case _ if op.pattern is Pattern.REDUCTION and first is not None:
            return elements(first)
        case _ if op.is_view or op.pattern in (Pattern.INJECTIVE, Pattern.OPAQUE):
            return 0
        case _:
            return elements(result)
