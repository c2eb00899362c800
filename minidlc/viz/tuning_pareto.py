"""The picture of two objectives: time against bytes or energy, the best compromises as a line.

    pareto_picture(result)                          # Drawing, or None: nothing but time was counted

A point is on the front if no other trial is better in one objective and as good in the other; the
others are faint. Reads the `figures` of the trials. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from minidlc.support.timing import readable
from minidlc.tuning.objectives import OBJECTIVES, objective, pareto
from minidlc.tuning.result import TaskResult
from minidlc.tuning.trial import Fate, Trial
from minidlc.viz.boxes import bytes_text
from minidlc.viz.drawing import SLIDE, Drawing, Item, Label, Line, shorten
from minidlc.viz.graph import MARGIN, page_title
from minidlc.viz.plot import TEXT, Axis, dot, frame, numbers, star
from minidlc.viz.tuning_progress import SHOWN, short, thinned

_PANELS = 3
_TOP, _BOTTOM = 150, 560


def objectives(trials: Sequence[Trial]) -> tuple[str, ...]:
    """The objectives beside time that all trials that ran have, and that tell them apart."""
    ran = [t for t in trials if t.fate is Fate.OK]
    names = [n for n in OBJECTIVES if n != "seconds" and all(n in t.figures for t in ran)]
    return tuple(n for n in names if len({t.figures[n] for t in ran}) > 1)


def pareto_picture(result: TaskResult, most: int = SHOWN) -> Drawing | None:
    """Up to three panels, one for each objective beside time; about `most` marks in each."""
    ran = [t for t in result.trials if t.fate is Fate.OK]
    names = objectives(ran)[:_PANELS]
    if not names:
        return None
    fronts = [pareto(ran, ("seconds", name)) for name in names]
    counts = ", ".join(f"{len(f)} by {_words(name)}" for f, name in zip(fronts, names, strict=True))
    title = f"{short(result.task.name)}: best compromises of {len(ran)} points: {counts}"
    items: list[Item] = [page_title(title, SLIDE)]
    width = (SLIDE - 2 * MARGIN) / max(len(names), 2)
    for n, (name, best) in enumerate(zip(names, fronts, strict=True)):
        left = MARGIN + n * width
        items += _panel(result, name, best, (left + 100, left + width - 30), most)
    return Drawing(SLIDE, _BOTTOM + 76, title, tuple(items))


def _panel(
    result: TaskResult, name: str, best: Sequence[Trial], ends: tuple[float, float], most: int
) -> Iterator[Item]:
    ran = [t for t in result.trials if t.fate is Fate.OK]
    x = Axis.around([_time(t) for t in ran], *ends)
    y = Axis.around([t.figures[name] for t in ran], _BOTTOM, _TOP)
    yield from numbers(x, y, readable)
    write = _number(name)
    if len({write(tick) for tick in y.ticks()}) < len(y.ticks()):
        write = "{:,.6g}".format  # a range so narrow that rounded numbers are all the same
    yield from frame(ends, y, write)
    head = shorten(_words(name), ends[1] - ends[0], 18, bold=True)
    yield Label(head, ends[0] - 90, _TOP - 24, 18, role="text", bold=True)
    yield Label("one run", (ends[0] + ends[1]) / 2, _BOTTOM + 54, TEXT, "middle", "muted")
    on = {id(t) for t in best}
    for _, trial in thinned(ran, most):
        if id(trial) not in on:
            yield dot(x.at(_time(trial)), y.at(trial.figures[name]), f"{trial.config}", "", 4)
    corners = [(x.at(_time(t)), y.at(t.figures[name])) for t in best]
    steps = [corners[0]]
    for (_, above), (right, below) in pairwise(corners):
        steps += [(right, above), (right, below)]
    yield Line((*steps, (ends[1], corners[-1][1])), "accent", 2)
    for trial, (a, b) in zip(best, corners, strict=True):
        value = _number(name)(trial.figures[name])
        hover = f"{trial.config}: {readable(_time(trial))}, {_words(name)} {value}"
        yield dot(a, b, hover, "out_fusable", 7, kind="front")
    for trial in ran:
        if trial.config == result.best:
            yield star(x.at(_time(trial)), y.at(trial.figures[name]))
            break


def _time(trial: Trial) -> float:
    return objective(trial, "seconds")


def _words(name: str) -> str:
    return name.replace("_", " ")


def _number(name: str) -> Callable[[float], str]:
    """How values of an objective are written."""
    if "byte" in name:
        return lambda value: bytes_text(round(value))
    if name == "energy":
        return lambda value: f"{1e6 * value:.3g} µJ"
    return lambda value: f"{value:.3g}"
