"""Small ONNX models for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from minidlc.frontend.onnx import load_onnx
from minidlc.graph import interpret, verify

F = np.float32


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """`node("Conv", "x w", "y", group=2)`; the node is named after its op and first output."""
    ins = [n if n != "_" else "" for n in inputs.split()]
    outs = outputs.split()
    domain = attributes.pop("domain", "")
    name = attributes.pop("name", f"{op}_{outs[0]}")
    return helper.make_node(op, ins, outs, name, domain=domain, **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Any],
    outputs: Sequence[str] | str = "y",
    weights: Mapping[str, Any] | None = None,
    opset: int = 20,
    ir_version: int = 9,
) -> onnx.ModelProto:
    """A model; `inputs` are arrays (their types count) or (element type, dims) pairs."""
    infos = [_info(name, value) for name, value in inputs.items()]
    names = outputs.split() if isinstance(outputs, str) else outputs
    graph = helper.make_graph(
        list(nodes),
        "test",
        infos,
        [helper.make_empty_tensor_value_info(n) for n in names],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()],
    )
    for info in graph.output:  # a type without shape: nothing to contradict
        info.type.tensor_type.elem_type = TensorProto.UNDEFINED
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def _info(name: str, value: Any) -> onnx.ValueInfoProto:
    if isinstance(value, tuple):
        return helper.make_tensor_value_info(name, *value)
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, kind, value.shape)


def run(
    nodes: Sequence[onnx.NodeProto] | onnx.NodeProto,
    inputs: Mapping[str, Any],
    weights: Mapping[str, Any] | None = None,
    opset: int = 20,
    outputs: str = "y",
) -> Any:
    """Import the model, interpret it on the arrays; the first output."""
    nodes = [nodes] if isinstance(nodes, onnx.NodeProto) else nodes
    graph = load_onnx(model(nodes, inputs, outputs, weights, opset))
    verify(graph)
    return interpret(graph, list(inputs.values()))[0]
