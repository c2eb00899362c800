"""Exporters of ops with several results: attention, the loss of a softmax.

    attention(q, k, v)                    Attention(q, k, v) -> y, key, value, scores
    softmax_cross_entropy(x, target)      SoftmaxCrossEntropyLoss(x, target) -> loss, log_prob

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Sequence

from minidlc.frontend.onnx.export_registry import NodeWriter, onnx_export
from minidlc.frontend.onnx.tensors import ONNX_TYPES
from minidlc.ops.attention import Attention
from minidlc.ops.losses import SoftmaxCrossEntropy


@onnx_export("attention")
def attention(to: NodeWriter, op: Attention, *inputs: str) -> Sequence[str]:
    """The precision is a number of TensorProto's enum; heads not given are left out."""
    given = {name: value for name, value in to.attributes("Attention").items() if value != ""}
    if op.softmax_precision:
        given["softmax_precision"] = ONNX_TYPES[op.softmax_precision]
    y, key, value, scores = to.emit_many("Attention", 4, *inputs, **given)
    if len(inputs) < 7 or not inputs[6]:
        return y, key, value, scores
    to.protos[-1].output[1:3] = ["", ""]  # a cache kept outside has no present key and value
    return y, scores


@onnx_export("softmax_cross_entropy")
def softmax_cross_entropy(to: NodeWriter, op: SoftmaxCrossEntropy, *inputs: str) -> Sequence[str]:
    """Two outputs."""
    op_type = "SoftmaxCrossEntropyLoss"
    return to.emit_many(op_type, 2, *inputs, **to.attributes(op_type))
