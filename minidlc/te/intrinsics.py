"""What `tensorize` and `prefetch` make of a loop while it is lowered.

    for u in unrolled(0, 4):                        # tensorize(C, u, "dot4")
        C[i, j] = C[i, j] + cast("i32", A[i, 4*k + u]) * cast("i32", B[k, j, u])
    C[i, j] = dot4(C[i, j], A[i, 4*k], …, A[i, 4*k + 3], B[k, j, 0], …, B[k, j, 3])

Reads a loop, writes a statement. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from dataclasses import replace

from minidlc.expr.index import Cond, Index, Var, substitute
from minidlc.expr.nodes import Binary, Cast, Expr, Load, call
from minidlc.expr.types import i8, i32, u8
from minidlc.expr.walk import map_indices
from minidlc.loop.nodes import Alloc, For, If, Kind, Stmt, Store, block, values, walk
from minidlc.loop.regions import loads
from minidlc.support.errors import ScheduleError
from minidlc.te.stage import Stage

INTRINSICS = ("dot4",)
_BYTES = 4


def hinted(stage: Stage, leaf: str, loop: For) -> Stmt:
    """The loop of a leaf with what the stage says about it; ScheduleError (MDLC0634) if unfit."""
    ahead = tuple((name, n) for where, name, n in stage.prefetches if where == leaf)
    if ahead and loop.kind not in (Kind.SERIAL, Kind.PARALLEL):
        raise ScheduleError(
            f"{leaf!r} is {loop.kind}: only the iterations of a loop that stays one prefetch",
            hint="prefetch in a loop outside",
            code="MDLC0634",
        )
    for name, _ in ahead:
        _check_ahead(name, leaf, loop)
    loop = replace(loop, prefetch=ahead) if ahead else loop
    if stage.intrinsic is None or stage.intrinsic[0] != leaf:
        return loop
    if stage.leaves[-1] != leaf:
        raise _unfit(leaf, f"{stage.leaves[-1]!r} lies inside it")
    return _dot4(loop, leaf)


def _check_ahead(name: str, leaf: str, loop: For) -> None:
    """Refuse to fetch what no later iteration finds where this one would look for it."""
    inside = list(walk(loop.body))
    why = "nothing inside it reads it"
    if any(isinstance(s, Alloc) and s.buffer == name for s in inside):
        why = "each iteration computes its own"
    elif any(load.buffer == name for s in inside for e in values(s) for load in loads(e)):
        return
    raise ScheduleError(
        f"{leaf!r} cannot prefetch {name!r}: {why}",
        hint=f"compute {name!r} outside {leaf!r}, or prefetch what it reads",
        code="MDLC0634",
    )


def _dot4(loop: For, leaf: str) -> Stmt:
    """Four iterations as one call; where they may be fewer, the loop stays beside it."""
    extent = loop.extent
    if extent.is_const and extent.const < _BYTES:
        return loop
    match loop.body:
        case Store(buffer, index, Binary("+", Load(read, place) as total, Binary("*", x, y))) if (
            read == buffer and place == index and all(loop.var not in e.vars() for e in index)
        ):
            pass
        case _:
            raise _unfit(leaf, "its body is no sum of products S = S + a * b")
    a, b = _bytes(x, y, leaf)
    factors = [_at(e, loop.var, n) for e in (a, b) for n in range(_BYTES)]
    one = replace(loop.body, value=call("dot4", total, *factors))
    if extent == Index.of(_BYTES):
        return one
    if extent.is_const:
        raise _unfit(leaf, f"it runs {extent} times, not {_BYTES}")
    full, fewer = extent - _BYTES, (_BYTES - 1) - extent
    return block(If(Cond((full,)), one), If(Cond((fewer,)), loop))


def _bytes(x: Expr, y: Expr, leaf: str) -> tuple[Expr, Expr]:
    """The u8 and the i8 of a product of both, converted to i32."""
    match x, y:
        case Cast(to, Load() as a), Cast(same, Load() as b) if to == same == i32:
            if (a.dtype, b.dtype) == (u8, i8):
                return a, b
            if (a.dtype, b.dtype) == (i8, u8):
                return b, a
        case _:
            pass
    raise _unfit(leaf, "its products are not of a u8 and an i8, both cast to i32")


def _at(e: Expr, var: Var, value: int) -> Expr:
    return map_indices(e, lambda index: substitute(index, {var: Index.of(value)}))


def _unfit(leaf: str, why: str) -> ScheduleError:
    return ScheduleError(f"{leaf!r} cannot be dot4: {why}", code="MDLC0634")
