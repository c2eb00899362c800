"""The roofline of a model on this machine: what bounds each kernel, memory or arithmetic.

    mc.viz.roofline(exe.profile(x))                 # measures the machine's roofs first
    mc.viz.roofline(p, peaks)                       # peaks = p.peaks(), measured before

Both axes are logarithmic: operations for each byte that must move, and operations a second. A
kernel under the slanted roof waits for memory, one under the flat roof for arithmetic; the area of
its circle is its share of the time. Reads a Profile and Peaks, writes a Picture. Treated in course
chapter 05_backend_opt.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from minidlc.runtime.profile import KernelTime, Peaks, Profile
from minidlc.support.arguments import expect
from minidlc.viz.drawing import Drawing, Group, Item, Label, Line, Point, Rect, shorten
from minidlc.viz.graph import page_title
from minidlc.viz.picture import Picture
from minidlc.viz.theme import ThemeName

_WIDTH, _HEIGHT = 1080, 640  # of the plot
_LEFT, _TOP = 150, 100
_LEGEND = _LEFT + _WIDTH + 60
_TEXT = 16
_NAMED = 12  # kernels in the legend
_LARGEST = 34  # radius of a kernel that takes all the time


class _Scale:
    """From intensity and GFLOP/s to places on the page."""

    def __init__(self, points: Sequence[KernelTime], peaks: Peaks) -> None:
        ridge = peaks.gflops / min(speed for _, speed in peaks.bandwidths)
        x = [k.intensity for k in points] + [ridge / 16, ridge * 4]
        y = [k.gflops for k in points] + [peaks.gflops / 64, peaks.gflops * 1.5]
        self.low = (math.floor(math.log2(min(x))) - 0.5, math.log10(min(y)) - 0.15)
        self.high = (math.ceil(math.log2(max(x))) + 0.5, math.log10(max(y)) + 0.1)

    def x(self, intensity: float) -> float:
        """Place of an intensity."""
        share = (math.log2(intensity) - self.low[0]) / (self.high[0] - self.low[0])
        return _LEFT + _WIDTH * min(max(share, 0.0), 1.0)

    def y(self, gflops: float) -> float:
        """Place of a speed."""
        share = (math.log10(gflops) - self.low[1]) / (self.high[1] - self.low[1])
        return _TOP + _HEIGHT * (1 - min(max(share, 0.0), 1.0))

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the greatest intensity of the plot."""
        return 2.0 ** self.low[0], 2.0 ** self.high[0]


def roofline(
    profile: Profile, peaks: Peaks | None = None, theme: ThemeName | None = None
) -> Picture:
    """Draw the kernels of a profile under the roofs of the machine, measured now if not given.

    Kernels without arithmetic (copies) have no place on it and are left out. Raises OptionError
    (MDLC1021) for an unknown theme.
    """
    expect("viz.roofline", "profile", profile, Profile, hint="exe.profile(x)")
    peaks = profile.peaks() if peaks is None else peaks
    expect("viz.roofline", "peaks", peaks, Peaks, hint="profile.peaks()")
    shown = [k for k in profile.slowest if k.flops and k.nbytes and k.seconds]
    scale = _Scale(shown, peaks)
    title = headline(profile, peaks)
    items: list[Item] = [page_title(title, _LEGEND + 480)]
    items += _axes(scale)
    circles = _circles(scale, shown, profile.seconds)
    items += _roofs(scale, peaks, circles)
    items += _kernels(circles, shown)
    items += _legend(shown, profile, peaks)
    return Picture(Drawing(_LEGEND + 480, _TOP + _HEIGHT + 100, title, tuple(items)), theme)


def headline(profile: Profile, peaks: Peaks) -> str:
    """'roofline of lenet: 25 GFLOP/s, 24 % of what 1 thread can do'."""
    total = sum(k.flops for k in profile.kernels)
    gflops = total / profile.seconds / 1e9 if profile.seconds else 0.0
    threads = f"{profile.threads} thread{'s' * (profile.threads != 1)}"
    share = _percent(gflops / peaks.gflops)
    return f"roofline of {profile.model}: {gflops:.3g} GFLOP/s, {share} of what {threads} can do"


def _axes(scale: _Scale) -> Iterator[Item]:
    """A grid line for each doubling, a number for each second one."""
    bottom, right = _TOP + _HEIGHT, _LEFT + _WIDTH
    for power in range(math.ceil(scale.low[0]), math.floor(scale.high[0]) + 1):
        x = scale.x(2.0**power)
        yield Line(((x, _TOP), (x, bottom)), "grid", 1)
        if power % 2 == 0:
            word = str(2**power) if power >= 0 else f"1/{2**-power}"
            yield Label(word, x, bottom + 24, _TEXT, "middle", "text")
    for power in range(math.ceil(scale.low[1]), math.floor(scale.high[1]) + 1):
        y = scale.y(10.0**power)
        yield Line(((_LEFT, y), (right, y)), "grid", 1)
        yield Label(f"{10.0**power:g}", _LEFT - 12, y + 5, _TEXT, "end", "text")
    yield Line(((_LEFT, _TOP), (_LEFT, bottom), (right, bottom)), "line", 1.5)
    words = "operations for each byte that must move"
    yield Label(words, _LEFT + _WIDTH / 2, bottom + 56, _TEXT, "middle", "muted")
    yield Label("GFLOP/s", _LEFT - 12, _TOP - 12, _TEXT, "end", "muted")


def _roofs(scale: _Scale, peaks: Peaks, circles: Sequence[Rect]) -> Iterator[Item]:
    """The flat roof, and a slanted one for each level of memory."""
    low, high = scale.ends
    top = scale.y(peaks.gflops)
    first = max(peaks.gflops / max(speed for _, speed in peaks.bandwidths), low)
    yield Line(((scale.x(first), top), (scale.x(high), top)), "accent", 3)
    words = f"arithmetic {peaks.gflops:.3g} GFLOP/s"
    yield Label(words, _LEFT + _WIDTH, top - 12, _TEXT, "end", "accent", bold=True)
    floor = 10.0 ** scale.low[1]
    for number, (name, speed) in enumerate(peaks.bandwidths):
        start = max(low, floor / speed)
        corner = peaks.gflops / speed
        if corner <= start:
            continue
        ends = ((scale.x(start), scale.y(start * speed)), (scale.x(corner), top))
        yield Line(ends, "accent", 3, "" if number == len(peaks.bandwidths) - 1 else "8 5")
        yield _beside(ends, f"{name} {speed:.3g} GB/s", circles)


def _beside(line: tuple[Point, Point], text: str, circles: Sequence[Rect]) -> Label:
    """The text right below a rising line, where no circle is."""
    (x0, y0), (x1, y1) = line
    labels = [
        Label(
            text, x0 + (x1 - x0) * t / 10 + 16, y0 + (y1 - y0) * t / 10 + 22, _TEXT, role="accent"
        )
        for t in range(10)
    ]
    inside = [at for at in labels if at.y < _TOP + _HEIGHT - 8] or labels
    free = [at for at in inside if not any(_meets(at, circle) for circle in circles)]
    return (free or inside)[0]


def _meets(label: Label, r: Rect) -> bool:
    """True if a label touches a rectangle."""
    beside = label.left > r.x + r.width or label.left + label.width < r.x
    return not beside and label.y - _TEXT < r.y + r.height and label.y + 6 > r.y


def _circles(scale: _Scale, shown: Sequence[KernelTime], total: float) -> list[Rect]:
    """One for each kernel, its area as its share of the time."""
    circles: list[Rect] = []
    for number, k in enumerate(shown):
        x, y = scale.x(k.intensity), scale.y(k.gflops)
        least = 12.0 if number < _NAMED else 6.0
        r = max(least, _LARGEST * math.sqrt(k.seconds / total))
        circles.append(
            Rect(x - r, y - r, 2 * r, 2 * r, "elementwise", "elementwise.edge", 2, radius=r)
        )
    return circles


def _kernels(circles: Sequence[Rect], shown: Sequence[KernelTime]) -> Iterator[Item]:
    """The circles, the largest below; then the numbers that do not meet another's."""
    for circle, k in zip(circles, shown, strict=True):
        hover = f"{k.kernel}: {k.seconds * 1e6:.1f} µs, {k.gflops:.1f} GFLOP/s"
        yield Group((circle,), hover, "kernel")
    written: list[Point] = []
    for number, circle in enumerate(circles[:_NAMED], 1):
        x, y = circle.x + circle.width / 2, circle.y + circle.height / 2
        if all(math.hypot(x - a, y - b) > 24 for a, b in written):
            written.append((x, y))
            yield Label(str(number), x, y + 5.5, _TEXT, "middle", "ink", bold=True)


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _legend(shown: Sequence[KernelTime], profile: Profile, peaks: Peaks) -> Iterator[Item]:
    """The slowest kernels by number: share of the time, and of what their roof allows."""
    y = _TOP + 6.0
    yield Label("share of time", _LEGEND + 330, y, _TEXT, "end", "muted")
    yield Label("of its roof", _LEGEND + 450, y, _TEXT, "end", "muted")
    for number, k in enumerate(shown[:_NAMED], 1):
        y += 34
        yield Label(str(number), _LEGEND + 20, y, _TEXT, "end", "text", bold=True)
        yield Label(shorten(k.kernel, 190, _TEXT), _LEGEND + 34, y, _TEXT, role="text")
        share = _percent(k.seconds / profile.seconds, 1)
        yield Label(share, _LEGEND + 330, y, _TEXT, "end", "text")
        roof = _percent(k.gflops / peaks.roof(k.intensity))
        yield Label(roof, _LEGEND + 450, y, _TEXT, "end", "text")
    if len(shown) > _NAMED:
        rest = sum(k.seconds for k in shown[_NAMED:]) / profile.seconds
        y += 34
        yield Label(f"and {len(shown) - _NAMED} more", _LEGEND + 34, y, _TEXT, role="muted")
        yield Label(_percent(rest, 1), _LEGEND + 330, y, _TEXT, "end", "muted")
    if any(k.gflops > peaks.roof(k.intensity) for k in shown[:_NAMED]):
        words = "above 100 %: what it reads was in a cache"
        yield Label(words, _LEGEND, y + 54, _TEXT, role="muted")
