"""Converters for quantized operators: integers with scales and zero points.

    QuantizeLinear(x, s, z)      quantize_linear(x, s, z, to=…), the type of z
    QLinearMatMul(a, …, b, …)    matmul_integer, times the scales, quantize_linear

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Sequence

from minidlc.expr.types import f32
from minidlc.frontend.onnx.operators import window_attributes
from minidlc.frontend.onnx.registry import OnnxNode, onnx_op
from minidlc.frontend.onnx.tensors import element
from minidlc.graph.graph import Value, apply, tensor_type
from minidlc.ops.composing import cast_to


def _number(v: Value) -> Value:
    """A scalar, also where it is written as a list of one number."""
    return apply("reshape", v, shape=()) if tensor_type(v).shape == (1,) else v


@onnx_op("QuantizeLinear", "DequantizeLinear")
def scaled(node: OnnxNode, x: Value, scale: Value, zero: Value | None = None) -> Value:
    """The type of the result: `output_dtype`, or that of the zero point (the scale)."""
    quantize = node.op_type == "QuantizeLinear"
    node.ignore("saturate")  # of float8
    if quantize and (precision := node.attr_int("precision", 0)):
        scale = cast_to(scale, element(precision, node.loc))
    to = element(given, node.loc) if (given := node.attr_int("output_dtype", 0)) else None
    if to is None and quantize:
        to = "u8" if zero is None else tensor_type(zero).dtype
    return apply(
        "quantize_linear" if quantize else "dequantize_linear",
        x, scale, *(() if zero is None else (zero,)),
        axis=node.attr_int("axis", 1),
        block_size=node.attr_int("block_size", 0),
        to=to or tensor_type(scale).dtype,
    )  # fmt: skip


@onnx_op("ConvInteger")
def conv_integer(node: OnnxNode, x: Value, w: Value, *zeros: Value | None) -> Value:
    """As Conv, of integers."""
    return apply("conv_integer", x, w, *zeros, **window_attributes(node, x, w))


@onnx_op("QLinearConv")
def qlinear_conv(
    node: OnnxNode,
    x: Value,
    x_scale: Value,
    x_zero: Value,
    w: Value,
    w_scale: Value,
    w_zero: Value,
    y_scale: Value,
    y_zero: Value,
    bias: Value | None = None,
) -> Value:
    """Sums in i32, with the bias; then scaled and rounded once."""
    sums = apply("conv_integer", x, w, x_zero, w_zero, **window_attributes(node, x, w))
    column = (-1, *[1] * (tensor_type(x).rank - 2))
    if bias is not None:
        sums = sums + apply("reshape", bias, shape=column)
    scale = w_scale
    if tensor_type(w_scale).rank == 1:
        scale = apply("reshape", w_scale, shape=column)
    return _rounded(sums, (x_scale, scale), y_scale, y_zero)


@onnx_op("QLinearMatMul")
def qlinear_matmul(
    node: OnnxNode,
    a: Value,
    a_scale: Value,
    a_zero: Value,
    b: Value,
    b_scale: Value,
    b_zero: Value,
    y_scale: Value,
    y_zero: Value,
) -> Value:
    """Sums in i32, then scaled and rounded once."""
    sums = apply("matmul_integer", a, b, _number(a_zero), _number(b_zero))
    a_scale = _number(a_scale)
    if tensor_type(a_scale).rank == 1:
        a_scale = apply("unsqueeze", a_scale, axes=(1,))
    return _rounded(sums, (a_scale, b_scale), y_scale, y_zero)


def _rounded(sums: Value, scales: Sequence[Value], y_scale: Value, y_zero: Value) -> Value:
    """sums * scales, as integers of the scale and the zero point of the result."""
    y = cast_to(sums, f32)
    for scale in scales:
        y = y * _number(cast_to(scale, f32))
    to = tensor_type(y_zero).dtype
    y_scale = _number(cast_to(y_scale, f32))
    return apply("quantize_linear", y, y_scale, _number(y_zero), to=to)
