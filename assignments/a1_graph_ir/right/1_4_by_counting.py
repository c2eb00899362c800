"""Another build: counts the readers that are left of each value."""

from minidlc.expr.types import dtype
from minidlc.graph import Constant, evaluate, result_types
from minidlc.support.errors import CallError, VerifyError


def check_inputs(graph, inputs):
    """Name -> array, after all checks."""
    wanted = {i.name: i.type for i in graph.inputs}
    if not isinstance(inputs, dict):
        if len(inputs) != len(wanted):
            raise CallError("another number of inputs", code="MDLC0911")
        inputs = dict(zip(wanted, inputs, strict=True))
    for name in [*wanted, *inputs]:
        if (name in wanted) != (name in inputs):
            raise CallError(f"{name} is not in both", code="MDLC0911")
    for name, type in wanted.items():
        if dtype(inputs[name].dtype) != type.dtype:
            raise CallError(f"elements of {name}", code="MDLC0912")
        if tuple(inputs[name].shape) != tuple(type.shape):
            raise CallError(f"shape of {name}", code="MDLC0913")
    return inputs


def run_lean(graph, inputs, observe=None):
    """Readers are counted over the needed nodes; an output has one reader more."""
    given = check_inputs(graph, inputs)
    needed, waiting = [], {id(o): o for o in graph.outputs}
    for node in reversed(graph.nodes):
        if id(node) in waiting:
            needed.insert(0, node)
            waiting |= {id(v): v for v in node.inputs}
    readers = {}
    for group in [*(set(node.inputs) for node in needed), set(graph.outputs)]:
        for value in group:
            readers[value] = readers.get(value, 0) + 1
    arrays = {i: given[i.name] for i in graph.inputs}
    sizes = {}
    for node in needed:
        for value in node.inputs:
            if isinstance(value, Constant):
                arrays[value] = value.array
        result = evaluate(node.op, [arrays.get(value) for value in node.inputs])
        types = result_types(node.type)
        parts = list(result) if isinstance(result, tuple) else [result]
        if len(parts) != len(types) or any(map(differs, parts, types)):
            raise VerifyError(f"wrong result of '{node.name}'", code="MDLC0415")
        arrays[node] = result
        sizes[node] = sum(part.nbytes for part in parts)
        for value in set(node.inputs):
            readers[value] -= 1
            if not readers[value]:
                arrays.pop(value, None)
                sizes.pop(value, None)
        if observe is not None:
            observe(node.name, sum(sizes.values()))
    own = [v.array if isinstance(v, Constant) else arrays[v] for v in graph.outputs]
    return [array.copy() for array in own]


def differs(part, type):
    """True if the array is not of this type."""
    return part.shape != type.shape or part.dtype != type.dtype.numpy
