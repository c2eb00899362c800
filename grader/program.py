"""Which cells run for a task: its solution cell, the setup, and what these use, in notebook order.

    program = make_program(book, instructor_book, assignment, assignment.task("1.2"))
    program.cells                                   # [["cell setup", …], ["cell 1.2", …]]
    program.missing                                 # () or the ids whose function is not there

So another task's endless loop costs only that task. Reads sources with `ast` and `symtable`; runs
nothing. Locked cells (setup) are always the instructor's; what a student added to them runs as a
cell of their own. A function that is defined in several cells is the last one, as when the notebook
runs from top to bottom.
"""

from __future__ import annotations

import ast
import re
import symtable
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from grader.model import Assignment, Task
from grader.notebook import Cell, Notebook

SETUP = "setup"
_BOUND = re.compile(r"^(?:(?:async\s+)?def|class)\s+(\w+)|^(\w+)\s*=[^=]", re.MULTILINE)
_MAGIC = re.compile(r"^(\s*)(?:[%!?].*|(?:\w+\s*=\s*)?[%!].*|[\w.]+\?{1,2}\s*)$")
_PYTHON_MAGICS = ("%%time", "%%timeit", "%%capture", "%%prun")


@dataclass(frozen=True)
class Program:
    """What a worker gets for one task."""

    cells: list[list[str]]  # label, source
    functions: dict[str, str]  # task id -> name of the function
    missing: tuple[str, ...] = ()  # ids of tasks whose function no cell defines

    def line(self, label: str, number: int) -> str | None:
        """That line of the submission, or None if there is none."""
        for known, source in self.cells:
            lines = source.splitlines()
            if known == label and 1 <= number <= len(lines):
                return lines[number - 1].strip()
        return None


@dataclass(frozen=True)
class Study:
    """The names of one cell."""

    binds: frozenset[str] = frozenset()  # assigned, defined or imported at its top level
    imports: frozenset[str] = frozenset()  # those that it imports
    changes: frozenset[str] = frozenset()  # `t[k] = v`, `t.append(v)`: t
    needs: frozenset[str] = frozenset()  # read and not bound before
    whole: bool = True  # it parses
    star: bool = False  # `from … import *`: it may provide anything


@dataclass(frozen=True)
class _Part:
    """A cell that may run."""

    label: str
    source: str
    study: Study
    always: bool = False
    task: str = ""  # id, if it is a task's solution cell by its metadata


@dataclass
class Parts:
    """All cells of a submission, studied once for all tasks."""

    assignment: Assignment
    parts: list[_Part] = field(default_factory=list[_Part])

    def program(self, task: Task) -> Program:
        """The cells that run for that task, in order."""
        wanted = [t for t in self.assignment.tasks if t.function] if task.end_to_end else [task]
        functions = {t.id: t.function for t in wanted}
        solutions = {t.id: self._solution(t) for t in wanted}
        missing = tuple(id for id, at in solutions.items() if at is None)
        running = {at for at in solutions.values() if at is not None}
        running |= {i for i, part in enumerate(self.parts) if part.always or part.study.star}
        self._close(running, set(functions.values()))
        labels = {at: f"cell {id}" for id, at in solutions.items() if at is not None}
        cells = [
            [labels.get(i, self.parts[i].label), self.parts[i].source] for i in sorted(running)
        ]
        return Program(cells, functions, missing)

    def _solution(self, task: Task) -> int | None:
        """The last cell that defines the function; else the task's own, if it does not parse."""
        found = [i for i, p in enumerate(self.parts) if task.function in p.study.binds]
        whole = [i for i in found if self.parts[i].study.whole]
        broken = [i for i, p in enumerate(self.parts) if not p.study.whole and p.task == task.id]
        return (whole or found or broken or [None])[-1]

    def _close(self, running: set[int], chosen: set[str]) -> None:
        """Add the cells that provide what running cells need, until nothing is added.

        `chosen`: the functions whose cell has been picked already. Others that bind them are of use
        only to a cell that reads the former one: `f = traced(f)`.
        """
        modules = {name for part in self.parts for name in part.study.imports}
        todo = list(running)
        while todo:
            at = todo.pop()
            names = self.parts[at].study
            found = {i for i, p in enumerate(self.parts) if _touch(p, names, modules)}
            for name in names.needs:
                found.update(self._former(name, at) if name in chosen else self._binders(name))
            todo += found - running
            running |= found

    def _binders(self, name: str) -> list[int]:
        """The cells that bind the name; those that do not parse only if no other does."""
        found = [i for i, part in enumerate(self.parts) if name in part.study.binds]
        return [i for i in found if self.parts[i].study.whole] or found

    def _former(self, name: str, at: int) -> list[int]:
        if name not in self.parts[at].study.binds:
            return []
        return [i for i in self._binders(name) if i < at]


def _touch(part: _Part, names: Study, modules: set[str]) -> bool:
    """True if the part changes an object that a cell with these names uses or makes."""
    return bool((part.study.changes - modules) & (names.needs | names.binds))


def make_parts(book: Notebook, own: Notebook, assignment: Assignment) -> Parts:
    """Study a submission; `own` is the instructor's notebook."""
    tasks = {f"task-{task.id.replace('.', '-')}": task.id for task in assignment.tasks}
    return Parts(assignment, list(_parts(book, own, tasks)))


def make_program(book: Notebook, own: Notebook, assignment: Assignment, task: Task) -> Program:
    """The cells that run for one task of a submission."""
    return make_parts(book, own, assignment).program(task)


def _parts(book: Notebook, own: Notebook, tasks: dict[str, str]) -> Iterator[_Part]:
    given = [cell for cell in own.cells if cell.code and cell.locked and not cell.grade]
    handed_in = {cell.grade_id for cell in book.cells if cell.code}
    first = [c for c in given if c.grade_id == SETUP or c.grade_id not in handed_in]
    yield from map(_given, first)
    known = {name for cell in first for name in study(cell.source).imports}
    waiting = {cell.grade_id: cell for cell in given if cell not in first}
    sources = {cell.source.strip() for cell in given}
    for cell in book.cells:
        if cell.grade_id in waiting:
            yield _given(waiting.pop(cell.grade_id))
        if cell.code and cell.source.strip() not in sources:
            yield _own(cell, tasks.get(cell.grade_id, ""), known)


def _given(cell: Cell) -> _Part:
    always = cell.grade_id == SETUP
    return _Part(f"cell {cell.grade_id}", cell.source, study(cell.source), always)


def _own(cell: Cell, task: str, known: set[str]) -> _Part:
    """A cell of the student's; to import `known` names again is no reason to run it."""
    source = without_magics(cell.source)
    names = study(source)
    again = names.imports & known
    names = replace(names, binds=names.binds - again, imports=names.imports - again)
    return _Part(f"cell {cell.position}", source, names, task=task)


def _tree(source: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes: right code may warn
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def without_magics(source: str) -> str:
    """The source without IPython's own lines; all others keep their line numbers."""
    if _tree(source) is not None:
        return source
    lines = source.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines[first].startswith("%%") and not lines[first].startswith(_PYTHON_MAGICS):
        return ""
    return "\n".join(_MAGIC.sub(r"\1pass", line) for line in lines)


def study(source: str) -> Study:
    """The names that a cell binds, changes and needs."""
    tree = _tree(source)
    if tree is None:
        return _guess(source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = symtable.symtable(source, "<cell>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _guess(source)
    imported = {s.get_name() for s in table.get_symbols() if s.is_imported()}
    bound = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_namespace()}
    changed = {name for statement in tree.body for name in _changed(statement)} - imported
    inner = set(_globals(table))
    top = {s.get_name() for s in table.get_symbols() if s.is_referenced()}
    needs = inner - bound - imported | _before_bound(tree, top | inner)
    binds = bound | imported | _declared(table)
    return Study(
        frozenset(binds),
        frozenset(imported),
        frozenset(changed),
        frozenset(needs | changed),
        star=_has_star(tree),
    )


def _guess(source: str) -> Study:
    """Names of a cell that does not parse."""
    names = {first or second for first, second in _BOUND.findall(source)}
    return Study(frozenset(names), whole=False)


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    """The global names that functions and classes inside read."""
    for child in table.get_children():
        yield from (
            s.get_name() for s in child.get_symbols() if s.is_global() and s.is_referenced()
        )
        yield from _globals(child)


def _declared(table: symtable.SymbolTable) -> set[str]:
    """Names that functions inside bind with a `global` statement."""
    found: set[str] = set()
    for child in table.get_children():
        names = (s for s in child.get_symbols() if s.is_declared_global() and s.is_assigned())
        found |= {s.get_name() for s in names} | _declared(child)
    return found


def _changed(statement: ast.stmt) -> Iterator[str]:
    """Names of objects that a top-level statement changes: `t[k] = v`, `t.append(v)`, `@t.add`."""
    match statement:
        case ast.Assign(targets=targets):
            yield from _roots(targets)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            yield from _roots([target])
        case ast.Expr(value=ast.Call(func=ast.Attribute() as called)):
            yield from _roots([called])
        case ast.FunctionDef(decorator_list=marks) | ast.ClassDef(decorator_list=marks):
            yield from _roots(m.func if isinstance(m, ast.Call) else m for m in marks)
        case ast.For(body=body) | ast.With(body=body) | ast.If(body=body) | ast.Try(body=body):
            for inner in body:
                yield from _changed(inner)
        case _:
            pass


def _roots(targets: Iterable[ast.expr]) -> Iterator[str]:
    for target in targets:
        root = target
        while isinstance(root, (ast.Subscript, ast.Attribute)):
            root = root.value
        if isinstance(root, ast.Name) and root is not target:
            yield root.id


def _before_bound(tree: ast.Module, known: set[str]) -> set[str]:
    """Global names that the top level reads before the cell binds them itself."""
    bound: set[str] = set()
    needs: set[str] = set()
    for statement in tree.body:
        reads = {n.id for n in _at_once(statement) if isinstance(n.ctx, ast.Load)}
        needs |= (reads & known) - bound
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            needs |= {statement.target.id} - bound
        bound |= {n.id for n in _at_once(statement) if isinstance(n.ctx, ast.Store)}
        match statement:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                bound |= {a.asname or a.name.split(".")[0] for a in names}
            case _:
                pass
    return needs


def _at_once(node: ast.AST) -> Iterator[ast.Name]:
    """The names that are read or bound when the statement runs, not later in a function's body."""
    todo: list[ast.AST] = [node]
    while todo:
        inner = todo.pop()
        if isinstance(inner, ast.Name):
            yield inner
        for name, value in ast.iter_fields(inner):
            later = isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            if later and name == "body":
                continue
            parts = value if isinstance(value, list) else [value]  # pyright: ignore
            todo += [part for part in parts if isinstance(part, ast.AST)]  # pyright: ignore


def _has_star(tree: ast.Module) -> bool:
    imports = (s for s in tree.body if isinstance(s, ast.ImportFrom))
    return any(alias.name == "*" for statement in imports for alias in statement.names)
