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

from minidlc.expr.nodes import Expr, binary, compare
from minidlc.expr.types import bool_
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
    "<<": np.left_shift,
    ">>": np.right_shift,
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
    takes = rules.ANY


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
class Shift(Bits):
    """Base: bits moved by b[i] places; by less than 0 or by the width or more, none is left.

    Then the result is 0, or -1 where a negative integer went right: its sign moves in.
    """

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Places from 0 to beyond the width, and negative ones."""
        for name in ("u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"):
            values = samples.special(name)
            given = [0, 1, 3, 7, 8, 15, 31, 32, 63, 64, 127, *([-1, -8] if name[0] == "i" else ())]
            places = np.array(given).astype(values.dtype)
            yield Example(cls(), (values.reshape(-1, 1), places), 0, 0)


@register_op
@dataclass(frozen=True)
class ShiftLeft(Shift):
    """shift_left(a, b)[i] = a[i] << b[i]; bits that leave are lost."""

    symbol = "<<"


@register_op
@dataclass(frozen=True)
class ShiftRight(Shift):
    """shift_right(a, b)[i] = a[i] >> b[i]; the sign of a signed integer moves in."""

    symbol = ">>"
