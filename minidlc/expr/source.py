"""Text that is a subset of Python: reading it with `ast`, and places for errors in it.

    node, source = parse_python("x: f32[4] = relu(h)", "mlp.dlc")
    raise source.error(node.body[0], "unknown name 'h'", "MDLC0303", hint="did you mean 'x'?")

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, overload

from minidlc.support.errors import ParseError
from minidlc.support.locations import FileLoc


@dataclass(frozen=True)
class Source:
    """The lines of a text and its name; makes locations and errors for `ast` nodes."""

    file: str
    lines: tuple[str, ...]

    def loc(self, node: ast.AST | None) -> FileLoc:
        """The place of a node, counted from 1; of a node of several lines: the first."""
        line = getattr(node, "lineno", 1)
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        start = _column(text, getattr(node, "col_offset", 0))
        one_line = getattr(node, "end_lineno", line) == line
        end = (
            _column(text, getattr(node, "end_col_offset", None) or 0) if one_line else len(text) + 1
        )
        return FileLoc(self.file, line, start, max(end, start + 1), text)

    def error(
        self, node: ast.AST | None, message: str, code: str, hint: str | None = None
    ) -> ParseError:
        """A ParseError at `node`."""
        return ParseError(message, loc=self.loc(node), hint=hint, code=code)

    @contextmanager
    def reading(self) -> Generator[None, None, None]:
        """Turns Python's recursion limit into a ParseError (MDLC0301) while nodes are read."""
        try:
            yield
        except RecursionError:
            raise self.error(None, "nested too deeply", "MDLC0301") from None


def _column(text: str, offset: int) -> int:
    """`ast` counts bytes of UTF-8 from 0; people count characters from 1."""
    return len(text.encode()[:offset].decode(errors="replace")) + 1


@overload
def parse_python(
    text: str, file: str, mode: Literal["exec"] = "exec"
) -> tuple[ast.Module, Source]: ...
@overload
def parse_python(text: str, file: str, mode: Literal["eval"]) -> tuple[ast.expr, Source]: ...
def parse_python(
    text: str, file: str, mode: Literal["exec", "eval"] = "exec"
) -> tuple[ast.Module | ast.expr, Source]:
    """Parse `text` by Python's grammar; a ParseError (MDLC0301) where that fails."""
    text = text.strip() if mode == "eval" else text
    source = Source(file, tuple(text.splitlines()))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            if mode == "eval":
                return ast.parse(text, file, mode="eval").body, source
            return ast.parse(text, file), source
    except SyntaxError as error:
        line = min(error.lineno or 1, max(len(source.lines), 1))
        here = source.lines[line - 1] if source.lines else ""
        col = max(error.offset or 1, 1)
        end = error.end_offset if error.end_lineno == error.lineno else None
        loc = FileLoc(file, line, col, end if end and end > col else col + 1, here)
        raise ParseError(f"not valid syntax: {error.msg}", loc=loc, code="MDLC0301") from None
    except (ValueError, RecursionError, MemoryError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError | MemoryError) else error
        raise ParseError(
            f"not valid syntax: {problem}", loc=FileLoc(file, 1), code="MDLC0301"
        ) from None
