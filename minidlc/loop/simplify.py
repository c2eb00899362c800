"""Simplify loop IR: positions, conditions and extents by the ranges of the loops around them.

    for i in serial(0, 4):                          for i in serial(0, 4):
        if i >= 0:                          ->          C[i] = A[i]
            C[i] = select(i < 4, A[(4*i + 3)//4], 0.0)

Reads and writes statements; the result computes the same for all variables within `ranges`.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from dataclasses import replace

from minidlc.expr.index import (
    Cond,
    Index,
    Interval,
    Ranges,
    Var,
    decide,
    simplify,
    simplify_cond,
    substitute,
    substitute_cond,
    value_range,
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
from minidlc.expr.types import TensorType
from minidlc.loop.nodes import Alloc, Block, For, If, Stmt, Store, block

EMPTY = Block(())


def simplify_expr(e: Expr, ranges: Ranges) -> Expr:
    """Simplify every position in `e`; a select that the ranges decide becomes the side taken."""
    return _Positions(ranges).expr(e)


def substitute_stmt(s: Stmt, values: dict[Var, Index]) -> Stmt:
    """Replace free variables in every position, condition and extent of `s`."""
    return _Positions({}, values).stmt(s)


def simplify_stmt(s: Stmt, ranges: Ranges, drop_unit_loops: bool = False) -> Stmt:
    """Simplify `s` where the variables around it have these ranges.

    Loops that never run and conditions that never hold disappear; with `drop_unit_loops`, a loop
    of one iteration becomes its body.
    """
    return _Positions(ranges, drop=drop_unit_loops).stmt(s)


class _Positions:
    """One simplification under fixed ranges; remembers shared sub-expressions by identity."""

    def __init__(
        self, ranges: Ranges, values: dict[Var, Index] | None = None, drop: bool = False
    ) -> None:
        self.ranges = ranges
        self.values = values or {}
        self.drop = drop
        self.done: dict[int, tuple[Expr, Expr]] = {}  # holds the key alive, so ids stay unique
        self.known: dict[Index, Index] = {}

    def index(self, e: Index) -> Index:
        if e not in self.known:
            new = substitute(e, self.values)
            self.known[e] = simplify(new, self.ranges)
        return self.known[e]

    def cond(self, cond: Cond) -> Cond:
        return simplify_cond(substitute_cond(cond, self.values), self.ranges)

    def indices(self, index: tuple[Index, ...]) -> tuple[Index, ...]:
        new = tuple(self.index(e) for e in index)
        return index if new == index else new

    def expr(self, e: Expr) -> Expr:
        if id(e) not in self.done:
            self.done[id(e)] = (e, self._expr(e))
        return self.done[id(e)][1]

    def _expr(self, e: Expr) -> Expr:
        match e:
            case Const():
                return e
            case IndexValue(index):
                new = self.index(index)
                return e if new == index else IndexValue(new)
            case Load(buffer, index, type):
                new = self.indices(index)
                return e if new is index else Load(buffer, new, type)
            case Binary(_, a, b) | Compare(_, a, b):
                na, nb = self.expr(a), self.expr(b)
                return e if na is a and nb is b else replace(e, a=na, b=nb)
            case Select():
                return self._select(e)
            case Call(fn, args):
                new = tuple(self.expr(a) for a in args)
                same = all(x is y for x, y in zip(new, args, strict=True))
                return e if same else Call(fn, new)
            case Cast(type, a):
                na = self.expr(a)
                return e if na is a else Cast(type, na)
            case Reduce(op, a, axes):
                na = self.expr(a)
                return e if na is a else Reduce(op, na, axes)

    def test(self, cond: Cond | Expr) -> tuple[Cond | Expr, bool | None]:
        """A test, simplified, and what it is where that is known."""
        if isinstance(cond, Cond):
            simple = self.cond(cond)
            return simple, decide(simple, self.ranges)
        value = self.expr(cond)
        return value, bool(value.value) if isinstance(value, Const) else None

    def _select(self, e: Select) -> Expr:
        cond, decided = self.test(e.cond)
        if decided is not None:
            return self.expr(e.a if decided else e.b)
        a, b = self.expr(e.a), self.expr(e.b)
        return e if cond == e.cond and a is e.a and b is e.b else Select(cond, a, b)

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case Store(buffer, index, value):
                new, simple = self.indices(index), self.expr(value)
                return (
                    s if new is index and simple is value else Store(buffer, new, simple, s.stage)
                )
            case For():
                return self._loop(s)
            case If(cond, body):
                simple, decided = self.test(cond)
                inner = EMPTY if decided is False else self.stmt(body)
                if decided or inner == EMPTY:
                    return inner
                return s if simple == cond and inner is body else If(simple, inner)
            case Alloc(type=type, body=body):
                inner, simple = self.stmt(body), self._type(type)
                if inner == EMPTY:
                    return inner
                return (
                    s if inner is body and simple is type else replace(s, type=simple, body=inner)
                )
            case Block(stmts):
                parts = tuple(self.stmt(child) for child in stmts)
                same = all(x is y for x, y in zip(parts, stmts, strict=True))
                return s if same else block(*parts)

    def _loop(self, s: For) -> Stmt:
        extent = self.index(s.extent)
        span = value_range(extent, self.ranges)
        if span is not None and span[1] <= 0:
            return EMPTY
        inner: dict[Var, Interval] = dict(self.ranges)
        inner.pop(s.var, None)
        if span is not None:
            inner[s.var] = (0, span[1] - 1)
        values = dict(self.values)
        values.pop(s.var, None)
        body = _Positions(inner, values, self.drop).stmt(s.body)
        if body == EMPTY or (self.drop and extent == Index((), 1)):
            return body
        return s if extent == s.extent and body is s.body else replace(s, extent=extent, body=body)

    def _type(self, type: TensorType) -> TensorType:
        shape = tuple(d if isinstance(d, int) else self.index(d) for d in type.shape)
        shape = tuple(d.const if isinstance(d, Index) and d.is_const else d for d in shape)
        return type if shape == type.shape else type.with_shape(shape)
