"""Program text with places: every parser of the kit reads Python syntax through `ast`.

    source = Source("mlp.dlc", text)
    tree = source.parse()                           # ast.Module, or ParseError with line and caret
    source.loc(tree.body[0])                        # FileLoc of a piece of it
    raise source.error(node, "unknown op 'relo'", code="MDLC0305", hint="did you mean 'relu'?")

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cached_property

from minidlc.support.errors import ParseError
from minidlc.support.locations import FileLoc


@dataclass(frozen=True)
class Source:
    """The text of a file and its name, as error messages show it."""

    file: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        """Lines as Python counts them."""
        return re.split(r"\r\n|\r|\n", self.text)

    def parse(self) -> ast.Module:
        """The syntax tree; anything that is not Python is a ParseError (MDLC0301)."""
        try:
            return ast.parse(self.text)
        except SyntaxError as e:
            line, col = e.lineno or 1, e.offset or 1
            loc = FileLoc(self.file, line, col, None, self._line(line))
            raise ParseError(f"not Python syntax: {e.msg}", loc=loc) from None
        except (RecursionError, MemoryError, ValueError) as e:
            raise ParseError(
                f"the text cannot be read: {e or 'nested too deeply'}", loc=FileLoc(self.file, 1)
            ) from None

    def _line(self, number: int) -> str | None:
        return self.lines[number - 1] if 0 < number <= len(self.lines) else None

    def loc(self, node: ast.AST) -> FileLoc:
        """Place of a piece of syntax; of one that spans lines, its first."""
        line: int = getattr(node, "lineno", 1)
        text = self._line(line) or ""
        start = _characters(text, getattr(node, "col_offset", 0))
        if getattr(node, "end_lineno", line) == line:
            end = _characters(text, getattr(node, "end_col_offset", 0))
        else:
            end = len(text)
        return FileLoc(self.file, line, start + 1, end + 1, text)

    def error(
        self, node: ast.AST, message: str, *, code: str, hint: str | None = None
    ) -> ParseError:
        """A ParseError at a piece of syntax, for the caller to raise."""
        return ParseError(message, loc=self.loc(node), hint=hint, code=code)


def _characters(text: str, utf8_bytes: int) -> int:
    """`ast` counts columns in bytes of UTF-8; people count characters."""
    return len(text.encode()[:utf8_bytes].decode(errors="ignore"))
