"""The picture of a model's tuning: where the trials went, and what each kernel gained.

    tasks_picture(results)                          # Drawing: a row for each task

The left bar is a task's share of the trials, the right ones its time before and after, the
interval says how sure the ratio is. A kernel's "default" is the compiler's schedule in the layout
of images that was taken; the layout's own gain is in the run of the whole model, which a Tuning
has. Reads TaskResults and Tunings. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from minidlc.support.timing import readable
from minidlc.tuning.outcome import Tuning
from minidlc.tuning.result import TaskResult
from minidlc.tuning.summary import counted
from minidlc.viz.drawing import SLIDE, Drawing, Group, Item, Label, Line, Rect, shorten
from minidlc.viz.graph import MARGIN, page_title
from minidlc.viz.plot import TEXT
from minidlc.viz.tuning_progress import short

LISTED = 40  # tasks with a row of their own
_ROW = 44
_TRIALS, _TIME, _RATIO = 470, 820, 1480  # left ends of the columns
_BAR = 240, 460  # longest bar of trials, of time


@dataclass(frozen=True)
class Row:
    """Figures of a task in a model: seconds of a run of it, all kernels of the task together."""

    result: TaskResult
    before: float
    after: float

    @staticmethod
    def of(result: TaskResult) -> Row:
        """Zero seconds where nothing was measured again."""
        times = [result.default_seconds, result.best_seconds]
        before, after = (statistics.median(t) * result.count if t else 0.0 for t in times)
        return Row(result, before, after)


def tasks_picture(results: Sequence[TaskResult], tuning: Tuning | None = None) -> Drawing:
    """A row for each task, the one that takes the most time first; `tuning` is of their model."""
    rows = [Row.of(r) for r in by_time(results)]
    title = headline(rows)
    items: list[Item] = []
    if tuning is not None and tuning.seconds:
        words = [f"kernels alone: {title}", *layout_words(tuning)]
        line = shorten(". ".join(words), SLIDE - 2 * MARGIN, TEXT)
        items.append(Label(line, MARGIN, 74, TEXT, role="text"))
        title = whole_model(tuning)
    items.append(page_title(title, SLIDE))
    heads = ((MARGIN, "kernel"), (_TRIALS, "trials"), (_TIME, "time in a run: default, best"))
    for x, word in (*heads, (_RATIO, "ratio, 95 % interval")):
        items.append(Label(word, x, 98, TEXT, role="muted"))
    most = max((len(r.result.trials) for r in rows), default=0) or 1
    longest = max((max(r.before, r.after) for r in rows), default=0.0) or 1.0
    y = 112.0
    for number, row in enumerate(rows[:LISTED]):
        parts = tuple(_row(row, y, most, longest))
        items.append(Group(parts, f"{row.result.best}", "task", key(number)))
        y += _ROW
    if rest := rows[LISTED:]:
        before, after = (sum(getattr(r, name) for r in rest) for name in ("before", "after"))
        more = "1 more kernel" if len(rest) == 1 else f"{len(rest)} more kernels"
        words = f"and {more}: {readable(before)} → {readable(after)}"
        items.append(Label(words, MARGIN, y + 28, TEXT, role="muted"))
        y += _ROW
    return Drawing(SLIDE, y + 24, title, tuple(items))


def by_time(results: Sequence[TaskResult]) -> list[TaskResult]:
    """The kernel that takes the most time by default first."""
    return sorted(results, key=lambda r: -Row.of(r).before)


def key(number: int) -> str:
    """What a click on the row of a number asks for."""
    return f"many task {number}"


def headline(rows: Sequence[Row]) -> str:
    """'12 kernels: 640 trials, 8.1 ms → 7.2 ms in a run, 0.89 of their defaults'."""
    trials = sum(len(r.result.trials) for r in rows)
    before, after = sum(r.before for r in rows), sum(r.after for r in rows)
    start = f"{counted(len(rows), 'kernel')}: {counted(trials, 'trial')}"
    if not before:
        return f"{start}, none measured again"
    ratio = f"{after / before:.2f} of their defaults"
    return f"{start}, {readable(before)} → {readable(after)} in a run, {ratio}"


def whole_model(tuning: Tuning) -> str:
    """'net: a run 40.8 µs → 25.6 µs, 0.626 of the compiler's own choice (95 %: 0.520 to 0.720)'.

    Of a model that has runs; one that was undone says so.
    """
    name = short(" ".join(tuning.model.split()), 40)
    before, after = map(statistics.median, (tuning.default_seconds, tuning.seconds))
    if tuning.undone:
        share = statistics.median(tuning.undone) / before
        words = f"with the winners of the kernels it took {share:.3f} of that: undone"
        return f"{name}: a run stays at {readable(before)}; {words}"
    low, high = tuning.interval or (1.0, 1.0)
    share = f"{tuning.ratio:.3f} of the compiler's own choice (95 %: {low:.3f} to {high:.3f})"
    return f"{name}: a run {readable(before)} → {readable(after)}, {share}"


def layout_words(tuning: Tuning) -> list[str]:
    """A sentence if another layout of images than the compiler's was taken, else none.

    The first of `layouts` is the compiler's own.
    """
    usual = next(iter(tuning.layouts), tuning.layout)
    if tuning.layout == usual:
        return []
    words = f"A part of the model's gain is its layout of images, {tuning.layout} for {usual}"
    return [f"{words}; kernels are compared in that layout"]


def _row(row: Row, y: float, most: int, longest: float) -> Iterator[Item]:
    result = row.result
    count = f" ×{result.count}" if result.count != 1 else ""
    name = shorten(result.task.name, _TRIALS - MARGIN - 70, TEXT)
    yield Label(f"{name}{count}", MARGIN, y + 26, TEXT, role="text", bold=result.is_better)
    length = _BAR[0] * len(result.trials) / most
    yield Rect(_TRIALS, y + 9, max(length, 1), 24, "injective", "injective.edge", 1.5, 3)
    yield Label(f"{len(result.trials)}", _TRIALS + length + 8, y + 26, TEXT, role="text")
    yield Line(((MARGIN, y + _ROW), (SLIDE - MARGIN, y + _ROW)), "grid", 1)
    if not result.is_checked:
        yield Label("not measured again", _TIME, y + 26, TEXT, role="muted")
        return
    for top, seconds, role in ((4, row.before, "opaque"), (22, row.after, "elementwise")):
        wide = max(_BAR[1] * seconds / longest, 1)
        yield Rect(_TIME, y + top, wide, 16, role, f"{role}.edge", 1, 2)
        yield Label(readable(seconds), _TIME + wide + 8, y + top + 14, 14, role="text")
    if not result.is_better:
        words = "lost in the model: default" if result.lost else "the default stays"
        yield Label(words, _RATIO, y + 26, TEXT, role="muted")
        return
    low, high = result.interval
    yield Label(f"{result.ratio:.2f}", _RATIO, y + 26, TEXT, role="text", bold=True)
    yield Label(f"{low:.2f} to {high:.2f}", _RATIO + 60, y + 26, TEXT, role="text")
