"""Converter of Scan: opset 9 and newer, and 8, which has a batch axis.

    Scan (9)   scan(s…, x…, captures…, body=…)
    Scan (8)   a loop over the batch whose body scans: every state and sequence has a batch axis

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minidlc.expr.types import TensorType, bool_, i64
from minidlc.frontend.onnx.operators_control_flow import captures_of
from minidlc.frontend.onnx.registry import OnnxNode, constant_value, onnx_op
from minidlc.frontend.onnx.subgraphs import Subgraph, values_of
from minidlc.graph.graph import Graph, Input, Node, Value, apply, results_of
from minidlc.support.errors import OnnxImportError


@onnx_op("Scan")
def scan(node: OnnxNode, *inputs: Value | None) -> Sequence[Value]:
    """A `scan`, or one for each element of the batch."""
    scanned = node.attr_int("num_scan_inputs")
    lengths, given = (None, inputs) if node.opset >= 9 else (inputs[0], inputs[1:])
    values = values_of(node, given)
    if not 1 <= scanned <= len(values):
        text = f"num_scan_inputs is {scanned}, the node has {len(values)} inputs"
        raise OnnxImportError(text, loc=node.loc, code="MDLC0118")
    body = Subgraph(node, node.attr_graph("body"))
    body.needs_results(len(values) - scanned)
    if node.opset < 9:
        return _batched(node, body, lengths, values, scanned)
    attributes = {
        "input_axes": node.attr_ints("scan_input_axes"),
        "output_axes": node.attr_ints("scan_output_axes"),
        "input_directions": node.attr_ints("scan_input_directions"),
        "output_directions": node.attr_ints("scan_output_directions"),
    }
    captures = captures_of(body)
    return results_of(_scanned(body, values, scanned, list(captures), captures, attributes))


def _scanned(
    body: Subgraph,
    values: Sequence[Value],
    scanned: int,
    captured: Sequence[Value],
    captures: Mapping[Value, Input],
    attributes: dict[str, Any],
) -> Node:
    """The `scan` node on states, sequences and `captured` values, one for each of `captures`."""
    states = len(values) - scanned
    types = [v.type for v in values if isinstance(v.type, TensorType)]
    axes = attributes.get("input_axes") or (0,) * scanned
    for n, axis in enumerate(axes[:scanned], states):
        shape = list(types[n].shape)
        if not -len(shape) <= axis < len(shape):
            text = f"input {n} has no axis {axis} to go along, it is {types[n]}"
            raise OnnxImportError(text, loc=body.node.loc, code="MDLC0118")
        del shape[axis]
        types[n] = types[n].with_shape(tuple(shape))
    inputs = body.inputs(types)
    graph = body.closed(inputs, inputs, captures)
    pairs = zip(types[:states], graph.output_types(), strict=False)
    changes = [f"{a} to {b}" for a, b in pairs if a != b]
    if changes:
        text = f"a step changes the state from {', '.join(changes)}: not supported"
        raise body.node.unsupported(text)
    made = {"body": graph, "states": states, "scanned": scanned, **attributes}
    return apply("scan", *values, *captured, **made)


def _batched(
    node: OnnxNode, body: Subgraph, lengths: Value | None, values: Sequence[Value], scanned: int
) -> Sequence[Value]:
    """A loop over the first axis of all inputs; its results are stacked along that axis."""
    types = [v.type for v in values if isinstance(v.type, TensorType)]
    batch, steps = types[-1].shape[:2] if types[-1].rank > 1 else (None, None)
    if any(t.rank < 1 or t.shape[0] != batch for t in types) or not isinstance(batch, int):
        text = f"inputs need one batch axis of a known size, got {', '.join(map(str, types))}"
        raise node.unsupported(f"{text}: not supported")
    _check_lengths(node, lengths, steps)
    directions = {"input_directions": node.attr_ints("directions")}
    captures = captures_of(body)
    i, c = body.fresh("i", i64[()]), body.fresh("c", bool_[()])
    rows = [body.fresh("row", t.with_shape(t.shape[1:])) for t in types]
    outside = [body.fresh(x.name, x.type) for x in captures.values()]
    inner = _scanned(body, rows, scanned, outside, captures, directions)
    graph = Graph.of("batch", [i, c, *rows, *outside], [c, *results_of(inner)])
    made = {"body": graph, "scanned": len(rows), "trips": batch}
    return results_of(apply("loop", None, None, *values, *captures, **made))


def _check_lengths(node: OnnxNode, lengths: Value | None, steps: object) -> None:
    """All sequences go to the end: shorter ones would be padded."""
    if lengths is None:
        return
    found = constant_value(lengths)
    if found is None or any(n != steps for n in found.reshape(-1).tolist()):
        text = f"sequence_lens other than {steps} for all: not supported"
        raise node.unsupported(text, "leave it out, and pad the sequences")
