"""Recognising a reduction across the lanes of a vectorised loop: `S[i] = S[i] + e`.

    reduction_operand(store)                        # ('+', e), or None

Treated in course chapter 05_codegen.
"""

from __future__ import annotations

from minidlc.expr.nodes import Binary, Expr, Load, walk
from minidlc.loop.nodes import Store

_ASSOCIATIVE = ("+", "*", "min", "max", "&", "|", "^")


def reduction_operand(s: Store) -> tuple[str, Expr] | None:
    """`(op, e)` if the store is `S[i] = op(S[i], e)` and `e` does not read S; else None.

    A chain `(S[i] + a) + b` counts as `S[i] + (a + b)`.
    """
    if not isinstance(s.value, Binary) or s.value.op not in _ASSOCIATIVE:
        return None
    op, rest = s.value.op, _without(s.value, s.value.op, s)
    return None if rest is None else (op, rest)


def _without(e: Binary, op: str, s: Store) -> Expr | None:
    """`e` without its one operand `S[i]`; None if that is not how S occurs."""
    for this, other in ((e.a, e.b), (e.b, e.a)):
        if _reads(other, s.buffer):
            continue
        if isinstance(this, Load) and this.buffer == s.buffer:
            return other if this.index == s.index else None
        if isinstance(this, Binary) and this.op == op:
            inner = _without(this, op, s)
            if inner is not None:
                return Binary(op, inner, other)
    return None


def _reads(e: Expr, buffer: str) -> bool:
    return any(isinstance(n, Load) and n.buffer == buffer for n in walk(e))
