"""Gradescope: `results.json` of each student, and the zip that grades there.

    write(klass, Path("out"))                       # out/ADA/results.json
    autograder_zip(project, folder, Path("a1.zip")) # setup.sh, run_autograder, the sources

The format: Gradescope, "Autograder specifications", output format. A result without a score (a
fault of the grader) is written without `score` and `tests`: Gradescope then reports a failed run.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

from grader.files import put
from grader.model import Result, Status, TaskResult
from grader.reports.klass import Class, Roster, feedback, file_name

_SKIPPED = {"__pycache__", "tests", "benchmarks", ".ipynb_checkpoints"}
_DATE = (2020, 1, 1, 0, 0, 0)  # the same bytes whenever it is built


def write(klass: Class, out: Path, roster: Roster | None = None) -> list[Path]:
    """One folder a student with its results.json."""
    return [
        put(out / file_name(r.student) / "results.json", results_json(r)) for r in klass.results
    ]


def results_json(result: Result) -> str:
    """The text of results.json."""
    return json.dumps(_results(result), ensure_ascii=False, indent=2) + "\n"


def _results(result: Result) -> dict[str, Any]:
    shared: dict[str, Any] = {
        "execution_time": round(result.times.get("wall", 0.0)),
        "output": _output(result),
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "extra_data": {"isolation": result.isolation, "assignment": result.assignment},
    }
    if not result.counts:
        return shared
    tests = [_test(task) for task in result.tasks]
    return {"score": result.score, **shared, "tests": tests, "leaderboard": []}


def _output(result: Result) -> str:
    if not result.counts:
        return "Not graded yet: the grader failed, which is not your fault. Please tell the staff."
    lines = [result.error] if result.error else []
    lines += [result.late] if result.late else []
    lines += ["Public checks only."] if result.public_only else []
    return "\n".join(lines)


def _test(task: TaskResult) -> dict[str, Any]:
    return {
        "score": task.earned,
        "max_score": task.points,
        "status": "passed" if task.status == Status.PASSED else "failed",
        "name": task.title,
        "number": task.id,
        "output": "\n".join(feedback(task)),
        "output_format": "text",
        "tags": [],
        "visibility": "visible",
        "extra_data": {"calls_reported_by_submission": task.calls},  # it can be faked
    }


SETUP = """#!/usr/bin/env bash
# Run once when Gradescope builds the image.
set -euo pipefail
cd /autograder/source
apt-get update -qq && apt-get install -y -qq python3 python3-venv
python3 -m venv .venv
.venv/bin/python -m pip install -q .
"""

RUN = """#!/usr/bin/env bash
# Run for each submission; Gradescope reads /autograder/results/results.json.
set -euo pipefail
work=$(mktemp -d)
mkdir -p "$work/submissions"
cp -r /autograder/submission "$work/submissions/student"
cd /autograder/source
grader=".venv/bin/python -m grader"
$grader grade assignments/{name} "$work/submissions" --out "$work/results" --jobs 1
$grader report "$work/results" --format gradescope --out "$work/out"
mkdir -p /autograder/results
cp "$work/out/student/results.json" /autograder/results/results.json
rm -rf "$work"
"""


def autograder_zip(project: Path, assignment: Path, target: Path) -> Path:
    """The zip to upload: scripts, compiler, grader and one assignment with its hidden tests."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "setup.sh", SETUP.encode(), executable=True)
        _add(archive, "run_autograder", RUN.format(name=assignment.name).encode(), executable=True)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            _add(archive, name, (project / name).read_bytes())
        for package in ("minidlc", "grader"):
            for path in _files(project / package, _SKIPPED):
                _add(archive, path.relative_to(project).as_posix(), path.read_bytes())
        for path in _files(assignment, {"__pycache__", "wrong", "right", ".ipynb_checkpoints"}):
            name = f"assignments/{assignment.name}/{path.relative_to(assignment).as_posix()}"
            _add(archive, name, path.read_bytes())
    return put(target, buffer.getvalue())


def _files(folder: Path, skipped: set[str]) -> list[Path]:
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return [p for p in found if not skipped.intersection(p.relative_to(folder).parts)]


def _add(archive: zipfile.ZipFile, name: str, data: bytes, *, executable: bool = False) -> None:
    info = zipfile.ZipInfo(name, _DATE)
    info.external_attr = (0o755 if executable else 0o644) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, data)
