"""Converters for attention and what stands around it: rotary positions, gated activations.

    Attention(q, k, v) -> y, key, value, scores     getitem 0 to 3 of attention(q, k, v)
    RotaryEmbedding(x, cos, sin, positions)         rotary_embedding(x, gather(cos), gather(sin))
    SwiGLU(a, b)                                    a * sigmoid(alpha * a) * b

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import numpy as np

from minidlc.frontend.onnx.registry import OnnxNode, onnx_op
from minidlc.frontend.onnx.tensors import element
from minidlc.graph.graph import Constant, Value, apply, getitem, tensor_type
from minidlc.ops.attention import Attention
from minidlc.ops.losses import SoftmaxCrossEntropy
from minidlc.ops.rotary import RotaryEmbedding

LENGTHS = 3  # place of nonpad_kv_seqlen among the optional inputs


@onnx_op("Attention")
def attention(
    node: OnnxNode, q: Value, k: Value, v: Value, *optional: Value | None
) -> tuple[Value, ...]:
    """`softmax_precision` is a number of TensorProto's enum; opset 24 brought `lengths`."""
    precision = node.attr_int("softmax_precision", 0)
    attributes = node.attributes_of(Attention, "softmax_precision")
    if precision:
        attributes["softmax_precision"] = element(precision, node.loc).name
    result = apply("attention", q, k, v, *optional, **attributes)
    if len(optional) <= LENGTHS:
        return tuple(getitem(result, n) for n in range(min(len(node.outputs), 4)))
    if any(node.outputs[1:3]):
        raise node.unsupported("a present key or value together with nonpad_kv_seqlen")
    y, scores = getitem(result, 0), getitem(result, 1)
    return (y, y, y, scores)[: len(node.outputs)]  # outputs 1 and 2 have no name


@onnx_op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    node: OnnxNode, x: Value, target: Value, *weight: Value
) -> tuple[Value, ...]:
    """The second output is the logarithm of the softmax."""
    attributes = node.attributes_of(SoftmaxCrossEntropy)
    result = apply("softmax_cross_entropy", x, target, *weight, **attributes)
    return tuple(getitem(result, n) for n in range(len(node.outputs)))


@onnx_op("RotaryEmbedding")
def rotary_embedding(
    node: OnnxNode, x: Value, cos: Value, sin: Value, positions: Value | None = None
) -> Value:
    """With positions, cos and sin are tables whose rows they choose."""
    if positions is not None:
        cos, sin = (apply("gather", table, positions, axis=0) for table in (cos, sin))
    return apply("rotary_embedding", x, cos, sin, **node.attributes_of(RotaryEmbedding))


@onnx_op("SwiGLU")
def swiglu(node: OnnxNode, a: Value, b: Value) -> Value:
    """A gate a * sigmoid(alpha * a) on b; no broadcasting."""
    if tensor_type(a).shape != tensor_type(b).shape:
        raise node.unsupported(f"inputs of different shapes: {a.type} and {b.type}")
    alpha = node.attr_float("alpha", 1.0)
    gate = apply("sigmoid", a if alpha == 1.0 else a * alpha)
    return a * gate * b


@onnx_op("CausalConvWithState")
def causal_conv(
    node: OnnxNode, x: Value, w: Value, bias: Value | None = None, past: Value | None = None
) -> tuple[Value, Value]:
    """A convolution of each channel with what came before; the state is what comes before next."""
    activation = node.attr_str("activation", "none")
    if activation not in ("none", "silu", "swish"):
        raise node.unsupported(f"activation {activation!r}", "silu, swish or none")
    if tensor_type(w).rank != 3 or tensor_type(x).rank != 3:
        raise node.unsupported(f"x {x.type} and w {w.type}: both have rank 3")
    channels, _, size = tensor_type(w).dims
    if size < 1:
        raise node.unsupported(f"a kernel of no elements: {w.type}")
    if past is None:
        zeros = np.zeros((tensor_type(x).dims[0], channels, size - 1), tensor_type(x).dtype.numpy)
        past = Constant("zeros", zeros)
    whole = apply("concat", past, x, axis=2)
    y = apply("conv", whole, w, *(() if bias is None else (bias,)), group=channels)
    if activation != "none":
        y = y * apply("sigmoid", y)
    length = tensor_type(whole).dims[2]
    return y, apply("slice", whole, starts=(length - size + 1,), ends=(length,), axes=(2,))
