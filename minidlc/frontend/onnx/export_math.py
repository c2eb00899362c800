"""Exporters of arithmetic, activations and softmaxes.

    maximum(a, b)                Max(a, b)
    clip(x, min=0.0)             Clip(x, 0.0); an attribute before opset 11
    softmax(x, axis=1)           before opset 13: Transpose, Softmax of the last axis, Transpose

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minidlc.frontend.onnx.export_registry import NodeWriter, onnx_export
from minidlc.frontend.onnx.tensors import ONNX_TYPES
from minidlc.graph.op import Op
from minidlc.ops.activation import Clip
from minidlc.ops.arg_reduction import Hardmax
from minidlc.ops.binary import CastTo
from minidlc.ops.matmul import Gemm
from minidlc.ops.reduction import LogSoftmax, Softmax


@onnx_export("maximum", "minimum")
def extremum(to: NodeWriter, op: Op, a: str, b: str) -> str:
    """Of any number of inputs in ONNX; without broadcasting before opset 8."""
    if to.opset < 8 and to.input_type(0).shape != to.input_type(1).shape:
        raise to.refuse("inputs of different shapes need opset 8", "expand one of them")
    return to.emit({"maximum": "Max", "minimum": "Min"}[op.name], a, b)


@onnx_export("stop_gradient", "custom_result")
def copy_of(to: NodeWriter, op: Op, x: str) -> str:
    """ONNX says nothing about gradients."""
    return to.emit("Identity", x)


@onnx_export("shift_left", "shift_right")
def shift(to: NodeWriter, op: Op, a: str, b: str) -> str:
    """The direction is an attribute."""
    return to.emit("BitShift", a, b, direction=op.name.removeprefix("shift_").upper())


@onnx_export("cast")
def cast(to: NodeWriter, op: CastTo, x: str) -> str:
    """`to` is a number of TensorProto's enum."""
    return to.emit("Cast", x, to=ONNX_TYPES[op.to.name])


@onnx_export("clip")
def clip(to: NodeWriter, op: Clip, x: str) -> str:
    """Bounds are inputs; before opset 11 they were attributes."""
    if to.opset < 11:
        return _clip_by_attributes(to, op, x)
    kind = to.type.dtype.numpy
    bounds = {"min": op.min, "max": op.max}
    given = ["" if v is None else to.array(n, np.asarray(v, kind)) for n, v in bounds.items()]
    return to.emit("Clip", x, *given)


def _clip_by_attributes(to: NodeWriter, op: Clip, x: str) -> str:
    """Bounds of float32, by default its largest finite ones; none may be above the other."""
    given = [v for v in (op.min, op.max) if v is not None]
    if to.type.dtype.name == "f64" and any(float(np.float32(v)) != v for v in given):
        raise to.refuse("bounds are float32 before opset 11", "use a newer opset")
    low = -np.inf if op.min is None else op.min
    high = np.inf if op.max is None else op.max
    if low <= high:
        return to.emit("Clip", x, min=low, max=high)
    return to.emit("Clip", to.emit("Clip", x, min=low, max=np.inf), min=-np.inf, max=high)


@onnx_export("gemm")
def gemm(to: NodeWriter, op: Gemm, a: str, b: str, c: str = "") -> str:
    """The summand could not be left out before opset 11."""
    if not c and to.opset < 11:
        c = to.array("zero", np.zeros(1, to.type.dtype.numpy))
    return to.emit("Gemm", a, b, c, **to.attributes("Gemm"))


@onnx_export("softmax", "log_softmax", "hardmax")
def softmax(to: NodeWriter, op: Softmax | LogSoftmax | Hardmax, x: str) -> str:
    """Before opset 13 all axes from `axis` on were one: the last axis alone means the same."""
    names = {"softmax": "Softmax", "log_softmax": "LogSoftmax", "hardmax": "Hardmax"}
    op_type = names[op.name]
    if to.opset >= 13:
        return to.emit(op_type, x, **to.attributes(op_type))
    return of_last_axis(to, op_type, x, op.axis)


def of_last_axis(to: NodeWriter, op_type: str, x: str, axis: int, **attributes: Any) -> str:
    """An op along its last axis, with transposes around it where `axis` is another one."""
    rank = to.input_type(0).rank
    place, last = axis % rank, rank - 1
    if place == last:
        return to.emit(op_type, x, axis=last, **attributes)
    perm = list(range(rank))
    perm[place], perm[last] = last, place
    y = to.emit(op_type, to.emit("Transpose", x, perm=perm), axis=last, **attributes)
    return to.emit("Transpose", y, perm=perm)
