"""The picture of a memory plan: address × step, one bar a buffer.

    mc.viz.memory(exe.memory_plan)
    mc.viz.memory(less.memory_plan, before=exe.memory_plan)

Bars that are alive when most bytes are alive are marked and listed: they make the peak. Views are
hatched; a broken line across a bar is where a result takes the place of an input, one along it
parts what several steps write. A stepped line shows what was alive in another plan, before a
transformation such as `remat`, from its first step to its last, on the same scale of bytes. Reads
MemoryPlans, writes a Picture. Treated in course chapter
05_backend_opt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from minidlc.runtime.plan import Lying, MemoryPlan
from minidlc.support.arguments import expect
from minidlc.viz.boxes import bytes_text
from minidlc.viz.drawing import Drawing, Group, Item, Label, Line, Rect, shorten, text_width
from minidlc.viz.graph import page_title
from minidlc.viz.picture import Picture
from minidlc.viz.theme import ThemeName

_WIDTH, _HEIGHT = 1400, 520  # of the plot
_LEFT, _TOP = 110, 90
_RIGHT, _BOTTOM = _LEFT + _WIDTH, _TOP + _HEIGHT
_TEXT = 15
_ROW = 19  # a line of text
_HATCHES = 40  # lines on one view at most
_PEAK, _OTHER = "out_fusable", "elementwise"  # roles of bars


def memory(
    plan: MemoryPlan,
    theme: ThemeName | None = None,
    *,
    steps: Sequence[str] | None = None,
    title: str | None = None,
    before: MemoryPlan | None = None,
) -> Picture:
    """Draw where each buffer lies and when it is alive; `steps` names the kernel calls.

    `before` is a plan to compare with: of it the bytes alive at each step are drawn. Raises
    OptionError (MDLC1021) for an unknown theme.
    """
    expect("viz.memory", "plan", plan, MemoryPlan, hint="exe.memory_plan")
    expect("viz.memory", "before", before, MemoryPlan, type(None), hint="exe.memory_plan")
    title = headline(plan, before) if title is None else title
    page = _RIGHT + 190
    names = plan.steps if steps is None else steps
    most = plan.arena_bytes if before is None else max(plan.arena_bytes, before.arena_bytes)
    plot = _Plot(plan, 1 + max((b.last for b in plan.buffers), default=0), most)
    items: list[Item] = [page_title(title, page)]
    items += _axes(plot, names)
    lines = _lines(plot)
    items += lines
    items += () if before is None else _before(plot, before, lines)
    for number in range(len(plan.buffers)):
        items.append(Group(tuple(plot.bar(number)), _hover(plan, number), "buffer"))
        items += plot.marks(number)
    items += _labels(plot)
    y = _BOTTOM + 96
    items += _legend(plan, y)
    items.append(Label(shorten(_who(plan, names), page - _LEFT - 40, _TEXT), _LEFT, y + 40, _TEXT))
    return Picture(Drawing(page, y + 76, title, tuple(items)), theme)


def headline(plan: MemoryPlan, before: MemoryPlan | None = None) -> str:
    """'memory: arena 31 kB for 6 buffers, 60 kB without sharing'; or 'memory: … 48 kB before'."""
    count = len(plan.buffers)
    buffers = f"{count} buffer{'s' * (count != 1)}"
    arena, naive = bytes_text(plan.arena_bytes), bytes_text(plan.naive_bytes)
    if before is not None:
        return f"memory: arena {arena} for {buffers}, {bytes_text(before.arena_bytes)} before"
    return f"memory: arena {arena} for {buffers}, {naive} without sharing"


@dataclass(frozen=True)
class _Plot:
    """A plan on the page: `count` steps from left to right, `most` bytes from address 0 up."""

    plan: MemoryPlan
    count: int
    most: int

    @cached_property
    def peak(self) -> int:
        """The step at which most bytes are alive."""
        return self.plan.peak_step

    @property
    def scale(self) -> float:
        """Units a byte."""
        return _HEIGHT / max(1, self.most)

    def y(self, nbytes: int) -> float:
        """How high so many bytes are."""
        return _TOP if nbytes == self.most else _BOTTOM - nbytes * self.scale

    @property
    def column(self) -> float:
        """Units a step."""
        return _WIDTH / self.count

    def x(self, step: float) -> float:
        """Where a step begins."""
        return _LEFT + self.column * step

    def box(self, offset: int, nbytes: int, first: float, end: float) -> Rect:
        """Bytes of the arena from step `first` up to `end`; a gap apart from its neighbours."""
        gap = min(2.0, self.column / 8)
        height = max(2.0, nbytes * self.scale)
        left, right = self.x(first) + gap, self.x(end) - gap
        return Rect(left, _BOTTOM - offset * self.scale - height, right - left, height)

    def values(self, number: int) -> list[Lying]:
        """What lies in a buffer."""
        return [v for v in self.plan.values if v.buffer == number]

    def around(self, number: int) -> Rect:
        """The whole bar of a buffer."""
        b = self.plan.buffers[number]
        return self.box(b.offset, b.nbytes, b.first, b.last + 1)

    def bar(self, number: int) -> Iterator[Rect]:
        """The bar of a buffer; thick if it makes the peak."""
        b, r = self.plan.buffers[number], self.around(number)
        kind, line = (_PEAK, 3) if b.first <= self.peak <= b.last else (_OTHER, 1.5)
        yield Rect(r.x, r.y, r.width, r.height, kind, f"{kind}.edge", line, min(3, r.width / 4))

    def marks(self, number: int) -> Iterator[Item]:
        """Views hatched, parts of a concat and results in place behind broken lines."""
        b = self.plan.buffers[number]
        for v in self.values(number):
            r = self.box(b.offset + v.offset, v.nbytes, v.first, v.last + 1)
            if r.height < 6 or r.width < 6:
                continue
            if v.how == "view":
                edge = Rect(r.x, r.y, r.width, r.height, "", "muted", 1)
                yield Group((edge, *_hatched(r)), f"{v.name}: view, {bytes_text(v.nbytes)}", "view")
            elif v.how == "in place":
                x = self.x(v.first + 0.5)
                yield Line(((x, r.y), (x, r.y + r.height)), "ink", 1.5, "5 3")
            elif v.how == "part" and v.offset:
                y = r.y + r.height
                yield Line(((r.x, y), (r.x + r.width, y)), "ink", 1.5, "5 3")

    def fields(self, number: int) -> Iterator[tuple[str, int, Rect]]:
        """Name, bytes and place of what is to be named in a bar: one value after the other."""
        b = self.plan.buffers[number]
        values = [v for v in self.values(number) if v.how != "view"]
        if len(values) < 2 or any(v.how == "whole" for v in values):
            yield b.name, b.nbytes, self.around(number)
            return
        for v in values:
            first = v.first + 0.5 if v.how == "in place" else v.first
            over = any(w.how == "in place" and w is not v and v.meets(w) for w in values)
            end = v.last + 0.5 if over and v.last < b.last else v.last + 1
            yield v.name, v.nbytes, self.box(b.offset + v.offset, v.nbytes, first, end)


def _hatched(r: Rect) -> Iterator[Line]:
    """Lines across a rectangle, rising to the right."""
    apart = max(9.0, (r.width + r.height) / _HATCHES)
    shift = apart - r.height  # of a line u - shift over the lower edge
    while shift < r.width:
        ends = max(0.0, shift), min(r.width, r.height + shift)
        points = tuple((r.x + u, r.y + r.height - (u - shift)) for u in ends)
        yield Line(points, "muted", 1)
        shift += apart


def _hover(plan: MemoryPlan, number: int) -> str:
    b = plan.buffers[number]
    text = f"{b.name}: {bytes_text(b.nbytes)} at {b.offset}, steps {b.first} to {b.last}"
    inside = [f"{v.name}, {v.how}" for v in plan.values if v.buffer == number and v.how]
    return "; ".join([text, *inside])


def _who(plan: MemoryPlan, steps: Sequence[str]) -> str:
    """'peak: 6.1 kB at step 1, conv: h1 4.1 kB, h2 2.0 kB', the largest first."""
    peak = plan.peak_step
    alive = [b for b in plan.buffers if b.first <= peak <= b.last]
    alive.sort(key=lambda b: -b.nbytes)
    step = f"step {peak}, {steps[peak]}" if peak < len(steps) else f"step {peak}"
    makers = ", ".join(f"{b.name} {bytes_text(b.nbytes)}" for b in alive) or "nothing"
    return f"peak: {bytes_text(plan.peak_bytes)} at {step}: {makers}"


def _labels(plot: _Plot) -> list[Item]:
    """Name and size of what lies where: inside if there is room, else beside, where nothing is."""
    count = range(len(plot.plan.buffers))
    taken = [plot.around(number) for number in count]
    taken.append(Rect(0, _BOTTOM + 3, _RIGHT + 200, 100))  # numbers of steps
    taken.append(Rect(0, 0, _RIGHT + 200, _TOP + 2))
    labels: list[Item] = []
    for number in count:
        (bar,) = plot.bar(number)
        hatched = any(v.how == "view" for v in plot.values(number))
        for name, nbytes, place in plot.fields(number):
            inside = _inside(name, bytes_text(nbytes), place)
            if hatched:
                labels += (_plate(label, bar.fill) for label in inside)
            labels += inside or _beside(f"{name}  {bytes_text(nbytes)}", place, taken)
    return labels


def _inside(name: str, size: str, r: Rect) -> list[Label]:
    """One line, or the size below the name; the name shortened if it must be; [] if none fits."""
    x, room, middle = r.x + 6, r.width - 10, r.y + r.height / 2
    one = room - text_width(f"  {size}", _TEXT)
    if r.height >= _ROW + 3 and one >= text_width(name, _TEXT):
        return [Label(f"{name}  {size}", x, middle + 5, _TEXT)]
    if r.height >= 2 * _ROW + 4 and room >= text_width(size, _TEXT):
        above = Label(shorten(name, room, _TEXT), x, middle - 4, _TEXT)
        return [above, Label(size, x, middle - 4 + _ROW, _TEXT)]
    if r.height >= _ROW + 3 and one >= 60:
        return [Label(f"{shorten(name, one, _TEXT)}  {size}", x, middle + 5, _TEXT)]
    return []


def _plate(label: Label, fill: str) -> Rect:
    """What keeps hatches from crossing a label."""
    return Rect(label.x - 3, label.y - 15, label.width + 6, _ROW, fill)


def _beside(text: str, r: Rect, taken: list[Rect]) -> list[Item]:
    """Over or under a flat bar that is long enough; the place is taken then."""
    width = text_width(text, _TEXT)
    if r.height >= _ROW + 3 or width + 8 > max(r.width, 90) or r.x + 8 + width > _RIGHT:
        return []
    for top in (r.y - _ROW - 3, r.y + r.height + 3):
        place = Rect(r.x + 8, top, width, _ROW)
        if not any(_meet(place, other) for other in taken):
            taken.append(place)
            return [Label(text, place.x, top + 15, _TEXT, role="text")]
    return []


def _meet(a: Rect, b: Rect) -> bool:
    apart = a.x + a.width <= b.x or b.x + b.width <= a.x
    return not (apart or a.y + a.height <= b.y or b.y + b.height <= a.y)


def _axes(plot: _Plot, steps: Sequence[str]) -> list[Item]:
    items: list[Item] = [Line(((_LEFT, _BOTTOM), (_RIGHT, _BOTTOM)), "line", 1.5)]
    named = len(steps) >= plot.count and plot.column >= 110
    room = text_width(str(plot.count), _TEXT) + 14
    for step in range(0, plot.count, max(1, -int(-room // plot.column))):
        x = plot.x(step)
        items.append(Line(((x, _TOP), (x, _BOTTOM)), "grid", 1))
        word = shorten(steps[step], plot.column - 12, _TEXT) if named else str(step)
        items.append(Label(word, x + plot.column / 2, _BOTTOM + 22, _TEXT, "middle", "text"))
    items.append(Label("step", _LEFT + _WIDTH / 2, _BOTTOM + 48, _TEXT, "middle", "muted"))
    items.append(Label("address", _LEFT - 12, _TOP + _HEIGHT / 2, _TEXT, "end", "muted"))
    items.append(Label("0", _LEFT - 12, _BOTTOM, _TEXT, "end", "text"))
    return items


def _before(plot: _Plot, before: MemoryPlan, lines: Sequence[Item]) -> list[Item]:
    """What was alive at each step of another plan, stretched over the same width, and its peak."""
    count = 1 + max((b.last for b in before.buffers), default=0)
    points: list[tuple[float, float]] = []
    for step in range(count):
        y = plot.y(before.live_bytes(step))
        points += [(_LEFT + _WIDTH * at / count, y) for at in (step, step + 1)]
    y = plot.y(before.peak_bytes) + 5
    taken = [item.y for item in lines if isinstance(item, Label)]
    while any(abs(y - other) < _ROW for other in taken):
        y += _ROW
    text = f"alive before {bytes_text(before.peak_bytes)}"
    return [Line(tuple(points), "ink", 2.5), Label(text, _RIGHT + 10, y, _TEXT, role="text")]


def _lines(plot: _Plot) -> list[Item]:
    """The arena's size, and the bound that no plan can beat, where it is lower."""
    plan, top = plot.plan, plot.y(plot.plan.arena_bytes)
    words = [f"arena {bytes_text(plan.arena_bytes)}"]
    items: list[Item] = [Line(((_LEFT, top), (_RIGHT, top)), "accent", 2, "8 4")]
    bound = _BOTTOM - plan.peak_bytes * plot.scale
    if plan.peak_bytes == plan.arena_bytes:
        words[0] += " = peak"
    elif bound - top > _ROW:
        text = f"alive at once {bytes_text(plan.peak_bytes)}"
        items.append(Label(text, _RIGHT + 10, bound + 5, _TEXT, role="muted"))
    else:  # too near for two labels on two lines
        words.append(f"alive at once {bytes_text(plan.peak_bytes)}")
    if bound > top:
        items.append(Line(((_LEFT, bound), (_RIGHT, bound)), "muted", 2, "2 4"))
    for row, text in enumerate(words):
        items.append(Label(text, _RIGHT + 10, top + 5 + _ROW * row, _TEXT, role="accent"))
    return items


def _legend(plan: MemoryPlan, y: float) -> Iterator[Item]:
    """What bars and marks mean; only those that may be there."""
    found = {v.how for v in plan.values}
    entries = [f"alive at step {plan.peak_step}, the peak", "other buffers"]
    entries += ["view"] * ("view" in found)
    entries += ["in place: a result on an input"] * ("in place" in found)
    entries += ["parts of a concat"] * ("part" in found)
    x = float(_LEFT)
    for number, text in enumerate(entries):
        kind, line = (_PEAK, 3) if number == 0 else (_OTHER, 1.5)
        swatch = Rect(x, y - 15, 26, 20, kind, f"{kind}.edge", line, 3)
        yield swatch
        if text == "view":
            yield from _hatched(swatch)
        elif text.startswith("in place"):
            yield Line(((x + 13, y - 15), (x + 13, y + 5)), "ink", 1.5, "5 3")
        elif text.startswith("parts"):
            yield Line(((x, y - 5), (x + 26, y - 5)), "ink", 1.5, "5 3")
        yield Label(text, x + 36, y, _TEXT, role="text")
        x += 36 + text_width(text, _TEXT) + 44
