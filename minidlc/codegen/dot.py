"""`dot4`, the product of four pairs of bytes added to an i32: one instruction where there is one.

    C[i, j] = dot4(C[i, j], A[i, 4*k], …, A[i, 4*k + 3], B[k, j, 0], …, B[k, j, 3])

    x86 with VNNI        vpdpbusd: four products and the sum, in each i32 lane
    ARM with i8mm        usdot: the same
    other x86            vpmaddwd, twice: bytes 0 and 2 of each lane as i16, then bytes 1 and 3
    anything else        bytes widened to i32, four products

The four bytes of a factor must lie side by side, in each lane or once for all lanes. All ways are
exact: vpmaddubsw, which adds pairs of products in 16 bits, saturates and is not among them.
Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from typing import Protocol

from minidlc.codegen.arithmetic import Operators
from minidlc.codegen.memory import Buffer, Memory
from minidlc.codegen.positions import Chunk
from minidlc.codegen.values import Builder, Value
from minidlc.expr.index import Index
from minidlc.expr.nodes import Expr, Load
from minidlc.expr.types import i32
from minidlc.target import Target


class Emits(Protocol):
    """What is needed of the expressions around (codegen/expressions.py)."""

    b: Builder
    memory: Memory
    ops: Operators

    def buffer(self, name: str) -> Buffer:
        """The buffer of that name."""
        ...

    def emit(self, e: Expr, chunk: Chunk | None) -> Value:
        """The value of an expression."""
        ...


class Dots:
    """Emits dot4."""

    def __init__(self, expressions: Emits) -> None:
        self.outer = expressions
        self.b = expressions.b
        self.ops = expressions.ops

    def emit(self, args: tuple[Expr, ...], chunk: Chunk | None) -> Value | None:
        """The value in each lane; None if the bytes do not lie side by side."""
        if chunk is None or chunk.guarded:
            return None
        a, b = self._words(args[1:5], chunk), self._words(args[5:], chunk)
        if a is None or b is None:
            return None
        total = self.ops.splat(self.outer.emit(args[0], chunk), chunk.width)
        one = _instruction(self.ops.target, chunk.width)
        if one is not None:
            lanes, bytes = total.type, f"<{4 * chunk.width} x i8>"
            x, y = (self.b.same(f"bitcast {v} to {bytes}") for v in (a, b))
            text = f"call {lanes} @llvm.{one}({lanes} {total.text}, {bytes} {x}, {bytes} {y})"
            return self.ops.op(text, i32, chunk.width)
        pairs = _pairs(self.ops.target, chunk.width)
        if pairs is not None:
            return self._by_pairs(total, a, b, pairs)
        for n in range(4):
            x, y = self._shift("lshr", a, 8 * n), self._shift("shl", b, 24 - 8 * n)
            x, y = self._and(x, 0xFF), self._shift("ashr", y, 24)
            total = self.ops.binary("+", total, self.ops.binary("*", x, y))
        return total

    def plain(self, args: tuple[Value, ...]) -> Value:
        """Four products of values that are there already."""
        total, *bytes = args
        wide = [self.ops.cast(x, i32) for x in bytes]
        for x, y in zip(wide[:4], wide[4:], strict=True):
            total = self.ops.binary("+", total, self.ops.binary("*", x, y))
        return total

    def _by_pairs(self, total: Value, a: Value, b: Value, name: str) -> Value:
        """Products of i16: bytes 0 and 2, which the shifts leave in place, then 1 and 3."""
        width = a.width
        halves = f"<{2 * width} x i16>"
        x, y = (self.b.same(f"bitcast {v} to {halves}") for v in (a, b))
        even = self.b.same(f"shl {halves} {y}, splat (i16 8)")
        terms = (
            (f"and {halves} {x}, splat (i16 255)", f"ashr {halves} {even}, splat (i16 8)"),
            (f"lshr {halves} {x}, splat (i16 8)", f"ashr {halves} {y}, splat (i16 8)"),
        )
        for left, right in terms:
            p, q = self.b.same(left), self.b.same(right)
            text = f"call {total.type} @llvm.x86.{name}({halves} {p}, {halves} {q})"
            total = self.ops.binary("+", total, self.ops.op(text, i32, width))
        return total

    def _shift(self, how: str, a: Value, by: int) -> Value:
        return self.ops.op(f"{how} {a}, splat (i32 {by})", i32, a.width) if by else a

    def _and(self, a: Value, mask: int) -> Value:
        return self.ops.op(f"and {a}, splat (i32 {mask})", i32, a.width)

    def _words(self, bytes: tuple[Expr, ...], chunk: Chunk) -> Value | None:
        """Four neighbouring bytes as one i32 a lane: those of the lane, or the same for all."""
        memory, first = self.outer.memory, bytes[0]
        if not isinstance(first, Load):
            return None
        buffer = self.outer.buffer(first.buffer)
        start = memory.flat(buffer, first.index)
        for n, e in enumerate(bytes):
            if not isinstance(e, Load) or e.buffer != first.buffer:
                return None
            if memory.flat(buffer, e.index) - start != Index.of(n):
                return None
        rest = start - 4 * chunk.var
        if chunk.var not in start.vars():
            width, mask = 0, None
        elif chunk.var not in rest.vars():
            width, mask = chunk.width, None if chunk.active == chunk.width else chunk.mask
        else:
            return None
        pointer = memory.pointer(buffer, start)
        return self.ops.splat(self._load(buffer, pointer, width, mask), chunk.width)

    def _load(self, buffer: Buffer, pointer: str, width: int, mask: str | None) -> Value:
        """i32 words of a buffer of bytes, remembered until it is written."""
        key = (buffer.name, pointer, f"words {width}", mask or "")
        known = self.b.recall(key)
        if known is None:
            if mask is None:
                type = f"<{width} x i32>" if width else "i32"
                text = f"load {type}, ptr {pointer}, align 1"
            else:
                type = f"<{width} x i32>"
                text = f"call {type} @llvm.masked.load.v{width}i32.p0(ptr align 1 {pointer}, "
                text += f"<{width} x i1> {mask}, {type} zeroinitializer)"
            known = Value(self.b.value(text, buffer.name), i32, width)
            self.b.remember(key, known)
        return known


def _instruction(target: Target, width: int) -> str | None:
    """The intrinsic that multiplies u8 by i8, four a lane; LLVM stops where a CPU has none."""
    if target.is_x86:
        wide = target.has("avx512vnni") and (width == 16 or target.has("avx512vl"))
        short = width in (4, 8) and target.has("avxvnni")
        if width in (4, 8, 16) and (wide or short):
            return f"x86.avx512.vpdpbusd.{32 * width}"
    if target.is_arm and width == 4 and target.has("i8mm"):
        return "aarch64.neon.usdot.v4i32.v16i8"
    return None


def _pairs(target: Target, width: int) -> str | None:
    """The intrinsic that adds the products of neighbouring i16."""
    known = {4: ("sse2.pmadd.wd", "sse2"), 8: ("avx2.pmadd.wd", "avx2")}
    known[16] = ("avx512.pmaddw.d.512", "avx512bw")
    name, feature = known.get(width, ("", ""))
    there = width == 4 or target.has(feature)  # every x86-64 has SSE2
    return name if name and target.is_x86 and there else None
