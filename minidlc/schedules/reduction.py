"""Sums, means, maxima over axes, and softmax, which is two of them and two pointwise stages.

    y[i] = sum over k of x[i, k]

Two cases, by which way memory runs. If the reduced axis is the contiguous one, a vector of x is
reduced to one number (a horizontal reduction); else `lanes` results are summed side by side.
Treated in course chapter 04_schedule.
"""

from __future__ import annotations

from minidlc.expr.index import Var
from minidlc.expr.nodes import Load
from minidlc.expr.walk import walk
from minidlc.schedules.group import Group, work
from minidlc.schedules.injective import keep_at, share, vectorize_rows
from minidlc.schedules.tiles import inline_around
from minidlc.target import Target
from minidlc.te import Schedule, Tensor

STACK_BYTES = 16 << 10


def schedule_reduction(sch: Schedule, group: Group, target: Target) -> None:
    """One reduction and its epilogue, row by row."""
    kept = inline_around(sch, group, target)
    anchor, last = group.anchor, group.last
    assert anchor is not None
    if _along_memory(anchor):
        _horizontal(sch, anchor, target)
        row = share(sch, last, last.axes, work(anchor))
        keep_at(sch, kept, last, row, target)
        if anchor is not last and row is not None:
            sch[anchor].compute_at(last, row)
            sch[anchor].set_scope("stack")
        return
    for stage in dict.fromkeys((anchor, *kept, last)):
        vectorize_rows(sch, stage, target)
        share(sch, stage, stage.axes[:-1], work(anchor))


def schedule_softmax(sch: Schedule, group: Group, target: Target) -> None:
    """All stages at the row they belong to, so that the row stays in the first cache."""
    last = group.last
    reduced_last = all(_along_memory(t) for t in group.stages() if t.reduce_axes)
    if last.reduce_axes and reduced_last:  # an arg_max: positions of the maxima found before
        _horizontal(sch, last, target)
    else:
        vectorize_rows(sch, last, target)
    row = share(sch, last, last.axes[:-1], work(last))
    for stage in reversed(group.intermediate()):
        if stage.reduce_axes and reduced_last:
            _horizontal(sch, stage, target)
        elif not stage.reduce_axes:
            vectorize_rows(sch, stage, target)
        row_bytes = last.shape[-1] * stage.dtype.itemsize
        if reduced_last and row is not None and row_bytes <= STACK_BYTES:
            sch[stage].compute_at(last, row)
            sch[stage].set_scope("stack")


def _along_memory(stage: Tensor) -> bool:
    """True if the reduction runs along the contiguous axis of what it reads."""
    assert stage.body is not None
    sums = {Var(name) for name, _ in stage.reduce_axes}
    loads = [e for e in walk(stage.body) if isinstance(e, Load) and e.index]
    return any(sums & e.index[-1].vars() for e in loads)


def _horizontal(sch: Schedule, stage: Tensor, target: Target) -> None:
    """Vectorise the innermost reduction loop: `lanes` terms become one at each step."""
    name, extent = stage.reduce_axes[-1]
    lanes = target.lanes(stage.dtype.bits)
    if extent > lanes:
        _, name = sch[stage].split(name, lanes, names=(f"{name}o", f"{name}i"))
    if extent > 1:
        sch[stage].vectorize(name)
