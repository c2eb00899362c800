"""Another build: lists, made before the run, of what each node lets go; arrays by number."""

import numpy as np

from minidlc.expr.types import TensorType, dtype
from minidlc.graph import Constant, Node, evaluate, result_types
from minidlc.support.errors import CallError, VerifyError


def plan(graph):
    """The needed nodes, and for each the nodes that nobody reads after it."""
    needed, stack = set(), [*graph.outputs]
    while stack:
        value = stack.pop()
        if isinstance(value, Node) and value not in needed:
            needed.add(value)
            stack.extend(value.inputs)
    steps = [node for node in graph.nodes if node in needed]
    seen, let_go = set(graph.outputs), []
    for node in reversed(steps):
        reads = {v for v in node.inputs if isinstance(v, Node)}
        let_go.append(reads - seen)
        seen |= reads
    return list(zip(steps, reversed(let_go), strict=True))


def run_lean(graph, inputs, observe=None):
    """Runs the plan."""
    if isinstance(inputs, dict):
        names = [i.name for i in graph.inputs]
        odd = [n for n in names if n not in inputs] + [n for n in inputs if n not in names]
        if odd:
            raise CallError("missing or unknown: " + ", ".join(odd), code="MDLC0911")
        inputs = [inputs[n] for n in names]
    elif len(inputs) != len(graph.inputs):
        raise CallError(f"got {len(inputs)} arrays", code="MDLC0911")
    store = {}
    for i, array in zip(graph.inputs, inputs, strict=True):
        if i.type.dtype.numpy != array.dtype:
            raise CallError(f"{i.name}: {array.dtype}", code="MDLC0912")
        if i.type.dims != array.shape:
            raise CallError(f"{i.name}: {array.shape}", code="MDLC0913")
        store[i] = array
    held = 0

    def fetch(value):
        if value is None:
            return None
        return value.array if isinstance(value, Constant) else store[value]

    for node, gone in plan(graph):
        store[node] = evaluate(node.op, list(map(fetch, node.inputs)))
        several = isinstance(store[node], tuple)
        found = [
            TensorType(dtype(a.dtype), a.shape) for a in (store[node] if several else [store[node]])
        ]
        if found != list(result_types(node.type)):
            raise VerifyError(f"{node.op.name} {node.name!r}: {found}", code="MDLC0415")
        held += sum(t.nbytes for t in found)
        for value in gone:
            held -= sum(t.nbytes for t in result_types(value.type))
            del store[value]
        if observe:
            observe(node.name, held)
    results = []
    for value in graph.outputs:
        array = fetch(value)
        results.append(np.empty_like(array))
        results[-1][...] = array
    return results
