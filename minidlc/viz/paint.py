"""How one box of a graph looks: its size, and the items it is painted with.

    size = box_size(box)                            # what the layout must keep free
    items = paint_box(box, (x, y))                  # centred there

    ┌───┬──────────────────┐
    │ F │ conv2d  stride=2 │    letter and border say the pattern
    │   │ h1               │    the value's name, as in the text
    └───┴─( w: 6×1×5×5 )───┘    weights

What autodiff made has ∂F in place of F, light on dark.

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from dataclasses import replace

from minidlc.graph.op import Pattern
from minidlc.viz.boxes import Box
from minidlc.viz.drawing import Group, Item, Label, Point, Rect, shorten, text_width
from minidlc.viz.theme import SIGNS, Cue, Sign, cue

NAME, TEXT = 18, 15  # sizes of a box's first and second line
SMALL = 14
_TAB = 28  # width of the strip with the pattern's letter
_PAD = 10
_PILL = 24  # height of a weight's badge; half of it hangs below the box
_GAP = 6
_WIDEST = 330  # room for a line of text, so that a long name does not push the others away
_STACK = 5  # how far the second sheet of a ×N block peeps out


def box_size(box: Box) -> Point:
    """Width and height, badges included: as much above the middle as below."""
    width = _tab(box) + 2 * _PAD + max(_first_line(box), _second_line(box))
    badges = sum(_pill_width(b) for b in box.badges) + _GAP * (len(box.badges) + 1)
    hanging = _PILL if box.badges else 0
    stack = 2 * _STACK if box.times > 1 else 0
    width = max(width, badges if box.badges else 0, 70) + stack
    return max(width, box.least), _body_height(box) + hanging + stack


def paint_box(box: Box, centre: Point) -> Group:
    """The box, its centre at `centre`."""
    width, height = box_size(box)
    if box.times > 1:
        width, height = width - 2 * _STACK, height - 2 * _STACK
    body = _body_height(box)
    x, y = centre[0] - width / 2, centre[1] - body / 2
    look = _look(box)
    radius = body / 2 if box.kind == "value" else look.radius
    outline = Rect(x, y, width, body, box.kind, f"{box.kind}.edge", look.width, radius, look.dash)
    items: list[Item] = []
    if box.times > 1:
        sheet = Rect(x + _STACK, y + _STACK, width, body, box.kind, f"{box.kind}.edge", 1.5, radius)
        items.append(sheet)
    items += [outline, *_lines(box, x, y, width, body), *_badges(box, centre[0], y + body)]
    if box.mark:
        area = (x - 5, y - 5, x + width + 5, y + body + 5)
        items = [*_rings(box.change, area, radius + 5), *items]
        items += mark_pill(box.mark, box.change, x + width + 12, y - 12)
    return Group(tuple(items), box.hover, "box", key=box.key)


def mark_pill(mark: str, change: str, right: float, top: float) -> list[Item]:
    """A sign such as ⇉2 on a disc in the colour of its kind of change."""
    width = 24 if len(mark) == 1 else text_width(mark, NAME, bold=True) + 14
    fill = Rect(right - width, top, width, 24, change or "accent", radius=12)
    return [fill, Label(mark, right - width / 2, top + 18, NAME, "middle", "page", bold=True)]


def _rings(change: str, area: tuple[float, float, float, float], radius: float) -> list[Item]:
    """The frame around a marked box: dashed, single or double by the kind of change."""
    sign = SIGNS.get(change, Sign(""))
    left, top, right, bottom = area
    rings: list[Item] = []
    for n in range(sign.rings):
        width, height = right - left + 6 * n, bottom - top + 6 * n
        line, role = (3 if sign.rings == 1 else 2), change or "accent"
        ring = Rect(left - 3 * n, top - 3 * n, width, height, "", role, line, radius + 3 * n)
        rings.append(replace(ring, dash=sign.dash))
    return rings


def _look(box: Box) -> Cue:
    return cue(Pattern(box.kind)) if box.kind in set(Pattern) else Cue("")


def _tab(box: Box) -> float:
    return _TAB if _look(box).letter else 8


def _body_height(box: Box) -> float:
    return (58 if box.detail else 38) + (8 if box.badges else 0)


def _times(box: Box) -> str:
    return f"×{box.times}  " if box.times > 1 else ""


def _first_line(box: Box) -> float:
    extra = text_width(_extra(box), TEXT)
    return text_width(_times(box) + _title(box), NAME, bold=True) + extra


def _title(box: Box) -> str:
    return shorten(box.title, _WIDEST, NAME, bold=True)


def _extra(box: Box) -> str:
    """What follows the title, where there is room."""
    room = _WIDEST - text_width(_title(box), NAME, bold=True)
    return "  " + shorten(box.extra, max(room, 60), TEXT) if box.extra else ""


def _second_line(box: Box) -> float:
    return text_width(_detail(box), TEXT, mono=True)


def _detail(box: Box) -> str:
    return shorten(box.detail, _WIDEST, TEXT, mono=True)


def _lines(box: Box, x: float, y: float, width: float, body: float) -> list[Item]:
    """Letter strip and at most two lines of text."""
    items: list[Item] = []
    middle = y + (body - (8 if box.badges else 0)) / 2
    first = middle - 5 if box.detail else middle + 6.5
    left = x + _tab(box) + _PAD
    if _look(box).letter:
        items += _strip(box, x, y, body, middle)
    else:
        left = x + (width - max(_first_line(box), _second_line(box))) / 2
    title = Label(_times(box) + _title(box), left, first, NAME, bold=True)
    items.append(title)
    if box.extra:
        items.append(Label(_extra(box), left + title.width, first, TEXT))
    if box.detail:
        items.append(Label(_detail(box), left, middle + 18, TEXT, mono=True))
    return items


def _strip(box: Box, x: float, y: float, body: float, middle: float) -> list[Item]:
    """The letter of the pattern, at the left of a box."""
    edge = f"{box.kind}.edge"
    if box.derivative:
        return derivative_strip(f"∂{_look(box).letter}", edge, Rect(x, y, _TAB, body), middle)
    rule = Rect(x + _TAB, y, 1, body, edge)
    return [rule, Label(_look(box).letter, x + _TAB / 2, middle + 6, 16, "middle", bold=True)]


def derivative_strip(text: str, fill: str, area: Rect, middle: float) -> list[Item]:
    """Light letters on a dark strip: the mark of what autodiff made."""
    strip = replace(area, fill=fill, radius=6)
    inner = replace(strip, x=area.x + area.width / 2, width=area.width / 2, radius=0)
    letters = Label(text, area.x + area.width / 2, middle + 5, SMALL, "middle", "strip", bold=True)
    return [strip, inner, letters]


def _badges(box: Box, centre: float, bottom: float) -> list[Item]:
    widths = [_pill_width(b) for b in box.badges]
    x = centre - (sum(widths) + _GAP * (len(widths) - 1)) / 2
    items: list[Item] = []
    for text, width in zip(box.badges, widths, strict=True):
        top = bottom - _PILL / 2
        items.append(Rect(x, top, width, _PILL, "weight", "weight.edge", 1, _PILL / 2))
        items.append(Label(text, x + width / 2, top + 17, SMALL, "middle"))
        x += width + _GAP
    return items


def _pill_width(text: str) -> float:
    return text_width(text, SMALL) + 18
