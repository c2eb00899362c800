"""What the notebooks of the course show: compiler source, tables, times, questions.

    from minidlc import lesson
    lesson.source(mc.verify)                        # the real code, as it stands in the package
    lesson.times({"one by one": f, "fused": g})     # such a cell is tagged nbval-ignore-output
    lesson.ask("How many kernels?", None, len(exe.kernels), hint="count the boxes")

Reads the package's own files and models; writes to the notebook, or to the screen outside of one.
Everything but times is the same on every run. Used in every course chapter.
"""

from __future__ import annotations

import html
import importlib
import inspect
import math
import re
import statistics
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, cast

import numpy as np

from minidlc.expr.types import Array
from minidlc.support.arguments import expect
from minidlc.support.errors import OptionError, nearest
from minidlc.support.timing import interleaved, readable

PACKAGE = Path(__file__).parent
MODELS = {"lenet": "mnist_cntk.onnx"}
DIGITS = "mnist_digits_40.npz"
MONOSPACED = '<div style="font-family:monospace">'  # nbconvert takes the font of prose otherwise
display: Callable[[object], None] = importlib.import_module("IPython.display").display  # no types


@dataclass(frozen=True)
class Shown:
    """One output of a cell: plain text, and what a notebook shows in its place."""

    plain: str
    rich: str
    kind: str = "text/markdown"

    def __repr__(self) -> str:
        return self.plain

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": self.plain, self.kind: self.rich}


def model(name: str = "lenet") -> Path:
    """The file of a small trained model that ships with the package: MODELS has the names."""
    if name not in MODELS:
        hint = nearest(name, MODELS)
        raise OptionError(f"lesson.model: no model {name!r} in the box", hint=hint, code="MDLC1001")
    return PACKAGE / "models" / MODELS[name]


def digits() -> tuple[Array, Array]:
    """40 images for lenet, f32[40, 1, 1, 28, 28] in 0 … 255, and their labels."""
    with np.load(PACKAGE / "models" / DIGITS) as stored:
        return stored["x"], stored["y"]


# ---- source --------------------------------------------------------------------------------


def source(*things: Any, lines: str = "") -> None:
    """Show the source of functions, classes or modules, each under the name of its file.

    `lines="3:9"` shows these lines of it (1 is the first, both ends are shown). Raises OptionError
    (MDLC1001) for a thing that has no Python source, and for lines that it does not have.
    """
    for thing in things:
        where, code = _source(thing)
        code = _part(code, lines) if lines else code
        fence = "````" if "```" in code else "```"
        title = f"`{getattr(thing, '__qualname__', where)}` in `{where}`"
        block = f"{MONOSPACED}\n\n{fence}python\n{code}\n{fence}\n\n</div>"
        display(Shown(f"# {where}\n{code}", f"{title}\n\n{block}"))


def _source(thing: Any) -> tuple[str, str]:
    """The file, from the package's folder on, and the text of a thing."""
    if isinstance(thing, property):
        thing = thing.fget
    try:
        found = inspect.unwrap(thing) if callable(thing) else thing
        path = Path(inspect.getsourcefile(found) or "")
        code = textwrap.dedent(inspect.getsource(found)).rstrip()
    except (TypeError, OSError):
        raise OptionError(
            f"lesson.source: {thing!r} has no Python source",
            hint="a function, class or module of minidlc, or one of this notebook",
            code="MDLC1001",
        ) from None
    inside = path.is_relative_to(PACKAGE)
    return path.relative_to(PACKAGE.parent).as_posix() if inside else "this notebook", code


def _part(code: str, lines: str) -> str:
    """Lines "a:b" of a text, with a mark where something is left out."""
    every = code.splitlines()
    match = re.fullmatch(r"(\d*):(\d*)", lines)
    first, last = (int(match[1] or 1), int(match[2] or len(every))) if match else (0, 0)
    if not 1 <= first <= last <= len(every):
        text = f"lesson.source: lines={lines!r} of a text of {len(every)} lines"
        raise OptionError(text, hint=f'"1:{len(every)}" is all of it', code="MDLC1001")
    part = textwrap.dedent("\n".join(every[first - 1 : last]))
    before = ["# …"] if first > 1 else []
    return "\n".join([*before, part, *(["# …"] if last < len(every) else [])])


# ---- tables --------------------------------------------------------------------------------


def table(rows: Iterable[Sequence[object]], header: Sequence[str] = ()) -> None:
    """Show rows as a table; numbers stand on the right, `code` is set as code."""
    display(_table([list(row) for row in rows], header))


def _table(rows: Sequence[Sequence[object]], header: Sequence[str]) -> Shown:
    width = len(header) or max((len(row) for row in rows), default=0)
    for row in rows:
        if len(row) != width:
            text = f"lesson.table: a row of {len(row)} cells, expected {width}: {list(row)}"
            raise OptionError(text, code="MDLC1001")
    texts = [[_cell(value) for value in row] for row in rows]
    heads = [list(header)] if header else []
    widths = [max(map(_columns, column)) for column in zip(*heads, *texts, strict=True)]
    plain = [_plain_row(row, widths) for row in [*heads, *texts]]
    plain[len(heads) : len(heads)] = ["─" * (sum(widths) + 2 * width - 2)] * len(heads)
    head = "".join(f'<th style="text-align:left">{_html(name)}</th>' for name in header)
    body = "".join(f"<tr>{''.join(map(_html_cell, row))}</tr>" for row in rows)
    top = f"<thead><tr>{head}</tr></thead>" if header else ""
    shown = f'<table style="font-size:100%">{top}<tbody>{body}</tbody></table>'
    return Shown("\n".join(plain), shown, "text/html")


def _cell(value: object) -> str:
    if not _is_number(value):
        return str(value)
    return f"{value:,}" if isinstance(value, Integral) else f"{value:.3g}"


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real)


def _html(text: str) -> str:
    """Text between `` as code, the rest as it is."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text)).replace("\n", "<br>")


def _html_cell(value: object) -> str:
    side = "right" if _is_number(value) else "left"
    return f'<td style="text-align:{side};vertical-align:top">{_html(_cell(value))}</td>'


def _columns(text: str) -> int:
    """Columns of a text on a terminal: a Chinese character takes two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _plain_row(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (text + " " * (width - _columns(text)) for text, width in zip(row, widths, strict=True))
    return "  ".join(cells).rstrip()


# ---- times ---------------------------------------------------------------------------------


def times(
    candidates: Mapping[str, Callable[[], object]], *, rounds: int = 9, seconds: float = 0.01
) -> dict[str, float]:
    """Show and return the time of one call of each; the last column compares with the first.

    They take turns, `rounds` times for about `seconds` each, and the median counts. A cell that
    calls this carries the tag nbval-ignore-output: times change from run to run.
    """
    expect("lesson.times", "candidates", candidates, Mapping)
    measured = interleaved(candidates, rounds=rounds, seconds=seconds)
    medians = {name: statistics.median(taken) for name, taken in measured.items()}
    first = next(iter(medians.values()), 1.0)
    rows = [[name, readable(t), f"{first / t:.2f} ×"] for name, t in medians.items()]
    display(_table(rows, ["", "time of a call", "speed"]))
    return medians


# ---- questions -----------------------------------------------------------------------------


def ask(
    question: str,
    yours: object,
    truth: object,
    hint: str = "",
    *,
    why: str = "",
    within: float = 0.0,
) -> None:
    """Show a question, and what became of the answer: None is no answer yet.

    `truth` is the right answer, or a function of no argument that measures it. A number may miss it
    by the part `within` of it. A right answer shows `why`, a wrong one the hint.
    """
    wanted = truth() if callable(truth) else truth  # measured in any case: it must not fail later
    if yours is None:
        verdict = "Your turn: write your answer in place of `None`, and run the cell."
    elif _same(yours, wanted, within):
        verdict = f"✓ `{_cell(yours)}`. {why}".rstrip()
    else:
        verdict = f"✗ not `{_cell(yours)}`. {hint}".rstrip()
    display(Shown(f"{question}\n{verdict}", f"**{question}**\n\n{verdict}"))


def _same(yours: object, wanted: object, within: float) -> bool:
    if isinstance(yours, str) and isinstance(wanted, str):
        return yours.strip().casefold() == wanted.strip().casefold()
    if isinstance(yours, Real) and isinstance(wanted, Real):
        return math.isclose(yours, wanted, rel_tol=max(within, 1e-9))
    mine, right = cast(Any, yours), cast(Any, wanted)
    if isinstance(yours, np.ndarray) or isinstance(wanted, np.ndarray):
        return np.array_equal(mine, right)
    if {type(yours), type(wanted)} <= {list, tuple}:
        return [*mine] == [*right]
    return bool(yours == wanted)
