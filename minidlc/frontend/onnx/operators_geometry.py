"""Converters for ops of images and of order: transposed convolution, scans, resizing, top-k.

    ConvTranspose(output_shape=…)   conv_transpose(pads=…, output_padding=…), resolved for the sizes
    CumSum(x, axis)                 cumsum(axis=…): the axis must be known
    Resize, Upsample                resize(sizes=…, scales=…)

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Sequence

from minidlc.frontend.onnx.registry import OnnxNode, onnx_op
from minidlc.graph.graph import Value, apply, tensor_type
from minidlc.support.errors import OnnxImportError


@onnx_op("ConvTranspose")
def conv_transpose(node: OnnxNode, x: Value, w: Value, b: Value | None = None) -> Value:
    """kernel_shape repeats the shape of w; output_shape and auto_pad stand for pads."""
    kernel = tensor_type(w).dims[2:]
    declared = node.attr_ints("kernel_shape", kernel)
    if declared != kernel:
        raise node.unsupported(f"kernel_shape {declared} of a weight {tensor_type(w)}")
    pads, extra = _painted_pads(node, x, kernel)
    bias = () if b is None else (b,)
    return apply(
        "conv_transpose", x, w, *bias,
        strides=node.attr_ints("strides"),
        pads=pads,
        dilations=node.attr_ints("dilations"),
        group=node.attr_int("group", 1),
        output_padding=extra,
    )  # fmt: skip


def _painted_pads(
    node: OnnxNode, x: Value, kernel: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(pads, output_padding) as given, or as output_shape and auto_pad ask for.

    What is painted beyond the wanted size is cut off, the odd element at the end (SAME_UPPER) or at
    the begin. Where less is painted than wanted the result is lengthened at the end.
    """
    mode = node.attr_str("auto_pad", "NOTSET")
    pads, wanted = node.attr_ints("pads"), node.attr_ints("output_shape")
    extra = node.attr_ints("output_padding")
    strides = node.attr_ints("strides") or (1,) * len(kernel)
    dilations = node.attr_ints("dilations") or (1,) * len(kernel)
    if mode not in ("NOTSET", "", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise node.unsupported(f"auto_pad {mode!r}", "SAME_UPPER, SAME_LOWER, VALID or NOTSET")
    if not wanted and not mode.startswith("SAME"):
        return (() if mode == "VALID" else pads), extra
    known = node.dims(x, slice(2, None))
    extra = extra or (0,) * len(known)
    wanted = (wanted or tuple(n * s for n, s in zip(known, strides, strict=False)))[-len(known) :]
    if {len(v) for v in (strides, dilations, extra, wanted, kernel)} != {len(known)}:
        raise node.unsupported(f"output_shape {wanted}, strides {strides} of {len(known)} axes")
    begins: list[int] = []
    ends: list[int] = []
    more: list[int] = []
    for n, k, s, d, e, size in zip(known, kernel, strides, dilations, extra, wanted, strict=True):
        total = s * (n - 1) + e + (k - 1) * d + 1 - size
        small, large = max(total, 0) // 2, max(total, 0) - max(total, 0) // 2
        begins.append(small if mode == "SAME_UPPER" else large)
        ends.append(large if mode == "SAME_UPPER" else small)
        more.append(e + max(-total, 0))
    return (*begins, *ends), tuple(more)


@onnx_op("CumSum", "CumProd")
def scan(node: OnnxNode, x: Value, axis: Value) -> Value:
    """The axis is an input of one number."""
    return apply(
        node.op_type.lower(), x,
        axis=node.constant_int(axis, "axis"),
        exclusive=bool(node.attr_int("exclusive", 0)),
        reverse=bool(node.attr_int("reverse", 0)),
    )  # fmt: skip


@onnx_op("MaxUnpool")
def max_unpool(node: OnnxNode, x: Value, indices: Value, shape: Value | None = None) -> Value:
    """The shape of the result may be an input."""
    return apply(
        "max_unpool", x, indices,
        kernel_shape=node.attr_ints("kernel_shape"),
        strides=node.attr_ints("strides"),
        pads=node.attr_ints("pads"),
        output_shape=() if shape is None else node.constant_ints(shape, "output_shape"),
    )  # fmt: skip


@onnx_op("TopK")
def topk(node: OnnxNode, x: Value, k: Value | None = None) -> tuple[Value, ...]:
    """k was an attribute before opset 10. `sorted` is ignored: the result is sorted always."""
    node.ignore("sorted")
    if node.opset < 10:
        count = node.attr_int("k", 0)
    elif k is None:
        raise node.missing("k")
    else:
        count = node.constant_int(k, "k")
    axis, largest = node.attr_int("axis", -1), bool(node.attr_int("largest", 1))
    both = apply("topk", x, k=count, axis=axis, largest=largest)
    return apply("getitem", both, index=0), apply("getitem", both, index=1)


@onnx_op("Upsample")
def upsample(node: OnnxNode, x: Value, scales: Value | None = None) -> Value:
    """Scales were an attribute before opset 9. Elements lie at i / scale, and are floored."""
    given = node.attr_floats("scales") if scales is None else _floats(node, scales, "scales")
    return _resize_before_11(node, x, given)


@onnx_op("Resize")
def resize(
    node: OnnxNode,
    x: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
) -> Value:
    """Opset 10 had no attributes but mode; 11 brought them, 18 axes, policies and antialiasing."""
    if node.opset < 11:
        if roi is None:
            raise node.missing("scales")
        return _resize_before_11(node, x, _floats(node, roi, "scales"))
    transformation = node.attr_str("coordinate_transformation_mode", "half_pixel")
    crops = transformation == "tf_crop_and_resize"
    return apply(
        "resize", x,
        scales=() if scales is None else _floats(node, scales, "scales"),
        sizes=() if sizes is None else node.constant_ints(sizes, "sizes"),
        mode=node.attr_str("mode", "nearest"),
        axes=node.attr_ints("axes"),
        coordinate_transformation_mode=transformation,
        nearest_mode=node.attr_str("nearest_mode", "round_prefer_floor"),
        cubic_coeff_a=node.attr_float("cubic_coeff_a", -0.75),
        exclude_outside=bool(node.attr_int("exclude_outside", 0)),
        antialias=bool(node.attr_int("antialias", 0)),
        keep_aspect_ratio_policy=node.attr_str("keep_aspect_ratio_policy", "stretch"),
        roi=_floats(node, roi, "roi") if crops and roi is not None else (),
        extrapolation_value=node.attr_float("extrapolation_value", 0.0),
    )  # fmt: skip


def _resize_before_11(node: OnnxNode, x: Value, scales: tuple[float, ...]) -> Value:
    mode = node.attr_str("mode", "nearest")
    if mode in ("bilinear", "trilinear"):
        mode = "linear"
    return apply(
        "resize", x, scales=scales, mode=mode,
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip


def _floats(node: OnnxNode, value: Value, what: str) -> tuple[float, ...]:
    """A constant list of numbers."""
    found = node.constant(value, what)
    if found.dtype.kind != "f" or found.ndim > 1:
        text = f"input {what!r} must be a list of floats, got {found.dtype}{list(found.shape)}"
        raise OnnxImportError(text, loc=node.loc, code="MDLC0118")
    return tuple(float(v) for v in found.reshape(-1))


@onnx_op("GridSample")
def grid_sample(node: OnnxNode, x: Value, grid: Value) -> Value:
    """Opset 16 called the modes bilinear and bicubic."""
    mode = node.attr_str("mode", "linear")
    return apply(
        "grid_sample", x, grid,
        mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode),
        padding_mode=node.attr_str("padding_mode", "zeros"),
        align_corners=bool(node.attr_int("align_corners", 0)),
    )  # fmt: skip
