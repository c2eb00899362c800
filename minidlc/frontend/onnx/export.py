"""Graph IR → ONNX, checked: what `load_onnx` reads back is the same graph but for names.

    onnx.save(to_onnx(g), "model.onnx")
    to_onnx(g, opset=17)                            # OnnxExportError if an op is younger

Fused groups are written as the ops they hold. What an older opset says in another way is written
that way (a softmax of an inner axis before 13: between two transposes); what it cannot say is
refused, never written with another meaning. Reads a graph, writes a ModelProto. Treated in course
chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx
from onnx import defs, helper

from minidlc.frontend.onnx import (
    export_attention,
    export_control_flow,
    export_geometry,
    export_indexing,
    export_math,
    export_quantization,
    export_random,
    export_reduction,
    export_shape,
)
from minidlc.frontend.onnx.export_registry import (
    NOT_AT_OPSET,
    ModelWriter,
    NodeWriter,
    exporter,
)
from minidlc.frontend.onnx.tensors import value_info
from minidlc.graph.fused import Fused
from minidlc.graph.graph import Constant, Graph, Node, Value
from minidlc.graph.op import OpKind
from minidlc.graph.region import Region
from minidlc.graph.types import TupleType, result_types
from minidlc.ops.movement import GetItem
from minidlc.support.arguments import expect
from minidlc.support.errors import OnnxExportError, OptionError
from minidlc.support.names import Names, identifier

DEFAULT_OPSET = 20
OLDEST_OPSET = 7
IR_VERSION = 9  # opset 20 came with it; newer readers take older ones
EXPORTERS = (  # importing them fills the registry
    export_attention,
    export_control_flow,
    export_geometry,
    export_indexing,
    export_math,
    export_quantization,
    export_random,
    export_reduction,
    export_shape,
)


def to_onnx(graph: Graph, opset: int | None = None) -> onnx.ModelProto:
    """The graph as a model that passes onnx.checker with full checks.

    It says how to run the graph, not how to differentiate it: ONNX has no `stop_gradient`.
    Without `opset`: 20, or the next newer one that has all the graph needs. Raises OptionError
    (MDLC1017) for an opset outside 7 to the newest, OnnxExportError for an op without ONNX form
    (MDLC0130), an attribute or element type that the opset has not (MDLC0131).
    """
    expect("to_onnx", "graph", graph, Graph)
    newest = defs.onnx_opset_version()
    if opset is None:
        return _newest_needed(graph, newest)
    expect("to_onnx", "opset", opset, int)
    if not OLDEST_OPSET <= opset <= newest:
        text = f"opset {opset} is outside {OLDEST_OPSET} to {newest}"
        raise OptionError(text, hint="None picks one", code="MDLC1017")
    return _export(graph, opset)


def _newest_needed(graph: Graph, newest: int) -> onnx.ModelProto:
    """At the default opset, or at the first newer one that can express the graph."""
    refusal: OnnxExportError | None = None
    for opset in range(DEFAULT_OPSET, newest + 1):
        try:
            return _export(graph, opset)
        except OnnxExportError as e:
            if e.code != NOT_AT_OPSET:
                raise
            refusal = e  # what the newest opset lacks is what no opset has
    assert refusal is not None
    raise refusal


def _export(graph: Graph, opset: int) -> onnx.ModelProto:
    writer = ModelWriter(opset, Names(i.name for i in graph.inputs))
    scope = _Scope(writer)
    for i in graph.inputs:
        scope.names[i] = i.name
        writer.types[i.name] = i.type
    scope.nodes_of(graph)
    outputs = scope.outputs(graph, [])
    proto = helper.make_graph(
        scope.nodes,
        graph.name,
        [value_info(i.name, i.type) for i in graph.inputs],
        outputs,
        writer.initializers,
    )
    ir_version = max(IR_VERSION, helper.find_min_ir_version_for([helper.make_opsetid("", opset)]))
    model = helper.make_model(
        proto,
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=ir_version,
        producer_name="minidlc",
    )
    try:
        onnx.checker.check_model(model, full_check=True)  # pyright: ignore[reportUnknownMemberType]
    except Exception as e:  # onnx raises types of its own
        text = f"onnx.checker refuses the model at opset {opset}: {e}"
        raise OnnxExportError(text, code=NOT_AT_OPSET) from None
    return model


@dataclass
class _Scope:
    """One graph of the model: the main one, a branch or a loop body. Collects its nodes."""

    model: ModelWriter
    names: dict[Value, str] = field(default_factory=dict[Value, str])
    results: dict[Value, Sequence[str]] = field(default_factory=dict[Value, Sequence[str]])
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    constants: dict[Value, str] = field(default_factory=dict[Value, str])

    def nodes_of(self, graph: Graph) -> None:
        """Write every node of a graph (or of a fused body); `names` grows by what they define."""
        for node in graph.nodes:
            inputs = node.inputs
            match node.op:
                case Fused(body=body) | Region(body=body):
                    self.names.update(zip(body.inputs, map(self.name_of, inputs), strict=True))
                    self.nodes_of(body)
                    self.results[node] = [self.name_of(o) for o in body.outputs]
                case GetItem(index=index) if isinstance(inputs[0], Node):
                    self.results[node] = [self.results[inputs[0]][index]]
                case _:
                    self.results[node] = self.write(node)
            self.names[node] = self.results[node][0]

    def name_of(self, value: Value | None) -> str:
        """The ONNX name of an input of a node; constants are written on first use."""
        if value is None:
            return ""
        if not isinstance(value, Constant):
            return self.names[value]
        if value not in self.constants:
            self.constants[value] = self.model.array(value.name, value.array)
        return self.constants[value]

    def write(self, node: Node) -> Sequence[str]:
        """Write one op; returns the names of its results."""
        export = exporter(node.op)
        if export is None:
            text = f"{node.op.name} has no ONNX form"
            composite = node.op.kind is OpKind.COMPOSITE
            hint = "run the pass decompose first" if composite else "export it before the passes"
            raise OnnxExportError(text, loc=node.loc, hint=hint)
        to = NodeWriter(self.model, node, self.subgraph)
        found = export(to, node.op, *map(self.name_of, node.inputs))
        names = (found,) if isinstance(found, str) else tuple(found)
        final = to.finish(names, result_types(node.type))
        self.nodes += to.protos
        return final

    def subgraph(self, graph: Graph, captured: Sequence[str]) -> onnx.GraphProto:
        """A graph inside the model. Its last inputs are outer values, its constants outer ones."""
        inner = _Scope(self.model, constants=self.constants)
        own = graph.inputs[: len(graph.inputs) - len(captured)]
        inner.names.update(zip(graph.inputs[len(own) :], captured, strict=True))
        for i in own:
            inner.names[i] = self.model.names.fresh(identifier(i.name))
            self.model.types[inner.names[i]] = i.type
        inner.nodes_of(graph)
        constants = [inner.name_of(o) for o in graph.outputs if isinstance(o, Constant)]
        outside = [*captured, *constants, *(inner.names[i] for i in own)]
        outputs = inner.outputs(graph, outside)
        inputs = [value_info(inner.names[i], i.type) for i in own]
        return helper.make_graph(inner.nodes, graph.name, inputs, outputs)

    def outputs(self, graph: Graph, outside: Sequence[str]) -> list[onnx.ValueInfoProto]:
        """Output descriptions. One that is given out twice, or not made here, gets a copy."""
        infos: list[onnx.ValueInfoProto] = []
        for value in graph.outputs:
            if isinstance(value.type, TupleType):
                text = f"output {value.name!r} is a tuple"
                raise OnnxExportError(text, hint="take its results by getitem", loc=value.loc)
            name = self.name_of(value)
            if name in outside or name in [i.name for i in infos]:
                source, name = name, self.model.names.fresh(name)
                self.nodes.append(helper.make_node("Identity", [source], [name], name))
            infos.append(value_info(name, value.type))
        return infos
