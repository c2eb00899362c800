"""A space with all that may be tried for a product or a window, good or bad: for cost tables.

    RAW.knobs(group, target)                        # tiles, splits, orders, vectors, registers: …
    RAW.schedule(sch, group, target, knobs)

The spaces that the kit searches leave out what cannot be good, so that most of their points are
near the best, and any search finds one. Here a tile may be a single element or spill, loops stand
in any order, vectors and registers are a choice: one point in a hundred is within a tenth of the
best, as where nobody has pruned. The skeleton is that of L. Zheng et al., Ansor, OSDI 2020: the
last stage in tiles, the sums of a tile computed inside.
"""

from __future__ import annotations

from minidlc.schedules import Group, Implementation, Knobs
from minidlc.schedules.injective import vectorize_rows
from minidlc.target import Target
from minidlc.te import Schedule

TILES = (1, 2, 4, 8, 16)
SPLITS = (1, 4, 16)
# Inside a tile: R outer reductions, r inner ones, S elements of the tile; lanes are innermost.
ORDERS = ("RrS", "RSr", "SRr", "rRS")
BODY = 256  # statements of a tile that is unrolled, at most: more takes minutes to compile


def schedule_raw(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    """Tiles of the last stage, in each the sums, in the order that the knobs say."""
    last, anchor = group.last, group.anchor
    assert anchor is not None
    for stage in group.before_anchor():
        vectorize_rows(sch, stage, target)
    lanes = target.lanes(anchor.dtype.bits)
    if knobs["pack"]:
        _pack(sch, group, lanes)
    outer, inner = list[str](), list[str]()
    for axis in last.axes[:-1]:
        o, i = sch[last].split(axis, knobs[f"tile_{axis}"], names=(f"{axis}_o", f"{axis}_i"))
        outer.append(o)
        inner.append(i)
    *_, column = last.axes
    o, rest = sch[last].split(column, knobs["columns"], names=("col_o", "col_i"))
    vector, lane = sch[last].split(rest, lanes, names=("col_v", "col_l"))
    outer.append(o)
    order = outer if knobs["outer"] == 0 else outer[::-1]
    sch[last].reorder(*order, *inner, vector, lane)
    if knobs["vectors"]:
        sch[last].vectorize(lane)
    if knobs["registers"]:  # their positions must be numbers
        sch[last].unroll(*inner, vector)
    _sums(sch, group, knobs, order[-1], lanes)


def _pack(sch: Schedule, group: Group, lanes: int) -> None:
    """The right operand in strips of one vector, copied in each call."""
    assert group.anchor is not None
    right = group.anchor.inputs[-1]
    copy = sch[group.anchor].cache_read(right.name, {len(right.shape) - 1: lanes})
    copy.vectorize(copy.loops[-1])


def _sums(sch: Schedule, group: Group, knobs: Knobs, leaf: str, lanes: int) -> None:
    anchor, last = group.anchor, group.last
    assert anchor is not None
    stage = sch[anchor]
    stage.compute_at(last, leaf)
    tile = list(anchor.axes[:-1])
    vector, lane = stage.split(anchor.axes[-1], lanes, names=("sum_v", "sum_l"))
    tile.append(vector)
    outer, inner = list[str](), list[str]()
    for axis, extent in anchor.reduce_axes:
        factor = knobs.get(f"split_{axis}", extent if knobs["taps"] else 1)
        o, i = stage.split(axis, factor, names=(f"{axis}_o", f"{axis}_i"))
        outer.append(o)
        inner.append(i)
    parts = {"R": outer, "r": inner, "S": tile}
    order = [loop for part in ORDERS[knobs["order"]] for loop in parts[part]]
    stage.reorder(*order, lane)
    if knobs["vectors"]:
        stage.vectorize(lane)
    if knobs["registers"]:
        stage.unroll(*tile)
        stage.set_scope("register")
    else:
        stage.set_scope("stack")
    if knobs["unroll"]:
        stage.unroll(*inner)


def knobs_raw(group: Group, target: Target) -> dict[str, tuple[int, ...]]:
    """Every number and every choice."""
    last, anchor = group.last, group.anchor
    assert anchor is not None
    lanes = target.lanes(anchor.dtype.bits)
    found = dict[str, tuple[int, ...]]()
    for axis, extent in zip(last.axes[:-1], last.shape, strict=False):
        found[f"tile_{axis}"] = tuple(t for t in TILES if t <= extent)
    found["columns"] = tuple(c * lanes for c in (1, 2, 4, 8) if c * lanes <= last.shape[-1])
    for axis, extent in anchor.reduce_axes:
        if extent > 3:
            found[f"split_{axis}"] = tuple(s for s in SPLITS if extent % s == 0)
    window = any(extent <= 3 for _, extent in anchor.reduce_axes)
    found["taps"] = (0, 1) if window else (0,)
    found["order"] = tuple(range(len(ORDERS)))
    for name in ("outer", "vectors", "registers", "unroll"):
        found[name] = (0, 1)
    found["pack"] = (0,) if window else (0, 1)
    return found


def allowed_raw(group: Group, target: Target, knobs: Knobs) -> bool:
    """What can be lowered and compiled in a second."""
    anchor = group.anchor
    assert anchor is not None
    lanes = target.lanes(anchor.dtype.bits)
    sums = knobs["columns"] // lanes
    for axis in group.last.axes[:-1]:
        sums *= knobs[f"tile_{axis}"]
    steps = 1
    for axis, extent in anchor.reduce_axes:
        steps *= knobs.get(f"split_{axis}", extent if knobs["taps"] else 1)
    if knobs["registers"] and not knobs["vectors"]:
        return False
    body = (sums if knobs["registers"] else 1) * (steps if knobs["unroll"] else 1)
    return sums <= 128 and body <= BODY and (steps > 1 or not knobs["unroll"])


RAW = Implementation("tiles", "any", schedule_raw, knobs=knobs_raw, allowed=allowed_raw)
