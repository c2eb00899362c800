"""How a stage walks through memory: which axes its reads run along, and which may be one loop.

    offset(load, (4, 8))                            # x[i, j] of f32[4, 8]: the position 8*i + j
    runs_on(sch, y, "i", "j", 8)                    # True for y[i, j] = x[i, j] + 1
    along(sch, y, load)                             # 'i' for y[i, j] = x[j, i]: its neighbours

Reads tensor expressions under a schedule, changes nothing; pointwise, row and transpose schedules
decide by it. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minidlc.expr.index import Index, Var, simplify
from minidlc.expr.nodes import Expr, Load
from minidlc.expr.walk import indices, walk
from minidlc.loop.regions import loads
from minidlc.target import Target
from minidlc.te import Schedule, Tensor


def offset(load: Load, dims: Sequence[int]) -> Index:
    """The element that a load reads, counted from the first of its buffer."""
    total, step = Index.of(0), 1
    for position, size in zip(reversed(load.index), reversed(tuple(dims)), strict=True):
        total, step = total + step * position, step * size
    return simplify(total, {})  # 7*(k//7) + k%7 is k


def body_of(sch: Schedule, stage: Tensor | str) -> Expr:
    """The expression of a stage as it is now: other stages may have been inlined into it."""
    return sch.state.stage(stage if isinstance(stage, str) else stage.name).body


def runs_on(sch: Schedule, stage: Tensor, outer: str, inner: str, extent: int) -> bool:
    """Whether all reads of a stage go on in memory where `inner` ends and `outer` steps.

    `extent` is that of `inner`. Then both may be one loop, and its vectors cross the border.
    """
    body = body_of(sch, stage)
    dims = {e.buffer: sch.state.type_of(e.buffer).dims for e in loads(body)}
    return goes_on(body, dims, outer, inner, extent)


def goes_on(
    body: Expr, dims: Mapping[str, Sequence[int]], outer: str, inner: str, extent: int
) -> bool:
    """`runs_on` for an expression; `dims` are the shapes of what it reads."""
    a, b = Var(outer), Var(inner)
    for e in walk(body):
        if isinstance(e, Load):
            where = offset(e, dims[e.buffer])
            rest = where - where.coefficient(a) * a - where.coefficient(b) * b
            if where.coefficient(a) != extent * where.coefficient(b) or {a, b} & rest.vars():
                return False
        elif any({a, b} & index.vars() for index in indices(e)):
            return False
    return True


def along(sch: Schedule, stage: Tensor, load: Load) -> str | None:
    """The axis of a stage along which a load reads neighbours; None if there is none."""
    where = offset(load, sch.state.type_of(load.buffer).dims)
    for axis in reversed(stage.axes):
        rest = where - where.coefficient(Var(axis)) * Var(axis)
        if where.coefficient(Var(axis)) == 1 and Var(axis) not in rest.vars():
            return axis
    return None


def vector_lanes(sch: Schedule, stage: Tensor | str, target: Target) -> int:
    """Elements in a vector of the widest type that the stage computes with."""
    types = [e.dtype for e in walk(body_of(sch, stage))]
    return target.lanes(max(t.bits for t in types))
