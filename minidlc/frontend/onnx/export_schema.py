"""What an opset says of an op: attributes, their defaults, element types. Refusals with a reason.

    found = schema("Gelu", 19, node)                # OnnxExportError: opset 20 brought it
    fitting(found, {"approximate": "tanh"}, 20, node)

Reads the schemas that the onnx package holds. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import onnx
from onnx import defs

from minidlc.expr.types import TensorType
from minidlc.frontend.onnx.tensors import ONNX_TYPES
from minidlc.graph.graph import Node
from minidlc.support.errors import OnnxExportError

_TENSOR = {
    name: f"tensor({onnx.TensorProto.DataType.Name(number).lower()})"
    for name, number in ONNX_TYPES.items()
}
_VARIADIC = defs.OpSchema.FormalParameterOption.Variadic
_SINGLE = defs.OpSchema.FormalParameterOption.Single


@cache
def _versions() -> dict[str, list[int]]:
    """Op_type → the opsets that defined it or changed it, oldest first."""
    found: dict[str, list[int]] = {}
    for one in defs.get_all_schemas_with_history():
        if not one.domain:
            found.setdefault(one.name, []).append(one.since_version)
    return {name: sorted(versions) for name, versions in found.items()}


def _refusal(text: str, node: Node, hint: str | None = None) -> OnnxExportError:
    return OnnxExportError(f"{node.op.name}: {text}", loc=node.loc, hint=hint, code="MDLC0131")


def schema(op_type: str, opset: int, node: Node) -> defs.OpSchema:
    """The op as it stands in this opset; OnnxExportError (MDLC0131) if it was not there yet."""
    try:
        return defs.get_schema(op_type, opset)
    except defs.SchemaError:
        newer = _versions().get(op_type, [])
        hint = f"opset {newer[0]} brought it" if newer else "no opset has it"
        raise _refusal(f"ONNX has no {op_type} at opset {opset}", node, hint) from None


def is_default(found: defs.OpSchema, name: str, value: Any, default: Any) -> bool:
    """True if an attribute may be left out: the opset takes this value for granted.

    `default` is that of the op's field. Where the schema states none, or has no such attribute yet,
    leaving it out means that too.
    """
    if name in found.attributes:
        stated = found.attributes[name].default_value
        if stated.name:
            plain: Any = onnx.helper.get_attribute_value(stated)
            plain = plain.decode() if isinstance(plain, bytes) else plain
            return plain == (list(value) if isinstance(value, tuple) else value)  # pyright: ignore
    return value == default


def fitting(
    found: defs.OpSchema, attributes: Mapping[str, Any], opset: int, node: Node
) -> dict[str, Any]:
    """Attributes in the kinds that the schema wants; refused if it has none of that name."""
    given: dict[str, Any] = {}
    for name, value in attributes.items():
        if name not in found.attributes:
            text = f"{found.name} has no {name} at opset {opset}"
            raise _refusal(text, node, _attribute_hint(found.name, name))
        is_float = found.attributes[name].type == defs.OpSchema.AttrType.FLOAT
        given[name] = float(value) if is_float else int(value) if isinstance(value, bool) else value
    return given


def _attribute_hint(op_type: str, name: str) -> str:
    since = [
        version
        for version in _versions()[op_type]
        if name in defs.get_schema(op_type, version).attributes
    ]
    return f"opset {since[0]} brought it" if since else "no opset has it"


def check_types(
    proto: onnx.NodeProto, types: Mapping[str, TensorType], opset: int, node: Node
) -> None:
    """The schema takes these element types, and one type variable stands for one type."""
    found = schema(proto.op_type, opset, node)
    bound: dict[str, str] = {}
    for names, formals, verb in (
        (proto.input, found.inputs, "takes no {} as input"),
        (proto.output, found.outputs, "gives no {} as output"),
    ):
        for place, name in enumerate(names):
            if not formals:
                continue
            formal = formals[min(place, len(formals) - 1)]
            what = f"{found.name} at opset {opset}"
            if not name and formal.option == _SINGLE:
                raise _refusal(f"{what} needs its input {formal.name!r}", node)
            if name not in types:
                continue
            kind = types[name].dtype
            same = formal.is_homogeneous or formal.option != _VARIADIC
            fits = _TENSOR[kind.name] in formal.types
            if not fits or (same and bound.setdefault(formal.type_str, kind.name) != kind.name):
                text = f"{what} {verb.format(kind)} {place}"
                raise _refusal(text, node, _type_hint(proto.op_type, opset, verb, place, kind.name))


def _type_hint(op_type: str, opset: int, verb: str, place: int, kind: str) -> str:
    for version in _versions()[op_type]:
        newer = defs.get_schema(op_type, version)
        formals = newer.inputs if "input" in verb else newer.outputs
        formal = formals[min(place, len(formals) - 1)]
        if version > opset and _TENSOR[kind] in formal.types:
            return f"opset {version} does"
    return "use cast"
