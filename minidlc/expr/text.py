"""Scalar expressions and positions as text: a subset of Python, printed here and parsed here.

    print_expr(Load("A", (i, k), f32) * 0.5)        # 'A[i, k] * 0.5'
    parse_expr("A[i, k] * 0.5", {"A": f32})         # the same expression
    select(i - 1 >= 0 and 4 - i >= 0, A[i], 0.0)    # a test of positions: lazy
    where(A[i] < 0.0, exp(A[i]), cast("f32", index(i + 1)))
    A[at(ids[i], 5)]                                # a position in memory, clamped into 0 .. 4

A float literal is f32; other constants name their type: `f64(0.5)`, `i32(3)`, `f32("inf")`, or
take it from the other operand. Used by the texts of tensor expressions and of loops.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from minidlc.expr.functions import FUNCTIONS
from minidlc.expr.index import Cond, Index, Var, maximum, minimum
from minidlc.expr.nodes import (
    REDUCTIONS,
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    IndexValue,
    Load,
    Reduce,
    Select,
    const,
)
from minidlc.expr.source import Source, parse_python
from minidlc.expr.types import DTYPES, DType, TensorType, bool_, dtype, f32, i64
from minidlc.expr.walk import at
from minidlc.support.errors import CompileError, LoweringError, nearest

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.BitAnd: "&", ast.BitOr: "|",
    ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
_ON_POSITIONS: dict[type[ast.AST], Callable[[Index, Index], Index]] = {
    ast.Add: Index.__add__, ast.Sub: Index.__sub__, ast.Mult: Index.__mul__,
    ast.FloorDiv: Index.__floordiv__, ast.Mod: Index.__mod__,
}  # fmt: skip
_WORDS = ("select", "where", "cast", "index", "at", "min", "max", *DTYPES, *FUNCTIONS)


def parse_expr(
    text: str,
    types: Mapping[str, DType],
    like: DType | None = None,
    variables: Collection[str] | None = None,
) -> Expr:
    """Read one expression; `types` are the buffers, `like` the type of a bare constant.

    `variables` are the loop variables in scope (None: any name). ParseError with the place.
    """
    node, source = parse_python(text, "<expr>", mode="eval")
    with source.reading():
        return ExprReader(source, types, variables).value(node, like)


def parse_index(text: str) -> Index:
    """Read one position, such as `14*io + min(ii, 3)`; ParseError with the place."""
    node, source = parse_python(text, "<index>", mode="eval")
    with source.reading():
        return ExprReader(source, {}).index(node)


@dataclass
class ExprReader:
    """Turns `ast` nodes into expressions; `types` and `variables` are what is in scope."""

    source: Source
    types: Mapping[str, DType]
    variables: Collection[str] | None = None

    # ---- positions ------------------------------------------------------------------------

    def index(self, node: ast.expr) -> Index:
        """A position; what is no affine integer expression is a ParseError (MDLC0322)."""
        try:
            return self._index(node)
        except LoweringError as error:
            raise self.source.error(node, error.message, "MDLC0322", error.hint) from None

    def _index(self, node: ast.expr) -> Index:
        match node:
            case ast.Call(ast.Name("at"), [value, extent], []):
                return at(self.value(value, i64), self._extent(extent))
            case ast.Constant(int() as value) if not isinstance(value, bool):
                return Index.of(value)
            case ast.Name(name):
                return Index.of(self._variable(node, name))
            case ast.UnaryOp(ast.USub(), a):
                return -self.index(a)
            case ast.BinOp(a, op, b) if type(op) in _ON_POSITIONS:
                return _ON_POSITIONS[type(op)](self.index(a), self.index(b))
            case ast.Call(ast.Name("min" | "max" as name), [a, b], []):
                return (minimum if name == "min" else maximum)(self.index(a), self.index(b))
            case _:
                hint = "positions are made of integers, loop variables, + - * // % min max at"
                message = f"not a position: {ast.unparse(node)}"
                raise self.source.error(node, message, "MDLC0322", hint)

    def _extent(self, node: ast.expr) -> int:
        match node:
            case ast.Constant(int() as extent):
                return extent
            case _:
                message = f"the extent of an axis is a number, got {ast.unparse(node)}"
                raise self.source.error(node, message, "MDLC0322")

    def _variable(self, node: ast.expr, name: str) -> Var:
        if self.variables is not None and name not in self.variables:
            message = f"no loop variable {name!r} here"
            raise self.source.error(node, message, "MDLC0321", nearest(name, self.variables))
        return Var(name)

    def cond(self, node: ast.expr) -> Cond:
        """A conjunction of comparisons of positions: `i - 1 >= 0 and 4 - i >= 0`."""
        match node:
            case ast.Constant(True):
                return Cond(())
            case ast.BoolOp(ast.And(), parts):
                return Cond(tuple(e for part in parts for e in self.cond(part).ge))
            case ast.Compare(a, [op], [b]) if isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
                x, y = self.index(a), self.index(b)
                match op:
                    case ast.Lt():
                        return x < y
                    case ast.LtE():
                        return x <= y
                    case ast.Gt():
                        return x > y
                    case ast.GtE():
                        return x >= y
            case _:
                pass
        hint = "conditions look like: i - 1 >= 0 and i < 4"
        message = f"not a condition on positions: {ast.unparse(node)}"
        raise self.source.error(node, message, "MDLC0323", hint)

    # ---- types ----------------------------------------------------------------------------

    def tensor_type(self, node: ast.expr | None, at: ast.AST | None = None) -> TensorType:
        """A type such as `f32[4, 8]`, `f32["N", 784]`, `f32[()]`; else ParseError (MDLC0324)."""
        match node:
            case ast.Subscript(ast.Name(name), dims) if name in DTYPES:
                given = dims.elts if isinstance(dims, ast.Tuple) else [dims]
                return TensorType(DTYPES[name], tuple(self._dim(d) for d in given))
            case _:
                text = "nothing" if node is None else ast.unparse(node)
                message = f"expected a type such as f32[4, 8], got {text}"
                raise self.source.error(node or at, message, "MDLC0324")

    def _dim(self, node: ast.expr) -> int | Index:
        match node:
            case ast.Constant(int() as n) if n >= 0 and not isinstance(n, bool):
                return n
            case ast.Constant(str() as text):
                try:
                    dim = parse_index(text)
                except CompileError as error:
                    raise self.source.error(node, error.message, "MDLC0324", error.hint) from None
                return dim.const if dim.is_const else dim
            case _:
                message = f"not a dimension: {ast.unparse(node)}"
                hint = 'a dimension is an integer >= 0 or a quoted expression such as "N"'
                raise self.source.error(node, message, "MDLC0324", hint)

    def _dtype(self, node: ast.expr) -> DType:
        match node:
            case ast.Constant(str() as name) if name in DTYPES:
                return dtype(name)
            case _:
                message = f"not an element type: {ast.unparse(node)}"
                hint = f"one of {', '.join(DTYPES)}, in quotes"
                raise self.source.error(node, message, "MDLC0324", hint)

    # ---- values ---------------------------------------------------------------------------

    def value(self, node: ast.expr, like: DType | None = None) -> Expr:
        """A scalar value; a bare constant takes the type `like`, or f32 or i64 without one."""
        match node:
            case ast.Constant(value) if isinstance(value, (bool, int, float)):
                return self._literal(node, value, like)
            case ast.UnaryOp(ast.USub(), ast.Constant(value)) if isinstance(value, (int, float)):
                return self._literal(node, -value, like)
            case ast.UnaryOp(ast.USub(), a):
                return -self.value(a, like)
            case ast.Subscript(ast.Name(buffer), index):
                return self._load(node, buffer, index)
            case ast.BinOp(a, op, b) if type(op) in _OPERATORS:
                x, y = self._pair(node, a, b, like)
                return self._binary(node, _OPERATORS[type(op)], x, y)
            case ast.Compare(a, [op], [b]) if type(op) in _OPERATORS:
                return Compare(_OPERATORS[type(op)], *self._pair(node, a, b, None))
            case ast.Call(ast.Name(name)):
                return self._call(node, name, like)
            case ast.Name(name) if self.variables is None or name in self.variables:
                hint = f"write index({name}) for a position as a value"
                raise self.source.error(node, f"{name!r} is not a value", "MDLC0320", hint)
            case ast.Name(name):
                hint = nearest(name, [*self.types, *(self.variables or ())])
                raise self.source.error(node, f"unknown name {name!r}", "MDLC0321", hint)
            case _:
                message = f"not a scalar expression: {ast.unparse(node)}"
                raise self.source.error(node, message, "MDLC0320")

    def _literal(self, node: ast.expr, value: float | bool, like: DType | None) -> Const:
        if isinstance(value, bool):
            type = bool_
        else:
            type = like or (f32 if isinstance(value, float) else i64)
        if type == bool_ and not isinstance(value, bool):
            raise self.source.error(node, f"{value!r} is not a bool", "MDLC0325", "True or False")
        if isinstance(value, float) and type.is_integer:
            message = f"{value!r} is not a constant of type {type}"
            raise self.source.error(node, message, "MDLC0325")
        if type.is_integer and not _least(type) <= value < _least(type) + 2**type.bits:
            raise self.source.error(node, f"{value!r} does not fit {type}", "MDLC0325")
        return const(value, type)

    def _load(self, node: ast.expr, buffer: str, index: ast.expr) -> Load:
        if buffer not in self.types:
            message = f"unknown buffer {buffer!r}"
            raise self.source.error(node, message, "MDLC0321", nearest(buffer, self.types))
        return Load(buffer, self.indices(index), self.types[buffer])

    def indices(self, index: ast.expr) -> tuple[Index, ...]:
        """What stands between [ and ]: one position for each axis."""
        given = index.elts if isinstance(index, ast.Tuple) else [index]
        return tuple(self.index(e) for e in given)

    def _pair(
        self, node: ast.expr, a: ast.expr, b: ast.expr, like: DType | None
    ) -> tuple[Expr, Expr]:
        """Two operands of one type: a bare constant takes the type of the other side."""
        if _is_literal(a):
            y = self.value(b, like)
            x = self.value(a, y.dtype)
        else:
            x = self.value(a, None if _is_literal(b) else like)
            y = self.value(b, x.dtype)
        if x.dtype != y.dtype:
            message = f"element types differ: {x.dtype} and {y.dtype}"
            hint = f'cast one side: cast("{x.dtype}", …)'
            raise self.source.error(node, message, "MDLC0325", hint)
        return x, y

    def _binary(self, node: ast.expr, op: str, x: Expr, y: Expr) -> Expr:
        if (
            (op == "/") > x.dtype.is_float
            or (op in ("<<", ">>") and not x.dtype.is_integer)
            or (op in ("&", "|", "^") and x.dtype.is_float)
        ):
            raise self.source.error(node, f"no operator {op} on {x.dtype}", "MDLC0325")
        return Binary(op, x, y)

    def _call(self, node: ast.Call, name: str, like: DType | None) -> Expr:
        args = node.args
        if name in REDUCTIONS and (node.keywords or len(args) == 1):
            return self._reduce(node, name, like)
        if node.keywords:
            raise self.source.error(node, f"{name} takes no keywords", "MDLC0326")
        match name, args:
            case "select", [cond, a, b]:
                return Select(self.cond(cond), *self._pair(node, a, b, like))
            case "where", [cond, a, b]:
                test = self.value(cond, bool_)
                if test.dtype != bool_:
                    raise self.source.error(cond, f"where tests a {test.dtype}", "MDLC0325")
                return Select(test, *self._pair(node, a, b, like))
            case "cast", [to, a]:
                return Cast(self._dtype(to), self.value(a))
            case "index", [a]:
                return IndexValue(self.index(a))
            case "min" | "max", [a, b]:
                return Binary(name, *self._pair(node, a, b, like))
            case _ if name in DTYPES and len(args) == 1:
                return self._constant(node, DTYPES[name], args[0])
            case _ if name in FUNCTIONS and len(args) == FUNCTIONS[name].arity:
                return self._function(node, name, args, like)
            case _ if name in _WORDS:
                message = f"{name} does not take {len(args)} arguments"
                raise self.source.error(node, message, "MDLC0326")
            case _:
                hint = nearest(name, _WORDS)
                raise self.source.error(node, f"unknown function {name!r}", "MDLC0321", hint)

    def _constant(self, node: ast.expr, type: DType, arg: ast.expr) -> Const:
        match arg:
            case ast.Constant("inf" | "-inf" | "nan" as text) if type.is_float:
                return const(float(text), type)
            case ast.Constant() | ast.UnaryOp(ast.USub(), ast.Constant()):
                value = self.value(arg, type)
                if not isinstance(value, Const) or value.type != type:
                    message = f"{ast.unparse(arg)} is not a constant of type {type}"
                    raise self.source.error(node, message, "MDLC0325")
                return value
            case _:
                message = f"{type}(…) takes a number, got {ast.unparse(arg)}"
                hint = f'convert a value by cast("{type}", …)'
                raise self.source.error(node, message, "MDLC0326", hint)

    def _function(
        self, node: ast.expr, name: str, args: list[ast.expr], like: DType | None
    ) -> Call:
        like = None if FUNCTIONS[name].result == "bool" else like
        types = FUNCTIONS[name].types
        if types:
            return Call(name, tuple(map(self._typed, args, types)))
        if len(args) == 1:
            return Call(name, (self.value(args[0], like),))
        return Call(name, self._pair(node, args[0], args[1], like))

    def _typed(self, node: ast.expr, type: str) -> Expr:
        value = self.value(node, DTYPES[type])
        if value.dtype != DTYPES[type]:
            message = f"expected {type}, got {value.dtype}"
            raise self.source.error(node, message, "MDLC0325", f'cast("{type}", …)')
        return value

    def _reduce(self, node: ast.Call, name: str, like: DType | None) -> Reduce:
        axes: list[tuple[str, int]] = []
        for keyword in node.keywords:
            match keyword:
                case ast.keyword(str() as axis, ast.Constant(int() as extent)):
                    axes.append((axis, extent))
                case _:
                    message = f"a reduction axis is written name=extent: {ast.unparse(keyword)}"
                    raise self.source.error(keyword, message, "MDLC0326")
        if len(node.args) != 1:
            message = f"{name} over axes takes one expression"
            raise self.source.error(node, message, "MDLC0326")
        outer, inner = self.variables, {axis for axis, _ in axes}
        self.variables = None if outer is None else {*outer, *inner}
        try:
            return Reduce(name, self.value(node.args[0], like), tuple(axes))
        finally:
            self.variables = outer


def _is_literal(node: ast.expr) -> bool:
    """A bare number, which takes its type from the context."""
    match node:
        case ast.Constant() | ast.UnaryOp(ast.USub(), ast.Constant()):
            return True
        case _:
            return False


def _least(type: DType) -> int:
    """The smallest integer of an integer type."""
    return -(2 ** (type.bits - 1)) if type.kind == "int" else 0
