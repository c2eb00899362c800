"""ONNX → graph IR, with every node that cannot be taken in one table.

    g = load_onnx("lenet.onnx")
    g = load_onnx("text.onnx", shapes={"batch": 1})             # a symbol of the model
    g = load_onnx("text.onnx", shapes={"x": (1, 3, 48, 320)})   # an input

Every opset there is. Initializers are constants, also where they are listed as inputs (IR below 4).
Nodes may stand in any order: they are sorted. Nodes that no output needs are left out. Names become
identifiers; each value keeps its ONNX name in an OnnxLoc. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import onnx

from minidlc.expr.index import Var
from minidlc.expr.types import Array
from minidlc.frontend.onnx import (
    operators,
    operators_attention,
    operators_control_flow,
    operators_geometry,
    operators_indexing,
    operators_ngrams,
    operators_normalization,
    operators_quantization,
    operators_random,
    operators_sampling,
    operators_scan,
    operators_shape,
    operators_signal,
    operators_slicing,
)
from minidlc.frontend.onnx.inputs import Declared, Shapes, declared_inputs, graph_inputs
from minidlc.frontend.onnx.reader import Source, read_model, source_name
from minidlc.frontend.onnx.scope import DOMAINS, Importer
from minidlc.frontend.onnx.subgraphs import initializers
from minidlc.frontend.onnx.tensors import element
from minidlc.graph.graph import Constant, Graph, Input, Value
from minidlc.graph.types import TupleType
from minidlc.support.arguments import expect
from minidlc.support.errors import OnnxImportError
from minidlc.support.locations import OnnxLoc
from minidlc.support.names import Names, identifier

OLDEST_OPSET = 1
CONVERTERS = (  # importing them fills the registry
    operators_geometry,
    operators_sampling,
    operators_indexing,
    operators,
    operators_shape,
    operators_slicing,
    operators_ngrams,
    operators_normalization,
    operators_attention,
    operators_quantization,
    operators_random,
    operators_signal,
    operators_control_flow,
    operators_scan,
)


def load_onnx(source: Source, shapes: Shapes | None = None) -> Graph:
    """Import a model from a path, from bytes or a ModelProto.

    `shapes` gives sizes of symbols, or shapes of inputs, by name; a size that is not given stays a
    symbol. Raises OnnxImportError (MDLC01xx) with a place and a hint; if nodes cannot be taken, all
    of them are listed.
    """
    model = open_model("load_onnx", source, shapes)
    return model.graph({}, {})


def open_model(function: str, source: Source, shapes: Shapes | None = None) -> OnnxModel:
    """Read a model whose graph is imported later, when sizes and values are known.

    `function` is what the caller is called by in messages.
    """
    kinds = (str, os.PathLike, bytes, bytearray, onnx.ModelProto)
    expect(function, "model", source, *kinds, hint="a path, or the bytes of an ONNX file")
    if shapes is not None:
        expect(function, "shapes", shapes, Mapping, hint='{"N": 1} or {"x": (1, 3, 32, 32)}')
    with _placed(source_name(source)):
        proto, name = read_model(source)
        return OnnxModel.of(proto, name, dict(shapes or {}), proto is source)


@contextmanager
def _placed(name: str) -> Generator[None, None, None]:
    """Errors inside that know no place get the model's name, and a hint."""
    try:
        yield
    except OnnxImportError as e:
        e.hint = e.hint or "onnx.checker.check_model(model, full_check=True) may say more"
        raise e.at(OnnxLoc(name, "")) from None


@dataclass(frozen=True)
class OnnxModel:
    """A model that has been read, to be imported for sizes and values: a template of graphs."""

    proto: onnx.ModelProto
    name: str
    shapes: Shapes
    inputs: tuple[Declared, ...]
    symbols: Mapping[str, Var]  # by the model's name
    borrowed: bool = False  # the caller has `proto` too, and may change it
    outputs: None = None  # what they are called turns out on import

    @staticmethod
    def of(proto: onnx.ModelProto, name: str, shapes: Shapes, borrowed: bool) -> OnnxModel:
        """The model with its inputs looked at; raises OnnxImportError where they make no sense."""
        names = Names()
        constants = {tensor.name for tensor in proto.graph.initializer}
        for tensor in proto.graph.initializer:  # they take their names before the inputs do
            names.fresh(identifier(tensor.name, "c"))
        inputs, symbols = declared_inputs(proto.graph, name, shapes, names, constants)
        return OnnxModel(proto, name, shapes, tuple(inputs), symbols, borrowed)

    def kept(self) -> OnnxModel:
        """The model as it is now, whatever the caller does with his."""
        if not self.borrowed:
            return self
        copy = onnx.ModelProto()
        copy.CopyFrom(self.proto)
        return replace(self, proto=copy, borrowed=False)

    def graph(self, shapes: Mapping[str, Sequence[int]], values: Mapping[str, Array]) -> Graph:
        """Import for more shapes, and for the values of some inputs; both by input name.

        An input whose value is given is still an input, but nothing reads it. Raises ValueNeeded
        if no more than values of inputs is missing.
        """
        with _placed(self.name):
            importer, inputs = self._scope(shapes)
            for d in self.inputs:
                if d.name in values:
                    name = importer.names.fresh(d.name)
                    importer.values[d.onnx_name] = Constant(name, values[d.name], d.loc)
            importer.add_all(self.proto.graph)
            importer.report()
            outputs = self._outputs(importer)
        title = identifier(self.proto.graph.name or self.name.removesuffix(".onnx"), "graph")
        return Graph.of(title, inputs, outputs)

    def check(self) -> None:
        """Refuse what no sizes can make right: unknown ops, outputs declared wrongly."""
        if any(d.shape is None for d in self.inputs):
            return
        with _placed(self.name):
            importer, _ = self._scope({})
            importer.add_all(self.proto.graph)
            if importer.problems:
                importer.report_unknown()
            else:
                self._outputs(importer)

    def _outputs(self, importer: Importer) -> list[Value]:
        """The values of the outputs, their types compared with what the model declares."""
        outputs = [importer.values[o.name] for o in self.proto.graph.output]
        _check_outputs(self.proto.graph, self.name, outputs)
        return outputs

    def _scope(self, shapes: Mapping[str, Sequence[int]]) -> tuple[Importer, list[Input]]:
        graph, names = self.proto.graph, Names()
        opsets = _opsets(self.proto, self.name)
        constants = initializers(graph, self.name, names)
        more = {d.onnx_name: tuple(shapes[d.name]) for d in self.inputs if d.name in shapes}
        given = {**self.shapes, **more}
        declared, _ = declared_inputs(graph, self.name, given, names, constants)
        inputs = graph_inputs(declared)
        functions = {(f.domain, f.name): f for f in self.proto.functions}
        importer = Importer(self.name, opsets, names, {**constants, **inputs}, functions)
        return importer, list(inputs.values())


def _opsets(model: onnx.ModelProto, name: str) -> dict[str, int]:
    """Versions by domain; MDLC0107 if the kit does not know that of ONNX's own operator set."""
    opsets = {o.domain: o.version for o in model.opset_import if o.domain not in DOMAINS}
    versions = [o.version for o in model.opset_import if o.domain in DOMAINS]
    newest = onnx.defs.onnx_opset_version()
    version = versions[0] if versions else newest  # only foreign domains: each node is reported
    if not OLDEST_OPSET <= version <= newest:
        text = f"{name} uses opset {version}, known are {OLDEST_OPSET} to {newest}: not supported"
        hint = "export it with an older opset, or install a newer onnx"
        if version < OLDEST_OPSET:
            hint = "opsets count from 1: the model is damaged, or no ONNX model"
        raise OnnxImportError(text, hint=hint, code="MDLC0107")
    return {"": version, **opsets}


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
