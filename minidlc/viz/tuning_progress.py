"""The picture of a search: the best so far, what became of every trial, and what the model knew.

    progress(result)                                # Drawing: two panels

Left, each trial that ran is a dot at its time in the search, the line is the best so far, and below
it every failed trial stands in the row of its fate; a final measures default and best again, in
turns, so its times, at the right of the dots, are others. Right, the place that the model gave each
trial against its measured place: on the diagonal the model was right; without a model, or with too
few of its trials to compare, the left one has all the room. Reads a TaskResult. Treated in course
chapter 06_autotune.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from minidlc.support.timing import readable
from minidlc.tuning.explain import cut
from minidlc.tuning.result import TaskResult, curve
from minidlc.tuning.summary import (
    believed,
    counted,
    failures,
    improvements,
    learning,
    rank_correlation,
    ranks,
)
from minidlc.tuning.trial import Fate, Trial, best, why_none
from minidlc.viz.drawing import SLIDE, Drawing, Group, Item, Label, Line, Rect, shorten
from minidlc.viz.graph import MARGIN, page_title
from minidlc.viz.plot import TEXT, Axis, dot, frame, star

SHOWN = 240  # marks in a panel; of more trials every second, third … is drawn
_LEFT, _TOP, _BOTTOM = 170, 132, 600  # of the curve
_RIGHT, _ALONE = 1120, 1720  # its right end: beside the model's panel, and without one
_MODEL = 1340, 1860  # left and right end of the model's panel
_LANE = 30  # height of the row of a fate

FILLS = {  # role of a fate's marks, and the letter on them
    Fate.OK: ("elementwise", ""),
    Fate.REFUSED: ("injective", "R"),
    Fate.NOT_COMPILED: ("out_fusable", "N"),
    Fate.WRONG: ("reduction", "W"),
    Fate.TIMEOUT: ("opaque", "T"),
    Fate.CRASHED: ("broadcast", "C"),
}


def progress(result: TaskResult, most: int = SHOWN) -> Drawing:
    """Best so far, fates, and predicted against measured; 1920 wide, about `most` marks a panel."""
    title = headline(result)
    lanes = failures(result.trials)
    items: list[Item] = [page_title(title, SLIDE)]
    items += _curve(result, most)
    bottom, numbers = _BOTTOM, _across(result.trials)
    for lane in lanes:
        mine = [(n, t) for n, t in enumerate(result.trials, 1) if t.fate is lane.fate]
        items += _lane(lane.fate, mine[:: _step(mine, most)], len(mine), bottom, numbers)
        bottom += _LANE
    for tick in _whole(numbers):
        at = numbers.at(tick)
        items.insert(1, Line(((at, _TOP), (at, bottom)), "grid", 1))
        items.append(Label(f"{tick}", at, bottom + 26, TEXT, "middle", "text"))
    middle = (_LEFT + _right(result.trials)) / 2
    items.append(Label("trial", middle, bottom + 52, TEXT, "middle", "muted"))
    items += _model(result.trials, most)
    return Drawing(SLIDE, max(bottom, _BOTTOM) + 76, title, tuple(items))


def headline(result: TaskResult) -> str:
    """'k0_matmul: 64 trials, 412 µs → 343 µs, 0.83 of the default'."""
    start = f"{short(result.task.name)}: {counted(len(result.trials), 'trial')}"
    if result.trials and not any(t.fate is Fate.OK for t in result.trials):
        return f"{start}, none ran"
    if not result.is_checked:
        return f"{start}, not measured again"
    if result.lost:
        return f"{start}, what won alone lost in the model: the default stays"
    if not result.is_better:
        return f"{start}, nothing faster than the default"
    before, after = map(statistics.median, (result.default_seconds, result.best_seconds))
    return f"{start}, {readable(before)} → {readable(after)}, {result.ratio:.2f} of the default"


def short(name: str, most: int = 48) -> str:
    """A name of at most `most` letters."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _right(trials: Sequence[Trial]) -> float:
    """The right end of the curve."""
    return _ALONE if rank_correlation(trials) is None else _RIGHT


def _across(trials: Sequence[Trial]) -> Axis:
    return Axis(0.5, max(len(trials), 1) + 0.5, _LEFT + 10, _right(trials))


def _whole(axis: Axis) -> list[int]:
    """Numbers of trials beside the axis."""
    found = sorted({max(1, round(t)) for t in axis.ticks(10) if axis.low <= round(t) <= axis.high})
    return found or [1]


def thinned(trials: Sequence[Trial], most: int = SHOWN) -> list[tuple[int, Trial]]:
    """At most about `most` trials with their numbers: all that were the best, others evenly."""
    step = _step(trials, most)
    kept = set(improvements(trials))
    numbered = enumerate(trials, 1)
    return [(n, t) for n, t in numbered if n in kept or n % step == 0 or step == 1]


def _step(marks: Sequence[object], most: int) -> int:
    return math.ceil(len(marks) / most) or 1


def _curve(result: TaskResult, most: int) -> Iterator[Item]:
    """The panel at the left, without the lanes."""
    trials = result.trials
    ran = [t.cost for t in trials if t.fate is Fate.OK]
    x, right = _across(trials), _right(trials)
    series = result.default_seconds, result.best_seconds
    base = [statistics.median(seconds) for seconds in series if seconds]
    y = Axis.around([*ran, *base], _BOTTOM - 14, _TOP + 10)
    words = learning(result) if ran else why_none(trials)
    yield Label(shorten(words, right - MARGIN, 18), MARGIN, 88, 18, role="text")
    if not ran and not base:
        yield Label("no time was measured", (_LEFT + right) / 2, 350, 18, "middle", "muted")
        return
    yield from frame((_LEFT, right), y, readable)
    yield Label("one run", _LEFT - 10, _TOP - 8, TEXT, "end", "muted")
    if ran and result.is_checked:
        note = "dots: in the search; dashes: the default in the final, measured again in turns"
        yield Label(note, _LEFT + 12, _TOP - 8, TEXT, role="muted")
    yield from _lines(result, y, right)
    shown = thinned(trials, most)
    for number, trial in shown:
        if trial.fate is Fate.OK:
            who = ", the default" if trial.config == result.task.default else ""
            hover = f"trial {number}{who}: {trial.config}, {readable(trial.cost)}"
            yield dot(x.at(number), y.at(trial.cost), hover, "elementwise", 5, kind="ok")
    yield from _best_line(trials, x, y)
    if winner := best(trials):
        first = next(n for n, t in enumerate(trials, 1) if t is winner)
        yield star(x.at(first), y.at(winner.cost))
    if len(shown) < len(trials):
        note = f"{len(shown)} of {len(trials)} trials drawn"
        yield Label(note, right, _TOP - 8, TEXT, "end", "muted")


def _lines(result: TaskResult, y: Axis, right: float) -> Iterator[Item]:
    """The default's time as a line; at its end this one, and that of the winner, measured again."""
    if not result.default_seconds:
        return
    seconds = statistics.median(result.default_seconds)
    at = y.at(seconds)
    when = "final" if result.is_checked else "search"
    yield Line(((_LEFT, at), (right, at)), "text", 2, "8 5")
    yield Label(f"default, {when}", right + 8, at - 2, TEXT, role="text", bold=True)
    yield Label(readable(seconds), right + 8, at + 18, TEXT, role="text")
    if result.is_better and result.is_checked:
        least = statistics.median(result.best_seconds)
        place = y.at(least)
        place = place if abs(place - at) > 44 else at + math.copysign(44, place - at)
        yield Label("best, final", right + 8, place - 2, TEXT, role="accent", bold=True)
        yield Label(readable(least), right + 8, place + 18, TEXT, role="accent")


def _best_line(trials: Sequence[Trial], x: Axis, y: Axis) -> Iterator[Item]:
    """A staircase down to the best."""
    points = list[tuple[float, float]]()
    for number, least in enumerate(curve(trials), 1):
        if math.isfinite(least):
            at = y.at(least)
            if points and points[-1][1] != at:
                points.append((x.at(number), points[-1][1]))
            if not points or points[-1][1] != at:
                points.append((x.at(number), at))
    if points:
        points.append((x.end, points[-1][1]))
        yield Line(tuple(points), "accent", 3)


def _lane(
    fate: Fate, mine: Sequence[tuple[int, Trial]], count: int, top: float, x: Axis
) -> Iterator[Item]:
    """The failed trials of one fate, a mark at the number of each."""
    fill, letter = FILLS[fate]
    middle = top + _LANE / 2
    yield Line(((_LEFT, top + _LANE), (x.end, top + _LANE)), "grid", 1)
    name = f"{fate} {count}"
    yield Label(name, _LEFT - 10, middle + 6, TEXT, "end", "text")
    pitch = (x.end - x.start) / (x.high - x.low)
    width = min(max(pitch - 2, 3), 20)
    for number, trial in mine:
        at = x.at(number)
        box = Rect(at - width / 2, top + 4, width, _LANE - 8, fill, f"{fill}.edge", 1, 2)
        hover = f"trial {number}: {trial.config}: {cut(trial.reason, 120)}"
        mark = (Label(letter, at, middle + 5, 14, "middle", bold=True),) if width >= 12 else ()
        yield Group((box, *mark), hover, "failed")


def _model(trials: Sequence[Trial], most: int) -> Iterator[Item]:
    """The panel at the right: places by the model's belief, and measured; none of too few."""
    left, right = _MODEL
    known = believed(trials)
    whole = rank_correlation(trials)
    half = rank_correlation(trials[len(trials) // 2 :])
    if whole is None:
        return
    late = f", newer half {half:.2f}" if half is not None else ""
    words = f"rank correlation {whole:.2f}{late}"
    yield Label(words, left - 60, 88, 18, role="text")
    a = ranks([t.predicted or 0.0 for t in known])
    b = ranks([t.cost for t in known])
    x, y = (Axis(0, len(known) + 1, *ends) for ends in ((left, right), (_BOTTOM, _TOP)))
    ends = (1, len(known))
    yield Line(((left, _BOTTOM), (right, _TOP)), "grid", 2)
    yield Line(((left, _TOP), (left, _BOTTOM), (right, _BOTTOM)), "line", 1.5)
    for end in ends:
        yield Label(f"{end}", x.at(end), _BOTTOM + 26, TEXT, "middle", "text")
        yield Label(f"{end}", left - 10, y.at(end) + 6, TEXT, "end", "text")
    yield Label("place by the model", (left + right) / 2, _BOTTOM + 26, TEXT, "middle", "muted")
    yield Label("measured place (1: fastest)", left - 60, _TOP - 12, TEXT, role="muted")
    for trial, i, j in list(zip(known, a, b, strict=True))[:: _step(known, most)]:
        hover = f"{trial.config}: place {i:g} by the model, {j:g} measured, {readable(trial.cost)}"
        yield dot(x.at(i), y.at(j), hover, "elementwise", 5, kind="belief")
