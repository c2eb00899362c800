"""Graphs inside an ONNX node → closed graphs, or values of the graph around it.

    body = Subgraph(node, node.attr_graph("body"))
    body.captured                                   # {"w": w}: values of outside that it reads
    g = body.closed([i, c, x], captures)            # a Graph: captured values become inputs
    outs = body.inline([zero, true, x0])            # its nodes among those of the outer graph

A name means what the innermost graph says: inputs, initializers and nodes of the subgraph hide
outer values. Outer constants stay constants inside, so that shapes can depend on them. Treated in
course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx

from minidlc.expr.types import TensorType
from minidlc.frontend.onnx.order import captured_names
from minidlc.frontend.onnx.registry import (
    UNSUPPORTED,
    OnnxNode,
    ValueNeeded,
    constant_value,
    inputs_of,
)
from minidlc.frontend.onnx.scope import Importer
from minidlc.frontend.onnx.tensors import array
from minidlc.graph.graph import Constant, Graph, Input, Node, Value, apply
from minidlc.support.errors import OnnxImportError
from minidlc.support.locations import OnnxLoc
from minidlc.support.names import Names, identifier


def initializers(graph: onnx.GraphProto, model: str, names: Names) -> dict[str, Value]:
    """ONNX name → constant. Raises OnnxImportError for two of a name (MDLC0109), sparse ones."""
    if graph.sparse_initializer:
        text = f"{model} has sparse initializers: not supported"
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


def values_of(node: OnnxNode, values: Sequence[Value | None]) -> list[Value]:
    """The values, none of which may be left out (MDLC0119)."""
    if None in values:
        text = f"{node.op_type} needs all its inputs, number {list(values).index(None)} is left out"
        raise OnnxImportError(text, loc=node.loc, code="MDLC0119")
    return [v for v in values if v is not None]


class Subgraph:
    """One graph attribute of a node, and what it reads of outside."""

    def __init__(self, node: OnnxNode, proto: onnx.GraphProto) -> None:
        scope = node.scope
        assert isinstance(scope, Importer)
        self.node, self.proto, self._outer = node, proto, scope
        self.captured: dict[str, Value] = {}
        self._known: dict[str, Value] = {}
        for name in captured_names(proto):
            if name not in scope.values:
                continue  # needed_nodes says that nothing defines it
            value = scope.values[name]
            array = constant_value(value)
            if array is None:
                self.captured[name] = value
            else:
                kept = isinstance(value, Constant)
                self._known[name] = value if kept else Constant(value.name, array, value.loc)

    def needs_results(self, count: int) -> None:
        """Refuse a subgraph with fewer results (MDLC0119)."""
        found = len(self.proto.output)
        if found < count:
            text = f"{self.proto.name or 'its graph'} has {found} results"
            text = f"{text}, {self.node.op_type} needs at least {count}"
            raise OnnxImportError(text, loc=self.node.loc, code="MDLC0119")

    def fresh(self, name: str, type: TensorType) -> Input:
        """An input for a closed graph."""
        return Input(self._outer.names.fresh(identifier(name, "x")), type, self.node.loc)

    def inputs(self, types: Sequence[TensorType]) -> list[Input]:
        """Inputs of these types under the names that the subgraph gives them."""
        return [self.fresh(i.name, t) for i, t in zip(self._parameters(types), types, strict=True)]

    def closed(
        self, inputs: Sequence[Input], values: Sequence[Value], captures: Mapping[Value, Input]
    ) -> Graph:
        """The subgraph on `inputs` of its own and on `captures`, by the outer value.

        `values` are what its parameters stand for: the inputs, or something computed of them.
        Raises OnnxImportError for what cannot be taken.
        """
        seen = {name: captures[v] for name, v in self.captured.items()}
        try:
            outputs = self._import(values, seen, repeats=self.node.op_type != "If")
        except ValueNeeded as e:
            raise self._outer_values_needed(e, captures) from None
        title = identifier(self.proto.name or self.node.op_type, "body")
        return Graph.of(title, [*inputs, *captures.values()], list(map(_source, outputs)))

    @property
    def copies(self) -> int:
        """How often the graph around is imported, inside loops whose runs are."""
        return self._outer.copies

    def inline(self, values: Sequence[Value], runs: int = 1) -> list[Value]:
        """The results of the subgraph on outer values, its nodes part of the outer graph.

        `runs`: how often this will be done.
        """
        outputs = self._import(values, self.captured, runs)
        outside = {*values, *self.captured.values()}
        return [apply("identity", v) if v in outside else v for v in outputs]

    def _import(
        self,
        values: Sequence[Value],
        seen: Mapping[str, Value],
        runs: int = 1,
        *,
        repeats: bool = False,
    ) -> list[Value]:
        parameters = self._parameters(values)
        given = {p.name: v for p, v in zip(parameters, values, strict=True)}
        constants = initializers(self.proto, self._outer.model, self._outer.names)
        scope = self._outer.nested(
            self._outer.opsets, {**seen, **self._known, **constants, **given}, closed=True
        )
        repeats = repeats or self._outer.repeats
        scope = replace(scope, problems=[], copies=self.copies * runs, repeats=repeats)
        scope.add_all(self.proto)
        scope.report()
        return [scope.values[o.name] for o in self.proto.output]

    def _parameters(self, values: Sequence[object]) -> list[onnx.ValueInfoProto]:
        parameters = list(self.proto.input)
        names = [p.name for p in parameters]
        twice = [n for n in names if names.count(n) > 1]
        if twice:
            text = f"two inputs of {self.proto.name or 'its graph'} are named {twice[0]!r}"
            raise OnnxImportError(text, loc=self.node.loc, hint="names are unique", code="MDLC0109")
        if len(parameters) != len(values):
            text = f"{self.proto.name or 'its graph'} takes {len(parameters)} inputs"
            text = f"{text}, {self.node.op_type} gives it {len(values)}"
            raise OnnxImportError(text, loc=self.node.loc, code="MDLC0119")
        return parameters

    def _outer_values_needed(
        self, error: ValueNeeded, captures: Mapping[Value, Input]
    ) -> OnnxImportError:
        """What the graph around has to know; an input of the body itself is never known."""
        outer = {inner: value for value, inner in captures.items()}
        own = [i for i in error.inputs if i not in outer]
        if own:
            text = f"{error.message} of {own[0].name!r}, which differs from run to run"
            return OnnxImportError(
                text, loc=self.node.loc, notes=error.notes, hint=error.hint, code=UNSUPPORTED
            )
        sources = dict.fromkeys(s for i in error.inputs for s in inputs_of(outer[i]))
        error.inputs = tuple(sources)
        names = ", ".join(repr(i.name) for i in sources)
        error.hint = f"mc.compile(model) compiles for the value of {names} when it is called"
        return error


def _source(value: Value) -> Value:
    """The value that a chain of identities hands on."""
    while isinstance(value, Node) and value.op.name == "identity":
        source = value.inputs[0]
        assert source is not None
        value = source
    return value
