"""The picture of a memory plan: address × step, one bar a buffer.

    mc.viz.memory(exe.memory_plan)

Bars that are alive when most bytes are alive are marked: they make the peak. Reads a MemoryPlan,
writes a Picture. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minidlc.runtime.plan import MemoryPlan, PlannedBuffer
from minidlc.support.arguments import expect
from minidlc.viz.boxes import bytes_text
from minidlc.viz.drawing import Drawing, Group, Item, Label, Line, Rect, shorten, text_width
from minidlc.viz.graph import page_title
from minidlc.viz.picture import Picture
from minidlc.viz.theme import ThemeName

_WIDTH, _HEIGHT = 1400, 520  # of the plot
_LEFT, _TOP = 110, 90
_TEXT = 15


def memory(
    plan: MemoryPlan,
    theme: ThemeName | None = None,
    *,
    steps: Sequence[str] = (),
    title: str | None = None,
) -> Picture:
    """Draw where each buffer lies and when it is alive; `steps` names the kernel calls.

    Raises OptionError (MDLC1021) for an unknown theme.
    """
    expect("viz.memory", "plan", plan, MemoryPlan, hint="exe.memory_plan")
    title = headline(plan) if title is None else title
    page = _LEFT + _WIDTH + 190
    items: list[Item] = [page_title(title, page)]
    last = max((b.last for b in plan.buffers), default=0)
    scale = _HEIGHT / max(1, plan.arena_bytes)
    peak = peak_step(plan)
    items += _axes(plan, last, scale, steps)
    items += _lines(plan, scale)
    bars = {b: _bar(b, last, scale, peak) for b in plan.buffers}
    items += [Group((bar,), _hover(b), "buffer") for b, bar in bars.items()]
    items += _names(bars)
    y = _TOP + _HEIGHT + 96
    items.append(Rect(_LEFT, y - 15, 26, 20, "out_fusable", "out_fusable.edge", 3))
    items.append(Label(f"alive at step {peak}, the peak", _LEFT + 36, y, _TEXT, role="text"))
    items.append(Rect(_LEFT + 330, y - 15, 26, 20, "elementwise", "elementwise.edge", 1.5))
    items.append(Label("other buffers", _LEFT + 366, y, _TEXT, role="text"))
    return Picture(Drawing(page, y + 40, title, tuple(items)), theme)


def headline(plan: MemoryPlan) -> str:
    """'memory: arena 31 kB for 6 buffers, 60 kB without sharing'."""
    count = len(plan.buffers)
    buffers = f"{count} buffer{'s' * (count != 1)}"
    arena, naive = bytes_text(plan.arena_bytes), bytes_text(plan.naive_bytes)
    return f"memory: arena {arena} for {buffers}, {naive} without sharing"


def peak_step(plan: MemoryPlan) -> int:
    """The first step at which most bytes are alive."""
    starts = sorted({b.first for b in plan.buffers})
    alive = {t: sum(b.nbytes for b in plan.buffers if b.first <= t <= b.last) for t in starts}
    return max(starts, key=lambda t: (alive[t], -t), default=0)


def _x(step: float, last: int) -> float:
    return _LEFT + _WIDTH * step / (last + 1)


def _bar(buffer: PlannedBuffer, last: int, scale: float, peak: int) -> Rect:
    """From the first to the last step, as high as its bytes; address 0 is below."""
    left, right = _x(buffer.first, last) + 2, _x(buffer.last + 1, last) - 2
    height = max(2.0, buffer.nbytes * scale)
    top = _TOP + _HEIGHT - buffer.offset * scale - height
    makes_peak = buffer.first <= peak <= buffer.last
    kind, line = ("out_fusable", 3) if makes_peak else ("elementwise", 1.5)
    return Rect(left, top, right - left, height, kind, f"{kind}.edge", line, 3)


def _hover(b: PlannedBuffer) -> str:
    return f"{b.name}: {bytes_text(b.nbytes)} at {b.offset}, steps {b.first} to {b.last}"


def _names(bars: Mapping[PlannedBuffer, Rect]) -> list[Item]:
    """Name and size of each buffer: in its bar, else above or below where nothing else lies."""
    taken = list(bars.values())
    labels: list[Item] = []
    for buffer, bar in bars.items():
        size = f"  {bytes_text(buffer.nbytes)}"
        room = bar.width - 16 - text_width(size, _TEXT)
        if room < 30:
            continue
        text = shorten(buffer.name, room, _TEXT) + size
        if bar.height >= 24:
            labels.append(Label(text, bar.x + 8, bar.y + bar.height / 2 + 5, _TEXT))
            continue
        for top in (bar.y - 22, bar.y + bar.height + 2):
            place = Rect(bar.x + 8, top, text_width(text, _TEXT), 20)
            if not any(_meet(place, other) for other in taken):
                labels.append(Label(text, place.x, top + 15, _TEXT, role="text"))
                taken.append(place)
                break
    return labels


def _meet(a: Rect, b: Rect) -> bool:
    apart = a.x + a.width <= b.x or b.x + b.width <= a.x
    return not (apart or a.y + a.height <= b.y or b.y + b.height <= a.y)


def _axes(plan: MemoryPlan, last: int, scale: float, steps: Sequence[str]) -> list[Item]:
    bottom = _TOP + _HEIGHT
    items: list[Item] = [Line(((_LEFT, bottom), (_LEFT + _WIDTH, bottom)), "line", 1.5)]
    column = _WIDTH / (last + 1)
    every = max(1, round(34 / column + 0.49))
    named = len(steps) > last and column >= 110
    for step in range(0, last + 1, every):
        x = _x(step, last)
        items.append(Line(((x, _TOP), (x, bottom)), "grid", 1))
        word = shorten(steps[step], column - 12, _TEXT) if named else str(step)
        items.append(Label(word, x + column / 2, bottom + 22, _TEXT, "middle", "text"))
    items.append(Label("step", _LEFT + _WIDTH / 2, bottom + 48, _TEXT, "middle", "muted"))
    items.append(Label("address", _LEFT - 12, _TOP + _HEIGHT / 2, _TEXT, "end", "muted"))
    items.append(Label("0", _LEFT - 12, bottom, _TEXT, "end", "text"))
    return items


def _lines(plan: MemoryPlan, scale: float) -> list[Item]:
    """The arena's size, and the bound that no plan can beat, where it is lower."""
    right = _LEFT + _WIDTH
    words = f"arena {bytes_text(plan.arena_bytes)}"
    if plan.peak_bytes == plan.arena_bytes:
        words += " = peak"
    items: list[Item] = [
        Line(((_LEFT, _TOP), (right, _TOP)), "accent", 2, "8 4"),
        Label(words, right + 10, _TOP + 5, _TEXT, role="accent"),
    ]
    bound = _TOP + _HEIGHT - plan.peak_bytes * scale
    if bound - _TOP > 20:
        words = f"alive at once {bytes_text(plan.peak_bytes)}"
        items.append(Line(((_LEFT, bound), (right, bound)), "muted", 2, "2 4"))
        items.append(Label(words, right + 10, bound + 5, _TEXT, role="muted"))
    return items
