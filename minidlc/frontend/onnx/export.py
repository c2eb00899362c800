"""Graph IR → ONNX, checked: what `load_onnx` reads back is the same graph but for names.

    onnx.save(to_onnx(g), "model.onnx")
    to_onnx(g, opset=17)                            # OnnxExportError if an op is younger

Fused groups are written as the ops they hold. Reads a graph, writes a ModelProto. Treated in
course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, cast

import numpy as np
import onnx
from onnx import defs, helper

from minidlc.expr.types import Array, TensorType, f32
from minidlc.frontend.onnx.tensors import ONNX_TYPES, tensor
from minidlc.graph.fused import Fused
from minidlc.graph.graph import Constant, Graph, Node, Value
from minidlc.graph.op import Op
from minidlc.graph.types import TupleType
from minidlc.ops.activation import Clip
from minidlc.ops.binary import CastTo, Maximum, Minimum
from minidlc.ops.composite_reduction import CompositeReduction
from minidlc.ops.logical import ShiftLeft, ShiftRight
from minidlc.ops.movement import Expand, GetItem
from minidlc.ops.normalization import GroupNorm, MeanVarianceNormalization
from minidlc.ops.padding import Pad
from minidlc.ops.reduction import Reduction
from minidlc.ops.shape import Reshape, Squeeze, Unsqueeze
from minidlc.ops.slicing import Slice, Tile, Trilu
from minidlc.support.arguments import expect
from minidlc.support.errors import OnnxExportError, OptionError
from minidlc.support.names import Names, identifier

DEFAULT_OPSET = 20
OLDEST_OPSET = 13
IR_VERSION = 9  # opset 20 came with it; newer readers take older ones

_TENSOR = {
    name: f"tensor({onnx.TensorProto.DataType.Name(number).lower()})"
    for name, number in ONNX_TYPES.items()
}


def to_onnx(graph: Graph, opset: int | None = None) -> onnx.ModelProto:
    """The graph as a model that passes onnx.checker with full checks.

    Raises OptionError (MDLC1017) for an opset outside 13 to the newest, OnnxExportError for an op
    without ONNX form (MDLC0130), an attribute or element type that the opset has not (MDLC0131).
    """
    opset = DEFAULT_OPSET if opset is None else opset
    expect("to_onnx", "graph", graph, Graph)
    expect("to_onnx", "opset", opset, int)
    if not OLDEST_OPSET <= opset <= defs.onnx_opset_version():
        text = f"opset {opset} is outside {OLDEST_OPSET} to {defs.onnx_opset_version()}"
        raise OptionError(text, code="MDLC1017")
    writer = _Writer(opset, Names(i.name for i in graph.inputs))
    names: dict[Value, str] = {i: i.name for i in graph.inputs}
    writer.nodes_of(graph, names)
    outputs = writer.outputs(graph, names)
    proto = helper.make_graph(
        writer.nodes,
        graph.name,
        [_info(i.name, i.type) for i in graph.inputs],
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
        raise OnnxExportError(f"onnx.checker refuses the model: {e}", code="MDLC0131") from None
    return model


def _info(name: str, type: TensorType) -> onnx.ValueInfoProto:
    dims = [d if isinstance(d, int) else str(d) for d in type.shape]
    return helper.make_tensor_value_info(name, ONNX_TYPES[type.dtype.name], dims)


@dataclass
class _Writer:
    """Collects nodes and initializers."""

    opset: int
    taken: Names
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    initializers: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])
    known: dict[Value, str] = field(default_factory=dict[Value, str])

    def nodes_of(self, graph: Graph, names: dict[Value, str]) -> None:
        """Write every node of a graph (or of a fused body); `names` grows by what they define."""
        tuples: dict[Value, Sequence[str]] = {}
        for node in graph.nodes:
            match node.op:
                case Fused(body=body):
                    given = [self.name_of(v, names) for v in node.inputs]
                    inner: dict[Value, str] = dict(zip(body.inputs, given, strict=True))
                    self.nodes_of(body, inner)
                    results = [self.name_of(o, inner) for o in body.outputs]
                    tuples[node] = results
                    names[node] = results[0]
                case GetItem(index=index):
                    names[node] = tuples[cast(Value, node.inputs[0])][index]
                case _:
                    names[node] = self.taken.fresh(identifier(node.name))
                    self.write(node, [self.name_of(v, names) for v in node.inputs], names[node])

    def name_of(self, value: Value | None, names: Mapping[Value, str]) -> str:
        """The ONNX name of an input of a node; constants are written on first use."""
        if value is None:
            return ""
        if not isinstance(value, Constant):
            return names[value]
        if value not in self.known:
            self.known[value] = self.constant(value.name, value.array)
        return self.known[value]

    def constant(self, name: str, array: Array) -> str:
        """Add an initializer; returns its name."""
        name = self.taken.fresh(identifier(name, "c"))
        self.initializers.append(tensor(array, name))
        return name

    def outputs(self, graph: Graph, names: dict[Value, str]) -> list[onnx.ValueInfoProto]:
        """Output descriptions; one that is given out twice gets a copy: two names."""
        infos: list[onnx.ValueInfoProto] = []
        for value in graph.outputs:
            if isinstance(value.type, TupleType):
                text = f"output {value.name!r} is a tuple"
                raise OnnxExportError(text, hint="take its results by getitem", loc=value.loc)
            name = self.name_of(value, names)
            if name in [i.name for i in infos]:
                source, name = name, self.taken.fresh(name)
                self.nodes.append(helper.make_node("Identity", [source], [name], name))
            infos.append(_info(name, value.type))
        return infos

    def write(self, node: Node, inputs: Sequence[str], name: str) -> None:
        """Write one op."""
        op = node.op
        special = next((f for c, f in _WRITERS.items() if isinstance(op, c)), None)
        if special is None and op.onnx is None:
            text = f"{op.name} has no ONNX form"
            raise OnnxExportError(text, loc=node.loc, hint="run the pass decompose first")
        written = special(op, node, self) if special else _Form(op.onnx or "", _attributes(op))
        schema = self._schema(written.op_type, node)
        attributes = self._fitting(written.attributes, schema, node)
        extra = [self.constant(n, a) if a is not None else "" for n, a in written.inputs]
        while extra and not extra[-1]:
            extra.pop()
        before = len(inputs) if written.before is None else written.before
        self._check_types(schema, node, before, len(extra))
        inputs = [*inputs[:before], *extra, *inputs[before:]]
        proto = helper.make_node(written.op_type, inputs, [name], name, **attributes)
        self.nodes.append(proto)

    def _schema(self, op_type: str, node: Node) -> defs.OpSchema:
        try:
            return defs.get_schema(op_type, self.opset)
        except defs.SchemaError:
            text = f"{node.op.name}: ONNX has no {op_type} at opset {self.opset}"
            hint = "a newer opset has it"
            raise OnnxExportError(text, loc=node.loc, hint=hint, code="MDLC0131") from None

    def _fitting(
        self, attributes: Mapping[str, Any], schema: defs.OpSchema, node: Node
    ) -> dict[str, Any]:
        fitting: dict[str, Any] = {}
        for name, value in attributes.items():
            if name not in schema.attributes:
                text = f"{node.op.name}: {schema.name} has no {name} at opset {self.opset}"
                raise OnnxExportError(text, loc=node.loc, hint="a newer opset has", code="MDLC0131")
            is_float = schema.attributes[name].type == defs.OpSchema.AttrType.FLOAT
            fitting[name] = (
                float(value) if is_float else int(value) if value in (True, False) else value
            )
        return fitting

    def _check_types(self, schema: defs.OpSchema, node: Node, before: int, extra: int) -> None:
        """The schema takes these element types; `extra` inputs stand after the first `before`."""
        allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
        for place, value in enumerate(node.inputs):
            if value is None or not isinstance(value.type, TensorType):
                continue
            formal_place = place if place < before else place + extra
            formal = schema.inputs[min(formal_place, len(schema.inputs) - 1)].type_str
            kind = _TENSOR[value.type.dtype.name]
            if kind not in allowed.get(formal, (formal,)):
                text = f"{schema.name} at opset {self.opset} takes no {value.type.dtype}"
                text = f"{node.op.name}: {text} as input {place}"
                raise OnnxExportError(text, loc=node.loc, hint="use cast", code="MDLC0131")


@dataclass(frozen=True)
class _Form:
    """How an op is written: op_type, attributes, and inputs besides those of the node.

    They stand after the first `before` inputs of the node, after all of them if that is None.
    """

    op_type: str
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    inputs: tuple[tuple[str, Array | None], ...] = ()
    before: int | None = None


def _attributes(op: Op) -> dict[str, Any]:
    """Fields that have not their default value."""
    given: dict[str, Any] = {}
    for f in fields(op):
        value = getattr(op, f.name)
        if value is not None and (f.default is MISSING or value != f.default):
            given[f.name] = value
    return given


_WriteOne = Callable[[Any, Node, _Writer], _Form]
_WRITERS: dict[type[Op], _WriteOne] = {}


def _writes(*classes: type[Op]) -> Callable[[_WriteOne], _WriteOne]:
    def register(function: _WriteOne) -> _WriteOne:
        _WRITERS.update(dict.fromkeys(classes, function))
        return function

    return register


def _ints(name: str, values: Sequence[int]) -> tuple[str, Array]:
    return name, np.array(values, np.int64)


@_writes(Maximum, Minimum)
def _extremum(op: Maximum | Minimum, node: Node, writer: _Writer) -> _Form:
    return _Form("Max" if isinstance(op, Maximum) else "Min")


@_writes(ShiftLeft, ShiftRight)
def _shift(op: ShiftLeft | ShiftRight, node: Node, writer: _Writer) -> _Form:
    return _Form("BitShift", {"direction": "LEFT" if isinstance(op, ShiftLeft) else "RIGHT"})


@_writes(CastTo)
def _cast(op: CastTo, node: Node, writer: _Writer) -> _Form:
    return _Form("Cast", {"to": ONNX_TYPES[op.to.name]})


@_writes(Clip)
def _clip(op: Clip, node: Node, writer: _Writer) -> _Form:
    assert isinstance(node.type, TensorType)
    kind = node.type.dtype.numpy
    bounds = ((n, v) for n, v in (("min", op.min), ("max", op.max)))
    return _Form(
        "Clip", {}, tuple((n, None if v is None else np.asarray(v, kind)) for n, v in bounds)
    )


@_writes(Reshape)
def _reshape(op: Reshape, node: Node, writer: _Writer) -> _Form:
    if 0 not in op.shape:
        return _Form("Reshape", {}, (_ints("shape", op.shape),))
    if writer.opset < 14:
        text = f"reshape to {op.shape}: a dim of size 0 needs allowzero, which opset 14 brought"
        raise OnnxExportError(text, loc=node.loc, code="MDLC0131")
    return _Form("Reshape", {"allowzero": 1}, (_ints("shape", op.shape),))


@_writes(Squeeze, Unsqueeze)
def _axes(op: Squeeze | Unsqueeze, node: Node, writer: _Writer) -> _Form:
    if op.axes == ():  # engines disagree on what empty axes of Squeeze mean
        return _Form("Identity")
    op_type = "Squeeze" if isinstance(op, Squeeze) else "Unsqueeze"
    return _Form(op_type, {}, () if op.axes is None else (_ints("axes", op.axes),))


@_writes(Expand)
def _expand(op: Expand, node: Node, writer: _Writer) -> _Form:
    return _Form("Expand", {}, (_ints("shape", op.shape),))


@_writes(GroupNorm)
def _group_norm(op: GroupNorm, node: Node, writer: _Writer) -> _Form:
    if writer.opset < 21:
        text = f"{op.name}: a scale for each channel needs opset 21, got opset {writer.opset}"
        hint = "before, GroupNormalization had one for each group"
        raise OnnxExportError(text, loc=node.loc, hint=hint, code="MDLC0131")
    return _Form("GroupNormalization", _attributes(op))


@_writes(MeanVarianceNormalization)
def _mean_variance(op: MeanVarianceNormalization, node: Node, writer: _Writer) -> _Form:
    """The default axes are written too: onnx's shape inference fails without them."""
    assert isinstance(node.type, TensorType)
    if node.type.dtype != f32:
        text = f"{op.name}: ONNX defines it with float32 constants, which do not fit {node.type}"
        raise OnnxExportError(text, loc=node.loc, hint="use cast", code="MDLC0131")
    return _Form("MeanVarianceNormalization", {"axes": op.axes})


@_writes(Reduction, CompositeReduction)
def _reduction(op: Reduction | CompositeReduction, node: Node, writer: _Writer) -> _Form:
    """Axes are an input from opset 13 (ReduceSum) or 18; () needs noop_with_empty_axes."""
    op_type = op.onnx or ""
    attributes: dict[str, Any] = {} if op.keepdims else {"keepdims": 0}
    as_input = writer.opset >= (13 if op_type == "ReduceSum" else 18)
    if op.axes is None:
        return _Form(op_type, attributes)
    if not as_input:
        return _Form(op_type, attributes | {"axes": op.axes})
    if not op.axes:
        return _Form(op_type, attributes | {"noop_with_empty_axes": 1})
    return _Form(op_type, attributes, (_ints("axes", op.axes),))


@_writes(Slice)
def _slice(op: Slice, node: Node, writer: _Writer) -> _Form:
    axes = op.axes or tuple(range(len(op.starts)))
    given = [_ints("starts", op.starts), _ints("ends", op.ends), _ints("axes", axes)]
    return _Form("Slice", {}, (*given, *([_ints("steps", op.steps)] if op.steps else [])))


@_writes(Pad)
def _pad(op: Pad, node: Node, writer: _Writer) -> _Form:
    if op.mode == "wrap" and writer.opset < 19:
        text = f"pad: ONNX has no mode wrap at opset {writer.opset}"
        raise OnnxExportError(text, loc=node.loc, hint="opset 19 has it", code="MDLC0131")
    attributes = {} if op.mode == "constant" else {"mode": op.mode}
    return _Form("Pad", attributes, (_ints("pads", op.pads),), before=1)


@_writes(Tile)
def _tile(op: Tile, node: Node, writer: _Writer) -> _Form:
    return _Form("Tile", {}, (_ints("repeats", op.repeats),))


@_writes(Trilu)
def _trilu(op: Trilu, node: Node, writer: _Writer) -> _Form:
    k = (("k", np.array(op.k, np.int64)),) if op.k else ()
    return _Form("Trilu", {} if op.upper else {"upper": 0}, k)
