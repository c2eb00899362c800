"""A drawing: rectangles, lines and labels with roles for colours. What pictures are made of.

    box = Rect(0, 0, 120, 48, fill="elementwise", stroke="elementwise.edge")
    d = Drawing(960, 540, "relu", (Group((box, Label("relu", 60, 29, anchor="middle")), "hover"),))
    to_svg(d, LIGHT); to_png(d, LIGHT)              # viz/svg.py, viz/raster.py

One unit is one pixel of a slide 1920 wide as long as the drawing is not wider; y grows downwards.
Items are painted in order. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeAlias

Point: TypeAlias = tuple[float, float]
Anchor: TypeAlias = Literal["start", "middle", "end"]

SLIDE = 1920  # pixels of a projected picture
SMALLEST = 14  # no label is smaller than this on a slide


@dataclass(frozen=True)
class Rect:
    """A rectangle; `fill` and `stroke` are roles of the theme, "" means none."""

    x: float
    y: float
    width: float
    height: float
    fill: str = ""
    stroke: str = ""
    line_width: float = 1.5
    radius: float = 0
    dash: str = ""


@dataclass(frozen=True)
class Line:
    """A polyline, or (`bezier`) cubic curves through every third point; `arrow` marks its end."""

    points: tuple[Point, ...]
    stroke: str = "line"
    line_width: float = 2
    dash: str = ""
    bezier: bool = False
    arrow: bool = False


@dataclass(frozen=True)
class Label:
    """One line of text; (x, y) is on its baseline."""

    text: str
    x: float
    y: float
    size: float = 15
    anchor: Anchor = "start"
    role: str = "ink"
    bold: bool = False
    mono: bool = False

    @property
    def width(self) -> float:
        """How wide the text is."""
        return text_width(self.text, self.size, bold=self.bold, mono=self.mono)

    @property
    def left(self) -> float:
        """Where the text starts."""
        share = {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor]
        return self.x - share * self.width


@dataclass(frozen=True)
class Group:
    """Items that belong together; `hover` is the text a browser shows over them.

    In HTML a click on them asks for the thing of this `key`.
    """

    items: tuple[Item, ...]
    hover: str = ""
    kind: str = ""  # becomes the SVG class, for tests and style sheets
    key: str = ""


Item: TypeAlias = Rect | Line | Label | Group


@dataclass(frozen=True)
class Drawing:
    """Items on a page of `width` x `height`."""

    width: float
    height: float
    title: str
    items: tuple[Item, ...]


def shift(item: Item, dx: float, dy: float) -> Item:
    """The item moved by (dx, dy)."""
    match item:
        case Rect(x, y) | Label(x=x, y=y):
            return replace(item, x=x + dx, y=y + dy)
        case Line(points):
            return replace(item, points=tuple((x + dx, y + dy) for x, y in points))
        case Group(items):
            return replace(item, items=tuple(shift(i, dx, dy) for i in items))


def flat(items: tuple[Item, ...]) -> Iterator[Rect | Line | Label]:
    """Every rectangle, line and label, groups opened, in painting order."""
    for item in items:
        if isinstance(item, Group):
            yield from flat(item.items)
        else:
            yield item


_UNWRITABLE = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def writable(text: str) -> str:
    """The text with U+FFFD for what XML cannot hold: control characters, half surrogate pairs.

    A name may have them. Every picture and page, and every measured text, comes through here.
    """
    return _UNWRITABLE.sub("\ufffd", text)


@lru_cache(maxsize=4)
def font_file(bold: bool, mono: bool) -> Path:
    """DejaVu Sans or DejaVu Sans Mono, as every matplotlib wheel carries them."""
    import matplotlib  # 0.3 s: paid by the first picture, not by `import minidlc`

    name = f"DejaVuSans{'Mono' if mono else ''}{'-Bold' if bold else ''}.ttf"
    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name


@lru_cache(maxsize=8192)
def text_width(text: str, size: float, *, bold: bool = False, mono: bool = False) -> float:
    """Width of a line of text in units."""
    from matplotlib.ft2font import FT2Font, LoadFlags

    font = FT2Font(str(font_file(bold, mono)))
    font.set_size(100, 72)
    font.set_text(writable(text), flags=LoadFlags.NO_HINTING)
    return font.get_width_height()[0] / 64 * size / 100


def shorten(text: str, width: float, size: float, *, bold: bool = False, mono: bool = False) -> str:
    """The text, or as much of it as fits into `width` with an ellipsis at the end."""
    if text_width(text, size, bold=bold, mono=mono) <= width:
        return text

    def too_wide(keep: int) -> bool:
        return text_width(text[:keep] + "…", size, bold=bold, mono=mono) > width

    keep = 1 + bisect_left(range(2, len(text)), True, key=too_wide)
    return text[:keep].rstrip(" ,") + "…"
