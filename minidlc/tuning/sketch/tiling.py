"""Multi-level tiling of the anchor, its sums in registers, its operands packed: the main rule.

    before                                  after (three levels of two axes)
    for i: for j: for k: C[i, j] += …       for jo: for io:                 blocks for the caches
    for i: for j: D[i, j] = relu(C …)         for im: for jm:               tiles of a block
                                                C = alloc(f32[4, 32], "register")
                                                for ko: for ki unrolled:
                                                  for ii unrolled: for jv unrolled: for jl vectors:
                                                    C[ii, jj] += A[i, k] * B[k, j]
                                                D[…] = relu(C[…])

The middle loops run in the other order than the outer ones, and a block of one tile, or of all, is
among the candidates: so the sizes alone give every order of the loops over tiles, and the trace
holds all decisions as knobs. Which operands are packed is structure: each set is a sketch.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import itertools
import keyword
import math
from collections.abc import Iterator
from functools import lru_cache, partial

from minidlc.schedules.group import Group
from minidlc.schedules.implementation import Implementation, Knobs, Space
from minidlc.schedules.injective import keep_at
from minidlc.schedules.pixels import share_copies
from minidlc.schedules.tiles import accumulator, inline_around, is_shared
from minidlc.support.names import Names
from minidlc.target import Target
from minidlc.te import Schedule
from minidlc.tuning.sketch.plan import Operand, Plan, plan_of

BODY, CODE = 256, 2048  # multiply-adds of vectors in the innermost loop, in all copies of it
TILES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
VECTORS = (1, 2, 3, 4, 6)
BLOCKS = (1, 2, 4, 8, 16, 32)
STEPS = (1, 2, 4, 8, 16)
TAPS = 7  # reductions so short are unrolled whole, or not


def tilings(group: Group, kind: str, target: Target) -> tuple[Implementation, ...]:
    """A sketch for each set of operands that may be packed; () without an anchor to tile."""
    plan = plan_of(group, target)
    if isinstance(plan, str):
        return ()
    found = list[Implementation]()
    for packs in _subsets(plan.operands):
        suffix = "".join(str(o.number) for o in packs)
        name = f"sketch_tile_pack{suffix}" if packs else "sketch_tile"
        found.append(
            Implementation(name, kind, partial(_schedule, packs), knobs=knobs, allowed=is_allowed)
        )
    return tuple(found)


def _subsets(operands: tuple[Operand, ...]) -> Iterator[tuple[Operand, ...]]:
    for count in range(len(operands) + 1):
        yield from itertools.combinations(operands, count)


def _plan(group: Group, target: Target) -> Plan:
    plan = plan_of(group, target)
    assert isinstance(plan, Plan)
    return plan


# sizes


@lru_cache(maxsize=64)
def knobs(group: Group, target: Target) -> Space:
    """Sizes of register tiles and of blocks of tiles for each axis, steps of each reduction."""
    plan = _plan(group, target)
    found: dict[str, tuple[int, ...]] = {}
    start = _start(plan)
    for axis in plan.tiled:
        found[f"tile_{axis}"] = _first(start[axis], _tile_sizes(plan, axis))
    for axis in plan.tiled:
        tiles = -(-plan.extents[axis] // min(found[f"tile_{axis}"]))
        sizes = [n for n in BLOCKS if n < tiles]
        found[f"block_{axis}"] = (*sizes, plan.extents[axis]) if tiles > 1 else (1,)
    for axis, extent in plan.stepped:
        steps = (1, extent) if extent <= TAPS else tuple(n for n in STEPS if n <= extent)
        found[f"unroll_{axis}"] = tuple(dict.fromkeys(steps))
    return found


def _first(value: int, values: tuple[int, ...]) -> tuple[int, ...]:
    return (value, *(v for v in values if v != value))


def _tile_sizes(plan: Plan, axis: str) -> tuple[int, ...]:
    extent = plan.extents[axis]
    if axis != plan.vector:
        return tuple(n for n in TILES if n <= extent)
    return tuple(n * plan.lanes for n in VECTORS if (n - 1) * plan.lanes < extent)


def _start(plan: Plan) -> dict[str, int]:
    """The default tile: two vectors, then as many of the innermost other axis as registers hold."""
    sizes = {axis: 1 for axis in plan.tiled}
    sizes[plan.vector] = plan.lanes * (2 if plan.extents[plan.vector] > plan.lanes else 1)
    for axis in reversed([a for a in plan.apart if a in plan.tiled]):
        fitting = (n for n in _tile_sizes(plan, axis) if plan.fits({**sizes, axis: n}))
        sizes[axis] = max(fitting, key=lambda n: (plan.extents[axis] % n == 0 and n > 3, n))
    return sizes


def is_allowed(group: Group, target: Target, knobs: Knobs) -> bool:
    """False for tiles that do not fit the registers, blocks larger than there are tiles, and for
    more code than the first cache should hold."""
    plan = _plan(group, target)
    tiles = {axis: knobs[f"tile_{axis}"] for axis in plan.tiled}
    if not plan.fits(tiles):
        return False
    copies = 1
    for axis, tile in tiles.items():
        extent, block = plan.extents[axis], knobs[f"block_{axis}"]
        count = -(-extent // tile)
        if count <= block < extent and block > 1:
            return False
        copies *= 1 + (count > 1 and extent % tile > 0) + (block < count and count % block > 0)
    body = math.prod(tiles.values()) // plan.lanes
    for axis, extent in plan.stepped:
        steps = knobs[f"unroll_{axis}"]
        copies *= 1 + (extent % steps > 0)
        body *= steps
    return body <= BODY and body * copies <= CODE


# the schedule


def _schedule(
    packs: tuple[Operand, ...], sch: Schedule, group: Group, target: Target, knobs: Knobs
) -> None:
    _Tiling(sch, group, target, knobs).run(packs)


class _Tiling:
    """The schedule on its way, rule by rule."""

    def __init__(self, sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
        self.sch, self.group, self.target, self.knobs = sch, group, target, knobs
        self.plan = _plan(group, target)

    def run(self, packs: tuple[Operand, ...]) -> None:
        """Inline, cache, pack, tile, hold: each rule adds its primitives."""
        sch, group = self.sch, self.group
        kept = inline_around(sch, group, self.target)
        share_copies(sch, group)
        sums = accumulator(sch, group)
        assert group.anchor is not None
        held = sums == group.anchor.name or group.anchor is group.last
        copies = [(o, self._pack(sums, o)) for o in packs]
        leaf = self._tile(held)
        keep_at(sch, kept, group.last, leaf, self.target, unrolled=held)
        self._hold(sums, leaf)
        for operand, copy in copies:
            self._fill(operand, copy)

    def _pack(self, sums: str, operand: Operand) -> str:
        tiles = {dim: self.knobs[f"tile_{axis}"] for dim, axis in operand.tiles}
        return self.sch[sums].cache_read(operand.name, tiles).name

    def _tile(self, held: bool) -> str:
        """The loops of the last stage; returns the innermost loop over tiles."""
        plan, stage = self.plan, self.sch[self.group.last]
        own = dict(zip(plan.axes, self.group.last.axes, strict=True))
        names = self._names(stage.name)
        outer, middle, inner = dict[str, str](), dict[str, str](), dict[str, str]()
        for axis in plan.tiled:
            tiles, inner[axis] = self._split(stage.name, own[axis], f"tile_{axis}", "ti", names)
            outer[axis], middle[axis] = self._split(stage.name, tiles, f"block_{axis}", "om", names)
        rest = [own[axis] for axis in plan.axes if axis not in plan.tiled]
        lanes = self._lanes(stage.name, inner[plan.vector], names)
        tile = [inner[a] for a in plan.inner_order if a != plan.vector]
        stage.reorder(
            *rest,
            *(outer[a] for a in plan.outer_order),
            *(middle[a] for a in plan.inner_order),
            *tile,
            *lanes,
        )
        if held:
            stage.unroll(*tile, lanes[0])
        elif self.target.registers >= 32:
            stage.unroll(lanes[0])
        stage.vectorize(lanes[1])
        self._share(rest, [outer[a] for a in plan.outer_order])
        return middle[plan.inner_order[-1]]

    def _names(self, stage: str) -> Names:
        """Names of new loops: none that is taken, or a word of Python."""
        return Names((*self.sch.state.stage(stage).variables, *keyword.kwlist))

    def _split(self, stage: str, axis: str, knob: str, parts: str, names: Names) -> tuple[str, str]:
        made = names.fresh(f"{axis}{parts[0]}"), names.fresh(f"{axis}{parts[1]}")
        return self.sch[stage].split(axis, self.knobs[knob], names=made)

    def _lanes(self, stage: str, axis: str, names: Names) -> tuple[str, str]:
        made = names.fresh(f"{axis}v"), names.fresh(f"{axis}l")
        return self.sch[stage].split(axis, self.plan.lanes, names=made)

    def _share(self, rest: list[str], outer: list[str]) -> None:
        """In parallel if it pays: the axes without tiles if they are many, else blocks."""
        if not is_shared(self.group):
            return
        self.sch[self.group.last].parallel(outer[0] if not rest else rest[0])

    def _hold(self, sums: str, leaf: str) -> None:
        """The sums of a tile in registers, reductions in steps; a tile on the stack beside them."""
        group, sch, plan = self.group, self.sch, self.plan
        anchor, last = group.anchor, group.last
        assert anchor is not None
        if anchor is not last and sums != anchor.name:
            sch[anchor].compute_at(last, leaf)
            self._registers(anchor.name, ())
            if anchor not in group.outputs:
                sch[anchor].set_scope("stack")
        sch[sums].compute_at(last, leaf)
        self._registers(sums, plan.stepped)
        sch[sums].set_scope("register")

    def _registers(self, name: str, stepped: tuple[tuple[str, int], ...]) -> None:
        """Reductions outside, their steps unrolled, then the tile, then vectors and lanes."""
        plan, stage = self.plan, self.sch[name]
        loops = self.sch.state.stage(name)
        names = self._names(name)
        sums, steps = list[str](), list[str]()
        within = dict(stepped)
        for axis, _ in loops.reduce_axes:
            if axis not in within:
                sums.append(axis)
                continue
            outer, inner = self._split(name, axis, f"unroll_{axis}", "ou", names)
            sums.append(outer)
            steps.append(inner)
        vector = self._lanes(name, plan.vector, names)
        rest = [axis for axis in plan.axes if axis not in plan.tiled]
        tile = [axis for axis in plan.inner_order if axis != plan.vector]
        stage.reorder(*rest, *sums, *steps, *tile, *vector)
        stage.unroll(*steps, *tile, vector[0]).vectorize(vector[1])

    def _fill(self, operand: Operand, copy: str) -> None:
        """The loops of a packed operand: before any call if it is constant, else first of all."""
        stage = self.sch[copy]
        loops = stage.loops
        count = len(operand.tiles)
        outer, middle, inner = loops[:count], loops[count:-count], loops[-count:]
        last = operand.tiles[-1][1]
        if last == self.plan.vector:
            names = self._names(copy)
            vector, lane = self._lanes(copy, inner[-1], names)
            stage.reorder(*middle, *outer, *inner[:-1], vector, lane)
            stage.unroll(vector).vectorize(lane)
        else:
            stage.unroll(inner[-1])
        if operand.is_constant:
            stage.prepack()
        elif is_shared(self.group):
            stage.parallel(stage.loops[0])
