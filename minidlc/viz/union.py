"""Two graphs on one layout, so that what stays keeps its place from the one to the other.

    both = united(chart_of(before), chart_of(after), compare(before, after))
    both.before, both.after                         # Charts whose boxes share keys: places
    [(items, width, height), …] = both.placed(1840) # one for each, of the same size

A place holds a box that stayed, or what went and what came instead of it. Where no one order of
places is an order for both graphs, each has its own layout. Reads and writes Charts. Treated in
course chapter 02_frontend_opt.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from minidlc.viz.blocks import block as block_of
from minidlc.viz.blocks import blocks_of, inside, numbered
from minidlc.viz.boxes import Arrow, Box, Chart, frames_around, used_frames
from minidlc.viz.collapse import LIMIT, collapse, summary
from minidlc.viz.compare import Comparison
from minidlc.viz.drawing import Item, Point
from minidlc.viz.graph import place_chart, rows_of, stack
from minidlc.viz.opening import Frame
from minidlc.viz.paint import box_size
from minidlc.viz.rows import Row, entry, leave
from minidlc.viz.theme import SIGNS

Placed = tuple[list[Item], float, float]  # items, width, height


@dataclass(frozen=True)
class United:
    """Both graphs; `whole` holds every place of both, or None if they have no layout in common."""

    before: Chart
    after: Chart
    whole: Chart | None
    full: tuple[Chart, Chart, Chart] | None = None  # the three before anything was summed up

    def sides(self) -> list[tuple[Chart, Chart]]:
        """Before and after, each with the chart that it sums up."""
        old, new, _ = self.full or (self.before, self.after, None)
        return [(self.before, old), (self.after, new)]

    def blocks(self) -> Iterator[tuple[str, United]]:
        """The blocks that stand for many boxes: key, and its first one opened on both sides."""
        if self.whole is None or self.full is None:
            return
        for box in blocks_of(self.whole):
            old, new, whole = (block_of(chart, inside(box)) for chart in self.full)
            less = LIMIT if len(whole.boxes) < len(self.full[2].boxes) else len(whole.boxes)
            yield box.key, _summed(old, new, whole, less)

    def placed(self, room: float) -> tuple[Placed, Placed]:
        """What is to be painted of each, in rows of at most `room`."""
        if self.whole is None:
            return place_chart(self.before, room), place_chart(self.after, room)
        sizes: dict[str, Point] = {}
        for box in (*self.before.boxes, *self.after.boxes):
            (a, b), (c, d) = sizes.get(box.key, (0.0, 0.0)), box_size(box)
            sizes[box.key] = max(a, c), max(b, d)
        rows = rows_of(self.whole, sizes, room)
        row_of = {key: n for n, row in enumerate(rows) for key in row.layout.nodes}
        before, after = (_widened(chart, sizes) for chart in (self.before, self.after))
        return _paint(before, rows, row_of), _paint(after, rows, row_of)


def united(before: Chart, after: Chart, found: Comparison, limit: int = LIMIT) -> United:
    """Give both charts the same keys, and sum up what is too much in both alike."""
    places = _places(before, after, found)
    frames = dict(found.frames), {name: name for name in after.frames}
    frames[0].update({name: f"− {name}" for name in before.frames if name not in found.frames})
    old, new = (_renamed(*both) for both in zip((before, after), places, frames, strict=True))
    whole = _whole(old, new)
    if whole is None:
        old, new = (numbered(collapse(chart, limit)) for chart in (before, after))
        return United(old, new, None)
    return _summed(old, new, whole, limit)


def _summed(old: Chart, new: Chart, whole: Chart, limit: int) -> United:
    """Both sides with the same blocks for what is too much."""
    short = numbered(collapse(whole, limit))
    return United(_view(old, short), _view(new, short), short, (old, new, whole))


def _places(
    before: Chart, after: Chart, found: Comparison
) -> tuple[dict[str, str], dict[str, str]]:
    """Box -> its place, for both sides; a place is called after the box that was there before."""
    old = {box.key: box.key for box in before.boxes}
    new = {other: key for key, other in found.kept.items()}
    for c in found.changes:
        if c.old and c.new and not c.frame:
            new.setdefault(c.new[-1], c.old[-1])
    taken = set(new.values())
    for box in after.boxes:
        if box.kind == "value" and box.key in old and box.key not in taken:
            new.setdefault(box.key, box.key)
    return old, {box.key: new.get(box.key, f"+ {box.key}") for box in after.boxes}


def _renamed(chart: Chart, place: Mapping[str, str], frame: Mapping[str, str]) -> Chart:
    """The chart with other keys for boxes and frames; "" stays "" (no frame)."""
    boxes = (replace(b, key=place[b.key], frame=frame.get(b.frame, "")) for b in chart.boxes)
    arrows = (Arrow(place[a.tail], place[a.head], a.label) for a in chart.arrows)
    frames = {
        frame[name]: replace(f, outer=frame.get(f.outer, ""), op=place.get(f.op, ""))
        for name, f in chart.frames.items()
    }
    return Chart(tuple(boxes), tuple(arrows), frames)


def _whole(old: Chart, new: Chart) -> Chart | None:
    """Every place of both in an order in which data goes forward; None if there is none."""
    frames = {**old.frames, **new.frames}
    if any(frames[name].outer != frame.outer for name, frame in old.frames.items()):
        return None
    boxes = {box.key: box for box in old.boxes}
    for box in new.boxes:
        was = boxes.get(box.key, box)
        frame = _deeper(was.frame, box.frame, frames)
        if frame is None:
            return None
        boxes[box.key] = replace(box, frame=frame, change=box.change or was.change)
        if was.title != box.title:  # blocks are equal if both their sides are
            boxes[box.key] = replace(boxes[box.key], title=f"{was.title}, {box.title}")
    labels: dict[tuple[str, str], str] = {}
    for a in (*old.arrows, *new.arrows):
        labels[a.tail, a.head] = max(labels.get((a.tail, a.head), ""), a.label, key=len)
    order = _order(_ranks(old, new), labels)
    if order is None:
        return None
    arrows = tuple(Arrow(tail, head, label) for (tail, head), label in labels.items())
    return Chart(tuple(boxes[key] for key in order), arrows, frames)


def _deeper(a: str, b: str, frames: Mapping[str, Frame]) -> str | None:
    """Of two frames the one that lies in the other; None if neither does."""
    if a in ("", *frames_around(b, frames)):
        return b
    return a if b in ("", *frames_around(a, frames)) else None


def _ranks(old: Chart, new: Chart) -> dict[str, tuple[int, int]]:
    """Place -> where it should stand: in the order after; what went, behind what was before it."""
    ranks = {box.key: (n, 0) for n, box in enumerate(new.boxes)}
    last = (-1, 0)
    for box in old.boxes:
        last = ranks.setdefault(box.key, (last[0], last[1] + 1))
    return ranks


def _order(
    ranks: Mapping[str, tuple[int, int]], arrows: Mapping[tuple[str, str], str]
) -> list[str] | None:
    """The places, lowest rank first, none before what it reads; None if that goes in circles."""
    waiting = dict.fromkeys(ranks, 0)
    readers: dict[str, list[str]] = {}
    for tail, head in arrows:
        waiting[head] += 1
        readers.setdefault(tail, []).append(head)
    ready = [(rank, key) for key, rank in ranks.items() if not waiting[key]]
    heapq.heapify(ready)
    order: list[str] = []
    while ready:
        _, key = heapq.heappop(ready)
        order.append(key)
        for reader in readers.get(key, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, (ranks[reader], reader))
    return order if len(order) == len(ranks) else None


def _view(chart: Chart, whole: Chart) -> Chart:
    """What of the whole is there on one side; blocks sum up what they hold there."""
    own = {box.key: box for box in chart.boxes}
    stands = {member: box.key for box in whole.boxes for member in box.members}
    boxes: list[Box] = []
    for box in whole.boxes:
        members = tuple(key for key in box.members if key in own)
        first = [own[key] for key in box.members[: box.first] if key in own]
        here = own.get(box.key) or (_block(box, first, chart) if members else None)
        if here is not None:
            number = f"block {box.extra.rpartition(' ')[2]}" if box.members else ""
            extra = f"{here.extra} {number}".strip()
            boxes.append(replace(here, members=members, first=len(first), extra=extra))
    pairs: dict[tuple[str, str], str] = {}
    for a in chart.arrows:
        tail, head = stands.get(a.tail, a.tail), stands.get(a.head, a.head)
        if tail != head:
            pairs[tail, head] = pairs.get((tail, head)) or a.label
    arrows = tuple(Arrow(tail, head, label) for (tail, head), label in pairs.items())
    return Chart(tuple(boxes), arrows, used_frames(boxes, chart.frames))


def _block(box: Box, first: Sequence[Box], chart: Chart) -> Box:
    """A block on one side, by what its first run holds there."""
    block = summary([b for b in first if not _is_in(b, first, chart)], box.times, box.frame)
    kernels = {b.frame for b in first if b.frame and chart.frames[b.frame].change}
    if kernels and not block.mark:
        sign = f"{len(kernels)}×{SIGNS['merged'].letter}"
        block = replace(block, mark=sign, change="merged")
    return replace(block, key=box.key)


def _is_in(box: Box, block: Sequence[Box], chart: Chart) -> bool:
    """True if an op of the block holds the box in one of its bodies."""
    ops = {b.key for b in block}
    return any(chart.frames[f].op in ops for f in frames_around(box.frame, chart.frames))


def _widened(chart: Chart, sizes: Mapping[str, Point]) -> Chart:
    """The chart with boxes as wide as their places: arrows end there."""
    boxes = (replace(box, least=sizes[box.key][0]) for box in chart.boxes)
    return replace(chart, boxes=tuple(boxes))


def _paint(view: Chart, rows: list[Row], row_of: Mapping[str, int]) -> Placed:
    """One side on the places of both: its boxes and its arrows."""
    labels = {(a.tail, a.head): a.label for a in view.arrows}
    last: dict[str, int] = {}  # box -> the last row in which something reads it
    for tail, head in labels:
        last[tail] = max(last.get(tail, 0), row_of[head])

    def only(row: Row) -> Row:
        number = rows.index(row)
        kept: list[tuple[Arrow, int]] = []
        for n, piece in enumerate(row.arrows):
            tail = piece.tail.removeprefix(entry(""))
            if piece.head == leave(tail):
                if last.get(tail, -1) > number:
                    kept.append((_first(piece, labels, row_of, number), n))
            elif (tail, piece.head) in labels:
                label = labels[tail, piece.head] if piece.tail == tail else ""
                kept.append((replace(piece, label=label), n))
        edges = tuple(row.layout.edges[n] for _, n in kept)
        exits = tuple(e for e in row.exits if last.get(e.removeprefix(leave("")), -1) > number)
        arrows = tuple(arrow for arrow, _ in kept)
        return replace(row, arrows=arrows, exits=exits, layout=replace(row.layout, edges=edges))

    return stack(view, rows, only)


def _first(
    piece: Arrow, labels: Mapping[tuple[str, str], str], row_of: Mapping[str, int], number: int
) -> Arrow:
    """The piece that leaves the row, with the label of an arrow that starts here and goes on."""
    texts = [
        t for (tail, head), t in labels.items() if tail == piece.tail and row_of[head] > number
    ]
    return replace(piece, label=next((t for t in texts if t), ""))
