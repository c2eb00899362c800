"""ONNX → graph IR, with every node that cannot be taken in one table.

    g = load_onnx("lenet.onnx")
    g = load_onnx("text.onnx", shapes={"batch": 1})             # a symbol of the model
    g = load_onnx("text.onnx", shapes={"x": (1, 3, 48, 320)})   # an input

Opsets 7 and newer. Initializers are constants, also where they are listed as inputs (IR below 4).
Nodes may stand in any order: they are sorted. Nodes that no output needs are left out. Names become
identifiers; each value keeps its ONNX name in an OnnxLoc. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx

from minidlc.frontend.onnx import (
    operators,
    operators_normalization,
    operators_shape,
    operators_slicing,
)
from minidlc.frontend.onnx.inputs import Shapes, graph_inputs
from minidlc.frontend.onnx.order import needed_nodes
from minidlc.frontend.onnx.reader import Source, read_model, source_name
from minidlc.frontend.onnx.registry import UNSUPPORTED, OnnxNode, converter, known_op_types
from minidlc.frontend.onnx.tensors import array, element
from minidlc.graph.graph import Constant, Graph, Input, Node, Value, located
from minidlc.graph.types import TupleType
from minidlc.support.arguments import expect
from minidlc.support.errors import CompileError, OnnxImportError, nearest
from minidlc.support.locations import OnnxLoc
from minidlc.support.names import Names, identifier

OLDEST_OPSET = 7
CONVERTERS = (  # importing them fills the registry
    operators,
    operators_shape,
    operators_slicing,
    operators_normalization,
)
DOMAINS = ("", "ai.onnx")


def load_onnx(source: Source, shapes: Shapes | None = None) -> Graph:
    """Import a model from a path, from bytes or a ModelProto.

    `shapes` gives sizes of symbols, or shapes of inputs, by name; a size that is not given stays a
    symbol. Raises OnnxImportError (MDLC01xx) with a place and a hint; if nodes cannot be taken, all
    of them are listed.
    """
    kinds = (str, os.PathLike, bytes, bytearray, onnx.ModelProto)
    expect("load_onnx", "model", source, *kinds, hint="a path, or the bytes of an ONNX file")
    if shapes is not None:
        expect("load_onnx", "shapes", shapes, Mapping, hint='{"N": 1} or {"x": (1, 3, 32, 32)}')
    try:
        return _load(source, shapes)
    except OnnxImportError as e:
        e.hint = e.hint or "onnx.checker.check_model(model, full_check=True) may say more"
        raise e.at(OnnxLoc(source_name(source), "")) from None


def _load(source: Source, shapes: Shapes | None) -> Graph:
    proto, name = read_model(source)
    opset = _opset(proto, name)
    graph = proto.graph
    names = Names()
    constants = _constants(graph, name, names)
    inputs = graph_inputs(graph, name, shapes or {}, names, constants)
    importer = _Importer(name, opset, names, {**constants, **inputs})
    for node in needed_nodes(graph, name, set(importer.values)):
        importer.add(node)
    importer.report()
    outputs = [importer.values[o.name] for o in graph.output]
    _check_outputs(graph, name, outputs)
    title = identifier(graph.name or name.removesuffix(".onnx"), "graph")
    return Graph.of(title, inputs.values(), outputs)


def _opset(model: onnx.ModelProto, name: str) -> int:
    """The version of ONNX's own operator set (MDLC0107 if the kit does not know it)."""
    versions = [o.version for o in model.opset_import if o.domain in DOMAINS]
    newest = onnx.defs.onnx_opset_version()
    version = versions[0] if versions else newest  # only foreign domains: each node is reported
    if not OLDEST_OPSET <= version <= newest:
        text = f"{name} uses opset {version}, known are {OLDEST_OPSET} to {newest}"
        hint = "onnx.version_converter.convert_version(model, 17)"
        if version > newest:
            hint = "export it with an older opset, or install a newer onnx"
        raise OnnxImportError(text, hint=hint, code="MDLC0107")
    return version


def _constants(graph: onnx.GraphProto, model: str, names: Names) -> dict[str, Value]:
    if graph.sparse_initializer:
        text = f"{model} has sparse initializers"
        raise OnnxImportError(text, hint="make them dense before export", code=UNSUPPORTED)
    constants: dict[str, Value] = {}
    for proto in graph.initializer:
        loc = OnnxLoc(model, proto.name, "initializer")
        if proto.name in constants:
            text = f"two initializers are named {proto.name!r}"
            raise OnnxImportError(text, loc=loc, hint="names are unique", code="MDLC0109")
        name = names.fresh(identifier(proto.name, "c"))
        constants[proto.name] = Constant(name, array(proto, loc), loc)
    return constants


@dataclass(frozen=True)
class _Problem:
    """One row of the table."""

    node: OnnxNode
    domain: str
    error: CompileError

    def cells(self) -> tuple[str, str, str, str]:
        """Op, opset, node, what is missing."""
        op = f"{self.domain}.{self.node.op_type}" if self.domain else self.node.op_type
        return op, str(self.node.opset), self.node.loc.node, self.error.message


@dataclass
class _Importer:
    """Values by ONNX name; a value None could not be imported, and its readers are skipped."""

    model: str
    opset: int
    names: Names
    values: dict[str, Value]
    failed: set[str] = field(default_factory=set[str])
    problems: list[_Problem] = field(default_factory=list[_Problem])

    def add(self, proto: onnx.NodeProto) -> None:
        """Import one node, or note why not."""
        label = proto.name or next(filter(None, proto.output), proto.op_type)
        node = OnnxNode(proto, self.opset, OnnxLoc(self.model, label, proto.op_type))
        domain = "" if proto.domain in DOMAINS else proto.domain
        try:
            results = self._convert(node, domain, proto)
        except CompileError as e:
            self.problems.append(_Problem(node, domain, e))
        else:
            if results is not None:
                self.values.update(results)
                return
        self.failed.update(proto.output)

    def _convert(
        self, node: OnnxNode, domain: str, proto: onnx.NodeProto
    ) -> Mapping[str, Value] | None:
        convert = None if domain else converter(node.op_type)
        if convert is None:
            what = f"the domain {domain!r} is unknown" if domain else "no such op in this kit"
            raise node.unsupported(what, nearest(node.op_type, known_op_types()))
        if self.failed.intersection(proto.input):
            return None  # what it reads is in the table already
        inputs = [self.values[name] if name else None for name in proto.input]
        while inputs and inputs[-1] is None:
            inputs.pop()
        node.check_inputs(convert, inputs)
        with located(node.loc):
            result = convert(node, *inputs)
        if unread := node.unread():
            raise node.unsupported(f"attribute {unread[0]!r} is not supported")
        values = (result,) if isinstance(result, (Input, Constant, Node)) else tuple(result)
        return self._name(node, inputs, values)

    def _name(
        self, node: OnnxNode, inputs: Sequence[Value | None], values: Sequence[Value]
    ) -> dict[str, Value]:
        extra = [name for name in node.outputs[len(values) :] if name]
        if extra:
            raise node.unsupported(f"output {extra[0]!r} (number {len(values) + 1})")
        named: dict[str, Value] = {}
        for name, value in zip(node.outputs, values, strict=False):
            new = value not in inputs and not isinstance(value, Input)
            if new and len(values) == 1:  # several results may depend on each other
                value = replace(value, name=self.names.fresh(identifier(name)))
            named[name] = value
        return named

    def report(self) -> None:
        """Raise what was noted: one problem as itself, several as a table."""
        if not self.problems:
            return
        first = self.problems[0]
        table = _table([p.cells() for p in self.problems])
        if len(self.problems) == 1:
            error = first.error
            text, code, notes = error.message, error.code, error.notes
            if not isinstance(error, OnnxImportError):
                text, code = f"{text} [{code}]", "MDLC0115"
            if code == UNSUPPORTED:
                text, notes = f"{first.cells()[0]}: {text}", (*notes, *table)
            raise OnnxImportError(text, loc=first.node.loc, notes=notes, hint=error.hint, code=code)
        text = f"{self.model}: {len(self.problems)} nodes cannot be imported"
        hint = "onnx_op registers a converter for an op of your own"
        raise OnnxImportError(text, notes=table, hint=hint, code="MDLC0117")


def _table(rows: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Lines of aligned columns under a header."""
    lines = [("op", "opset", "node", "what is missing"), *rows]
    widths = [max(len(line[c]) for line in lines) for c in range(3)]
    return tuple(
        "  ".join([*(cell.ljust(w) for cell, w in zip(line, widths, strict=False)), line[-1]])
        for line in lines
    )


def _check_outputs(graph: onnx.GraphProto, model: str, outputs: Sequence[Value]) -> None:
    """The declared types of the outputs must not contradict what the nodes compute (MDLC0120)."""
    for info, value in zip(graph.output, outputs, strict=True):
        if not info.type.HasField("tensor_type") or isinstance(value.type, TupleType):
            continue
        loc = OnnxLoc(model, info.name, "output")
        declared = info.type.tensor_type
        wrong = bool(declared.elem_type) and element(declared.elem_type, loc) != value.type.dtype
        if declared.HasField("shape"):
            dims = [d.dim_value if d.HasField("dim_value") else -1 for d in declared.shape.dim]
            wrong |= len(dims) != value.type.rank
            pairs = zip(dims, value.type.shape, strict=False)
            wrong |= any(d > 0 and isinstance(n, int) and d != n for d, n in pairs)
        if wrong:
            text = f"output {info.name!r} is declared as {_declared(declared)}"
            text += f", its nodes compute {value.type}"
            hint = "the declaration is stale, or an op of the model is wrong"
            raise OnnxImportError(text, loc=loc, hint=hint, code="MDLC0120")


def _declared(type: onnx.TypeProto.Tensor) -> str:
    dims = ", ".join(d.dim_param or str(d.dim_value) for d in type.shape.dim)
    kind = onnx.TensorProto.DataType.Name(type.elem_type).lower()
    return f"{kind}[{dims}]"
