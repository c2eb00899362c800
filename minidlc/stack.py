"""A reader's own parts of the compiler, kept in a folder from assignment to assignment.

    mine = stack.load("mystack")                    # from minidlc import stack
    with mc.use(**mine.parts):
        exe = mc.compile(g)                         # runs on your parts, the rest is supplied
    print(mine)                                     # which part is whose

The folder holds one file a part, `part_1_2.py`: plain Python that ends in `PARTS = {"toposort":
order_nodes}`, point of `mc.use` → function. `stack.toml` lists all parts there are, one's own or
not. `grader.keep` writes both. Loading a part runs its file. Treated in course chapter 01_graph_ir
and used by all assignments.
"""

from __future__ import annotations

import json
import tomllib
import traceback
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from minidlc.support.errors import CompileError, OptionError
from minidlc.support.locations import PyLoc

INDEX = "stack.toml"


@dataclass(frozen=True)
class Entry:
    """One part there is, as `stack.toml` lists it."""

    task: str  # "1.2"
    title: str
    points: tuple[str, ...]  # where it runs: points of `mc.use`


@dataclass(frozen=True)
class Part:
    """One part that is one's own."""

    task: str
    file: Path
    functions: Mapping[str, Callable[..., Any]]  # by point


@dataclass(frozen=True)
class Stack:
    """What a folder of parts holds."""

    folder: Path
    own: tuple[Part, ...]
    index: tuple[Entry, ...]

    @property
    def parts(self) -> dict[str, Callable[..., Any]]:
        """The functions by point, as `mc.use` takes them."""
        return {point: fn for part in self.own for point, fn in part.functions.items()}

    def up_to(self, task: str) -> Stack:
        """The parts of this task and of those before it."""
        own = tuple(part for part in self.own if _order(part.task) <= _order(task))
        return Stack(self.folder, own, self.index)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Every part known: task, title, where it runs, and the file if it is one's own."""
        mine = {part.task: part for part in self.own}
        known = {entry.task: entry for entry in self.index}
        rows: list[tuple[str, str, str, str]] = []
        for task in sorted(mine.keys() | known.keys(), key=_order):
            part, entry = mine.get(task), known.get(task)
            points = tuple(part.functions) if part else entry.points if entry else ()
            title = entry.title if entry else ""
            rows.append((task, title, ", ".join(points), part.file.name if part else ""))
        return rows

    def __str__(self) -> str:
        lines = [f"{len(self.own)} of {len(self.rows())} parts are your own"]
        for task, title, points, file in self.rows():
            whose = f"yours     {file}" if file else "supplied"
            lines.append(f"  {task:5} {title[:40]:40} {points:24} {whose}".rstrip())
        return "\n".join(lines)


def load(folder: str | Path) -> Stack:
    """Run every part in the folder.

    Raises OptionError for a folder that is none or a list of parts that is damaged (MDLC1033), for
    a part that cannot be run (MDLC1034), and for two that stand at the same point (MDLC1035).
    """
    folder = Path(folder)
    if not folder.is_dir():
        hint = "grader.keep writes the first part and makes it"
        raise OptionError(f"{folder} is no folder", hint=hint, code="MDLC1033")
    files = sorted(folder.glob("part_*.py"), key=lambda file: _order(_task(file)))
    own = tuple(_load(file) for file in files)
    first: dict[str, Part] = {}
    for part in own:
        for point in part.functions:
            before = first.setdefault(point, part)
            if before is not part:
                raise OptionError(
                    f"two parts replace {point!r}: {before.file.name} and {part.file.name}",
                    hint="take the point out of PARTS in one of them",
                    code="MDLC1035",
                )
    return Stack(folder, own, read_index(folder))


def read_index(folder: Path) -> tuple[Entry, ...]:
    """The parts that `stack.toml` lists; none if there is no such file. OptionError (MDLC1033)."""
    file = folder / INDEX
    if not file.exists():
        return ()
    try:
        rows = tomllib.loads(file.read_text(encoding="utf-8"))["part"]
        return tuple(Entry(str(r["task"]), str(r["title"]), tuple(r["points"])) for r in rows)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as e:
        raise OptionError(
            f"{file} cannot be read: {type(e).__name__}: {e}",
            hint="delete it; grader.keep writes it anew",
            code="MDLC1033",
        ) from None


def write_index(folder: Path, entries: Iterable[Entry]) -> None:
    """Write `stack.toml`, in the order of tasks."""
    lines = ["# The parts of the compiler. `minidlc doctor --stack DIR` reads this list."]
    for entry in sorted(entries, key=lambda entry: _order(entry.task)):
        lines += ["", "[[part]]"]
        for key in ("task", "title", "points"):  # JSON's texts and lists are TOML's
            lines.append(f"{key} = {json.dumps(getattr(entry, key), ensure_ascii=False)}")
    (folder / INDEX).write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def _load(file: Path) -> Part:
    """One part; what goes wrong while it runs names its file and line."""
    module = types.ModuleType(f"mystack.{file.stem}")
    module.__file__ = str(file)
    try:
        source = file.read_text(encoding="utf-8-sig")
        exec(compile(source, str(file), "exec"), module.__dict__)
    except (CompileError, Exception) as e:
        raise OptionError(
            f"{file.name} cannot be run: {type(e).__name__}: {e}",
            loc=_line(e, file),
            hint="mend the file, or keep the part again from the notebook",
            code="MDLC1034",
        ) from None
    parts = getattr(module, "PARTS", None)
    if not isinstance(parts, dict):
        raise _no_parts(file)
    functions = cast(dict[object, object], parts)
    for point, function in functions.items():
        if not isinstance(point, str) or not callable(function):
            raise _no_parts(file)
    return Part(_task(file), file, cast(dict[str, Callable[..., Any]], functions))


def _no_parts(file: Path) -> OptionError:
    return OptionError(
        f"{file.name} does not say where it runs",
        loc=PyLoc(str(file), 1),
        hint='it must end in PARTS = {"toposort": order_nodes}, point of mc.use → function',
        code="MDLC1034",
    )


def _line(error: Exception, file: Path) -> PyLoc:
    """The line of the file at which it failed."""
    if isinstance(error, SyntaxError):
        return PyLoc(str(file), error.lineno or 1)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno or 1 for f in frames if f.filename == str(file)]
    return PyLoc(str(file), lines[-1] if lines else 1)


def _task(file: Path) -> str:
    """'1.2' of part_1_2.py."""
    return file.stem.removeprefix("part_").replace("_", ".")


def _order(task: str) -> tuple[tuple[int, str], ...]:
    """Task 1.10 comes after 1.9."""
    return tuple((int(n) if n.isdigit() else 0, n) for n in task.split("."))
