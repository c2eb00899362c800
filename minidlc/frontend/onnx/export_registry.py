"""Exporters from graph nodes to ONNX: a table by op, and what an exporter sees.

    @onnx_export("slice")
    def slice_of(to: NodeWriter, op: Slice, x: str) -> str:
        return to.emit("Slice", x, to.ints("starts", op.starts), to.ints("ends", op.ends))

Ops whose class names its ONNX twin (`onnx = "Relu"`) need no exporter: fields become attributes of
equal names. An exporter may emit several nodes; what an opset cannot say it refuses. Reads graph
nodes, writes NodeProtos. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import onnx
from onnx import helper

from minidlc.expr.types import Array, TensorType, dtype
from minidlc.frontend.onnx.export_schema import check_types, fitting, is_default, schema
from minidlc.frontend.onnx.tensors import tensor
from minidlc.graph.graph import Graph, Node, tensor_type
from minidlc.graph.op import Op
from minidlc.support.errors import OnnxExportError
from minidlc.support.names import Names, identifier

Exporter: TypeAlias = Callable[..., "str | Sequence[str]"]
F = TypeVar("F", bound=Exporter)

NOT_AT_OPSET = "MDLC0131"
_exporters: dict[str, Exporter] = {}


def onnx_export(*ops: str) -> Callable[[F], F]:
    """Register an exporter `(to, op, *input names) -> output name or names` for these ops.

    An input that is left out has the name "".
    """

    def register(exporter: F) -> F:
        for op in ops:
            _exporters[op] = exporter
        return exporter

    return register


def exporter(op: Op) -> Exporter | None:
    """The function that exports this op, or None."""
    found = _exporters.get(op.name)
    if found is None and op.onnx is not None:
        return _regular
    return found


def _regular(to: NodeWriter, op: Op, *inputs: str) -> str:
    """An op with a twin in ONNX: the same inputs, and fields as attributes."""
    assert op.onnx is not None
    return to.emit(op.onnx, *inputs, **to.attributes(op.onnx))


@dataclass
class ModelWriter:
    """What all graphs of one model share: names, initializers, and types by ONNX name."""

    opset: int
    names: Names
    types: dict[str, TensorType] = field(default_factory=dict[str, TensorType])
    initializers: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])

    def array(self, name: str, array: Array) -> str:
        """Add an initializer; returns its name."""
        name = self.names.fresh(identifier(name, "c"))
        proto = tensor(array, name)
        self.initializers.append(proto)
        self.types[name] = TensorType(dtype(array.dtype), array.shape)
        return name


Subgraph: TypeAlias = Callable[[Graph, Sequence[str]], onnx.GraphProto]


class NodeWriter:
    """What an exporter writes to: ONNX nodes and constants, for one node of the graph."""

    def __init__(self, model: ModelWriter, node: Node, subgraph: Subgraph) -> None:
        self.node = node
        self.opset: int = model.opset
        self.protos: list[onnx.NodeProto] = []
        self._model = model
        self._subgraph = subgraph

    @property
    def type(self) -> TensorType:
        """The type of the node's result, if it has one result."""
        return tensor_type(self.node)

    def input_type(self, place: int) -> TensorType:
        """The type of an input of the node that is given."""
        value = self.node.inputs[place]
        assert value is not None
        return tensor_type(value)

    def emit(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Write an ONNX node with one output; returns the name of that. None: not given."""
        return self.emit_many(op_type, 1, *inputs, **attributes)[0]

    def emit_many(
        self, op_type: str, outputs: int, *inputs: str, **attributes: Any
    ) -> tuple[str, ...]:
        """Write an ONNX node with several outputs; returns their names."""
        found = schema(op_type, self.opset, self.node)
        given = {n: v for n, v in attributes.items() if v is not None}
        given = fitting(found, given, self.opset, self.node)
        kept = list(inputs)
        while kept and not kept[-1]:
            kept.pop()
        wish = identifier(f"{self.node.name}_{op_type.lower()}")
        names = [self._model.names.fresh(wish) for _ in range(outputs)]
        proto = helper.make_node(op_type, kept, names, names[0])
        for name, value in sorted(given.items()):  # an empty list does not tell its type
            kind = cast(Any, found.attributes[name].type).value
            proto.attribute.append(helper.make_attribute(name, value, attr_type=kind))
        self.protos.append(proto)
        return tuple(names)

    def ints(self, name: str, values: Sequence[int]) -> str:
        """A constant list of int64, such as axes: returns its ONNX name."""
        return self._model.array(name, np.array(values, np.int64))

    def array(self, name: str, array: Array) -> str:
        """A constant: returns its ONNX name."""
        return self._model.array(name, np.asarray(array))

    def subgraph(self, graph: Graph, captured: Sequence[str] = ()) -> onnx.GraphProto:
        """A graph as an attribute (a branch, a loop body).

        Its last inputs are the values of these outer names, the others stay inputs.
        """
        return self._subgraph(graph, captured)

    def attributes(self, op_type: str) -> dict[str, Any]:
        """Fields of the op that this opset would not take for granted."""
        found = schema(op_type, self.opset, self.node)
        given: dict[str, Any] = {}
        for f in fields(self.node.op):
            value = getattr(self.node.op, f.name)
            default = None if f.default is MISSING else f.default
            if value is not None and not is_default(found, f.name, value, default):
                given[f.name] = self._counted(f.name, value)
        return given

    def _counted(self, name: str, value: Any) -> Any:
        if name == "axis":
            return self.axes((value,), self.input_type(0).rank)[0]
        return self.axes(value, self.input_type(0).rank) if name == "axes" else value

    def axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Axes as this opset knows them: before opset 11 none were negative."""
        return tuple(a + rank if a < 0 and self.opset < 11 else a for a in axes)

    def refuse(self, text: str, hint: str | None = None) -> OnnxExportError:
        """The error to raise for what the opset cannot say: `raise to.refuse("…")`."""
        text = f"{self.node.op.name}: {text}"
        return OnnxExportError(text, loc=self.node.loc, hint=hint, code=NOT_AT_OPSET)

    def needs(self, opset: int, what: str) -> None:
        """Refuse unless the opset is at least this: `to.needs(19, "the mode wrap")`."""
        if self.opset < opset:
            raise self.refuse(f"{what} needs opset {opset}, got opset {self.opset}")

    def finish(self, results: Sequence[str], types: Sequence[TensorType]) -> list[str]:
        """Give the results the node's name, and check the element types against the schemas."""
        own = {name for proto in self.protos for name in proto.output}
        renamed = {
            name: self._model.names.fresh(identifier(self.node.name))
            for name in dict.fromkeys(results)
            if name in own
        }
        for proto in self.protos:
            _rename(proto, renamed)
        final = [renamed.get(name, name) for name in results]
        self._model.types.update(zip(final, types, strict=True))
        for proto in self.protos:
            check_types(proto, self._model.types, self.opset, self.node)
        return final


def _rename(proto: onnx.NodeProto, renamed: Mapping[str, str]) -> None:
    for names in (proto.input, proto.output):
        names[:] = [renamed.get(name, name) for name in names]
    proto.name = renamed.get(proto.name, proto.name)
