"""The final memory plan: where each buffer of a call lives in one arena.

    requests   conv 25088 B live in steps 0..1, pool 6272 B live in steps 1..2, …
    plan       offsets such that no two buffers alive at the same time share a byte

Greedy by size: the largest buffer first, each at the lowest offset where it fits beside those it
lives with (as in M. Pisarchyk and J. Lee, "Efficient Memory Management for Deep Neural Net
Inference", 2020). The plan is proved right before it is used, whoever made it.
Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

from minidlc.runtime.memory import ALIGNMENT
from minidlc.runtime.plan import MemoryPlan, PlannedBuffer
from minidlc.support import extension
from minidlc.support.errors import MemoryLimitError, PassError
from minidlc.support.locations import caller


@dataclass(frozen=True)
class BufferRequest:
    """A buffer of `nbytes` that is written in step `first` and last read in step `last`."""

    name: str
    nbytes: int
    first: int
    last: int


extension.declare(
    "memory_plan",
    "(requests: tuple[BufferRequest, ...]) -> list[int]",
    "offsets in the arena",
    returns=extension.instance(list, tuple),
)


def plan_memory(
    requests: Sequence[BufferRequest], max_bytes: int, constant_bytes: int = 0
) -> MemoryPlan:
    """Place the buffers; MemoryLimitError (MDLC1101) if they and constants exceed `max_bytes`.

    Every plan, ours or an override's, is proved before it is used: VerifyError (MDLC0480, MDLC0481)
    if two live buffers overlap or an offset is not a multiple of 64, PassError (MDLC0530) if there
    is not one offset for each request.
    """
    requests = tuple(requests)
    offsets: list[Any] = list(extension.dispatch("memory_plan", greedy_by_size)(requests))
    numbers = [operator.index(o) for o in offsets if isinstance(o, SupportsIndex)]
    if len(offsets) != len(requests) or len(numbers) != len(offsets):
        raise PassError(
            f"memory_plan: expected {len(requests)} offsets, got {offsets}", code="MDLC0530"
        )
    buffers = tuple(
        PlannedBuffer(r.name, r.nbytes, offset, r.first, r.last)
        for r, offset in zip(requests, numbers, strict=True)
    )
    arena = max((b.offset + _aligned(b.nbytes) for b in buffers), default=0)
    plan = MemoryPlan(buffers, arena, sum(_aligned(r.nbytes) for r in requests))
    plan.check()
    if arena + constant_bytes > max_bytes:
        largest = sorted(buffers, key=lambda b: -b.nbytes)[:3]
        notes = [f"arena: {arena:,} bytes", f"constants: {constant_bytes:,} bytes"]
        raise MemoryLimitError(
            f"the model needs {arena + constant_bytes:,} bytes, max_bytes allows {max_bytes:,}",
            loc=caller(),
            notes=(*notes, *(f"{b.name}: {b.nbytes:,} bytes" for b in largest)),
            hint="smaller shapes, or compile(max_bytes=…)",
        )
    return plan


def greedy_by_size(requests: tuple[BufferRequest, ...]) -> list[int]:
    """Offsets, largest buffer first, each in the lowest gap among the buffers it lives with."""
    offsets: dict[int, int] = {}
    for i in sorted(range(len(requests)), key=lambda i: (-requests[i].nbytes, i)):
        living = sorted(
            (offsets[j], _aligned(requests[j].nbytes))
            for j in offsets
            if _live_together(requests[i], requests[j])
        )
        place, size = 0, _aligned(requests[i].nbytes)
        for start, length in living:
            if start - place >= size:
                break
            place = max(place, start + length)
        offsets[i] = place
    return [offsets[i] for i in range(len(requests))]


def _aligned(nbytes: int) -> int:
    return -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT


def _live_together(a: BufferRequest, b: BufferRequest) -> bool:
    return a.first <= b.last and b.first <= a.last
