"""What the tiling rules know of a kernel: its axes, which are tiled, which is the vector, operands.

    plan = plan_of(group, target)
    plan.tiled, plan.vector, plan.lanes             # ('i', 'j'), 'j', 16
    plan.operands                                   # what may be packed: B by its columns …

Axes are named as those of the anchor. `plan_of` gives a string, the reason, where there is nothing
to tile. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from minidlc.expr.index import Index, Var
from minidlc.expr.nodes import Load
from minidlc.expr.walk import values_in
from minidlc.loop.regions import loads
from minidlc.schedules.group import Group
from minidlc.schedules.pixels import copies
from minidlc.schedules.tiles import computing_bits, inline_around
from minidlc.target import Target
from minidlc.te import Tensor, create_schedule
from minidlc.tuning.sketch.access import reads, stride, variables
from minidlc.tuning.sketch.intrinsics import Match, match_dot4

TILED = 3  # axes with tiles, beside that of the vectors
NEAR = 4  # elements between what neighbours read: they are still in the same few vectors


@dataclass(frozen=True)
class Operand:
    """Something read that may be packed: `tiles` are (dimension, axis of the anchor) pairs."""

    number: int
    name: str
    tiles: tuple[tuple[int, str], ...]
    is_constant: bool


@dataclass(frozen=True)
class Plan:
    """The axes of the anchor in order, the tiled ones, the vector; operands that can be packed.

    `apart` are the tiled axes that the operand read in vectors does not depend on: its vectors are
    used again along them. `stepped` are the reductions that are cut into steps.
    """

    axes: tuple[str, ...]
    extents: Mapping[str, int]
    tiled: tuple[str, ...]
    vector: str
    lanes: int
    registers: int
    apart: tuple[str, ...]
    stepped: tuple[tuple[str, int], ...]
    operands: tuple[Operand, ...]
    copies: Mapping[str, tuple[str, ...]]
    dot4: Match | str

    @cached_property
    def along(self) -> tuple[str, ...]:
        """The tiled axes that the operand read in vectors depends on, the vector last."""
        return tuple(a for a in self.tiled if a not in self.apart)

    @property
    def outer_order(self) -> tuple[str, ...]:
        """Blocks: a block of the vectors' operand serves all of the others."""
        return (*self.along, *self.apart)

    @property
    def inner_order(self) -> tuple[str, ...]:
        """Tiles and what is in them: the other way round."""
        return (*self.apart, *self.along)

    def fits(self, tiles: Mapping[str, int]) -> bool:
        """True if the sums, the vectors of an operand and one more fit the registers."""
        along = math.prod(tiles[a] for a in self.along) // self.lanes
        return math.prod(tiles.values()) // self.lanes + along + 1 <= self.registers


@lru_cache(maxsize=256)
def plan_of(group: Group, target: Target) -> Plan | str:
    """The plan, or why there is none."""
    anchor = group.anchor
    why = refusal(group)
    if why or anchor is None:
        return why
    sch = create_schedule(group.outputs, constants=group.constants, checked=False)
    inline_around(sch, group, target)
    body = sch.state.stage(anchor.name).body
    shapes = reads(sch.state, body)
    extents = dict(zip(anchor.axes, anchor.shape, strict=True))
    vector = next(a for a in reversed(anchor.axes) if extents[a] > 1)
    others = [a for a in anchor.axes if extents[a] > 1 and a != vector]
    again = [a for a in others if any(a not in variables(e) for e in shapes)]
    streams = [
        variables(e) for e, dims in shapes.items() if 0 < (stride(vector, e, dims) or 0) <= NEAR
    ]
    if not streams and not any(vector not in variables(e) for e in shapes):
        return f"neighbours along {vector} read nothing in common, and nothing side by side"
    chosen = (again or others)[-TILED:]
    tiled = tuple(a for a in anchor.axes if a in chosen or a == vector)
    fewest = min(streams, key=lambda names: len(names & set(tiled)), default=frozenset((vector,)))
    apart = tuple(a for a in tiled if a not in fewest and a != vector)
    order = (*(a for a in tiled if a not in apart), *apart)
    return Plan(
        anchor.axes,
        extents,
        tiled,
        vector,
        target.lanes(computing_bits(group)),
        target.registers,
        apart,
        _stepped(anchor, target),
        _operands(group, list(shapes), tiled),
        {t.name: _axes_of(t, shapes, order) for t in copies(sch, group)},
        match_dot4(body, shapes, vector, {p.name for p in sch.state.placeholders}),
    )


def _axes_of(copy: Tensor, found: Iterable[Load], order: tuple[str, ...]) -> tuple[str, ...]:
    """The tiled axes that what the anchor reads of a copy depends on, as blocks run."""
    axes = {a for e in found if e.buffer == copy.name for a in variables(e)}
    return tuple(a for a in order if a in axes)


def block_of(operand: Operand, plan: Plan) -> str:
    """The innermost of the loops over blocks that a packed operand depends on."""
    axes = {axis for _, axis in operand.tiles}
    return next(axis for axis in reversed(plan.outer_order) if axis in axes)


def refusal(group: Group) -> str:
    """Why a kernel has nothing to tile; "" if it has."""
    anchor, last = group.anchor, group.last
    if anchor is None:
        return "no stage reduces: there is no anchor"
    if len(group.outputs) > 1:
        return "several outputs"
    if 0 in last.shape or 0 in anchor.shape:
        return "no elements"
    if math.prod(anchor.shape) == 1:
        return f"{anchor.name} is one number"
    if anchor.shape != last.shape:
        return f"{last.name} has another shape than {anchor.name}"
    before = [t for t in group.before_anchor() if t.reduce_axes]
    if before:
        return f"{before[0].name} reduces what {anchor.name} reads"
    after = [anchor]
    for stage in group.stages():
        if stage in after or not any(t in after for t in stage.inputs):
            continue
        names = {t.name for t in after}
        if stage.reduce_axes:
            return f"{stage.name} reduces what {anchor.name} gives"
        here = tuple(Index.of(Var(a)) for a in stage.axes)
        found = [] if stage.body is None else loads(stage.body)
        if any(e.buffer in names and e.index != here for e in found):
            return f"{stage.name} reads {anchor.name} at other places than its own"
        after.append(stage)
    return ""


def _stepped(anchor: Tensor, target: Target) -> tuple[tuple[str, int], ...]:
    """The reductions cut into steps; in strict precision the innermost: the order stays."""
    found = tuple(pair for pair in anchor.reduce_axes if pair[1] > 1)
    strict = target.precision == "strict" and anchor.dtype.is_float
    return found[-1:] if strict else found


def _operands(group: Group, found: list[Load], tiled: tuple[str, ...]) -> tuple[Operand, ...]:
    """What can be packed: read once, and by whole tiles along some of its dimensions."""
    made = list[Operand]()
    for number, name in enumerate(dict.fromkeys(e.buffer for e in found)):
        if not pack_refusal(name, found, group, tiled):
            load = next(e for e in found if e.buffer == name)
            places = {e: d for d, e in enumerate(load.index)}
            tiles = [(places[Index.of(Var(a))], a) for a in tiled if Index.of(Var(a)) in places]
            made.append(Operand(number, name, tuple(sorted(tiles)), name in group.constants))
    return tuple(made)


def pack_refusal(name: str, found: list[Load], group: Group, tiled: tuple[str, ...]) -> str:
    """Why something that the anchor reads cannot be packed by tiles; "" if it can."""
    load, *more = [e for e in found if e.buffer == name]
    if name in {t.name for t in group.stages()}:
        return "it is computed here, in the order of its own loops"
    if more:
        return f"it is read at {len(more) + 1} places"
    if any(values_in(e) for e in load.index):
        return "it is looked up"
    used = [e for e in load.index if {v.name for v in e.vars()} & set(tiled)]
    if not used:
        return "no tile differs from another in it"
    odd = next((e for e in used if len(e.vars()) > 1 or e != Index.of(*e.vars())), None)
    if odd is not None:
        return f"neighbours in it are not those of a tile: {odd}"
    if len(set(used)) < len(used):
        return "an axis numbers two dimensions of it"
    assert group.anchor is not None
    sizes = zip(group.anchor.axes, group.anchor.shape, strict=True)
    again = [a for a, n in sizes if n > 1 and a not in variables(load)]
    if not again and name not in group.constants:
        return "each element is read once: to copy it is as much work"
    return ""
