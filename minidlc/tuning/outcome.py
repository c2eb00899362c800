"""What tuning a model gave: a row for each kernel, and the whole model before and after.

    t = mc.tune("model.onnx", minutes=5, database="tune.jsonl")
    print(t)                                        # kernel, default, best, ratio, trials, way
    t.ratio, t.interval                             # of the whole model: 0.87, (0.86, 0.88)
    t.results                                       # a TaskResult for each task

Figures only: made by minidlc/tuned.py, drawn by viz/tuning.py. Treated in course chapter
06_autotune.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape

from minidlc.support.timing import ratio_interval, readable
from minidlc.tuning.result import TaskResult
from minidlc.tuning.space import Config
from minidlc.tuning.trial import best, fates

_WIDEST = 100  # letters of the last column


@dataclass(frozen=True, repr=False)
class Tuning:
    """The results of the tasks that the model as tuned consists of, the heaviest first.

    `names` are the kernels of each task, by key of its workload. `default_seconds` and `seconds`
    are whole runs of the model before and after, in turns, round by round; empty if there was no
    end-to-end check. `undone` are those of a tuned model that came out slower: the model stays as
    it was, and the other two are one series. `failed` are tasks none of whose trials ran,
    `left_out` kernels with nothing to choose, or no time for it, each with the reason. `layouts`
    are seconds of the kernels of each layout of images that was compared, as they were best.
    `stopped` says that somebody, or the clock, ended it before all finals: such tasks keep their
    default; `interrupted` that it was somebody. `notes` say why there are fewer trials than asked.
    """

    model: str
    threads: int
    results: tuple[TaskResult, ...]
    names: Mapping[str, tuple[str, ...]]
    default_seconds: tuple[float, ...]
    seconds: tuple[float, ...]
    layout: Config
    layouts: Mapping[Config, float]
    failed: Mapping[str, str]
    left_out: Mapping[str, str]
    database: str
    trials: int  # of all kernels, those of layouts that were not taken included
    spent: float  # seconds that tuning took
    stopped: bool = False
    overrides: Mapping[str, int] = field(default_factory=dict[str, int])
    undone: tuple[float, ...] = ()
    interrupted: bool = False
    notes: tuple[str, ...] = ()

    @property
    def ratio(self) -> float | None:
        """Median time of the tuned model over that of the default: below 1 is faster."""
        if not self.seconds:
            return None
        return statistics.median(self.seconds) / statistics.median(self.default_seconds)

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """95 % bootstrap interval of the ratio."""
        return ratio_interval(self.seconds, self.default_seconds) if self.seconds else None

    def __str__(self) -> str:
        table = [self._head, *self._table(), *self._notes(), *self._end_to_end()]
        return "\n".join(table)

    def __repr__(self) -> str:
        return f"<{self._head}>"

    def _repr_html_(self) -> str:
        """The table, as a notebook shows it."""
        return f"<pre>{escape(str(self))}</pre>"

    @property
    def _head(self) -> str:
        tuned, tried = _counted(len(self.results), "kernel"), _counted(self.trials, "trial")
        threads = _counted(self.threads, "thread")
        return f"{self.model}: {tuned} tuned, {tried} in {self.spent:.0f} s, {threads}"

    def _table(self) -> list[str]:
        if not self.results:
            return []
        rows: list[tuple[str, ...]] = [
            ("kernel", "calls", "default", "best", "ratio", "trials", "how")
        ]
        rows += [self._row(r) for r in self.results]
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        return [_aligned(row, widths) for row in rows]

    def _row(self, r: TaskResult) -> tuple[str, ...]:
        first, *others = self.names.get(r.task.workload.key, (r.task.name,))
        more = f" +{len(others)}" if others else ""
        before, after = (statistics.median(s) for s in (r.default_seconds, r.best_seconds))
        how = _how(r, before)
        times = readable(before), readable(after)
        counts = str(r.count), *times, f"{r.ratio:.2f}", str(len(r.trials))
        return (first[:40] + more, *counts, how if len(how) <= _WIDEST else how[:_WIDEST] + "…")

    def _notes(self) -> list[str]:
        trials = [t for r in self.results for t in r.trials]
        counts = ", ".join(f"{n} {fate}" for fate, n in fates(trials).items())
        lines = [f"trials: {counts}"] if counts else []
        lines += [f"{name} keeps its default: {reason}" for name, reason in self.failed.items()]
        reasons = dict.fromkeys(self.left_out.values())
        for reason in reasons:
            names = [n for n, r in self.left_out.items() if r == reason]
            listed = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
            lines.append(f"not tuned, {reason}: {len(names)} ({listed})")
        if len(self.layouts) > 1:
            sums = ", ".join(f"{c} {readable(s)}" for c, s in self.layouts.items())
            lines.append(f"layouts of images, sums of best times: {sums}; taken: {self.layout}")
        lines += self.notes
        lines += [
            f"override {name}: {_counted(count, 'call')}" for name, count in self.overrides.items()
        ]
        return lines

    def _end_to_end(self) -> list[str]:
        if self.stopped:
            state = "stopped early: what was measured is kept, start again to go on"
            return [state] if not self.seconds else [state, self._verdict()]
        return [self._verdict()] if self.seconds else []

    def _verdict(self) -> str:
        before, after = map(statistics.median, (self.default_seconds, self.seconds))
        assert self.interval is not None
        low, high = self.interval
        text = f"whole model: {readable(before)} → {readable(after)}"
        if self.undone:
            slower = statistics.median(self.undone)
            times = f"{slower / before:.3f} of it with the winners of the kernels"
            return f"whole model: {readable(before)}, {times}: undone, the default stays"
        if self.seconds == self.default_seconds:
            return f"whole model: {readable(before)}; no kernel won, the default stays"
        text += f", ratio {self.ratio:.3f} (95 % {low:.3f} to {high:.3f}), in turns"
        if low <= 1 <= high:
            text += ": no gain that can be told from noise"
        return text


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _how(r: TaskResult, before: float) -> str:
    """The point that is taken, and of a default why it is."""
    if r.is_better:
        return str(r.best)
    if r.lost:
        return f"default stays; {r.lost}"
    if r.is_checked:
        return "default stays"
    seen = best(r.trials)
    if seen is None or seen.config == r.best:
        return "not checked"
    return f"not checked; the search saw {seen.cost / before:.2f} with {seen.config}"


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *figures, how = row
    cells = [first.ljust(widths[0])]
    cells += [text.rjust(width) for text, width in zip(figures, widths[1:], strict=True)]
    return "  ".join([*cells, how])
