"""Submissions that an assignment must grade in a known way, made from the reference solution.

    probes = wrong(author) + right(author) + broken(author) + shipped(author) + mutated(author, 12)
    for probe, result in run(author, probes, jobs=2): …

A probe replaces one solution cell and says which tasks are graded. Reads the assignment's folder
and its release; student code runs in workers only. What must come out is said in `check.py`.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.files import read_text
from grader.grading import Grader, Options
from grader.jobs import executor
from grader.model import Assignment, Result, Task
from grader.mutants import all_mutants, sample
from grader.notebook import Notebook, instructor, read
from grader.sandbox import best
from grader.workers import servers_for

OPTIONS = Options(seed="check")
_FAILS = re.compile(r"#\s*fails:\s*(.*)")
_MOST_CANDIDATES = 3  # functions of a withheld module that are tried
_LEAST_SECONDS = 2.0  # for a mutant, or as many times the reference's own time:
_TIMES = 8


@dataclass(frozen=True)
class Author:
    """An assignment, the blank notebook of its release, and the reference solution in it."""

    assignment: Assignment
    blank: Notebook
    reference: Notebook

    @staticmethod
    def of(assignment: Assignment, built: Path) -> Author:
        """Solutions put back into the released notebook."""
        blank = read(built / "assignment.ipynb")
        own = {cell.grade_id: cell.source for cell in instructor(assignment.folder).cells}
        reference = blank
        for task in parts(assignment):
            reference = reference.with_cell(cell_of(task), own[cell_of(task)])
        return Author(assignment, blank, reference)

    def source(self, task: Task) -> str:
        """The reference solution of a task."""
        cells = {cell.grade_id: cell.source for cell in self.reference.cells}
        return cells[cell_of(task)]


@dataclass(frozen=True)
class Probe:
    """One submission: the reference with one cell replaced."""

    task: Task  # whose cell
    name: str  # "wrong/1_2_no_ties.py", "line 4: < → <="
    source: str
    graded: tuple[str, ...]  # ids of tasks
    quick: bool = False  # shorter deadline, and stop at the first test that does not pass


def parts(assignment: Assignment) -> list[Task]:
    """The tasks that have a function of their own."""
    return [task for task in assignment.tasks if not task.end_to_end]


def cell_of(task: Task) -> str:
    """The grade_id of the solution cell."""
    return f"task-{task.id.replace('.', '-')}"


def wrong(author: Author) -> list[Probe]:
    """`wrong/*.py`, each graded in the tasks that it must fail."""
    return list(_files(author, "wrong"))


def right(author: Author) -> list[Probe]:
    """`right/*.py`."""
    return list(_files(author, "right"))


def _files(author: Author, kind: str) -> Iterator[Probe]:
    tasks = {task.id: task for task in parts(author.assignment)}
    for path in sorted((author.assignment.folder / kind).glob("*.py")):
        id = ".".join(path.stem.split("_")[:2])
        if id not in tasks:
            raise ValueError(f"{kind}/{path.name}: there is no task {id!r} with a function")
        source = read_text(path)
        stated = _FAILS.match(source)
        graded = tuple(dict.fromkeys([id, *(stated[1].split() if stated else ())]))
        yield Probe(tasks[id], f"{kind}/{path.name}", source, graded, quick=kind == "wrong")


def broken(author: Author) -> list[Probe]:
    """Each function replaced by one that raises; graded in its task and end to end."""
    ends = tuple(task.id for task in author.assignment.tasks if task.end_to_end)
    text = 'def {}(*args, **kwargs):\n    raise RuntimeError("replaced")\n'
    return [
        Probe(task, f"{task.function} raises", text.format(task.function), (task.id, *ends))
        for task in parts(author.assignment)
    ]


def shipped(author: Author) -> list[Probe]:
    """The compiler's own functions in place of the student's, imported and pasted."""
    found: list[Probe] = []
    for task in parts(author.assignment):
        modules: dict[str, list[str]] = {}
        for part in task.withheld:
            module, _, name = part.partition(":")
            modules.setdefault(module, []).append(name)
        for module, names in modules.items():
            found += _shipped(task, module, names)
    return found


def _shipped(task: Task, module: str, names: list[str]) -> Iterator[Probe]:
    """For each candidate: imported as it is, and its source pasted under the student's name."""
    loaded: Any = importlib.import_module(module)
    if "" in names:  # the whole module
        text = inspect.getsource(loaded)
        names = _public_functions(text)[:_MOST_CANDIDATES]
    else:
        texts = [_source(loaded, name) for name in names]
        text = "\n\n".join([_ALL_NAMES.format(module), *texts])
    for name in names:
        imported = f"import {module} as _shipped\n{task.function} = _shipped.{name}\n"
        pasted = f"{text}\n\n{task.function} = {name.split('.')[-1]}\n"
        yield Probe(task, f"{module}:{name}, imported", imported, (task.id,), quick=True)
        yield Probe(task, f"{module}:{name}, pasted", pasted, (task.id,))


_ALL_NAMES = """\
import {0} as _shipped
globals().update({{k: v for k, v in vars(_shipped).items() if not k.startswith("__")}})"""


def _source(module: Any, name: str) -> str:
    """The source of a function or method of the module, without its indentation."""
    thing = module
    for part in name.split("."):
        thing = getattr(thing, part)
    return textwrap.dedent(inspect.getsource(inspect.unwrap(thing)))


def _public_functions(source: str) -> list[str]:
    found = [s.name for s in ast.parse(source).body if isinstance(s, ast.FunctionDef)]
    return [name for name in found if not name.startswith("_")] or found


def mutated(author: Author, count: int | None) -> list[Probe]:
    """Mutants of each reference solution, a seeded sample of `count`; None is all of them."""
    found: list[Probe] = []
    for task in parts(author.assignment):
        mutants = all_mutants(author.source(task))
        if count is not None:
            seed = zlib.crc32(f"{author.assignment.id} {task.id}".encode())
            mutants = sample(mutants, count, seed)
        found += [Probe(task, m.what, m.source, (task.id,), quick=True) for m in mutants]
    return found


def run(
    author: Author, probes: Sequence[Probe], times: dict[str, float], overlays: Path, jobs: int
) -> list[tuple[Probe, Result]]:
    """Grade all probes; those of one task in one process, so that its server starts once.

    `times`: seconds that the reference takes, by task. `overlays`: of `workers.shared`.
    """
    shares = _shares(probes, times, max(1, jobs))
    if len(shares) == 1:
        lists = [_run_share(author, shares[0], times, overlays)]
    else:
        with executor(len(shares)) as (pool, _):
            waiting = [pool.submit(_run_share, author, s, times, overlays) for s in shares]
            lists = [future.result() for future in waiting]
    done = {probe: result for share in lists for probe, result in share}
    return [(probe, done[probe]) for probe in probes]


def _shares(probes: Sequence[Probe], times: dict[str, float], jobs: int) -> list[list[Probe]]:
    """The probes in at most `jobs` shares of about equal time."""
    by_task: dict[str, list[Probe]] = {}
    for probe in probes:
        by_task.setdefault(probe.task.id, []).append(probe)
    shares: list[tuple[float, list[Probe]]] = [(0.0, []) for _ in range(min(jobs, len(by_task)))]
    cost = {id: len(group) * times.get(id, 1.0) for id, group in by_task.items()}
    for id in sorted(by_task, key=lambda id: -cost[id]):
        least = min(range(len(shares)), key=lambda i: shares[i][0])
        seconds, share = shares[least]
        shares[least] = (seconds + cost[id], share + by_task[id])
    return [share for _, share in shares]


def _run_share(
    author: Author, probes: list[Probe], times: dict[str, float], overlays: Path
) -> list[tuple[Probe, Result]]:
    short = dataclasses.replace(author.assignment, tasks=tuple(_quick(author, times)))
    with servers_for(author.assignment, best(), overlays) as servers:
        whole = Grader(author.assignment, OPTIONS, servers)
        quick = Grader(short, OPTIONS, servers)
        quick.stop_early = True
        return [
            (probe, grade(quick if probe.quick else whole, author.reference, probe))
            for probe in probes
        ]


def _quick(author: Author, times: dict[str, float]) -> Iterable[Task]:
    """The tasks with the deadline for what may hang."""
    for task in author.assignment.tasks:
        seconds = max(_LEAST_SECONDS, _TIMES * times.get(task.id, task.seconds))
        yield dataclasses.replace(task, seconds=min(task.seconds, seconds))


def grade(grader: Grader, reference: Notebook, probe: Probe) -> Result:
    """The result of one probe."""
    book = reference.with_cell(cell_of(probe.task), probe.source)
    return grade_tasks(grader, book, probe.graded)


def grade_tasks(grader: Grader, book: Notebook, tasks: tuple[str, ...]) -> Result:
    """The result of these tasks alone; () is all."""
    grader.options = dataclasses.replace(grader.options, tasks=tasks)
    return grader.grade_notebook(book, "check")
