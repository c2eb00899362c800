"""Converters for ONNX ops that differ from ours: arithmetic, activations, windows.

    Max(a, b, c)                 maximum(maximum(a, b), c)
    Conv(auto_pad="SAME_UPPER")  conv(pads=…), resolved for the sizes at hand
    Softmax, opset < 13          of the input flattened to rank 2

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minidlc.frontend.onnx.registry import Converter, OnnxNode, constant_value, onnx_op
from minidlc.frontend.onnx.tensors import element
from minidlc.graph.graph import Value, apply, tensor_type
from minidlc.ops.composing import in_wide, narrowed


def _fold(name: str, first: Value, rest: Sequence[Value]) -> Value:
    value = first
    for other in rest:
        value = apply(name, value, other)
    return value


def _variadic(name: str) -> Converter:
    def convert(node: OnnxNode, first: Value, *rest: Value) -> Value:
        return _fold(name, first, rest)

    return convert


for _onnx, _name in (("Max", "maximum"), ("Min", "minimum"), ("Sum", "add")):
    onnx_op(_onnx)(_variadic(_name))


@onnx_op("Mean")
def mean_of(node: OnnxNode, first: Value, *rest: Value) -> Value:
    """Mean of the inputs, not of an axis."""
    return _fold("add", first, rest) / (1.0 + len(rest))


@onnx_op("Cast")
def cast(node: OnnxNode, x: Value) -> Value:
    """`to` is a number of TensorProto's enum."""
    node.ignore("saturate", "round_mode")  # they say something of float8 only
    return apply("cast", x, to=element(node.attr_int("to"), node.loc))


@onnx_op("CastLike")
def cast_like(node: OnnxNode, x: Value, like: Value) -> Value:
    """Only the element type of `like` matters."""
    node.ignore("saturate", "round_mode")
    return apply("cast", x, to=tensor_type(like).dtype)


@onnx_op("Clip")
def clip(node: OnnxNode, x: Value, low: Value | None = None, high: Value | None = None) -> Value:
    """Bounds were attributes before opset 11. A bound that is no finite number becomes an op."""
    if node.opset < 11:
        largest = float(np.finfo(np.float32).max)
        bounds = (node.attr_float("min", -largest), node.attr_float("max", largest))
        low_bound, high_bound = (None if abs(b) >= 3.4e38 else b for b in bounds)
        return apply("clip", x, min=low_bound, max=high_bound)
    fixed: dict[str, float | int] = {}
    for name, bound in (("min", low), ("max", high)):
        array = None if bound is None else constant_value(bound)
        if array is not None and array.size == 1 and math.isfinite(array.item()):
            fixed[name] = array.item()
    y = apply("clip", x, **fixed) if fixed or low is high is None else x
    if low is not None and "min" not in fixed:
        y = apply("maximum", y, low)
    if high is not None and "max" not in fixed:
        y = apply("minimum", y, high)
    return y


@onnx_op("BitShift")
def bit_shift(node: OnnxNode, a: Value, b: Value) -> Value:
    """The direction is in the op's name here."""
    direction = node.attr_str("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise node.unsupported(f"direction {direction!r}", "LEFT or RIGHT")
    return apply(f"shift_{direction.lower()}", a, b)


@onnx_op("IsInf")
def is_inf(node: OnnxNode, x: Value) -> Value:
    """One sign only: together with a comparison."""
    y, zero = apply("isinf", x), 0.0
    if not node.attr_int("detect_positive", 1):
        y = apply("logical_and", y, apply("less", x, zero))
    if not node.attr_int("detect_negative", 1):
        y = apply("logical_and", y, apply("greater", x, zero))
    return y


@onnx_op("PRelu")
def prelu(node: OnnxNode, x: Value, slope: Value) -> Value:
    """The slope broadcasts to x from the right; there is no channel rule."""
    return apply("where", x < 0, x * slope, x)


@onnx_op("ThresholdedRelu")
def thresholded_relu(node: OnnxNode, x: Value) -> Value:
    """x above alpha, else 0."""
    zero = tensor_type(x).dtype.numpy.type(0)
    return apply("where", x > node.attr_float("alpha", 1.0), x, zero)


@onnx_op("Selu")
def selu(node: OnnxNode, x: Value) -> Value:
    """A scaled elu; the defaults are ONNX's."""
    alpha, gamma = node.attr_float("alpha", 1.6732632), node.attr_float("gamma", 1.050701)
    return apply("elu", x, alpha=alpha) * gamma


@onnx_op("Celu")
def celu(node: OnnxNode, x: Value) -> Value:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)): one of the two is 0, for any alpha."""
    v, alpha = in_wide(x), node.attr_float("alpha", 1.0)
    below = (apply("exp", v / alpha) - 1.0) * alpha
    return narrowed(apply("where", v < 0.0, below, v), x)


@onnx_op("Swish")
def swish(node: OnnxNode, x: Value) -> Value:
    """x * sigmoid(alpha * x)."""
    alpha = node.attr_float("alpha", 1.0)
    return x * apply("sigmoid", x if alpha == 1.0 else x * alpha)


@onnx_op("Mish")
def mish(node: OnnxNode, x: Value) -> Value:
    """x * tanh(softplus(x))."""
    return x * apply("tanh", apply("softplus", x))


@onnx_op("Softmax", "LogSoftmax", "Hardmax")
def softmax(node: OnnxNode, x: Value) -> Value:
    """Before opset 13: of x flattened to rank 2 at `axis`, whose default was 1."""
    names = {"Softmax": "softmax", "LogSoftmax": "log_softmax", "Hardmax": "hardmax"}
    name = names[node.op_type]
    if node.opset >= 13:
        return apply(name, x, axis=node.attr_int("axis", -1))
    rank = tensor_type(x).rank
    axis = node.attr_axis(rank, 1)
    if axis == rank - 1:
        return apply(name, x, axis=-1)
    flat = apply(name, apply("flatten", x, axis=axis), axis=-1)
    return apply("reshape", flat, shape=tensor_type(x).dims)


@onnx_op("BatchNormalization")
def batch_normalization(
    node: OnnxNode, x: Value, scale: Value, bias: Value, mean: Value, var: Value
) -> tuple[Value, ...]:
    """With the given statistics; in training_mode (opset 14) with those of x, given out as well."""
    momentum, epsilon = node.attr_float("momentum", 0.9), node.attr_float("epsilon", 1e-5)
    if not node.attr_int("spatial", 1):
        raise node.unsupported("spatial=0")
    if not node.attr_int("training_mode", 0):
        if any(node.outputs[1:]):
            raise node.unsupported("outputs of training", "export the model for inference")
        return (apply("batch_norm", x, scale, bias, mean, var, epsilon=epsilon),)
    axes = tuple(a for a in range(tensor_type(x).rank) if a != 1)
    wide = in_wide(x)
    distance = wide - apply("mean", wide, axes=axes)
    batch_mean = apply("mean", wide, axes=axes, keepdims=False)
    batch_var = apply("mean", distance * distance, axes=axes, keepdims=False)
    statistics = (narrowed(batch_mean, mean), narrowed(batch_var, var))
    y = apply("batch_norm", x, scale, bias, *statistics, epsilon=epsilon)
    running = [
        old * momentum + new * (1 - momentum)
        for old, new in zip((mean, var), statistics, strict=True)
    ]
    return (y, *running)[: len(node.outputs)]


# --- windows ---


def _pads(node: OnnxNode, dims: Sequence[object], kernel: Sequence[int]) -> tuple[int, ...]:
    """The `pads` attribute, or what auto_pad stands for; begins first, then ends.

    SAME: ceil(size / stride) windows; what is missing for them is split in two, the odd element at
    the end (UPPER) or at the begin (LOWER). The kernel counts with its dilation.
    """
    mode = node.attr_str("auto_pad", "NOTSET")
    pads = node.attr_ints("pads")
    if mode in ("NOTSET", ""):
        return pads
    if mode == "VALID":
        return ()
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise node.unsupported(f"auto_pad {mode!r}", "SAME_UPPER, SAME_LOWER, VALID or NOTSET")
    strides = node.attr_ints("strides") or (1,) * len(kernel)
    dilations = node.attr_ints("dilations") or (1,) * len(kernel)
    fits = len(strides) == len(dilations) == len(kernel) == len(dims)
    if not fits or min((*strides, *dilations, *kernel), default=1) < 1:
        raise node.unsupported(f"auto_pad with strides {strides}, dilations {dilations}")
    begins: list[int] = []
    ends: list[int] = []
    for size, k, stride, dilation in zip(dims, kernel, strides, dilations, strict=True):
        total = max(0, _covered(node, size, stride) + (k - 1) * dilation + 1)
        small, large = total // 2, total - total // 2
        begins.append(small if mode == "SAME_UPPER" else large)
        ends.append(large if mode == "SAME_UPPER" else small)
    return (*begins, *ends)


def _covered(node: OnnxNode, size: object, stride: int) -> int:
    """Where the last of ceil(size / stride) windows starts, minus size."""
    if isinstance(size, int):
        return (-(-size // stride) - 1) * stride - size
    if stride == 1:
        return -1  # of a symbolic size too
    hint = "give the sizes: shapes={…}"
    raise node.unsupported("auto_pad with a stride of a size that is not known", hint)


def window_attributes(node: OnnxNode, x: Value, w: Value) -> dict[str, Any]:
    """Those of a convolution of x by w; kernel_shape repeats the shape of w."""
    kernel = tensor_type(w).dims[2:]
    declared = node.attr_ints("kernel_shape", kernel)
    if declared != kernel:
        raise node.unsupported(f"kernel_shape {declared} of a weight {tensor_type(w)}")
    return {
        "strides": node.attr_ints("strides"),
        "pads": _pads(node, tensor_type(x).shape[2:], kernel),
        "dilations": node.attr_ints("dilations"),
        "group": node.attr_int("group", 1),
    }


@onnx_op("Conv")
def conv(node: OnnxNode, x: Value, w: Value, b: Value | None = None) -> Value:
    """auto_pad is resolved for the sizes at hand."""
    bias = () if b is None else (b,)
    return apply("conv", x, w, *bias, **window_attributes(node, x, w))


@onnx_op("MaxPool", "AveragePool", "LpPool")
def pool(node: OnnxNode, x: Value) -> Value | tuple[Value, ...]:
    """The second output of MaxPool holds the positions of the maxima, in the storage_order."""
    kernel = node.attr_ints("kernel_shape")
    attributes = {
        "kernel_shape": kernel,
        "strides": node.attr_ints("strides"),
        "pads": _pads(node, tensor_type(x).shape[2:], kernel),
        "dilations": node.attr_ints("dilations"),
        "ceil_mode": bool(node.attr_int("ceil_mode", 0)),
    }
    if node.op_type == "LpPool":
        return apply("lp_pool", x, **attributes, p=node.attr_int("p", 2))
    if node.op_type == "MaxPool":
        order = node.attr_int("storage_order", 0)
        if not any(node.outputs[1:]):
            return apply("max_pool", x, **attributes)
        both = apply("max_pool_with_indices", x, **attributes, storage_order=order)
        return apply("getitem", both, index=0), apply("getitem", both, index=1)
    include = bool(node.attr_int("count_include_pad", 0))
    return apply("average_pool", x, **attributes, count_include_pad=include)
