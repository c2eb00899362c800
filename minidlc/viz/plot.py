"""Axes of a plot: from numbers to places, the numbers beside them, and the grid.

    x = Axis.around([1, 64], 150, 1200)             # from 150 to 1200 on the page
    y = Axis.around(seconds, 700, 100)              # logarithmic where they differ by 4 times
    y.at(4.1e-4); y.ticks()                         # 312.5; [0.0002, 0.0005, 0.001]

Reads numbers, writes items of a Drawing. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from minidlc.viz.drawing import Group, Item, Label, Line, Rect

TEXT = 16
_WIDE = 4  # a range of more times than this is drawn by its logarithm
_STEPS = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class Axis:
    """The numbers from `low` to `high` lie from `start` to `end` of the page."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @staticmethod
    def around(values: Iterable[float], start: float, end: float, pad: float = 0.06) -> Axis:
        """An axis with room for all values that are finite; one of 0 to 1 if there is none."""
        finite = [v for v in values if math.isfinite(v)] or [0.0, 1.0]
        low, high = min(finite), max(finite)
        if low > 0 and high / low > _WIDE:
            room = (high / low) ** pad
            return Axis(low / room, high * room, start, end, log=True)
        room = pad * (high - low) or pad * abs(high) or 1.0
        return Axis(low - room, high + room, start, end)

    def at(self, value: float) -> float:
        """The place of a value; of one outside, the nearer end."""
        low, high = self._scaled(self.low), self._scaled(self.high)
        share = (self._scaled(value) - low) / (high - low)
        return self.start + (self.end - self.start) * min(max(share, 0.0), 1.0)

    def _scaled(self, value: float) -> float:
        return math.log(max(value, 1e-300)) if self.log else value

    def ticks(self, count: int = 6) -> list[float]:
        """At most about `count` round numbers on it."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for steps in ((1.0, 2.0, 5.0), (1.0,)):
                found = [s * 10.0**p for p in powers for s in steps]
                inside = [t for t in found if self.low <= t <= self.high]
                if len(inside) <= count:
                    break
            else:
                inside = inside[:: math.ceil(len(inside) / count)]
            return inside
        raw = (self.high - self.low) / count
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(s * power for s in _STEPS if s * power >= raw * (1 - 1e-9))
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [n * step for n in range(first, last + 1)]


def frame(across: tuple[float, float], y: Axis, up: Callable[[float], str]) -> Iterator[Item]:
    """The two axes, and a line with a number, written by `up`, for each tick of `y`."""
    left, right = across
    for tick in y.ticks():
        at = y.at(tick)
        yield Line(((left, at), (right, at)), "grid", 1)
        yield Label(up(tick), left - 10, at + 6, TEXT, "end", "text")
    yield Line(((left, y.end), (left, y.start), (right, y.start)), "line", 1.5)


def numbers(x: Axis, y: Axis, word: Callable[[float], str]) -> Iterator[Item]:
    """A line across and a number below for each tick of `x`."""
    for tick in x.ticks():
        at = x.at(tick)
        yield Line(((at, y.start), (at, y.end)), "grid", 1)
        yield Label(word(tick), at, y.start + 26, TEXT, "middle", "text")


def dot(x: float, y: float, hover: str, fill: str, radius: float = 6, *, kind: str = "dot") -> Item:
    """A round mark with a text over it."""
    edge = f"{fill}.edge" if fill else "frame.edge"
    r = Rect(x - radius, y - radius, 2 * radius, 2 * radius, fill, edge, 1.5, radius)
    return Group((r,), hover, kind)


def star(x: float, y: float, role: str = "accent") -> Item:
    """The mark of the best."""
    return Label("★", x, y + 9, 26, "middle", role, bold=True)
