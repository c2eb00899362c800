"""Which instructions of the machine compute an anchor: found in its body, or the reason why none.

    match_dot4(body, shapes, "j", {"A", "B"})       # Match("k", packed=(("B", 0),))
    match_dot4(body, …)                             # 'the products are of f32 and f32, not …'

dot4 adds four products of a u8 and an i8 to an i32 (te/intrinsics.py). The four bytes of each
operand have to lie side by side; where they do not, a copy is packed by fours.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from minidlc.expr.index import Index, Var
from minidlc.expr.nodes import Binary, Cast, Expr, Load, Reduce
from minidlc.expr.types import i8, i32, u8
from minidlc.tuning.sketch.access import stride, variables

Shapes = Mapping[Load, Sequence[int]]


@dataclass(frozen=True)
class Match:
    """An intrinsic over the reduction `axis`; `packed`: (operand, its dimension of that axis)."""

    axis: str
    packed: tuple[tuple[str, int], ...]


def match_dot4(body: Expr, shapes: Shapes, vector: str, given: Container[str]) -> Match | str:
    """How dot4 computes the sums of a body in lanes along `vector`; or why it cannot."""
    factors = _factors(body)
    if isinstance(factors, str):
        return factors
    assert isinstance(body, Reduce)
    why = "nothing is added up"
    for axis, extent in reversed(body.axes):
        if extent < 4:
            why = f"{axis} runs {extent} times, not 4 or more"
            continue
        packed = list[tuple[str, int]]()
        why = ""
        for load in factors:
            if vector not in variables(load) and stride(axis, load, shapes[load]) == 1:
                continue
            dim = _plain_dimension(axis, load)
            why = why or _why_not_packed(load, dim, axis, vector, given)
            packed.append((load.buffer, dim))
        if not why:
            return Match(axis, tuple(packed))
    return why


def _factors(body: Expr) -> tuple[Load, Load] | str:
    """The u8 and the i8 that are multiplied; or what the body is instead."""
    match body:
        case Reduce("sum", Binary("*", Cast(one, Load() as a), Cast(other, Load() as b))):
            if one == other == i32 and {a.dtype, b.dtype} == {u8, i8}:
                return a, b
            return f"products are of {a.dtype} and {b.dtype} in {one}, not of u8 and i8 in i32"
        case Reduce("sum", Binary("*", a, b)):
            return f"products are of {a.dtype} and {b.dtype}, not of u8 and i8 cast to i32"
        case Reduce("sum"):
            return "what is added up is no product"
        case Reduce(op):
            return f"the reduction is a {op}, not a sum"
        case _:
            return "nothing is added up"


def _plain_dimension(axis: str, load: Load) -> int:
    """The dimension that an axis numbers by itself, and no other depends on; -1 if none."""
    places = [d for d, e in enumerate(load.index) if Var(axis) in e.vars()]
    alone = len(places) == 1 and load.index[places[0]] == Index.of(Var(axis))
    return places[0] if alone else -1


def _why_not_packed(load: Load, dim: int, axis: str, vector: str, given: Container[str]) -> str:
    if dim < 0:
        return f"{load.buffer} is no plain row along {axis}: fours of it cannot be packed"
    if load.buffer not in given:
        return f"{load.buffer} is computed here, in the order of its own loops"
    last = [e for d, e in enumerate(load.index) if d != dim][-1:]
    if vector in variables(load) and last != [Index.of(Var(vector))]:
        return f"neighbours along {vector} do not lie side by side in {load.buffer}"
    return ""
