"""The attack table: what a submission does, and the points that it deserves.

    case = load_cases()["endless_loop"]
    case.task, case.deserved, case.status           # '9.1', 0.0, 'timeout'

The attacked assignment stands in `assignment/`: four tasks of ten points. Each file of `table/` is
the cell of one task. Its first lines say which, how many of the ten points it deserves, the status
of its first row that did not pass, and the isolation level without which it is not stopped for
certain. The other tasks are right, and get full marks whatever the case does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE / "assignment"
FULL = 10.0


@dataclass(frozen=True)
class Case:
    """One attack: a cell in place of the right one."""

    name: str
    task: str
    source: str
    deserved: float
    status: str = ""
    needs: str = ""


def load_cases() -> dict[str, Case]:
    """All cases by file name."""
    return {path.stem: _read(path) for path in sorted((HERE / "table").glob("*.py"))}


def _read(path: Path) -> Case:
    source = path.read_text(encoding="utf-8")
    said = dict(re.findall(r"^# (task|deserves|status|needs): (.*)$", source, re.MULTILINE))
    return Case(
        path.stem,
        said["task"],
        source,
        float(said["deserves"]),
        said.get("status", ""),
        said.get("needs", ""),
    )
