"""Scalar expressions: the values that tensor expressions and loops compute with.

A closed union of frozen records. Positions are `Index` (see expr/index.py), values are `Expr`;
the two meet in `Load` (a value at a position), `IndexValue` (a position as an i64 value) and
`Select` (a value chosen by conditions on positions).

    Load("A", (i, k), f32) * Load("B", (k, j), f32)
    Select(Cond((i - 1,)), Load("A", (i - 1,), f32), Const(0.0, f32))      # lazy: zero border

Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from minidlc.expr.functions import FUNCTIONS
from minidlc.expr.index import Cond, Index
from minidlc.expr.types import DType, bool_, f32, i64
from minidlc.support.errors import LoweringError

ARITHMETIC = ("+", "-", "*", "/", "min", "max")  # '/' on floats only; min and max: NaN wins
BITWISE = ("&", "|", "^", "<<", ">>")  # integers; & | ^ on bool as well
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
REDUCTIONS = ("sum", "max", "min", "prod")

Number: TypeAlias = int | float | bool


class ExprBase:
    """Operators shared by all expressions: `a + b`, `a * 2.0`, `-a`, `a < b` (a Compare).

    Not an ABC: those make isinstance, and so every `match` of a node, five times as slow.
    """

    __slots__ = ()

    @property
    def dtype(self) -> DType:
        """Element type of the value; every kind of node says its own."""
        raise NotImplementedError

    def __add__(self, other: Operand) -> Expr:
        return binary("+", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return binary("+", other, self)

    def __sub__(self, other: Operand) -> Expr:
        return binary("-", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return binary("-", other, self)

    def __mul__(self, other: Operand) -> Expr:
        return binary("*", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return binary("*", other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return binary("/", self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        return binary("/", other, self)

    def __neg__(self) -> Expr:
        if self.dtype.is_float:  # 0.0 - x would lose the sign of zero
            return binary("*", self, Const(-1.0, self.dtype))
        return binary("-", Const(0, self.dtype), self)

    def __lt__(self, other: Operand) -> Expr:
        return compare("<", self, other)

    def __le__(self, other: Operand) -> Expr:
        return compare("<=", self, other)

    def __gt__(self, other: Operand) -> Expr:
        return compare(">", self, other)

    def __ge__(self, other: Operand) -> Expr:
        return compare(">=", self, other)


@dataclass(frozen=True)
class Const(ExprBase):
    """A number of a given element type."""

    value: Number
    type: DType

    @property
    def dtype(self) -> DType:
        return self.type


@dataclass(frozen=True)
class IndexValue(ExprBase):
    """A position used as an i64 value; printed `index(i + 1)`."""

    index: Index

    @property
    def dtype(self) -> DType:
        return i64


@dataclass(frozen=True)
class Load(ExprBase):
    """The element of `buffer` at `index`."""

    buffer: str
    index: tuple[Index, ...]
    type: DType

    @property
    def dtype(self) -> DType:
        return self.type


@dataclass(frozen=True)
class Binary(ExprBase):
    """`a op b`, op in ARITHMETIC or BITWISE; both sides and the result have one element type."""

    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        return self.a.dtype


@dataclass(frozen=True)
class Compare(ExprBase):
    """`a op b`, op in COMPARISONS; the result is bool."""

    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        return bool_


@dataclass(frozen=True)
class Select(ExprBase):
    """`a` where `cond` holds, else `b`.

    Under a `Cond` (a test of positions) the side not taken is never loaded: borders rely on it.
    Under an `Expr` (a bool value) both sides may be evaluated; all their loads are in bounds.
    """

    cond: Cond | Expr
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        return self.a.dtype


@dataclass(frozen=True)
class Call(ExprBase):
    """A function of FUNCTIONS applied to arguments."""

    fn: str
    args: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        return bool_ if FUNCTIONS[self.fn].result == "bool" else self.args[0].dtype


@dataclass(frozen=True)
class Cast(ExprBase):
    """Conversion: float to int truncates and saturates, NaN gives 0; int to int wraps."""

    type: DType
    a: Expr

    @property
    def dtype(self) -> DType:
        return self.type


@dataclass(frozen=True)
class Reduce(ExprBase):
    """`op` in REDUCTIONS of `body` over axes (name, extent): the root of a tensor's body only.

    Printed `sum(A[i, k] * B[k, j], k=8)`.
    """

    op: str
    body: Expr
    axes: tuple[tuple[str, int], ...]

    @property
    def dtype(self) -> DType:
        return self.body.dtype


Expr: TypeAlias = Const | IndexValue | Load | Binary | Compare | Select | Call | Cast | Reduce
Operand: TypeAlias = "ExprBase | Number"


def const(value: Number, type: DType) -> Const:
    """A constant of an element type, its value converted to the matching Python type.

    LoweringError (MDLC0702) for 2.5 as an integer: nothing would say that it became 2.
    """
    if type.is_integer and isinstance(value, float) and not value.is_integer():
        hint = f'write a whole number, or cast the other side: te.cast("f32", …), not to {type}'
        raise LoweringError(f"{value} is no {type}", hint=hint, code="MDLC0702")
    convert = float if type.is_float else bool if type.kind == "bool" else int
    return Const(convert(value), type)


def wrap(thing: object, like: DType | None = None) -> Expr:
    """Make an Expr of an Expr, an Index or a Python number (a number takes the type `like`)."""
    if isinstance(thing, (Const, IndexValue, Load, Binary, Compare, Select, Call, Cast, Reduce)):
        return thing
    if isinstance(thing, Index):
        return IndexValue(thing)
    if isinstance(thing, bool):
        return Const(thing, like or bool_) if like is None else const(thing, like)
    if isinstance(thing, (int, float)):
        return const(thing, like or (f32 if isinstance(thing, float) else i64))
    raise LoweringError(f"not a scalar expression: {thing!r}", code="MDLC0702")


def _pair(a: object, b: object) -> tuple[Expr, Expr]:
    if isinstance(a, (int, float)):
        right = wrap(b)
        return wrap(a, right.dtype), right
    left = wrap(a)
    return left, wrap(b, left.dtype)


def binary(op: str, a: object, b: object) -> Expr:
    """Build `a op b`; element types must agree (LoweringError MDLC0702)."""
    left, right = _pair(a, b)
    if left.dtype != right.dtype:
        raise LoweringError(
            f"{op}: element types differ: {left.dtype} and {right.dtype}",
            hint=f"cast one side: te.cast({left.dtype}, …)",
            code="MDLC0702",
        )
    if op == "/" and not left.dtype.is_float:
        raise LoweringError(f"/ of {left.dtype}: use te.truncdiv", code="MDLC0702")
    return Binary(op, left, right)


def compare(op: str, a: object, b: object) -> Expr:
    """Build the comparison `a op b`, a bool value."""
    left, right = _pair(a, b)
    if left.dtype != right.dtype:
        message = f"{op}: element types differ: {left.dtype}, {right.dtype}"
        raise LoweringError(message, code="MDLC0702")
    return Compare(op, left, right)


def select(cond: Cond | Expr, a: object, b: object) -> Expr:
    """Build a Select; a number on one side takes the other side's type."""
    left, right = _pair(a, b)
    return Select(cond, left, right)


def call(fn: str, *args: Expr) -> Expr:
    """Build a call of FUNCTIONS[fn]."""
    if fn not in FUNCTIONS or len(args) != FUNCTIONS[fn].arity:
        raise LoweringError(f"no function {fn!r} of {len(args)} arguments", code="MDLC0702")
    return Call(fn, args)
