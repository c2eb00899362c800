"""Long graphs in rows, like lines of text, so that no label has to shrink.

    rows = break_rows(chart, sizes, width=1840)     # [('in x', 'conv2d', …), ('matmul', …)]
    rows = place_rows(chart, sizes, rows, labels)   # one Layout per row, with ends to connect

A row ends where few values cross to the next one. Reads sizes, writes positions. Treated in course
chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minidlc.viz import dot
from minidlc.viz.boxes import Arrow, Chart, frames_around
from minidlc.viz.clear import cleared
from minidlc.viz.drawing import Point

_GAP = 40  # about what Graphviz leaves between two boxes of a row
_FRAME = 32  # and what a frame adds
_POINT = 0.1  # size of the points where values enter and leave

Sizes = Mapping[str, Point]


@dataclass(frozen=True)
class Row:
    """One line of boxes; `entries` and `exits` are the values that cross its ends, by tail box."""

    layout: dot.Layout
    arrows: tuple[Arrow, ...]  # in the order of layout.edges; ends may be entries and exits
    entries: tuple[str, ...]
    exits: tuple[str, ...]


def entry(tail: str) -> str:
    """Name of the point where a value comes in from the row above."""
    return f"entry {tail}"


def leave(tail: str) -> str:
    """Name of the point where a value goes on to the row below."""
    return f"exit {tail}"


def arrange(chart: Chart, sizes: Sizes, labels: Mapping[str, Point], width: float) -> list[Row]:
    """Rows no wider than `width`, as few as possible, where Graphviz can make them so."""
    room, tried = width, list[list[Row]]()
    for _ in range(8):
        tried.append(place_rows(chart, sizes, labels, break_rows(chart, sizes, labels, room)))
        widest = _widest(tried[-1])
        if widest <= width:
            return tried[-1]
        room *= min(0.9, width / widest)  # the estimate was too kind
    return min(tried, key=_widest)


def _widest(rows: Sequence[Row]) -> float:
    return max((row.layout.width for row in rows), default=0.0)


def break_rows(
    chart: Chart, sizes: Sizes, labels: Mapping[str, Point], width: float
) -> list[tuple[str, ...]]:
    """Box keys row by row: dynamic programming over where rows end.

    Wanted in this order: rows that fit, few rows, few values crossing, groups whole, even widths.
    """
    keys = [b.key for b in chart.boxes]
    frames = _frames_of_boxes(chart)
    at = {key: i for i, key in enumerate(keys)}
    best: list[tuple[float, int]] = [(0.0, 0)]  # cost of keys[:end], where its last row starts
    for end in range(1, len(keys) + 1):
        options: list[tuple[float, int]] = []
        for start in range(end - 1, -1, -1):
            length = _length(chart, keys[start:end], sizes, labels, frames)
            if length > width and start < end - 1:
                break
            crossing = len({a.tail for a in chart.arrows if at[a.tail] < end <= at[a.head]})
            split = len(frames[keys[end - 1]] & frames[keys[end]]) if end < len(keys) else 0
            slack = 1 - min(1.0, length / width)
            cost = 10 + 3 * max(0, crossing - 1) + 25 * split + slack**2
            options.append((best[start][0] + cost, start))
        best.append(min(options))
    rows: list[tuple[str, ...]] = []
    end = len(keys)
    while end > 0:
        start = best[end][1]
        rows.insert(0, tuple(keys[start:end]))
        end = start
    return rows


def _length(
    chart: Chart,
    keys: Sequence[str],
    sizes: Sizes,
    labels: Mapping[str, Point],
    frames: Mapping[str, set[str]],
) -> float:
    """Estimated width of a row: its longest path. `frames` are those around each box."""
    inside = set(keys)
    end = {key: sizes[key][0] for key in keys}
    into: dict[str, list[Arrow]] = {}
    for arrow in chart.arrows:
        if arrow.tail in inside and arrow.head in inside:
            into.setdefault(arrow.head, []).append(arrow)
    for key in keys:
        for arrow in into.get(key, ()):
            label = labels[arrow.label][0] if arrow.label else 0
            tail, head = frames[arrow.tail], frames[key]
            frame = _FRAME * max(len(tail - head), len(head - tail))
            start = end[arrow.tail] + max(_GAP, label) + frame
            end[key] = max(end[key], start + sizes[key][0])
    return max(end.values(), default=0.0)


def _frames_of_boxes(chart: Chart) -> dict[str, set[str]]:
    """Box -> the frames around it."""
    return {b.key: set(frames_around(b.frame, chart.frames)) for b in chart.boxes}


def place_rows(
    chart: Chart,
    sizes: Sizes,
    labels: Mapping[str, Point],
    rows: Sequence[tuple[str, ...]],
) -> list[Row]:
    """Lay out each row by itself."""
    row_of = {key: i for i, row in enumerate(rows) for key in row}
    return [_place(chart, sizes, labels, row, i, row_of) for i, row in enumerate(rows)]


def _place(
    chart: Chart,
    sizes: Sizes,
    labels: Mapping[str, Point],
    keys: tuple[str, ...],
    number: int,
    row_of: Mapping[str, int],
) -> Row:
    arrows = _row_arrows(chart.arrows, number, row_of)
    entries = tuple(dict.fromkeys(a.tail for a in arrows if a.tail.startswith("entry ")))
    exits = tuple(dict.fromkeys(a.head for a in arrows if a.head.startswith("exit ")))
    nodes = [dot.Node(key, *sizes[key]) for key in keys]
    nodes += [dot.Node(name, _POINT, _POINT, rank="source") for name in entries]
    nodes += [dot.Node(name, _POINT, _POINT, rank="sink") for name in exits]
    members: dict[str, list[str]] = {}
    for box in chart.boxes:
        if box.key in keys and box.frame:
            members.setdefault(box.frame, []).append(box.key)
    used = {f for name in members for f in frames_around(name, chart.frames)}
    clusters = [
        dot.Cluster(name, tuple(members.get(name, ())), labels[frame.headline], frame.outer)
        for name, frame in chart.frames.items()
        if name in used
    ]
    edges = [dot.Edge(a.tail, a.head, labels[a.label] if a.label else None) for a in arrows]
    layout = cleared(dot.layout(nodes, edges, clusters), nodes, edges, clusters)
    return Row(layout, arrows, entries, exits)


def _row_arrows(
    arrows: Sequence[Arrow], number: int, row_of: Mapping[str, int]
) -> tuple[Arrow, ...]:
    """The pieces of all arrows in this row: whole ones, and parts from an entry or to an exit."""
    pieces: dict[tuple[str, str], str] = {}
    for a in arrows:
        starts, ends = row_of[a.tail], row_of[a.head]
        if not starts <= number <= ends:
            continue
        tail = a.tail if starts == number else entry(a.tail)
        head = a.head if ends == number else leave(a.tail)
        label = a.label if starts == number else ""
        pieces[tail, head] = pieces.get((tail, head)) or label
    return tuple(Arrow(tail, head, label) for (tail, head), label in pieces.items())


def connect(
    start: Point, end: Point, right: float, channel: float, left: float
) -> tuple[Point, ...]:
    """Corners of the line from the end of one row to the start of the next."""
    corners = (start, (right, start[1]), (right, channel), (left, channel), (left, end[1]), end)
    return _rounded(corners, 10)


def _rounded(corners: Sequence[Point], radius: float) -> tuple[Point, ...]:
    """A Bézier path along straight pieces whose corners are rounded."""
    path: list[Point] = [corners[0]]
    for before, corner, after in zip(corners, corners[1:], corners[2:], strict=False):
        enter, exit_ = _towards(corner, before, radius), _towards(corner, after, radius)
        path += [path[-1], enter, enter, corner, corner, exit_]
    return tuple([*path, path[-1], corners[-1], corners[-1]])


def _towards(a: Point, b: Point, step: float) -> Point:
    length = math.dist(a, b)
    share = min(step, length / 2) / length if length else 0.0
    return a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share
