"""Opsets 1 to 6 → nodes as opset 7 writes them, so that no converter has to know the old forms.

    Add(x, b, broadcast=1, axis=1)      Add(x, Unsqueeze(b))    b was aligned at an axis
    Reshape(x, shape=[0, -1])           Reshape(x, shape)       an attribute became an input
    BatchNormalization(…, is_test=0)    refused: it meant training

What had a meaning that cannot be told for certain is refused. Treated in course chapter
01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, helper

from minidlc.expr.types import TensorType
from minidlc.frontend.onnx.registry import OnnxNode
from minidlc.graph.graph import Constant, Value, apply

FIRST_MODERN_OPSET = 7

Inputs: TypeAlias = "tuple[Value | None, ...]"
Translation: TypeAlias = Callable[[OnnxNode, "_Attributes", Inputs], Inputs]

_UNTOLD = "export the model with opset 7 or newer"
_BROADCASTING = ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")
_NUMBER_ATTRIBUTES = {"LpPool": "p", "GlobalLpPool": "p"}  # floats that became integers
_DEFAULTS = {  # of opset 1, where they changed
    "Concat": ("axis", 1),
    "Selu": ("gamma", 1.0507),
}


class _Attributes:
    """The attributes of a node, to be taken out and put in."""

    def __init__(self, proto: NodeProto) -> None:
        self.by_name: dict[str, AttributeProto] = {a.name: a for a in proto.attribute}

    def take(self, name: str, default: object) -> object:
        """The value of an attribute, which is then gone."""
        attribute = self.by_name.pop(name, None)
        return default if attribute is None else helper.get_attribute_value(attribute)

    def rename(self, old: str, new: str) -> None:
        """Give an attribute, if it is there, another name."""
        if old in self.by_name:
            attribute = AttributeProto()
            attribute.CopyFrom(self.by_name.pop(old))
            attribute.name = new
            self.by_name[new] = attribute

    def put(self, name: str, value: object) -> None:
        """Set an attribute."""
        self.by_name[name] = helper.make_attribute(name, value)


def modernise(node: OnnxNode, proto: NodeProto, inputs: Inputs) -> tuple[NodeProto, Inputs]:
    """The node of opset 1 to 6 as opset 7 would write it, and its inputs.

    Raises OnnxImportError (MDLC0116) for an old form whose meaning is not certain.
    """
    attributes = _Attributes(proto)
    attributes.take("consumed_inputs", None)  # a hint about memory
    if node.opset < 6:
        _old_defaults(node, attributes)
    translation = _TRANSLATIONS.get(node.op_type)
    if translation is not None:
        try:
            inputs = translation(node, attributes, inputs)
        except ValueError as e:  # onnx refuses an attribute without a type
            raise node.unsupported(f"a malformed attribute: {e}") from None
    new = onnx.NodeProto()
    new.CopyFrom(proto)
    del new.attribute[:]
    new.attribute.extend(attributes.by_name.values())
    return new, inputs


def _old_defaults(node: OnnxNode, attributes: _Attributes) -> None:
    name, default = _DEFAULTS.get(node.op_type, ("", None))
    if name and name not in attributes.by_name and (node.op_type != "Concat" or node.opset < 4):
        attributes.put(name, default)


def _tensor(value: Value | None) -> TensorType | None:
    return value.type if value is not None and isinstance(value.type, TensorType) else None


def _aligned(node: OnnxNode, attributes: _Attributes, inputs: Inputs) -> Inputs:
    """`broadcast=1`: the second input fits the first from `axis` on, by default at its end."""
    broadcast, axis = attributes.take("broadcast", 0), attributes.take("axis", None)
    types = [_tensor(v) for v in inputs]
    if len(types) != 2 or types[0] is None or types[1] is None:
        return inputs  # the converter says what is wrong
    a, b = types[0], types[1]
    if not broadcast:
        if a.shape != b.shape:
            text = f"inputs of the shapes {a} and {b} without broadcast=1"
            raise node.unsupported(text, "before opset 7 it has to be asked for")
        return inputs
    if axis is None:
        return inputs
    first = axis + a.rank if isinstance(axis, int) and axis < 0 else axis
    if not isinstance(first, int) or not 0 <= first <= a.rank - b.rank:
        raise node.unsupported(f"broadcast of {b} to {a} at axis {axis}")
    behind = a.rank - b.rank - first
    return (inputs[0], _with_ones(inputs[1], behind))


def _with_ones(value: Value | None, count: int) -> Value | None:
    """The value with `count` dims of size 1 at its end."""
    type = _tensor(value)
    if type is None or count <= 0:
        return value
    return apply("unsqueeze", value, axes=tuple(range(type.rank, type.rank + count)))


def _slope(node: OnnxNode, attributes: _Attributes, inputs: Inputs) -> Inputs:
    """PRelu had one slope, or one for each channel (axis 1)."""
    types = [_tensor(v) for v in inputs]
    if len(types) != 2 or types[0] is None or types[1] is None:
        return inputs
    x, slope = types[0], types[1]
    if slope.rank != 1 or slope.shape == (1,) or x.rank < 2:
        return inputs
    return (inputs[0], _with_ones(inputs[1], x.rank - 2))


def _inference_only(node: OnnxNode, attributes: _Attributes, inputs: Inputs) -> Inputs:
    """`is_test=1` is inference; its default, 0, is training."""
    if not attributes.take("is_test", 0):
        raise node.unsupported("is_test=0 (training)", "export the model for inference")
    return inputs


def _shape_attribute(node: OnnxNode, attributes: _Attributes, inputs: Inputs) -> Inputs:
    """Reshape: the shape was an attribute before opset 5."""
    shape = attributes.take("shape", None)
    if node.opset >= 5 or shape is None or len(inputs) != 1:
        return inputs
    return (inputs[0], Constant("shape", np.array(shape, np.int64), node.loc))


def _paddings(node: OnnxNode, attributes: _Attributes, inputs: Inputs) -> Inputs:
    """Pad: `paddings` was the name of `pads` in opset 1."""
    attributes.rename("paddings", "pads")
    return inputs


def _named_type(node: OnnxNode, attributes: _Attributes, inputs: Inputs) -> Inputs:
    """Cast: `to` was a name before opset 6."""
    to = attributes.take("to", None)
    if isinstance(to, bytes):
        name = to.decode("ascii", "replace").upper()
        if name not in onnx.TensorProto.DataType.keys():  # noqa: SIM118 (an enum, no dict)
            raise node.unsupported(f"to={name!r}, which names no element type")
        to = onnx.TensorProto.DataType.Value(name)
    if to is not None:
        attributes.put("to", to)
    return inputs


def _integer(node: OnnxNode, attributes: _Attributes, inputs: Inputs) -> Inputs:
    """A norm's p was a float before opset 2."""
    name = _NUMBER_ATTRIBUTES[node.op_type]
    value = attributes.take(name, None)
    if isinstance(value, float):
        if not value.is_integer():
            raise node.unsupported(f"{name}={value}", _UNTOLD)
        value = int(value)
    if value is not None:
        attributes.put(name, value)
    return inputs


def _scales(node: OnnxNode, attributes: _Attributes, inputs: Inputs) -> Inputs:
    """Upsample: factors of height and width before opset 7."""
    height, width = attributes.take("height_scale", None), attributes.take("width_scale", None)
    if isinstance(height, float) and isinstance(width, float):
        attributes.put("scales", [1.0, 1.0, height, width])
    return inputs


def _tiles(node: OnnxNode, attributes: _Attributes, inputs: Inputs) -> Inputs:
    """Tile: one axis, given as an input, before opset 6."""
    if node.opset < 6:
        raise node.unsupported(f"Tile of opset {node.opset}", _UNTOLD)
    return inputs


def _gemm(node: OnnxNode, attributes: _Attributes, inputs: Inputs) -> Inputs:
    """Gemm: `broadcast=1` lets c fit like a NumPy array, as it always does now."""
    attributes.take("broadcast", 0)
    return inputs


_TRANSLATIONS: dict[str, Translation] = {
    **dict.fromkeys(_BROADCASTING, _aligned),
    **dict.fromkeys(_NUMBER_ATTRIBUTES, _integer),
    "PRelu": _slope,
    "BatchNormalization": _inference_only,
    "Reshape": _shape_attribute,
    "Pad": _paddings,
    "Cast": _named_type,
    "Upsample": _scales,
    "Tile": _tiles,
    "Gemm": _gemm,
}
