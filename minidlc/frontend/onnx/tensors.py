"""TensorProto and TypeProto → arrays and types, every count checked first.

    array(proto, "lenet.onnx")                      # numpy array of the initializer
    element(onnx.TensorProto.FLOAT, where)          # f32

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import math

import onnx
from onnx import TensorProto, helper, numpy_helper

from minidlc.expr.types import DTYPES, Array, DType, TensorType, dtype
from minidlc.support.errors import CompileError, OnnxImportError
from minidlc.support.locations import OnnxLoc

ONNX_TYPES: dict[str, int] = {
    "f16": TensorProto.FLOAT16,
    "bf16": TensorProto.BFLOAT16,
    "f32": TensorProto.FLOAT,
    "f64": TensorProto.DOUBLE,
    "i8": TensorProto.INT8,
    "i16": TensorProto.INT16,
    "i32": TensorProto.INT32,
    "i64": TensorProto.INT64,
    "u8": TensorProto.UINT8,
    "u16": TensorProto.UINT16,
    "u32": TensorProto.UINT32,
    "u64": TensorProto.UINT64,
    "bool": TensorProto.BOOL,
}
_FROM_ONNX = {number: DTYPES[name] for name, number in ONNX_TYPES.items()}
# where TensorProto keeps the elements of a type when they are not in raw_data
_FIELDS = {"f32": "float_data", "f64": "double_data", "i64": "int64_data"} | dict.fromkeys(
    ("u32", "u64"), "uint64_data"
)


def element(number: int, loc: OnnxLoc) -> DType:
    """The element type of an ONNX type number; OnnxImportError (MDLC0112) for strings, int4, …"""
    if number in _FROM_ONNX:
        return _FROM_ONNX[number]
    known = number in TensorProto.DataType.values()
    what = TensorProto.DataType.Name(number).lower() if known else f"number {number}"
    text = f"element type {what} is not supported"
    raise OnnxImportError(text, loc=loc, hint=f"supported: {', '.join(DTYPES)}", code="MDLC0112")


def array(tensor: TensorProto, loc: OnnxLoc) -> Array:
    """The tensor as an array; OnnxImportError (MDLC0110) if data and dims do not fit."""
    kind = element(tensor.data_type, loc)
    if any(d < 0 for d in tensor.dims) or tensor.HasField("segment"):
        text = f"tensor {tensor.name!r} has malformed dims {list(tensor.dims)}"
        raise OnnxImportError(text, loc=loc, code="MDLC0110")
    size = math.prod(tensor.dims)
    if tensor.HasField("raw_data"):
        got, wanted, unit = len(tensor.raw_data), size * kind.itemsize, "bytes"
    else:
        got, wanted, unit = (
            len(getattr(tensor, _FIELDS.get(kind.name, "int32_data"))),
            size,
            "values",
        )
    if got != wanted:
        dims = ", ".join(map(str, tensor.dims))
        text = f"tensor {tensor.name!r} of {kind}[{dims}] needs {wanted} {unit}, got {got}"
        raise OnnxImportError(text, loc=loc, hint="the model is damaged", code="MDLC0110")
    try:
        result: Array = numpy_helper.to_array(tensor)
        dtype(result.dtype)
    except CompileError:
        raise
    except Exception as e:  # onnx raises several types here
        text = f"tensor {tensor.name!r} cannot be read: {e}"
        raise OnnxImportError(text, loc=loc, code="MDLC0110") from None
    return result


def tensor(value: Array, name: str) -> onnx.TensorProto:
    """The array as an initializer."""
    kind = dtype(value.dtype)
    return helper.make_tensor(name, ONNX_TYPES[kind.name], value.shape, value.tobytes(), raw=True)


def value_info(name: str, type: TensorType) -> onnx.ValueInfoProto:
    """Name, element type and shape, as ONNX describes inputs and outputs."""
    dims = [d if isinstance(d, int) else str(d) for d in type.shape]
    return helper.make_tensor_value_info(name, ONNX_TYPES[type.dtype.name], dims)
