"""Steps that ops made of other ops share: casts and reshapes where they change something.

    cast_to(x, f32)                                 # x itself if it holds f32
    reshaped(x, (2, 6))                             # x itself if it has this shape
    narrowed(apply("sqrt", in_wide(x)), x)          # f16: computed in f32, rounded once
    scalar(-np.inf, f32)                            # a constant of rank 0

Reads and writes values of the graph. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidlc.expr.types import DType
from minidlc.graph.graph import Constant, Node, Value, apply, make_op, tensor_type
from minidlc.ops.elementwise import wide

_BEFORE_THE_FIRST = -(2**63)  # `ends` of a slice that goes backwards to the first element


def cast_to(x: Value, element: DType) -> Value:
    """The value with elements of this type."""
    return x if tensor_type(x).dtype == element else apply("cast", x, to=element)


def in_wide(x: Value) -> Value:
    """The value in the type it is computed in: f32 for f16 and bf16 (graph side of `widened`)."""
    return cast_to(x, wide(tensor_type(x).dtype))


def narrowed(y: Value, like: Value) -> Value:
    """`y` rounded to the element type of `like`."""
    return cast_to(y, tensor_type(like).dtype)


def reshaped(x: Value, shape: Sequence[int]) -> Value:
    """The value in this shape."""
    return x if tensor_type(x).shape == tuple(shape) else apply("reshape", x, shape=tuple(shape))


def transposed(x: Value, perm: Sequence[int]) -> Value:
    """The value with its axes in this order; a transpose that this one undoes is taken back."""
    perm = tuple(perm)
    undone = make_op("transpose", {"perm": tuple(map(perm.index, range(len(perm))))})
    if isinstance(x, Node) and x.op == undone and (source := x.inputs[0]) is not None:
        return source
    return apply("transpose", x, perm=perm)


def reversed_rows(x: Value) -> Value:
    """The value with its last row first."""
    return apply("slice", x, starts=(-1,), ends=(_BEFORE_THE_FIRST,), axes=(0,), steps=(-1,))


def scalar(number: float, element: DType) -> Constant:
    """A constant without axes."""
    return Constant("c", np.array(number, element.numpy))
