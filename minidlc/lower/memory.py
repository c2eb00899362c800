"""The final memory plan: where each buffer of a call lives in one arena.

    requests   conv 25088 B live in steps 0..1, pool 6272 B live in steps 1..2, …
    plan       offsets such that no two buffers alive at the same time share a byte

Each buffer, the largest first, goes to the lowest offset where it fits beside those it lives with
(as in M. Pisarchyk and J. Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020).
No arena is smaller than the largest set of buffers alive at once; where the plan misses that, other
orders are tried. The plan is proved right before it is used, whoever made it.
Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, SupportsIndex

from minidlc.runtime.memory import ALIGNMENT
from minidlc.runtime.plan import Lying, MemoryPlan, PlannedBuffer, Update
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
    requests: Sequence[BufferRequest],
    max_bytes: int,
    constant_bytes: int = 0,
    values: tuple[Lying, ...] = (),
    steps: tuple[str, ...] = (),
    updates: tuple[Update, ...] = (),
) -> MemoryPlan:
    """Place the buffers; MemoryLimitError (MDLC1101) if they and constants exceed `max_bytes`.

    `values` are what will lie in the buffers, `steps` the names of the times, `updates` what lies
    over inputs, outside the arena. Every plan, ours or
    an override's, is proved before it is used: VerifyError (MDLC0480, MDLC0481, MDLC0483) if two
    live buffers or values overlap or an offset is not a multiple of 64, PassError (MDLC0530) if
    there is not one offset for each request.
    """
    requests = tuple(requests)
    offsets: list[Any] = list(extension.dispatch("memory_plan", close_to_bound)(requests))
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
    alone = sum(_aligned(v.nbytes) for v in values if v.how in ("part", "in place"))
    naive = sum(_aligned(r.nbytes) for r in requests) + alone
    plan = MemoryPlan(buffers, arena, naive, values, steps, updates)
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


def close_to_bound(requests: tuple[BufferRequest, ...]) -> list[int]:
    """Offsets by the best of several orders, then by a search among orders near it.

    Stops where the arena is as small as the largest live set, as it is for most networks at once.
    Else the topmost buffers are placed earlier, again and again, for a bounded number of steps.
    """
    together = _neighbours(requests)
    bound = live_bound(requests)
    best: list[int] = []
    order: list[int] = []
    for key in _ORDERS:
        tried = sorted(range(len(requests)), key=lambda i: (*key(requests[i]), i))
        offsets = place_in_order(requests, tried, together)
        if not best or _top(requests, offsets) < _top(requests, best):
            best, order = offsets, tried
        if _top(requests, best) <= bound:
            return best
    return _searched(requests, order, best, together, bound)


def greedy_by_size(requests: tuple[BufferRequest, ...]) -> list[int]:
    """Offsets, largest buffer first, each in the lowest gap among the buffers it lives with."""
    order = sorted(range(len(requests)), key=lambda i: (-requests[i].nbytes, i))
    return place_in_order(requests, order, _neighbours(requests))


_ORDERS: tuple[Callable[[BufferRequest], tuple[int, ...]], ...] = (
    lambda r: (-r.nbytes,),
    lambda r: (-r.nbytes * (r.last - r.first + 1),),
    lambda r: (-(r.last - r.first), -r.nbytes),
    lambda r: (r.first, -r.nbytes),
)
_EFFORT = 300_000  # pairs of buffers that a search looks at: a tenth of a second


def place_in_order(
    requests: Sequence[BufferRequest], order: Sequence[int], together: Sequence[Sequence[int]]
) -> list[int]:
    """Offsets: each buffer, in this order, in the lowest gap among those it lives with."""
    offsets = [-1] * len(requests)
    for i in order:
        living = sorted(
            (offsets[j], _aligned(requests[j].nbytes)) for j in together[i] if offsets[j] >= 0
        )
        place, size = 0, _aligned(requests[i].nbytes)
        for start, length in living:
            if start - place >= size:
                break
            place = max(place, start + length)
        offsets[i] = place
    return offsets


def _searched(
    requests: Sequence[BufferRequest],
    order: list[int],
    best: list[int],
    together: Sequence[Sequence[int]],
    bound: int,
) -> list[int]:
    """Move a buffer that reaches the top to an earlier turn; keep the order if it is no worse."""
    chance = random.Random(0)
    for _ in range(_EFFORT // max(1, sum(map(len, together)))):
        top = _top(requests, best)
        if top <= bound:
            break
        highest = [i for i, start in enumerate(best) if start + _aligned(requests[i].nbytes) == top]
        turn = order.index(chance.choice(highest))
        tried = order.copy()
        tried.insert(chance.randrange(turn + 1), tried.pop(turn))
        offsets = place_in_order(requests, tried, together)
        if _top(requests, offsets) <= top:
            best, order = offsets, tried
    return best


def live_bound(requests: Sequence[BufferRequest]) -> int:
    """Bytes of the largest live set, each buffer rounded up to whole cache lines."""
    changes: dict[int, int] = {}
    for r in requests:
        changes[r.first] = changes.get(r.first, 0) + _aligned(r.nbytes)
        changes[r.last + 1] = changes.get(r.last + 1, 0) - _aligned(r.nbytes)
    return max(accumulate(changes[t] for t in sorted(changes)), default=0)


def _top(requests: Sequence[BufferRequest], offsets: Sequence[int]) -> int:
    """What an arena needs."""
    ends = (o + _aligned(r.nbytes) for r, o in zip(requests, offsets, strict=True))
    return max(ends, default=0)


def _neighbours(requests: Sequence[BufferRequest]) -> list[list[int]]:
    """For each buffer those that it lives with."""
    together: list[list[int]] = [[] for _ in requests]
    live: list[int] = []
    for i in sorted(range(len(requests)), key=lambda i: requests[i].first):
        live = [j for j in live if requests[j].last >= requests[i].first]
        for j in live:
            together[i].append(j)
            together[j].append(i)
        live.append(i)
    return together


def _aligned(nbytes: int) -> int:
    return -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
