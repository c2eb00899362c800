"""Large graphs are summed up, never shrunk: repeated blocks become one box ×N.

    len(chart_of(transformer).boxes)                # 412
    len(collapse(chart_of(transformer)).boxes)      # 9: embedding, block ×12, head …

Reads and writes a Chart. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from minidlc.viz.boxes import Arrow, Box, Chart, frames_around, used_frames
from minidlc.viz.theme import SIGNS

LIMIT = 60  # more boxes than this do not fit a slide
_LONGEST = 100  # units in a repeated block
_SPARSE = 3  # a block takes the room of this many boxes: better few that open
_ENDS = 8  # room for what comes from outside a block and goes there, where it is opened
_NAMED = 3  # kinds of ops that a summary names


@dataclass(frozen=True)
class _Piece:
    """Consecutive boxes; `times` > 1: that many equal blocks. `whole`: to be drawn as one box.

    `body` is the frame of the innermost branch or loop around them: nothing is summed up across it.
    """

    boxes: tuple[Box, ...]
    times: int = 1
    whole: bool = False
    body: str = ""

    @property
    def is_value(self) -> bool:
        return self.boxes[0].kind == "value"

    @property
    def is_marked(self) -> bool:
        return not self.whole and any(box.change for box in self.boxes)

    @property
    def size(self) -> int:
        return 1 if self.whole else len(self.boxes)


def collapse(chart: Chart, limit: int = LIMIT) -> Chart:
    """The chart with at most about `limit` boxes; one that fits is returned as it is.

    First repeated blocks are drawn once; if that is not enough, neighbours are summed up, and last
    the bodies of branches and loops are shut.
    """
    if len(chart.boxes) <= limit:
        return chart
    units = _units(chart)
    pieces = _repeats(units, max(4, len(units) // 40))  # shorter ones come about by chance
    if sum(p.size for p in pieces) > limit:
        pieces = _neighbours(pieces, chart, limit)
    short = _rebuild(chart, pieces)
    shut = _without_bodies(chart) if len(short.boxes) > limit else chart
    return short if len(shut.boxes) == len(chart.boxes) else collapse(shut, limit)


def around(chart: Chart, key: str, reach: int) -> Chart:
    """The chart with the boxes near `key` as they are, all ops before and after them summed up."""
    if not _bodies(chart)[key]:
        chart = _without_bodies(chart)
    place = next(i for i, box in enumerate(chart.boxes) if box.key == key)
    start, end = max(0, place - reach), place + reach + 1
    near = [_Piece((box,)) for box in chart.boxes[start:end]]
    sides = [_summed(part) for part in (chart.boxes[:start], chart.boxes[end:])]
    return _rebuild(chart, [*sides[0], *near, *sides[1]])


def _summed(boxes: tuple[Box, ...]) -> list[_Piece]:
    """Inputs, all ops as one box, outputs: an order in which data still goes forward."""
    ops = tuple(box for box in boxes if box.kind != "value")
    ends = [_Piece((box,)) for box in boxes if box.kind == "value"]
    inputs = [p for p in ends if p.boxes[0].extra == "input"]
    outputs = [p for p in ends if p not in inputs]
    return [*inputs, *([_Piece(ops, whole=True)] if ops else []), *outputs]


def _units(chart: Chart) -> list[_Piece]:
    """What stays together: the boxes of a fused group, or one box."""
    units: list[_Piece] = []
    bodies = _bodies(chart)
    for box in chart.boxes:
        body = bodies[box.key]
        if units and box.frame != body and units[-1].boxes[-1].frame == box.frame:
            units[-1] = _Piece((*units[-1].boxes, box), body=body)
        else:
            units.append(_Piece((box,), body=body))
    return units


def _bodies(chart: Chart) -> dict[str, str]:
    """Box -> the innermost body around it, "" for none."""
    around = {b.key: frames_around(b.frame, chart.frames) for b in chart.boxes}
    return {
        key: next((f for f in frames if chart.frames[f].op), "") for key, frames in around.items()
    }


def _without_bodies(chart: Chart) -> Chart:
    """The chart with each branch and loop as one box, which stands for all that its bodies hold."""
    stands: dict[str, str] = {}
    for box in chart.boxes:
        for frame in frames_around(box.frame, chart.frames):  # the last one is the outermost
            stands[box.key] = chart.frames[frame].op or stands.get(box.key, "")
    stands = {key: op for key, op in stands.items() if op}
    return _redrawn(chart, [b for b in chart.boxes if b.key not in stands], stands)


def _repeats(units: list[_Piece], least: int) -> list[_Piece]:
    """Replace the repeat that covers most units, at least `least`, then those beside it."""
    start, period, times = _best_repeat([_signature(u) for u in units], least)
    if times < 2:
        return units
    end = start + period * times
    inside = tuple(b for u in units[start:end] for b in u.boxes)
    block = _Piece(inside, times, whole=True, body=units[start].body)
    return [*_repeats(units[:start], least), block, *_repeats(units[end:], least)]


def _signature(unit: _Piece) -> str:
    """What must agree for two units to count as the same: ops and changes, not names or shapes."""
    if unit.is_value:
        return f"value {unit.boxes[0].key}"  # never repeated
    return f"{unit.body}: {'+'.join(map(_alike, unit.boxes))}"


def _alike(box: Box) -> str:
    return box.title + box.change + "∂" * box.derivative


def _best_repeat(signatures: Sequence[str], least: int) -> tuple[int, int, int]:
    """(start, period, times) of the repeat that covers most units, the shortest block of these."""
    best, n = (0, 0, 1), len(signatures)
    for period in range(1, min(_LONGEST, n // 2) + 1):
        same = 0  # how many units from here on equal the one a period later
        for start in range(n - period - 1, -1, -1):
            same = same + 1 if signatures[start] == signatures[start + period] else 0
            times = same // period + 1
            if times > 1 and period * times >= max(least, best[1] * best[2] + 1):
                best = (start, period, times)
    return best


def _neighbours(pieces: list[_Piece], chart: Chart, limit: int) -> list[_Piece]:
    """Sum up runs of ops between inputs, outputs and repeated blocks: some larger blocks.

    A few marked boxes stay to be seen.
    """
    marked = sum(len(p.boxes) for p in pieces if p.is_marked)
    seen = {id(p) for p in pieces if p.is_marked} if marked <= limit // 2 else set[int]()
    fixed = [p.is_value or p.whole or id(p) in seen for p in pieces]
    ops = sum(p.size for p, stays in zip(pieces, fixed, strict=True) if not stays)
    size = max(2, -(-ops // max(1, (limit - sum(fixed)) // _SPARSE)))
    crossing = _crossing(chart)
    joined: list[_Piece] = []
    pairs = zip(pieces, fixed, strict=True)
    for (stays, body), run in itertools.groupby(pairs, lambda pair: (pair[1], pair[0].body)):
        part = [piece for piece, _ in run]
        for start, end in [] if stays else _cuts(part, size, crossing):
            boxes = tuple(box for piece in part[start:end] for box in piece.boxes)
            joined.append(_Piece(boxes, whole=True, body=body))
        joined += part if stays else []
    return joined


def _crossing(chart: Chart) -> dict[str, int]:
    """Box -> how many values are read by boxes behind it, or by others: what a cut there cuts."""
    at = {box.key: n for n, box in enumerate(chart.boxes)}
    last: dict[str, int] = {}
    for a in chart.arrows:
        last[a.tail] = max(last.get(a.tail, 0), at[a.head])
    counts = [0] * (len(at) + 1)
    for tail, end in last.items():
        counts[at[tail]] += 1
        counts[end] -= 1
    return dict(zip(at, itertools.accumulate(counts), strict=False))


def _cuts(
    pieces: Sequence[_Piece], size: int, crossing: Mapping[str, int]
) -> list[tuple[int, int]]:
    """Blocks of about `size` boxes that end where few values go on: dynamic programming."""
    most = min(2 * size, max(size, LIMIT - _ENDS))  # then it needs no blocks itself
    best: list[tuple[float, int]] = [(0.0, 0)]  # cost of pieces[:end], where its last block starts
    for end in range(1, len(pieces) + 1):
        options: list[tuple[float, int]] = []
        held = 0
        for start in range(end - 1, -1, -1):
            held += len(pieces[start].boxes)
            if held > most and options:
                break
            cost = crossing[pieces[end - 1].boxes[-1].key] if end < len(pieces) else 0
            options.append((best[start][0] + cost + 2 * (held / size - 1) ** 2, start))
        best.append(min(options))
    blocks: list[tuple[int, int]] = []
    end = len(pieces)
    while end > 0:
        blocks.insert(0, (best[end][1], end))
        end = best[end][1]
    return blocks


def _rebuild(chart: Chart, pieces: list[_Piece]) -> Chart:
    """The chart of these pieces: whole ones as one box, others box by box."""
    boxes: list[Box] = []
    stands: dict[str, str] = {}
    for piece in pieces:
        if not piece.whole or len(piece.boxes) == 1:
            boxes += piece.boxes
            continue
        block = piece.boxes[: len(piece.boxes) // piece.times]
        first = len(block) + sum(len(box.members) for box in block)
        boxes.append(replace(summary(block, piece.times, piece.body), first=first))
        stands |= {box.key: boxes[-1].key for box in piece.boxes}
    return _redrawn(chart, boxes, stands)


def _redrawn(chart: Chart, boxes: list[Box], stands: Mapping[str, str]) -> Chart:
    """The chart of these boxes; arrows follow what stands for their ends, those inside vanish."""
    inside: dict[str, list[str]] = {}
    for box in chart.boxes:
        if box.key in stands:
            inside.setdefault(stands[box.key], []).extend([box.key, *box.members])
    boxes = [replace(b, members=(*b.members, *inside.get(b.key, ()))) for b in boxes]
    arrows: dict[tuple[str, str], str] = {}
    for a in chart.arrows:
        tail, head = stands.get(a.tail, a.tail), stands.get(a.head, a.head)
        if tail != head:
            arrows[tail, head] = arrows.get((tail, head)) or a.label
    pairs = tuple(Arrow(tail, head, label) for (tail, head), label in arrows.items())
    return Chart(tuple(boxes), pairs, used_frames(boxes, chart.frames))


def summary(block: Sequence[Box], times: int = 1, frame: str = "") -> Box:
    """One box for many, `times` such blocks: how many ops, which ones most, how many marked."""
    count = len(block)
    kinds = Counter(box.title for box in block).most_common()
    named = [f"{n}×{name}" if n > 1 else name for name, n in kinds[:_NAMED]]
    rest = " …" if len(kinds) > _NAMED else ""
    hover = [f"{box.title}  {box.detail}" for box in block]
    start = f"{times} times:" if times > 1 else f"{count} ops:"
    changes = Counter(box.change for box in block if box.change)
    return Box(
        key=f"many {block[0].key}",
        kind="many",
        title=f"{count} op{'s' if count != 1 else ''}",
        extra="∂" if all(box.derivative for box in block) else "",
        detail=", ".join(named) + rest,
        hover="\n".join([start, *hover[:40], *(["…"] if len(hover) > 40 else [])]),
        times=times,
        frame=frame,
        mark=" ".join(f"{n}×{SIGNS[kind].letter}" for kind, n in changes.items()),
        change=next(iter(changes)) if len(changes) == 1 else "",
    )
