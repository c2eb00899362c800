"""Compares element types by their size only: i32 passes for f32."""

import math

import numpy as np

from minidlc.graph import Constant, Node, evaluate, result_types
from minidlc.support.errors import CallError, VerifyError


def bytes_of(value):
    """Bytes of a value's elements; a symbol counts as a size of 1."""
    total = 0
    for t in result_types(value.type):
        total += t.dtype.itemsize * math.prod(d for d in t.shape if isinstance(d, int))
    return total


def run_lean(graph, inputs, observe=None):
    """The arrays of `graph.outputs`; `observe(name, held_bytes)` is called after each node."""
    names = [i.name for i in graph.inputs]
    if isinstance(inputs, dict):
        for name in {*names} ^ {*inputs}:
            raise CallError(f"input {name!r} is missing or unknown", code="MDLC0911")
        inputs = [inputs[name] for name in names]
    if len(inputs) != len(names):
        raise CallError(f"takes {len(names)} inputs, got {len(inputs)}", code="MDLC0911")
    held = dict(zip(graph.inputs, inputs, strict=True))
    for i, array in held.items():
        if array.dtype != i.type.dtype.numpy:
            raise CallError(f"input {i.name!r} has elements {array.dtype}", code="MDLC0912")
        if array.shape != i.type.shape:
            raise CallError(f"input {i.name!r} has shape {array.shape}", code="MDLC0913")

    last = dict.fromkeys(graph.outputs, "end")  # value -> the node that reads it last
    for node in reversed(graph.nodes):
        for value in node.inputs if node in last else ():
            last.setdefault(value, node)

    def array_of(value):
        return value.array if isinstance(value, Constant) else held.get(value)

    total = 0
    for node in graph.nodes:
        if node not in last:
            continue
        result = evaluate(node.op, [array_of(v) for v in node.inputs])
        parts = result if isinstance(result, tuple) else (result,)
        wanted = [(t.dtype.itemsize, t.shape) for t in result_types(node.type)]
        if [(part.itemsize, part.shape) for part in parts] != wanted:
            raise VerifyError(f"the result of {node.name!r} is not {node.type}", code="MDLC0415")
        held[node], total = result, total + bytes_of(node)
        for value in {v for v in node.inputs if isinstance(v, Node) and last[v] is node}:
            del held[value]
            total -= bytes_of(value)
        if observe:
            observe(node.name, total)
    return [np.array(array_of(v)) for v in graph.outputs]
