"""The picture of what tuning changed: both loop nests side by side, below them the traces.

    nests_picture(result)                           # Drawing: the default left, the winner right

A step that differs has a sign: ≠ other numbers, − only the default has it, + only the winner.
Reads a TaskResult, whose points are lowered again. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minidlc.tuning.differences import TraceRow, trace_rows
from minidlc.tuning.result import TaskResult
from minidlc.tuning.summary import counted
from minidlc.viz.drawing import SLIDE, Drawing, Item, Label, Line, Rect, shorten
from minidlc.viz.graph import MARGIN
from minidlc.viz.loops import loops
from minidlc.viz.plot import TEXT
from minidlc.viz.tuning_progress import short

_ROWS = 36  # of the traces
_ROW = 24
_HALF = SLIDE / 2
_ROLES = {"≠": "changed", "−": "removed", "+": "added"}


def nests_picture(result: TaskResult) -> Drawing:
    """Nests and traces of default and winner; CompileError if one of them no longer lowers."""
    task = result.task
    name = short(task.name)
    before = task.lower(task.default)
    if not result.is_better:
        title = f"{name}: the default is the best known"
        if result.lost:
            title = f"{name}: the default stays, what won alone lost in the model"
        pair = [(f"default, {task.default}", before.loops)]
        return loops(pair, title=title, target=task.target).drawing
    after = task.lower(result.best)
    pair = [(f"default, {task.default}", before.loops), (f"winner, {result.best}", after.loops)]
    rows = trace_rows(before.schedule.trace, after.schedule.trace)
    changed = sum(row.sign in _ROLES for row in rows)
    steps = f"{counted(changed, 'step')} of the schedule differ{'s' * (changed == 1)}"
    title = f"{name}: default and winner, {steps}"
    nest = loops(pair, title=title, target=task.target).drawing
    items = [*nest.items, *_traces(rows, nest.height + 10)]
    height = nest.height + 60 + _ROW * (min(len(rows), _ROWS) + (len(rows) > _ROWS))
    return Drawing(SLIDE, height + 20, title, tuple(items))


def _traces(rows: Sequence[TraceRow], top: float) -> Iterator[Item]:
    """The steps in two columns, a sign before those that differ."""
    yield Line(((MARGIN, top), (SLIDE - MARGIN, top)), "grid", 1)
    for x, word in ((MARGIN + 30, "steps of the default"), (_HALF + 30, "steps of the winner")):
        yield Label(word, x, top + 30, 18, role="text", bold=True)
    y = top + 60
    for row in rows[:_ROWS]:
        yield from _row(row, y)
        y += _ROW
    if len(rows) > _ROWS:
        yield Label(f"and {len(rows) - _ROWS} more", MARGIN + 30, y, TEXT, role="muted")


def _row(row: TraceRow, y: float) -> Iterator[Item]:
    role = _ROLES.get(row.sign, "muted")
    room = _HALF - MARGIN - 50
    if row.sign in _ROLES:
        yield Rect(MARGIN, y - 17, SLIDE - 2 * MARGIN, _ROW - 1, "frame")
        yield Label(row.sign, MARGIN + 14, y, TEXT, "middle", role, bold=True)
    for x, text in ((MARGIN + 30, row.left), (_HALF + 30, row.right)):
        if text:
            shown = shorten(text, room, 14, mono=row.sign != "…")
            words = "text" if row.sign in _ROLES else "muted"
            yield Label(shown, x, y, 14, role=words, mono=row.sign != "…")
