"""The rule set `algebra`: laws that lead both ways, for `saturate` and not for a rewriter.

    minidlc opt --passes "saturate{rules='algebra'}" g.dlc

a + b = b + a never ends in a rewriter. In an e-graph it makes one more e-node and is done. Sums and
products are regrouped, so floats are rounded otherwise. Treated in course chapter 02_frontend_opt.
"""

# Rules are lambdas over holes, which stand for values of any kind: nothing to infer from.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Value
from minidlc.ops import functional
from minidlc.transform.rules.rules import Rule, rule_set

Verdict: TypeAlias = "bool | str"  # True, or the reason against

transpose = functional("transpose")


@rule_set("algebra")
def algebra_rules() -> tuple[Rule, ...]:
    """One law a line; `saturate` reads each of them in both directions where it can."""
    return (
        *map(commutes, ("add", "mul")),
        *map(associates, ("add", "mul")),
        Rule("factor", lambda a, b, c: a * c + b * c, lambda a, b, c: (a + b) * c, alike),
        Rule("factor-neg", lambda a, b: -a + -b, lambda a, b: -(a + b)),
        Rule("double", lambda x: x + x, lambda x: x * 2, when=takes_numbers),
        Rule("matmul-left", lambda a, b, c: a @ c + b @ c, lambda a, b, c: (a + b) @ c, alike),
        Rule("matmul-right", lambda a, b, c: c @ a + c @ b, lambda a, b, c: c @ (a + b), alike),
        Rule("matmul-chain", lambda a, b, c: (a @ b) @ c, lambda a, b, c: a @ (b @ c), no_vector),
        Rule("scale-left", lambda x, w, s: (x * s) @ w, lambda x, w, s: (x @ w) * s, scalar),
        Rule("scale-right", lambda x, w, s: x @ (w * s), lambda x, w, s: (x @ w) * s, scalar),
        Rule("matmul-of-transposes", both_transposed, transposed_product, when=matrices),
    )


def commutes(op: str) -> Rule:
    """f(a, b) = f(b, a)."""
    f: Callable[..., Any] = functional(op)
    return Rule(f"{op}-commutes", lambda a, b: f(a, b), lambda a, b: f(b, a))


def associates(op: str) -> Rule:
    """f(f(a, b), c) = f(a, f(b, c))."""
    f: Callable[..., Any] = functional(op)
    return Rule(f"{op}-associates", lambda a, b, c: f(f(a, b), c), lambda a, b, c: f(a, f(b, c)))


def both_transposed(a: Any, b: Any, p: Any) -> Any:
    """Pattern: a product of two matrices, both transposed."""
    return transpose(a, perm=p) @ transpose(b, perm=p)


def transposed_product(a: Any, b: Any, p: Any) -> Any:
    """Replacement: A' B' = (B A)'."""
    return transpose(b @ a, perm=p)


def alike(a: Value, b: Value) -> Verdict:
    """Condition: what is added has one type, so that no axis is repeated."""
    return a.type == b.type or f"{a.type} and {b.type} differ"


def takes_numbers(x: Value) -> Verdict:
    """Condition: 2 is a value of the element type."""
    known = isinstance(x.type, TensorType) and x.type.dtype.kind != "bool"
    return known or "bools have no 2"


def no_vector(b: Value) -> Verdict:
    """Condition: the one in the middle has rows and columns.

    With a vector there, (A v) C is a row times C, and A (v C) is another vector of that size.
    """
    matrix = isinstance(b.type, TensorType) and b.type.rank >= 2
    return matrix or f"{b.type} is a vector: a row on one side, a column on the other"


def scalar(s: Value) -> Verdict:
    """Condition: one number, the same for all terms of the sum."""
    return (isinstance(s.type, TensorType) and s.type.rank == 0) or f"{s.type} is not one number"


def matrices(a: Value, b: Value, p: tuple[int, ...] | None) -> Verdict:
    """Condition: rank 2, rows and columns exchanged."""
    ranks = [v.type.rank for v in (a, b) if isinstance(v.type, TensorType)]
    if ranks != [2, 2]:
        return f"{a.type} and {b.type} are no matrices"
    return p in (None, (1, 0)) or "its axes stay in place"
