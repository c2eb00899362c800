"""Random schedules as authors write them: tiles in registers, vectors, strips, copies, threads.

A plan is a sequence of primitives that mostly fits the kernel; each choice in it is drawn, and so
are some primitives before and after. What is refused is left out and counted.

    schedule, refused = draw(kernel, random.Random(7))
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from minidlc.loop.nodes import Kind
from minidlc.te import Schedule
from minidlc.te.primitive import Primitive
from minidlc.te.primitives import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    ComputeInline,
    Fuse,
    Parallel,
    Prefetch,
    Prepack,
    Reorder,
    RFactor,
    SetScope,
    Split,
    StoreAt,
    Tensorize,
    TransformLayout,
    Unroll,
    Vectorize,
)
from minidlc.tests.te.drawing import Drawing
from minidlc.tests.te.families import Kernel


def draw(kernel: Kernel, rng: random.Random, lanes: int = 8) -> tuple[Schedule, int]:
    """A schedule that lowers, and how many primitives were refused."""
    drawn = Drawing(kernel, rng, lanes)
    try:
        draw_steps(drawn, rng)
        return drawn.schedule()
    except Exception as error:  # anything but a refusal of a primitive is a bug
        trace = "\n".join(map(str, drawn.trace))
        raise AssertionError(f"{kernel.text}\n{trace}\n{error!r}") from error


def draw_steps(drawn: Drawing, rng: random.Random) -> None:
    """A plan for this kind of kernel, as it is or with anything before, after or instead."""
    kernel = drawn.kernel
    if rng.random() < 0.2:
        drawn.anything(rng.randint(1, 2))
    if rng.random() < 0.95 and kernel.schedules != "anything":
        plan = {"tiles": tile_plan, "rows": row_plan, "stencil": strip_plan}[kernel.schedules]
        drawn.take(plan(drawn))
    else:
        drawn.anything(rng.randint(2, 8))
    if rng.random() < 0.4:
        drawn.anything(rng.randint(1, 3))
    drawn.take(finish(drawn))


def tile_plan(d: Drawing) -> Iterator[Primitive]:
    """Tiles of the last stage; the sums of a tile in registers; operands copied."""
    k, rng = d.kernel, d.rng
    sums, row = k.anchor, rng.choice(k.rows)
    if d.chance(0.12):
        yield from _in_place(d, sums)
        return
    if sums == k.last or d.chance(0.25):
        yield CacheWrite(sums, "register")
        sums = f"{sums}_c" if d.has(f"{sums}_c") else sums
    height, width = d.number(1, 2, 3, 4), d.number(d.lanes, d.lanes, 2 * d.lanes, 3, 4)
    copies = list(_packed(d, sums, height, width))
    for copy in copies:
        yield copy
    outer = _blocked_sums(d, sums)
    yield from outer
    yield from _tiled(d, k.last, row, height, width)
    loops = d.loops(k.last)
    if "jv" not in loops:
        return
    leaf = next((x for x in reversed(loops[: loops.index("jv")]) if x != "ii"), loops[0])
    leaf = rng.choice(loops) if d.chance(0.1) else leaf
    for stage in dict.fromkeys((k.anchor, sums, f"{sums}_rf")):
        if stage != k.last and d.has(stage):
            yield ComputeAt(stage, k.last, leaf)
            yield from _held(d, stage, row, "register" if stage != k.anchor else None)
    for copy in copies:
        yield from _copied(d, f"{copy.stage}_p", k.last, leaf)
    for stage in k.pointwise:
        yield from _near(d, stage, k.last)


def _in_place(d: Drawing, stage: str) -> Iterator[Primitive]:
    """Sums straight in memory, a few steps of the reduction side by side."""
    sums = [x for x in d.loops(stage) if x in d.state.stage(stage).reductions]
    yield Split(stage, d.kernel.column, d.number(d.lanes, 3, 5), ("cv", "cl"))
    if sums:
        yield Split(stage, sums[-1], d.number(2, 3), ("so", "si"))
        sums[-1] = "so"
    inner = (*sums, "cv", "si", "cl")
    rest = [x for x in d.loops(stage) if x not in inner]
    yield Reorder(stage, (*rest, *inner))
    yield Unroll(stage, "si")
    yield Vectorize(stage, "cl")
    if rest and d.chance(0.4):
        yield Parallel(stage, rest[0])


def _packed(d: Drawing, sums: str, height: int, width: int) -> Iterator[CacheRead]:
    for tensor, dim, axis in d.kernel.packs:
        if d.chance(0.5):
            size = width if axis == d.kernel.column else height
            tiles = ((dim, size if d.chance(0.8) else d.rng.randint(1, 5)),)
            yield CacheRead(tensor, (sums,), tiles if d.chance(0.9) else ())


def _blocked_sums(d: Drawing, sums: str) -> Iterator[Primitive]:
    """The reduction in blocks, or in lanes."""
    inner = [x for x in d.loops(sums) if d.has(sums) and x in d.state.stage(sums).reductions]
    if inner and d.chance(0.2):
        yield Split(sums, inner[-1], d.number(2, 3, 4, d.lanes), ("ro", "ri"))
        yield RFactor(sums, d.rng.choice(("ro", "ri")), d.rng.choice(("first", "last")))


def _tiled(d: Drawing, stage: str, row: str, height: int, width: int) -> Iterator[Primitive]:
    """Loops io jo | ii jv jl of a stage, in threads now and then."""
    tails = ("cut", "cut", "shift")
    yield Split(stage, d.kernel.column, width, ("jo", "ji"), d.rng.choice(tails))
    yield Split(stage, "ji", d.lanes, ("jv", "jl"))
    yield Split(stage, row, height, ("io", "ii"), d.rng.choice(tails))
    blocks = ["io", "jo"] if d.chance(0.5) else ["jo", "io"]
    yield Reorder(stage, (*blocks, "ii", "jv", "jl"))
    if d.chance(0.8):
        yield Unroll(stage, "ii")
        yield Unroll(stage, "jv")
    yield Vectorize(stage, "jl")
    first = d.loops(stage)[0]
    if d.chance(0.15):
        yield Fuse(stage, *d.loops(stage)[:2], "pieces")
        first = "pieces"
    if d.chance(0.25):
        yield Parallel(stage, first)


def _held(d: Drawing, stage: str, row: str, scope: str | None) -> Iterator[Primitive]:
    """Sums over everything outside; then rows, then columns in vectors, all in registers."""
    sums = [x for x in d.loops(stage) if x in d.state.stage(stage).reductions]
    steps: tuple[str, ...] = ()
    if sums and d.chance(0.3):
        yield Split(stage, sums[-1], d.number(2, 2, 3), ("so", "si"))
        sums[-1:], steps = ["so"], ("si",)
    fours: tuple[str, ...] = ()
    if sums and ("u8i8" in d.kernel.text or "i8u8" in d.kernel.text) and d.chance(0.6):
        yield Split(stage, sums[-1], 4, ("fo", "fi"))
        sums[-1:], fours = ["fo"], ("fi",)
    rows: tuple[str, ...] = (row,)
    if d.chance(0.15):  # the inner half outside: it runs in full, under a condition
        yield Split(stage, row, d.number(2, 3), ("ho", "hi"))
        rows = ("hi", "ho") if "ho" in d.loops(stage) else rows
    vector = d.number(3, 5, 6) if d.chance(0.2) else d.lanes
    yield Split(stage, d.kernel.column, vector, ("cv", "cl"))
    tile = (*steps, *rows, "cv", "cl", *fours)
    rest = [x for x in d.loops(stage) if x not in (*sums, *tile)]
    yield Reorder(stage, (*rest, *sums, *tile))
    for loop in fours:
        yield Tensorize(stage, loop, "dot4")
    for loop in (*rest, *steps, *rows, "cv"):
        if d.chance(0.9):
            yield Unroll(stage, loop)
    yield Vectorize(stage, "cl")
    yield SetScope(stage, "register" if d.chance(0.9) else scope or "stack")
    if sums and d.chance(0.1):
        read = d.rng.choice(sorted(d.state.stage(stage).reads))
        yield Prefetch(stage, read, sums[-1], d.number(1, 2, 8))


def _copied(d: Drawing, copy: str, last: str, leaf: str) -> Iterator[Primitive]:
    """A copy in vectors: ahead, at a loop of the tiles, or before all."""
    if not d.has(copy):
        return
    if d.chance(0.8):
        yield Split(copy, d.loops(copy)[-1], d.lanes, ("pv", "pl"))
        yield Vectorize(copy, "pl")
    if d.chance(0.5):
        yield Prepack(copy)
    elif d.chance(0.6):
        yield ComputeAt(copy, last, leaf if d.chance(0.5) else d.rng.choice(d.loops(last)))
        yield SetScope(copy, d.rng.choice(("arena", "stack", "register")))


def _near(d: Drawing, stage: str, last: str) -> Iterator[Primitive]:
    """A stage between others: inlined, in another layout, near its reader or stored around it."""
    if not d.has(stage):
        return
    if d.chance(0.15):
        yield ComputeInline(stage)
        return
    if d.chance(0.15):
        rank = d.state.stage(stage).type.rank
        yield TransformLayout(stage, ((d.rng.randrange(rank), d.number(2, 3, 4, d.lanes)),))
    if d.chance(0.7):
        tail = d.rng.choice(("cut", "shift"))
        yield Split(stage, d.loops(stage)[-1], d.lanes, ("wv", "wl"), tail)
        yield Vectorize(stage, "wl" if "wl" in d.loops(stage) else d.loops(stage)[-1])
    readers = [s.name for s in d.state.readers(stage)]
    if d.chance(0.4 if len(readers) > 1 else 0.1) and d.loops(last):
        yield StoreAt(stage, last, d.rng.choice(d.loops(last)))
        first = readers[0]
        yield ComputeAt(stage, first, d.rng.choice(d.loops(first)))
    elif d.chance(0.75):
        target = d.rng.choice([last, *readers])
        yield ComputeAt(stage, target, d.rng.choice(d.loops(target)))
    yield SetScope(stage, d.rng.choice(("arena", "stack", "stack", "register")))


def row_plan(d: Drawing) -> Iterator[Primitive]:
    """Whole rows: sums in lanes, then across them; what is between in one row of scratch."""
    k = d.kernel
    yield from _vectors(d, k.last)
    if d.chance(0.3):
        yield Split(k.last, "i", d.number(2, 3), ("io", "ii"), d.rng.choice(("cut", "shift")))
    if d.chance(0.25):
        yield Parallel(k.last, d.loops(k.last)[0])
    row = next((x for x in ("ii", "i") if x in d.loops(k.last)), d.loops(k.last)[0])
    for stage, loop in k.reductions:
        partial = f"{stage}_rf"
        if d.chance(0.8):
            yield Split(stage, loop, d.number(d.lanes, d.lanes, 4, 3), ("ro", "ri"))
            yield RFactor(stage, "ri", "last" if d.chance(0.8) else "first")
        for name in (stage, partial):
            if not d.has(name):
                continue
            yield ComputeAt(name, k.last, row)
            if name == partial:
                yield Reorder(name, ("ro", "ri"))
            yield Vectorize(name, d.loops(name)[-1])
            yield SetScope(name, "register" if d.chance(0.9) else "stack")
    for stage in k.pointwise:
        if d.chance(0.5):
            yield from _near(d, stage, k.last)
        elif d.has(stage):
            yield from _vectors(d, stage)
            yield ComputeAt(stage, k.last, row)
            yield SetScope(stage, "stack")


def _vectors(d: Drawing, stage: str) -> Iterator[Primitive]:
    """The last loop in vectors."""
    loop, tail = d.loops(stage)[-1], d.rng.choice(("cut", "cut", "shift"))
    yield Split(stage, loop, d.number(d.lanes, d.lanes, 4), ("jv", "jl"), tail)
    yield Vectorize(stage, d.loops(stage)[-1])


def strip_plan(d: Drawing) -> Iterator[Primitive]:
    """Strips or tiles of the last stage, the stages before near it."""
    k = d.kernel
    yield from _tiled(d, k.last, "i", d.number(1, 2, 3, 4), d.number(d.lanes, 2 * d.lanes, 4))
    for stage in k.pointwise:
        yield from _near(d, stage, k.last)
        if d.has(stage) and d.chance(0.6):
            rows = [x for x in d.loops(k.last) if x in ("io", "jo", "pieces")]
            yield ComputeAt(stage, k.last, rows[-1] if rows else d.loops(k.last)[0])
            for loop in d.loops(stage)[:-1]:
                yield Unroll(stage, loop)
            yield SetScope(stage, "register")


def finish(d: Drawing) -> Iterator[Primitive]:
    """Vectors, copies and near memory for loops that are plain still, here and there."""
    for stage in d.state.stages:
        if not d.has(stage.name):
            continue
        leaf = d.loops(stage.name)[-1]
        if d.state.stage(stage.name).kind(leaf) is Kind.SERIAL and d.chance(0.6):
            yield Vectorize(stage.name, leaf)
        sums = math.prod(n for _, n in stage.reduce_axes)
        if stage.type.size * sums <= 100 and d.chance(0.2):  # more would take LLVM long
            for loop in d.loops(stage.name)[:-1]:
                yield Unroll(stage.name, loop)
        if stage.name not in d.state.outputs and d.chance(0.2):
            yield SetScope(stage.name, d.rng.choice(("stack", "register")))
