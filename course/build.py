"""Notebooks from their texts: `python course/build.py` builds those that do not agree yet.

    python course/build.py                          # what changed, with every cell run
    python course/build.py 02_a_graph_ir            # this lesson; --all builds all of them
    python course/build.py --check                  # which notebooks do not agree with their text?
    python course/build.py --no-run ../assignments/a1_graph_ir/assignment.py   # cells not run

A text is a Python file in jupytext's percent format; `course/*/text/NN_title.py` gives
`course/*/NN_title.ipynb`, any other text a notebook beside it. What a cell's marker says
(`# %% tags=["slow"]`, nbgrader={…}) is kept. Building twice gives the same bytes, except in cells
tagged nbval-ignore-output: what would change from run to run is refused elsewhere.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import jupytext
import nbformat
import typer
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from wheel_dot import use_wheel_dot

COURSE = Path(__file__).parent
CELL_SECONDS = 60
UNCHECKED = "nbval-ignore-output"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "name": "python", "pygments_lexer": "ipython3"},
}
COLOURS = re.compile(r"\x1b\[[\d;]*m")
CHANGES = {
    "an address in memory": re.compile(r"\bat 0x[0-9a-f]{6,}"),
    "a path of this machine": re.compile(
        "|".join(map(re.escape, {str(COURSE.parent.resolve()), str(Path.home()), "ipykernel_"}))
    ),
}


class BuildError(Exception):
    """What is wrong with a text, in one sentence for its author."""


def notebook_of(text: Path) -> Path:
    """Where the notebook of a text stands."""
    folder = text.parent.parent if text.parent.name == "text" else text.parent
    return folder / f"{text.stem}.ipynb"


def to_notebook(text: Path) -> Any:
    """The notebook of a text, no cell run. The same text gives the same notebook."""
    book = jupytext.reads(text.read_text(encoding="utf-8"), fmt="py:percent")
    book.metadata = nbformat.from_dict(METADATA)
    book.nbformat, book.nbformat_minor = 4, 5
    seen: dict[str, int] = {}
    for cell in book.cells:
        key = f"{text.stem} {cell.cell_type} {cell.source}"
        seen[key] = seen.get(key, 0) + 1
        cell.metadata.pop("lines_to_next_cell", None)  # of jupytext, for blank lines
        cell.id = hashlib.sha256(f"{key} {seen[key]}".encode()).hexdigest()[:8]
    nbformat.validate(book)
    return book


def run(book: Any, folder: Path) -> None:
    """Execute every cell in `folder` and keep what it shows; BuildError if one fails."""
    client = NotebookClient(
        book,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
    )
    try:
        client.execute()
    except CellTimeoutError:
        raise BuildError(f"a cell took more than {CELL_SECONDS} s") from None
    except CellExecutionError as e:
        raise BuildError(COLOURS.sub("", str(e))) from None
    book.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(book.cells, 1):
        if cell.cell_type == "code":
            cell.outputs = merged_streams(cell.outputs)
            if UNCHECKED not in cell.metadata.get("tags", []):
                check_cell(number, cell)


def merged_streams(outputs: list[Any]) -> list[Any]:
    """One stream of a name where several follow each other: pieces arrive as the system likes."""
    merged: list[Any] = []
    for output in outputs:
        last = merged[-1] if merged else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            merged.append(output)
    return merged


def check_cell(number: int, cell: Any) -> None:
    """Refuse in a cell that is compared what is another thing in the next run."""
    if calls_times(cell.source):
        raise BuildError(f'cell {number} calls lesson.times: it needs tags=["{UNCHECKED}"]')
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stderr":
            raise BuildError(f"cell {number} writes to stderr: {output.text}")
        shown = str(output.get("data", output.get("text", "")))
        for what, pattern in CHANGES.items():
            if found := pattern.search(shown):
                raise BuildError(f"cell {number} shows {what}: {found[0]}")


def calls_times(source: str) -> bool:
    """Does this cell measure times?"""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return False  # a magic, or a cell that is meant to fail
    names = (ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))
    return "lesson.times" in names


def difference(text: Path, *, executed: bool = True) -> str:
    """How the stored notebook differs from its text; "" if it does not."""
    path = notebook_of(text)
    if not path.exists():
        return "there is no notebook"
    wanted, stored = to_notebook(text), nbformat.read(path, as_version=4)
    if len(wanted.cells) != len(stored.cells):
        return f"{len(stored.cells)} cells, the text has {len(wanted.cells)}"
    for number, (want, have) in enumerate(zip(wanted.cells, stored.cells, strict=True), 1):
        for field in ("cell_type", "id", "source", "metadata"):
            if want[field] != have.get(field):
                return f"cell {number}: another {field}"
        if executed and have.cell_type == "code" and have.execution_count is None:
            return f"cell {number} was not run"
    return ""


def build(text: Path, *, execute: bool = True) -> Path:
    """Write the notebook of a text and return its path; nothing is written if a cell fails."""
    book, path = to_notebook(text), notebook_of(text)
    if execute:
        run(book, path.parent)
    nbformat.write(book, path)
    return path


def texts(names: list[str]) -> list[Path]:
    """The texts that are meant: by title, by path, or all of the course."""
    every = sorted(COURSE.glob("*/text/*.py"))
    if not names:
        return every
    by_title = {text.stem: text for text in every}
    found = [by_title.get(Path(name).stem, Path(name)) for name in names]
    for text in found:
        if not text.is_file():
            raise BuildError(f"no text {text}; the course has {', '.join(by_title) or 'none'}")
    return found


def main(
    names: Annotated[list[str] | None, typer.Argument(help="titles or paths; default: all")] = None,
    all_: Annotated[bool, typer.Option("--all", help="also what agrees already")] = False,
    check: Annotated[bool, typer.Option("--check", help="write nothing, say what differs")] = False,
    execute: Annotated[bool, typer.Option("--run/--no-run", help="run the cells?")] = True,
) -> None:
    """Build the notebooks of the course from their texts."""
    failed = 0
    try:
        chosen = texts(names or [])
    except BuildError as e:
        raise typer.BadParameter(str(e)) from None
    with tempfile.TemporaryDirectory() as folder:
        use_wheel_dot(Path(folder))
        for text in chosen:
            why = difference(text, executed=execute)
            if check:
                failed += bool(why)
                print(f"{'differs' if why else 'agrees'}  {text.stem}  {why}".rstrip())
            elif why or all_ or names:
                failed += not report(text, execute)
    raise typer.Exit(1 if failed else 0)


def report(text: Path, execute: bool) -> bool:
    """Build one notebook and say so; returns whether it was built."""
    try:
        print(f"built   {build(text, execute=execute).name}")
    except BuildError as e:
        print(f"failed  {text.stem}: {e}", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    typer.run(main)
