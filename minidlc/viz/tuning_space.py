"""The picture of a space: every way, its knobs and their candidates, what was measured of each.

    space_picture(result)                           # Drawing: a block for each way that was tried

A cell is a candidate of a knob; the bar in it is as long as the median of the trials that had it is
above the best (short is good), the number below it counts them. The winner's values are framed
and have a star, the default's a "d". At the right, how much the times depend on the knob. Reads a
TaskResult. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from minidlc.support.timing import readable
from minidlc.tuning.result import TaskResult
from minidlc.tuning.summary import (
    Summary,
    ValueSeen,
    axes,
    counted,
    percent,
    shares,
    tried_ways,
)
from minidlc.viz.drawing import SLIDE, Drawing, Group, Item, Label, Line, Rect, shorten
from minidlc.viz.graph import MARGIN, page_title
from minidlc.viz.plot import TEXT
from minidlc.viz.tuning_progress import short

_KNOBS = 12  # with a row each; ways that come after have a line
_LISTED = 12  # ways with a line each
_CELLS = 10  # candidates of a knob that are drawn
_NAMES = 250  # width of the names of knobs
_CELL, _HIGH = 118, 62  # of a candidate
_ROW = _HIGH + 12
_OTHERS = (("way", "the choice of the way"), ("rest", "several together and noise"))


def space_picture(result: TaskResult) -> Drawing:
    """The space of a task: 1920 wide, as high as it needs."""
    summary = Summary.of(result)
    title = headline(result, summary)
    importance = shares(result.trials)
    items: list[Item] = [page_title(title, SLIDE)]
    note = "★ the winner's value, d the default's; bar: median of the trials with it, short is fast"
    items.append(Label(f"{note}; ×n: how many ran", MARGIN, 84, TEXT, role="muted"))
    y = 116.0
    if importance:
        rest = ", ".join(f"{100 * importance[n]:.0f} % {word}" for n, word in _OTHERS)
        note = f"right: what the spread of the times comes from; beside the knobs {rest}"
        items.append(Label(note, MARGIN, 110, TEXT, role="muted"))
        y = 142.0
    rows = tried_ways(result.task.space, result.trials)
    rows.sort(key=lambda row: row[0] != result.best.way)  # the winner's first
    opened = _opened(result, rows)
    columns = max((len(v) for way in opened for v in _open(result, way).values()), default=0)
    bars = MARGIN + _NAMES + max(6, min(columns, _CELLS)) * _CELL + 40
    for row in rows:
        if row[0] in opened:
            words = _line(result, summary, row, bars - MARGIN - 24)
            items += _way(result, row, (y, bars), importance, words)
            y += 44 + _ROW * len(_open(result, row[0]))
    lines = _rest(result, summary, [r for r in rows if r[0] not in opened])
    for n, line in enumerate(lines):
        items.append(Label(line, MARGIN, y + 20 + 34 * n, 18, role="text"))
    return Drawing(SLIDE, y + 34 * len(lines) + 24, title, tuple(items))


def headline(result: TaskResult, summary: Summary) -> str:
    """'k0_matmul: 1,152 points in 3 ways, 64 tried (5.6 %)'."""
    ways = counted(len(result.task.space.ways), "way")
    points = f"{summary.about}{counted(summary.points, 'point')}"
    share = f" ({percent(summary.tried / summary.points)})" if summary.points else ""
    title = f"{short(result.task.name)}: {points} in {ways}"
    return f"{title}, {summary.tried:,} tried{share}"


def _open(result: TaskResult, way: str) -> Mapping[str, tuple[int, ...]]:
    """The knobs of a way that leave a choice."""
    return {n: v for n, v in result.task.space.ways[way].items() if len(v) > 1}


def _opened(result: TaskResult, rows: Sequence[tuple[str, int, float]]) -> list[str]:
    """The ways that are drawn with their knobs: the fastest, as many as a slide holds."""
    found, height = list[str](), 0
    for way, count, _ in rows:
        knobs = len(_open(result, way))
        if count and knobs and (not found or height + knobs <= _KNOBS):
            found.append(way)
            height += knobs
    return found


def _rest(
    result: TaskResult, summary: Summary, rows: Sequence[tuple[str, int, float]]
) -> list[str]:
    """A line for each other way; of very many, their names."""
    lines = [_line(result, summary, row, 1700) for row in rows[:_LISTED]]
    if len(rows) > _LISTED:
        more = ", ".join(short(name, 30) for name, _, _ in rows[_LISTED:])
        text = f"and {len(rows) - _LISTED} more: {more}"
        lines.append(shorten(text, SLIDE - 2 * MARGIN, 18))
    return lines


def _line(result: TaskResult, summary: Summary, row: tuple[str, int, float], room: float) -> str:
    """'gemm: 3 knobs, 96 points, 48 tried, best 412 µs', and what the way is to the result."""
    way, count, least = row
    knobs = result.task.space.ways[way]
    words = f"{counted(len(knobs), 'knob')}, {summary.points_of(way)}"
    words = words if knobs else "no knobs"
    fixed = [f"{name} {values[0]}" for name, values in knobs.items() if len(values) == 1]
    alone = f"; fixed: {', '.join(fixed)}" if fixed else ""
    best = f", best {readable(least)}" if math.isfinite(least) else ", none ran" if count else ""
    roles = {"the default": result.task.default.way, "the winner": result.best.way}
    who = [role for role, name in roles.items() if name == way]
    end = f" ({' and '.join(who)})" if who else ""
    return shorten(
        f"{short(way, 60)}: {words}, {count:,} tried{best}{end}{alone}", room, 18, bold=True
    )


def _way(
    result: TaskResult,
    row: tuple[str, int, float],
    at: tuple[float, float],
    importance: Mapping[str, float],
    line: str,
) -> Iterator[Item]:
    """A way with a row for each of its knobs; `at` is its top, and the left of the bars."""
    way, (top, bars) = row[0], at
    yield Label(line, MARGIN, top + 22, 18, role="text", bold=True)
    if any(f"{way}.{knob}" in importance for knob in _open(result, way)):
        yield Label("share of the spread", bars, top + 22, TEXT, role="muted")
    seen = axes(result.task.space, way, result.trials)
    medians = [v.median for values in seen.values() for v in values if v.median is not None]
    ends = (row[2], max(medians, default=row[2]))
    y = top + 40
    for knob in _open(result, way):
        values, marks = seen[knob], _marks(result, way, knob)
        name = shorten(knob, _NAMES - 20, 18)
        yield Label(name, MARGIN, y + 28, 18, role="text")
        yield from _cells(values, marks, y, ends)
        if (share := importance.get(f"{way}.{knob}")) is not None:
            yield from _bar(share, bars, y)
        y += _ROW


def _marks(result: TaskResult, way: str, knob: str) -> Mapping[int, str]:
    """Signs beside the values that the winner and the default have."""
    marks = dict[int, str]()
    for sign, config in (("★", result.best), ("d", result.task.default)):
        if config.way == way and knob in config.values:
            value = config.values[knob]
            marks[value] = f"{marks[value]} {sign}" if value in marks else sign
    return marks


def _cells(
    values: Sequence[ValueSeen],
    marks: Mapping[int, str],
    y: float,
    ends: tuple[float, float],
) -> Iterator[Item]:
    """The candidates of a knob from left to right."""
    shown = _some(values, marks)
    for number, seen in enumerate(shown):
        x = MARGIN + _NAMES + number * _CELL
        mark = marks.get(seen.value, "")
        won = "★" in mark
        edge, wide = ("accent", 3.5) if won else ("frame.edge", 1)
        box = Rect(x, y, _CELL - 10, _HIGH, "frame" if seen.count else "", edge, wide, 4)
        value = Label(shorten(f"{seen.value}", 62, TEXT), x + 8, y + 20, TEXT, role="text")
        parts: list[Item] = [box, value]
        if mark:
            role = "accent" if won else "text"
            parts.append(Label(mark, x + _CELL - 18, y + 20, TEXT, "end", role, bold=True))
        if seen.median is not None:
            length = 4 + (_CELL - 30) * _above(seen.median, ends)
            parts.append(Rect(x + 8, y + 27, length, 9, "elementwise", "elementwise.edge", 1))
            parts.append(Label(readable(seen.median), x + 8, y + 54, 14, role="text"))
            parts.append(Label(f"×{seen.count}", x + _CELL - 18, y + 54, 14, "end", "muted"))
        else:
            word = f"none of {seen.tried}" if seen.tried else "not tried"
            parts.append(Label(word, x + 8, y + 54, 14, role="muted"))
        hover = f"{seen.value}: {seen.count} of {seen.tried} ran"
        yield Group(tuple(parts), hover, "cell")
    if len(shown) < len(values):
        x = MARGIN + _NAMES - 24
        yield Label(f"{len(shown)} of {len(values)}", x, y + 54, 14, "end", "muted")


def _some(values: Sequence[ValueSeen], marks: Mapping[int, str]) -> list[ValueSeen]:
    """At most `_CELLS` candidates: those with marks, then those that ran most, in order."""
    ranked = sorted(values, key=lambda v: (v.value not in marks, -v.count, v.value))
    return sorted(ranked[:_CELLS], key=lambda v: v.value)


def _above(seconds: float, ends: tuple[float, float]) -> float:
    """0 for the best of the way, 1 for the slowest median, by logarithms."""
    low, high = ends
    if not (0 < low < high < math.inf):
        return 0.0
    return min(max(math.log(seconds / low) / math.log(high / low), 0.0), 1.0)


def _bar(share: float, x: float, y: float) -> Iterator[Item]:
    """Importance: a bar and per cent."""
    length = 170 * min(max(share, 0.0), 1.0)
    yield Line(((x, y + 8), (x, y + _HIGH - 8)), "line", 1.5)
    yield Rect(x, y + 16, length, 30, "reduction", "reduction.edge", 1.5)
    yield Label(f"{100 * share:.0f} %", x + length + 10, y + 38, TEXT, role="text")
