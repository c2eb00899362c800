"""The command that looks after tuning records: what a file knows, joining files, cutting them down.

    minidlc records tune.jsonl                      # each kernel: what won, how fast it is, fates
    minidlc records tune.jsonl --wide               # also its id, shapes and knobs
    minidlc records tune.jsonl --best               # only what `mc.compile(database=…)` would use
    minidlc records tune.jsonl --merge other.jsonl --prune 8

Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from minidlc.cli.common import app, out
from minidlc.support.timing import readable
from minidlc.target import host
from minidlc.tuning.database import Database, best_of, existing, why_default
from minidlc.tuning.lookup import foreign_machine
from minidlc.tuning.records import Record
from minidlc.tuning.trial import Fate, fates

_SHOWN = 20  # lines that are refused
_WIDE = ("record", "kernel", "shapes", "threads", "point", "time", "ratio", "trials")
_NARROW = ("kernel", "threads", "time", "ratio", "way", "trials")  # of `_WIDE`; a way has no knobs
_WHOLE = ("record", "threads", "time", "ratio")  # columns that are never broken


@app.command()
def records(
    file: Annotated[Path, typer.Argument(help="a file of tuning records, one a line")],
    merge: Annotated[
        list[Path] | None, typer.Option(help="add the records of another file; may be repeated")
    ] = None,
    prune: Annotated[
        int | None,
        typer.Option(help="keep so many trials of each kernel, and nothing that is refused"),
    ] = None,
    best: Annotated[
        bool, typer.Option("--best", help="only kernels that a compilation would tune")
    ] = False,
    wide: Annotated[
        bool, typer.Option("--wide", help="also ids, shapes and knobs: for wide terminals")
    ] = False,
) -> None:
    """Show what a file of tuning records knows: a row for each kernel, and the refused lines."""
    database = existing(file, "records")
    if merge:
        out.print(f"{database.merge(*merge)} records added", markup=False)
    if prune is not None:
        out.print(f"{database.prune(prune)} lines taken away", markup=False)
    out.print(_table(database, best, _WIDE if wide else _NARROW))
    out.print(repr(database), markup=False)
    for refused in database.refused[:_SHOWN]:
        out.print(f"refused {refused}", markup=False)
    if len(database.refused) > _SHOWN:
        out.print(f"… and {len(database.refused) - _SHOWN} more", markup=False)


def _table(database: Database, best_only: bool, columns: Sequence[str]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name in _WHOLE)
    for found in database.workloads().values():
        winner = best_of(found)
        if winner is not None or not best_only:
            cells = _cells(found, winner)
            table.add_row(*(Text(cells[name]) for name in columns))  # names may look like markup
    return table


def _cells(found: list[Record], winner: Record | None) -> dict[str, str]:
    """A kernel by column: its best record, or what is known instead, and how its trials ended.

    The ratio is that of the re-check: times of a search are of different moments.
    """
    first, trials = found[0], [r.trial for r in found if not r.is_check]
    work = first.workload
    shapes = f"{', '.join(first.inputs)} → {', '.join(first.outputs)}"
    shapes = shapes if first.outputs else "a whole model"
    ends = ", ".join(f"{count} {fate}" for fate, count in fates(trials).items())
    if other := foreign_machine(work.target, host()):
        ends += f"; {other}"
    if winner is None:
        known, point, way, time, ratio = "", why_default(found), _why(found), "", ""
    else:
        known, point, way = winner.id, str(winner.config), winner.config.way
        time = readable(winner.trial.cost)
        ratio = "" if winner.ratio is None else f"{winner.ratio:.2f}"
    row = known, first.op, shapes, f"{work.threads}", point, time, ratio, ends
    return {**dict(zip(_WIDE, row, strict=True)), "way": way}


def _why(found: list[Record]) -> str:
    """Why the default is taken, in few words."""
    final = next((r for r in reversed(found) if r.is_check), None)
    if final is not None:
        return f"default; winner lost {final.trial.by}" if final.trial.reason else "default is best"
    return "no final yet" if any(r.trial.fate is Fate.OK for r in found) else "default; all failed"
