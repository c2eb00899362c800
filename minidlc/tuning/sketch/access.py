"""How the loops of a stage walk through memory: the distance of neighbours along each axis.

    stride("i", load, (64, 512))                    # 512 for A[i, k]
    distance(512)                                   # '512 elements apart'

Reads tensor expressions, changes nothing. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from minidlc.expr.index import Var
from minidlc.expr.nodes import Expr, Load
from minidlc.expr.walk import values_in
from minidlc.loop.regions import loads
from minidlc.schedules.offsets import offset
from minidlc.te.stage import State


def variables(load: Load) -> frozenset[str]:
    """Names of the axes that a load depends on."""
    return frozenset(v.name for e in load.index for v in e.vars())


def stride(axis: str, load: Load, dims: Sequence[int]) -> int | None:
    """Elements between what neighbours along `axis` read; 0: the same, None: not always as far."""
    if any(values_in(e) for e in load.index):
        return None
    where, var = offset(load, dims), Var(axis)
    step = where.coefficient(var)
    return None if var in (where - step * var).vars() else step


def stored_apart(shape: Sequence[int], place: int) -> int:
    """Elements between what neighbours along axis number `place` store."""
    return math.prod(shape[place + 1 :])


def distance(step: int | None) -> str:
    """A stride in words."""
    if step is None:
        return "looked up, or not always as far"
    words = {0: "one element for all lanes", 1: "side by side"}
    return words.get(step, f"{step} elements apart")


def reads(state: State, body: Expr) -> Mapping[Load, Sequence[int]]:
    """Each load of a body once, and the shape of what it reads."""
    return {e: state.type_of(e.buffer).dims for e in loads(body)}


def near(vectors: Sequence[int], lanes: int, extent: int) -> tuple[int, ...]:
    """Sizes of so many vectors, in elements, that are not larger than an extent needs."""
    found = tuple(n * lanes for n in vectors if (n - 1) * lanes < extent)
    return found or (lanes,)
