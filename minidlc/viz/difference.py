"""Two graphs side by side, the first difference marked: "expected / yours".

    p = mc.viz.difference(expected, yours)          # Picture: shows itself in Jupyter
    p.title                                         # 'node 2: relu expected, yours is sigmoid'
    first_difference(expected, expected)            # None

The box where they part carries a ring and the sign ≠ on both sides, or + on the side that has one
box more. Of large graphs the neighbourhood of that box is drawn, the rest summed up. Reads graphs,
writes a Picture. Treated in course chapter 01_graph_ir, and shown by the grader.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from minidlc.graph.graph import Constant, Graph, Node, Value
from minidlc.graph.printer import value_names
from minidlc.graph.structure import constant_key, op_key
from minidlc.support.arguments import expect
from minidlc.viz.boxes import Chart, attributes_text, chart_of
from minidlc.viz.collapse import around
from minidlc.viz.drawing import SLIDE, Drawing, Item, Label, Line, Rect, shift, text_width
from minidlc.viz.graph import MARGIN, NARROWEST, TITLE, legend, page_title, place_chart
from minidlc.viz.opening import fused_body, held
from minidlc.viz.paint import NAME, TEXT
from minidlc.viz.picture import Picture
from minidlc.viz.theme import ThemeName

SIDES = ("expected", "yours")
_GAP = 60  # between the two graphs
_MANY = 24  # a graph of more boxes is drawn near the difference only
_REACH = 5  # boxes before and after it
_TOP = 132


@dataclass(frozen=True)
class Difference:
    """Where two graphs part. `expected` and `yours` are keys of boxes; "" where there is none."""

    sentence: str
    expected: str
    yours: str


def difference(
    expected: Graph, yours: Graph, theme: ThemeName | None = None, *, title: str | None = None
) -> Picture:
    """Draw both graphs, the expected one on the left.

    Raises OptionError for what is no graph (MDLC1001), an unknown theme (MDLC1021) or without a
    layout program (MDLC1020).
    """
    expect("viz.difference", "expected", expected, Graph)
    expect("viz.difference", "yours", yours, Graph)
    first = first_difference(expected, yours)
    keys = (first.expected, first.yours) if first else ("", "")
    both = [_prepared(g, key, keys) for g, key in zip((expected, yours), keys, strict=True)]
    if title is None:
        title = first.sentence if first else "the two graphs are equal"
    return Picture(_draw(both, title, bool(first)), theme)


def first_difference(expected: Graph, yours: Graph) -> Difference | None:
    """The first place in which two graphs differ, by the rules of `Graph.__eq__`; None if equal."""
    if expected == yours:
        return None
    names = value_names(expected), value_names(yours)
    numbers: tuple[dict[Value, str], dict[Value, str]] = ({}, {})
    pairs = itertools.zip_longest(expected.inputs, yours.inputs)
    for n, (want, got) in enumerate(pairs):
        sides = zip(names, (want, got), strict=True)
        keys = ["" if v is None else f"in {known[v]}" for known, v in sides]
        if want is None or got is None or want.type != got.type:
            return Difference(f"input {n}: {_two(_type(want), _type(got))}", *keys)
        numbers[0][want] = numbers[1][got] = f"input {n}"
    for n, (want, got) in enumerate(itertools.zip_longest(expected.nodes, yours.nodes)):
        said = _node_sentence(want, got, names, numbers)
        if said:
            keys = [_key_of(g, v) for g, v in zip((expected, yours), (want, got), strict=True)]
            return _inside(want, got, *keys) or Difference(f"node {n}: {said}", *keys)
        numbers[0][want] = numbers[1][got] = f"node {n}"
    return _outputs(expected, yours, names, numbers)


def _node_sentence(
    want: Node | None,
    got: Node | None,
    names: Sequence[dict[Value, str]],
    numbers: Sequence[dict[Value, str]],
) -> str:
    """How two nodes of the same place differ; "" if they do not."""
    if want is None or got is None or want.op.name != got.op.name:
        return _two(*("" if node is None else node.op.name for node in (want, got)))
    if op_key(want.op) != op_key(got.op):
        texts = [f"{node.op.name}({attributes_text(node.op)})" for node in (want, got)]
        return _two(*texts) if texts[0] != texts[1] else f"{want.op.name} has another attribute"
    count = len(want.inputs), len(got.inputs)
    if count[0] != count[1]:
        return f"{want.op.name} of {count[0]} values expected, yours has {count[1]}"
    for place, (a, b) in enumerate(zip(want.inputs, got.inputs, strict=True), 1):
        if _same_value(a, b, numbers):
            continue
        shown = _name_two(a, b, names, numbers)
        return f"{want.op.name}: operand {place} is {shown[1]}, expected {shown[0]}"
    return "" if want.type == got.type else f"{want.op.name}: {_two(_type(want), _type(got))}"


def _same_value(a: Value | None, b: Value | None, numbers: Sequence[dict[Value, str]]) -> bool:
    if a is None or b is None:
        return a is b
    if isinstance(a, Constant) and isinstance(b, Constant):
        return constant_key(a) == constant_key(b)
    return numbers[0].get(a) == numbers[1].get(b) and not isinstance(a, Constant)


def _inside(want: Node | None, got: Node | None, left: str, right: str) -> Difference | None:
    """The difference within two fused groups, or within bodies of the same kind of op."""
    if want is None or got is None or want.op.name != got.op.name:
        return None
    sides = zip(_graphs_of(want, left), _graphs_of(got, right), strict=True)
    for (place, frame, expected), (_, other, yours) in sides:
        found = first_difference(expected, yours)
        if found:
            keys = [
                _key_inside(found.expected, frame, left),
                _key_inside(found.yours, other, right),
            ]
            return Difference(f"in {place}, {found.sentence}", *keys)
    return None


def _graphs_of(node: Node, key: str) -> list[tuple[str, str, Graph]]:
    """What a node of box `key` holds: where that is in words, the key of its frame, the graph."""
    group = fused_body(node)
    if group is not None:
        frame = key.split(".")[0]
        return [(f"kernel {frame}", frame, group)]
    return [(b.headline(node.op.name, key), f"{key}.{b.title}", b.graph) for b in held(node)[1]]


def _key_inside(key: str, frame: str, outer: str) -> str:
    """The box of a key of the graph in `frame`; its inputs and outputs have no box of their own."""
    if key.startswith(("in ", "out ")):
        return outer
    return f"{frame}.{key}" if key else ""


def _outputs(
    expected: Graph,
    yours: Graph,
    names: Sequence[dict[Value, str]],
    numbers: Sequence[dict[Value, str]],
) -> Difference | None:
    for n, (want, got) in enumerate(itertools.zip_longest(expected.outputs, yours.outputs)):
        keys = [f"out {n}" if v is not None else "" for v in (want, got)]
        if want is None or got is None:
            counts = f"{len(expected.outputs)} expected, yours has {len(yours.outputs)}"
            return Difference(f"number of outputs: {counts}", *keys)
        if not _same_value(want, got, numbers):
            shown = _name_two(want, got, names, numbers)
            return Difference(f"output {n} is {shown[1]}, expected {shown[0]}", *keys)
    return None


def _two(want: str, got: str) -> str:
    if not got:
        return f"{want} expected, yours has none"
    return f"{want} expected, yours is {got}" if want else f"yours has {got}, nothing expected"


def _type(value: Value | None) -> str:
    return str(value.type) if value is not None else ""


def _name_two(
    want: Value | None,
    got: Value | None,
    names: Sequence[dict[Value, str]],
    numbers: Sequence[dict[Value, str]],
) -> tuple[str, str]:
    """Two different values by their names; where these are the same, by what they are."""
    a, b = (_name(v, known) for v, known in zip((want, got), names, strict=True))
    if a != b or want is None or got is None:
        return a, b
    if isinstance(want, Constant):
        return a, "one of other elements"
    return f"{a} ({numbers[0].get(want)})", f"{b} ({numbers[1].get(got)})"


def _name(value: Value | None, names: dict[Value, str]) -> str:
    if value is None:
        return "left out"
    if not isinstance(value, Constant):
        return names.get(value, value.name)
    if value.array.size == 1:
        return f"the constant {value.array.reshape(-1)[0].item():.6g}"
    return f"a constant {value.type}"


def _key_of(g: Graph, node: Node | None) -> str:
    """The box of a node; of a fused group its first one, of getitem that of what it reads."""
    if node is None:
        return ""
    while node.op.name == "getitem" and isinstance(node.inputs[0], Node):
        node = node.inputs[0]
    name = value_names(g)[node]
    keys = [box.key for box in chart_of(g).boxes if name in (box.key, box.frame)]
    return keys[0] if keys else ""


def _prepared(g: Graph, key: str, both: tuple[str, str]) -> Chart:
    """The boxes of one side, the marked one ringed."""
    chart = chart_of(g)
    if key:
        mark = "≠" if all(both) else "+"
        boxes = (replace(box, mark=mark) if box.key == key else box for box in chart.boxes)
        chart = replace(chart, boxes=tuple(boxes))
    if len(chart.boxes) > _MANY and chart.boxes:
        chart = around(chart, key or chart.boxes[-1].key, _REACH)
    return chart


def _draw(charts: Sequence[Chart], title: str, differs: bool) -> Drawing:
    """Title, two columns with their names, legend."""
    room = (SLIDE - 2 * MARGIN - _GAP) / 2
    placed = [place_chart(chart, room) for chart in charts]
    wanted = min(SLIDE, text_width(title, TITLE, bold=True) + 2 * MARGIN)
    least = (max(NARROWEST, wanted) - 2 * MARGIN - _GAP) / 2
    widths = [max(least, width) for _, width, _ in placed]
    height = max(height for _, _, height in placed)
    page = sum(widths) + 2 * MARGIN + _GAP
    items: list[Item] = [page_title(title, page)]
    x = float(MARGIN)
    for side, (content, width, _), column in zip(SIDES, placed, widths, strict=True):
        items.append(Label(side, x, 96, 20, role="text", bold=True))
        items += [shift(item, x + (column - width) / 2, _TOP) for item in content]
        x += column + _GAP
    middle = MARGIN + widths[0] + _GAP / 2
    items.append(Line(((middle, 76), (middle, _TOP + height)), "frame.edge", 1.5, "6 6"))
    notes = legend(*charts)
    bottom = _TOP + height + 44
    items += [shift(item, MARGIN, bottom) for item in notes]
    if differs:
        items += _mark_legend(page, bottom)
    return Drawing(page, bottom + 40, title, tuple(items))


def _mark_legend(page: float, y: float) -> list[Item]:
    text = Label("first difference", page - MARGIN, y + 17, TEXT, "end", "text")
    disc = Rect(text.left - 36, y, 24, 24, "accent", radius=12)
    return [disc, Label("≠", text.left - 24, y + 18, NAME, "middle", "page", bold=True), text]
