"""What lowered loops must not be, because no machine code of that form exists.

    check_nesting(fn)               # loops and allocations inside vectorised and parallel loops
    check_registers(fn)             # positions in register buffers must become numbers
    check_unrolled(fn)              # the same number of copies every time

Reads loop IR, writes nothing; each finding is a ScheduleError that names the loop in the way.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from minidlc.expr.index import Index, Var
from minidlc.expr.nodes import Expr
from minidlc.expr.walk import values_in
from minidlc.loop.nodes import (
    Alloc,
    Block,
    For,
    If,
    Kind,
    LoopFunction,
    Scope,
    Stmt,
    Store,
    values,
    walk,
)
from minidlc.loop.regions import loads
from minidlc.support.errors import ScheduleError


class RegisterError(ScheduleError):
    """A register buffer that cannot be one; `buffer` names it."""

    def __init__(self, buffer: str, message: str, hint: str) -> None:
        super().__init__(message, hint=hint, code="MDLC0618")
        self.buffer = buffer


def check_nesting(fn: LoopFunction) -> None:
    """Refuse what stands inside a vectorised loop or is parallel twice.

    ScheduleError: an allocation (MDLC0609) or a loop (MDLC0610) inside a vectorised one, a
    parallel loop inside another (MDLC0613).
    """
    _nesting(fn.body, ())


def _nesting(s: Stmt, loops: tuple[For, ...]) -> None:
    vector = next((x for x in loops if x.kind is Kind.VECTORIZED), None)
    match s:
        case For():
            _check_loop(s, vector, loops)
            _nesting(s.body, (*loops, s))
        case Alloc(buffer=buffer, body=body):
            if vector is not None:
                raise ScheduleError(
                    f"{buffer!r} is computed inside the vectorised loop {vector.var.name!r}: each "
                    "lane would need a copy",
                    hint="compute it at a loop outside",
                    code="MDLC0609",
                )
            _nesting(body, loops)
        case If(body=body):
            _nesting(body, loops)
        case Block(stmts):
            for child in stmts:
                _nesting(child, loops)
        case Store():
            pass


def _check_loop(s: For, vector: For | None, loops: tuple[For, ...]) -> None:
    if vector is not None and s.kind is not Kind.UNROLLED:
        raise ScheduleError(
            f"{s.var.name!r} ({s.kind}) lies inside {vector.var.name!r}: the vectorised loop must "
            "be innermost",
            hint="reorder first",
            code="MDLC0610",
        )
    if vector is not None and vector.var in s.extent.vars():
        raise ScheduleError(
            f"{s.var.name!r} runs {s.extent} times, which differs between the lanes of "
            f"{vector.var.name!r}",
            hint="vectorise the inner loop of the two",
            code="MDLC0610",
        )
    parallel = next((x for x in loops if x.kind is Kind.PARALLEL), None)
    if s.kind is Kind.PARALLEL and parallel is not None:
        raise ScheduleError(
            f"{s.var.name!r} lies inside {parallel.var.name!r}, which is parallel already",
            hint="fuse the two loops, then make the fused one parallel",
            code="MDLC0613",
        )


def check_lanes(fn: LoopFunction, lanes: int) -> None:
    """Refuse a vectorised loop of more iterations than `lanes` (MDLC0612)."""
    for s in walk(fn.body):
        if not isinstance(s, For):
            continue
        if s.kind is Kind.VECTORIZED and s.extent.is_const and s.extent.const > lanes:
            raise ScheduleError(
                f"{s.var.name!r} is vectorised and runs {s.extent} times; the target has {lanes} "
                "lanes",
                hint=f"split it by {lanes} and vectorise the inner loop",
                code="MDLC0612",
            )


def check_unrolled(fn: LoopFunction) -> None:
    """Refuse an unrolled loop of no constant extent (MDLC0611).

    `fn` is cut by `partition` already. The extent may depend on unrolled loops around: they are
    numbers when code is generated.
    """
    _unrolled(fn.body, frozenset())


def _unrolled(s: Stmt, numbers: frozenset[Var]) -> None:
    match s:
        case For(var, extent, kind, body):
            if kind is Kind.UNROLLED and not extent.vars() <= numbers:
                raise ScheduleError(
                    f"{var.name!r} is unrolled, but runs {extent} times: no constant number",
                    hint="choose a factor that divides, or leave it a loop",
                    code="MDLC0611",
                )
            _unrolled(body, numbers | {var} if kind is Kind.UNROLLED else numbers - {var})
        case Alloc(body=body) | If(body=body):
            _unrolled(body, numbers)
        case Block(stmts):
            for child in stmts:
                _unrolled(child, numbers)
        case Store():
            pass


def check_registers(fn: LoopFunction) -> None:
    """Refuse register buffers with positions that do not become numbers (RegisterError).

    `fn` is cut by `partition` already. Unrolled variables become numbers and the vectorised one
    lanes; any other loop variable in a position would need an address, and registers have none.
    """
    _registers(fn.body, frozenset(), {})


def _registers(s: Stmt, kept: frozenset[Var], parallel: dict[str, Var | None]) -> None:
    """`kept` stay variables in the machine code; `parallel` loops lie around uses, per buffer."""
    match s:
        case For(var, _, kind, body):
            stays = kind in (Kind.SERIAL, Kind.PARALLEL)
            if kind is Kind.PARALLEL:
                parallel = dict.fromkeys(parallel, var)
            _registers(body, kept | {var} if stays else kept - {var}, parallel)
        case Alloc(buffer, _, scope, body):
            if scope is Scope.REGISTER:
                parallel = {**parallel, buffer: None}
            _registers(body, kept, parallel)
        case If(body=body):
            for e in values(s):
                _register_loads(e, kept, parallel)
            _registers(body, kept, parallel)
        case Block(stmts):
            for child in stmts:
                _registers(child, kept, parallel)
        case Store(buffer, index):
            _register(buffer, index, kept, parallel)
            for e in values(s):
                _register_loads(e, kept, parallel)


def _register_loads(e: Expr, kept: frozenset[Var], parallel: dict[str, Var | None]) -> None:
    for load in loads(e) if parallel else ():
        _register(load.buffer, load.index, kept, parallel)


def _register(
    buffer: str, index: tuple[Index, ...], kept: frozenset[Var], parallel: dict[str, Var | None]
) -> None:
    if buffer not in parallel:
        return
    thread = parallel[buffer]
    if thread is not None:
        raise RegisterError(
            buffer,
            f"{buffer!r} is in registers, but used inside the parallel loop {thread.name!r}: other "
            "threads have other registers",
            "compute it inside that loop, or use scope 'stack'",
        )
    at = ", ".join(map(str, index))
    if any(values_in(e) for e in index):
        raise RegisterError(
            buffer,
            f"{buffer!r} is in registers, but looked up at [{at}]: that is no number",
            "use scope 'stack'",
        )
    moving = sorted(v.name for e in index for v in e.vars() & kept)
    if moving:
        raise RegisterError(
            buffer,
            f"{buffer!r} is in registers, but accessed at [{at}], where {moving[0]!r} is no number",
            f"unroll or vectorise {moving[0]!r}, compute the stage inside it, or use scope 'stack'",
        )
