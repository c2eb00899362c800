"""Prove that every access of a kernel lies inside its buffer: the last check before machine code.

    for ii in serial(0, min(14, 127 - 14*io)):      # io in 0..9, C: f32[127]
        C[14*io + ii] = …                           # inside, since ii < 127 - 14*io

    check_inside(fn)                                # None, or a VerifyError (MDLC0455, MDLC0459)

The verifier refuses what is certainly outside; this refuses what is not certainly inside, so that
no schedule, no lowering and no override of them makes machine code that touches foreign memory.
A position is proved by the ranges of the loops, else by one or two of the conditions around it,
else by trying all values. Reads a LoopFunction with constant sizes, writes nothing.
Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minidlc.expr.index import (
    Atom,
    Cond,
    FloorDiv,
    Index,
    Max,
    Min,
    Mod,
    Opaque,
    Ranges,
    Var,
    opened,
    value_range,
)
from minidlc.expr.nodes import Expr, Load, Select
from minidlc.expr.types import TensorType
from minidlc.expr.walk import children
from minidlc.loop.nodes import Alloc, Block, For, If, LoopFunction, Stmt, Store, lines, values
from minidlc.support.errors import VerifyError

_MOST_POINTS = 1 << 20  # values of loop variables tried where no rule decides


def check_inside(fn: LoopFunction) -> None:
    """Refuse a load or store that is outside its buffer (MDLC0455) or not provably in (MDLC0459).

    `fn` is verified already (loop/verify.py); its sizes are numbers.
    """
    for stmt, around in _places(fn.body, _Place({p.name: p.type for p in fn.params}, {}, ())):
        for buffer, index, facts in _accesses(stmt, around.facts):
            type = around.buffers[buffer]
            for axis, (e, size) in enumerate(zip(index, type.dims, strict=True)):
                for goal in (e, size - 1 - e):
                    if not proved(goal, facts, around.ranges):
                        what = f"{buffer}: {type}: position {e} of axis {axis}"
                        note = f"in {fn.name}: {lines(stmt)[0]}"
                        _try_all(goal, facts, around.ranges, what, note)


@dataclass(frozen=True)
class _Place:
    """What holds at a statement: buffers, ranges of the loops, and positions that are >= 0."""

    buffers: Mapping[str, TensorType]
    ranges: Ranges
    facts: tuple[Index, ...]


def _places(s: Stmt, around: _Place) -> Iterator[tuple[Store | If, _Place]]:
    """Every statement with accesses that may run, and what holds there."""
    match s:
        case For(var, extent, _, body):
            span = value_range(extent, around.ranges)
            if span is not None and span[1] <= 0:
                return
            facts = around.facts if extent.is_const else (*around.facts, extent - 1 - Index.of(var))
            ranges = {k: v for k, v in around.ranges.items() if k != var}
            ranges |= {} if span is None else {var: (0, span[1] - 1)}
            yield from _places(body, replace(around, ranges=ranges, facts=facts))
        case Alloc(buffer, type, _, body):
            yield from _places(body, replace(around, buffers={**around.buffers, buffer: type}))
        case If(cond, body):
            yield s, around
            facts = cond.ge if isinstance(cond, Cond) else ()
            yield from _places(body, replace(around, facts=(*around.facts, *facts)))
        case Block(stmts):
            for child in stmts:
                yield from _places(child, around)
        case Store():
            yield s, around


def _accesses(
    s: Store | If, facts: tuple[Index, ...]
) -> Iterator[tuple[str, tuple[Index, ...], tuple[Index, ...]]]:
    """(buffer, position, what holds there) of a statement; a select guards its sides."""
    if isinstance(s, Store):
        yield s.buffer, s.index, facts
    seen: set[tuple[int, tuple[Index, ...]]] = set()
    todo: list[tuple[Expr, tuple[Index, ...]]] = [(e, facts) for e in values(s)]
    while todo:
        e, known = todo.pop()
        if (id(e), known) in seen:
            continue
        seen.add((id(e), known))
        if isinstance(e, Load):
            yield e.buffer, e.index, known
        if isinstance(e, Select) and isinstance(e.cond, Cond):
            fails = tuple(-1 - x for x in e.cond.ge) if len(e.cond.ge) == 1 else ()
            *tested, a, b = children(e)
            todo += [(a, (*known, *e.cond.ge)), (b, (*known, *fails))]
            todo += [(child, known) for child in tested]
        else:
            todo += [(child, known) for child in children(e)]


def proved(goal: Index, facts: tuple[Index, ...], ranges: Ranges, steps: int = 2) -> bool:
    """True if goal >= 0 follows from the ranges and at most `steps` of the facts (each >= 0).

    A fact f helps where goal - f >= 0: then goal >= f >= 0.
    """
    span = value_range(goal, ranges)
    if span is not None and span[0] >= 0:
        return True
    near = [f for f in facts if not f.vars().isdisjoint(goal.vars())] if steps else []
    return any(proved(goal - f, facts, ranges, steps - 1) for f in near)


def _try_all(goal: Index, facts: tuple[Index, ...], ranges: Ranges, what: str, note: str) -> None:
    """Try all values of the variables that matter; raises unless goal >= 0 for each.

    A value in memory counts as a variable: it may be any number of its range.
    """
    memory: dict[Opaque, Var] = {}
    goal, facts = opened(goal, memory), tuple(opened(f, memory) for f in facts)
    ranges = {**ranges, **{v: (0, atom.last) for atom, v in memory.items()}}
    names = set(goal.vars())
    for _ in facts:  # a fact may bring in variables that another fact speaks of
        names.update(*(f.vars() for f in facts if not f.vars().isdisjoint(names)))
    order = sorted(names, key=str)
    sizes = [ranges[v][1] + 1 if v in ranges else _MOST_POINTS + 1 for v in order]
    if math.prod(sizes) > _MOST_POINTS:
        raise VerifyError(
            f"{what} cannot be proved to lie inside",
            notes=(note,),
            hint="put a condition around the access, or choose factors that divide",
            code="MDLC0459",
        )
    axes = np.ix_(*(np.arange(n).astype(object) for n in sizes))  # Python's integers: no overflow
    values: dict[Var, Any] = dict(zip(order, axes, strict=True))
    bad = np.broadcast_to(_grid(goal, values) < 0, sizes).astype(bool)
    for f in facts:
        if f.vars() <= names:
            bad &= np.asarray(_grid(f, values) >= 0, bool)
    if bad.any():
        point = zip(order, np.argwhere(bad)[0].tolist(), strict=True)
        at = ", ".join(f"{v} = {n}" for v, n in point)
        raise VerifyError(f"{what} is outside where {at}", notes=(note,), code="MDLC0455")


def _grid(e: Index, values: Mapping[Var, Any]) -> Any:
    """`e` for arrays of values."""
    return e.const + sum(k * _atom(atom, values) for atom, k in e.terms)


def _atom(atom: Atom, values: Mapping[Var, Any]) -> Any:
    match atom:
        case Var():
            return values[atom]
        case Min(a, b):
            return np.minimum(_grid(a, values), _grid(b, values))
        case Max(a, b):
            return np.maximum(_grid(a, values), _grid(b, values))
        case FloorDiv(a, c):
            return _grid(a, values) // c
        case Mod(a, c):
            return _grid(a, values) % c
        case Opaque():
            raise AssertionError(f"{atom} stands for a variable here")
