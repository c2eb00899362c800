"""Errors a user can act on: what is wrong, where, by which rule, and what would fit.

    raise TypeRuleError("matmul: inner dimensions differ: 8 != 7", loc=loc, code="MDLC0203",
                        notes=("input 0: x: f32[4, 8]",), hint="transpose(w) would fit")

`assert` is for faults of the compiler itself; bad input of any kind is a `CompileError`.
Each code has a paragraph in docs/errors.md (a test compares the two lists).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar

from minidlc.support.locations import Derived, FileLoc, Loc, caller


class CompileError(Exception):
    """Base of all errors about the user's input; `str(error)` is the whole report."""

    default_code: ClassVar[str] = "MDLC0001"

    def __init__(
        self,
        message: str,
        *,
        loc: Loc | None = None,
        notes: Iterable[str] = (),
        hint: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.place = loc  # of the IR or file; None where the raiser does not know it
        self._line = caller()
        self.notes = tuple(notes)
        self.hint = hint
        self.code = code or self.default_code

    @property
    def loc(self) -> Loc | None:
        """The place, else the line of the program that called the kit."""
        return self.place or self._line

    def at(self, loc: Loc | None) -> CompileError:
        """Fill in the place if the raiser did not know it; returns self, for `raise e.at(loc)`."""
        self.place = self.place or loc
        return self

    def __str__(self) -> str:
        lines = [f"error[{self.code}]: {self.message}"]
        if self.loc is not None:
            lines.append(f"  --> {self.loc}")
            lines += _source_lines(self.loc)
        lines += [f"  = {note}" for note in self.notes]
        if self.hint:
            lines.append(f"  = hint: {self.hint}")
        return "\n".join(lines)


def _source_lines(loc: Loc) -> list[str]:
    """The line of text with carets under the span, when the location carries it."""
    while isinstance(loc, Derived):
        if loc.of is None:
            return []
        loc = loc.of
    if not isinstance(loc, FileLoc) or loc.source is None:
        return []
    width = len(str(loc.line))
    end = loc.end_col if loc.end_col is not None else loc.col + 1
    carets = " " * (loc.col - 1) + "^" * max(1, end - loc.col)
    return [f"  {loc.line} | {loc.source}", f"  {' ' * width} | {carets}"]


def nearest(word: object, known: Iterable[str], most: int | None = None) -> str | None:
    """Return a hint 'did you mean ...' for a misspelt name, or the list of the known ones.

    `most` cuts the list short: a model has thousands of names.
    """
    names = sorted(known)
    close = difflib.get_close_matches(str(word), names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    more = [f"… {len(names) - most} more"] if most is not None and len(names) > most else []
    return f"known: {', '.join([*names[:most], *more])}" if names else None


class OnnxImportError(CompileError):
    """The ONNX model cannot be read or taken (MDLC01xx)."""

    default_code = "MDLC0101"


class OnnxExportError(CompileError):
    """The graph has no ONNX form at this opset (MDLC013x)."""

    default_code = "MDLC0130"


class TypeRuleError(CompileError):
    """An op's inputs or attributes do not fit its type rule (MDLC02xx)."""

    default_code = "MDLC0201"


class ParseError(CompileError):
    """IR text is malformed (MDLC03xx)."""

    default_code = "MDLC0301"


class VerifyError(CompileError):
    """An invariant of an IR does not hold (MDLC04xx)."""

    default_code = "MDLC0401"


class PassError(CompileError):
    """A pass, rule or pipeline broke its contract (MDLC05xx)."""

    default_code = "MDLC0501"
    done: tuple[object, ...] = ()  # the rewrites of the pass before it failed


class ScheduleError(CompileError):
    """A schedule primitive is illegal at this step (MDLC06xx)."""

    default_code = "MDLC0601"


class LoweringError(CompileError):
    """An op or expression has no loops (MDLC07xx)."""

    default_code = "MDLC0701"


class CodegenError(CompileError):
    """Loops that code generation cannot take (MDLC08xx)."""

    default_code = "MDLC0801"


class CallError(CompileError):
    """A compiled model was called with inputs that do not fit (MDLC09xx)."""

    default_code = "MDLC0901"


class OptionError(CompileError):
    """An option, name or extension point that does not exist (MDLC10xx)."""

    default_code = "MDLC1001"


class MemoryLimitError(CompileError):
    """The plan needs more memory than `max_bytes` allows (MDLC11xx)."""

    default_code = "MDLC1101"


class GradientError(CompileError):
    """A derivative that does not exist, or is asked for in a way that has no meaning (MDLC12xx)."""

    default_code = "MDLC1201"


class TuneError(CompileError):
    """A space, a record or a worker that tuning cannot use (MDLC13xx)."""

    default_code = "MDLC1301"


class TrainError(CompileError):
    """A step, an optimiser, a data set, a record file or a checkpoint (MDLC125x to MDLC128x)."""

    default_code = "MDLC1250"
