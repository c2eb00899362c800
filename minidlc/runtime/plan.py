"""The memory plan: where every intermediate buffer lies in the arena, and when it is alive.

    plan = MemoryPlan((PlannedBuffer("h", 1024, 0, first=0, last=2),), 1024, 1024)
    plan.check(); print(plan)

Times are positions in the order of kernel calls: a buffer is alive from the call that first writes
it to the last that uses it, both included. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from dataclasses import dataclass

from minidlc.runtime.memory import ALIGNMENT
from minidlc.support.errors import VerifyError


@dataclass(frozen=True)
class PlannedBuffer:
    """`nbytes` bytes at `offset` of the arena, alive during calls `first` to `last`."""

    name: str
    nbytes: int
    offset: int
    first: int
    last: int

    @property
    def end(self) -> int:
        """First byte behind the buffer."""
        return self.offset + self.nbytes


@dataclass(frozen=True)
class MemoryPlan:
    """All buffers of the arena; `naive_bytes` is what they need without sharing memory."""

    buffers: tuple[PlannedBuffer, ...]
    arena_bytes: int
    naive_bytes: int

    def check(self) -> None:
        """Prove that the plan is safe.

        Raises VerifyError: two buffers alive at the same time share bytes (MDLC0480); a buffer lies
        outside the arena, is not aligned or ends before it begins (MDLC0481).
        """
        for b in self.buffers:
            if b.offset < 0 or b.end > self.arena_bytes or b.offset % ALIGNMENT:
                raise VerifyError(
                    f"memory plan: {b.name!r} at {b.offset}..{b.end} does not fit the arena",
                    notes=(f"arena: {self.arena_bytes} bytes, offsets in units of {ALIGNMENT}",),
                    code="MDLC0481",
                )
            if b.last < b.first:
                raise VerifyError(
                    f"memory plan: {b.name!r} dies at {b.last}, before its first use at {b.first}",
                    code="MDLC0481",
                )
        live: list[PlannedBuffer] = []
        for b in sorted(self.buffers, key=lambda x: (x.first, x.offset)):
            live = [x for x in live if x.last >= b.first]
            for x in live:
                if x.nbytes and b.nbytes and x.offset < b.end and b.offset < x.end:
                    raise VerifyError(
                        f"memory plan: {x.name!r} and {b.name!r} are alive together and overlap",
                        notes=(_row(x), _row(b)),
                        code="MDLC0480",
                    )
            live.append(b)

    @property
    def peak_bytes(self) -> int:
        """The most bytes alive at one time: no plan can have a smaller arena."""
        times = {b.first for b in self.buffers}
        return max(
            (sum(b.nbytes for b in self.buffers if b.first <= t <= b.last) for t in times),
            default=0,
        )

    def __str__(self) -> str:
        width = max([len(b.name) for b in self.buffers], default=4)
        head = f"{'buffer':<{max(width, 6)}} {'bytes':>10} {'offset':>10}  alive"
        rows = [
            f"{b.name:<{max(width, 6)}} {b.nbytes:>10} {b.offset:>10}  {b.first}..{b.last}"
            for b in self.buffers
        ]
        total = f"arena {self.arena_bytes} bytes; without sharing {self.naive_bytes}"
        return "\n".join([head, *rows, total])


def _row(b: PlannedBuffer) -> str:
    return f"{b.name}: bytes {b.offset}..{b.end}, alive {b.first}..{b.last}"
