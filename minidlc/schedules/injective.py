"""Pointwise kernels: elementwise chains, broadcasts, copies.

    schedule_injective(sch, group, target)

    step             memory traffic of a chain of n ops     what it does
    naive            n loads and n stores an element        one pass over memory for each op
    inline           1 load, 1 store                        one pass in all
    collapse         the same                               rows of 10 or 49 become one long row
    vectorise        … / lanes                              one instruction, `lanes` elements
    unroll           the same                               four vectors at a time, if the constants
                                                            of a polynomial leave registers for them

Axes are collapsed where all that is read lies one after another in memory; a bias of one value a
channel leaves the channels a loop of their own. Transposes are in transpose.py.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence

from minidlc.expr.index import Index, Var
from minidlc.expr.nodes import Binary, Call, Expr, Load
from minidlc.expr.walk import values_in, walk
from minidlc.loop.nodes import Kind
from minidlc.loop.regions import loads
from minidlc.schedules.group import Group, work
from minidlc.schedules.implementation import NONE, Implementation, Knobs, Space, default_first
from minidlc.schedules.offsets import body_of, runs_on, vector_lanes
from minidlc.support.names import Names
from minidlc.target import Target
from minidlc.te import Schedule, Tensor, stages

PARALLEL_WORK = 1 << 16  # elements: below about ten microseconds a fork costs more than it gains
INLINE_NODES = 64  # an expression of more nodes that is read twice is stored, not repeated
VECTORS = 4  # side by side: they save steps of the loop
CHEAP = ("abs", "floor", "ceil", "round", "isnan", "isinf", "sign", "invert")  # instructions
BLOCK = 2048  # elements of a row that several outputs compute by turns: they stay in the cache
PIECES = 32  # of a parallel loop: enough for many cores, and for cores of unequal speed


def schedule_injective(sch: Schedule, group: Group, target: Target, knobs: Knobs = NONE) -> None:
    """Inline everything into the outputs and stream through them."""
    if len(group.outputs) > 1 and fits_together(group, target):
        schedule_together(sch, group, target, knobs)
        return
    kept = inline_pointwise(sch, group.intermediate())
    if not kept:
        for output in group.outputs:
            stream(sch, output, target, knobs)
        return
    for output in group.outputs:
        vectorize_rows(sch, output, target)
    last = group.last
    row = share(sch, last, last.axes[:-1], work(last))
    if len(group.outputs) == 1:
        keep_at(sch, kept, last, row, target)


def fits_together(group: Group, target: Target) -> bool:
    """True if all stages can be computed row by row, in one pass over memory.

    Outputs of one shape, with rows of a few vectors; and what depends on an output is read where
    it is computed.
    """
    shape = group.last.shape
    alike = all(output.shape == shape for output in group.outputs)
    long = bool(shape) and 0 not in shape and shape[-1] >= 2 * target.lanes(32)
    after = set(group.outputs)
    for stage in group.stages():
        if not after.isdisjoint(stage.inputs):
            after.add(stage)
    return alike and long and all(_is_read_element_by_element(group, t) for t in after)


def schedule_together(sch: Schedule, group: Group, target: Target, knobs: Knobs = NONE) -> None:
    """Rows of all outputs, one after another: each is still in the first cache for the next."""
    last, others, most = group.last, group.outputs[:-1], knobs.get("block", BLOCK)

    def is_shared(stage: Tensor) -> bool:
        many = len(group.readers(stage)) > 1 and is_dear(stage)
        return many and stage.shape == last.shape and _is_read_element_by_element(group, stage)

    kept = inline_pointwise(sch, group.intermediate(), is_shared)
    outer, row, length = last.axes[:-1], last.axes[-1], last.shape[-1]
    if length > most or not outer:
        step = most if most < length else length
        block, row = sch[last].split(row, step, names=(f"{row}b", f"{row}r"))
        outer, length = (*outer, block), step
    lanes = vector_lanes(sch, last, target)
    vectorize_row(sch, last, row, length, lanes, vectors_in_flight(sch, last, target, knobs))
    leaf = outer[-1]
    if work(last) * len(group.outputs) >= PARALLEL_WORK:
        sizes = (*last.shape[:-1], -(-last.shape[-1] // most))
        leaf = fuse_and_share(sch, last, outer, sizes[: len(outer)], PIECES)
    names = {t.name for t in group.stages()}
    for stage in reversed([t for t in group.stages() if t in kept or t in others]):
        vectorize_rows(sch, stage, target)
        if stage in others or _is_read_in_place(sch, stage, names):
            sch[stage].compute_at(last, leaf)
            if stage in kept:
                sch[stage].set_scope("stack")
        else:
            share(sch, stage, stage.axes[:-1], work(stage))


def _is_read_element_by_element(group: Group, stage: Tensor) -> bool:
    """True if whatever reads `stage` for an element of its own needs the same element of it."""
    return all(
        load.index == tuple(Index.of(Var(a)) for a in reader.axes)
        for reader in group.readers(stage)
        for load in (() if reader.body is None else loads(reader.body))
        if load.buffer == stage.name
    )


def is_dear(stage: Tensor) -> bool:
    """True if computing an element twice costs more than storing it and loading it again."""
    assert stage.body is not None
    return any(
        (isinstance(e, Call) and e.fn not in CHEAP) or (isinstance(e, Binary) and e.op == "/")
        for e in walk(stage.body)
    )


def stream(sch: Schedule, stage: Tensor, target: Target, knobs: Knobs = NONE) -> None:
    """One pass over a stage: long rows, several vectors at a time, shared by threads."""
    if not stage.axes or 0 in stage.shape:
        return
    outer, row, length = collapse(sch, stage)
    lanes = vector_lanes(sch, stage, target)
    vectors = vectors_in_flight(sch, stage, target, knobs)
    many = work(stage) >= PARALLEL_WORK
    if many and math.prod(outer.values()) < PIECES:
        step = vectors * lanes
        block = -(-length // (PIECES * step)) * step
        piece, row = sch[stage].split(row, block, names=(f"{row}b", f"{row}r"))
        outer, length = {**outer, piece: -(-length // block)}, min(block, length)
    vectorize_row(sch, stage, row, length, lanes, vectors)
    if many:
        fuse_and_share(sch, stage, tuple(outer), tuple(outer.values()), PIECES)


def collapse(
    sch: Schedule, stage: Tensor, axes: Sequence[str] | None = None
) -> tuple[dict[str, int], str, int]:
    """Fuse the last of some axes with those before it as long as memory runs on.

    Returns the loops that are left outside with their extents, the row, and its length.
    """
    shape = dict(zip(stage.axes, stage.shape, strict=True))
    outer = {axis: shape[axis] for axis in axes or stage.axes}
    inner, extent = outer.popitem()
    row, length = inner, extent
    while outer:
        axis, size = outer.popitem()
        if not runs_on(sch, stage, axis, inner, extent):
            return {**outer, axis: size}, row, length
        taken = Names(sch.state.stage(stage.name).variables)
        row = sch[stage].fuse(axis, row, taken.fresh(f"{axis}{row}"))
        length *= size
        inner, extent = axis, size
    return outer, row, length


def vectors_in_flight(sch: Schedule, stage: Tensor, target: Target, knobs: Knobs = NONE) -> int:
    """How many vectors of a row to compute side by side: what the knob says, or the default."""
    if has_functions(body_of(sch, stage)):
        return knobs.get("function_vectors", function_vectors(target))
    return knobs.get("vectors", VECTORS)


def has_functions(body: Expr) -> bool:
    """True if an element needs more than arithmetic: a polynomial, most often."""
    return any(isinstance(e, Call) for e in walk(body))


def function_vectors(target: Target) -> int:
    """Vectors side by side where functions are computed.

    Several hide the steps of a polynomial, but each needs registers besides the constants, which
    are a dozen or two: enough are left only of 32, where constants may be operands in memory. Else
    it is one, and the processor runs ahead by itself.
    """
    return VECTORS if target.registers >= 32 and target.is_x86 else 1


def vector_knobs(passes: Iterable[bool], target: Target) -> Space:
    """Vectors side by side in passes over rows; for each pass, whether it computes functions."""
    found = set(passes)
    names = {False: ("vectors", VECTORS), True: ("function_vectors", function_vectors(target))}
    return {names[p][0]: default_first(names[p][1], (1, 2, 4, 8)) for p in sorted(found)}


def stream_knobs(group: Group, target: Target) -> Space:
    """Vectors side by side; elements of a row that several outputs compute by turns."""
    if len(group.outputs) > 1 and fits_together(group, target):
        block = {"block": (BLOCK, BLOCK // 4, BLOCK // 2, 2 * BLOCK)}
        return {**vector_knobs([_calls(group.last)], target), **block}
    return vector_knobs(map(_calls, group.outputs), target)


def _calls(output: Tensor) -> bool:
    """True if an output, or what is inlined into it, computes functions."""
    return any(t.body is not None and has_functions(t.body) for t in stages((output,)))


def inline_pointwise(
    sch: Schedule, stages: Sequence[Tensor], spare: Callable[[Tensor], bool] = lambda stage: False
) -> tuple[Tensor, ...]:
    """Inline stages into their readers; returns those that are better computed once.

    `y = x * sigmoid(x)` reads x twice: a chain of n such steps would repeat its first step 2^n
    times. So a stage that is read more than once and has grown large is left for `keep_at`, and so
    is one whose elements are looked up more often than it has elements, and what is to be spared.
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
        if grown or spare(stage) or _lookups(sch, stage) > work(stage):
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
        if stage.name not in sch.state.outputs:
            sch[stage].set_scope("stack")


def _is_read_in_place(sch: Schedule, stage: Tensor, near: Container[str]) -> bool:
    """True if the stages of `near`, and no others, read the element that they compute."""
    return all(
        reader.name in near and load.index == tuple(Index.of(Var(a)) for a in reader.axes)
        for reader in sch.state.readers(stage.name)
        for load in loads(reader.body)
        if load.buffer == stage.name
    )


def vectorize_rows(sch: Schedule, stage: Tensor, target: Target, vectors: int = 1) -> None:
    """Make the last axis of `stage` a vector loop, `vectors` of them unrolled."""
    if not stage.axes or 0 in stage.shape:
        return
    lanes = vector_lanes(sch, stage, target)
    vectorize_row(sch, stage, stage.axes[-1], stage.shape[-1], lanes, vectors)


def vectorize_row(
    sch: Schedule, stage: Tensor, row: str, length: int, lanes: int, vectors: int
) -> None:
    """Loops over vectors and lanes of one spatial loop, which goes inside the reduction loops."""
    inner = [row]
    if length > vectors * lanes and vectors > 1:
        inner = [sch[stage].split(row, vectors * lanes, names=(f"{row}o", f"{row}r"))[1]]
    if length > lanes:
        outer = f"{row}o" if vectors == 1 else f"{row}v"
        inner = [*sch[stage].split(inner[0], lanes, names=(outer, f"{row}i"))]
    if length > 1:
        if stage.reduce_axes:
            sch[stage].reorder(*(axis for axis, _ in stage.reduce_axes), *inner)
        if vectors > 1:
            sch[stage].unroll(*inner[:-1])
        sch[stage].vectorize(inner[-1])


def share(sch: Schedule, stage: Tensor, axes: tuple[str, ...], amount: int) -> str | None:
    """Run the outermost axes in parallel if there is enough work for it.

    Returns the innermost of `axes` under the name it has then.
    """
    if not axes:
        return None
    if amount < PARALLEL_WORK:
        return axes[-1]
    shape = dict(zip(stage.axes, stage.shape, strict=True))
    return fuse_and_share(sch, stage, axes, tuple(shape[axis] for axis in axes), PIECES)


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
        taken = Names(sch.state.stage(stage.name).variables)  # j and i beside a split ji
        leaf = sch[stage].fuse(leaf, name, taken.fresh(leaf + name))
        pieces *= count
    if pieces > 1:
        sch[stage].parallel(leaf)
    return rest[-1] if rest else leaf


INJECTIVE = Implementation("injective", "injective", schedule_injective, knobs=stream_knobs)
