"""Loads and stores of one element, or of one element per lane.

    memory.load(a, (i, j), chunk)                   # Value: splat, vector load or gather
    memory.store_lanes(c, (i, j), value, chunk)

Parameters may end right behind their last element: lanes that are no iterations are masked off,
where they would reach over it.
Local buffers have whole vectors as rows, so they are read and, when no other thread sees them,
written whole: a masked store does not forward to a later load and halved the speed of softmax.
Register buffers are stack memory whose every offset is a number: LLVM's `sroa` turns them into
SSA values. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from minidlc.codegen.halves import narrow_half, widen_half
from minidlc.codegen.lanes import Access, lane_access
from minidlc.codegen.positions import Chunk, Positions
from minidlc.codegen.shuffles import column, picked
from minidlc.codegen.values import Builder, Value, memory_type, suffix, vector_type
from minidlc.expr.index import Index, Var, simplify
from minidlc.expr.types import DType
from minidlc.loop.nodes import Scope
from minidlc.support.errors import CodegenError
from minidlc.support.extension import overridden
from minidlc.target import Target

NEAR = 4  # vectors that are loaded for one whose lanes lie apart


@dataclass(frozen=True)
class Buffer:
    """A buffer as the emitted function sees it; `scope` None is a parameter.

    `private` = no other thread writes it while this function runs.
    """

    name: str
    dtype: DType
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    pointer: str
    scope: Scope | None = None
    private: bool = False

    @property
    def is_local(self) -> bool:
        """True for a buffer whose rows are padded to whole vectors."""
        return self.scope is not None


class Memory:
    """Emits accesses to buffers."""

    def __init__(self, builder: Builder, positions: Positions, target: Target) -> None:
        self.b = builder
        self.positions = positions
        self.target = target
        self._flat: dict[tuple[str, tuple[Index, ...], tuple[int, ...]], Index] = {}
        self._plain: dict[tuple[Index, Var], Access] = {}

    def flat(self, buffer: Buffer, index: tuple[Index, ...]) -> Index:
        """The element offset of `index`, as a position."""
        key = (buffer.name, index, buffer.strides)
        found = self._flat.get(key)
        if found is None:
            if len(index) != len(buffer.dims):
                raise CodegenError(
                    f"{buffer.name!r} has {len(buffer.dims)} dimensions, got {len(index)} indices",
                    code="MDLC0812",
                )
            found = Index((), 0)
            for e, stride in zip(index, buffer.strides, strict=True):
                found = found + stride * e
            if any(not isinstance(atom, Var) for atom, _ in found.terms):
                found = simplify(found, {})  # 7*(q//7) + q%7 is q: h and w of a fused loop
            self._flat[key] = found
        return found

    def lane(self, flat: Index, chunk: Chunk) -> tuple[Access, Index]:
        """How the lanes of `chunk` access offset `flat`, and the offset it was decided on."""
        var = chunk.var
        if any(not isinstance(a, Var) and var in Index.of(a).vars() for a, _ in flat.terms):
            flat = self.positions.simplified(flat)  # (16*jv + jl)//16 is jv, with jv a number
            return lane_access(flat, var), flat
        key = (flat, var)
        if key not in self._plain:
            self._plain[key] = lane_access(flat, var)
        return self._plain[key], flat

    def pointer(self, buffer: Buffer, flat: Index) -> str:
        """The address of the element at offset `flat`, steps of outer loops first."""
        const, parts = self.positions.split(flat)
        if buffer.scope is Scope.REGISTER and parts:
            raise CodegenError(
                f"register buffer {buffer.name!r} is accessed at an offset that is no constant: "
                f"{flat}",
                hint="unroll the loops around it, or use scope 'stack'",
                code="MDLC0804",
            )
        element, pointer = memory_type(buffer.dtype), buffer.pointer
        for x, k in parts:
            step = self.positions.times(x, k)
            text = f"getelementptr {element}, ptr {pointer}, i64 {step}"
            pointer = self.b.pure(text, pointer, step, stem="p")
        if const:
            text = f"getelementptr {element}, ptr {pointer}, i64 {const}"
            pointer = self.b.pure(text, pointer, stem="p")
        return pointer

    # loads

    def load(self, buffer: Buffer, index: tuple[Index, ...], chunk: Chunk | None) -> Value:
        """The element at `index`; one per lane where they differ."""
        flat = self.flat(buffer, index)
        if chunk is None:
            return self._remembered(buffer, self.pointer(buffer, flat), 0, None)
        access, flat = self.lane(flat, chunk)
        access = "gather" if self.positions.unsafe(flat, chunk) else access
        safe = not chunk.guarded or self.positions.inside(index, buffer.dims)
        if access == "splat" and safe:
            return self._remembered(buffer, self.pointer(buffer, flat), 0, None)
        whole = chunk.active == chunk.width or self._has_room(buffer, flat, chunk)
        mask = None if safe and (whole or chunk.mask is None) else chunk.mask
        if access == "vector":
            return self._remembered(buffer, self.pointer(buffer, flat), chunk.width, mask)
        if buffer.scope is Scope.REGISTER:
            return self._from_registers(buffer, flat, chunk)
        near = None if overridden("vectorize") else self._near(buffer, flat, chunk, safe)
        if near is not None:
            return near
        addresses = self._addresses(buffer, flat, chunk)
        return self._gather(buffer, addresses, chunk.width, chunk.mask)

    def _from_registers(self, buffer: Buffer, flat: Index, chunk: Chunk) -> Value:
        """A lane out of each of several registers: a column of a tile, or element by element."""
        found, n = self.positions.lanes(flat, chunk), chunk.width
        if not isinstance(found, list):
            self.pointer(buffer, flat)  # refuses what is no constant
        used = [int(place) for place in found][: chunk.active or n]
        places = used + used[:1] * (n - len(used))  # other lanes: whatever is there
        number = places[0] % n
        if all(place % n == number for place in places):
            rows = [self._register(buffer, place - number, n) for place in places]
            return column(self.b, rows, number)
        vector = Value("poison", buffer.dtype, n)
        for lane, place in enumerate(places):
            text = f"insertelement {vector}, {self._register(buffer, place, 0)}, i64 {lane}"
            vector = Value(self.b.value(text), buffer.dtype, n)
        return vector

    def _near(self, buffer: Buffer, flat: Index, chunk: Chunk, safe: bool) -> Value | None:
        """Lanes that lie near each other, every second element or each one twice, by shuffles.

        None where they are spread over more than a few vectors, or where that is not known. Loads
        cover what is from the first of them to the last, and nothing else.
        """
        found, n = self.positions.steps(flat, chunk), chunk.width
        on = tuple(range(chunk.active)) if safe else chunk.on()
        if found is None or not on:
            return None
        first, steps = found[0], [found[1][lane] for lane in on]
        low, span = min(steps), max(steps) - min(steps) + 1
        if span > NEAR * n or steps == list(range(low, low + len(steps))):
            return None
        width = min(n, span)
        starts = [min(t * n, span - width) for t in range(-(-span // n))]
        places = [self.pointer(buffer, first + low + start) for start in starts]
        pieces = [self._remembered(buffer, place, width, None) for place in places]
        lanes = [_place(steps[0] - low, starts, width)] * n  # lanes that are off: whatever is there
        for lane, step in zip(on, steps, strict=True):
            lanes[lane] = _place(step - low, starts, width)
        return picked(self.b, pieces, lanes)

    def _register(self, buffer: Buffer, place: int, width: int) -> Value:
        return self._remembered(buffer, self.pointer(buffer, Index((), place)), width, None)

    def _has_room(self, buffer: Buffer, flat: Index, chunk: Chunk) -> bool:
        """True if lanes that are no iterations load something too, which nobody looks at."""
        if buffer.is_local or not chunk.active:
            return buffer.is_local
        span, beyond = self.positions.span(flat), chunk.width - chunk.active
        return span is not None and span[0] >= 0 and span[1] + beyond < math.prod(buffer.dims)

    def _remembered(self, buffer: Buffer, pointer: str, width: int, mask: str | None) -> Value:
        key = (buffer.name, pointer, str(width), mask or "")
        known = self.b.recall(key)
        if known is None:
            known = self._load(buffer, pointer, width, mask)
            self.b.remember(key, known)
        return known

    def _load(self, buffer: Buffer, pointer: str, width: int, mask: str | None) -> Value:
        element, align = memory_type(buffer.dtype), buffer.dtype.itemsize
        type = vector_type(element, width)
        if mask is None:
            raw = self.b.value(f"load {type}, ptr {pointer}, align {align}", buffer.name)
        else:
            name = f"@llvm.masked.load.{suffix(element, width)}.p0"
            where = f"ptr align {align} {pointer}, <{width} x i1> {mask}, {type} zeroinitializer"
            raw = self.b.value(f"call {type} {name}({where})", buffer.name)
        return self.widen(Value(raw, buffer.dtype, width))

    def _addresses(self, buffer: Buffer, flat: Index, chunk: Chunk) -> str:
        """An address per lane, as a vector of pointers."""
        k, var, n = flat.coefficient(chunk.var), chunk.var, chunk.width
        if not self.positions.varies(flat - k * var, chunk):
            pointer = self.pointer(buffer, flat)
            steps = self.positions.lanes_text([k * t for t in range(n)])
        else:
            pointer = buffer.pointer
            steps = self.positions.lanes_text(self.positions.lanes(flat, chunk))
        element = memory_type(buffer.dtype)
        text = f"getelementptr {element}, ptr {pointer}, <{n} x i64> {steps}"
        return self.b.pure(text, pointer, steps, stem="p")

    def _gather(self, buffer: Buffer, addresses: str, width: int, mask: str | None) -> Value:
        key = (buffer.name, addresses, str(width), mask or "")
        known = self.b.recall(key)
        if known is None:
            element = memory_type(buffer.dtype)
            type = vector_type(element, width)
            name = f"@llvm.masked.gather.{suffix(element, width)}.v{width}p0"
            on = f"<{width} x i1> {mask or 'splat (i1 true)'}"
            place = f"<{width} x ptr> align {buffer.dtype.itemsize} {addresses}"
            raw = self.b.value(f"call {type} {name}({place}, {on}, {type} zeroinitializer)")
            known = self.widen(Value(raw, buffer.dtype, width))
            self.b.remember(key, known)
        return known

    # stores

    def store_scalar(self, buffer: Buffer, flat: Index, value: Value) -> None:
        """Store one element."""
        pointer = self.pointer(buffer, flat)
        self._store(buffer, pointer, self.narrow(value), None)

    def store_lanes(
        self, buffer: Buffer, index: tuple[Index, ...], value: Value, chunk: Chunk
    ) -> None:
        """Store one element per lane: neighbours, or scattered."""
        access, flat = self.lane(self.flat(buffer, index), chunk)
        raw = self.narrow(value)
        if access == "gather" or self.positions.unsafe(flat, chunk):
            if buffer.scope is Scope.REGISTER:
                self.pointer(buffer, flat)  # refuses what is no constant
            self._scatter(buffer, self._addresses(buffer, flat, chunk), raw, chunk)
            return
        pointer, mask = self.pointer(buffer, flat), chunk.mask
        if mask is not None and buffer.is_local and buffer.private:
            if not chunk.guarded and self._ends_row(buffer, index, chunk):
                mask = None
            elif not chunk.guarded or self.positions.inside(index, buffer.dims):
                raw, mask = self._blend(buffer, pointer, raw, mask), None
        self._store(buffer, pointer, raw, mask)

    def _ends_row(self, buffer: Buffer, index: tuple[Index, ...], chunk: Chunk) -> bool:
        """True if the lanes beyond the iterations all fall into the padding of the row."""
        if self.flat(buffer, (*index[:-1], Index((), 0))).coefficient(chunk.var):
            return False
        first = self.positions.scalar(index[-1])
        row = buffer.strides[-2] if len(buffer.strides) > 1 else first
        return (
            isinstance(first, int)
            and isinstance(row, int)
            and first + chunk.active == buffer.dims[-1]
            and (len(buffer.strides) == 1 or first + chunk.width <= row)
        )

    def _blend(self, buffer: Buffer, pointer: str, raw: Value, mask: str) -> Value:
        type = vector_type(memory_type(buffer.dtype), raw.width)
        old = self.b.value(f"load {type}, ptr {pointer}, align {buffer.dtype.itemsize}")
        text = f"select <{raw.width} x i1> {mask}, {type} {raw.text}, {type} {old}"
        return Value(self.b.value(text), buffer.dtype, raw.width)

    def _store(self, buffer: Buffer, pointer: str, raw: Value, mask: str | None) -> None:
        element, align = memory_type(buffer.dtype), buffer.dtype.itemsize
        type = vector_type(element, raw.width)
        if mask is None:
            self.b.line(f"store {type} {raw.text}, ptr {pointer}, align {align}")
        else:
            name = f"@llvm.masked.store.{suffix(element, raw.width)}.p0"
            on = f"<{raw.width} x i1> {mask}"
            self.b.line(f"call void {name}({type} {raw.text}, ptr align {align} {pointer}, {on})")
        self.b.forget(buffer.name)

    def _scatter(self, buffer: Buffer, addresses: str, raw: Value, chunk: Chunk) -> None:
        element, n = memory_type(buffer.dtype), chunk.width
        name = f"@llvm.masked.scatter.{suffix(element, n)}.v{n}p0"
        place = f"<{n} x ptr> align {buffer.dtype.itemsize} {addresses}"
        on = f"<{n} x i1> {chunk.mask or 'splat (i1 true)'}"
        self.b.line(f"call void {name}({vector_type(element, n)} {raw.text}, {place}, {on})")
        self.b.forget(buffer.name)

    # between the type in memory and the type computed with

    def widen(self, raw: Value) -> Value:
        """A loaded element as the type it is computed in."""
        if raw.dtype.kind == "bool":
            type = vector_type("i8", raw.width)
            zero = "zeroinitializer" if raw.width else "0"
            return Value(self.b.same(f"icmp ne {type} {raw.text}, {zero}"), raw.dtype, raw.width)
        if raw.dtype.is_float and raw.dtype.bits == 16:
            return widen_half(self.b, raw, self.target)
        return raw

    def narrow(self, value: Value) -> Value:
        """A computed value as it lies in memory."""
        if value.dtype.kind == "bool":
            type = vector_type("i8", value.width)
            return Value(self.b.same(f"zext {value} to {type}"), value.dtype, value.width)
        if value.dtype.is_float and value.dtype.bits == 16:
            return narrow_half(self.b, value, self.target)
        return value


def _place(step: int, starts: Sequence[int], width: int) -> int:
    """Where in pieces of this width, laid end to end, the element `step` is."""
    number = next(n for n, start in enumerate(starts) if step < start + width)
    return number * width + step - starts[number]
