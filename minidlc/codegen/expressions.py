"""Scalar expressions as LLVM values, for one iteration or for the lanes of a vectorised loop.

    value = expressions.emit(store.value, chunk)    # Value: a scalar if all lanes agree

A `Select` on positions is lazy: its condition becomes a branch, or, where it differs between
lanes, a mask on the loads of each side, so that what is out of bounds is never read.
Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minidlc.codegen.arithmetic import Operators
from minidlc.codegen.dot import Dots
from minidlc.codegen.memory import Buffer, Memory
from minidlc.codegen.positions import Chunk, Positions, mask_text
from minidlc.codegen.values import Builder, Region, Value
from minidlc.expr.index import Cond, Index, Var
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
from minidlc.expr.types import bool_
from minidlc.expr.walk import indices, walk
from minidlc.support.errors import CodegenError, nearest

Memo = dict[int, Value]
FunctionCall = Callable[[str, tuple[Value, ...]], Value]

_CHEAP = 8  # a Select with at most this many nodes needs no branch, if its loads are in bounds


class Expressions:
    """Emits values; `buffers` are those in scope, `call` emits a function of FUNCTIONS."""

    def __init__(
        self,
        builder: Builder,
        positions: Positions,
        memory: Memory,
        ops: Operators,
        buffers: Mapping[str, Buffer],
        call: FunctionCall,
    ) -> None:
        self.b = builder
        self.positions = positions
        positions.values = self
        self.memory = memory
        self.ops = ops
        self.buffers = buffers
        self.call = call
        self.dots = Dots(self)

    def buffer(self, name: str) -> Buffer:
        """The buffer of that name; CodegenError MDLC0808 if there is none in scope."""
        if name not in self.buffers:
            hint = nearest(name, self.buffers)
            raise CodegenError(f"buffer {name!r} is not in scope", hint=hint, code="MDLC0808")
        return self.buffers[name]

    def emit(self, e: Expr, chunk: Chunk | None) -> Value:
        """The value of `e`; shared sub-expressions are emitted once."""
        return self._emit(e, chunk, {})

    def _emit(self, e: Expr, chunk: Chunk | None, memo: Memo) -> Value:
        known = memo.get(id(e))
        if known is None:
            known = memo[id(e)] = self._node(e, chunk, memo)
        return known

    def _node(self, e: Expr, chunk: Chunk | None, memo: Memo) -> Value:
        match e:
            case Const(value, type):
                made = self.ops.const(value, type)
                return self.ops.round_half(made) if type.is_float and type.bits == 16 else made
            case IndexValue(index):
                return self._index_value(e, index, chunk)
            case Load(buffer, index):
                return self.memory.load(self.buffer(buffer), index, chunk)
            case Binary(op, a, b):
                return self.ops.binary(op, self._emit(a, chunk, memo), self._emit(b, chunk, memo))
            case Compare(op, a, b):
                return self.ops.compare(op, self._emit(a, chunk, memo), self._emit(b, chunk, memo))
            case Call("dot4", args):
                fast = self.dots.emit(args, chunk)
                parts = () if fast else tuple(self._emit(a, chunk, memo) for a in args)
                return fast or self.dots.plain(parts)
            case Call(fn, args):
                return self.call(fn, tuple(self._emit(a, chunk, memo) for a in args))
            case Cast(type, a):
                return self.ops.cast(self._emit(a, chunk, memo), type)
            case Select(Cond() as cond, a, b):
                return self._lazy(cond, a, b, chunk, memo)
            case Select(cond, a, b):
                assert not isinstance(cond, Cond)
                test = self._emit(cond, chunk, memo)
                x, y = self._emit(a, chunk, memo), self._emit(b, chunk, memo)
                return self.ops.select(test, x, y)
            case Reduce(op=op):
                raise CodegenError(
                    f"a {op!r} over reduction axes cannot stand in loops",
                    hint="lower the tensor expression first",
                    code="MDLC0809",
                )

    def _index_value(self, e: IndexValue, index: Index, chunk: Chunk | None) -> Value:
        if chunk is None or not self.positions.varies(index, chunk):
            return Value(str(self.positions.scalar(index)), e.dtype)
        lanes = self.positions.lanes(self.positions.simplified(index), chunk)
        return Value(self.positions.lanes_text(lanes), e.dtype, chunk.width)

    # lazy selection

    def _lazy(self, cond: Cond, a: Expr, b: Expr, chunk: Chunk | None, memo: Memo) -> Value:
        uniform, varying = split_condition(self.positions, cond, chunk)
        test = self.positions.test(uniform)
        if test is False:
            return self._emit(b, chunk, memo)

        def taken(memo: Memo) -> Value:
            if chunk is None or not varying.ge:
                return self._emit(a, chunk, memo)
            return self._by_lanes(varying, a, b, chunk, memo)

        if test is True:
            return taken(memo)
        if self._is_cheap(a) and self._is_cheap(b):
            x, y = taken(memo), self._emit(b, chunk, memo)
            return self.ops.select(Value(test, bool_), x, y)
        width = 0
        if chunk is not None and (chunk.guarded or varying.ge or _varies(a, b, lane=chunk.var)):
            width = chunk.width
        return self._branch(
            test, lambda: taken(dict(memo)), lambda: self._emit(b, chunk, dict(memo)), width
        )

    def _is_cheap(self, e: Expr) -> bool:
        """True if evaluating `e` for nothing is harmless: few nodes, every load in bounds."""
        nodes = list(walk(e))
        return (
            len(nodes) <= _CHEAP
            and not any(isinstance(n, (Call, Select)) for n in nodes)
            and self.is_safe(e)
        )

    def is_safe(self, e: Expr) -> bool:
        """True if every load in `e` is in bounds, whatever the tests around it say."""
        loads = (n for n in walk(e) if isinstance(n, Load))
        return all(self.positions.inside(n.index, self.buffer(n.buffer).dims) for n in loads)

    def _by_lanes(self, cond: Cond, a: Expr, b: Expr, chunk: Chunk, memo: Memo) -> Value:
        """`a` in the lanes where `cond` holds, `b` in the others; loads see only their lanes."""
        simple = Cond(tuple(self.positions.simplified(e) for e in cond.ge))
        test = self.positions.lane_test(simple, chunk)
        if isinstance(test, list) and all(test):
            return self._emit(a, chunk, memo)
        if isinstance(test, list) and not any(test):
            return self._emit(b, chunk, memo)
        off = [not x for x in test] if isinstance(test, list) else self._not(test, chunk.width)
        x = self._emit(a, self._under(test, chunk), dict(memo))
        y = self._emit(b, self._under(off, chunk), dict(memo))
        mask = Value(mask_text(test), bool_, chunk.width)
        return self.ops.select(mask, x, y)

    def _under(self, test: list[bool] | str, chunk: Chunk) -> Chunk:
        return under(self.positions, test, chunk)

    def _not(self, mask: str, width: int) -> str:
        return self.b.same(f"xor <{width} x i1> {mask}, splat (i1 true)")

    def _branch(
        self, test: str, then: Callable[[], Value], other: Callable[[], Value], width: int
    ) -> Value:
        """Both sides in blocks of their own, joined by a phi."""
        labels = [self.b.fresh(stem, "") for stem in ("then", "else", "join")]
        parts: list[tuple[Value, str]] = []
        regions: list[Region] = []
        for label, side in zip(labels, (then, other), strict=False):
            with self.b.region(label) as region:
                value = self.ops.splat(side(), width)
                parts.append((value, self.b.block))
                self.b.line(f"br label %{labels[2]}")
            regions.append(region)
        self.b.line(f"br i1 {test}, label %{labels[0]}, label %{labels[1]}")
        for region in regions:
            self.b.append(region)
        self.b.label(labels[2])
        (x, from_x), (y, from_y) = parts
        phi = f"phi {x.type} [ {x.text}, %{from_x} ], [ {y.text}, %{from_y} ]"
        return Value(self.b.value(phi), x.dtype, width)


def under(positions: Positions, test: list[bool] | str, chunk: Chunk) -> Chunk:
    """The lanes of `chunk` where `test` holds as well."""
    known = chunk.on()
    if isinstance(test, list) and known is not None:
        both = [holds and lane in known for lane, holds in enumerate(test)]
        return chunk.masked(mask_text(both), tuple(n for n, on in enumerate(both) if on))
    mask = test if chunk.mask is None else positions.both(test, chunk.mask, chunk.width)
    return chunk.masked(mask_text(mask))


def split_condition(positions: Positions, cond: Cond, chunk: Chunk | None) -> tuple[Cond, Cond]:
    """The parts that are the same for all lanes, and those that differ between lanes."""
    if chunk is None:
        return cond, Cond(())
    varying = tuple(e for e in cond.ge if positions.varies(e, chunk))
    return Cond(tuple(e for e in cond.ge if e not in varying)), Cond(varying)


def _varies(*roots: Expr, lane: Var) -> bool:
    return any(varies(e, lane) for e in roots)


def varies(e: Expr, lane: Var) -> bool:
    """True if the value may differ between iterations of `lane`."""
    return any(lane in index.vars() for node in walk(e) for index in indices(node))
