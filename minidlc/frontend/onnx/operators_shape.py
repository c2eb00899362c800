"""Converters for constants, shapes and reductions: what was an attribute and became an input.

    Reshape(x, [0, -1])          reshape(x, shape=(2, -1)); 0 copies a dim
    ReduceSum(x, axes)           sum(x, axes=(1,)); an attribute before opset 13 (others: 18)
    Shape(x)                     a constant, where x has static dims

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minidlc.expr.types import TensorType, bool_, u8
from minidlc.frontend.onnx.registry import OnnxNode, onnx_op
from minidlc.frontend.onnx.tensors import array
from minidlc.graph.graph import Constant, Value, apply, tensor_type
from minidlc.support.errors import OnnxImportError

_COMPOSITE = {
    "ReduceL1": "reduce_l1",
    "ReduceL2": "reduce_l2",
    "ReduceSumSquare": "reduce_sum_square",
    "ReduceLogSum": "reduce_log_sum",
    "ReduceLogSumExp": "reduce_log_sum_exp",
}


@onnx_op("Constant")
def constant(node: OnnxNode) -> Value:
    """A tensor, a number or a list of numbers."""
    name = node.outputs[0]
    proto = node.attr_tensor("value")
    if proto is not None:
        return Constant(name, array(proto, node.loc), node.loc)
    if node.has("value_float"):
        return Constant(name, np.array(node.attr_float("value_float", 0.0), np.float32), node.loc)
    if node.has("value_int"):
        return Constant(name, np.array(node.attr_int("value_int"), np.int64), node.loc)
    if node.has("value_ints"):
        return Constant(name, np.array(node.attr_ints("value_ints"), np.int64), node.loc)
    if node.has("value_floats"):
        return Constant(name, np.array(node.attr_floats("value_floats"), np.float32), node.loc)
    raise node.unsupported("a constant without a dense numeric value")


@onnx_op("ConstantOfShape")
def constant_of_shape(node: OnnxNode, shape: Value) -> Value:
    """One value repeated; 0.0 if none is given."""
    proto = node.attr_tensor("value")
    given = np.zeros(1, np.float32) if proto is None else array(proto, node.loc)
    if given.size != 1:
        text = f"attribute 'value' must hold one number, got {given.size}"
        raise OnnxImportError(text, loc=node.loc, code="MDLC0118")
    value = given.reshape(-1)[0]
    dims = node.constant_ints(shape, "shape")
    if any(d < 0 for d in dims):
        raise node.unsupported(f"a shape with negative dims: {dims}")
    return apply("expand", Constant("value", np.asarray(value), node.loc), shape=dims)


@onnx_op("Shape")
def shape_of(node: OnnxNode, x: Value) -> Value:
    """A constant: the sizes are known now, or the model cannot be taken."""
    start, end = node.attr_int("start", 0), node.attr_int("end", tensor_type(x).rank)
    dims = node.dims(x, slice(start, end))
    return Constant("shape", np.array(dims, np.int64), node.loc)


@onnx_op("Size")
def size_of(node: OnnxNode, x: Value) -> Value:
    """The number of elements, a constant."""
    return Constant("size", np.asarray(np.prod(node.dims(x), dtype=np.int64)), node.loc)


@onnx_op("Reshape")
def reshape(node: OnnxNode, x: Value, shape: Value) -> Value:
    """0 copies the dim of x at that place, or means 0 with allowzero."""
    wanted = node.constant_ints(shape, "shape")
    if node.attr_int("allowzero", 0):
        if 0 in wanted and -1 in wanted:
            raise node.wrong(f"shape {wanted} has both 0 and -1 with allowzero")
        return apply("reshape", x, shape=wanted)
    return apply("reshape", x, shape=_copied(node, tensor_type(x), wanted))


def _copied(node: OnnxNode, x: TensorType, wanted: tuple[int, ...]) -> tuple[int, ...]:
    dims: list[int] = []
    for place, dim in enumerate(wanted):
        if dim == 0:
            if place >= x.rank:
                raise node.wrong(f"shape {wanted} copies dim {place} of {x}, which it has not")
            copied = x.shape[place]
            if not isinstance(copied, int):
                copied = -1  # the only unknown, or the type rule refuses two of them
            elif copied == 0 and -1 in wanted:
                raise node.wrong(f"shape {wanted} copies a dim of size 0 and has a -1: undefined")
            dim = copied
        dims.append(dim)
    return tuple(dims)


@onnx_op("Squeeze")
def squeeze(node: OnnxNode, x: Value, axes: Value | None = None) -> Value:
    """Axes: an attribute before opset 13; left out, all of size 1."""
    found = _axes(node, axes, 13)
    if found == ():
        raise node.unsupported("axes is empty: none or all? engines disagree", "leave axes out")
    return apply("squeeze", x, axes=found)


@onnx_op("Unsqueeze")
def unsqueeze(node: OnnxNode, x: Value, axes: Value | None = None) -> Value:
    """Axes: an attribute before opset 13."""
    found = _axes(node, axes, 13)
    if found is None:
        raise node.wrong("axes are missing")
    return apply("unsqueeze", x, axes=found)


@onnx_op("Expand")
def expand(node: OnnxNode, x: Value, shape: Value) -> Value:
    """Broadcast both ways."""
    return apply("expand", x, shape=node.constant_ints(shape, "shape"))


def _axes(node: OnnxNode, given: Value | None, since: int) -> tuple[int, ...] | None:
    """Axes from the input (opset `since` and newer) or from the attribute; None if left out."""
    if node.opset < since:
        if given is not None:
            raise node.unsupported(f"axes as an input, at an opset before {since}")
        return node.attr_ints("axes") if node.has("axes") else None
    return None if given is None else node.constant_ints(given, "axes")


def _reduce_attributes(node: OnnxNode, axes: Value | None) -> dict[str, Any]:
    keepdims = bool(node.attr_int("keepdims", 1))
    noop = node.attr_int("noop_with_empty_axes", 0)
    found = _axes(node, axes, 13 if node.op_type == "ReduceSum" else 18)
    if not found:  # none are named: all of them, unless the node says otherwise
        found = () if noop else None
    return {"axes": found, "keepdims": keepdims}


@onnx_op("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
def reduction(node: OnnxNode, x: Value, axes: Value | None = None) -> Value:
    """One of our reductions; of bool (max: any, min: all) by way of 0 and 1."""
    name, attributes = node.op_type.removeprefix("Reduce").lower(), _reduce_attributes(node, axes)
    if tensor_type(x).dtype == bool_ and name in ("max", "min"):
        return apply("cast", apply(name, apply("cast", x, to=u8), **attributes), to=bool_)
    return apply(name, x, **attributes)


@onnx_op("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")
def composite_reduction(node: OnnxNode, x: Value, axes: Value | None = None) -> Value:
    """A sum with something before and after; with noop_with_empty_axes only the sum is left out."""
    name, type = _COMPOSITE[node.op_type], tensor_type(x)
    if "Log" in node.op_type and not type.dtype.is_float:
        raise node.unsupported(f"{node.op_type} of {type.dtype}", "cast the input to float")
    return apply(name, x, **_reduce_attributes(node, axes))
