"""At home: the public tests of a task, from the notebook, on Linux, macOS and Windows.

    check_here("1.2")                               # what is right, first failures, picture, hint
    checked("1.2", Path("dist/a1_graph_ir"), book).text()        # the same as text
    keep("1.2")                                     # mystack/part_1_2.py

Reads the cells that were run in this notebook (IPython's `In`), or the notebook's file where no
IPython runs. The code runs in a plain child process (`plain.py`). How a submission is graded stands
in `grading.py`.
"""

from __future__ import annotations

import html
import importlib
import itertools
import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import minidlc as mc
from grader import notebook
from grader.collect import BrokenTests, Tests
from grader.files import glue_of
from grader.manifest import FILE, ManifestError, load
from grader.model import Assignment, Status, Task, TaskResult
from grader.notebook import Cell, Notebook, SubmissionError
from grader.plain import PlainWorkers
from grader.program import Program, make_parts, study
from grader.reports.klass import grouped
from grader.runner import TaskRun
from minidlc import stack
from minidlc.support.errors import CompileError, nearest

MAX_LINES = 30
PATIENCE = 3  # times the deadline of grading: a laptop may be slow, and busy
MAX_GOOD = 10  # lines on what is right
MIN_FIRST = 8  # lines for the first failure, if it has them
MAX_PRINTED = 5  # lines of what the code printed
_HANGING = "margin:2px 0 2px 1.4em;text-indent:-1.4em;white-space:normal;word-break:normal"
_TYPED = (
    "margin:2px 0 4px 1.4em;padding:4px 8px;border-left:3px solid #8884;font-family:monospace;"
    "white-space:pre-wrap;word-break:normal;overflow-wrap:break-word"
)
_COLOURS = {"✓": "#1a8a5a", "✗": "#d0591f"}  # readable on light and on dark pages
_CODE = re.compile("`([^`]+)`")
_LIMITS = "Public tests only; more run when it is handed in. Limit here: {seconds:g} s, no other."


class HomeError(Exception):
    """Nothing can be checked or kept; the text is one sentence for the student."""


def check_here(task: str, folder: str | Path | None = None) -> None:
    """Show what the public tests say; a notebook shows a table and a picture, a terminal text."""
    try:
        result = checked(task, _folder(folder), cells_here(folder))
    except (HomeError, SubmissionError, ManifestError) as error:
        print(f"check_here({task!r}): {error}")
        return
    if _shell() is None:
        print(result.text())
    else:
        display: Any = importlib.import_module("IPython.display")
        display.display(result)


@dataclass(frozen=True)
class Checked:
    """What came of the public tests of a task."""

    task: Task
    result: TaskResult
    limits: str = field(default="")

    def lines(self) -> list[str]:
        """At most MAX_LINES: what is right, then what is not, then one hint."""
        groups = grouped(self.result.rows)
        good = [f"  ✓ {g.claim}" for g in groups if g.first.status == Status.PASSED]
        if len(good) > MAX_GOOD:
            good = [*good[: MAX_GOOD - 1], f"  ✓ and {len(good) - MAX_GOOD + 1} more"]
        head = [self.headline, self._found, *good]
        hint = [f"  hint: {self.result.hint}"] if self.result.hint else []
        tail = [*self._printed(), *hint, f"  {self.limits}"]
        bad = [g.lines() for g in groups if g.first.status != Status.PASSED]
        fitted = _fitted(bad, MAX_LINES - len(head) - len(tail))
        return [*head, *(f"  {line}" for line in fitted), *tail]

    @property
    def headline(self) -> str:
        """'1.2 A topological order: 3 of 4 public tests pass'."""
        rows = self.result.rows
        passed = sum(row.status == Status.PASSED for row in rows)
        if len(rows) == 1:
            said = "the public test passes" if passed else "the public test does not pass yet"
        else:
            count = f"all {len(rows)}" if passed == len(rows) else f"{passed} of {len(rows)}"
            said = f"{count} public tests pass"
        return f"{self.task.id} {self.task.title}: {said}"

    @property
    def _found(self) -> str:
        calls = self.result.calls
        ran = f", and ran {calls} time{'s' * (calls != 1)}" if calls else ""
        return f"  ✓ {self.task.function or 'every part'} is defined{ran}"

    def text(self) -> str:
        """For a terminal."""
        return "\n".join(self.lines())

    def picture(self) -> Any:
        """Expected graph and the student's, of the first failure that has both; or None."""
        for row in self.result.rows:
            if row.expected and row.yours:
                try:
                    return mc.viz.difference(mc.parse(row.expected), mc.parse(row.yours))
                except CompileError:
                    pass  # large constants do not stand in the text: it is shown instead
        return None

    def _printed(self) -> list[str]:
        lines = self.result.output.splitlines()
        shown = [f"  printed: {line[:100]}" for line in lines[:MAX_PRINTED]]
        rest = len(lines) - MAX_PRINTED
        return [*shown, f"  printed: … {rest} more lines"] if rest > 0 else shown

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """For Jupyter: the lines in the page's colours, then the picture."""
        head, *lines = self.lines()
        parts = [f'<p style="font-weight:bold;margin:0">{html.escape(head)}</p>', _page(lines)]
        picture = self.picture()
        if picture is not None:
            parts.append(picture._repr_mimebundle_()["text/html"])
        return {"text/html": "\n".join(parts), "text/plain": self.text()}


def _page(lines: list[str]) -> str:
    """Sentences as text that hangs from its mark, what lies deeper as typewriter lines."""
    parts: list[str] = []
    for margin, some in itertools.groupby(lines, _margin):
        if margin:
            body = "\n".join(html.escape(line[margin:]) for line in some)
            parts.append(f'<pre style="{_TYPED}">{body}</pre>')
        else:
            parts += [f'<div style="{_HANGING}">{_sentence(line.strip())}</div>' for line in some]
    return "\n".join(parts)


def _margin(line: str) -> int:
    """How far a typewriter line is indented; 0 for a sentence."""
    if line.startswith("  printed: "):
        return 2
    return 6 if line[:6].isspace() else 0


def _sentence(line: str) -> str:
    """Marks in colour, `code` in typewriter letters."""
    text = _CODE.sub(r'<code style="font-family:monospace">\1</code>', html.escape(line))
    colour = _COLOURS.get(line[:1])
    return f'<b style="color:{colour}">{text[0]}</b>{text[1:]}' if colour else text


def _fitted(blocks: list[list[str]], room: int) -> list[str]:
    """The first failure with its details, of the others what was asked and what was seen."""
    if not blocks:
        return []
    others: list[str] = []
    for number, block in enumerate(blocks[1:], 1):
        if len(others) + 2 > room - MIN_FIRST:
            others.append(f"✗ and {len(blocks) - number} more")
            break
        others += block[:2]
    first, free = blocks[0], room - len(others)
    return [*(first if len(first) <= free else [*first[: free - 1], "    …"]), *others]


def checked(task: str, folder: Path, book: Notebook) -> Checked:
    """Run the public tests. Raises HomeError, ManifestError, SubmissionError."""
    assignment = load(folder)
    found = _task(assignment, task)
    found = replace(found, seconds=PATIENCE * found.seconds)
    program = _program(assignment, found, book)
    if program.missing:
        names = ", ".join(program.functions[id] for id in program.missing)
        raise HomeError(f"{names} is not defined yet; run the cell that defines it first")
    if not found.public_tests:
        raise HomeError("this task has no public tests; it is tested when it is handed in")
    try:
        tests = Tests(assignment, public_only=True).of(found)
    except BrokenTests as error:
        raise HomeError(f"the public tests were changed: {error}") from None
    glue = glue_of(folder)
    result = TaskRun(found, tests, program, glue, PlainWorkers(), seed=0).run()
    if any(row.status == Status.MISSING for row in result.rows):
        name = found.function or "one of the parts"
        raise HomeError(f"{name} is not a function; run the cell that defines it with def")
    faults = [row.private for row in result.rows if row.status == Status.GRADER_ERROR]
    if faults:
        raise HomeError(f"the checks could not run here: {faults[0].splitlines()[-1]}")
    return Checked(found, result, _LIMITS.format(seconds=found.seconds))


def keep(task: str, folder: str | Path | None = None) -> None:
    """Write the part and say where; what is wrong is said in one sentence."""
    try:
        place, book = _folder(folder), cells_here(folder)
        path = kept(task, place, book)
    except (HomeError, SubmissionError, ManifestError) as error:
        print(f"keep({task!r}): {error}")
        return
    print(f"kept: {path}")
    print(_state(task, place, book))
    try:
        print(stack.load(path.parent))
    except CompileError as error:
        print(error)


def _state(task: str, folder: Path, book: Notebook) -> str:
    """What the public tests say of a part that was kept; a wrong part is kept as well."""
    try:
        result = checked(task, folder, book)
    except (HomeError, SubmissionError) as error:
        return f"not checked: {error}"
    if result.result.status == Status.PASSED:
        return result.headline
    return f"{result.headline}. It is kept as it is: check_here({task!r}) says what is wrong."


def kept(task: str, folder: Path, book: Notebook) -> Path:
    """Write `mystack/part_1_2.py` from the cells that the task's function needs."""
    assignment = load(folder)
    found = _task(assignment, task)
    if not found.extension:
        raise HomeError("this part runs nowhere in the compiler by itself: nothing to keep")
    program = _program(assignment, found, book)
    if program.missing:
        raise HomeError(f"{found.function} is not defined yet; run the cell that defines it first")
    mystack = folder / "mystack"
    mystack.mkdir(exist_ok=True)
    known = [e for e in stack.read_index(mystack) if e.task not in {t.id for t in assignment.tasks}]
    entries = [stack.Entry(t.id, t.title, t.extension) for t in assignment.tasks if t.extension]
    stack.write_index(mystack, [*known, *entries])
    path = mystack / f"part_{task.replace('.', '_')}.py"
    path.write_text(_part(assignment, found, program), encoding="utf-8", newline="\n")
    return path


def _part(assignment: Assignment, task: Task, program: Program) -> str:
    """The text of a part: its cells, and where it runs."""
    where = "\n".join(f"    {point!r}: {task.function}," for point in task.extension)
    return "\n\n\n".join(
        [
            f'"""{task.id} {task.title}, of assignment {assignment.id}. Yours to change."""',
            *(source.strip("\n") for _, source in program.cells),
            f"PARTS = {{\n{where}\n}}\n",
        ]
    )


def cells_here(folder: str | Path | None = None) -> Notebook:
    """The cells run so far in this notebook, else those of the notebook file in the folder."""
    shell = _shell()
    if shell is not None:
        return history([str(source) for source in shell.user_ns.get("In", [])])
    return notebook.read(notebook.find(_folder(folder), "assignment"))


def history(sources: list[str]) -> Notebook:
    """Cells in the order in which they ran, without those whose names were all defined anew."""
    kept_cells: list[Cell] = []
    anew: set[str] = set()  # names that a later cell defines without reading them
    for position, source in reversed(list(enumerate(sources))):
        names = study(source)
        replaced = names.binds and not names.changes and names.binds <= anew
        if source.strip() and not replaced:
            kept_cells.insert(0, Cell(True, source, position=position))
            anew = (anew | names.binds) - names.needs - names.changes
    return Notebook(tuple(kept_cells))


def _program(assignment: Assignment, task: Task, book: Notebook) -> Program:
    """The cells of that task; the setup cell is the assignment's own, if its notebook is there."""
    try:
        own = notebook.instructor(assignment.folder)
    except (FileNotFoundError, SubmissionError):
        own = Notebook(())  # renamed, or being written: the setup cell was run here as well
    return make_parts(book, own, assignment).program(task)


def _task(assignment: Assignment, id: str) -> Task:
    try:
        return assignment.task(id)
    except KeyError:
        hint = nearest(id, [task.id for task in assignment.tasks])
        raise HomeError(f"{assignment.id} has no task {id!r}; {hint}") from None


def _folder(folder: str | Path | None) -> Path:
    """The folder of the assignment: the one given, or the nearest that holds a manifest."""
    here = Path(folder) if folder is not None else Path.cwd()
    for place in (here, *(here.resolve().parents if folder is None else ())):
        if (place / FILE).exists():
            return place
    raise HomeError(
        f"there is no {FILE} in {here}; give the assignment's folder as second argument"
    )


def _shell() -> Any:
    """The running IPython, or None."""
    module: Any = sys.modules.get("IPython")
    return module.get_ipython() if module is not None else None
