"""All ops: importing this package fills the registry.

    import minidlc.ops
    relu = functional("relu"); y = relu(x)          # what `mc.relu` is
    functional("softmax")(x, axis=1)

One file a family; each op is one class with its type rule, meaning, loops and examples. Treated in
course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minidlc.graph.graph import Node, apply
from minidlc.graph.op import registered_ops
from minidlc.ops import (
    activation,
    arg_reduction,
    attention,
    binary,
    blocked,
    checks,
    composite_reduction,
    control_flow,
    conv,
    conv_gradients,
    conv_transpose,
    det,
    einsum,
    gradient_control,
    grid_sample,
    index_add,
    indexing,
    logical,
    losses,
    matmul,
    movement,
    norm,
    normalization,
    ordering,
    padding,
    pool,
    pool_gradients,
    pool_indices,
    quantization,
    random_numbers,
    reduction,
    resize,
    reverse_sequence,
    rotary,
    scan_loop,
    scans,
    scatter,
    shape,
    slicing,
    space_to_depth,
    topk,
    unary,
    vector_norm,
)
from minidlc.support.errors import nearest

__all__ = ["FAMILIES", "functional"]

FAMILIES = (
    unary,
    activation,
    binary,
    logical,
    matmul,
    conv,
    conv_gradients,
    conv_transpose,
    blocked,
    pool,
    pool_gradients,
    pool_indices,
    reduction,
    composite_reduction,
    arg_reduction,
    scans,
    det,
    topk,
    norm,
    normalization,
    vector_norm,
    shape,
    slicing,
    space_to_depth,
    padding,
    resize,
    grid_sample,
    movement,
    indexing,
    reverse_sequence,
    scatter,
    index_add,
    attention,
    losses,
    quantization,
    random_numbers,
    einsum,
    rotary,
    control_flow,
    scan_loop,
    gradient_control,
    ordering,
    checks,
)


def functional(name: str) -> Callable[..., Node]:
    """The op of this printed name as a function of values: `functional("relu")(x)`.

    Inputs are positional (values, arrays, numbers, None), attributes keywords. Raises
    AttributeError for an unknown name; the function raises TypeRuleError for what does not fit.
    """
    ops = registered_ops()
    if name not in ops:
        raise AttributeError(f"no op {name!r}; {nearest(name, ops)}", name=name)

    def function(*inputs: object, **attributes: Any) -> Node:
        return apply(name, *inputs, **attributes)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = ops[name].__doc__
    return function
