"""Exporters of what changes shapes and picks elements: attributes that became inputs.

    reshape(x, shape=(2, 3))     Reshape(x, [2, 3])
    slice(x, starts=(1,), …)     Slice(x, [1], …); attributes, and no steps, before opset 10
    pad(x, 1.0, pads=(1, 2))     Pad(x, [1, 2], 1.0); attributes before opset 11

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import numpy as np

from minidlc.frontend.onnx.export_registry import NodeWriter, onnx_export
from minidlc.graph.graph import Constant
from minidlc.ops.movement import Expand
from minidlc.ops.padding import Pad
from minidlc.ops.shape import Reshape, Squeeze, Unsqueeze
from minidlc.ops.slicing import Slice, Tile, Trilu


@onnx_export("reshape")
def reshape(to: NodeWriter, op: Reshape, x: str) -> str:
    """A 0 copies a dim in ONNX, unless allowzero is set."""
    if 0 not in op.shape:
        return to.emit("Reshape", x, to.ints("shape", op.shape))
    if to.opset < 14:
        text = f"to {op.shape}: a dim of size 0 needs allowzero, which opset 14 brought"
        raise to.refuse(text)
    return to.emit("Reshape", x, to.ints("shape", op.shape), allowzero=1)


@onnx_export("squeeze", "unsqueeze")
def axes_of_one(to: NodeWriter, op: Squeeze | Unsqueeze, x: str) -> str:
    """Axes are an input from opset 13; none at all is no op: engines disagree on empty axes."""
    op_type = "Squeeze" if isinstance(op, Squeeze) else "Unsqueeze"
    if op.axes is None:
        return to.emit(op_type, x)
    if not op.axes:
        return to.emit("Identity", x)
    if to.opset < 13:
        rank = max(to.type.rank, to.input_type(0).rank)
        return to.emit(op_type, x, axes=to.axes(op.axes, rank))
    return to.emit(op_type, x, to.ints("axes", op.axes))


@onnx_export("expand")
def expand(to: NodeWriter, op: Expand, x: str) -> str:
    """The shape is an input."""
    return to.emit("Expand", x, to.ints("shape", op.shape))


@onnx_export("slice")
def slice_of(to: NodeWriter, op: Slice, x: str) -> str:
    """Starts, ends and axes were attributes before opset 10, which brought steps."""
    rank = to.input_type(0).rank
    axes = to.axes(op.axes or tuple(range(len(op.starts))), rank)
    if to.opset < 10:
        if op.steps:
            raise to.refuse("steps need opset 10", "a gather of the positions would do")
        if not op.starts:
            return to.emit("Identity", x)
        return to.emit("Slice", x, starts=op.starts, ends=op.ends, axes=axes)
    steps = [to.ints("steps", op.steps)] if op.steps else []
    given = [to.ints("starts", op.starts), to.ints("ends", op.ends), to.ints("axes", axes)]
    return to.emit("Slice", x, *given, *steps)


@onnx_export("pad")
def pad(to: NodeWriter, op: Pad, x: str, value: str = "") -> str:
    """Pads and value are inputs from opset 11; opset 19 brought the mode wrap."""
    if op.mode == "wrap" and to.opset < 19:
        raise to.refuse(f"ONNX has no mode wrap at opset {to.opset}", "opset 19 has it")
    mode = None if op.mode == "constant" else op.mode
    if to.opset >= 11:
        return to.emit("Pad", x, to.ints("pads", op.pads), value, mode=mode)
    return to.emit("Pad", x, pads=op.pads, mode=mode, value=_border(to, op) if value else None)


def _border(to: NodeWriter, op: Pad) -> float:
    """The value as the float32 attribute that it was before opset 11."""
    given = to.node.inputs[1]
    if not isinstance(given, Constant):
        raise to.refuse("a value that is computed needs opset 11")
    number = given.array.item()
    if float(np.float32(number)) != number and not np.isnan(number):
        raise to.refuse(f"the value {number} is no float32, which it was before opset 11")
    return float(number)


@onnx_export("tile")
def tile(to: NodeWriter, op: Tile, x: str) -> str:
    """The repeats are an input."""
    return to.emit("Tile", x, to.ints("repeats", op.repeats))


@onnx_export("trilu")
def trilu(to: NodeWriter, op: Trilu, x: str) -> str:
    """k is an input; 0 is left out."""
    k = to.array("k", np.array(op.k, np.int64)) if op.k else ""
    return to.emit("Trilu", x, k, upper=None if op.upper else 0)
