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
holds all decisions as knobs. Which operands are packed, and where, is structure: each such choice
is a sketch, `sketch_tile_pack1_at`. Where dot4 matches, four steps of the sum are one call.
Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

from minidlc.schedules.group import Group, work
from minidlc.schedules.implementation import Implementation, Knobs, Space
from minidlc.schedules.injective import keep_at, share
from minidlc.schedules.pixels import copies
from minidlc.schedules.tiles import PIECES, accumulator, inline_around, is_shared
from minidlc.target import Target
from minidlc.te import Schedule
from minidlc.tuning.sketch.intrinsics import Match
from minidlc.tuning.sketch.loops import split
from minidlc.tuning.sketch.plan import Operand, Plan, block_of, plan_of

BODY, CODE = 256, 2048  # multiply-adds of vectors in the innermost loop, in all copies of it
TILES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
VECTORS = (1, 2, 3, 4, 6)
BLOCKS = (1, 2, 4, 8, 16, 32)
STEPS = (1, 2, 4, 8, 16)
TAPS = 7  # reductions so short are unrolled whole, or not


@dataclass(frozen=True)
class Structure:
    """What is no size: the numbers of the operands that are packed, whether copies are made at the
    loops over blocks, whether dot4 computes the sums."""

    packs: tuple[int, ...] = ()
    at_blocks: bool = False
    dot4: bool = False

    @property
    def name(self) -> str:
        """Of the sketch: `sketch_tile_pack01_at`."""
        packs = f"_pack{''.join(map(str, self.packs))}" if self.packs else ""
        return f"sketch_tile{'_dot4' * self.dot4}{packs}{'_at' * self.at_blocks}"


def tilings(group: Group, kind: str, target: Target) -> tuple[Implementation, ...]:
    """A sketch for each structure that there is; () without an anchor to tile."""
    plan = plan_of(group, target)
    if isinstance(plan, str):
        return ()
    return tuple(
        Implementation(
            structure.name,
            kind,
            partial(_schedule, structure),
            knobs=partial(knobs, structure),
            allowed=partial(is_allowed, structure),
        )
        for structure in structures(plan)
    )


def structures(plan: Plan) -> Iterator[Structure]:
    """Each set of operands to pack; where something is copied in each call, both places of it."""
    for count in range(len(plan.operands) + 1):
        for packs in itertools.combinations(plan.operands, count):
            numbers = tuple(o.number for o in packs)
            yield Structure(numbers)
            if any(plan.copies.values()) or not all(o.is_constant for o in packs):
                yield Structure(numbers, at_blocks=True)
    if isinstance(plan.dot4, Match):
        yield Structure(dot4=True)


def _plan(group: Group, target: Target) -> Plan:
    plan = plan_of(group, target)
    assert isinstance(plan, Plan)
    return plan


# sizes


@lru_cache(maxsize=256)
def knobs(structure: Structure, group: Group, target: Target) -> Space:
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
    for axis, extent in _stepped(structure, plan):
        steps = (1, extent) if extent <= TAPS else tuple(n for n in STEPS if n <= extent)
        found[f"unroll_{axis}"] = tuple(dict.fromkeys(steps))
    return found


def _stepped(structure: Structure, plan: Plan) -> tuple[tuple[str, int], ...]:
    """Reductions and how often they run: where four iterations are one call, a quarter."""
    if not (structure.dot4 and isinstance(plan.dot4, Match)):
        return plan.stepped
    four = plan.dot4.axis
    return tuple((axis, -(-n // 4) if axis == four else n) for axis, n in plan.stepped)


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


def is_allowed(structure: Structure, group: Group, target: Target, knobs: Knobs) -> bool:
    """False for tiles that do not fit the registers, blocks larger than there are tiles, and for
    more code than the first cache should hold."""
    plan = _plan(group, target)
    tiles = {axis: knobs[f"tile_{axis}"] for axis in plan.tiled}
    if not plan.fits(tiles):
        return False
    copies, borders = 1, {axis for axes in plan.copies.values() for axis in axes}
    for axis, tile in tiles.items():
        extent, block = plan.extents[axis], knobs[f"block_{axis}"]
        count = -(-extent // tile)
        if count <= block < extent and block > 1:
            return False
        copies *= 1 + (count > 1 and extent % tile > 0) + (block < count and count % block > 0)
        if structure.at_blocks and axis in borders and block < count:
            copies *= 3  # blocks at either border, and those between
    body = math.prod(tiles.values()) // plan.lanes
    for axis, extent in _stepped(structure, plan):
        steps = knobs[f"unroll_{axis}"]
        copies *= 1 + (extent % steps > 0)
        body *= steps
    return body <= BODY and body * copies <= CODE


# the schedule


def _schedule(
    structure: Structure, sch: Schedule, group: Group, target: Target, knobs: Knobs
) -> None:
    _Tiling(structure, sch, group, target, knobs).run()


class _Tiling:
    """The schedule on its way, rule by rule."""

    def __init__(
        self, structure: Structure, sch: Schedule, group: Group, target: Target, knobs: Knobs
    ) -> None:
        self.structure, self.sch, self.knobs = structure, sch, knobs
        self.group, self.target = group, target
        self.plan = _plan(group, target)
        self.outer = dict[str, str]()  # axis → its loop over blocks

    def run(self) -> None:
        """Inline, cache, pack, tile, hold: each rule adds its primitives."""
        sch, group = self.sch, self.group
        kept = inline_around(sch, group, self.target)
        sums = accumulator(sch, group)
        assert group.anchor is not None
        held = sums == group.anchor.name or group.anchor is group.last
        operands = [o for o in self.plan.operands if o.number in self.structure.packs]
        packed = [(o, self._pack(sums, o)) for o in operands]
        fours = self._pack_fours(sums)
        leaf = self._tile(held)
        keep_at(sch, kept, group.last, leaf, self.target, unrolled=held)
        self._hold(sums, leaf)
        for operand, copy in packed:
            self._fill(operand, copy)
        for name, copy in fours:
            self._fill_fours(name, copy)
        self._place_copies()

    def _pack(self, sums: str, operand: Operand) -> str:
        tiles = {dim: self.knobs[f"tile_{axis}"] for dim, axis in operand.tiles}
        return self.sch[sums].cache_read(operand.name, tiles).name

    def _pack_fours(self, sums: str) -> list[tuple[str, str]]:
        """Copies in which the four bytes of a call lie side by side."""
        match = self.plan.dot4
        if not (self.structure.dot4 and isinstance(match, Match)):
            return []
        packed = match.packed
        return [(n, self.sch[sums].cache_read(n, {dim: 4}).name) for n, dim in packed]

    def _tile(self, held: bool) -> str:
        """The loops of the last stage; returns the innermost loop over tiles."""
        plan, stage = self.plan, self.sch[self.group.last]
        own = dict(zip(plan.axes, self.group.last.axes, strict=True))
        outer, middle, inner = self.outer, dict[str, str](), dict[str, str]()
        for axis in plan.tiled:
            tiles, inner[axis] = self._split(stage.name, own[axis], f"tile_{axis}", "ti")
            outer[axis], middle[axis] = self._split(stage.name, tiles, f"block_{axis}", "om")
        blocks = [outer[a] for a in plan.outer_order]
        rest = [own[axis] for axis in plan.axes if axis not in plan.tiled]
        lanes = self._lanes(stage.name, inner[plan.vector])
        tile = [inner[a] for a in plan.inner_order if a != plan.vector]
        around = [*rest, *blocks]
        if is_shared(self.group):
            shared = {**own, **outer}[self._shared_axis()]
            around = [shared, *(x for x in around if x != shared)]
        stage.reorder(*around, *(middle[a] for a in plan.inner_order), *tile, *lanes)
        if held:
            stage.unroll(*tile, lanes[0])
        elif self.target.registers >= 32:
            stage.unroll(lanes[0])
        stage.vectorize(lanes[1])
        if is_shared(self.group):
            stage.parallel(around[0])
        return middle[plan.inner_order[-1]]

    def _split(self, stage: str, axis: str, knob: str, parts: str) -> tuple[str, str]:
        return split(self.sch, stage, axis, self.knobs[knob], parts)

    def _lanes(self, stage: str, axis: str) -> tuple[str, str]:
        return split(self.sch, stage, axis, self.plan.lanes, "vl")

    def _shared_axis(self) -> str:
        """The axis whose blocks go to threads: the first of enough tiles, else that of most."""
        plan, pieces = self.plan, dict[str, int]()
        for axis in (*(a for a in plan.axes if a not in plan.tiled), *plan.outer_order):
            pieces[axis] = -(-plan.extents[axis] // (plan.lanes if axis == plan.vector else 1))
        enough = (axis for axis, count in pieces.items() if count >= PIECES)
        return next(enough, max(pieces, key=lambda axis: pieces[axis]))

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
        sums, steps, fours = list[str](), list[str](), list[str]()
        match, within = plan.dot4 if self.structure.dot4 else None, dict(stepped)
        for axis, _ in self.sch.state.stage(name).reduce_axes:
            loop = axis
            if isinstance(match, Match) and axis == match.axis:
                loop, four = split(self.sch, name, axis, 4, "qf")
                fours.append(four)
            if axis in within:
                loop, inner = self._split(name, loop, f"unroll_{axis}", "ou")
                steps.append(inner)
            sums.append(loop)
        vector = self._lanes(name, plan.vector)
        rest = [axis for axis in plan.axes if axis not in plan.tiled]
        tile = [axis for axis in plan.inner_order if axis != plan.vector]
        stage.reorder(*rest, *sums, *steps, *tile, *vector, *fours)
        stage.unroll(*steps, *tile, vector[0])
        for four in fours:
            stage.tensorize(four, "dot4")
        stage.vectorize(vector[1])

    def _place_copies(self) -> None:
        """Padded copies: at a loop over blocks, or first of all, by several threads if it pays."""
        for copy in reversed(copies(self.sch, self.group)):
            axes = self.plan.copies[copy.name]
            if self.structure.at_blocks and axes:
                self.sch[copy].compute_at(self.group.last, self.outer[axes[-1]])
            else:
                share(self.sch, copy, copy.axes[:-1], work(copy))

    def _place(self, operand: Operand, copy: str) -> None:
        """A packed operand: before any call if it is constant; else at blocks, or first of all."""
        stage = self.sch[copy]
        if operand.is_constant:
            stage.prepack()
        elif self.structure.at_blocks:
            stage.compute_at(self.group.last, self.outer[block_of(operand, self.plan)])
        elif is_shared(self.group):
            stage.parallel(stage.loops[0])

    def _fill_fours(self, name: str, copy: str) -> None:
        """A copy for dot4; before any call if it can be."""
        if name in self.group.constants:
            self.sch[copy].prepack()
        elif is_shared(self.group):
            self.sch[copy].parallel(self.sch[copy].loops[0])

    def _fill(self, operand: Operand, copy: str) -> None:
        """The loops of a packed operand: rows of the source outside, whole tiles inside."""
        stage = self.sch[copy]
        loops = stage.loops
        count = len(operand.tiles)
        outer, middle, inner = loops[:count], loops[count:-count], loops[-count:]
        last = operand.tiles[-1][1]
        if last == self.plan.vector:
            vector, lane = self._lanes(copy, inner[-1])
            stage.reorder(*middle, *outer, *inner[:-1], vector, lane)
            stage.unroll(vector).vectorize(lane)
        else:
            stage.unroll(inner[-1])
        self._place(operand, copy)
