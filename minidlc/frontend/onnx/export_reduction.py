"""Exporters of reductions and normalisations: where axes are an input, and from which opset.

    sum(x, axes=(1,))            ReduceSum(x, [1]); an attribute before opset 13
    mean(x, axes=(1,))           ReduceMean(x, [1]); an attribute before opset 18
    group_norm(x, scale, bias)   GroupNormalization, opset 21

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from typing import Any

from minidlc.expr.types import f32
from minidlc.frontend.onnx.export_registry import NodeWriter, onnx_export
from minidlc.ops.composite_reduction import CompositeReduction
from minidlc.ops.normalization import GroupNorm
from minidlc.ops.reduction import Reduction
from minidlc.ops.vector_norm import MeanVarianceNormalization


@onnx_export(
    "sum", "mean", "max", "min", "prod",
    "reduce_l1", "reduce_l2", "reduce_sum_square", "reduce_log_sum", "reduce_log_sum_exp",
)  # fmt: skip
def reduction(to: NodeWriter, op: Reduction | CompositeReduction, x: str) -> str:
    """Axes are an input from opset 13 (ReduceSum) or 18; () needs noop_with_empty_axes."""
    op_type = op.onnx or ""
    given: dict[str, Any] = {"keepdims": None if op.keepdims else 0}
    if op.axes is None:
        return to.emit(op_type, x, **given)
    if to.opset < (13 if op_type == "ReduceSum" else 18):
        return _axes_as_attribute(to, op, x, given)
    if not op.axes:
        return to.emit(op_type, x, **given, noop_with_empty_axes=1)
    return to.emit(op_type, x, to.ints("axes", op.axes), **given)


def _axes_as_attribute(
    to: NodeWriter, op: Reduction | CompositeReduction, x: str, given: dict[str, Any]
) -> str:
    """No axes at all meant all of them: a sum over none is the input itself."""
    if op.axes:
        axes = to.axes(op.axes, to.input_type(0).rank)
        return to.emit(op.onnx or "", x, **given, axes=axes)
    if isinstance(op, Reduction):
        return to.emit("Identity", x)
    raise to.refuse("an empty list of axes means all of them before opset 18")


@onnx_export("group_norm")
def group_norm(to: NodeWriter, op: GroupNorm, *inputs: str) -> str:
    """Before opset 21 there was one scale for each group."""
    if to.opset < 21:
        text = f"a scale for each channel needs opset 21, got opset {to.opset}"
        raise to.refuse(text, "before, GroupNormalization had one for each group")
    return to.emit("GroupNormalization", *inputs, **to.attributes("GroupNormalization"))


@onnx_export("mean_variance_normalization")
def mean_variance(to: NodeWriter, op: MeanVarianceNormalization, x: str) -> str:
    """The default axes are written too: onnx's shape inference fails without them."""
    if to.type.dtype != f32:
        text = f"ONNX defines it with float32 constants, which do not fit {to.type}"
        raise to.refuse(text, "use cast")
    axes = to.axes(op.axes, to.type.rank)
    return to.emit("MeanVarianceNormalization", x, axes=axes)
