"""Large graphs are summed up, never shrunk: repeated blocks become one box ×N.

    len(chart_of(transformer).boxes)                # 412
    len(collapse(chart_of(transformer)).boxes)      # 9: embedding, block ×12, head …

Reads and writes a Chart. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from minidlc.viz.boxes import Arrow, Box, Chart, frames_around, used_frames

LIMIT = 60  # more boxes than this do not fit a slide
_LONGEST = 100  # units in a repeated block
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
    def size(self) -> int:
        return 1 if self.whole else len(self.boxes)


def collapse(chart: Chart, limit: int = LIMIT) -> Chart:
    """The chart with at most about `limit` boxes; one that fits is returned as it is.

    First repeated blocks are drawn once; if that is not enough, neighbours are summed up, and last
    the bodies of branches and loops are shut.
    """
    if len(chart.boxes) <= limit:
        return chart
    pieces = _repeats(_units(chart))
    if sum(p.size for p in pieces) > limit:
        pieces = _neighbours(pieces, limit)
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


def _repeats(units: list[_Piece]) -> list[_Piece]:
    """Replace the repeat that saves most boxes, then those to its left and right."""
    start, period, times = _best_repeat([_signature(u) for u in units])
    if times < 2:
        return units
    end = start + period * times
    inside = tuple(b for u in units[start:end] for b in u.boxes)
    block = _Piece(inside, times, whole=True, body=units[start].body)
    return [*_repeats(units[:start]), block, *_repeats(units[end:])]


def _signature(unit: _Piece) -> str:
    """What must agree for two units to count as the same: ops, not names or shapes."""
    if unit.is_value:
        return f"value {unit.boxes[0].key}"  # never repeated
    return f"{unit.body}: {'+'.join(box.title for box in unit.boxes)}"


def _best_repeat(signatures: Sequence[str]) -> tuple[int, int, int]:
    """(start, period, times) of the repeat that covers most units, the shortest block of these."""
    best, n = (0, 0, 1), len(signatures)
    for period in range(1, min(_LONGEST, n // 2) + 1):
        same = 0  # how many units from here on equal the one a period later
        for start in range(n - period - 1, -1, -1):
            same = same + 1 if signatures[start] == signatures[start + period] else 0
            times = same // period + 1
            if times > 1 and period * times >= max(4, best[1] * best[2] + 1):
                best = (start, period, times)
    return best


def _neighbours(pieces: list[_Piece], limit: int) -> list[_Piece]:
    """Sum up runs of ops of about equal length, between inputs, outputs and repeated blocks."""
    fixed = sum(p.is_value or p.whole for p in pieces)
    ops = sum(p.size for p in pieces) - fixed
    step = max(2, -(-ops // max(1, (limit - fixed) // 2)))
    joined: list[_Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if piece.is_value or piece.whole:
            joined.append(piece)
        elif last and _grows(last, step) and last.body == piece.body:
            joined[-1] = _Piece((*last.boxes, *piece.boxes), whole=True, body=piece.body)
        else:
            joined.append(_Piece(piece.boxes, whole=True, body=piece.body))
    return joined


def _grows(piece: _Piece, step: int) -> bool:
    return piece.whole and piece.times == 1 and len(piece.boxes) < step


def _rebuild(chart: Chart, pieces: list[_Piece]) -> Chart:
    """The chart of these pieces: whole ones as one box, others box by box."""
    boxes: list[Box] = []
    stands: dict[str, str] = {}
    for piece in pieces:
        if not piece.whole or len(piece.boxes) == 1:
            boxes += piece.boxes
            continue
        boxes.append(_summary(piece))
        stands |= {box.key: boxes[-1].key for box in piece.boxes}
    return _redrawn(chart, boxes, stands)


def _redrawn(chart: Chart, boxes: list[Box], stands: dict[str, str]) -> Chart:
    """The chart of these boxes; arrows follow what stands for their ends, those inside vanish."""
    arrows: dict[tuple[str, str], str] = {}
    for a in chart.arrows:
        tail, head = stands.get(a.tail, a.tail), stands.get(a.head, a.head)
        if tail != head:
            arrows[tail, head] = arrows.get((tail, head)) or a.label
    pairs = tuple(Arrow(tail, head, label) for (tail, head), label in arrows.items())
    return Chart(tuple(boxes), pairs, used_frames(boxes, chart.frames))


def _summary(piece: _Piece) -> Box:
    """One box for many: how many ops, and which ones most."""
    count = len(piece.boxes) // piece.times
    block = piece.boxes[:count]
    kinds = Counter(box.title for box in block).most_common()
    named = [f"{n}×{name}" if n > 1 else name for name, n in kinds[:_NAMED]]
    rest = " …" if len(kinds) > _NAMED else ""
    hover = [f"{box.title}  {box.detail}" for box in block]
    start = f"{piece.times} times:" if piece.times > 1 else f"{count} ops:"
    return Box(
        key=f"many {block[0].key}",
        kind="many",
        title=f"{count} op{'s' if count != 1 else ''}",
        detail=", ".join(named) + rest,
        hover="\n".join([start, *hover[:40], *(["…"] if len(hover) > 40 else [])]),
        times=piece.times,
        frame=piece.body,
    )
