"""Does a release give a solution away? Its lines are looked for in every file of it.

    find(Path("assignments/a1_graph_ir"), Path("dist/a1_graph_ir"))     # [] if nothing leaks
    # [Leak('glue.py', 'a line of the solution of task-1-2', 'ready = [n for n in …')]

A line counts if it names at least MIN_WORDS things: `return result` tells nothing. A line of a
hidden test may stand in a public test as well, which its author gave away on purpose, but no whole
hidden test may. Reads both folders, writes nothing.
"""

from __future__ import annotations

import ast
import io
import json
import keyword
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from grader.files import read_text
from grader.notebook import instructor

MIN_WORDS = 4
_MARK = "### BEGIN SOLUTION"
_END = "### END SOLUTION"
_SOURCES = (".py", ".ipynb", ".toml", ".md", ".txt", ".json", ".csv")


@dataclass(frozen=True)
class Leak:
    """A line that must not be in the release."""

    file: str
    what: str
    line: str

    def __str__(self) -> str:
        return f"{self.file} holds {self.what}: {self.line[:80]}"


def find(folder: Path, released: Path) -> list[Leak]:
    """Every line of a solution or hidden test that a file of the release holds."""
    secrets = _solutions(folder) | _hidden(folder)
    tests = {ast.dump(test): test.name for _, test in _tests(folder / "tests" / "hidden")}
    leaks: list[Leak] = []
    for path in sorted(p for p in released.rglob("*") if p.is_file()):
        name = path.relative_to(released).as_posix()
        if path.suffix not in _SOURCES:
            leaks.append(Leak(name, "what no release has", path.suffix or "no suffix"))
            continue
        public = name.startswith("tests/public/")
        for line in _lines(path):
            what = secrets.get(_plain(line), "")
            if what and not (public and "hidden test" in what):
                leaks.append(Leak(name, what, line.strip()))
    for path, test in _tests(released / "tests" / "public"):
        if ast.dump(test) in tests:
            leaks.append(Leak(f"tests/public/{path.name}", "a whole hidden test", test.name))
    return leaks


def _solutions(folder: Path) -> dict[str, str]:
    """The telling lines between the markers, but those that the cell shows outside of them."""
    found: dict[str, str] = {}
    for cell in instructor(folder).cells:
        inside, outside = split(cell.source)
        shown = {_plain(line) for line in outside}
        for line in inside:
            if _tells(line) and _plain(line) not in shown:
                found[_plain(line)] = f"a line of the solution of {cell.grade_id}"
    return found | {_MARK: "a marker", _END: "a marker"}


def split(source: str) -> tuple[list[str], list[str]]:
    """The lines of a cell between the markers, and the others."""
    inside: list[str] = []
    outside: list[str] = []
    current = outside
    for line in source.split("\n"):
        if line.strip() in (_MARK, _END):
            current = inside if line.strip() == _MARK else outside
        else:
            current.append(line)
    return inside, outside


def _hidden(folder: Path) -> dict[str, str]:
    """The telling lines of hidden tests, but imports."""
    found: dict[str, str] = {}
    for path in sorted((folder / "tests" / "hidden").glob("*.py")):
        for line in read_text(path).splitlines():
            if _tells(line) and not line.startswith(("import ", "from ")):
                found[_plain(line)] = f"a line of the hidden test {path.name}"
    return found


def _tests(folder: Path) -> Iterator[tuple[Path, ast.FunctionDef]]:
    for path in sorted(folder.glob("test_*.py")):
        for node in ast.parse(read_text(path)).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield path, node


def _plain(line: str) -> str:
    """The line without differences of layout."""
    return " ".join(line.split())


def _tells(line: str) -> bool:
    """Does the line name enough to give something away? Comments count by their words."""
    text = line.strip()
    if text.startswith("#"):
        return len(text.split()) > MIN_WORDS
    words: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.NAME, tokenize.NUMBER, tokenize.STRING):
                words.append(token.string)
    except (tokenize.TokenError, SyntaxError):
        pass  # one line of a statement of several: the tokens so far are those of the line
    return sum(not keyword.iskeyword(word) for word in words) >= MIN_WORDS


def _lines(path: Path) -> Iterator[str]:
    """The lines of a file; of a notebook those of every text in it, metadata and outputs too."""
    text = read_text(path)
    if path.suffix == ".ipynb":
        yield from _texts(json.loads(text))
    else:
        yield from text.splitlines()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from value.splitlines()
    elif isinstance(value, Mapping):
        for part in cast(Mapping[str, Any], value).values():
            yield from _texts(part)
    elif isinstance(value, list):
        for part in cast(list[Any], value):
            yield from _texts(part)
