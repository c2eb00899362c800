"""How far grading is: a bar on a terminal, a line now and then in a file.

    with Progress(console, total=120) as progress:
        progress.done(failed=False)                    # 37 of 120 · 2 failed · about 4 min left

The estimate is the mean time so far times what is left.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as Bar

from grader.closing import Closing

_EVERY = 10.0  # seconds between two lines where there is no terminal


@dataclass
class Progress(Closing):
    """Counts submissions."""

    console: Console
    total: int
    count: int = 0
    failed: int = 0
    _start: float = field(default_factory=lambda: time.monotonic())
    _told: float = field(default_factory=lambda: time.monotonic())
    _bar: Bar | None = None
    _row: TaskID | None = None

    def done(self, failed: bool) -> None:
        """One more is graded."""
        self.count += 1
        self.failed += failed
        if self._bar is not None and self._row is not None:
            self._bar.update(self._row, completed=self.count, text=self._rest())
        elif time.monotonic() - self._told >= _EVERY:
            self._told = time.monotonic()
            self.console.print(f"{self.count} of {self.total}{self._rest()}", markup=False)

    def _rest(self) -> str:
        failed = f" · {self.failed} failed" if self.failed else ""
        return f"{failed} · {self.estimate()}"

    def estimate(self) -> str:
        """What is left, in words."""
        each = (time.monotonic() - self._start) / max(1, self.count)
        return left_in_words(each * (self.total - self.count))

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[text]}"))
            self._bar = Bar(*columns, console=self.console, transient=True)
            self._row = self._bar.add_task("grade", total=self.total, text="")
            self._bar.start()
        return self

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()


def left_in_words(seconds: float) -> str:
    """'about 4 min left'."""
    if seconds < 60:
        return f"about {max(0, round(seconds))} s left"
    if seconds < 5400:
        return f"about {round(seconds / 60)} min left"
    return f"about {seconds / 3600:.1f} h left"
