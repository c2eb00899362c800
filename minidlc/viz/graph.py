"""The picture of a graph: ops coloured by pattern, types where they change, groups as frames.

    p = mc.viz.graph(g)                             # shows itself in Jupyter
    mc.viz.graph(g, theme="dark", title="mlp, before fusion").save("mlp.png")

Reads the graph, writes a Picture: rows from left to right like text, every label at least 14 px on
a slide 1920 wide. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from minidlc.graph.graph import Constant, Graph, Node
from minidlc.graph.op import OpKind, Pattern
from minidlc.support.arguments import expect
from minidlc.viz.blocks import block, blocks_of, inside, numbered
from minidlc.viz.boxes import Chart, bytes_text, chart_of, is_derivative
from minidlc.viz.collapse import LIMIT, collapse
from minidlc.viz.drawing import (
    SLIDE,
    Drawing,
    Group,
    Item,
    Label,
    Line,
    Point,
    Rect,
    shift,
    shorten,
    text_width,
)
from minidlc.viz.opening import Frame, opened
from minidlc.viz.paint import SMALL, TEXT, box_size, derivative_strip, paint_box
from minidlc.viz.picture import Picture
from minidlc.viz.rows import Row, arrange, connect, entry, leave
from minidlc.viz.theme import ThemeName, cue

MARGIN = 40
TITLE = 28
NARROWEST = 960  # a picture of three boxes is not blown up to the width of a slide
_LANE = 14  # between two lines that connect rows


def graph(
    g: Graph, theme: ThemeName | None = None, *, title: str | None = None, expand: bool = False
) -> Picture:
    """Draw a graph. `expand` draws every op where the default sums up more than 60 boxes.

    Raises OptionError for an unknown theme (MDLC1021) or without a layout program (MDLC1020).
    """
    expect("viz.graph", "g", g, Graph, hint="exe.graph")
    limit = None if expand else LIMIT
    return _picture(chart_of(g), headline(g) if title is None else title, theme, limit)


def _picture(
    chart: Chart, title: str, theme: ThemeName | None, limit: int | None, number: str = ""
) -> Picture:
    """The picture of a chart; with a limit, what is more is summed up in blocks that open."""
    short = chart if limit is None else numbered(collapse(chart, limit), number)

    def opened() -> Iterator[tuple[str, Picture]]:
        for n, box in enumerate(blocks_of(short), 1):
            part = block(chart, inside(box))
            less = limit if len(part.boxes) < len(chart.boxes) else None  # else there is no end
            words = f"block {number}{n}: {box.title}{f', {box.times} times' * (box.times > 1)}"
            yield box.key, _picture(part, words, theme, less, f"{number}{n}.")

    return Picture(draw_chart(short, title), theme, lambda: tuple(opened()))


def headline(g: Graph) -> str:
    """'lenet: 12 ops in 5 kernels, 26 kB of weights'; of a gradient also its share of the ops."""
    shown = opened(g)
    boxes = {p.value: p for p in shown.placed}
    ops = {v: p for v, p in boxes.items() if isinstance(v, Node) and not p.role}
    ops = {node: p for node, p in ops.items() if node.op.name != "getitem"}
    read = {v for p in ops.values() for v in p.reads if v not in boxes}
    weights = {v: v.array.nbytes for v in read if isinstance(v, Constant)}
    regions = {key for key, frame in shown.frames.items() if frame.region}
    kernels = {key for key, frame in shown.frames.items() if not frame.op} - regions
    text = f"{g.name}: {_count(len(ops), 'op')}"
    if made := sum(map(is_derivative, ops)):
        text += f" ({made} for derivatives)"
    if kernels:
        groups = kernels | regions
        own = [node for node, p in ops.items() if p.frame not in groups and _has_kernel(node)]
        text += f" in {_count(len(kernels) + len(own), 'kernel')}"
    if regions:
        text += f"{' and' if kernels else ' in'} {_count(len(regions), 'region')}"
    return f"{text}, {bytes_text(sum(weights.values()))} of weights" if weights else text


def _has_kernel(node: Node) -> bool:
    return not node.op.is_view and node.op.kind != OpKind.CONTROL


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def draw_chart(chart: Chart, title: str) -> Drawing:
    """Place and paint a chart: title, rows of boxes, legend."""
    content, width, height = place_chart(chart, SLIDE - 2 * MARGIN)
    notes = legend(chart)
    page = max(NARROWEST, max(width, _right(notes)) + 2 * MARGIN)
    top = 84
    items: list[Item] = [page_title(title, page)]
    items += [shift(item, (page - width) / 2, top) for item in content]
    items += [shift(item, MARGIN, top + height + 44) for item in notes]
    return Drawing(page, top + height + (84 if notes else MARGIN), title, tuple(items))


def place_chart(chart: Chart, room: float) -> tuple[list[Item], float, float]:
    """The boxes and arrows of a chart in rows of at most `room`; with their width and height."""
    return stack(chart, rows_of(chart, {b.key: box_size(b) for b in chart.boxes}, room))


def rows_of(chart: Chart, sizes: Mapping[str, Point], room: float) -> list[Row]:
    """The places of boxes of these sizes, in rows that are at most `room` wide if that can be."""
    labels = {a.label: _label_size(a.label) for a in chart.arrows if a.label}
    labels |= {f.headline: _headline_size(f.headline) for f in chart.frames.values()}
    rows = arrange(chart, sizes, labels, room)
    for share in (0.95, 0.88, 0.8):
        if _width(rows) > room:  # the lines between rows need space as well
            rows = arrange(chart, sizes, labels, room * share)
    return rows


def page_title(title: str, page: float) -> Label:
    """The headline of a picture."""
    text = shorten(title, page - 2 * MARGIN, TITLE, bold=True)
    return Label(text, MARGIN, 50, TITLE, role="text", bold=True)


def _label_size(text: str) -> Point:
    return text_width(text, TEXT, mono=True) + 14, 24


def _headline_size(text: str) -> Point:
    return text_width(text, TEXT, bold=True) + 6, 24


def _side(rows: Sequence[Row]) -> float:
    """The room that lines between rows take at either side."""
    lanes = max((len(row.exits) for row in rows[:-1]), default=0)
    return _LANE * (lanes + 1) if lanes else 0


def _width(rows: Sequence[Row]) -> float:
    return max((row.layout.width for row in rows), default=0) + 2 * _side(rows)


def stack(
    chart: Chart, rows: Sequence[Row], only: Callable[[Row], Row] = lambda row: row
) -> tuple[list[Item], float, float]:
    """Rows below each other, connected; returns items, width and height.

    `only` leaves out arrows of a row; whatever is painted keeps its place.
    """
    side = _side(rows)
    behind: list[Item] = []
    items: list[Item] = []
    y = 0.0
    for row, below in itertools.zip_longest(rows, rows[1:]):
        frames, front = _row_items(chart, only(row))
        behind += [shift(item, side, y) for item in frames]
        items += [shift(item, side, y) for item in front]
        gap = 36 + _LANE * len(row.exits)
        bottom = y + row.layout.height
        if below is not None:
            kept = only(row).exits
            items += _connections(row, below, kept, y, bottom + 18, bottom + gap, side)
        y = bottom + gap
    return behind + items, _width(rows), max(0.0, y - 36)


def _connections(
    row: Row,
    below: Row,
    kept: Sequence[str],
    y: float,
    channel: float,
    next_y: float,
    side: float,
) -> list[Item]:
    """Lines from the ends of one row to the starts of the next; they nest without crossing."""
    ends = sorted(row.exits, key=lambda name: row.layout.nodes[name][1])
    items: list[Item] = []
    for i, name in enumerate(ends):
        if name not in kept:
            continue
        start = row.layout.nodes[name]
        end = below.layout.nodes[entry(name.removeprefix(leave("")))]
        outer = _LANE * (len(ends) - i)
        path = connect(
            (start[0] + side, start[1] + y),
            (end[0] + side, end[1] + next_y),
            right=start[0] + side + outer,
            channel=channel + outer,
            left=side - _LANE * (i + 1),
        )
        items.append(Group((Line(path, bezier=True),), kind="edge"))
    return items


def _row_items(chart: Chart, row: Row) -> tuple[list[Item], list[Item]]:
    """Frames, and what stands before them: arrows, then boxes, then labels."""
    place = row.layout
    frames: list[Item] = []
    items: list[Item] = []
    words: list[Item] = []
    for name, frame in chart.frames.items():  # outer ones first: they lie below
        if name in place.clusters:
            behind, headline = _paint_frame(name, frame, place.clusters[name].box)
            frames.append(behind)
            words.append(headline)
    for arrow, route in zip(row.arrows, place.edges, strict=True):
        ends_here = not arrow.head.startswith(leave(""))
        items.append(Group((Line(route.points, bezier=True, arrow=ends_here),), kind="edge"))
        if route.label and arrow.label:
            x, y = route.label
            words.append(Label(arrow.label, x, y + 5, TEXT, "middle", "text", mono=True))
    boxes = [paint_box(b, place.nodes[b.key]) for b in chart.boxes if b.key in place.nodes]
    return frames, [*items, *boxes, *words]


def _paint_frame(name: str, frame: Frame, area: tuple[float, ...]) -> tuple[Group, Group]:
    """A kernel's frame is filled, a body's has dashes; its headline hides the arrows below it."""
    left, top, right, bottom = area
    fill, dash, what = "frame", "", f"ops that run as one kernel, {name}"
    if frame.op:
        fill, dash, what = "page", "8 5", f"a body that {frame.op} runs"
    if frame.region:
        dash, what = "14 4", f"ops that another back end runs, {name}"
    edge, line = (frame.change, 3.0) if frame.change else ("frame.edge", 1.5)
    box = Rect(left, top + 3, right - left, bottom - top - 6, fill, edge, line, 12, dash)
    text = Label(frame.headline, left + 14, top + 23, TEXT, role=frame.change or "text", bold=True)
    backing = Rect(left + 10, top + 6, text.width + 8, 22, fill)
    return Group((box,), what, "frame", name), Group((backing, text), kind="headline")


def _right(items: Sequence[Item]) -> float:
    """Where the last label of a row ends."""
    return max((i.left + i.width for i in items if isinstance(i, Label)), default=0.0)


_MEANING = {
    Pattern.ELEMENTWISE: "elementwise",
    Pattern.BROADCAST: "broadcast",
    Pattern.INJECTIVE: "injective: moves elements",
    Pattern.REDUCTION: "reduction",
    Pattern.OUT_FUSABLE: "fusable at its output",
    Pattern.OPAQUE: "opaque",
}


def legend(*charts: Chart) -> list[Item]:
    """Letter, border and colour of the patterns that occur."""
    kinds = {box.kind for chart in charts for box in chart.boxes}
    items: list[Item] = []
    x = 0.0
    for pattern in (p for p in Pattern if p in kinds):
        look = cue(pattern)
        edge = f"{pattern}.edge"
        items.append(Rect(x, 0, 26, 24, pattern, edge, look.width, min(look.radius, 8), look.dash))
        items.append(Label(look.letter, x + 13, 17, SMALL, "middle", bold=True))
        text = Label(_MEANING[pattern], x + 34, 17, TEXT, role="text")
        items.append(text)
        x += 34 + text.width + 28
    if any(box.derivative for chart in charts for box in chart.boxes):
        items += derivative_strip("∂", "strip.edge", Rect(x, 0, 26, 24), 12)
        items.append(Label("for derivatives: made by autodiff", x + 34, 17, TEXT, role="text"))
    return items
