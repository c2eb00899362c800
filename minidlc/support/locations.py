"""Where something came from: a line of text, an ONNX node, a Python line, or another location.

Reads nothing; every IR node carries one of these, every error prints one.

    loc = FileLoc("mlp.dlc", line=2, col=20, end_col=32)
    str(loc)                                        # 'mlp.dlc:2:20'
    str(Derived("rule add-zero", loc))              # 'rule add-zero of mlp.dlc:2:20'
    written(Derived("fuse", loc))                   # (loc,)
    caller()                                        # PyLoc of the first frame outside minidlc

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

_PACKAGE = str(Path(__file__).resolve().parents[1])
_TESTS = str(Path(_PACKAGE) / "tests")
_BETWEEN = (contextlib.__file__, "<frozen ")  # Python's own frames, as of `with` and of mixins


def _is_notebook_cell(file: str) -> bool:
    """Jupyter gives each cell a temporary file: its name says nothing and changes."""
    return Path(file).parent.name.startswith("ipykernel_")


@dataclass(frozen=True)
class FileLoc:
    """A span in IR text. Lines and columns count from 1; `source` is that line's text, if known."""

    file: str
    line: int
    col: int = 1
    end_col: int | None = None
    source: str | None = None

    def __str__(self) -> str:
        if _is_notebook_cell(self.file):
            return f"a notebook cell, line {self.line}, column {self.col}"
        return f"{self.file}:{self.line}:{self.col}"


@dataclass(frozen=True)
class OnnxLoc:
    """A node, initializer or input of an ONNX model; the model as a whole if `node` is empty."""

    model: str
    node: str
    op_type: str = ""

    def __str__(self) -> str:
        if not self.node:
            return self.model
        kind = f" ({self.op_type})" if self.op_type else ""
        return f"{self.model}: node {self.node!r}{kind}"


@dataclass(frozen=True)
class PyLoc:
    """A line of the reader's Python program."""

    file: str
    line: int

    def __str__(self) -> str:
        if _is_notebook_cell(self.file):
            return f"a notebook cell, line {self.line}"
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Derived:
    """Made by the compiler from something else: `how` says by what.

    `also`: what else went into it, such as the other nodes that a rule matched.
    """

    how: str
    of: Loc | None
    also: tuple[FileLoc | OnnxLoc | PyLoc, ...] = ()

    def __str__(self) -> str:
        return self.how if self.of is None else f"{self.how} of {self.of}"


Loc: TypeAlias = FileLoc | OnnxLoc | PyLoc | Derived


def written(*locs: Loc | None) -> tuple[FileLoc | OnnxLoc | PyLoc, ...]:
    """The places in the reader's program that these were made from, each once."""
    found: dict[FileLoc | OnnxLoc | PyLoc, None] = {}
    for loc in locs:
        others: list[FileLoc | OnnxLoc | PyLoc] = []
        while isinstance(loc, Derived):
            others += loc.also
            loc = loc.of
        found.update(dict.fromkeys(others if loc is None else (loc, *others)))
    return tuple(found)


def steps(loc: Loc | None) -> tuple[str, ...]:
    """What the compiler did on the way from there, first things first."""
    done: list[str] = []
    while isinstance(loc, Derived):
        done.append(loc.how)
        loc = loc.of
    return tuple(reversed(done))


def caller() -> PyLoc | None:
    """Return the innermost stack frame outside the package: the line the reader wrote."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        name = frame.f_code.co_filename
        generated = name == "<string>" and frame.f_code.co_name == "__init__"  # of a dataclass
        between = generated or name.startswith(_BETWEEN)
        if not between and (not name.startswith(_PACKAGE) or name.startswith(_TESTS)):
            return PyLoc(name, frame.f_lineno)
        frame = frame.f_back
    return None
