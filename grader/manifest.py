"""Reading `assignment.toml`: what an assignment is, or a list of all that is wrong with it.

    assignment = load(Path("assignments/a1_graph_ir"))
    assignment.task("1.2").points                   # 12
    load(folder)    # ManifestError: …/assignment.toml: task 1.2: points: got -1, expected …

Reads only that file. Everything wrong is reported at once, with file, task, key and rule.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any, cast

from grader.files import read_text
from grader.model import Assignment, Task
from minidlc.support.errors import nearest

FILE = "assignment.toml"
_HEAD = ("id", "title", "version", "llvm")
_FIELDS = {f.name: f for f in dataclasses.fields(Task)}
_LISTS = ("extension", "withheld", "prerequisites", "mistakes", "hints")
_COUNTS = ("minutes", "difficulty", "public_tests", "hidden_tests")
_NUMBERS = ("points", "seconds")
_PART = re.compile(r"minidlc(\.\w+)*(:\w+(\.\w+)*)?")  # of `withheld`


class ManifestError(Exception):
    """The manifest cannot be used; `faults` has one line for each reason."""

    def __init__(self, path: Path, faults: list[str]) -> None:
        super().__init__("\n".join(f"{path}: {fault}" for fault in faults))
        self.faults = faults


def load(folder: Path | str) -> Assignment:
    """The assignment in that folder. Raises ManifestError with everything that is wrong."""
    path = Path(folder) / FILE
    try:
        data = tomllib.loads(read_text(path))
    except FileNotFoundError:
        raise ManifestError(path, ["no such file; every assignment has one"]) from None
    except tomllib.TOMLDecodeError as error:
        raise ManifestError(path, [f"not valid TOML: {error}"]) from None
    except ValueError as error:
        raise ManifestError(path, [str(error).removeprefix(f"{path}: ")]) from None
    faults: list[str] = []
    head = _table(data, "assignment", faults)
    tasks = [_task(entry, i, faults) for i, entry in enumerate(_entries(data, faults), 1)]
    faults += [f"[{key}]: {nearest(key, ['assignment', 'task'])}" for key in _unknown(data)]
    faults += _head_faults(head) + _shared_faults(tasks)
    if faults:
        raise ManifestError(path, faults)
    known = tuple(task for task in tasks if task is not None)
    id, title, version = (str(head.get(key, "")) for key in _HEAD[:3])
    return Assignment(id, title, Path(folder), known, version, bool(head.get("llvm")))


def _table(data: dict[str, Any], key: str, faults: list[str]) -> dict[str, Any]:
    if isinstance(data.get(key), dict):
        return data[key]
    faults.append(f"the table [{key}] is missing")
    return {}


def _entries(data: dict[str, Any], faults: list[str]) -> list[dict[str, Any]]:
    entries: Any = data.get("task")
    found = cast(list[Any], entries) if isinstance(entries, list) else []
    if found and all(isinstance(entry, dict) for entry in found):
        return found
    faults.append("no [[task]]; an assignment has at least one")
    return []


def _unknown(data: dict[str, Any]) -> list[str]:
    return [key for key in data if key not in ("assignment", "task")]


def _head_faults(head: dict[str, Any]) -> list[str]:
    faults = [f"[assignment] {key}: {nearest(key, _HEAD)}" for key in head if key not in _HEAD]
    for key in ("id", "title"):
        if head and not (isinstance(head.get(key), str) and head[key]):
            faults.append(f"[assignment] {key}: got {head.get(key)!r}, expected a text")
    if not isinstance(head.get("llvm", False), bool):
        faults.append(f"[assignment] llvm: got {head['llvm']!r}, expected true or false")
    if head and not re.fullmatch(r"[A-Za-z0-9_]+", str(head.get("id", ""))):
        faults.append(f"[assignment] id: got {head.get('id')!r}, expected letters, digits and _")
    return faults


def _task(entry: dict[str, Any], position: int, faults: list[str]) -> Task | None:
    """The task, or None after its faults were added."""
    where = f"task {entry.get('id', f'number {position}')}"
    found = [f"{key}: no such key; {nearest(key, _FIELDS)}" for key in entry if key not in _FIELDS]
    for name, field in _FIELDS.items():
        if name not in entry:
            if field.default is dataclasses.MISSING:
                found.append(f"{name}: missing")
        elif rule := _rule_broken(name, entry[name]):
            found.append(f"{name}: got {entry[name]!r}, expected {rule}")
    faults += [f"{where}: {fault}" for fault in found]
    if found:
        return None
    fixed: dict[str, Any] = {key: tuple(entry[key]) for key in _LISTS if key in entry}
    return Task(**{**entry, **fixed})


def _rule_broken(name: str, value: Any) -> str | None:
    """What was expected, or None if the value is right."""
    if name in _LISTS:
        return _list_rule(name, value)
    if name in _COUNTS or name in _NUMBERS:
        return _number_rule(name, value)
    if not isinstance(value, str):
        return "a text"
    if name == "id" and not re.fullmatch(r"\d+\.\d+", value):
        return "a text as '1.2'"
    if name == "function" and value and not value.isidentifier():
        return "the name of a function, or '' for the end-to-end run"
    return None


def _list_rule(name: str, value: Any) -> str | None:
    if not isinstance(value, list):
        return "a list of texts"
    items = cast(list[object], value)
    if not all(isinstance(item, str) and item for item in items):
        return "a list of texts"
    if name == "hints" and len(items) not in (0, 3):
        return "three hints, each of which says more than the one before"
    if name == "withheld" and not all(_PART.fullmatch(str(item)) for item in items):
        return "parts as 'minidlc.graph.graph:_toposort' or whole modules"
    return None


def _number_rule(name: str, value: Any) -> str | None:
    whole = type(value) is int
    if name in _COUNTS and not whole:
        return "a whole number"
    if not whole and type(value) is not float:
        return "a number"
    if name == "difficulty" and value not in (1, 2, 3):
        return "1, 2 or 3"
    if name in ("points", "minutes", "seconds") and not 0 < value < 10_000:
        return "more than 0"
    return None if value >= 0 else "0 or more"


def _shared_faults(tasks: list[Task | None]) -> list[str]:
    """What is wrong between tasks: ids and functions that stand twice."""
    faults: list[str] = []
    for key in ("id", "function"):
        names = [getattr(task, key) for task in tasks if task is not None]
        twice = sorted({name for name in names if name and names.count(name) > 1})
        faults += [f"two tasks have the {key} {name!r}" for name in twice]
    return faults
