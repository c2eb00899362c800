"""The leaves of graph text, both ways: types, dims, attributes, and the elements of constants.

    write_attribute((1, 0))                         # '(1, 0)'
    write_array(np.float32([1, nan]))               # '[1.0, nan]'
    Reader(source).type(ast_node)                   # TensorType of `f32["N", 784]`
    Reader(source).array(ast_node, f32[2])          # and back, to the bit

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, cast
from weakref import WeakValueDictionary

import numpy as np

from minidlc.expr.index import Index, Var, maximum, minimum
from minidlc.expr.types import DTYPES, Array, Dim, DType, TensorType, dtype
from minidlc.graph.graph import Constant, Graph
from minidlc.graph.types import TupleType, Type
from minidlc.support.errors import CompileError, ParseError, nearest
from minidlc.support.source import Source

Attribute: TypeAlias = (
    "bool | int | float | str | DType | TensorType | Graph | tuple[Attribute, ...] | None"
)
RESERVED = (*DTYPES, "nan", "inf", "const")  # names with a meaning of their own in text
CHECKSUM = 16  # hex digits of the SHA-256 by which text names a large constant
# Large constants of the texts printed in this process, while they live: the checksum in the text
# is enough to find them, so a printed graph parses back without its weights being handed over.
PRINTED: WeakValueDictionary[str, Constant] = WeakValueDictionary()
_MAX_RANK = 64  # NumPy's


def is_attribute(value: object) -> bool:
    """True for what text can write: None, numbers, strings, types, graphs, tuples of these."""
    if isinstance(value, tuple):
        return all(map(is_attribute, cast(tuple[object, ...], value)))
    return value is None or isinstance(value, (bool, int, float, str, DType, TensorType, Graph))


def write_attribute(value: object, graph: Callable[[Graph], str]) -> str:
    """Text of an attribute; `graph` names the graphs in it. Different values, different texts."""
    match value:
        case Graph():
            return graph(value)
        case tuple():
            items = cast(tuple[object, ...], value)
            texts = [write_attribute(item, graph) for item in items]
            return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
        case DType() | TensorType():
            return str(value)
        case str():
            return _quoted(value)
        case np.generic():
            return repr(value.item())  # pyright: ignore[reportUnknownArgumentType]
        case _:
            return repr(value)


def _quoted(text: str) -> str:
    """A string literal in double quotes where that needs no escape."""
    literal = repr(str(text))
    return f'"{literal[1:-1]}"' if literal[0] == "'" and '"' not in literal else literal


def write_array(array: Array) -> str:
    """The elements as nested lists; read back with the same type they are the same bytes."""
    if array.size == 0:
        return "[]"
    if array.ndim == 0:
        return _write_element(array)
    return f"[{', '.join(write_array(part) for part in array)}]"


def _write_element(x: Array) -> str:
    """Text of an array of rank 0."""
    kind = dtype(x.dtype)
    if not kind.is_float:
        return repr(x.item())
    value = float(x)
    if math.isnan(value):
        bits = int.from_bytes(x.tobytes(), "little")
        usual = int.from_bytes(_rounded(math.nan, kind).tobytes(), "little")
        return "nan" if bits == usual else f"nan({bits:#x})"
    short = str(x[()])
    is_number = re.fullmatch(r"-?\d+(\.\d+)?(e[-+]?\d+)?", short)
    if is_number and _rounded(float(short), kind).tobytes() == x.tobytes():
        return repr(float(short))
    return repr(value)


def _rounded(value: object, element: DType) -> Array:
    """The number as an array of rank 0; integers out of range are an OverflowError."""
    with np.errstate(over="ignore"):
        exact = None if element.is_float else element.numpy  # None: f64, rounded below
        return np.array(value, exact).astype(element.numpy)


_OPERATORS: Mapping[type[ast.operator], Callable[[Index, Index], Index]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


@dataclass(frozen=True)
class Reader:
    """Reads leaves from syntax; each fault is a ParseError at its place."""

    source: Source
    graphs: Mapping[str, Graph] = field(default_factory=dict[str, Graph])

    def type(self, node: ast.expr) -> Type:
        """`f32[4, "N"]`, or `(f32[4], i64[4])` for several results (MDLC0304)."""
        if isinstance(node, ast.Tuple):
            return TupleType(tuple(self.tensor_type(item) for item in node.elts))
        return self.tensor_type(node)

    def tensor_type(self, node: ast.expr) -> TensorType:
        """`f32[4, "N"]`; a scalar is `f32[()]` (MDLC0304)."""
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=dims)):
                pass
            case ast.Subscript(value=ast.Name(id=name), slice=dim):
                dims = [dim]
            case _:
                raise self._error(node, "not a type", "0304", "write f32[4, 8], a scalar f32[()]")
        if name not in DTYPES:
            raise self._error(node, f"unknown element type {name!r}", "0304", nearest(name, DTYPES))
        return TensorType(DTYPES[name], tuple(self._dim(d) for d in dims))

    def _dim(self, node: ast.expr) -> Dim:
        match node:
            case ast.Constant(value=int(n)) if not isinstance(n, bool):
                return n
            case ast.Constant(value=str(text)):
                try:
                    index = self._index(ast.parse(text.strip(), mode="eval").body, node)
                except (SyntaxError, ValueError, MemoryError):
                    raise self._error(node, f"not a dim: {text!r}", "0304") from None
                except CompileError as e:
                    if isinstance(e, ParseError):
                        raise
                    raise self._error(node, f"not a dim: {e.message}", "0304", e.hint) from None
                return index.const if index.is_const else index
            case _:
                hint = 'a number, or a text such as "N" or "2*N + 1"'
                raise self._error(node, "not a dim", "0304", hint)

    def _index(self, e: ast.expr, at: ast.expr) -> Index:
        match e:
            case ast.Constant(value=int(n)) if not isinstance(n, bool):
                return Index.of(n)
            case ast.Name(id=name):
                return Index.of(Var(name))
            case ast.UnaryOp(op=ast.USub(), operand=a):
                return -self._index(a, at)
            case ast.BinOp(left=a, op=op, right=b) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self._index(a, at), self._index(b, at))
            case ast.Call(func=ast.Name(id="min" | "max" as name), args=[a, b], keywords=[]):
                pick = minimum if name == "min" else maximum
                return pick(self._index(a, at), self._index(b, at))
            case _:
                hint = "names, integers, + - * // % min max"
                raise self._error(at, f"not a dim: {ast.unparse(e)!r}", "0304", hint)

    def attribute(self, node: ast.expr) -> Attribute:
        """A number, text, type, tuple, None, or the name of a nested function (MDLC0306)."""
        match node:
            case ast.Constant(value=(None | bool() | int() | float() | str()) as value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                value = self.attribute(inner)
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    return -value
            case ast.Name(id="nan" | "inf" as name):
                return float(name)
            case ast.Name(id=name) if name in DTYPES:
                return DTYPES[name]
            case ast.Name(id=name):
                if name in self.graphs:
                    return self.graphs[name]
                hint = nearest(name, self.graphs) or "a nested `def` comes before its use"
                raise self._error(node, f"unknown function {name!r}", "0313", hint)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return tuple(self.attribute(item) for item in items)
            case ast.Subscript():
                return self.tensor_type(node)
            case _:
                pass
        raise self._error(node, f"not an attribute: {ast.unparse(node)[:60]}", "0306")

    def array(self, node: ast.expr, type: TensorType) -> Array:
        """Elements as nested lists in the shape of `type` (MDLC0311)."""
        if not type.is_static:
            raise self._error(node, f"a constant needs a static type, got {type}", "0311")
        if type.rank > _MAX_RANK:
            raise self._error(node, f"rank {type.rank} is more than {_MAX_RANK}", "0311")
        if any(d < 0 for d in type.dims):
            raise self._error(node, f"a constant needs dims of at least 0, got {type}", "0311")
        items: list[ast.expr] = []
        self._flatten(node, type.dims, type, items)
        flat = np.empty(len(items), type.dtype.numpy)
        for i, item in enumerate(items):
            flat[i] = self._element(item, type.dtype)
        return flat.reshape(type.dims)

    def _flatten(
        self, node: ast.expr, dims: tuple[int, ...], type: TensorType, out: list[ast.expr]
    ) -> None:
        if 0 in dims and isinstance(node, ast.List) and not node.elts:
            return
        if not dims:
            out.append(node)
            return
        match node:
            case ast.List(elts=parts) | ast.Tuple(elts=parts) if len(parts) == dims[0]:
                for part in parts:
                    self._flatten(part, dims[1:], type, out)
            case _:
                text = f"the elements do not have the shape of {type}: expected a list of {dims[0]}"
                raise self._error(node, text, "0311")

    def _element(self, node: ast.expr, element: DType) -> Array:
        match node:
            case ast.Call(
                func=ast.Name(id="nan"), args=[ast.Constant(value=int(bits))], keywords=[]
            ) if element.is_float and 0 <= bits < 1 << element.bits:
                return np.frombuffer(bits.to_bytes(element.itemsize, "little"), element.numpy)[0]
            case _:
                value = self.attribute(node)
        kinds: dict[str, tuple[type, ...]] = {"float": (int, float), "bool": (bool,)}
        wanted = kinds.get(element.kind, (int,))
        if not isinstance(value, wanted) or isinstance(value, bool) != (element.kind == "bool"):
            raise self._error(node, f"not an element of {element}: {ast.unparse(node)}", "0311")
        try:
            return _rounded(value, element)
        except OverflowError:
            raise self._error(node, f"{value} does not fit into {element}", "0311") from None

    def _error(self, node: ast.AST, message: str, code: str, hint: str | None = None) -> ParseError:
        return self.source.error(node, message, code=f"MDLC{code}", hint=hint)
