"""Converters for ops of positions and of bits that differ from ours, or whose result is known.

    OneHot(indices, 10, values)     one_hot(indices, values, depth=10)
    Compress(x, [1, 0, 1])          gather(x, [0, 2]): the condition must be known
    NonZero(x), Unique(x)           constants, where x is one: else their size depends on data

Gather, GatherElements, GatherND, ScatterElements, ScatterND, TensorScatter and ReverseSequence are
as in ONNX and need no converter. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidlc.expr.types import Array
from minidlc.frontend.onnx.registry import OnnxNode, constant_value, onnx_op
from minidlc.frontend.onnx.tensors import element
from minidlc.graph.graph import Constant, Value, apply, tensor_type

_LARGEST = 1 << 24  # elements of an EyeLike, which becomes a constant


def _known(node: OnnxNode, x: Value) -> Array:
    """The array of an input that decides the size of the result."""
    array = constant_value(x)
    if array is None:
        text = "not supported: the size of the result depends on data"
        raise node.unsupported(text, f"{node.op_type} of a constant becomes a constant")
    return array


@onnx_op("Scatter")
def scatter(node: OnnxNode, x: Value, indices: Value, updates: Value) -> Value:
    """The name of ScatterElements before opset 11."""
    return apply("scatter_elements", x, indices, updates, axis=node.attr_int("axis", 0))


@onnx_op("OneHot")
def one_hot(node: OnnxNode, indices: Value, depth: Value, values: Value) -> Value:
    """The depth is an input of one number. Before opset 11 a negative index was nowhere."""
    given = node.constant(depth, "depth")
    if given.size != 1 or not np.isfinite(given.astype(np.float64)).all():
        raise node.wrong(f"depth must be one number, got {given.tolist()}")
    count = int(given.reshape(-1)[0])
    if node.opset < 11 and tensor_type(indices).dtype.kind != "uint":
        nowhere = np.asarray(count, tensor_type(indices).dtype.numpy)
        indices = apply("where", indices < 0, nowhere, indices)
    return apply("one_hot", indices, values, depth=count, axis=node.attr_int("axis", -1))


@onnx_op("Compress")
def compress(node: OnnxNode, x: Value, condition: Value) -> Value:
    """The positions where the condition holds, along an axis or of all elements."""
    mask = node.constant(condition, "condition")
    if not node.has("axis"):
        x = apply("reshape", x, shape=(-1,))
    axis = node.attr_axis(tensor_type(x).rank)
    (size,) = node.dims(x, slice(axis, axis + 1))
    if mask.ndim != 1 or mask.dtype != np.bool_ or mask.size > size:
        text = f"condition must hold at most {size} bools, got {mask.dtype}{list(mask.shape)}"
        raise node.wrong(text)
    kept = Constant("kept", np.flatnonzero(mask).astype(np.int64), node.loc)
    return apply("gather", x, kept, axis=axis)


@onnx_op("NonZero")
def non_zero(node: OnnxNode, x: Value) -> Value:
    """The positions of what is not 0, a row for each axis; of a scalar as of one element."""
    found = np.nonzero(np.atleast_1d(_known(node, x)))
    return Constant("nonzero", np.array(found, np.int64), node.loc)


@onnx_op("Unique")
def unique(node: OnnxNode, x: Value) -> Sequence[Value]:
    """Different elements (or slices along an axis); where they are first; which each is; counts."""
    array = _known(node, x)
    axis = node.attr_axis(array.ndim) if node.has("axis") else None
    values, first, which, counts = np.unique(array, True, True, True, axis=axis)
    if not node.attr_int("sorted", 1):  # in the order of their first appearance
        order = np.argsort(first)
        values, first, counts = np.take(values, order, axis or 0), first[order], counts[order]
        which = np.argsort(order)[which]
    results = {"values": values, "first": first, "which": which.reshape(-1), "counts": counts}
    kinds = (array.dtype, np.int64, np.int64, np.int64)
    return [
        Constant(name, np.asarray(a, kind), node.loc)
        for (name, a), kind in zip(results.items(), kinds, strict=True)
    ]


@onnx_op("EyeLike")
def eye_like(node: OnnxNode, x: Value) -> Value:
    """Ones on a diagonal, a constant: only the shape of x matters, and its type without dtype."""
    type = tensor_type(x)
    shape = node.dims(x)
    if len(shape) != 2:
        raise node.wrong(f"takes a matrix, got {type}")
    if shape[0] * shape[1] > _LARGEST:
        raise node.unsupported(f"{type} is large", f"at most {_LARGEST} elements become one")
    kind = element(node.attr_int("dtype"), node.loc) if node.has("dtype") else type.dtype
    k = min(max(node.attr_int("k", 0), -shape[0]), shape[1])
    return Constant("eye", np.eye(*shape, k).astype(kind.numpy), node.loc)


@onnx_op("BitCast")
def bit_cast(node: OnnxNode, x: Value) -> Value:
    """`to` is a number of TensorProto's enum."""
    return apply("bit_cast", x, to=element(node.attr_int("to"), node.loc))


@onnx_op("Mod")
def mod(node: OnnxNode, a: Value, b: Value) -> Value:
    """Before opset 28 floats needed fmod=1."""
    fmod = node.attr_int("fmod", 0)
    if fmod not in (0, 1):
        raise node.wrong(f"fmod is 0 or 1, got {fmod}")
    if not fmod and node.opset < 28 and tensor_type(a).dtype.is_float:
        raise node.wrong(f"floats need fmod=1 at opset {node.opset}")
    return apply("mod", a, b, fmod=bool(fmod))


@onnx_op("Shrink")
def shrink(node: OnnxNode, x: Value) -> Value:
    """What is nearer to 0 than lambd becomes 0, the rest moves by bias toward 0.

    Integers are computed in f64 and truncated.
    """
    lambd, bias = node.attr_float("lambd", 0.5), node.attr_float("bias", 0.0)
    kind = tensor_type(x).dtype
    v = x if kind.is_float else apply("cast", x, to="f64")
    zero = np.zeros((), tensor_type(v).dtype.numpy)
    y = apply("where", v < -lambd, v + bias, apply("where", v > lambd, v - bias, zero))
    return y if kind.is_float else apply("cast", y, to=kind)
