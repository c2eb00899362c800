"""Converters for Slice, Split, Pad, Tile, Trilu and Range: what was an attribute became an input.

    Slice(x, [1], [-1], [0])     slice(x, starts=(1,), ends=(-1,)); attributes before opset 10
    Split(x) -> a, b             two nodes: slice(x, …), slice(x, …)
    Range(0, 10, 3)              a constant: [0, 3, 6, 9]

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from minidlc.expr.types import Array
from minidlc.frontend.onnx.registry import OnnxNode, onnx_op
from minidlc.graph.graph import Constant, Value, apply, tensor_type
from minidlc.support.errors import OnnxImportError

_LONGEST = 1 << 24  # elements of a Range, which becomes a constant


@onnx_op("Slice")
def slice_of(node: OnnxNode, x: Value, *given: Value | None) -> Value:
    """Attributes starts, ends and axes before opset 10; then inputs, and steps."""
    names = ("starts", "ends", "axes", "steps")
    if node.opset < 10:
        if given:
            raise node.unsupported("starts and ends as inputs, at an opset before 10")
        found = {name: node.attr_ints(name) for name in names[:3]}
        return apply("slice", x, **found)
    if not 2 <= len(given) <= 4 or None in given[:2]:
        text = f"Slice takes the inputs (x, {', '.join(names)}), got {len(given) + 1}"
        raise OnnxImportError(text, loc=node.loc, code="MDLC0119")
    pairs = zip(names, given, strict=False)
    found = {n: node.constant_ints(v, n) for n, v in pairs if v is not None}
    if len({len(values) for values in found.values()}) > 1:  # no axes, given, are not all axes
        raise node.wrong(f"{' and '.join(found)} are lists of different lengths: {found}")
    return apply("slice", x, **found)


@onnx_op("Split")
def split(node: OnnxNode, x: Value, sizes: Value | None = None) -> Sequence[Value]:
    """One slice for each output; equal parts if no sizes are given (opset 18: the last smaller)."""
    axis = node.attr_axis(tensor_type(x).rank)
    (dim,) = node.dims(x, slice(axis, axis + 1))
    starts = [0]
    for part in _parts(node, dim, sizes):
        starts.append(starts[-1] + part)
    cuts = pairwise(starts)
    return [apply("slice", x, starts=(a,), ends=(b,), axes=(axis,)) for a, b in cuts]


def _parts(node: OnnxNode, dim: int, sizes: Value | None) -> tuple[int, ...]:
    """How many elements each output gets."""
    count = node.attr_int("num_outputs", len(node.outputs)) if node.opset >= 18 else None
    if sizes is not None and node.opset < 13:
        raise node.unsupported("sizes as an input, at an opset before 13")
    parts = node.attr_ints("split") if node.opset < 13 else ()
    if sizes is not None:
        parts = node.constant_ints(sizes, "split")
    if not parts:
        wanted = len(node.outputs) if count is None else count
        if wanted < 1 or (dim % wanted and (count is None or not node.has("num_outputs"))):
            raise node.wrong(f"{dim} elements do not make {wanted} equal parts", "give the sizes")
        size = -(-dim // wanted)
        parts = tuple(min(size, max(dim - size * n, 0)) for n in range(wanted))
    if len(parts) != len(node.outputs) or min(parts) < 0 or sum(parts) != dim:
        text = f"parts {parts} for {len(node.outputs)} outputs of {dim} elements together"
        raise node.wrong(text)
    return parts


@onnx_op("Pad")
def pad(
    node: OnnxNode,
    x: Value,
    pads: Value | None = None,
    value: Value | None = None,
    axes: Value | None = None,
) -> Value:
    """Pads and value were attributes before opset 11; opset 18 brought axes, 19 the mode wrap."""
    mode = node.attr_str("mode", "constant")
    if node.opset < 11:
        border = node.attr_float("value", 0.0)
        fill = (border,) if border and mode == "constant" else ()
        return apply("pad", x, *fill, pads=node.attr_ints("pads"), mode=mode)
    if pads is None:
        raise node.missing("pads")
    amounts = node.constant_ints(pads, "pads")
    if axes is not None:
        amounts = _spread(node, amounts, node.constant_ints(axes, "axes"), tensor_type(x).rank)
    if value is None or mode != "constant":  # other modes ignore it
        return apply("pad", x, pads=amounts, mode=mode)
    if tensor_type(value).shape == (1,):  # some exporters write one number so
        value = apply("squeeze", value, axes=(0,))
    return apply("pad", x, value, pads=amounts)


def _spread(
    node: OnnxNode, amounts: tuple[int, ...], axes: tuple[int, ...], rank: int
) -> tuple[int, ...]:
    """Pads of some axes as pads of all."""
    places = [a % rank for a in axes if -rank <= a < rank]
    if len(set(places)) != len(axes) or len(amounts) != 2 * len(axes):
        raise node.wrong(f"pads {amounts} of the axes {axes} of a tensor of rank {rank}")
    full = [0] * (2 * rank)
    for n, place in enumerate(places):
        full[place], full[place + rank] = amounts[n], amounts[n + len(axes)]
    return tuple(full)


@onnx_op("Tile")
def tile(node: OnnxNode, x: Value, repeats: Value) -> Value:
    """How often, for every axis."""
    return apply("tile", x, repeats=node.constant_ints(repeats, "repeats"))


@onnx_op("Trilu")
def trilu(node: OnnxNode, x: Value, k: Value | None = None) -> Value:
    """k is an input of one number."""
    diagonal = 0 if k is None else node.constant_int(k, "k")
    return apply("trilu", x, upper=bool(node.attr_int("upper", 1)), k=diagonal)


@onnx_op("Range")
def range_of(node: OnnxNode, start: Value, limit: Value, delta: Value) -> Value:
    """start + i * delta below limit, a constant."""
    given = [
        node.constant(v, n)
        for v, n in ((start, "start"), (limit, "limit"), (delta, "delta"))
    ]  # fmt: skip
    if any(a.size != 1 or a.dtype != given[0].dtype for a in given):
        raise node.wrong("start, limit and delta must be numbers of one element type")
    return Constant("range", _range(node, given), node.loc)


def _range(node: OnnxNode, given: Sequence[Array]) -> Array:
    kind = given[0].dtype
    first, last, step = (a.reshape(-1)[0].item() for a in given)
    if not step or not all(map(math.isfinite, (first, last, step))):
        raise node.wrong(f"a range from {first} to {last} in steps of {step}")
    size: Any = -((first - last) // step) if kind.kind in "iu" else math.ceil((last - first) / step)
    if size > _LONGEST:
        raise node.unsupported(f"a range of {size} elements", f"at most {_LONGEST} become one")
    steps: Array = np.arange(max(size, 0), dtype=np.int64).astype(kind)
    return np.asarray(kind.type(first) + steps * kind.type(step), kind)
