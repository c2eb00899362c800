"""Prefetching: in each iteration of a loop, ask for what a later one will read.

    for k in serial(0, 512, prefetch={"B": 8}):     # call void @llvm.prefetch(ptr B + 8 rows, …)

One instruction a cache line of the region that an iteration reads. An address past the end of the
buffer does no harm: nothing is read, and address arithmetic is without `inbounds`. Treated in
course chapter 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from minidlc.codegen.memory import Buffer, Memory
from minidlc.codegen.positions import Positions
from minidlc.codegen.values import Builder
from minidlc.expr.index import Index, substitute, value_range
from minidlc.expr.walk import values_in
from minidlc.loop.nodes import For, Scope
from minidlc.loop.regions import Box, regions

LINE = 64  # bytes
_MOST = 64  # lines in one iteration


def prefetch(
    s: For, b: Builder, memory: Memory, positions: Positions, buffers: Mapping[str, Buffer]
) -> None:
    """Emit the prefetches of one iteration of `s`, whose variable is bound."""
    for name, distance in s.prefetch:
        box = regions(s.body, name, "r", positions.ranges)
        buffer = buffers.get(name)
        if box is None or buffer is None or buffer.scope is Scope.REGISTER:
            continue
        moves = any(s.var in low.vars() for low, _ in box)
        if not moves or any(values_in(low) for low, _ in box):  # looked up: not known ahead
            continue
        ahead = tuple(substitute(low, {s.var: s.var + distance}) for low, _ in box)
        start = memory.flat(buffer, ahead)
        for offset in _lines(buffer, box, positions):
            pointer = memory.pointer(buffer, start + offset)
            b.line(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 3, i32 1)")


def _lines(buffer: Buffer, box: Box, positions: Positions) -> Iterator[int]:
    """Offsets of elements, one in each cache line of the box or nearly so, at most `_MOST`."""
    sizes = [_most(extent, positions) for _, extent in box]
    step = max(LINE // buffer.dtype.itemsize, 1)
    *rows, last = sizes or [1]
    row_steps, count, end = buffer.strides[:-1], 0, -step
    for place in product(*map(range, rows)):
        row = sum(i * stride for i, stride in zip(place, row_steps, strict=True))
        for offset in (*range(row, row + last, step), row + last - 1):
            if offset - end >= step and count < _MOST:
                yield offset
                count, end = count + 1, offset


def _most(extent: Index, positions: Positions) -> int:
    span = value_range(extent, positions.ranges)
    return max(span[1], 1) if span else 1
