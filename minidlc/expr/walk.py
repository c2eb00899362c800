"""Expressions as trees, and positions that are values: visit, rebuild, look up.

    [e.buffer for e in walk(A[i] * exp(B[j])) if isinstance(e, Load)]       # ['A', 'B']
    rewrite(e, step)                                # rebuilt bottom-up, each node through `step`
    x = Load("x", (at(Load("ids", (i,), i64), 5), Index.of(j)), f32)        # x[at(ids[i], 5), j]

A position is an `Index`; where it depends on a value in memory, that value is an atom of it, `At`,
clamped into a range that is known. So a lookup is a plain `Load`, a scatter a plain `Store`, and
what the ranges prove about positions (inside the buffer, the region touched) needs no special case.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from minidlc.expr.index import (
    Cond,
    Index,
    Opaque,
    Var,
    map_leaves,
    maximum,
    minimum,
    operands,
)
from minidlc.expr.nodes import (
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
from minidlc.expr.printing import print_expr
from minidlc.expr.types import i64
from minidlc.support.errors import LoweringError


@dataclass(frozen=True, slots=True)
class At(Opaque):
    """The i64 `value` as a position, clamped into 0 .. extent - 1; build it with `at`."""

    value: Expr
    extent: int

    @property
    def last(self) -> int:
        """The largest position it can be."""
        return self.extent - 1

    def vars(self) -> frozenset[Var]:
        """The variables its value depends on."""
        return frozenset[Var]().union(*(e.vars() for x in walk(self.value) for e in indices(x)))

    def map(self, f: Callable[[Index], Index]) -> Index:
        """The same with `f` applied to the positions in its value."""
        value = map_indices(self.value, f)
        return Index.of(self) if value is self.value else at(value, self.extent)

    def __str__(self) -> str:
        return f"at({print_expr(self.value)}, {self.extent})"


def at(value: Expr, extent: int) -> Index:
    """The i64 `value` as a position, clamped into 0 .. extent - 1.

    LoweringError for another element type (MDLC0725) or an extent below 1 (MDLC0726).
    """
    if value.dtype != i64:
        raise LoweringError(
            f"a position is an i64 value, {print_expr(value)} is {value.dtype}",
            hint='convert it: te.cast("i64", …)',
            code="MDLC0725",
        )
    if extent < 1:
        raise LoweringError(
            f"at({print_expr(value)}, {extent}): no position lies in an axis of {extent} elements",
            hint="give the extent of the axis, at least 1",
            code="MDLC0726",
        )
    match value:
        case Const(number):
            return Index.of(min(max(int(number), 0), extent - 1))
        case IndexValue(index):
            return maximum(minimum(index, extent - 1), 0)
        case _:
            return Index.of(At(value, extent))


def indices(e: Expr) -> tuple[Index, ...]:
    """The positions that stand in the node `e` itself."""
    match e:
        case Load(index=index):
            return index
        case IndexValue(index):
            return (index,)
        case Select(Cond(ge)):
            return ge
        case _:
            return ()


@lru_cache(maxsize=1 << 14)
def values_in(index: Index) -> tuple[Expr, ...]:
    """The values that a position depends on, outermost ones only."""
    found: list[Expr] = []
    for atom, _ in index.terms:
        found += [atom.value] if isinstance(atom, At) else []
        for part in operands(atom):
            found += values_in(part)
    return tuple(found)


def children(e: Expr) -> tuple[Expr, ...]:
    """The direct sub-expressions of `e`, those that its positions depend on first."""
    match e:
        case Binary(_, a, b) | Compare(_, a, b):
            return (a, b)
        case Load(index=index):
            return _values_of(*index)
        case Select(cond, a, b):
            return (*_values_of(*cond.ge), a, b) if isinstance(cond, Cond) else (cond, a, b)
        case Call(_, args):
            return args
        case Cast(_, a) | Reduce(_, a, _):
            return (a,)
        case IndexValue(index):
            return _values_of(index)
        case _:
            return ()


def _values_of(*positions: Index) -> tuple[Expr, ...]:
    return tuple(value for index in positions for value in values_in(index))


def walk(e: Expr) -> Iterator[Expr]:
    """Every sub-expression, parents first."""
    yield e
    for child in children(e):
        yield from walk(child)


def rewrite(e: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """Rebuild `e` bottom-up, `f` applied to each node; untouched parts are shared.

    Values that positions depend on are rebuilt too.
    """

    def position(index: Index) -> Index:
        return map_values(index, lambda value: rewrite(value, f))

    def node(x: Expr) -> Expr:
        return f(_with_indices(x, position))

    return _rebuild(e, node)


def map_values(index: Index, f: Callable[[Expr], Expr]) -> Index:
    """`index` with `f` applied to the values it depends on."""
    if not values_in(index):
        return index

    def leaf(atom: Var | Opaque) -> Index:
        return at(f(atom.value), atom.extent) if isinstance(atom, At) else Index.of(atom)

    return map_leaves(index, leaf)


def map_indices(e: Expr, f: Callable[[Index], Index]) -> Expr:
    """Rebuild `e` with `f` applied to every index in it: of loads, conditions and index values.

    `f` itself reaches the positions inside values that positions depend on (`At.map`).
    """
    return _rebuild(e, lambda x: _with_indices(x, f))


def _with_indices(e: Expr, f: Callable[[Index], Index]) -> Expr:
    old = indices(e)
    new = tuple(f(index) for index in old)
    if all(x is y for x, y in zip(new, old, strict=True)):
        return e
    match e:
        case Load(buffer, _, type):
            return Load(buffer, new, type)
        case Select(Cond(), a, b):
            return Select(Cond(new), a, b)
        case _:
            return IndexValue(*new)


def _rebuild(e: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """`f` applied to each node, bottom-up; positions are left to `f`."""
    match e:
        case Binary(_, a, b) | Compare(_, a, b):
            na, nb = _rebuild(a, f), _rebuild(b, f)
            e = e if na is a and nb is b else replace(e, a=na, b=nb)
        case Select(cond, a, b):
            nc = cond if isinstance(cond, Cond) else _rebuild(cond, f)
            na, nb = _rebuild(a, f), _rebuild(b, f)
            e = e if nc is cond and na is a and nb is b else Select(nc, na, nb)
        case Call(fn, args):
            new = tuple(_rebuild(a, f) for a in args)
            e = e if all(x is y for x, y in zip(new, args, strict=True)) else Call(fn, new)
        case Cast(type, a):
            na = _rebuild(a, f)
            e = e if na is a else Cast(type, na)
        case Reduce(op, body, axes):
            nb = _rebuild(body, f)
            e = e if nb is body else Reduce(op, nb, axes)
        case _:
            pass
    return f(e)
