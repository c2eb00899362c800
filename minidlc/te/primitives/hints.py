"""Primitives for what the machine can do beyond loops: an instruction for a loop, and prefetching.

    Tensorize("C", "u", "dot4").apply(state)    # four products of bytes: one instruction
    Prefetch("C", "B", "k", 8).apply(state)     # fetch what iteration k + 8 will read

Reads and writes `State`. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from minidlc.expr.walk import values_in
from minidlc.loop.nodes import Kind
from minidlc.loop.regions import loads
from minidlc.support.errors import ScheduleError, nearest
from minidlc.te.intrinsics import INTRINSICS
from minidlc.te.primitive import Primitive, register
from minidlc.te.stage import State


@register("tensorize")
@dataclass(frozen=True)
class Tensorize(Primitive):
    """Compute an innermost reduction loop by one instruction; "dot4" is four products u8 x i8.

    Before:                               After `tensorize("C", "u", "dot4")`:

        for j in vectorized(0, 16):           for j in vectorized(0, 16):
            for u in serial(0, 4):                C[j] = dot4(C[j], A[4*k], …, A[4*k + 3],
                C[j] = C[j] + cast("i32",                           B[k, j, 0], …, B[k, j, 3])
                  A[4*k + u]) * cast("i32",
                  B[k, j, u])

    It is exact, with or without such an instruction on the target. Where the loop may run fewer
    times (a tail), it stays beside it. The four bytes must lie side by side: tile the layout by 4.
    Refuses: a loop that is no reduction, is not innermost or does not run four times; a body that
    is no sum of products of a u8 and an i8, both cast to i32.
    """

    axis: str
    intrinsic: str

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        stage.position(self.axis)
        if self.intrinsic not in INTRINSICS:
            hint = nearest(self.intrinsic, INTRINSICS)
            raise ScheduleError(f"no intrinsic {self.intrinsic!r}", hint=hint, code="MDLC0634")
        if self.axis not in stage.reductions or stage.leaves[-1] != self.axis:
            raise ScheduleError(
                f"{self.axis!r} is not the innermost loop of {stage.name!r}, or no reduction",
                notes=(f"loops of {stage.name}, outermost first: {', '.join(stage.leaves)}",),
                hint="reorder first",
                code="MDLC0634",
            )
        if stage.kind(self.axis) not in (Kind.SERIAL, Kind.UNROLLED):
            kind = stage.kind(self.axis)
            raise ScheduleError(f"loop {self.axis!r} is {kind} already", code="MDLC0607")
        stage = stage.with_kind(self.axis, Kind.UNROLLED)
        return state.update(replace(stage, intrinsic=(self.axis, self.intrinsic)))


@register("prefetch")
@dataclass(frozen=True)
class Prefetch(Primitive):
    """Ask for what the loop will read of a tensor some iterations later.

    Before:                               After `prefetch("C", "B", "k", 8)`:

        for k in serial(0, 512):              for k in serial(0, 512, prefetch={"B": 8}):
            C[j] = C[j] + A[k] * B[k, j]          C[j] = C[j] + A[k] * B[k, j]

    One instruction a cache line; what lies past the end is asked for as well, which does nothing.
    Refuses: a tensor that the loop does not read at positions it knows ahead, a distance below 1, a
    loop that is vectorised or unrolled.
    """

    tensor: str
    axis: str
    distance: int

    def apply(self, state: State) -> State:
        stage = state.stage(self.stage)
        stage.position(self.axis)
        if self.distance < 1:
            message = f"the distance is {self.distance}, expected 1 or more"
            raise ScheduleError(message, code="MDLC0604")
        found = [load for load in loads(stage.body) if load.buffer == self.tensor]
        if not found or any(values_in(e) for load in found for e in load.index):
            why = "at positions that it looks up" if found else "nothing"
            raise ScheduleError(
                f"{stage.name!r} reads {why} of {self.tensor!r}",
                hint=f"it reads {', '.join(sorted(stage.reads))}",
                code="MDLC0634",
            )
        hint = (self.axis, self.tensor, self.distance)
        others = tuple(h for h in stage.prefetches if h[:2] != hint[:2])
        return state.update(replace(stage, prefetches=(*others, hint)))
