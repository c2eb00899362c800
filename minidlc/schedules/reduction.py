"""Sums, means, maxima: how one reduction is looped over.

    sum_in_vectors(sch, "s", target)                # s[i] = sum over k of x[i, k]
    sum_side_by_side(sch, "s", 4, target)           # s[i] = sum over k of x[k, i]

    step                       a row of k = 1024, 8 lanes   what it does
    naive                      1024 adds                    each waits for the one before
    horizontal                 128 reductions of a vector   one load, `lanes` terms
    rfactor by 4 vectors       32 steps of 4 vector adds    four accumulators in registers, none
                                                            waits for another
    rfactor by lanes           + 3 adds and 1 reduction     the four become one, then its lanes meet

That is for rows along memory. Across memory, lanes are results side by side, and the accumulators
of a block of them stay in registers over all of k. One number out of a whole tensor is first cut
into blocks, for threads. Strict precision adds up in the order of the plain loops: a vector is
loaded, its lanes are added one after another. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from minidlc.expr.index import Var
from minidlc.expr.nodes import Load
from minidlc.expr.walk import walk
from minidlc.schedules.offsets import body_of, vector_lanes
from minidlc.target import Target
from minidlc.te import Schedule, Tensor

ACCUMULATORS = 4  # vectors: an addition takes about four cycles, and one or two start in each
BLOCKS = 64  # of a whole tensor


def along_memory(stage: Tensor) -> bool:
    """True if the reduction runs along the contiguous axis of what it reads."""
    assert stage.body is not None
    sums = {Var(name) for name, _ in stage.reduce_axes}
    loads = [e for e in walk(stage.body) if isinstance(e, Load) and e.index]
    return any(sums & e.index[-1].vars() for e in loads)


def may_reorder(sch: Schedule, stage: str, target: Target) -> bool:
    """Whether the terms of a reduction may be combined in any order."""
    return target.precision != "strict" or not body_of(sch, stage).dtype.is_float


def sum_in_vectors(
    sch: Schedule, stage: str, target: Target, accumulators: int = ACCUMULATORS
) -> tuple[str, ...]:
    """Reduce a row along memory in vector accumulators, which become stages of their own.

    Returns those, each before the one that it reads; see `hold`.
    """
    name, extent = sch.state.stage(stage).reduce_axes[-1]
    lanes = vector_lanes(sch, stage, target)
    if extent <= lanes or not may_reorder(sch, stage, target):
        _horizontal(sch, stage, name, extent, lanes)
        return ()
    vector, lane, half = f"{name}v", f"{name}i", name
    parts: list[str] = []
    if extent > accumulators * lanes:
        step, half = sch[stage].split(name, accumulators * lanes, names=(f"{name}o", f"{name}r"))
        parts.append(_partial(sch, stage, half))
        sch[parts[0]].split(half, lanes, names=(vector, lane))
        _as_vectors(sch, parts[0], (step,), vector, lane)
    sch[stage].split(half, lanes, names=(vector, lane))
    parts.append(_partial(sch, stage, lane))
    _as_vectors(sch, parts[-1], (), vector, lane)
    sch[stage].vectorize(lane)
    return tuple(reversed(parts))


def hold(sch: Schedule, parts: tuple[str, ...], stage: str, leaf: str | None) -> None:
    """Compute accumulators where one element of their stage is: in its loop `leaf`, registers."""
    for part in parts:
        if leaf is not None:
            sch[part].compute_at(stage, leaf)
        sch[part].set_scope("register")


def sum_side_by_side(sch: Schedule, stage: str, row: str, lanes: int) -> None:
    """Reduce across memory: all steps of the reduction, then the vectors of the axis `row`.

    The stage is computed at a loop that has few of them, so that they fit in registers.
    """
    sch[stage].split(row, lanes, names=(f"{row}v", f"{row}i"))
    steps = tuple(name for name, _ in sch.state.stage(stage).reduce_axes)
    _as_vectors(sch, stage, steps, f"{row}v", f"{row}i")


def sum_in_blocks(sch: Schedule, stage: str, block: int, target: Target) -> str | None:
    """Cut a long reduction into blocks for threads; returns the stage of their sums.

    None if terms must stay in their order.
    """
    name, extent = sch.state.stage(stage).reduce_axes[-1]
    if extent <= 2 * block or not may_reorder(sch, stage, target):
        return None
    outer, _ = sch[stage].split(name, block, names=(f"{name}b", f"{name}k"))
    sums = _partial(sch, stage, outer, "first")
    sch[sums].parallel(outer)
    return sums


def _partial(sch: Schedule, stage: str, half: str, position: str = "last") -> str:
    """The new stage of an rfactor."""
    before = sch.state.names()
    sch[stage].rfactor(half, position=position)
    (made,) = sch.state.names() - before
    return made


def _as_vectors(sch: Schedule, stage: str, steps: tuple[str, ...], vector: str, lane: str) -> None:
    """The loops `steps`, then vectors unrolled and lanes, inside all others."""
    inner = (*steps, vector, lane)
    sch[stage].reorder(*(leaf for leaf in sch[stage].loops if leaf not in inner), *inner)
    sch[stage].unroll(vector)
    sch[stage].vectorize(lane)


def _horizontal(sch: Schedule, stage: str, name: str, extent: int, lanes: int) -> None:
    """Vectorise the innermost reduction loop: `lanes` terms become one at each step."""
    if extent > lanes:
        _, name = sch[stage].split(name, lanes, names=(f"{name}o", f"{name}i"))
    if extent > 1:
        sch[stage].vectorize(name)
