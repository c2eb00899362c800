"""The picture of a loop nest: bars as long as the loops run, and what each level touches.

    mc.viz.loops(sch)                               # a Schedule or a LoopFunction
    mc.viz.loops([("plain", before), ("tiled", after)])     # side by side

    ║∥      ║ io: 4         C 896 B · A 3.5 kB        4.4 kB ≤ L1
      ║     ║ k: 256        A 64 B · B 128 B           192 B ≤ L1
        C[io, j] = C[io, j] + A[io, k] * B[k, j]

Reads loop IR, writes a Picture. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TypeAlias, cast

from minidlc.loop.nodes import For, Kind, LoopFunction, walk
from minidlc.support.arguments import expect
from minidlc.support.errors import OptionError
from minidlc.target import Target, host
from minidlc.te.schedule import Schedule
from minidlc.viz.boxes import bytes_text
from minidlc.viz.drawing import (
    SLIDE,
    Drawing,
    Group,
    Item,
    Label,
    Line,
    Rect,
    shift,
    shorten,
    text_width,
)
from minidlc.viz.graph import MARGIN, page_title
from minidlc.viz.nest import LoopRow, TextRow, deepest, loop_count, nest_of, steps
from minidlc.viz.picture import Picture
from minidlc.viz.theme import ThemeName

Nest: TypeAlias = "LoopFunction | Schedule"

_MARKS = {Kind.SERIAL: "", Kind.PARALLEL: "∥", Kind.VECTORIZED: "▥", Kind.UNROLLED: "≡"}
_MEANING = {
    Kind.SERIAL: "serial",
    Kind.PARALLEL: "∥ parallel: threads",
    Kind.VECTORIZED: "▥ vectorised: lanes",
    Kind.UNROLLED: "≡ unrolled: copies",
}
_INDENT, _STEP = 26, 34  # of one level, of one row
_ALONE, _GAP = 1400, 60  # width of one nest; between two
_TEXT, _SMALL = 16, 14
_CACHE = 132  # width of the column that compares with the caches


def loops(
    x: Nest | Sequence[tuple[str, Nest]],
    theme: ThemeName | None = None,
    *,
    title: str | None = None,
    target: Target | None = None,
) -> Picture:
    """Draw one nest, or several with titles side by side; a Schedule is drawn as scheduled.

    `target` gives the cache sizes to compare with (default: this machine).
    Raises OptionError for an unknown theme (MDLC1021) or an empty list (MDLC1023).
    """
    given = x if isinstance(x, (list, tuple)) else [("", cast("Nest", x))]
    if not given:
        raise OptionError("no loop nest to draw: the list is empty", code="MDLC1023")
    for pair in given:
        expect("viz.loops", "an item", pair, tuple, hint="[('before', nest), ('after', nest)]")
    functions = [(name, _function(nest)) for name, nest in given]
    target = target or host()
    alone = len(functions) == 1
    width = _ALONE if alone else (SLIDE - 2 * MARGIN - _GAP) / 2
    panels = [_panel(name, fn, width, target) for name, fn in functions]
    if title is None:
        title = headline(functions[0][1]) if alone else " | ".join(n for n, _ in functions)
    items: list[Item] = []
    y = 84.0
    for left in range(0, len(panels), 2):
        pair = panels[left : left + 2]
        for n, (panel, _) in enumerate(pair):
            items += [shift(i, MARGIN + n * (width + _GAP), y) for i in panel]
        y += max(height for _, height in pair) + 36
    page = width + 2 * MARGIN if alone else SLIDE
    items += [shift(i, MARGIN, y) for i in _legend(functions, target)]
    return Picture(Drawing(page, y + 54, title, (page_title(title, page), *items)), theme)


def _function(nest: Nest) -> LoopFunction:
    expect("viz.loops", "a nest", nest, Schedule, LoopFunction, hint="kernel.loops, or a schedule")
    if isinstance(nest, LoopFunction):
        return nest
    return nest.lower(nest.outputs[0].name, partition=False)


def headline(fn: LoopFunction) -> str:
    """'conv: 12 loops, 6 deep, 157,200 stores'."""
    count = loop_count(fn.body)
    noun = "loop" if count == 1 else "loops"
    return f"{fn.name}: {count} {noun}, {deepest(fn.body)} deep, {steps(fn.body):,} stores"


def _panel(name: str, fn: LoopFunction, width: float, target: Target) -> tuple[list[Item], float]:
    """One nest, its top left corner at (0, 0), and its height."""
    items: list[Item] = []
    y = 0.0
    if name:
        text = shorten(f"{name}: {headline(fn).partition(': ')[2]}", width, 18, bold=True)
        items.append(Label(text, 0, 18, 18, role="text", bold=True))
        y = 40
    for row in nest_of(fn):
        if isinstance(row, LoopRow):
            items += [shift(i, 0, y) for i in _loop(row, width, target)]
            y += _STEP
        else:
            new = _text(row, width)
            items += [shift(i, 0, y) for i in new]
            y += 10 + 20 * len(new)
    return items, y


def _loop(row: LoopRow, width: float, target: Target) -> list[Item]:
    """A bar, the loop's variable and extent, and what it touches."""
    x = row.depth * _INDENT
    length = 26 + 15 * math.log2(max(1, row.times))
    kind = row.kind.value
    bar = Rect(x, 3, length, 26, kind, f"{kind}.edge", 1.5, 4)
    mark = Label(_MARKS[row.kind], x + 13, 21, _TEXT, "middle", bold=True)
    middle = width * 0.52
    right = width - _CACHE - 12
    start = x + length + 8
    name = Label(f"{row.var}: ", start, 21, _TEXT, role="text", bold=True)
    room = max(60.0, middle - 12 - start - name.width)
    extent = Label(shorten(row.extent, room, _TEXT), start + name.width, 21, _TEXT, role="text")
    guide = Line(((0, 31.5), (width, 31.5)), "grid", 1)
    touched = Label(_touched(row, right - middle), middle, 21, _SMALL, role="text")
    total = sum(n for _, n in row.touched)
    fits = f"{bytes_text(total)} {_cache(total, target)}" if total else "registers only"
    cache = Label(fits, width, 21, _SMALL, "end", "text", bold=total > target.l2)
    hover = f"for {row.var} in {kind}(0, {row.extent})\n"
    hover += "\n".join(f"{n}: {bytes_text(size)}" for n, size in row.touched)
    marked = [bar, mark] if mark.text else [bar]
    return [guide, Group((*marked, name, extent), hover, "loop"), touched, cache]


def _touched(row: LoopRow, room: float) -> str:
    """'A 3.5 kB · C 896 B', the largest first, as many as fit."""
    parts = [f"{_short(name)} {bytes_text(size)}" for name, size in row.touched]
    for shown in range(len(parts), 0, -1):
        rest = f" · +{len(parts) - shown}" if shown < len(parts) else ""
        text = " · ".join(parts[:shown]) + rest
        if text_width(text, _SMALL) <= room:
            return text
    return shorten(" · ".join(parts), room, _SMALL)


def _short(name: str) -> str:
    return name if len(name) <= 18 else f"{name[:17]}…"


def _cache(total: int, target: Target) -> str:
    """The smallest cache that holds so many bytes."""
    if total <= target.l1:
        return "≤ L1"
    return "≤ L2" if total <= target.l2 else "> L2"


def _text(row: TextRow, width: float) -> list[Item]:
    """A statement on at most two lines."""
    x = row.depth * _INDENT + 4
    letter = text_width("m", _SMALL, mono=True)
    room = int((width - x) / letter)
    pieces = textwrap.wrap(row.text, room, subsequent_indent="    ")
    shown = pieces[:2]
    if len(pieces) > 2:
        shown[1] = shorten(f"{pieces[1]} {pieces[2].lstrip()}", room * letter, _SMALL, mono=True)
    role = "muted" if row.faint else "text"
    return [
        Group((Label(line, x, 21 + 20 * n, _SMALL, role=role, mono=True),), row.text)
        for n, line in enumerate(shown)
    ]


def _legend(functions: Sequence[tuple[str, LoopFunction]], target: Target) -> list[Item]:
    """The marks that occur, and the sizes of the caches."""
    kinds = {s.kind for _, fn in functions for s in walk(fn.body) if isinstance(s, For)}
    items: list[Item] = []
    x = 0.0
    for kind in (k for k in Kind if k in kinds):
        items.append(Rect(x, 0, 26, 22, kind.value, f"{kind.value}.edge", 1.5, 4))
        text = Label(_MEANING[kind], x + 34, 16, 15, role="text")
        items.append(text)
        x += 34 + text.width + 26
    caches = f"L1 {target.l1 >> 10} KiB, L2 {target.l2 >> 10} KiB"
    words = f"right: bytes that one run of a loop touches; {caches}"
    return [*items, Label(words, x, 16, 15, role="muted")]
