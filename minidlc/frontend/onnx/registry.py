"""Converters from ONNX nodes to graph values: a table by op_type, and what a converter sees.

    @onnx_op("LeakyRelu")
    def leaky_relu(node: OnnxNode, x: Value) -> Value:
        return apply("leaky_relu", x, alpha=node.attr_float("alpha", 0.01))

Ops whose class names its ONNX twin (`onnx = "Relu"`) need no converter: attributes of equal names
become fields. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto

from minidlc.expr.types import Array, TensorType
from minidlc.graph.graph import Constant, Input, Node, Value, apply
from minidlc.graph.op import Op, evaluate, registered_ops
from minidlc.support import extension
from minidlc.support.errors import CompileError, OnnxImportError
from minidlc.support.locations import OnnxLoc
from minidlc.support.options import convert, hints

Converter: TypeAlias = Callable[..., "Value | Sequence[Value]"]
F = TypeVar("F", bound=Converter)

UNSUPPORTED = "MDLC0116"
_LARGEST = 1 << 16  # elements of a value that is evaluated on import
_converters: dict[str, Converter] = {}
_FIELDS = {
    AttributeProto.INT: "i",
    AttributeProto.FLOAT: "f",
    AttributeProto.STRING: "s",
    AttributeProto.TENSOR: "t",
    AttributeProto.INTS: "ints",
    AttributeProto.FLOATS: "floats",
    AttributeProto.STRINGS: "strings",
}


def onnx_op(*op_types: str) -> Callable[[F], F]:
    """Register a converter `(node, *inputs) -> value or values` for these op_types."""

    def register(converter: F) -> F:
        for op_type in op_types:
            _converters[op_type] = converter
        return converter

    return register


def known_op_types() -> list[str]:
    """Every op_type that can be imported now."""
    return sorted({*_converters, *_regular()})


_VALUE = (Input, Constant, Node)
extension.declare(
    "onnx.OP",
    "(node, *values) -> value or values",
    "import of one ONNX op",
    known_op_types,
    returns=lambda result: isinstance(result, _VALUE) or extension.items(*_VALUE)(result),
)


def _regular() -> dict[str, type[Op]]:
    return {cls.onnx: cls for cls in registered_ops().values() if cls.onnx}


def converter(op_type: str) -> Converter | None:
    """The function that imports an op_type (extension point `onnx.OP`), or None."""
    found = _converters.get(op_type)
    cls = _regular().get(op_type) if found is None else None
    if cls is not None:

        def regular(node: OnnxNode, *inputs: Value | None) -> Value:
            return apply(cls.name, *inputs, **node.attributes_of(cls))

        found = regular
    return None if found is None else extension.dispatch(f"onnx.{op_type}", found)


class OnnxNode:
    """An ONNX node as converters see it: attributes by type, and constants among its inputs.

    Every attribute has to be asked for: one that no converter looks at is reported, not ignored.
    """

    def __init__(self, proto: NodeProto, opset: int, loc: OnnxLoc) -> None:
        self.op_type: str = proto.op_type
        self.opset = opset
        self.loc = loc
        self.outputs: tuple[str, ...] = tuple(proto.output)
        self._attributes: dict[str, AttributeProto] = {a.name: a for a in proto.attribute}
        self._seen: set[str] = set()

    def unsupported(self, what: str, hint: str | None = None) -> OnnxImportError:
        """The error to raise for what the kit cannot take: `raise node.unsupported("…")`."""
        return OnnxImportError(what, loc=self.loc, hint=hint, code=UNSUPPORTED)

    def unread(self) -> list[str]:
        """Attributes that no converter asked for."""
        return [name for name in self._attributes if name not in self._seen]

    def has(self, name: str) -> bool:
        """True if the attribute is given."""
        return name in self._attributes

    def _get(self, name: str, default: Any, *kinds: int) -> Any:
        self._seen.add(name)
        if name not in self._attributes:
            return default
        attribute = self._attributes[name]
        if attribute.type not in kinds:
            got = AttributeProto.AttributeType.Name(attribute.type)
            wanted = " or ".join(AttributeProto.AttributeType.Name(k) for k in kinds)
            text = f"attribute {name!r} must be {wanted}, got {got}"
            raise OnnxImportError(text, loc=self.loc, code="MDLC0118")
        return _read(attribute)

    def attr_int(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        return self._get(name, default, AttributeProto.INT)

    def attr_ints(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """A list of integers."""
        return self._get(name, default, AttributeProto.INTS)

    def attr_float(self, name: str, default: float) -> float:
        """A float attribute: the shortest decimal of its 32 bits, 0.1 and not 0.10000000149."""
        return self._get(name, default, AttributeProto.FLOAT)

    def attr_floats(self, name: str) -> tuple[float, ...]:
        """A list of floats."""
        return self._get(name, (), AttributeProto.FLOATS)

    def attr_str(self, name: str, default: str) -> str:
        """A text attribute."""
        return self._get(name, default, AttributeProto.STRING)

    def attr_tensor(self, name: str) -> TensorProto | None:
        """A tensor attribute, or None."""
        return self._get(name, None, AttributeProto.TENSOR)

    def ignore(self, *names: str) -> None:
        """Attributes that do not change what is computed."""
        self._seen.update(names)

    def attributes_of(self, cls: type[Op]) -> dict[str, Any]:
        """The attributes of equal name as fields of an op class."""
        values: dict[str, Any] = {}
        for name, hint in hints(cls).items():
            if name not in self._attributes:
                continue
            value = self._get(name, None, *_FIELDS)
            try:
                values[name] = (
                    bool(value) if hint is bool and value in (0, 1) else convert(value, hint)
                )
            except ValueError as e:
                text = f"attribute {name!r}: {e}"
                raise OnnxImportError(text, loc=self.loc, code="MDLC0118") from None
        return values

    def constant(self, value: Value, what: str) -> Array:
        """The array of an input that has to be known now, such as a shape or axes."""
        found = constant_value(value)
        if found is None:
            hint = f"{what} must be an initializer, or computed from initializers and shapes"
            raise self.unsupported(f"input {what!r} is computed at run time", hint)
        return found

    def constant_ints(self, value: Value, what: str) -> tuple[int, ...]:
        """A constant list of integers, such as a shape or axes."""
        found = self.constant(value, what)
        if found.dtype.kind not in "iu" or found.ndim > 1:
            text = (
                f"input {what!r} must be a list of integers, got {found.dtype}{list(found.shape)}"
            )
            raise OnnxImportError(text, loc=self.loc, code="MDLC0118")
        return tuple(int(v) for v in np.atleast_1d(found).tolist())

    def check_inputs(self, converter: Converter, inputs: Sequence[Value | None]) -> None:
        """Refuse a number of inputs that the converter does not take, or an omitted one (0119)."""
        signature = inspect.signature(converter)
        names = list(signature.parameters)[1:]
        try:
            bound = signature.bind(self, *inputs)
        except TypeError:
            text = f"{self.op_type} takes the inputs ({', '.join(names)}), got {len(inputs)}"
            raise OnnxImportError(text, loc=self.loc, code="MDLC0119") from None
        for name, value in bound.arguments.items():
            if value is None and signature.parameters[name].default is inspect.Parameter.empty:
                text = f"{self.op_type} needs its input {name!r}, which is left out"
                raise OnnxImportError(text, loc=self.loc, code="MDLC0119")


def _read(attribute: AttributeProto) -> Any:
    value: Any = getattr(attribute, _FIELDS[attribute.type])
    match attribute.type:
        case AttributeProto.FLOAT:
            return float(str(np.float32(value)))
        case AttributeProto.FLOATS:
            return tuple(float(str(np.float32(v))) for v in value)
        case AttributeProto.INTS:
            return tuple(value)
        case AttributeProto.STRING:
            return value.decode("utf-8", "replace")
        case AttributeProto.STRINGS:
            return tuple(v.decode("utf-8", "replace") for v in value)
        case _:
            return value


def constant_value(value: Value) -> Array | None:
    """The array of a value that depends on constants alone, or None (also for large ones)."""
    known: dict[int, Array | None] = {}
    stack: list[Value] = [value]
    while stack:
        v = stack[-1]
        if id(v) in known:
            stack.pop()
        elif isinstance(v, Constant):
            known[id(v)] = v.array
        elif not isinstance(v, Node) or None in v.inputs or not _small(v):
            known[id(v)] = None
        else:
            pending = [i for i in v.inputs if i is not None and id(i) not in known]
            stack += pending
            if not pending:
                known[id(v)] = _evaluate(v, [known[id(i)] for i in v.inputs if i is not None])
    return known[id(value)]


def _small(node: Node) -> bool:
    """True for what may be a shape: evaluating more would be the work of fold_constants."""
    return isinstance(node.type, TensorType) and node.type.is_static and node.type.size <= _LARGEST


def _evaluate(node: Node, arrays: list[Array | None]) -> Array | None:
    if any(a is None for a in arrays):
        return None
    try:
        result = evaluate(node.op, arrays)
    except CompileError:
        return None
    return None if isinstance(result, tuple) else result
