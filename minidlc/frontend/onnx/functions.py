"""The nodes that a call of a function stands for: the model's own, or an op that ONNX defines so.

    body = expansion(node, {"": 20}, types, {})     # AffineGrid: 63 nodes; None: no function
    body.graph, body.inputs                         # its nodes, the names that stand for the node's

An op without a converter is computed as what it is made of. Onnx's own inliner does the work, for
the element types and shapes at hand. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import onnx
import onnx.inliner
from onnx import defs, helper

from minidlc.expr.types import TensorType
from minidlc.frontend.onnx.tensors import value_info
from minidlc.graph.types import TupleType, Type

_OWN_DOMAIN = "minidlc.expanded"

Functions: TypeAlias = Mapping[tuple[str, str], onnx.FunctionProto]
"""By domain and name."""


@dataclass(frozen=True)
class Expansion:
    """A graph in place of a node: `inputs` are its names for the node's; outputs keep theirs."""

    graph: onnx.GraphProto
    opsets: Mapping[str, int]
    inputs: tuple[str, ...]


def expansion(
    node: onnx.NodeProto,
    opsets: Mapping[str, int],
    types: Sequence[Type | None],
    own: Functions,
) -> Expansion | None:
    """The function body of a node with inputs of these types; None if its op has none.

    `own` are the functions of the model, which come before those of ONNX.
    """
    if any(isinstance(t, TupleType) for t in types):
        return None
    inputs = tuple(f"_given_{n}" for n in range(len(types)))
    infos = [_info(n, t) for n, t in zip(inputs, types, strict=True)]
    call = onnx.NodeProto()
    call.CopyFrom(node)
    call.domain = "" if call.domain == "ai.onnx" else call.domain
    del call.input[:]
    call.input.extend(info.name for info in infos)
    try:
        function = own.get((node.domain, node.op_type)) or _function(call, opsets, infos)
        if function is None or any(_same_op(n, node) for n in function.node):
            return None
        inlined = onnx.inliner.inline_local_functions(_model_of(call, function, infos))
    except Exception:  # RuntimeError and onnx's own: a node that does not fit its op
        return None
    versions = {**opsets, **{o.domain: o.version for o in inlined.opset_import}}
    return Expansion(inlined.graph, versions, inputs)


def _same_op(a: onnx.NodeProto, b: onnx.NodeProto) -> bool:
    return (a.op_type, a.domain) == (b.op_type, b.domain)


def _function(
    call: onnx.NodeProto, opsets: Mapping[str, int], infos: Sequence[onnx.ValueInfoProto]
) -> onnx.FunctionProto | None:
    """The function of ONNX's schema, made for these types if it depends on them.

    Attributes that `call` leaves out get their defaults, so that the body finds them.
    """
    opset = opsets.get(call.domain, 1)
    try:
        schema: Any = defs.get_schema(call.op_type, opset, call.domain)  # its stubs are incomplete
    except defs.SchemaError:
        return None
    fixed, made = schema.function_opset_versions, schema.context_dependent_function_opset_versions
    if fixed:
        found = schema.get_function_with_opset_version(_best(fixed, opset))
    elif made:
        types = [info.type.SerializeToString() for info in infos]
        found = schema.get_context_dependent_function_with_opset_version(
            _best(made, opset), call.SerializeToString(), types
        )
    else:
        return None
    given = {a.name for a in call.attribute}
    for name, attribute in schema.attributes.items():
        if name not in given and attribute.default_value.name:
            call.attribute.append(attribute.default_value)
    return onnx.FunctionProto.FromString(found)


def _best(versions: Sequence[int], opset: int) -> int:
    """The opset a body is written for: all mean the same, the nearest one is not the youngest."""
    return max((v for v in versions if v <= opset), default=min(versions))


def _model_of(
    call: onnx.NodeProto, function: onnx.FunctionProto, infos: Sequence[onnx.ValueInfoProto]
) -> onnx.ModelProto:
    """A model of this one node, which calls the function as one of the model's own."""
    function = onnx.FunctionProto.FromString(function.SerializeToString())
    call.domain = function.domain = _OWN_DOMAIN
    call.op_type = function.name
    results = [onnx.ValueInfoProto(name=n) for n in call.output if n]
    graph = helper.make_graph([call], function.name, [i for i in infos if i.name], results)
    opsets = [*function.opset_import, helper.make_opsetid(_OWN_DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=[function])


def _info(name: str, type: Type | None) -> onnx.ValueInfoProto:
    """Name, element type and shape; nothing for an input that is left out."""
    if not isinstance(type, TensorType):
        return onnx.ValueInfoProto()
    return value_info(name, type)
