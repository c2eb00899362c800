"""Gradients of pools: each element asks the windows over it, in vectors along the row.

    dx[n, c, h, w] = sum over the windows v over (h, w) of share[n, c, v] if x[n, c, h, w] >= y[v]

    step                      what it does
    naive                     the share of a window is computed again for every element in it
    planes in parallel        an image of one channel stays in the first cache till it is done
    shares of a plane first   once for each window, on the stack: one division, one count of ties
    vectors along the row     y[w // 2] for 16 elements are 8 that lie side by side: one load, and a
                              shuffle that repeats each

Nothing is added to memory that another iteration has written, so no order of loops is needed: a
scatter of dy would be bound to one. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from minidlc.schedules.group import Group, work
from minidlc.schedules.implementation import Implementation, Knobs
from minidlc.schedules.injective import inline_pointwise, keep_at, share
from minidlc.schedules.tiles import accumulator, computing_bits, hold_in_registers
from minidlc.target import Target
from minidlc.te import Schedule, Tensor


def schedule_spread(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    """Planes in parallel; in each the stages of the windows, then rows of the result."""
    last, anchor = group.last, group.anchor
    assert anchor is not None
    windows = _of_windows(group)
    others = [t for t in group.intermediate() if t is not anchor and t not in windows]
    kept = inline_pointwise(sch, [t for t in others if not t.reduce_axes])
    sums = accumulator(sch, group)
    lanes = target.lanes(computing_bits(group))
    leaf, lane = sch[last].split(last.axes[-1], lanes, names=("wo", "wi"))
    sch[last].vectorize(lane)
    plane = share(sch, last, last.axes[:2], work(anchor))
    keep_at(sch, kept, last, leaf, target, unrolled=True)
    hold_in_registers(sch, group, sums, leaf, (), lanes, steps=anchor.reduce_axes[-1][1])
    for stage in reversed(windows):
        _place(sch, group, stage, plane, lanes)


def _place(sch: Schedule, group: Group, stage: Tensor, plane: str | None, lanes: int) -> None:
    """A stage of the windows in vectors: sums in registers at their reader, others on the stack."""
    vector, lane = sch[stage].split(stage.axes[-1], lanes, names=("vo", "vi"))
    (reader,) = group.readers(stage)
    if stage.reduce_axes:
        taps = [name for name, _ in stage.reduce_axes]
        sch[stage].reorder(*taps, lane).unroll(taps[-1])
        sch[stage].compute_at(reader, vector).set_scope("register")
    elif plane is not None:
        sch[stage].compute_at(group.last, plane).set_scope("stack")
    sch[stage].vectorize(lane)


def _of_windows(group: Group) -> tuple[Tensor, ...]:
    """What is computed for each window: counts of ties, and shares, which are read by elements."""
    counts = [t for t in group.before_anchor() if t.reduce_axes]
    found = list(counts)
    for stage in group.before_anchor():
        if stage not in found and any(t in found for t in stage.inputs):
            found.append(stage)
    return tuple(t for t in group.stages() if t in found)


def has_elements(group: Group, target: Target) -> bool:
    """True if there is anything to compute."""
    return group.anchor is not None and 0 not in group.last.shape


SPREAD = Implementation("pool_gradient", "pool_gradient", schedule_spread, applies=has_elements)
