"""The slow, obvious meaning of a graph: every op's NumPy `reference`, node after node.

    [y] = interpret(g, [x])                         # or {"x": x}
    # np.float32 arrays in, fresh arrays out, in the order of g.outputs

This is the oracle that compiled code is compared with. Reads a graph and arrays; the only check
of an op's reference against its type rule. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from minidlc.expr.index import Index, Var
from minidlc.expr.index import evaluate as evaluate_index
from minidlc.expr.types import Array, TensorType, dtype
from minidlc.graph.graph import Constant, Graph, Input, Node, Value
from minidlc.graph.op import Op, evaluate
from minidlc.graph.types import Type, result_types
from minidlc.support import extension
from minidlc.support.arguments import expect
from minidlc.support.errors import CallError, CompileError, VerifyError, nearest
from minidlc.support.locations import Loc

Inputs: TypeAlias = Sequence[Array] | Mapping[str, Array]
Result: TypeAlias = Array | tuple[Array, ...]

extension.declare(
    "interpret",
    "(graph, inputs) -> list[array]",
    "the meaning of a graph",
    returns=extension.instance(list),
)


def interpret(graph: Graph, inputs: Inputs) -> list[Array]:
    """Run the graph on arrays, given in order or by name (extension point `interpret`).

    Returns fresh arrays in output order. Raises CallError for inputs of another number, name
    (MDLC0911), element type (0912) or shape (0913) and for an op that fails (0914); VerifyError
    (MDLC0415) if a reference returns another type than the type rule says.
    """
    expect("interpret", "graph", graph, Graph)
    expect("interpret", "inputs", inputs, list, tuple, Mapping, hint="[x, y] or {'x': x, 'y': y}")
    if not extension.overridden("interpret"):
        return _interpret(graph, inputs)
    results = extension.dispatch("interpret", _interpret)(graph, inputs)
    fits = len(results) == len(graph.outputs) and all(
        isinstance(t, TensorType) and _fits(t, np.asarray(a), {})
        for t, a in zip(graph.output_types(), results, strict=True)
    )
    if not fits:
        found = ", ".join(_type_text(np.asarray(a)) for a in results)
        wanted = ", ".join(map(str, graph.output_types()))
        text = f"the override of 'interpret' returned ({found}), expected ({wanted})"
        raise VerifyError(text, code="MDLC0415")
    return results


def _interpret(graph: Graph, inputs: Inputs) -> list[Array]:
    sizes: dict[Var, int] = {}
    values: dict[Value, Result] = {}
    for input, array in zip(graph.inputs, _in_order(graph, inputs), strict=True):
        values[input] = _checked_input(input, np.asarray(array), sizes)
    for input in graph.inputs:
        _check_shape(input, np.shape(values[input]), sizes)
    remaining = _reads(graph)
    for node in graph.nodes:
        values[node] = _run(node, values, sizes)
        for value in dict.fromkeys((*node.inputs, node)):
            if value is not None and _is_last_read(value, node, remaining):
                values.pop(value, None)  # nobody reads it again: free the memory early
    return [np.array(_value_of(output, values), order="C") for output in graph.outputs]


def _in_order(graph: Graph, inputs: Inputs) -> Sequence[Array]:
    names = [i.name for i in graph.inputs]
    notes = [f"{i.name}: {i.type}" for i in graph.inputs]
    if not isinstance(inputs, Mapping):
        if len(inputs) != len(names):
            text = f"{graph.name} takes {len(names)} inputs, got {len(inputs)}"
            hint = "one array for each input, in order, or a dict by name"
            raise CallError(text, notes=notes, hint=hint, code="MDLC0911")
        return inputs
    for name in inputs:
        if name not in names:
            text = f"{graph.name} has no input {name!r}"
            raise CallError(text, notes=notes, hint=nearest(name, names), code="MDLC0911")
    for name in names:
        if name not in inputs:
            text = f"input {name!r} is missing"
            raise CallError(text, notes=notes, hint=f"{{{name!r}: …}}", code="MDLC0911")
    return [inputs[name] for name in names]


def _checked_input(input: Input, array: Array, sizes: dict[Var, int]) -> Array:
    """The array, after its element type and rank; plain symbols get their sizes from it."""
    if array.dtype != input.type.dtype.numpy:
        text = f"input {input.name!r} must be {input.type}, got elements of {array.dtype}"
        hint = f"{input.name}.astype({input.type.dtype.numpy.name!r})"
        raise CallError(text, loc=input.loc, hint=hint, code="MDLC0912")
    if array.ndim != input.type.rank:
        raise _wrong_shape(input, array.shape, "")
    for dim, size in zip(input.type.shape, array.shape, strict=True):
        match dim:
            case Index(((Var() as symbol, 1),), 0):
                sizes.setdefault(symbol, size)
            case _:
                pass
    return array


def _check_shape(input: Input, shape: tuple[int, ...], sizes: Mapping[Var, int]) -> None:
    for dim, size in zip(input.type.shape, shape, strict=True):
        if isinstance(dim, Index) and not all(v in sizes for v in dim.vars()):
            continue  # nothing to compare with: no input is of the symbol's own size
        wanted = dim if isinstance(dim, int) else evaluate_index(dim, sizes)
        if wanted != size:
            raise _wrong_shape(input, shape, "" if isinstance(dim, int) else f": {dim} is {wanted}")


def _wrong_shape(input: Input, shape: tuple[int, ...], why: str) -> CallError:
    text = f"input {input.name!r} must be {input.type}, got shape {shape}{why}"
    hint = f"give {input.name} that shape, or load the model with other shapes"
    return CallError(text, loc=input.loc, hint=hint, code="MDLC0913")


def _reads(graph: Graph) -> dict[Value, int]:
    """Value -> how many nodes and outputs read it."""
    reads: dict[Value, int] = {}
    for node in graph.nodes:
        for value in dict.fromkeys(node.inputs):
            if value is not None:
                reads[value] = reads.get(value, 0) + 1
    for output in graph.outputs:
        reads[output] = reads.get(output, 0) + 1
    return reads


def _is_last_read(value: Value, node: Node, remaining: dict[Value, int]) -> bool:
    if value is not node and remaining.get(value, 0) > 0:
        remaining[value] -= 1
    return remaining.get(value, 0) == 0


def _value_of(value: Value, values: Mapping[Value, Result]) -> Result:
    return value.array if isinstance(value, Constant) else values[value]


def _run(node: Node, values: Mapping[Value, Result], sizes: Mapping[Var, int]) -> Result:
    inputs = [None if v is None else _value_of(v, values) for v in node.inputs]
    return run_op(node.op, inputs, node.type, node.loc, node.name, sizes)


def run_op(
    op: Op,
    inputs: Sequence[Result | None],
    type: Type,
    loc: Loc | None,
    name: str = "",
    sizes: Mapping[Var, int] = MappingProxyType({}),
) -> Result:
    """The op's reference on arrays, checked against the type that its rule says.

    Raises CallError (MDLC0914) if the reference fails, VerifyError (MDLC0415) if it returns
    something of another type; `name` is the node's, for the message.
    """
    who = f"{op.name}: the reference of {(name or op.name)!r}"
    try:
        result = evaluate(op, inputs)  # pyright: ignore[reportArgumentType]
    except CompileError as e:
        raise e.at(loc) from None
    except Exception as e:
        raise CallError(f"{who} failed: {e}", loc=loc, code="MDLC0914") from e
    types = result_types(type)
    parts = result if isinstance(result, tuple) else (result,)
    if len(types) != len(parts) or not all(map(lambda t, a: _fits(t, a, sizes), types, parts)):
        got = ", ".join(f"{_type_text(a)}" for a in parts)
        text = f"{who} returned {got}, its type rule says {type}"
        raise VerifyError(text, loc=loc, code="MDLC0415")
    return result


def _type_text(array: Array) -> str:
    try:
        return str(TensorType(dtype(array.dtype), array.shape))
    except CompileError:
        return f"{array.dtype}{list(array.shape)}"


def _fits(type: TensorType, array: Array, sizes: Mapping[Var, int]) -> bool:
    if array.dtype != type.dtype.numpy or array.ndim != type.rank:
        return False
    for dim, size in zip(type.shape, array.shape, strict=True):
        if isinstance(dim, int):
            wanted = dim
        elif all(v in sizes for v in dim.vars()):
            wanted = evaluate_index(dim, sizes)
        else:
            continue
        if wanted != size:
            return False
    return True
