"""Whose bytes a value is: results that lie inside an input, inputs that lie inside a result.

    starts_at(slice(x, starts=(2,), ends=(5,)))     # 8: those of x: f32[8] from byte 8 on
    starts_at(transpose(x))                         # None: other bytes
    parts_at(concat(a, b))                          # (0, 16): a, then b

Arrays are dense and row-major, so a cut is free if what is taken of it lies in one piece; rows of
which only a part is taken do not. Reads nodes of known sizes, decides nothing: memory planning
does. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import math
from itertools import accumulate

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Node, tensor_type
from minidlc.ops import rules
from minidlc.ops.gradient_control import Copy
from minidlc.ops.movement import Concat, GetItem
from minidlc.ops.slicing import Slice
from minidlc.support.extension import overridden


def starts_at(node: Node) -> int | None:
    """At which byte of its first input the bytes of the result begin; None if it has its own.

    A reader's own `compute` of the op is to run: then the op is no view.
    """
    if node.op.is_view and not isinstance(node.op, GetItem):
        return 0
    if not isinstance(node.op, (Copy, Slice)) or overridden(f"compute.{node.op.name}"):
        return None
    if isinstance(node.op, Copy):
        return 0
    x = node.inputs[0]
    assert x is not None
    return _offset(node.op, tensor_type(x), tensor_type(node))


def _offset(op: Slice, x: TensorType, y: TensorType) -> int | None:
    """One element of each axis, then a run along one axis, then whole axes: that is one piece."""
    if not (x.is_static and y.is_static) or y.size == 0:
        return None
    cut = next((d for d, size in enumerate(y.dims) if size > 1), y.rank)
    if y.dims[cut + 1 :] != x.dims[cut + 1 :]:
        return None
    offset = 0
    for axis, found in op.cuts(x.dims).items():
        assert found is not None, "sizes are known"
        if found.step != 1 and found.size > 1:
            return None
        offset += found.start * math.prod(x.dims[axis + 1 :])
    return offset * x.dtype.itemsize


def parts_at(node: Node) -> tuple[int, ...] | None:
    """At which byte of the result each input lies; None if they do not lie there in one piece."""
    if not isinstance(node.op, Concat) or overridden(f"compute.{node.op.name}"):
        return None
    y = tensor_type(node)
    if not y.is_static or math.prod(y.dims[: rules.axis(node.op, node.op.axis, y.rank)]) != 1:
        return None
    sizes = [tensor_type(v).nbytes for v in node.inputs if v is not None]
    return tuple(accumulate(sizes, initial=0))[:-1]
