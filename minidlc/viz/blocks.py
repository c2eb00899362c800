"""What a block of a summed up graph holds, as a chart of its own: every block opens.

    short = collapse(chart)
    [block(chart, inside(box)) for box in blocks_of(short)]

Values that come from outside and go outside are boxes at its ends. Reads and writes Charts. Treated
in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from minidlc.viz.boxes import Arrow, Box, Chart, used_frames

_SHORT = 24  # letters of a name outside


def blocks_of(chart: Chart) -> list[Box]:
    """The boxes that stand for others: runs of ops, and ops whose bodies are shut."""
    return [box for box in chart.boxes if box.members]


def inside(box: Box) -> tuple[str, ...]:
    """The keys of what a block holds; of a repeated one what its first run holds."""
    return box.members[: box.first] if box.kind == "many" else (*box.members, box.key)


def numbered(chart: Chart, start: str = "") -> Chart:
    """The chart whose blocks carry the numbers under which they can be opened: 1, or `start`1."""
    numbers = {box.key: n for n, box in enumerate(blocks_of(chart), 1)}
    boxes = (
        replace(box, extra=f"{box.extra} block {start}{numbers[box.key]}".strip())
        if box.key in numbers
        else box
        for box in chart.boxes
    )
    return replace(chart, boxes=tuple(boxes))


def block(chart: Chart, keys: Sequence[str]) -> Chart:
    """The boxes of these keys, with what they read from outside and who reads them there."""
    wanted = set(keys)
    titles = {box.key: box.detail or box.title for box in chart.boxes}
    boxes = [box for box in chart.boxes if box.key in wanted]
    inputs: dict[str, Box] = {}
    outputs: dict[str, Box] = {}
    arrows: dict[tuple[str, str], str] = {}
    for a in chart.arrows:
        tail, head = a.tail, a.head
        if tail in wanted and head not in wanted:
            head = f"goes on {tail}"
            outputs[tail] = _end(head, titles[tail], "is read outside")
        elif head in wanted and tail not in wanted:
            tail = f"comes from {a.tail}"
            inputs[tail] = _end(tail, titles[a.tail], "from outside")
        elif tail not in wanted:
            continue
        arrows[tail, head] = arrows.get((tail, head)) or a.label
    ordered: list[Box] = []
    for box in boxes:
        read = [tail for tail, head in arrows if head == box.key and tail in inputs]
        ordered += [inputs.pop(tail) for tail in read if tail in inputs]
        ordered.append(box)
        ordered += [outputs[box.key]] if box.key in outputs else []
    pairs = tuple(Arrow(tail, head, label) for (tail, head), label in arrows.items())
    return Chart(tuple(ordered), pairs, used_frames(ordered, chart.frames))


def _end(key: str, name: str, role: str) -> Box:
    name = name if len(name) <= _SHORT else name[: _SHORT - 1] + "…"
    return Box(key, "value", name, detail=role)
