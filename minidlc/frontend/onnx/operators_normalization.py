"""Converters for normalisations whose statistics are computed: what `stash_type` and outputs mean.

    LayerNormalization(x, s, b)  layer_norm(x, s, b); mean and 1 / deviation, where they are used
    GroupNormalization, opset 18 group_norm, the scale of each group repeated for its channels

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from minidlc.expr.types import DType
from minidlc.frontend.onnx.registry import OnnxNode, onnx_op
from minidlc.frontend.onnx.tensors import element
from minidlc.graph.graph import Value, apply, tensor_type
from minidlc.ops.composing import cast_to


def _stash(node: OnnxNode, x: Value) -> DType:
    """The type of the statistics. Ours are computed in f32, or in f64 for f64: never in less."""
    stash = element(node.attr_int("stash_type", 1), node.loc)
    if not stash.is_float:
        raise node.unsupported(f"stash_type {stash}", "1 (float32) is the usual one")
    if stash.name == "f64" and tensor_type(x).dtype != stash:
        hint = "cast the input to float64"
        raise node.unsupported(f"stash_type f64 of {tensor_type(x).dtype} elements", hint)
    return stash


@onnx_op("LayerNormalization")
def layer_normalization(
    node: OnnxNode, x: Value, scale: Value, bias: Value | None = None
) -> tuple[Value, ...]:
    """Outputs 1 and 2 are mean and 1 / sqrt(variance + epsilon), in the type `stash_type`."""
    stash = _stash(node, x)
    axis, epsilon = node.attr_int("axis", -1), node.attr_float("epsilon", 1e-5)
    inputs = (x, scale) if bias is None else (x, scale, bias)
    y = apply("layer_norm", *inputs, axis=axis, epsilon=epsilon)
    if not any(node.outputs[1:]):
        return (y,)
    rank = tensor_type(x).rank
    axes = tuple(range(axis % rank, rank))
    v = cast_to(x, stash)
    mean = apply("mean", v, axes=axes)
    distance = v - mean
    variance = apply("mean", distance * distance, axes=axes)
    inverse = apply("reciprocal", apply("sqrt", variance + epsilon))
    return (y, mean, inverse)[: len(node.outputs)]


@onnx_op("RMSNormalization")
def rms_normalization(node: OnnxNode, x: Value, scale: Value) -> Value:
    """`stash_type` says no more than that statistics are not computed in f16."""
    _stash(node, x)
    axis, epsilon = node.attr_int("axis", -1), node.attr_float("epsilon", 1e-5)
    return apply("rms_norm", x, scale, axis=axis, epsilon=epsilon)


@onnx_op("GroupNormalization")
def group_normalization(node: OnnxNode, x: Value, scale: Value, bias: Value) -> Value:
    """Before opset 21 scale and bias had one value for each group, now one for each channel."""
    _stash(node, x)
    if not node.has("num_groups"):
        raise node.unsupported("num_groups is missing")
    groups = node.attr_int("num_groups")
    if node.opset < 21:
        scale, bias = (_per_channel(node, x, v, groups) for v in (scale, bias))
    epsilon = node.attr_float("epsilon", 1e-5)
    return apply("group_norm", x, scale, bias, num_groups=groups, epsilon=epsilon)


def _per_channel(node: OnnxNode, x: Value, v: Value, groups: int) -> Value:
    channels = tensor_type(x).shape[1] if tensor_type(x).rank > 1 else None
    if not isinstance(channels, int) or groups < 1 or channels % groups:
        raise node.unsupported(f"num_groups {groups} of {tensor_type(x)}, which it must divide")
    if tensor_type(v).shape != (groups,):
        text = f"scale and bias must have {groups} values, got {tensor_type(v)}"
        raise node.unsupported(text, "opset 21 has one for each channel")
    repeated = apply("expand", apply("unsqueeze", v, axes=(1,)), shape=(groups, channels // groups))
    return apply("reshape", repeated, shape=(channels,))
