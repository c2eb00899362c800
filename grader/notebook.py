"""Reading what was handed in: a notebook, or one human sentence on why there is none.

    book = read(find(Path("submissions/ada"), "a1_graph_ir"))
    book.cells[3].source                            # as it stands in the cell
    instructor(folder)                              # the assignment's own notebook

Lenient on purpose: outputs, ids, missing metadata and versions do not matter to a score, so nothing
is validated. BOM, UTF-16 and Latin-1 are read; nbformat 3 is converted. Runs in the parent and
executes nothing. Which cells run for a task is decided in `program.py`.
"""

from __future__ import annotations

import dataclasses
import json
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from grader.files import read_text

MAX_FILE = 64 << 20  # bytes: a notebook that stores large outputs is still read
MAX_CODE = 160_000  # characters of all code cells: fewer than `wire.MAX_ITEMS`
_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


class SubmissionError(Exception):
    """The submission cannot be graded; the text is one sentence for the student."""


@dataclass(frozen=True)
class Cell:
    """One cell, reduced to what grading asks for."""

    code: bool
    source: str
    grade_id: str = ""  # nbgrader's name of it: "task-1-2"
    position: int = 0  # in the notebook, from 1
    locked: bool = False
    grade: bool = False
    solution: bool = False


@dataclass(frozen=True)
class Notebook:
    """All cells in their order."""

    cells: tuple[Cell, ...]

    def with_cell(self, grade_id: str, source: str) -> Notebook:
        """The same, with another source in that cell. KeyError if there is no such cell."""
        if not any(cell.grade_id == grade_id for cell in self.cells):
            raise KeyError(grade_id)
        return Notebook(
            tuple(
                dataclasses.replace(cell, source=source) if cell.grade_id == grade_id else cell
                for cell in self.cells
            )
        )


def find(path: Path, assignment: str) -> Path:
    """The notebook file of a submission: the path itself, or the one notebook of the folder.

    With several, the one named `assignment` or like the assignment. Raises SubmissionError.
    """
    if path.is_symlink():
        raise SubmissionError(f"{path.name} is a link; hand in the notebook itself.")
    if not path.is_dir():
        return path
    inside = [p for p in sorted(path.rglob("*")) if not _aside(p.relative_to(path))]
    books = [p for p in inside if p.suffix == ".ipynb" and p.is_file() and not p.is_symlink()]
    named = [p for p in books if p.stem in ("assignment", assignment)]
    if len(books) == 1 or len(named) == 1:
        return (named or books)[0]
    if books:
        names = ", ".join(p.relative_to(path).as_posix() for p in books[:5])
        raise SubmissionError(f"There are {len(books)} notebooks ({names}); hand in one of them.")
    for link in (p for p in inside if p.is_symlink()):
        raise SubmissionError(f"{link.name} is a link; hand in the notebook itself.")
    files = [p.name for p in inside if p.is_file()]
    held = f"only {', '.join(files[:5])}" if files else "nothing"
    raise SubmissionError(f"No notebook was handed in: the folder holds {held}.")


def _aside(inner: Path) -> bool:
    """Copies that Jupyter or a system keeps, not handed in."""
    return any(part.startswith(".") or part == "__MACOSX" for part in inner.parts)


def read(path: Path) -> Notebook:
    """The notebook in that file. Raises SubmissionError."""
    return parse(read_bytes(path), path.name)


def read_bytes(path: Path) -> bytes:
    """The bytes of a plain file of bearable size. Raises SubmissionError."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise SubmissionError(f"{path.name} is not a plain file; hand in the notebook itself.")
        if status.st_size > MAX_FILE:
            raise SubmissionError(
                f"{path.name} has {status.st_size >> 20} MB; clear the outputs and save it again."
            )
        return path.read_bytes()
    except FileNotFoundError:
        raise SubmissionError("No notebook was handed in.") from None
    except OSError as error:
        raise SubmissionError(f"{path.name} cannot be read: {error.strerror}.") from None


def parse(data: bytes, name: str = "the notebook") -> Notebook:
    """The notebook in these bytes. Raises SubmissionError."""
    text = _decode(data, name)
    if not text.strip():
        raise SubmissionError(f"{name} is empty; save it in Jupyter and hand it in again.")
    try:
        content: Any = json.loads(text)
    except RecursionError:
        raise SubmissionError(f"{name} is not a notebook: its JSON is nested too deep.") from None
    except ValueError as error:
        raise SubmissionError(_broken(text, name, error)) from None
    if not isinstance(content, dict):
        raise SubmissionError(f"{name} is not a notebook: it is JSON of another kind.")
    found = _cells(cast(dict[str, Any], content), name)
    cells = tuple(_cell(entry, i) for i, entry in enumerate(found, 1))
    code = [cell.source for cell in cells if cell.code]
    if not any(source.strip() for source in code):
        raise SubmissionError(f"{name} has no code cells.")
    if sum(map(len, code)) > MAX_CODE:
        raise SubmissionError(f"{name} has more than {MAX_CODE:,} characters of code.")
    return Notebook(cells)


def _decode(data: bytes, name: str) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            try:
                return data.decode(encoding)
            except UnicodeDecodeError:
                raise SubmissionError(f"{name} is no text: its encoding is broken.") from None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")  # takes every byte; the JSON says whether it was right


def _broken(text: str, name: str, error: ValueError) -> str:
    """Why the JSON does not parse, in one sentence."""
    if not text.lstrip().startswith("{"):
        return f"{name} is not a notebook: it does not begin as one."
    if isinstance(error, json.JSONDecodeError):
        rest = text[error.pos :].strip()
        if not rest or error.msg.startswith("Unterminated"):
            return f"{name} is cut off at its line {error.lineno}; save it and hand it in again."
        return f"{name} is not valid JSON at its line {error.lineno}, column {error.colno}."
    return f"{name} is not valid JSON."


def _cells(content: dict[str, Any], name: str) -> list[Any]:
    """The cells of any nbformat; those before 4 are converted."""
    if "worksheets" in content and "cells" not in content:
        import nbformat  # 0.5 s that only old notebooks need

        try:
            book: Any = nbformat.from_dict(content)  # pyright: ignore[reportUnknownMemberType]
            content = nbformat.convert(book, 4)  # pyright: ignore[reportUnknownMemberType]
        except Exception:  # whatever stumbles over a malformed old notebook
            raise SubmissionError(
                f"{name} has an old format that cannot be converted; save it in a newer Jupyter."
            ) from None
    cells: Any = content.get("cells")
    if not isinstance(cells, list):
        raise SubmissionError(f"{name} is not a notebook: it has no cells.")
    return cast(list[Any], cells)


def _record(value: Any) -> Mapping[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


def _cell(entry: Any, position: int) -> Cell:
    entry = _record(entry)
    marks = _record(_record(entry.get("metadata")).get("nbgrader"))
    kind = entry.get("cell_type", "code" if "outputs" in entry else "")
    locked, grade, solution = (marks.get(key) is True for key in ("locked", "grade", "solution"))
    name = str(marks.get("grade_id", ""))
    return Cell(kind == "code", _source(entry), name, position, locked, grade, solution)


def _source(entry: Mapping[str, Any]) -> str:
    source: Any = entry.get("source", entry.get("input", ""))
    if isinstance(source, list):
        source = "".join(line for line in cast(list[object], source) if isinstance(line, str))
    text = source if isinstance(source, str) else ""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def instructor(folder: Path) -> Notebook:
    """The assignment's own notebook: `assignment.ipynb`, or what `assignment.py` says newer."""
    text, file = folder / "assignment.py", folder / "assignment.ipynb"
    source = read_text(text) if text.exists() else ""
    if file.exists():
        book = read(file)
        if not source or _agree(book, source):
            return book
    return parse(json.dumps(source_notebook(folder)).encode(), text.name)


def source_notebook(folder: Path) -> Any:
    """The same notebook with all its metadata, for nbformat: from the text, if there is one.

    Takes seconds, which `instructor` spares where a notebook was built. Raises FileNotFoundError.
    """
    text, file = folder / "assignment.py", folder / "assignment.ipynb"
    if text.exists():
        import jupytext

        return jupytext.reads(read_text(text), fmt="py:percent")  # pyright: ignore
    if not file.exists():
        raise FileNotFoundError(f"{folder} has neither assignment.ipynb nor assignment.py")
    import nbformat

    return cast(Any, nbformat.read(file, as_version=4))  # pyright: ignore[reportUnknownMemberType]


def _agree(book: Notebook, text: str) -> bool:
    """True if the notebook has the code cells of the text (py:percent)."""
    code = [cell.source for cell in book.cells if cell.code]
    heads = [line for line in text.splitlines() if line.startswith("# %%")]
    same = len(code) == sum("[markdown]" not in head for head in heads)
    return same and all(f"\n{source}\n" in text for source in code)
