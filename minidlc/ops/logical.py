"""Comparisons, logic on bool, and bit operations on integers; inputs broadcast as in NumPy.

    x < 0.0                                         # less: a bool tensor
    apply("logical_and", p, q)

Comparisons with NaN are False. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from minidlc.expr.nodes import Expr, binary, compare, const, select
from minidlc.expr.types import bool_, dtype
from minidlc.graph.op import Example, register_op
from minidlc.ops import rules, samples
from minidlc.ops.elementwise import Elementwise
from minidlc.ops.rules import Values

_NUMPY = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
}


@dataclass(frozen=True)
class Comparison(Elementwise):
    """Base: `a symbol b`, a bool."""

    symbol: ClassVar[str]
    result = bool_

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return compare(self.symbol, a, b)

    def numpy(self, a: Values, b: Values) -> Values:
        return _NUMPY[self.symbol](a, b)


@register_op
@dataclass(frozen=True)
class Less(Comparison):
    """less(a, b)[i] = a[i] < b[i]."""

    onnx = "Less"
    symbol = "<"


@register_op
@dataclass(frozen=True)
class LessOrEqual(Comparison):
    """less_or_equal(a, b)[i] = a[i] <= b[i]."""

    onnx = "LessOrEqual"
    symbol = "<="


@register_op
@dataclass(frozen=True)
class Greater(Comparison):
    """greater(a, b)[i] = a[i] > b[i]."""

    onnx = "Greater"
    symbol = ">"


@register_op
@dataclass(frozen=True)
class GreaterOrEqual(Comparison):
    """greater_or_equal(a, b)[i] = a[i] >= b[i]."""

    onnx = "GreaterOrEqual"
    symbol = ">="


@register_op
@dataclass(frozen=True)
class Equal(Comparison):
    """equal(a, b)[i] = a[i] == b[i]; NaN equals nothing."""

    onnx = "Equal"
    symbol = "=="
    takes = (*rules.NUMBERS, "bool")


@dataclass(frozen=True)
class Bits(Elementwise):
    """Base: one machine instruction on the bits."""

    symbol: ClassVar[str]
    takes = rules.INTEGERS

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return binary(self.symbol, a, b)

    def numpy(self, a: Values, b: Values) -> Values:
        return _NUMPY[self.symbol](a, b)


@register_op
@dataclass(frozen=True)
class LogicalAnd(Bits):
    """logical_and(a, b)[i] = a[i] and b[i], of bool."""

    onnx = "And"
    symbol = "&"
    takes = ("bool",)


@register_op
@dataclass(frozen=True)
class LogicalOr(Bits):
    """logical_or(a, b)[i] = a[i] or b[i], of bool."""

    onnx = "Or"
    symbol = "|"
    takes = ("bool",)


@register_op
@dataclass(frozen=True)
class LogicalXor(Bits):
    """logical_xor(a, b)[i] = a[i] != b[i], of bool."""

    onnx = "Xor"
    symbol = "^"
    takes = ("bool",)


@register_op
@dataclass(frozen=True)
class BitwiseAnd(Bits):
    """bitwise_and(a, b)[i] = a[i] & b[i]."""

    onnx = "BitwiseAnd"
    symbol = "&"


@register_op
@dataclass(frozen=True)
class BitwiseOr(Bits):
    """bitwise_or(a, b)[i] = a[i] | b[i]."""

    onnx = "BitwiseOr"
    symbol = "|"


@register_op
@dataclass(frozen=True)
class BitwiseXor(Bits):
    """bitwise_xor(a, b)[i] = a[i] ^ b[i]."""

    onnx = "BitwiseXor"
    symbol = "^"


@dataclass(frozen=True)
class Shift(Elementwise):
    """Base: bits moved by b[i] places; moved by the width or more, nothing is left: 0."""

    symbol: ClassVar[str]
    takes = ("uint",)

    def scalar(self, a: Expr, b: Expr) -> Expr:
        inside = compare("<", b, const(a.dtype.bits, b.dtype))
        return select(inside, binary(self.symbol, a, b), 0)

    def numpy(self, a: Values, b: Values) -> Values:
        bits = dtype(a.dtype).bits
        places = np.minimum(b, b.dtype.type(bits - 1))
        moved = a << places if self.symbol == "<<" else a >> places
        return np.where(b < bits, moved, np.zeros_like(a)).astype(a.dtype)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Places from 0 to beyond the width."""
        for name in ("u8", "u32", "u64"):
            values = samples.special(name)
            places = np.array([0, 1, 3, 7, 8, 31, 32, 63, 64, 255]).astype(values.dtype)
            yield Example(cls(), (values.reshape(-1, 1), places), 0, 0)


@register_op
@dataclass(frozen=True)
class ShiftLeft(Shift):
    """shift_left(a, b)[i] = a[i] << b[i], of unsigned integers; bits that leave are lost."""

    symbol = "<<"


@register_op
@dataclass(frozen=True)
class ShiftRight(Shift):
    """shift_right(a, b)[i] = a[i] >> b[i], of unsigned integers."""

    symbol = ">>"
