"""Is an assignment fit to be released? Every line of the contract, with what was measured.

    check(Path("assignments/a1_graph_ir"), Console())           # True, and a table
    ✓ reference 100          96 of 96 points, 61 rows as in the manifest, every function called
    ✗ mutants                killed 78 of 96 (81 %), 85 % are asked for

Builds the release, grades what is known (`probes.py`), and compares. What fails is listed under the
table. The contract stands in the docs (docs/teaching.md). Runs author's code here, submissions in
workers.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import minidlc as mc
from grader import home, probes
from grader.grading import Grader
from grader.manifest import load
from grader.model import Assignment, Result, Status, Task, TaskResult
from grader.probes import OPTIONS, Author, Probe, parts
from grader.release import ReleaseError, release
from grader.reports.klass import feedback, number
from grader.sandbox import best
from grader.workers import servers_for, shared
from minidlc import stack
from minidlc.graph import Value, load_text, save_text
from minidlc.support.errors import CompileError
from minidlc.support.extension import counting

MODEL = Path(mc.__file__).parent / "models" / "mnist_cntk.onnx"
_MOST_LINES = 30  # of what a student reads about one task
_OF_THE_GRADER = ("Traceback", "grader/", "grader.", "site-packages")


@dataclass(frozen=True)
class Bars:
    """What is asked for."""

    wrong: int = 6  # wrong solutions for each task
    right: int = 2
    killed: float = 0.85  # of the mutants
    mutants: int | None = 12  # tried for each task; None is all there are


@dataclass
class Line:
    """One line of the contract."""

    name: str
    measured: str
    faults: list[str] = field(default_factory=list[str])


Outcome = Sequence[tuple[Probe, Result]]


def check(
    folder: Path,
    out: Console,
    bars: Bars | None = None,
    *,
    all_mutants: bool = False,
    jobs: int = 2,
) -> bool:
    """Print the table; True if every line holds. Raises ManifestError."""
    assignment = load(folder)
    bars = bars or Bars()
    if all_mutants:
        bars = dataclasses.replace(bars, mutants=None)
    lines: list[Line] = []
    with tempfile.TemporaryDirectory() as scratch:
        try:
            built = release(folder, Path(scratch))
        except ReleaseError as error:
            _show(out, assignment, [Line("release", "it cannot be built", error.faults)])
            return False
        lines.append(_built(built))
        author = Author.of(assignment, built)
        with shared(assignment.tasks) as overlays:
            lines += _graded(author, overlays, bars, jobs)
        lines.append(_stack(author, built))
    _show(out, assignment, lines)
    return not any(line.faults for line in lines)


def _built(built: Path) -> Line:
    files = sum(path.is_file() for path in built.rglob("*"))
    return Line("release", f"built; {files} files without a leak, nbgrader's metadata valid")


def _graded(author: Author, overlays: Path, bars: Bars, jobs: int) -> list[Line]:
    """The lines for which submissions are graded."""
    with servers_for(author.assignment, best(), overlays) as servers:
        grader = Grader(author.assignment, OPTIONS, servers)
        reference = probes.grade_tasks(grader, author.reference, ())
        blank = probes.grade_tasks(grader, author.blank, ())
    lines = [_reference(author.assignment, reference), _claims(reference), _blank(blank)]
    if lines[0].faults:
        return lines  # all that follows is measured against the reference
    made = {
        _wrong: probes.wrong(author),
        _right: probes.right(author),
        _alive: probes.broken(author),
        _shipped: probes.shipped(author),
        _mutants: probes.mutated(author, bars.mutants),
    }
    times = {task.id: reference.times[f"task {task.id}"] for task in author.assignment.tasks}
    every = [probe for group in made.values() for probe in group]
    results = dict(probes.run(author, every, times, overlays, jobs))
    outcomes = {judge: [(p, results[p]) for p in group] for judge, group in made.items()}
    lines += [judge(author.assignment, found, bars) for judge, found in outcomes.items()]
    return [*lines, _teaching(outcomes[_wrong])]


def _reference(assignment: Assignment, result: Result) -> Line:
    stated = sum(task.public_tests + task.hidden_tests for task in assignment.tasks)
    rows = sum(len(task.rows) for task in result.tasks)
    faults = [_why(task) for task in result.tasks if task.earned != task.points]
    faults += [
        f"{task.id}: its function was never called" for task in result.tasks if not task.calls
    ]
    if rows != stated:
        faults.append(f"{rows} rows, the manifest states {stated}")
    points = f"{number(result.score)} of {number(assignment.points)} points"
    calls = sum(task.calls for task in result.tasks)
    measured = f"{points}; {rows} rows, manifest {stated}; functions called {calls} times"
    return Line("reference 100", measured, faults)


def _claims(result: Result) -> Line:
    every = [(task.id, row) for task in result.tasks for row in task.rows]
    rows = [(id, row) for id, row in every if row.status != Status.GRADER_ERROR]
    silent = [f"{id} {row.test}" for id, row in rows if not row.claim]
    text = f"{len(rows) - len(silent)} of {len(rows)} tests say what they ask"
    return Line("claims", text, [f"{test}: no docstring says what is asked" for test in silent])


def _blank(result: Result) -> Line:
    faults = [
        f"{task.id}: {number(task.earned)} points: {row.test} passes"
        for task in result.tasks
        for row in task.rows
        if row.status == Status.PASSED
    ]
    return Line("blank 0", f"{number(result.score)} points for the released notebook", faults)


def _wrong(assignment: Assignment, found: Outcome, bars: Bars) -> Line:
    unseen = [f"{p.name}: full marks in {t.id}" for p, r in found for t in r.tasks if _full(t)]
    count = sum(len(result.tasks) for _, result in found)
    text = f"{len(found)} solutions lose points in {count - len(unseen)} of {count} tasks named"
    faults = unseen + _ours(found) + _too_few(assignment, found, bars.wrong, "wrong")
    return Line("wrong ones lose", text, faults)


def _right(assignment: Assignment, found: Outcome, bars: Bars) -> Line:
    lost = [f"{p.name}: {_why(t)}" for p, r in found for t in r.tasks if not _full(t)]
    faults = lost + _ours(found) + _too_few(assignment, found, bars.right, "right")
    text = f"{len(found) - len(lost)} of {len(found)} get full marks"
    return Line("right ones 100", text, faults)


def _too_few(assignment: Assignment, found: Outcome, least: int, kind: str) -> list[str]:
    faults: list[str] = []
    for task in parts(assignment):
        count = sum(probe.task.id == task.id for probe, _ in found)
        if count < least:
            faults.append(f"{task.id}: {count} {kind} solutions, {least} are asked for")
    return faults


def _alive(assignment: Assignment, found: Outcome, bars: Bars) -> Line:
    ends = {task.id for task in assignment.tasks if task.end_to_end}
    faults = _ours(found)
    if not ends:
        faults.append("no task runs all parts end to end")
    for probe, result in found:
        for task in result.tasks:
            if task.id in ends and task.earned >= task.points:
                faults.append(f"{probe.name}: the end-to-end run {task.id} does not notice")
            if task.id not in ends and task.earned:
                passed = [row.test for row in task.rows if row.status == Status.PASSED]
                faults.append(f"{probe.name}: {', '.join(passed)} pass in {task.id}")
    text = f"{len(found)} functions replaced by raise"
    text += "" if faults else ": each scores 0 and breaks the end-to-end run"
    return Line("alive", text, faults)


def _shipped(assignment: Assignment, found: Outcome, bars: Bars) -> Line:
    faults = [f"{p.name}: full marks in {t.id}" for p, r in found for t in r.tasks if _full(t)]
    faults += _ours(found)
    tried = {probe.task.id for probe, _ in found}
    none = [task.id for task in parts(assignment) if task.id not in tried]
    best_share = max((t.earned / t.points for _, r in found for t in r.tasks), default=0.0)
    text = f"{len(found)} shipped functions imported or pasted; the best gets {best_share:.0%}"
    if none:
        text += f"; nothing withheld in {', '.join(none)}"
    return Line("not in the box", text, faults)


def _mutants(assignment: Assignment, found: Outcome, bars: Bars) -> Line:
    alive = [(probe, task) for probe, result in found for task in result.tasks if _full(task)]
    killed = len(found) - len(alive)
    share = killed / len(found) if found else 0.0
    faults = _ours(found)
    if share < bars.killed:
        faults.append(f"{share:.0%} killed, {bars.killed:.0%} are asked for; these live:")
        faults += [f"  {task.id} {probe.name}" for probe, task in alive]
    text = f"killed {killed} of {len(found)} ({share:.0%})"
    if alive and not faults:
        text += "; alive: " + ", ".join(f"{t.id} {p.name}" for p, t in alive[:3])
    return Line("mutants", text, faults)


def _teaching(found: Outcome) -> Line:
    """What a student with a wrong solution reads."""
    faults: list[str] = []
    longest = 0
    for probe, result in found:
        for task in result.tasks:
            lines = feedback(task)
            longest = max(longest, len(lines))
            text = "\n".join(lines)
            seen = [word for word in _OF_THE_GRADER if word in text]
            faults += [f"{probe.name}: {task.id} shows {word!r}" for word in seen]
            if not task.hint:
                faults.append(f"{probe.name}: {task.id} gives no hint")
    if longest > _MOST_LINES:
        faults.append(f"feedback of {longest} lines, {_MOST_LINES} are allowed")
    return Line("failures teach", f"at most {longest} lines, a hint each, no frame of ours", faults)


def _stack(author: Author, built: Path) -> Line:
    """Own parts up to a task, supplied ones beyond: the compiler must still be right."""
    tasks = [task for task in parts(author.assignment) if task.extension]
    faults: list[str] = []
    called: set[str] = set()
    try:
        for task in tasks:
            home.kept(task.id, built, author.reference)
        mine = stack.load(built / "mystack")
        expected = _compiled()
        for task in tasks:
            with mc.use(**mine.up_to(task.id).parts), counting() as calls:
                faults += _compare(task, expected, _compiled)
            called |= {point for point, count in calls.items() if count}
    except (home.HomeError, CompileError) as error:
        faults.append(str(error))
    idle = sorted({p for t in tasks for p in t.extension} - called)
    text = f"{len(tasks)} parts, added one by one: a digit classifier compiles to the same numbers"
    if idle:
        text += f"; it never calls {', '.join(idle)}"
    return Line("parts together", text, faults)


def _compare(task: Task, expected: np.ndarray, compiled: Callable[[], np.ndarray]) -> list[str]:
    try:
        got = compiled()
    except CompileError as error:
        return [f"with own parts up to {task.id}: {error}"]
    error = float(np.abs(got - expected).max())
    worst = 1e-4 * float(np.abs(expected).max())
    return [f"with own parts up to {task.id}: error {error:.3g}"] if not error <= worst else []


def _compiled() -> np.ndarray:
    """A packaged model through every stage, and a function traced: all numbers that come out."""
    graph = mc.load_onnx(MODEL)
    with tempfile.TemporaryDirectory() as folder:
        save_text(graph, Path(folder) / "model.dlc")
        graph = load_text(Path(folder) / "model.dlc")
    mc.verify(graph)
    with np.load(MODEL.with_name("mnist_cntk.case0.npz")) as case:
        (image,) = [case[name] for name in case.files if name.startswith("in::")]
    results = [*mc.interpret(graph, [image]), *mc.compile(graph, threads=1)(image)]
    traced = mc.trace(_formula, mc.f32[2, 3])
    results += mc.interpret(traced, [np.arange(6, dtype=np.float32).reshape(2, 3)])
    return np.concatenate([result.reshape(-1) for result in results])


def _formula(x: Value) -> Value:
    return mc.softmax(mc.relu(x + 1.0) * x)


def _full(task: TaskResult) -> bool:
    return task.earned >= task.points


def _ours(found: Outcome) -> list[str]:
    """Probes on which the grader itself stumbled: how many, and the first."""
    stumbled = [
        f"{probe.name}: {task.id} {row.test}: {row.private}"
        for probe, result in found
        for task in result.tasks
        for row in task.rows
        if row.status == Status.GRADER_ERROR
    ]
    return [f"the grader failed on {len(stumbled)} rows, first {stumbled[0]}"] if stumbled else []


def _why(task: TaskResult) -> str:
    row = next((r for r in task.rows if r.status != Status.PASSED), None)
    if row is None:
        return f"{task.id}: {number(task.earned)} of {number(task.points)} points"
    said = row.private or row.details or row.sentence
    return f"{task.id} {row.test} ({row.status}): {row.sentence} {said}".strip()


def _show(out: Console, assignment: Assignment, lines: list[Line]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for line in lines:
        table.add_row("✗" if line.faults else "✓", line.name, line.measured)
    out.print(f"{assignment.id}: {assignment.title}", markup=False)
    out.print(table)
    for line in lines:
        for fault in line.faults:
            out.print(f"✗ {line.name}: {fault}", markup=False)
