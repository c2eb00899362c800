"""The winner against the default, step by step: which lines of the two traces differ.

    for row in trace_rows(before.schedule.trace, after.schedule.trace):
        row.sign, row.left, row.right               # '≠', 'knob("rows", 4, …', 'knob("rows", 6, …'

Reads two traces, writes rows for tables and pictures; runs of equal steps are counted. Treated in
course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

from minidlc.te.primitive import Trace

_AROUND = 1  # equal steps that are shown beside a different one


@dataclass(frozen=True)
class TraceRow:
    """A step of each trace: `sign` is "" (equal), "≠", "−" (left only), "+" (right only) or "…"."""

    sign: str
    left: str
    right: str


def trace_rows(before: Trace, after: Trace) -> list[TraceRow]:
    """The two traces side by side, long equal parts as one row that counts them."""
    a, b = str(before).splitlines(), str(after).splitlines()
    rows = list[TraceRow]()
    blocks = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    for number, (what, i, k, j, m) in enumerate(blocks):
        if what == "equal":
            lead = _AROUND if number else 0
            trail = _AROUND if number < len(blocks) - 1 else 0
            rows += _equal(a[i:k], lead, trail)
        else:
            rows += _unequal(a[i:k], b[j:m])
    return rows


def _equal(steps: list[str], lead: int, trail: int) -> Iterator[TraceRow]:
    hidden = len(steps) - lead - trail
    if hidden <= 1:
        yield from (TraceRow("", s, s) for s in steps)
        return
    yield from (TraceRow("", s, s) for s in steps[:lead])
    words = f"{hidden} equal steps"
    yield TraceRow("…", words, words)
    yield from (TraceRow("", s, s) for s in steps[len(steps) - trail :])


def _unequal(left: list[str], right: list[str]) -> Iterator[TraceRow]:
    for a, b in zip_longest(left, right, fillvalue=""):
        if _head(a) == _head(b):
            yield TraceRow("≠", a, b)
            continue
        if a:
            yield TraceRow("−", a, "")
        if b:
            yield TraceRow("+", "", b)


def _head(step: str) -> str:
    """What a step does and to which stage: 'split("C"'."""
    return step.partition(",")[0]
