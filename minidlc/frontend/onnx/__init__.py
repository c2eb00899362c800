"""ONNX in and out: `load_onnx` and `to_onnx` (course chapter 01_graph_ir).

Reading order: reader, tensors, inputs, order, registry, operators and operators_*, importer; then
export_registry, export_schema, export_* and export.
"""

from minidlc.frontend.onnx.export import to_onnx
from minidlc.frontend.onnx.export_registry import NodeWriter, onnx_export
from minidlc.frontend.onnx.importer import load_onnx
from minidlc.frontend.onnx.registry import OnnxNode, onnx_op

__all__ = ["NodeWriter", "OnnxNode", "load_onnx", "onnx_export", "onnx_op", "to_onnx"]
