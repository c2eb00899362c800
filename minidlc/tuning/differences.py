"""The winner against the default, step by step: which lines of the two traces differ.

    for row in trace_rows(before.schedule.trace, after.schedule.trace):
        row.sign, row.left, row.right               # '≠', 'knob("rows", 4)', 'knob("rows", 6)'

Reads two traces, writes rows for tables and pictures. Runs of equal steps are counted; steps stand
side by side if they do the same to the same stage, or give the same knob. Left out is what a knob
could have been, and a knob that only one side has: the steps that use it tell more. Treated in
course chapter 06_autotune.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from minidlc.te.primitive import Trace

_AROUND = 1  # equal steps that are shown beside a different one
_KNOB = "knob("
_CANDIDATES = re.compile(r", candidates=\[[^]]*]")  # of a knob


@dataclass(frozen=True)
class TraceRow:
    """A step of each trace: `sign` is "" (equal), "≠", "−" (left only), "+" (right only) or "…"."""

    sign: str
    left: str
    right: str


def trace_rows(before: Trace, after: Trace) -> list[TraceRow]:
    """The two traces side by side, long equal parts as one row that counts them."""
    a, b = _steps(before, after)
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


def _steps(*traces: Trace) -> list[list[str]]:
    """The steps of each; of knobs those that all traces have."""
    found = [_CANDIDATES.sub("", str(trace)).splitlines() for trace in traces]
    common = set[str].intersection(*({_head(step) for step in steps} for steps in found))
    return [[s for s in steps if not s.startswith(_KNOB) or _head(s) in common] for steps in found]


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
    """Steps of one head in pairs, in order; then what only one side has, all of it together."""
    heads = [[_head(step) for step in steps] for steps in (left, right)]
    for what, i, k, j, m in SequenceMatcher(None, *heads, autojunk=False).get_opcodes():
        if what == "equal":
            yield from (TraceRow("≠", a, b) for a, b in zip(left[i:k], right[j:m], strict=True))
            continue
        yield from (TraceRow("−", a, "") for a in left[i:k])
        yield from (TraceRow("+", "", b) for b in right[j:m])


def _head(step: str) -> str:
    """What a step does and to which stage, or which knob it gives: 'split("C"', 'knob("rows"'."""
    return step.partition(",")[0]
