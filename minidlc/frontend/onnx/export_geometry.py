"""Exporters for ops of images and of order whose ONNX form has other inputs or outputs.

    cumsum(x, axis=1)               CumSum(x, axis)
    topk(x, k=3)                    TopK(x, k), two outputs

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import numpy as np

from minidlc.frontend.onnx.export_registry import NodeWriter, onnx_export
from minidlc.ops.grid_sample import GridSample
from minidlc.ops.pool_indices import MaxPoolWithIndices, MaxUnpool
from minidlc.ops.resize import Resize
from minidlc.ops.scans import Scan
from minidlc.ops.topk import TopK


@onnx_export("cumsum", "cumprod")
def scan(to: NodeWriter, op: Scan, x: str) -> str:
    """The axis is an input."""
    op_type = {"cumsum": "CumSum", "cumprod": "CumProd"}[op.name]
    axis = to.array("axis", np.array(op.axis, np.int64))
    return to.emit(op_type, x, axis, exclusive=int(op.exclusive), reverse=int(op.reverse))


@onnx_export("max_pool_with_indices")
def max_pool_with_indices(to: NodeWriter, op: MaxPoolWithIndices, x: str) -> tuple[str, ...]:
    """MaxPool with its second output."""
    return to.emit_many("MaxPool", 2, x, **to.attributes("MaxPool"))


@onnx_export("max_unpool")
def max_unpool(to: NodeWriter, op: MaxUnpool, x: str, indices: str) -> str:
    """The shape of the result is an input."""
    given = to.attributes("MaxUnpool")
    given.pop("output_shape", None)
    shape = to.ints("output_shape", op.output_shape) if op.output_shape else ""
    return to.emit("MaxUnpool", x, indices, shape, **given)


@onnx_export("topk")
def topk(to: NodeWriter, op: TopK, x: str) -> tuple[str, ...]:
    """k is an input, before opset 10 an attribute; smallest elements came with opset 11."""
    given = to.attributes("TopK")
    if to.opset < 10:
        return to.emit_many("TopK", 2, x, **given)
    given.pop("k", None)
    return to.emit_many("TopK", 2, x, to.ints("k", (op.k,)), **given)


@onnx_export("resize")
def resize(to: NodeWriter, op: Resize, x: str) -> str:
    """roi, scales and sizes are inputs, the first two of them empty before opset 13 if not used."""
    if to.opset < 11:
        return _resize_before_11(to, op, x)
    given = to.attributes("Resize")
    for name in ("roi", "scales", "sizes"):
        given.pop(name, None)
    roi, scales = (
        to.array(name, np.array(values, np.float32)) if values or to.opset < 13 else ""
        for name, values in (("roi", op.roi), ("scales", op.scales))
    )
    sizes = to.ints("sizes", op.sizes) if op.sizes else ""
    return to.emit("Resize", x, roi, scales, sizes, **given)


def _resize_before_11(to: NodeWriter, op: Resize, x: str) -> str:
    how, rounding = "asymmetric", "floor"
    plain = Resize(op.scales, (), op.mode, (), how, rounding)
    if op != plain or op.mode == "cubic":
        raise to.refuse("before opset 11 only scales of all axes, asymmetric and floored")
    if to.opset < 9:
        return to.emit("Upsample", x, mode=op.mode, scales=op.scales)
    scales = to.array("scales", np.array(op.scales, np.float32))
    return to.emit("Resize" if to.opset == 10 else "Upsample", x, scales, mode=op.mode)


@onnx_export("grid_sample")
def grid_sample(to: NodeWriter, op: GridSample, x: str, grid: str) -> str:
    """Opset 16 called the modes bilinear and bicubic, and took images alone."""
    given = to.attributes("GridSample")
    if to.opset < 20:
        if to.input_type(0).rank != 4:
            raise to.refuse(f"an image of rank {to.input_type(0).rank} needs opset 20")
        given["mode"] = {"linear": "bilinear", "cubic": "bicubic"}.get(op.mode, op.mode)
    return to.emit("GridSample", x, grid, **given)
