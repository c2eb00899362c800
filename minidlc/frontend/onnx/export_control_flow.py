"""Exporters of if_, loop and scan: bodies become subgraphs that read captured values by name.

    if_(c, x, then_branch=f, else_branch=g)  →  If(c) with both graphs; x is an outer name inside
    loop(…, trips=5)                         →  Loop(5, "", …)
    loop(…, scanned=1)                       →  Loop whose body takes row i by Gather

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from minidlc.expr.types import TensorType
from minidlc.frontend.onnx.export_registry import NodeWriter, onnx_export
from minidlc.graph.graph import Graph, Value, apply
from minidlc.graph.types import result_types
from minidlc.ops.control_flow import If, Loop
from minidlc.ops.scan_loop import Scan


def _count(to: NodeWriter) -> int:
    """How many results the node has."""
    return len(result_types(to.node.type))


@onnx_export("if_")
def if_(to: NodeWriter, op: If, condition: str, *captures: str) -> Sequence[str]:
    """Both branches."""
    branches = {
        "then_branch": to.subgraph(op.then_branch, captures),
        "else_branch": to.subgraph(op.else_branch, captures),
    }
    return to.emit_many("If", _count(to), condition, **branches)


@onnx_export("loop")
def loop(to: NodeWriter, op: Loop, n: str, condition: str, *rest: str) -> Sequence[str]:
    """The loop; rows of scanned inputs are read inside, by the number of the run."""
    if op.trips is not None:
        n = to.array("trips", np.array(op.trips, np.int64))
    state, scanned, captures = op.parts(rest)
    if not state and not condition:  # ONNX wants the second input then
        condition = to.array("always", np.array(True))
    if condition and to.node.inputs[1] is not None and to.input_type(1).rank:
        condition = to.emit("Reshape", condition, to.ints("shape", ()))  # bodies take a scalar
    types = [to.input_type(2 + op.carried + k) for k in range(len(scanned))]
    body = to.subgraph(_rows_inside(op, types), (*scanned, *captures))
    return to.emit_many("Loop", _count(to), n, condition, *state, body=body)


def _rows_inside(op: Loop, types: Sequence[TensorType]) -> Graph:
    """The body with whole inputs in place of their rows."""
    if not types:
        return op.body
    number = op.body.inputs[0]
    first = 2 + op.carried
    rows = op.body.inputs[first : first + op.scanned]
    whole = [replace(r, type=t) for r, t in zip(rows, types, strict=True)]
    current: dict[Value, Value] = {
        r: apply("gather", x, number, axis=0) for r, x in zip(rows, whole, strict=True)
    }
    for node in op.body.nodes:
        inputs = tuple(None if v is None else current.get(v, v) for v in node.inputs)
        current[node] = replace(node, inputs=inputs)
    inputs = (*op.body.inputs[:first], *whole, *op.body.inputs[first + op.scanned :])
    return Graph.of(op.body.name, inputs, [current.get(o, o) for o in op.body.outputs])


@onnx_export("scan")
def scan(to: NodeWriter, op: Scan, *inputs: str) -> Sequence[str]:
    """The scan; opset 8 knows another Scan, one for each element of a batch."""
    to.needs(9, "scan")
    own = op.states + op.scanned
    body = to.subgraph(op.body, inputs[own:])
    attributes = {
        "num_scan_inputs": op.scanned,
        "scan_input_axes": op.input_axes or None,
        "scan_output_axes": op.output_axes or None,
        "scan_input_directions": op.input_directions or None,
        "scan_output_directions": op.output_directions or None,
    }
    return to.emit_many("Scan", _count(to), *inputs[:own], body=body, **attributes)
