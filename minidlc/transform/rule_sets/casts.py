"""Rules of conversions: a cast that changes nothing, and chains whose first step loses nothing.

    cast(cast(x: f16, to=f32), to=f16) -> x             # widening, then narrowing
    cast(cast(x: f32, to=f16), to=f32) stays            # it rounds

A cast to a narrower float is a rounding that the model asked for; no rule drops one. Treated in
course chapter 02_frontend_opt.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from minidlc.expr.types import DType
from minidlc.graph.graph import Value, tensor_type
from minidlc.ops import functional
from minidlc.transform.dataflow.fact import limits
from minidlc.transform.rule_sets.conditions import Verdict
from minidlc.transform.rules.rules import Rule, rule_set

cast = functional("cast")

# bits of exact integers, and whether every number of the second type is one of the first
DIGITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
WIDER = {("f32", "f16"), ("f32", "bf16"), ("f64", "f16"), ("f64", "bf16"), ("f64", "f32")}


@rule_set("casts")
def cast_rules() -> tuple[Rule, ...]:
    """Exact rules of casts."""
    return (
        Rule("cast-to-same", lambda x, t: cast(x, to=t), lambda x: x, when=casts_to_own),
        Rule(
            "cast-of-cast",
            lambda x, t, u: cast(cast(x, to=t), to=u),
            lambda x, u: cast(x, to=u),
            when=loses_nothing,
        ),
    )


def casts_to_own(x: Value, t: DType) -> Verdict:
    """A cast to the element type that x has."""
    own = tensor_type(x).dtype
    return own == t or f"it converts {own} to {t}"


def loses_nothing(x: Value, t: DType, u: DType) -> Verdict:
    """Every element of x is one of type t; a later cast to u sees the same number.

    From float to integer a cast saturates, from integer to integer it wraps: where t is a float
    between two integer types, u must hold every element of x.
    """
    source = tensor_type(x).dtype
    if not holds(t, source):
        return f"the cast of {source} to {t} rounds or wraps"
    if source.is_integer and t.is_float and u.is_integer and not holds(u, source):
        return f"{t} to {u} saturates where {source} to {u} wraps"
    return True


def holds(wide: DType, narrow: DType) -> bool:
    """Every value of the type `narrow` is one of the type `wide`."""
    if wide == narrow or narrow.kind == "bool":
        return True
    if narrow.is_float or wide.kind == "bool":
        return (wide.name, narrow.name) in WIDER
    least, most = limits(narrow)
    if wide.is_float:
        return max(-least, most) <= 2 ** DIGITS[wide.name]
    low, high = limits(wide)
    return low <= least and most <= high
