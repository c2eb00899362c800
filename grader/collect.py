"""The tests of a task: ordinary pytest functions, imported once per process.

    tests = Tests(assignment)
    for test in tests.of(assignment.task("1.2")): …  # public ones first, in the order of the file
    test.name, test.claim, test.weight              # 'test_ties[two roots]', 'Ties …', 2.0

Reads `tests/public/test_1_2.py` and `tests/hidden/test_1_2.py`. Of pytest only `parametrize` (with
ids, `pytest.param`) and `points` are known; fixtures are `student`, `rng` and, in hidden tests,
`reference`. Anything else is a BrokenTests: our fault, never a student's 0.
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.model import Assignment, Task

FIXTURES = ("student", "rng")
_importing = threading.Lock()  # sys.path and sys.modules are the process's


class BrokenTests(Exception):
    """The tests of a task cannot be used; the text says why, for the instructor."""


@dataclass(frozen=True)
class Test:
    """One expected test: a function and its parameters."""

    __test__ = False  # pytest: not a class of tests

    name: str  # "test_ties[two roots]"
    public: bool
    function: Callable[..., None]
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])  # of parametrize
    fixtures: tuple[str, ...] = ()
    weight: float = 1.0
    claim: str = ""  # first sentence of the docstring


@dataclass
class Tests:
    """All tests of an assignment, each module imported when its task is first asked for."""

    __test__ = False

    assignment: Assignment
    public_only: bool = False
    _helpers: dict[str, types.ModuleType] = field(default_factory=dict[str, types.ModuleType])
    _found: dict[str, list[Test] | BrokenTests] = field(
        default_factory=dict[str, "list[Test] | BrokenTests"]
    )

    def of(self, task: Task) -> list[Test]:
        """The tests of that task. Raises BrokenTests."""
        if task.id not in self._found:
            try:
                self._found[task.id] = self._collect(task)
            except BrokenTests as broken:
                self._found[task.id] = broken
        found = self._found[task.id]
        if isinstance(found, BrokenTests):
            raise found
        return found

    def _collect(self, task: Task) -> list[Test]:
        tests: list[Test] = []
        for kind in ("public", "hidden")[: 1 if self.public_only else 2]:
            stated = task.public_tests if kind == "public" else task.hidden_tests
            path = self.assignment.folder / "tests" / kind / f"test_{task.id.replace('.', '_')}.py"
            if not path.exists() and not stated:
                continue
            found = list(_tests_of(self._module(path), kind == "public"))
            if len(found) != stated:
                raise BrokenTests(f"{path} has {len(found)} tests, the manifest says {stated}")
            tests += found
        if not tests and not self.public_only:
            raise BrokenTests(f"task {task.id} has no tests")
        if len({test.name for test in tests}) != len(tests):
            raise BrokenTests(f"two tests of task {task.id} have one name")
        return tests

    def _module(self, path: Path) -> types.ModuleType:
        """Import the file. Its helpers are found beside it, and kept out of other assignments."""
        name = f"{self.assignment.id}.{path.parent.name}.{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        if not path.exists() or spec is None or spec.loader is None:
            raise BrokenTests(f"{path} is missing")
        module = importlib.util.module_from_spec(spec)
        folders = [str(self.assignment.folder / "tests" / kind) for kind in ("public", "hidden")]
        with _importing:
            before = set(sys.modules)
            kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # it tells seconds apart
            sys.path[:0] = folders
            sys.modules.update(self._helpers)
            sys.modules[name] = module
            try:
                spec.loader.exec_module(module)
            except Exception as error:
                raise BrokenTests(f"{path}: {type(error).__name__}: {error}") from error
            finally:
                sys.dont_write_bytecode = kept
                sys.path[:] = sys.path[len(folders) :]
                self._keep(set(sys.modules) - before, folders)
        return module

    def _keep(self, new: set[str], folders: Sequence[str]) -> None:
        """Take helpers out of sys.modules again: another folder may have others of that name."""
        for name in new:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if str(Path(file).parent) in folders:
                self._helpers[name] = sys.modules.pop(name)


def _tests_of(module: types.ModuleType, public: bool) -> Iterator[Test]:
    for name, function in vars(module).items():
        own = getattr(function, "__module__", None) == module.__name__
        if name.startswith("test") and isinstance(function, types.FunctionType) and own:
            yield from _cases(name, function, public, module)


def _cases(
    name: str, function: Callable[..., None], public: bool, module: types.ModuleType
) -> Iterator[Test]:
    marks = [*_marks(module), *_marks(function)]
    unknown = [m.name for m in marks if m.name not in ("parametrize", "points")]
    if unknown:
        raise BrokenTests(f"{name}: the mark {unknown[0]!r} is not known here")
    axes = [list(_axis(name, m)) for m in marks if m.name == "parametrize"]
    given = {key for axis in axes for _, values, _ in axis for key in values}
    allowed = FIXTURES if public else (*FIXTURES, "reference")
    fixtures = tuple(key for key in inspect.signature(function).parameters if key not in given)
    for fixture in fixtures:
        if fixture not in allowed:
            raise BrokenTests(f"{name}: no fixture {fixture!r}; there are {', '.join(allowed)}")
    weight = _weight(marks, 1.0)
    claim = _claim(function)
    for case in itertools.product(*axes):
        label = "-".join(id for id, _, _ in case)
        arguments = {key: value for _, values, _ in case for key, value in values.items()}
        heavy = next((w for _, _, w in case if w is not None), weight)
        full = f"{name}[{label}]" if case else name
        yield Test(full, public, function, arguments, fixtures, heavy, claim)


def _marks(owner: object) -> list[Any]:
    """Of a module or function; a module may have a single one."""
    found = getattr(owner, "pytestmark", [])
    return [getattr(m, "mark", m) for m in (found if isinstance(found, list) else [found])]  # pyright: ignore


def _axis(name: str, mark: Any) -> Iterator[tuple[str, dict[str, Any], float | None]]:
    """The cases of one parametrize mark: id, values by argument, weight if it has its own."""
    names, cases, *_ = *mark.args, *mark.kwargs.get("argvalues", ())
    keys = [key.strip() for key in names.split(",")] if isinstance(names, str) else list(names)
    ids = mark.kwargs.get("ids")
    for at, case in enumerate(cases):
        marks: Sequence[Any] = getattr(case, "marks", ())
        values = getattr(case, "values", None) if hasattr(case, "marks") else None
        if values is None:
            values = (case,) if len(keys) == 1 else tuple(case)
        if len(values) != len(keys):
            raise BrokenTests(f"{name}: case {at} of {names!r} has {len(values)} values")
        own = ids(case) if callable(ids) else ids[at] if ids else None
        label = getattr(case, "id", None) or own
        text = str(label) if label is not None else _id(keys, values, at)
        yield text, dict(zip(keys, values, strict=True)), _weight(marks, None)


def _id(keys: list[str], values: Sequence[Any], at: int) -> str:
    """As pytest names a case without an id."""
    parts: list[str] = []
    for key, value in zip(keys, values, strict=True):
        if value is None or isinstance(value, (str, int, float, bool)):
            parts.append(str(value))
        else:
            parts.append(getattr(value, "__name__", f"{key}{at}"))
    return "-".join(parts)


def _weight(marks: Sequence[Any], default: Any) -> Any:
    """Of the last `points` mark, which is the function's own."""
    return next((float(m.args[0]) for m in reversed(marks) if m.name == "points"), default)


def _claim(function: Callable[..., None]) -> str:
    """The docstring's first paragraph on one line."""
    text = inspect.getdoc(function) or ""
    return " ".join(text.split("\n\n")[0].split())
