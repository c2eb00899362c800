"""Inputs of an ONNX graph → graph inputs, sizes filled in from `shapes=`.

    x: float[batch, 3, H, H]   shapes={"batch": 1}                 x: f32[1, 3, "H", "H"]
                               shapes={"x": (1, 3, 48, 48)}        x: f32[1, 3, 48, 48]; H = 48

`declared_inputs` says what the file says, ranks that it leaves open included; `graph_inputs` needs
every rank. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import onnx

from minidlc.expr.index import Index, Var
from minidlc.expr.types import Dim, DType, TensorType
from minidlc.frontend.onnx.tensors import element
from minidlc.graph.graph import Input
from minidlc.support.errors import OnnxImportError, nearest
from minidlc.support.locations import Loc, OnnxLoc
from minidlc.support.names import Names, identifier

Shapes: TypeAlias = Mapping[str, "int | Sequence[int]"]
BAD_SHAPES = "MDLC0114"


@dataclass(frozen=True)
class Declared:
    """An input as the file declares it: `shape` is None if not even its rank is known."""

    name: str  # the identifier it is called by here
    onnx_name: str
    dtype: DType
    shape: tuple[Dim, ...] | None
    loc: Loc | None

    @property
    def type(self) -> object:
        """What messages print; a TensorType only if the rank is known."""
        return self

    def with_shape(self, shape: tuple[Dim, ...]) -> TensorType:
        """The type with a certain shape."""
        return TensorType(self.dtype, shape)

    def __str__(self) -> str:
        return f"{self.dtype}[…]" if self.shape is None else str(self.with_shape(self.shape))


@dataclass
class _Sizes:
    """What `shapes` says, and the sizes of symbols that follow from it."""

    given: Shapes
    symbols: dict[str, int] = field(default_factory=dict[str, int])
    used: set[str] = field(default_factory=set[str])
    vars: dict[str, Var] = field(default_factory=dict[str, Var])
    names: Names = field(default_factory=Names)

    def bind(self, symbol: str, size: int, loc: OnnxLoc) -> None:
        """Note the size of a symbol; two different ones are an error."""
        self.used.add(symbol)
        if self.symbols.setdefault(symbol, size) != size:
            text = f"{symbol!r} would be {self.symbols[symbol]} and {size}"
            raise OnnxImportError(text, loc=loc, hint="check shapes=", code=BAD_SHAPES)


def graph_inputs(declared: Sequence[Declared]) -> dict[str, Input]:
    """ONNX name -> Input. Raises OnnxImportError (MDLC0113) for an input without a rank."""
    inputs: dict[str, Input] = {}
    for d in declared:
        if d.shape is None:
            text = f"the shape of input {d.onnx_name!r} is not declared, not even its rank"
            hint = f"give it: shapes={{{d.onnx_name!r}: (1, 3, 224, 224)}}"
            raise OnnxImportError(text, loc=d.loc, hint=hint, code="MDLC0113")
        inputs[d.onnx_name] = Input(d.name, TensorType(d.dtype, d.shape), d.loc)
    return inputs


def declared_inputs(
    graph: onnx.GraphProto, model: str, shapes: Shapes, names: Names, constants: Container[str]
) -> tuple[list[Declared], dict[str, Var]]:
    """The inputs that are no initializers, and the variable of each symbol of the model.

    Raises OnnxImportError: MDLC0109 two of a name, 0113 no tensor, 0114 `shapes` does not fit.
    """
    infos = [i for i in graph.input if i.name not in constants]
    symbols, named = _symbols(infos), {i.name for i in infos}
    for name in named.difference(symbols).intersection(shapes):  # x=5: the shape of a vector
        size = shapes[name]
        shapes = {**shapes, name: size if isinstance(size, Sequence) else (size,)}
    sizes = _Sizes(shapes)
    for name, size in shapes.items():
        if not isinstance(size, Sequence) or (name in symbols and name not in named):
            sizes.symbols[name] = _size(name, size)
    shapes_of = {info.name: _given_shape(info, model, sizes) for info in infos}
    inputs: dict[str, Declared] = {}
    for info in infos:
        loc = OnnxLoc(model, info.name, "input")
        if info.name in inputs:
            text = f"two inputs are named {info.name!r}"
            raise OnnxImportError(text, loc=loc, hint="names are unique", code="MDLC0109")
        name = names.fresh(identifier(info.name, "x"))
        kind = element(_tensor(info, loc).elem_type, loc)
        given = shapes_of[info.name]
        shape = _shape(info, sizes) if given is None else given
        inputs[info.name] = Declared(name, info.name, kind, shape, loc)
    unknown = [n for n in shapes if n not in sizes.used and n not in inputs]
    if unknown:
        known = [*inputs, *_symbols(infos)]
        text = f"shapes names {unknown[0]!r}, which is no input and no symbol of {model}"
        raise OnnxImportError(text, hint=nearest(unknown[0], known), code=BAD_SHAPES)
    return list(inputs.values()), sizes.vars


def _size(name: str, size: object) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        text = f"shapes[{name!r}] must be sizes of at least 0, got {size!r}"
        raise OnnxImportError(text, hint="shapes={'batch': 1}", code=BAD_SHAPES)
    return size


def _tensor(info: onnx.ValueInfoProto, loc: OnnxLoc) -> onnx.TypeProto.Tensor:
    if not info.type.HasField("tensor_type"):
        kind = info.type.WhichOneof("value") or "nothing"
        text = f"input {info.name!r} is no tensor, but {kind.removesuffix('_type')}: not supported"
        raise OnnxImportError(text, loc=loc, code="MDLC0113")
    return info.type.tensor_type


def _given_shape(info: onnx.ValueInfoProto, model: str, sizes: _Sizes) -> tuple[int, ...] | None:
    """The shape that `shapes` gives for this input; its symbols are bound."""
    given = sizes.given.get(info.name)
    if not isinstance(given, Sequence):
        return None
    loc = OnnxLoc(model, info.name, "input")
    shape = tuple(_size(info.name, d) for d in given)
    declared = _tensor(info, loc)
    if not declared.HasField("shape"):
        return shape
    dims = declared.shape.dim
    fixed = [d.dim_value for d in dims]
    if len(dims) != len(shape) or any(a > 0 and a != b for a, b in zip(fixed, shape, strict=True)):
        text = f"shapes gives {info.name!r} the shape {shape}, the model declares "
        text += f"[{', '.join(d.dim_param or str(d.dim_value or '?') for d in dims)}]"
        raise OnnxImportError(text, loc=loc, code=BAD_SHAPES)
    for n, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        if not dim.HasField("dim_value"):
            sizes.bind(dim.dim_param or f"{info.name}_{n}", size, loc)
    return shape


def _shape(info: onnx.ValueInfoProto, sizes: _Sizes) -> tuple[Dim, ...] | None:
    """The declared shape; None if there is none."""
    declared = info.type.tensor_type
    if not declared.HasField("shape"):
        return None
    dims = enumerate(declared.shape.dim)
    return tuple(_dim(d, f"{info.name}_{n}", sizes) for n, d in dims)


def _dim(dim: onnx.TensorShapeProto.Dimension, default: str, sizes: _Sizes) -> Dim:
    """A number, or a symbol: the model's own, or `<input>_<axis>` for a dim without a name."""
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return dim.dim_value
    symbol = dim.dim_param or default
    sizes.used.add(symbol)
    if symbol in sizes.symbols:
        return sizes.symbols[symbol]
    if symbol not in sizes.vars:  # 'a.b' and 'a_b' are two symbols
        sizes.vars[symbol] = Var(sizes.names.fresh(identifier(symbol, "N")))
    return Index.of(sizes.vars[symbol])


def _symbols(infos: Sequence[onnx.ValueInfoProto]) -> list[str]:
    dims = [d for i in infos for d in i.type.tensor_type.shape.dim]
    return sorted({d.dim_param for d in dims if d.dim_param})
