"""Pixels as one axis, channels in blocks: the stages of a window as [n, block, q, place].

    group = flatten_pixels(group)

    before    conv[n, o, h, w, l] = sum of x[n, c, h + kh, w + kw, i] * …
              relu[n, o, h, w, l] = max(conv[n, o, h, w, l], 0)
    after     conv[n, o, q, l] = sum of x[n, c, q//W + kh, q%W + kw, i] * …
              relu[n, o, h, w, l] = max(conv[n, o, W*h + w, l], 0)

A tile of 6 pixels leaves a rest of 2 in each line of 56, of 1 in each of 7; of the pixels of the
whole image it leaves one rest. Quotient and remainder are computed once for a tile, outside the
loops of the sum. A plain result [n, o, h, w] gets blocks of channels as well, so that its sums are
computed as those of a blocked one: conv[n, o // B, W*h + w, o % B].
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from minidlc.expr.index import Index, Var, simplify, substitute
from minidlc.expr.nodes import Expr, Load
from minidlc.expr.walk import map_indices, rewrite
from minidlc.loop.regions import loads
from minidlc.schedules.group import Group, largest_divisor, work
from minidlc.schedules.implementation import Space
from minidlc.schedules.injective import PARALLEL_WORK, fuse_and_share
from minidlc.schedules.tiles import has_border
from minidlc.support.names import Names
from minidlc.target import Target
from minidlc.te import Schedule, Tensor

RANK = 5  # n, block of channels, h, w, place in the block
UNROLLED = 128  # multiply-adds in the innermost loop, at most, if nothing else is asked for
PIECES = 16  # of a parallel loop: enough for each thread to get several


@dataclass(frozen=True)
class Image:
    """A result of a window: `lines` of `width` pixels, `blocks` of `block` channels.

    `is_plain` says that the channels of a block do not lie side by side in memory.
    """

    batch: int
    blocks: int
    pixels: tuple[int, ...]
    block: int
    is_plain: bool = False

    @staticmethod
    def blocked(tensor: Tensor) -> Image:
        """Of f32[n, c / b, h, w, b]."""
        batch, blocks, *pixels, block = tensor.shape
        return Image(batch, blocks, tuple(pixels), block)

    @staticmethod
    def plain(tensor: Tensor, block: int) -> Image:
        """Of f32[n, c, h, w]; any number of spatial axes."""
        batch, channels, *pixels = tensor.shape
        return Image(batch, channels // block, tuple(pixels), block, True)

    @property
    def lines(self) -> int:
        """Lines of all planes."""
        return math.prod(self.pixels[:-1])

    @property
    def width(self) -> int:
        """Pixels of a line."""
        return self.pixels[-1]

    @property
    def flat(self) -> tuple[int, int, int, int]:
        """The shape with one axis of pixels."""
        return self.batch, self.blocks, math.prod(self.pixels), self.block

    def joined(self, index: tuple[Index, ...]) -> tuple[Index, ...]:
        """The position in the flat form."""
        n, o, *pixel = index
        o, place = (o // self.block, o % self.block) if self.is_plain else (o, pixel.pop())
        q = Index.of(0)
        for at, extent in zip(pixel, self.pixels, strict=True):
            q = q * extent + at
        return n, o, q, place

    def parted(self, axes: tuple[str, ...], flat: tuple[str, ...]) -> Mapping[Var, Index]:
        """Where each of `axes` is, given the axes of the flat form."""
        n, o, q, place = (Index.of(Var(name)) for name in flat)
        found = {Var(axes[0]): n, Var(axes[1]): o * self.block + place if self.is_plain else o}
        for axis, extent in reversed([*zip(axes[2:], self.pixels, strict=False)][1:]):
            found[Var(axis)] = q % extent
            q = q // extent
        found[Var(axes[2])] = q
        return found if self.is_plain else {**found, Var(axes[-1]): place}


def is_flat(group: Group, image: Image) -> bool:
    """True if the pixels of the anchor are one axis already."""
    assert group.anchor is not None
    return group.anchor is not group.last and group.anchor.shape == image.flat


def can_flatten(group: Group) -> bool:
    """True if what follows the anchor works on its elements in place."""
    anchor, last = group.anchor, group.last
    if anchor is None or len(group.outputs) != 1 or 0 in last.shape:
        return False
    after = _results(group, anchor)
    names = {t.name for t in after}
    alike = all(t.shape == last.shape and (t is anchor or not t.reduce_axes) for t in after)
    return alike and last in after and all(_in_place(t, names) for t in after)


def has_pixels(group: Group, target: Target) -> bool:
    """True if the anchor gives a blocked image, or that with flat pixels."""
    if group.anchor is None or len(group.last.shape) != RANK or 0 in group.last.shape:
        return False
    return is_flat(group, Image.blocked(group.last)) or can_flatten(group)


def flatten_pixels(group: Group) -> Group:
    """The same results by stages whose h and w are one axis; only the output has both again."""
    return flattened(group, Image.blocked(group.last))


def flattened(group: Group, image: Image) -> Group:
    """The same results by stages in the flat form of `image`, but for the output."""
    anchor = group.anchor
    assert anchor is not None
    taken = Names(t.name for stage in group.stages() for t in (stage, *stage.inputs))
    flat: dict[str, Tensor] = {}
    for stage in _results(group, anchor):
        if stage is not group.last:
            flat[stage.name] = _flat(stage, flat, image, stage.name)
        elif stage is anchor:
            flat[stage.name] = _flat(stage, flat, image, taken.fresh(f"{stage.name}_q"))
    output = _on_flat(group.last, flat, image)
    if anchor is group.last:
        index = tuple(Index.of(Var(a)) for a in anchor.axes)
        sums = flat[anchor.name]
        body = Load(sums.name, image.joined(index), anchor.dtype)
        output = replace(anchor, body=body, inputs=(sums,))
    return Group((output,), flat[anchor.name], group.constants)


def _results(group: Group, anchor: Tensor) -> tuple[Tensor, ...]:
    """The anchor and the stages that depend on it, in order."""
    found = [anchor]
    for stage in group.stages():
        if stage not in found and any(t in found for t in stage.inputs):
            found.append(stage)
    return tuple(found)


def _in_place(stage: Tensor, names: set[str]) -> bool:
    assert stage.body is not None
    here = tuple(Index.of(Var(a)) for a in stage.axes)
    return all(e.index == here for e in loads(stage.body) if e.buffer in names)


def _on_flat(stage: Tensor, flat: dict[str, Tensor], image: Image) -> Tensor:
    """The stage reading the flat forms of its inputs."""
    assert stage.body is not None

    def load(e: Expr) -> Expr:
        if isinstance(e, Load) and e.buffer in flat:
            return Load(flat[e.buffer].name, image.joined(e.index), e.type)
        return e

    inputs = tuple(flat.get(t.name, t) for t in stage.inputs)
    return replace(stage, body=rewrite(stage.body, load), inputs=inputs)


def _flat(stage: Tensor, flat: dict[str, Tensor], image: Image, name: str) -> Tensor:
    """The stage with one axis of pixels."""
    on_flat = _on_flat(stage, flat, image)
    taken = Names((*stage.axes, *(a for a, _ in stage.reduce_axes)))
    axes = (
        *stage.axes[:2],
        taken.fresh("q"),
        taken.fresh("l") if image.is_plain else stage.axes[-1],
    )
    values = image.parted(stage.axes, axes)
    ranges = {Var(axes[3]): (0, image.block - 1)}

    def position(e: Index) -> Index:
        return simplify(substitute(e, values), ranges)

    assert on_flat.body is not None
    body = map_indices(on_flat.body, position)
    return Tensor(name, stage.type.with_shape(image.flat), axes, body, on_flat.inputs)


def operand_bytes(anchor: Tensor) -> tuple[int, int]:
    """Bytes of what differs between pixels, and of what is the same for all: the weights."""
    assert anchor.body is not None
    sizes = {t.name: t.type.nbytes for t in anchor.inputs}
    weights = sum(sizes[name] for name in same_for_all_pixels(anchor, anchor.body))
    return sum(sizes.values()) - weights, weights


def same_for_all_pixels(anchor: Tensor, body: Expr) -> tuple[str, ...]:
    """What the body of a window reads at no position that depends on the pixel: its weights."""
    pixel = Var(anchor.axes[2])
    fixed = (e for e in loads(body) if not any(pixel in i.vars() for i in e.index))
    return tuple(dict.fromkeys(e.buffer for e in fixed))


def copies(sch: Schedule, group: Group) -> tuple[Tensor, ...]:
    """The stages before the anchor that have loops of their own: images with a border."""
    inlined = {s.name for s in sch.state.stages if s.inlined}
    return tuple(t for t in group.before_anchor() if t.name not in inlined)


def share_copies(sch: Schedule, group: Group) -> None:
    """Make copies with a border in parallel, image by image and channel by channel."""
    for stage in copies(sch, group):
        if work(stage) >= PARALLEL_WORK:
            fuse_and_share(sch, stage, stage.axes[:2], stage.shape[:2], PIECES)


def copies_at(sch: Schedule, group: Group, strip: str | None) -> None:
    """Make copies with a border strip by strip, in the cache for their readers, or before all."""
    if strip is None:
        share_copies(sch, group)
        return
    for stage in reversed(copies(sch, group)):
        sch[stage].compute_at(group.last, strip)


def border_knob(group: Group, default: int) -> Space:
    """Whether what has a border is made strip by strip, if there is any."""
    if any(has_border(t) for t in group.before_anchor() if not t.reduce_axes):
        return {"border_at_strip": (default, 1 - default)}
    return {}


def near_registers(sch: Schedule, stage: Tensor, last: Tensor, leaf: str, lanes: int) -> None:
    """Compute a stage that reads sums in registers at a tile of `last`, into the stack."""
    *rest, place = stage.axes
    vector, lane = sch[stage].split(place, lanes, names=(f"{place}v", f"{place}l"))
    sch[stage].unroll(*rest, vector).vectorize(lane)
    sch[stage].compute_at(last, leaf).set_scope("stack")


def hold_pixels(
    sch: Schedule,
    sums: str,
    last: Tensor,
    leaf: str,
    lanes: int,
    room: int,
    *,
    sliding: str | None = None,
) -> None:
    """Compute the sums of a tile of `last` in registers, `room` steps of the sum unrolled, at most.

    Reductions are outside in the order they are written; they are unrolled from the innermost as
    far as there is room. Channels run inside pixels: a broadcast is used up before the next
    is loaded. So does the reduction `sliding`: a pixel read is used up by the windows over it.
    """
    stage = sch[sums]
    stage.compute_at(last, leaf)
    loops = sch.state.stage(sums)
    n, o, q, place = loops.axes
    vector, lane = stage.split(place, lanes, names=(f"{place}v", f"{place}l"))
    serial, unrolled = list[str](), list[str]()
    for name, extent in reversed(loops.reduce_axes):
        times = 1 if serial else largest_divisor(extent, room)
        inner = name
        if 1 < times < extent:
            name, inner = stage.split(name, times, names=(f"{name}o", f"{name}i"))
        if times == extent or times > 1:
            unrolled.insert(0, inner)
        if times < extent:
            serial.insert(0, name)
        room //= times
    inside = [name for name in unrolled if name == sliding]
    outside = [name for name in unrolled if name != sliding]
    stage.reorder(n, *serial, *outside, q, o, *inside, vector, lane)
    stage.unroll(*unrolled, q, o, vector).vectorize(lane)
    stage.set_scope("register")
