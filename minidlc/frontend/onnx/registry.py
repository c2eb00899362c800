"""Converters from ONNX nodes to graph values: a table by op_type, and what a converter sees.

    @onnx_op("LeakyRelu")
    def leaky_relu(node: OnnxNode, x: Value) -> Value:
        return apply("leaky_relu", x, alpha=node.attr_float("alpha", 0.01))

Ops whose class names its ONNX twin (`onnx = "Relu"`) need no converter: attributes of equal names
become fields. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

from minidlc.expr.types import Array, TensorType
from minidlc.graph.graph import Constant, Input, Node, Value, apply, tensor_type
from minidlc.graph.op import Op, OpKind, evaluate, registered_ops
from minidlc.support import extension
from minidlc.support.errors import CompileError, OnnxImportError
from minidlc.support.locations import OnnxLoc
from minidlc.support.names import Names
from minidlc.support.options import convert, hints

Converter: TypeAlias = Callable[..., "Value | Sequence[Value]"]
F = TypeVar("F", bound=Converter)

UNSUPPORTED = "MDLC0116"
WRONG = "MDLC0115"
_LARGEST = 1 << 16  # elements of a value that is evaluated on import
_MOST_KNOWN = 64  # elements of an input whose value a model may be compiled for
_converters: dict[str, Converter] = {}
_FIELDS = {
    AttributeProto.INT: "i",
    AttributeProto.FLOAT: "f",
    AttributeProto.STRING: "s",
    AttributeProto.TENSOR: "t",
    AttributeProto.INTS: "ints",
    AttributeProto.FLOATS: "floats",
    AttributeProto.STRINGS: "strings",
    AttributeProto.GRAPH: "g",
}


class ValueNeeded(OnnxImportError):
    """What a node computes, its sizes for example, depends on the value of graph inputs."""

    inputs: tuple[Input, ...] = ()


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


def registered_converters() -> dict[str, Converter]:
    """op_type -> the function that imports it, where one was written."""
    return dict(_converters)


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


class Scope(Protocol):
    """The graph that a node stands in, as far as subgraphs need it (scope.py: Importer)."""

    model: str
    opsets: Mapping[str, int]
    names: Names
    values: MutableMapping[str, Value]
    streams: Iterator[int]
    repeats: bool

    def nested(
        self, opsets: Mapping[str, int], values: Mapping[str, Value], closed: bool = False
    ) -> Scope:
        """A scope inside this one, with values of its own; unless `closed` it sees the outer."""
        ...

    def add_all(self, graph: GraphProto) -> None:
        """Import every node that the graph's outputs need."""
        ...


class OnnxNode:
    """An ONNX node as converters see it: attributes by type, and constants among its inputs.

    Every attribute has to be asked for: one that no converter looks at is reported, not ignored.
    """

    def __init__(
        self, proto: NodeProto, opset: int, loc: OnnxLoc, scope: Scope | None = None
    ) -> None:
        self.op_type: str = proto.op_type
        self.opset = opset
        self.loc = loc
        self.scope = scope  # for nodes that hold subgraphs
        self.outputs: tuple[str, ...] = tuple(proto.output)
        self._attributes: dict[str, AttributeProto] = {a.name: a for a in proto.attribute}
        self._seen: set[str] = set()

    def unsupported(self, what: str, hint: str | None = None) -> OnnxImportError:
        """The error to raise for what the kit cannot take: `raise node.unsupported("…")`."""
        return OnnxImportError(what, loc=self.loc, hint=hint, code=UNSUPPORTED)

    def wrong(self, what: str, hint: str | None = None) -> OnnxImportError:
        """The error to raise for what no kit can take: `raise node.wrong("axes are missing")`."""
        return OnnxImportError(what, loc=self.loc, hint=hint, code=WRONG)

    def missing(self, name: str) -> OnnxImportError:
        """The error to raise for an input that must not be left out."""
        text = f"{self.op_type} needs its input {name!r}, which is left out"
        return OnnxImportError(text, loc=self.loc, code="MDLC0119")

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

    def attr_axis(self, rank: int, default: int = 0) -> int:
        """The attribute `axis` of a tensor of this rank, counted from the front (MDLC0115)."""
        axis = self.attr_int("axis", default)
        if not -rank <= axis < rank:
            raise self.wrong(f"axis {axis} is outside [{-rank}, {rank - 1}]")
        return axis % rank

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

    def attr_graph(self, name: str) -> GraphProto:
        """A graph: a branch or the body of a loop; it must be there (MDLC0118)."""
        graph = self._get(name, None, AttributeProto.GRAPH)
        if graph is None:
            raise OnnxImportError(f"needs the graph {name!r}", loc=self.loc, code="MDLC0118")
        return graph

    def ignore(self, *names: str) -> None:
        """Attributes that do not change what is computed."""
        self._seen.update(names)

    def attributes_of(self, cls: type[Op], *without: str) -> dict[str, Any]:
        """The attributes of equal name as fields of an op class, but those named `without`."""
        values: dict[str, Any] = {}
        for name, hint in hints(cls).items():
            if name not in self._attributes or name in without:
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
            raise self._unknown(value, what)
        return found

    def _unknown(self, value: Value, what: str) -> OnnxImportError:
        """The error for a value that is not known yet: do inputs decide it that a call gives?"""
        text = f"input {what!r} is computed at run time"
        inputs = inputs_of(value)
        if not inputs or not all(_may_be_known(i, direct=i is value) for i in inputs):
            hint = f"{what} must be an initializer, or computed from initializers and shapes"
            return self.unsupported(text, hint)
        names = ", ".join(repr(i.name) for i in inputs)
        hint = f"mc.compile(model) compiles for the value of {names} when it is called"
        error = ValueNeeded(text, loc=self.loc, hint=hint, code=UNSUPPORTED)
        error.inputs = inputs
        return error

    def constant_ints(self, value: Value, what: str) -> tuple[int, ...]:
        """A constant list of integers, such as a shape or axes."""
        found = self.constant(value, what)
        if found.dtype.kind not in "iu" or found.ndim > 1:
            text = (
                f"input {what!r} must be a list of integers, got {found.dtype}{list(found.shape)}"
            )
            raise OnnxImportError(text, loc=self.loc, code="MDLC0118")
        return tuple(int(v) for v in np.atleast_1d(found).tolist())

    def constant_int(self, value: Value, what: str) -> int:
        """A constant that is one integer, also in a list."""
        found = self.constant_ints(value, what)
        if len(found) != 1:
            text = f"input {what!r} must be one integer, got {found}"
            raise OnnxImportError(text, loc=self.loc, code="MDLC0118")
        return found[0]

    def dims(self, x: Value, axes: slice = slice(None)) -> tuple[int, ...]:
        """The sizes of an input along these axes, which have to be known now."""
        shape = tensor_type(x).shape[axes]
        known = tuple(d for d in shape if isinstance(d, int))
        if len(known) < len(shape):
            symbols = sorted({str(d) for d in shape if not isinstance(d, int)})
            hint = f"give the sizes: shapes={{{', '.join(f'{s!r}: …' for s in symbols)}}}"
            raise self.unsupported(f"the shape of {x.type} is not known before it runs", hint)
        return known

    def check_rank(self, x: Value, what: str, rank: int) -> None:
        """Refuse an input that has not this many axes (MDLC0115)."""
        if tensor_type(x).rank != rank:
            raise self.wrong(f"input {what!r} must have {rank} axes, got {x.type}")

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
                raise self.missing(name)


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


def inputs_of(value: Value) -> tuple[Input, ...]:
    """The graph inputs that a value depends on."""
    seen: dict[Value, None] = {}
    stack: list[Value | None] = [value]
    while stack:
        v = stack.pop()
        if v is None or v in seen:
            continue
        seen[v] = None
        stack += v.inputs if isinstance(v, Node) else ()
    return tuple(v for v in seen if isinstance(v, Input))


def _may_be_known(input: Input, direct: bool) -> bool:
    """True for what may be a shape, axes, bounds or scales; data is too large, or computed on.

    Floats are scales, read as they are (`direct`), or bounds of a range, one number each.
    """
    type = input.type
    most = 1 if type.dtype.is_float and not direct else _MOST_KNOWN
    return type.rank <= 1 and (not type.is_static or type.size <= most)


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
        elif not isinstance(v, Node) or not _small(v):
            known[id(v)] = None
        else:
            pending = [i for i in v.inputs if i is not None and id(i) not in known]
            stack += pending
            if not pending:
                known[id(v)] = _evaluate(v, known)
    return known[id(value)]


def _small(node: Node) -> bool:
    """True for what may be a shape: evaluating more would be the work of fold_constants."""
    if node.op.kind is OpKind.CONTROL or node.op.drawn:
        return False  # it may run for long, or without end; or it is drawn at run time
    return isinstance(node.type, TensorType) and node.type.is_static and node.type.size <= _LARGEST


def _evaluate(node: Node, known: dict[int, Array | None]) -> Array | None:
    arrays = [None if i is None else known[id(i)] for i in node.inputs]
    if any(a is None and i is not None for a, i in zip(arrays, node.inputs, strict=True)):
        return None
    try:
        result = evaluate(node.op, arrays)
    except CompileError:
        return None
    return None if isinstance(result, tuple) else result
