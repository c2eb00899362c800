"""Check the invariants of loop IR; every error says which one, where, and what would hold.

    verify_function(fn)                             # returns fn, or raises VerifyError

    1 names: a variable is used inside its loop, a buffer inside its allocation; nothing bound twice
    2 types: an index has one position per axis; stored, loaded and combined values have one type
    3 places: no access that is certainly outside its buffer
    4 shape: allocations of constant size; no reduction left

Reads a LoopFunction, writes nothing. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from minidlc.expr.functions import FUNCTIONS
from minidlc.expr.index import Cond, Index, Interval, Ranges, Var, decide, value_range
from minidlc.expr.nodes import (
    ARITHMETIC,
    BITWISE,
    COMPARISONS,
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
from minidlc.expr.types import DType, TensorType, bool_, i64
from minidlc.expr.walk import children, values_in
from minidlc.loop.nodes import Alloc, Block, For, If, LoopFunction, Stmt, Store, lines, values
from minidlc.support.errors import VerifyError, nearest


def verify_function(fn: LoopFunction) -> LoopFunction:
    """Return `fn` if every invariant holds, else raise VerifyError (MDLC0450 .. MDLC0458)."""
    buffers: dict[str, TensorType] = {}
    for p in fn.params:
        if p.name in buffers:
            raise VerifyError(f"{fn.name}: two parameters named {p.name!r}", code="MDLC0451")
        buffers[p.name] = p.type
    sizes = {
        v for type in buffers.values() for d in type.shape if isinstance(d, Index) for v in d.vars()
    }
    _Scope(fn.name, buffers, frozenset(sizes), {}).stmt(fn.body)
    return fn


@dataclass(frozen=True)
class _Scope:
    """What is bound at a place: buffers, variables and the ranges of those that have one."""

    function: str
    buffers: Mapping[str, TensorType]
    variables: frozenset[Var]
    ranges: Ranges
    runs: bool = True  # False under conditions not decided here: what stands there may never run
    exact: bool = True  # all loops around have constant extents: each value of a range is taken

    def error(self, s: Stmt, message: str, code: str, hint: str | None = None) -> VerifyError:
        where = lines(replace(s, body=Block(())) if isinstance(s, (For, If, Alloc)) else s)[0]
        notes = (f"in {self.function}: {where}",)
        return VerifyError(message, notes=notes, hint=hint, code=code)

    # ---- statements -----------------------------------------------------------------------

    def stmt(self, s: Stmt) -> None:
        for e in values(s):
            self.expr(s, e)
        match s:
            case For():
                self.loop(s)
            case Alloc():
                self.alloc(s)
            case If(cond, body):
                decided = self.test(s, cond)
                if decided is not False:
                    replace(self, runs=self.runs and bool(decided)).stmt(body)
            case Block(stmts):
                for child in stmts:
                    self.stmt(child)
            case Store(buffer, index, value):
                type = self.access(s, buffer, index)
                if value.dtype != type:
                    message = f"{buffer} holds {type}, the value is {value.dtype}"
                    raise self.error(s, message, "MDLC0454", f'cast("{type}", …)')

    def test(self, s: If, cond: Cond | Expr) -> bool | None:
        """What the test of `s` is, where that is known."""
        if isinstance(cond, Cond):
            self.cond(s, cond)
            for e in cond.ge:
                self.known(s, e)
            return decide(cond, self.ranges)
        if cond.dtype != bool_:
            raise self.ill_typed(s, cond, f"a test of {cond.dtype}")
        return None

    def loop(self, s: For) -> None:
        self.position(s, s.extent)
        self.known(s, s.extent)
        for name, _ in s.prefetch:
            if name not in self.buffers:
                hint = nearest(name, self.buffers)
                raise self.error(s, f"{name!r} is prefetched, but no buffer", "MDLC0452", hint)
        if s.var in self.variables or s.var.name in self.buffers:
            raise self.error(s, f"{s.var} is already bound around this loop", "MDLC0451")
        span = value_range(s.extent, self.ranges)
        if span is not None and span[1] <= 0:
            return  # the loop never runs
        ranges: dict[Var, Interval] = dict(self.ranges)
        if span is not None:
            ranges[s.var] = (0, span[1] - 1)
        replace(
            self,
            variables=self.variables | {s.var},
            ranges=ranges,
            runs=self.runs and span is not None and span[0] > 0,
            exact=self.exact and s.extent.is_const,
        ).stmt(s.body)

    def alloc(self, s: Alloc) -> None:
        if s.buffer in self.buffers or Var(s.buffer) in self.variables:
            raise self.error(s, f"{s.buffer!r} is already bound around this allocation", "MDLC0451")
        if not s.type.is_static:
            message = f"{s.buffer} has the size {s.type}, which is no constant"
            raise self.error(s, message, "MDLC0457", "allocate the largest size it can have")
        replace(self, buffers={**self.buffers, s.buffer: s.type}).stmt(s.body)

    # ---- positions ------------------------------------------------------------------------

    def position(self, s: Stmt, e: Index) -> None:
        for var in sorted(e.vars() - self.variables, key=str):
            hint = nearest(var.name, [v.name for v in self.variables])
            raise self.error(s, f"{var} is used outside its loop: {e}", "MDLC0450", hint)
        for value in values_in(e):
            if value.dtype != i64:
                message = f"a position is i64, {print_expr(value)} is {value.dtype}"
                raise self.error(s, message, "MDLC0464", 'cast("i64", …)')

    def known(self, s: Stmt, e: Index) -> None:
        """No value in memory: it could change while the loop or the statement under a test runs."""
        if values_in(e):
            message = f"{e} depends on a value in memory: only positions of loads and stores may"
            hint = "test a value: if x[i] > 0.0:, or loop to the largest number and test inside"
            raise self.error(s, message, "MDLC0463", hint)

    def cond(self, s: Stmt, cond: Cond) -> None:
        for e in cond.ge:
            self.position(s, e)

    def access(self, s: Stmt, buffer: str, index: tuple[Index, ...]) -> DType:
        """An access of a known buffer, one position per axis, not certainly outside."""
        if buffer not in self.buffers:
            message = f"{buffer!r} is used outside its allocation, or never allocated"
            raise self.error(s, message, "MDLC0452", nearest(buffer, self.buffers))
        type = self.buffers[buffer]
        if len(index) != type.rank:
            message = f"{buffer}: {type} has {type.rank} axes, got {len(index)} positions"
            raise self.error(s, message, "MDLC0453")
        for axis, (e, dim) in enumerate(zip(index, type.shape, strict=True)):
            self.position(s, e)
            if self.runs and self.leaves(e, e - dim):
                span = value_range(e, self.ranges)
                reached = f"{span[0]}..{span[1]}" if span else str(e)
                message = f"{buffer}: {type}: position {e} of axis {axis} reaches {reached}"
                raise self.error(s, message, "MDLC0455")
        return type.dtype

    def leaves(self, e: Index, past: Index) -> bool:
        """Whether `e` is certainly below 0, or e - dim at or above 0, in some iteration."""
        exact = self.exact and all(isinstance(atom, Var) for atom, _ in e.terms)
        low, high = value_range(e, self.ranges), value_range(past, self.ranges)
        below = low is not None and low[0 if exact else 1] < 0
        return below or (high is not None and high[1 if exact else 0] >= 0)

    # ---- values ---------------------------------------------------------------------------

    def expr(self, s: Stmt, e: Expr) -> None:
        """Every sub-expression, each once; a select of positions guards the side it takes."""
        seen: set[tuple[int, bool]] = set()
        todo: list[tuple[Expr, _Scope]] = [(e, self)]
        while todo:
            x, scope = todo.pop()
            if (id(x), scope.runs) in seen:
                continue
            seen.add((id(x), scope.runs))
            if isinstance(x, Select) and isinstance(x.cond, Cond):
                self.cond(s, x.cond)
                decided = decide(x.cond, self.ranges)
                guarded = replace(scope, runs=False)
                *tested, a, b = children(x)
                todo += [(a, scope if decided is True else guarded)]
                todo += [(b, scope if decided is False else guarded)]
                todo += [(child, scope) for child in tested]
            else:
                todo += [(child, scope) for child in children(x)]
            scope.node(s, x)

    def node(self, s: Stmt, e: Expr) -> None:
        """One node: its name exists and its operands have the types it needs."""
        match e:
            case Load(buffer, index, type):
                if self.access(s, buffer, index) != type:
                    held = self.buffers[buffer].dtype
                    message = f"{buffer} holds {held}, it is loaded as {type}"
                    raise self.error(s, message, "MDLC0454")
            case IndexValue(index):
                self.position(s, index)
            case Binary(op, a, b) | Compare(op, a, b):
                allowed = COMPARISONS if isinstance(e, Compare) else _operators(a.dtype)
                if op not in allowed or a.dtype != b.dtype:
                    raise self.ill_typed(s, e, f"{a.dtype} {op} {b.dtype}")
            case Select(cond, a, b):
                if a.dtype != b.dtype:
                    raise self.ill_typed(s, e, f"a choice of {a.dtype} or {b.dtype}")
                if not isinstance(cond, Cond) and cond.dtype != bool_:
                    raise self.ill_typed(s, e, f"a test of {cond.dtype}")
            case Call(fn, args):
                if fn not in FUNCTIONS or len(args) != FUNCTIONS[fn].arity:
                    raise self.ill_typed(s, e, f"{fn} of {len(args)} arguments")
                wanted = FUNCTIONS[fn].types or (str(args[0].dtype),) * len(args)
                if tuple(str(a.dtype) for a in args) != wanted:
                    raise self.ill_typed(s, e, f"{fn} of {', '.join(str(a.dtype) for a in args)}")
            case Reduce():
                raise self.error(s, f"a reduction is left: {print_expr(e)}", "MDLC0458")
            case Const() | Cast():
                pass

    def ill_typed(self, s: Stmt, e: Expr, what: str) -> VerifyError:
        return self.error(s, f"{what} is not defined: {print_expr(e)}", "MDLC0456")


def _operators(type: DType) -> tuple[str, ...]:
    if type.is_float:
        return ARITHMETIC
    logic = BITWISE if type.is_integer else ("&", "|", "^")
    return logic + tuple(op for op in ARITHMETIC if op != "/")
