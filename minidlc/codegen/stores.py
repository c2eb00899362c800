"""Store statements: one element, one per lane, or a reduction across the lanes.

    stores.emit(Store("C", (i, j), value), chunk)
    reduction_operand(store)                        # ('+', e) for S[i] = S[i] + e, or None

Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Callable

from minidlc.codegen.arithmetic import Operators
from minidlc.codegen.expressions import Expressions, varies
from minidlc.codegen.memory import Buffer, Memory
from minidlc.codegen.positions import Chunk
from minidlc.codegen.values import Builder, Value
from minidlc.expr.index import Index
from minidlc.expr.nodes import Binary, Expr, Load
from minidlc.expr.types import bool_
from minidlc.expr.walk import values_in, walk
from minidlc.loop.nodes import Store
from minidlc.support.errors import CodegenError

_ASSOCIATIVE = ("+", "*", "min", "max", "&", "|", "^")


class Stores:
    """Emits Store statements."""

    def __init__(
        self, builder: Builder, memory: Memory, ops: Operators, expressions: Expressions
    ) -> None:
        self.b = builder
        self.memory = memory
        self.ops = ops
        self.expressions = expressions

    def emit(self, s: Store, chunk: Chunk | None) -> None:
        """Emit one store, for one iteration or for the lanes of `chunk`."""
        buffer = self.expressions.buffer(s.buffer)
        if s.stage:
            self.b.comment(f"stage {s.stage}")
        flat = self.memory.flat(buffer, s.index)
        if chunk is None:
            self.memory.store_scalar(buffer, flat, self.expressions.emit(s.value, None))
        elif self.memory.lane(flat, chunk)[0] == "splat":
            operand = reduction_operand(s)
            if operand is not None:
                self._accumulate(s, buffer, flat, chunk, *operand)
            else:
                self._store_once(s, buffer, flat, chunk)
        else:
            value = self.ops.splat(self.expressions.emit(s.value, chunk), chunk.width)
            self.memory.store_lanes(buffer, s.index, value, chunk)

    def _accumulate(
        self, s: Store, buffer: Buffer, flat: Index, chunk: Chunk, op: str, e: Expr
    ) -> None:
        """`S[i] = S[i] op e` in every lane: reduce the lanes, then update S once."""
        lanes = self.ops.splat(self.expressions.emit(e, chunk), chunk.width)
        if chunk.mask is not None:
            mask = Value(chunk.mask, bool_, chunk.width)
            identity = self.ops.identity(op, lanes.dtype, chunk.width)
            lanes = self.ops.select(mask, lanes, identity)
        old = Load(s.buffer, s.index, buffer.dtype)

        def update() -> None:
            start = self.expressions.emit(old, None)
            self.memory.store_scalar(buffer, flat, self.ops.reduce(op, start, lanes))

        self._if_any(chunk, update)

    def _store_once(self, s: Store, buffer: Buffer, flat: Index, chunk: Chunk) -> None:
        """The same value by every lane."""
        if varies(s.value, chunk.var) or s.buffer in loads(s.value):
            raise CodegenError(
                f"the lanes of {chunk.var.name!r} store different values to one element of "
                f"{s.buffer!r}",
                hint="a vectorised reduction has the form S[i] = S[i] + e",
                code="MDLC0805",
            )
        self._if_any(
            chunk,
            lambda: self.memory.store_scalar(buffer, flat, self.expressions.emit(s.value, None)),
        )

    def _if_any(self, chunk: Chunk, body: Callable[[], None]) -> None:
        """Run `body` if some lane is on; without a test of the program one always is."""
        if not chunk.guarded or chunk.mask is None:
            body()
            return
        some = self.ops.any(Value(chunk.mask, bool_, chunk.width))
        then, exit = self.b.fresh("then", ""), self.b.fresh("endif", "")
        with self.b.region(then) as region:
            body()
            self.b.line(f"br label %{exit}")
        self.b.line(f"br i1 {some}, label %{then}, label %{exit}")
        self.b.append(region)
        self.b.label(exit)


def reduction_operand(s: Store) -> tuple[str, Expr] | None:
    """`(op, e)` if the store is `S[i] = op(S[i], e)` and `e` does not read S; else None.

    A chain `(S[i] + a) + b` counts as `S[i] + (a + b)`.
    """
    if not isinstance(s.value, Binary) or s.value.op not in _ASSOCIATIVE:
        return None
    if any(s.buffer in loads(e) for index in s.index for e in values_in(index)):
        return None
    op, rest = s.value.op, _without(s.value, s.value.op, s)
    return None if rest is None else (op, rest)


def _without(e: Binary, op: str, s: Store) -> Expr | None:
    """`e` without its one operand `S[i]`; None if that is not how S occurs."""
    for this, other in ((e.a, e.b), (e.b, e.a)):
        if s.buffer in loads(other):
            continue
        if isinstance(this, Load) and this.buffer == s.buffer:
            return other if this.index == s.index else None
        if isinstance(this, Binary) and this.op == op:
            inner = _without(this, op, s)
            if inner is not None:
                return Binary(op, inner, other)
    return None


def loads(e: Expr) -> set[str]:
    """Names of the buffers that `e` reads."""
    return {n.buffer for n in walk(e) if isinstance(n, Load)}
