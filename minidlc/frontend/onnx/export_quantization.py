"""Exporters of quantized numbers: where ONNX says the type of the result.

    quantize_linear(x, s, to=i8)         QuantizeLinear(x, s, output_dtype=INT8), from opset 21 on
    dequantize_linear(x, s, to=f16)      DequantizeLinear(x, s), for a scale of f16

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from minidlc.expr.types import DType, u8
from minidlc.frontend.onnx.export_registry import NodeWriter, onnx_export
from minidlc.frontend.onnx.tensors import ONNX_TYPES
from minidlc.ops.quantization import DequantizeLinear, QuantizeLinear


@onnx_export("quantize_linear")
def quantize_linear(to: NodeWriter, op: QuantizeLinear, x: str, scale: str, zero: str = "") -> str:
    """The zero point has the type of the result; without one u8 goes without saying."""
    stated = op.to == u8 or bool(zero)
    return _scaled(to, "QuantizeLinear", None if stated else op.to, x, scale, zero)


@onnx_export("dequantize_linear")
def dequantize_linear(
    to: NodeWriter, op: DequantizeLinear, x: str, scale: str, zero: str = ""
) -> str:
    """The type of the scale goes without saying."""
    stated = op.to == to.input_type(1).dtype
    return _scaled(to, "DequantizeLinear", None if stated else op.to, x, scale, zero)


def _scaled(to: NodeWriter, op_type: str, result: DType | None, *inputs: str) -> str:
    if to.opset < 13 and to.input_type(1).size != 1:
        to.needs(13, "a scale for each index of an axis")
    given = {name: value for name, value in to.attributes(op_type).items() if name != "to"}
    if result is not None:
        given["output_dtype"] = ONNX_TYPES[result.name]
    return to.emit(op_type, *inputs, **given)
