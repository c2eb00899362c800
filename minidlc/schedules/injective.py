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
from collections.abc import Container, Sequence

from minidlc.expr.index import Index, Var
from minidlc.expr.nodes import Load
from minidlc.expr.walk import values_in, walk
from minidlc.loop.nodes import Kind
from minidlc.loop.regions import loads
from minidlc.schedules.group import Group, work
from minidlc.target import Target
from minidlc.te import Schedule, Tensor

PARALLEL_WORK = 1 << 16  # elements: below about ten microseconds a fork costs more than it gains
INLINE_NODES = 64  # an expression of more nodes that is read twice is stored, not repeated


def schedule_injective(sch: Schedule, group: Group, target: Target) -> None:
    """Inline everything into the outputs and vectorise their rows."""
    kept = inline_pointwise(sch, group.intermediate())
    for output in group.outputs:
        vectorize_rows(sch, output, target)
    last = group.last
    row = share(sch, last, last.axes[:-1], work(last))
    if len(group.outputs) == 1:
        keep_at(sch, kept, last, row, target)


def inline_pointwise(sch: Schedule, stages: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Inline stages into their readers; returns those that are better computed once.

    `y = x * sigmoid(x)` reads x twice: a chain of n such steps would repeat its first step 2^n
    times. So a stage that is read more than once and has grown large is left for `keep_at`, and so
    is one whose elements are looked up more often than it has elements.
    """
    size: dict[str, int] = {}
    kept: list[Tensor] = []
    reads = [e.buffer for s in sch.state.stages for e in walk(s.body) if isinstance(e, Load)]
    for stage in stages:
        assert stage.body is not None
        nodes = list(walk(stage.body))
        size[stage.name] = len(nodes) + sum(
            size.get(e.buffer, 0) for e in nodes if isinstance(e, Load)
        )
        grown = size[stage.name] > INLINE_NODES and reads.count(stage.name) > 1
        if grown or _lookups(sch, stage) > work(stage):
            size[stage.name] = 0  # for its readers it is one load
            kept.append(stage)
    for stage in reversed(stages):
        if stage not in kept:
            sch[stage].compute_inline()
    return tuple(kept)


def _lookups(sch: Schedule, stage: Tensor) -> int:
    """How often elements of `stage` are read at positions that are values."""
    return sum(
        math.prod(reader.type.dims) * math.prod(n for _, n in reader.reduce_axes)
        for reader in sch.state.readers(stage.name)
        for load in loads(reader.body)
        if load.buffer == stage.name and any(values_in(e) for e in load.index)
    )


def keep_at(
    sch: Schedule,
    kept: Sequence[Tensor],
    last: Tensor,
    leaf: str | None,
    target: Target,
    *,
    unrolled: bool = False,
) -> None:
    """Compute the kept stages, in vectors, at a loop of `last` where only its elements are read.

    A stage read at other places (a transpose, a concat) would be needed nearly whole at each
    iteration, over and over: it is computed before. `unrolled` if stages read sums in registers:
    those have numbers as positions, not loop variables.
    """
    near = {last.name}
    for stage in reversed(kept):
        vectorize_rows(sch, stage, target)
        if leaf is None or not _is_read_in_place(sch, stage, near):
            share(sch, stage, stage.axes[:-1], work(stage))
            continue
        near.add(stage.name)
        loops = sch.state.stage(stage.name)
        for axis in loops.leaves if unrolled else ():
            if loops.kind(axis) is not Kind.VECTORIZED:
                sch[stage].unroll(axis)
        sch[stage].compute_at(last, leaf)
        sch[stage].set_scope("stack")


def _is_read_in_place(sch: Schedule, stage: Tensor, near: Container[str]) -> bool:
    """True if the stages of `near`, and no others, read the element that they compute."""
    return all(
        reader.name in near and load.index == tuple(Index.of(Var(a)) for a in reader.axes)
        for reader in sch.state.readers(stage.name)
        for load in loads(reader.body)
        if load.buffer == stage.name
    )


def vectorize_rows(sch: Schedule, stage: Tensor, target: Target) -> None:
    """Make the last axis of `stage` a vector loop."""
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


def share(sch: Schedule, stage: Tensor, axes: tuple[str, ...], amount: int) -> str | None:
    """Run the outermost axes in parallel if there is enough work for it.

    Returns the innermost of `axes` under the name it has then.
    """
    if not axes:
        return None
    if amount < PARALLEL_WORK:
        return axes[-1]
    shape = dict(zip(stage.axes, stage.shape, strict=True))
    return fuse_and_share(sch, stage, axes, tuple(shape[axis] for axis in axes), 32)


def fuse_and_share(
    sch: Schedule, stage: Tensor, leaves: tuple[str, ...], trips: tuple[int, ...], enough: int
) -> str:
    """Fuse the outermost leaves until there are `enough` pieces, and run those in parallel.

    `trips` are the iterations of each leaf. Returns the innermost leaf, which fusing may have
    renamed: call it before anything is computed at a leaf.
    """
    leaf, pieces, rest = leaves[0], trips[0], list(leaves[1:])
    for count in trips[1:]:
        if pieces >= enough:
            break
        name = rest.pop(0)
        leaf, pieces = sch[stage].fuse(leaf, name, leaf + name), pieces * count
    if pieces > 1:
        sch[stage].parallel(leaf)
    return rest[-1] if rest else leaf
