"""Exporters of ops that read and write at positions, and of bits.

    one_hot(indices, values, depth=3)       OneHot(indices, 3, values)
    scatter_elements(x, indices, updates)   before opset 11: Scatter
    gather_nd(x, i32 indices)               GatherND(x, Cast(indices)): it takes i64 only

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import numpy as np

from minidlc.expr.types import i64
from minidlc.frontend.onnx.export_registry import NodeWriter, onnx_export
from minidlc.frontend.onnx.tensors import ONNX_TYPES
from minidlc.ops.binary import Mod
from minidlc.ops.indexing import GatherNd, OneHot
from minidlc.ops.reverse_sequence import ReverseSequence
from minidlc.ops.scatter import ScatterElements, ScatterNd, TensorScatter
from minidlc.ops.shape import BitCast


def _wide(to: NodeWriter, place: int, name: str) -> str:
    """Positions as i64."""
    if not name or to.input_type(place).dtype == i64:
        return name
    return to.emit("Cast", name, to=ONNX_TYPES[i64.name])


@onnx_export("gather_nd")
def gather_nd(to: NodeWriter, op: GatherNd, x: str, indices: str) -> str:
    """Positions are i64."""
    return to.emit("GatherND", x, _wide(to, 1, indices), **to.attributes("GatherND"))


@onnx_export("reverse_sequence")
def reverse_sequence(to: NodeWriter, op: ReverseSequence, x: str, lengths: str) -> str:
    """Lengths are i64."""
    attributes = to.attributes("ReverseSequence")
    return to.emit("ReverseSequence", x, _wide(to, 1, lengths), **attributes)


def _check_reduction(to: NodeWriter, reduction: str) -> None:
    if reduction in ("max", "min"):
        to.needs(18, f"the reduction {reduction}")


@onnx_export("scatter_elements")
def scatter_elements(
    to: NodeWriter, op: ScatterElements, x: str, indices: str, updates: str
) -> str:
    """Opset 11 gave it its name, 16 and 18 the reductions."""
    _check_reduction(to, op.reduction)
    op_type = "ScatterElements" if to.opset >= 11 else "Scatter"
    return to.emit(op_type, x, indices, updates, **to.attributes(op_type))


@onnx_export("scatter_nd")
def scatter_nd(to: NodeWriter, op: ScatterNd, x: str, indices: str, updates: str) -> str:
    """Positions are i64; opsets 16 and 18 brought the reductions."""
    _check_reduction(to, op.reduction)
    attributes = to.attributes("ScatterND")
    return to.emit("ScatterND", x, _wide(to, 1, indices), updates, **attributes)


@onnx_export("tensor_scatter")
def tensor_scatter(
    to: NodeWriter, op: TensorScatter, x: str, updates: str, begins: str = ""
) -> str:
    """Positions are i64."""
    attributes = to.attributes("TensorScatter")
    return to.emit("TensorScatter", x, updates, _wide(to, 2, begins), **attributes)


@onnx_export("one_hot")
def one_hot(to: NodeWriter, op: OneHot, indices: str, values: str) -> str:
    """The depth is an input; a negative index counts from the end since opset 11."""
    if to.input_type(0).dtype.kind != "uint":
        to.needs(11, "an index that counts from the end")
    depth = to.array("depth", np.array(op.depth, np.int64))
    return to.emit("OneHot", indices, depth, values, axis=None if op.axis == -1 else op.axis)


@onnx_export("bit_cast")
def bit_cast(to: NodeWriter, op: BitCast, x: str) -> str:
    """`to` is a number of TensorProto's enum."""
    return to.emit("BitCast", x, to=ONNX_TYPES[op.to.name])


@onnx_export("mod")
def mod(to: NodeWriter, op: Mod, a: str, b: str) -> str:
    """Floats with the sign of the divisor are as young as opset 28."""
    if to.type.dtype.is_float and not op.fmod:
        to.needs(28, "fmod=False on floats")
    return to.emit("Mod", a, b, fmod=int(op.fmod) or None)
