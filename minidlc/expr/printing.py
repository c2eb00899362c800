"""Scalar expressions written as text: the subset of Python that expr/text.py reads back.

    print_expr(Load("A", (i, k), f32) * 0.5)        # 'A[i, k] * 0.5'
    print_expr(Const(0.5, f64))                     # 'f64(0.5)': a bare float is f32

Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import math

from minidlc.expr.index import Cond
from minidlc.expr.nodes import (
    COMPARISONS,
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
)
from minidlc.expr.types import bool_, f32

_SUMS, _PRODUCTS = ("+", "-"), ("*", "/")


def print_expr(e: Expr) -> str:
    """The text of an expression; `parse_expr` reads it back to an equal one."""
    match e:
        case Const():
            return _print_const(e)
        case IndexValue(index):
            return f"index({index})"
        case Load(buffer, index, _):
            return f"{buffer}[{', '.join(map(str, index)) or '()'}]"
        case Binary("min" | "max" as op, a, b):
            return f"{op}({print_expr(a)}, {print_expr(b)})"
        case Binary(op, a, b) | Compare(op, a, b):
            return f"{_print_operand(a, op, False)} {op} {_print_operand(b, op, True)}"
        case Select(cond, a, b):
            word = "select" if isinstance(cond, Cond) else "where"
            test = str(cond) if isinstance(cond, Cond) else print_expr(cond)
            return f"{word}({test}, {print_expr(a)}, {print_expr(b)})"
        case Call(fn, args):
            return f"{fn}({', '.join(map(print_expr, args))})"
        case Cast(type, a):
            return f'cast("{type}", {print_expr(a)})'
        case Reduce(op, body, axes):
            named = "".join(f", {name}={extent}" for name, extent in axes)
            return f"{op}({print_expr(body)}{named})"


def _print_const(e: Const) -> str:
    if e.type == bool_:
        return str(bool(e.value))
    if e.type.is_float and not math.isfinite(e.value):
        return f'{e.type}("{float(e.value)}")'
    value = float(e.value) if e.type.is_float else int(e.value)
    return repr(value) if e.type == f32 else f"{e.type}({value!r})"


def _print_operand(e: Expr, op: str, right: bool) -> str:
    """Operands in parentheses unless Python groups them the same way without."""
    text = print_expr(e)
    if not isinstance(e, (Binary, Compare)) or e.op in ("min", "max"):
        return text
    if isinstance(e, Binary) and op in COMPARISONS:
        return text
    if e.op in _PRODUCTS and (op in _SUMS or (op in _PRODUCTS and not right)):
        return text
    return text if e.op in _SUMS and op in _SUMS and not right else f"({text})"
