"""Pointwise kernels: elementwise chains, broadcasts, transposes, copies.

    schedule_injective(sch, group, target)

    plain               inlined                      vectorised
    for i, j: t = x+y   for i, j: z = max(x+y, 0)    for i: for jo: for ji in vectorized: z[…] = …
    for i, j: z = …

Inlining turns n passes over memory into one; the vector loop then does `lanes` elements at a time.
Treated in course chapter 04_schedule.
"""

from __future__ import annotations

import math

from minidlc.schedules.group import Group, work
from minidlc.target import Target
from minidlc.te import Schedule, Tensor

PARALLEL_WORK = 1 << 15  # below about ten microseconds of work a fork costs more than it gains


def schedule_injective(sch: Schedule, group: Group, target: Target) -> None:
    """Inline everything into the outputs and vectorise their rows."""
    for stage in reversed(group.intermediate()):
        sch[stage].compute_inline()
    for output in group.outputs:
        vectorize_rows(sch, output, target)


def vectorize_rows(sch: Schedule, stage: Tensor, target: Target) -> None:
    """Make the last axis of `stage` a vector loop and, if there is enough work, share the rest."""
    if not stage.axes or 0 in stage.shape:
        return
    lanes = target.lanes(stage.dtype.bits)
    row, name = stage.shape[-1], stage.axes[-1]
    if row > lanes:
        _, name = sch[stage].split(name, lanes, names=(f"{name}o", f"{name}i"))
    if row > 1:
        if stage.reduce_axes:  # the vector loop is the innermost
            sch[stage].reorder(*(axis for axis, _ in stage.reduce_axes), name)
        sch[stage].vectorize(name)
    share(sch, stage, stage.axes[:-1], work(stage))


def share(sch: Schedule, stage: Tensor, axes: tuple[str, ...], amount: int) -> None:
    """Run the outermost axes in parallel: as many fused together as give a few dozen pieces."""
    if amount < PARALLEL_WORK or not axes:
        return
    shape = dict(zip(stage.axes, stage.shape, strict=True))
    outer = axes[0]
    pieces = shape.get(outer, 1)
    for name in axes[1:]:
        if pieces >= 32:
            break
        pieces *= shape.get(name, 1)
        outer = sch[stage].fuse(outer, name, f"{outer}{name}")
    if pieces > 1 and math.isfinite(pieces):
        sch[stage].parallel(outer)
