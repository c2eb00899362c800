"""From what a test raised to its row: what the student reads, and what only the instructor reads.

    row = row_of(test, None, program)               # passed
    row = row_of(test, Mismatch(…), program)        # failed: input, expected, got, if it is public

Of a hidden test a student reads the claim, a sentence without values, an exception's class and
the last own frame. Whatever comes from a worker is checked against the submission first: the frame
is a line that stands there, the exception a class that exists, so neither carries more than a few
bits of an input.
"""

from __future__ import annotations

import builtins
import re
import reprlib
import traceback
from typing import Any, cast

import numpy as np
import pytest

import minidlc as mc
from grader.collect import Test
from grader.expect import Mismatch
from grader.model import Row, Status, Task
from grader.program import Program
from grader.student import Died, StudentRaised
from minidlc.expr.affine import Index
from minidlc.expr.types import Array
from minidlc.support import errors

MAX_LINES = 30  # of the details of one row
MAX_WIDTH = 160
MAX_PICTURE = 20_000  # characters of a graph that is drawn
OURS = "The grader failed here, not your code. This task has no score yet."
_FORM = "the answer does not have the form that is asked for"
_FRAME = re.compile(r"(cell [\w.\-]{1,40}), line (\d{1,6}):")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
_OVERLAY = re.compile(r"/[^\s'\"]*/overlay-[0-9a-f]+/")
_OUR_FRAME = re.compile(r"\S*grader[/\\](serve|child|sandbox[/\\]\w+)\.py:\d+ in ")
_WITHHELD = re.compile(r"withheld: (minidlc[\w.]*:[\w.]+) is for you to write")
_KNOWN = {"UnreadableAnswer", "Refused"}  # of grader.wire


class _Short(reprlib.Repr):
    """Types and symbols as a graph text has them: f32["N", 4], not a list of fields."""

    def repr1(self, x: object, level: int) -> str:
        """One value, wherever it stands."""
        known = isinstance(x, mc.TensorType | mc.DType | Index)
        return str(x) if known else super().repr1(x, level)


_short = _Short()
_short.maxlist = _short.maxtuple = _short.maxdict = _short.maxset = 24
_short.maxstring = _short.maxother = _short.maxlong = 400
_short.maxlevel = 5


class GraderFault(Exception):
    """Something of ours failed while a test ran."""


ANSWERS = (AssertionError, StudentRaised, Died, GraderFault, pytest.fail.Exception)


def row_of(
    test: Test, error: BaseException | None, program: Program, withheld: tuple[str, ...] = ()
) -> Row:
    """The row of a test that returned (None) or raised; `withheld` as the task states it."""
    if error is None:
        return _row(test, Status.PASSED)
    match error:
        case Mismatch():
            return _mismatch(test, error)
        case StudentRaised():
            return _raised(test, error, program, withheld)
        case Died():
            return _row(test, error.status, sentence=clean(error.sentence))
        case GraderFault():
            return broken(test, trace(error))
        case AssertionError() | pytest.fail.Exception():
            return _asserted(test, error)
        case _:
            return _malformed(test, error)


def same_for_all(tests: list[Test], status: Status, sentence: str) -> list[Row]:
    """A row for each of these tests, none of which ran."""
    return [_row(test, status, sentence=sentence) for test in tests]


def broken(test: Test, private: str) -> Row:
    """A row that has no score through a fault of ours."""
    return _row(test, Status.GRADER_ERROR, sentence=OURS, private=private)


def placeholders(task: Task, public_only: bool, status: Status, text: str) -> list[Row]:
    """Rows for the stated number of tests, when the tests themselves are not there."""
    kinds = [True] * task.public_tests + [False] * (0 if public_only else task.hidden_tests)
    private = text if status == Status.GRADER_ERROR else ""
    sentence = OURS if private else text
    names = [f"{'public' if kind else 'hidden'} test {i}" for i, kind in enumerate(kinds, 1)]
    return [
        Row(name, kind, status, sentence=sentence, private=private)
        for name, kind in zip(names, kinds, strict=True)
    ]


def hint_for(task: Task, rows: list[Row]) -> str:
    """One of the task's hints: the fewer different claims fail, the more it says.

    Claims count, not tests: a claim with ten cases is one thing to understand. Where nothing passes
    yet, it is the first hint, which is about the way to begin.
    """
    wrong = {row.claim or row.test for row in rows if row.status != Status.PASSED}
    if not task.hints or not wrong:
        return ""
    begun = any(row.status == Status.PASSED for row in rows)
    hint = task.hints[max(0, len(task.hints) - len(wrong)) if begun else 0]
    return f"{hint} (section {task.section})" if task.section else hint


def clean(text: str) -> str:
    """The text without addresses and temporary folders, which differ from run to run."""
    return _OVERLAY.sub("", _ADDRESS.sub("0x…", text))


def _withheld(text: str, withheld: tuple[str, ...]) -> str:
    """Which withheld part said so, in the words of the task: `text` comes from a worker."""
    found = _WITHHELD.search(text)
    parts = [part for part in withheld if found and _belongs(found[1], part)]
    return f": {parts[0]} is withheld, it is for you to write" if parts else ""


def _belongs(name: str, part: str) -> bool:
    """A withheld class withholds its methods, a withheld module all its functions."""
    return name == part or name.startswith(part + ("." if ":" in part else ":"))


def _row(test: Test, status: Status, **fields: Any) -> Row:
    earned = test.weight if status == Status.PASSED else 0.0
    return Row(test.name, test.public, status, earned, test.weight, test.claim, **fields)


def _mismatch(test: Test, wrong: Mismatch) -> Row:
    sides = {"input": wrong.given, "expected": wrong.want, "got": wrong.got}
    details = _details(wrong.sentence, sides)
    if not test.public:
        return _row(test, Status.FAILED, sentence=_sentence(wrong.told), private=details)
    expected, yours = _picture(wrong.want), _picture(wrong.got)
    both = {"expected": expected, "yours": yours} if expected and yours else {}
    details = _details("", sides)
    return _row(test, Status.FAILED, sentence=_sentence(wrong.sentence), details=details, **both)


def _asserted(test: Test, error: BaseException) -> Row:
    said = clean(str(error)).strip() or _asserted_line(test, error)
    if not test.public:
        told = _sentence("the answer is not the expected one")
        return _row(test, Status.FAILED, sentence=told, private=_clip(said, MAX_LINES))
    first, _, rest = said.partition("\n")
    return _row(test, Status.FAILED, sentence=_sentence(first), details=_clip(rest, MAX_LINES))


def _asserted_line(test: Test, error: BaseException) -> str:
    file = test.function.__code__.co_filename
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return f"this does not hold: {frames[-1].line}" if frames else "a condition does not hold"


def _malformed(test: Test, error: BaseException) -> Row:
    """The test itself stumbled over an answer, while it passes with the reference solution."""
    if not test.public:
        return _row(test, Status.FAILED, sentence=_sentence(_FORM), private=trace(error))
    seen = f"{_FORM} ({type(error).__name__}: {clean(str(error))[:200]})"
    return _row(test, Status.FAILED, sentence=_sentence(seen))


def _raised(test: Test, raised: StudentRaised, program: Program, withheld: tuple[str, ...]) -> Row:
    kind = _class_name(raised.kind, program)
    frames = _frames(raised.frames, program)
    code = f" {raised.code}" if re.fullmatch(r"MDLC\d{4}", raised.code) else ""
    said = f": {raised.message}" if raised.message else ""
    notes = [line for note in raised.notes for line in note.split("\n")]
    notes = [line for line in notes if not _OUR_FRAME.match(line.strip())]
    full = clean("\n".join([f"{kind}{code}{said}", *notes]))
    if raised.hint:
        full += f"\nhint: {clean(raised.hint)}"
    fields = {"exception": kind, "frames": frames}
    if not test.public:
        sentence = f"your code raised {kind}{_withheld(full, withheld)}"
        fields |= {"sentence": _sentence(sentence), "private": _clip(full, MAX_LINES)}
        fields["frames"] = frames[-1:]  # a list of lines could spell an input
        return _row(test, Status.ERROR, **fields)
    first, _, rest = full.partition("\n")
    fields |= {"sentence": first[:400], "details": _clip(rest, MAX_LINES - len(frames))}
    return _row(test, Status.ERROR, **fields)


def _class_name(kind: str, program: Program) -> str:
    """The class if it is Python's, the compiler's or stands in the submission."""
    python = getattr(builtins, kind, None) if kind.isidentifier() else None
    if isinstance(python, type) and issubclass(python, BaseException):
        return kind
    if kind in _KNOWN or isinstance(getattr(errors, kind, None), type):
        return kind
    own = re.compile(rf"\bclass\s+{re.escape(kind)}\b")
    if kind.isidentifier() and any(own.search(source) for _, source in program.cells):
        return kind
    return "an exception of its own"


def _frames(frames: tuple[str, ...], program: Program) -> tuple[str, ...]:
    """'cell 1.2, line 4: return x', with the line as it stands in the submission."""
    found: list[str] = []
    for match in filter(None, map(_FRAME.match, frames)):
        label, number = match[1], int(match[2])
        line = program.line(label, number)
        if line is not None:
            found.append(f"{label}, line {number}: {line[:MAX_WIDTH]}")
    return tuple(found)


def _sentence(text: str) -> str:
    """On one line, with a capital and a full stop."""
    text = " ".join(clean(text).split())[:400]
    if not text:
        return ""
    stop = "" if text[-1] in ".!?:…" else "."
    return text[0].upper() + text[1:] + stop


def _details(sentence: str, sides: dict[str, object]) -> str:
    """Input, expected and got in at most MAX_LINES lines."""
    shown = {name: text for name, side in sides.items() if (text := text_of(side).strip("\n"))}
    each = (MAX_LINES - len(shown) - bool(sentence)) // max(1, len(shown))
    parts = [sentence] if sentence else []
    for name, text in shown.items():
        one = "\n" not in text and len(text) < 80
        parts.append(f"{name}: {text}" if one else f"{name}:\n{_clip(text, each)}")
    return clean("\n".join(parts))


def _clip(text: str, lines: int) -> str:
    """At most so many lines, none wider than MAX_WIDTH."""
    found = [
        line if len(line) <= MAX_WIDTH else line[:MAX_WIDTH] + "…" for line in text.split("\n")
    ]
    if len(found) > lines:
        found = [*found[: lines - 1], f"… {len(found) - lines + 1} more lines"]
    return "\n".join(found)


def text_of(side: object) -> str:
    """A side of a mismatch as text."""
    if isinstance(side, str):
        return side
    if isinstance(side, mc.Graph):
        return str(side)
    if isinstance(side, np.ndarray):
        array = cast(Array, side)
        body = np.array2string(array, threshold=40, edgeitems=3, precision=6)
        return f"{array.dtype}{list(array.shape)}\n{body}"
    return _short.repr(side)


def _picture(side: object) -> str:
    text = str(side) if isinstance(side, mc.Graph) else ""
    return text if len(text) <= MAX_PICTURE else ""


def trace(error: BaseException) -> str:
    """For the instructor: the last frames of a fault."""
    lines = "".join(traceback.format_exception(error)).strip().split("\n")
    return clean("\n".join(lines[-MAX_LINES:]))
