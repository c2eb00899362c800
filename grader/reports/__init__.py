"""Results as other programs and people read them: one module a format.

    write(klass, "gradescope", Path("out"))         # out/ADA/results.json, one folder a student
    write(klass, "canvas", Path("out"), roster)     # out/canvas.csv

Reads graded Results; runs nothing. A result that a fault of the grader touched has no score yet:
no format writes 0 for it. Every file is written beside its place and then moved, so that a reader
never sees half of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from grader.reports import canvas, gradescope, html, junit, moodle, table
from grader.reports.klass import Class, Roster

WRITERS: dict[str, Callable[[Class, Path, Roster | None], list[Path]]] = {
    "gradescope": gradescope.write,
    "junit": junit.write,
    "canvas": canvas.write,
    "moodle": moodle.write,
    "csv": table.write,
    "html": html.write,
}


def write(klass: Class, format: str, out: Path, roster: Roster | None = None) -> list[Path]:
    """Write one format under `out`; returns the files. KeyError for an unknown format."""
    out.mkdir(parents=True, exist_ok=True)
    return WRITERS[format](klass, out, roster)
