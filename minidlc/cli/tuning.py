"""The command `tune`: find fast schedules for a model, watch it, keep what was found.

    minidlc tune m.onnx --minutes 5 --database tune.jsonl --report report.html

On a terminal a table of kernels is drawn again and again; elsewhere, a line for each gain. Ctrl-C
ends the search; all trials are in the file by then, and the next start goes on there. Treated in
course chapter 06_autotune.
"""

from __future__ import annotations

import json
import math
import platform
import shlex
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

import minidlc as mc
from minidlc.cli.common import Model, Seed, Shapes, app, load, out, shapes_of
from minidlc.support.errors import OptionError
from minidlc.support.timing import readable
from minidlc.tuned import Update
from minidlc.tuning.model_tuner import Step
from minidlc.tuning.outcome import Tuning
from minidlc.tuning.records import llvm_version
from minidlc.viz.page import check_page
from minidlc.viz.tuning_report import write_report

INTERRUPTED = 130  # exit status after Ctrl-C, as shells have it
_SHOWN = 24  # kernels in the table; the rest is counted


@app.command()
def tune(
    model: Model,
    minutes: Annotated[
        float | None, typer.Option(help="time for everything (default: 5, or none with --trials)")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="trials for each kernel, in the mean")] = None,
    database: Annotated[Path, typer.Option(help="the file of records")] = Path("tune.jsonl"),
    threads: Annotated[int, typer.Option(help="cores a call may use")] = 1,
    seed: Seed = 0,
    shape: Shapes = None,
    report: Annotated[Path | None, typer.Option(help="also write a page about it, .html")] = None,
) -> None:
    """Measure which schedules are fast for a model's kernels, and keep them in a file."""
    if report is not None:
        check_page(report)  # before minutes of measuring
        _check_apart(report, model, database)
    if minutes is None and trials is None:
        minutes = 5.0
    is_text = model.suffix == ".dlc"
    with Watch() as watch, watch.told_where():
        found = mc.tune(
            load(model, shape) if is_text else model,
            shapes=None if is_text else shapes_of(shape),
            trials=trials,
            minutes=minutes,
            database=database,
            seed=seed,
            threads=threads,
            progress=watch.hear,
        )
    out.print(str(found), markup=False)
    if database.exists():
        shapes = None if is_text else shapes_of(shape)
        out.print(_how_to_use(found, model, shapes), markup=False)
    else:
        out.print(f"nothing is on record: there is no {database}", markup=False)
    if report is not None and (found.results or not found.interrupted):
        options = {"--minutes": minutes, "--trials": trials, "--database": database}
        options |= {"--threads": threads, "--seed": seed, "--report": report}
        again = command_line(model, shape, options)
        written = write_report(found, report, environment=_environment(seed), command=again)
        out.print(f"wrote {written}", markup=False)
    if found.interrupted:
        raise typer.Exit(INTERRUPTED)


def _check_apart(report: Path, model: Path, database: Path) -> None:
    """OptionError (MDLC1024) for a page that would be written over the model or the records."""
    for other in (model, database):
        if report.resolve() == other.resolve():
            text = f"--report {str(report)!r} would be written over {str(other)!r}"
            raise OptionError(text, hint="--report report.html", code="MDLC1024")


def command_line(model: Path, shape: Sequence[str] | None, options: Mapping[str, object]) -> str:
    """The command with these options, quoted for a shell; an option that is None is left out."""
    words = ["minidlc", "tune", f"{model}"]
    for text in shape or ():
        words += ["--shape", text]
    for name, value in options.items():
        words += [] if value is None else [name, f"{value}"]
    return shlex.join(words)


def _environment(seed: int) -> dict[str, str]:
    """What a report says of the day, the seed and the machine."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "seed": f"{seed}",
        "machine": platform.platform(),
        "LLVM": llvm_version(),
    }


def _how_to_use(found: Tuning, model: Path, shapes: Mapping[str, object] | None) -> str:
    """The call that compiles with what was found, as Python has it."""
    path, file = (json.dumps(f"{p}", ensure_ascii=False) for p in (model, found.database))
    sizes = f", shapes={dict(shapes)!r}" if shapes else ""
    return f"use it:  mc.compile({path}{sizes}, threads={found.threads}, database={file})"


@dataclass
class _Row:
    """A task as it is watched."""

    step: Step
    fates: Counter[str] = field(default_factory=Counter[str])

    @property
    def ratio(self) -> float:
        """The least seconds over those of the first trial, which is the default."""
        return self.step.best / self.step.first if math.isfinite(self.step.first) else math.nan


class Watch:
    """What is on the screen while a model is tuned; a context manager."""

    def __init__(self) -> None:
        self.rows: dict[str, _Row] = {}
        self.phase = ""
        self.note = ""
        self.end: float | None = None  # of the time there is, by time.monotonic
        self.live = None
        if out.is_terminal:
            self.live = Live(
                console=out, refresh_per_second=4, transient=True, get_renderable=self.picture
            )

    def __enter__(self) -> Watch:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    @contextmanager
    def told_where(self) -> Generator[None]:
        """After an interrupt that leaves no result: say where it was, exit with 130."""
        try:
            yield
        except KeyboardInterrupt:
            text = "nothing was measured yet; what was compiled is in the cache"
            if self.rows:
                text = "what was measured by then is in the database"
            out.print(f"stopped in the phase {self.phase or 'load'!r}: {text}", markup=False)
            raise typer.Exit(INTERRUPTED) from None

    def hear(self, update: Update) -> None:
        """A phase has begun, it is at something else, or a trial has ended."""
        begun = (update.phase, update.note) != (self.phase, self.note) and not update.step
        self.phase, self.note = update.phase, self.note if update.step else update.note
        self.end = None if update.left is None else time.monotonic() + update.left
        gained = bool(update.step) and self._count(update.step)
        if self.live:
            return  # it draws the picture by itself, so the time runs down in every phase
        if begun:
            out.print(self._head(), markup=False)
        elif gained and update.step:
            out.print(_line(update.step), markup=False)

    def _count(self, step: Step | None) -> bool:
        """Enter a trial; True if none of its kernel was faster so far."""
        if step is None:
            return False
        key = step.task.key
        row = self.rows.setdefault(key, _Row(step))
        before = row.step.best if row.fates else math.inf
        row.step = step
        row.fates[str(step.trial.fate)] += 1
        return step.best < before

    def picture(self) -> Group:
        """Phase, time left, and a row for each kernel, those that gain most first."""
        table = Table(box=None, pad_edge=False)
        for name in ("kernel", "calls", "trials", "default", "best", "ratio", "fates"):
            table.add_column(name, justify="left" if name in ("kernel", "fates") else "right")
        rows = sorted(self.rows.values(), key=lambda r: -_saved(r.step))
        for row in rows[:_SHOWN]:
            table.add_row(*_cells(row))
        hidden = len(rows) - _SHOWN
        more = [Text(f"… and {hidden} kernels more")] if hidden > 0 else []
        return Group(Text(self._head()), table, *more)

    def _head(self) -> str:
        """'compile layout(block=8), 281 s left'."""
        phase = f"{self.phase} {self.note}".strip()
        if self.end is None:
            return phase
        return f"{phase}, {max(0.0, self.end - time.monotonic()):.0f} s left"


def _saved(step: Step) -> float:
    known = math.isfinite(step.first)
    return step.task.count * (step.first - step.best) if known else 0.0


def _cells(row: _Row) -> tuple[str, ...]:
    step = row.step
    times = [readable(s) if math.isfinite(s) else "–" for s in (step.first, step.best)]
    ratio = f"{row.ratio:.2f}" if math.isfinite(row.ratio) else "–"
    counts = ", ".join(f"{n} {fate}" for fate, n in sorted(row.fates.items()))
    name = step.task.names[0][:40]
    return (name, str(step.task.count), str(step.trials), *times, ratio, counts)


def _line(step: Step) -> str:
    name, trial = step.task.names[0], step.trial
    return f"  {name}: trial {step.trials}, {readable(step.best)} with {trial.config}"
