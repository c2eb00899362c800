"""What a pass did, as a picture: the graph before and after it, each change with a sign.

    mc.viz.changes(record.before, record.after)     # Picture: shows itself in Jupyter
    mc.viz.changes(before, after).save("cse.png")

− removed, + added, ⇉ merged (with a number: which boxes became which), ≠ other attributes. What
stays keeps its place. Reads two graphs, writes a Picture. Treated in course chapter
02_frontend_opt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from minidlc.graph.graph import Graph
from minidlc.support.arguments import expect
from minidlc.viz.boxes import Box, Chart, chart_of
from minidlc.viz.collapse import LIMIT
from minidlc.viz.compare import Change, Comparison, compare
from minidlc.viz.drawing import SLIDE, Drawing, Item, Label, Line, Rect, shift
from minidlc.viz.graph import MARGIN, NARROWEST, headline, legend, page_title
from minidlc.viz.paint import TEXT, mark_pill
from minidlc.viz.picture import Picture
from minidlc.viz.theme import SIGNS, ThemeName
from minidlc.viz.union import Placed, United, united

_TOP = 76  # below the title
_NAME = 46  # of the line that says which graph it is
_GAP = 44


def changes(
    before: Graph,
    after: Graph,
    theme: ThemeName | None = None,
    *,
    title: str | None = None,
    expand: bool = False,
) -> Picture:
    """Draw a graph before and after a pass. `expand` draws every op of a large graph.

    Raises OptionError for what is no graph (MDLC1001), an unknown theme (MDLC1021) or without a
    layout program (MDLC1020).
    """
    expect("viz.changes", "before", before, Graph, hint="exe.passes[0].before")
    expect("viz.changes", "after", after, Graph, hint="exe.passes[0].after")
    shown = Shown.of(before, after, limit=10**9 if expand else LIMIT)
    return Picture(shown.drawing(title), theme, partial(shown.pictures, theme))


@dataclass(frozen=True)
class Shown:
    """Two graphs, compared and marked."""

    before: Graph
    after: Graph
    found: Comparison
    both: United
    names: tuple[str, str]

    @staticmethod
    def of(before: Graph, after: Graph, limit: int = LIMIT) -> Shown:
        """Compare two graphs."""
        found = compare(before, after)
        old, new = marked(chart_of(before), chart_of(after), found.changes)
        names = f"before: {headline(before)}", f"after: {headline(after)}"
        return Shown(before, after, found, united(old, new, found, limit), names)

    @property
    def title(self) -> str:
        """'lenet: 2 removed, 1 added, 15 → 14 ops'."""
        ops = [_ops(g) for g in (self.before, self.after)]
        return f"{self.after.name}: {counted(self.found.counts())}, {' → '.join(ops)}"

    @property
    def is_changed(self) -> bool:
        """True if anything that is shown carries a sign."""
        charts = self.both.before, self.both.after
        frames = any(frame.change for chart in charts for frame in chart.frames.values())
        return frames or any(box.mark for chart in charts for box in chart.boxes)

    def parts(self) -> Iterator[tuple[str, str, Shown]]:
        """What the blocks hold, before and after: key, title, and the first one of each."""
        for n, (key, part) in enumerate(self.both.blocks(), 1):
            title = f"block {n}: what one of them holds"
            yield key, title, replace(self, both=part, names=("before", "after"))

    def pictures(self, theme: ThemeName | None) -> tuple[tuple[str, Picture], ...]:
        """The pictures of what the blocks hold."""
        return tuple(
            (key, Picture(part.drawing(title), theme, partial(part.pictures, theme)))
            for key, title, part in self.parts()
        )

    def drawing(self, title: str | None = None) -> Drawing:
        """Both graphs below each other, with legends."""
        title = self.title if title is None else title
        placed = self.both.placed(SLIDE - 2 * MARGIN)
        page = max(NARROWEST, *(width + 2 * MARGIN for _, width, _ in placed))
        items: list[Item] = [page_title(title, page)]
        y = float(_TOP)
        for word, side in zip(self.names, placed, strict=True):
            items += _panel(word, side, page, y)
            y += _NAME + side[2] + _GAP
        notes = [*legend(self.both.before, self.both.after)]
        items += [shift(item, MARGIN, y) for item in notes]
        y += 40 if notes else 0
        kinds = [k for k in SIGNS if self.found.counts().get(k) or _has(self.both, k)]
        items += [shift(item, MARGIN, y) for item in _signs(kinds)]
        return Drawing(page, y + (44 if kinds else 0), title, tuple(items))


def counted(counts: Mapping[str, int]) -> str:
    """'2 removed, 3 merged into 1'."""
    words = {kind: f"{n} {kind}" for kind, n in counts.items() if kind != "into"}
    if "merged" in words:
        words["merged"] += f" into {counts['into']}"
    return ", ".join(words.values()) or "no op changed"


def _ops(g: Graph) -> str:
    return headline(g).removeprefix(f"{g.name}: ").partition(",")[0]


def _has(both: United, kind: str) -> bool:
    return any(b.change == kind for chart in (both.before, both.after) for b in chart.boxes)


def _panel(name: str, side: Placed, page: float, y: float) -> list[Item]:
    """One graph under a line that names it."""
    content, width, _ = side
    rule = Line(((MARGIN, y), (page - MARGIN, y)), "grid", 1.5)
    text = Label(name, MARGIN, y + 26, 18, role="text", bold=True)
    return [rule, text, *(shift(item, (page - width) / 2, y + _NAME) for item in content)]


def _signs(kinds: Iterable[str]) -> list[Item]:
    """The legend of the signs."""
    items: list[Item] = []
    x = 0.0
    for kind in kinds:
        sign = SIGNS[kind]
        items += mark_pill(sign.letter, kind, x + 24, 0)
        items.append(Rect(x + 32, 0, 34, 24, "", kind, 3, 6, sign.dash))
        if sign.rings == 2:
            items.append(Rect(x + 36, 4, 26, 16, "", kind, 2, 4))
        text = Label(sign.meaning, x + 76, 17, TEXT, role="text")
        items.append(text)
        x += 76 + text.width + 32
    return items


def marked(before: Chart, after: Chart, found: Sequence[Change]) -> tuple[Chart, Chart]:
    """Both charts with signs; the boxes of a change with two sides carry its number as well."""
    old: dict[str, Box] = {}
    new: dict[str, Box] = {}
    frames = dict(after.frames)
    number = 0
    for c in found:
        two_sided = bool(c.old and c.new) and c.kind != "changed"
        number += two_sided
        text = str(number) if two_sided else ""
        came = "added" if c.kind == "removed" else c.kind
        sides = ((old, c.old, c.kind), (new, () if c.frame else c.new, came))
        for boxes, keys, kind in sides:
            for key in keys:
                boxes.setdefault(key, _mark(SIGNS[kind].letter + text, kind, c.note))
        if c.frame:
            sign = f"{SIGNS[c.kind].letter}{text} {frames[c.frame].headline}"
            frames[c.frame] = replace(frames[c.frame], headline=sign, change=c.kind)
    return _with(before, old), replace(_with(after, new), frames=frames)


def _mark(mark: str, change: str, note: str) -> Box:
    """A box that is nothing but its mark."""
    return Box("", "", "", mark=mark, change=change, note=note)


def _with(chart: Chart, marks: Mapping[str, Box]) -> Chart:
    def box_of(box: Box) -> Box:
        mark = marks.get(box.key)
        if mark is None:
            return box
        hover = f"{box.hover}\n{mark.note}".rstrip()
        return replace(box, mark=mark.mark, change=mark.change, note=mark.note, hover=hover)

    return replace(chart, boxes=tuple(map(box_of, chart.boxes)))
