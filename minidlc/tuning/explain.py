"""What a tuner did, in words: what was tried, what failed and why, what the model believed.

    print(explain(result))
    # k0_matmul: matmul, 1 thread on skylake, 16 f32 lanes, 32 vector registers
    # result    gemm(rows=6): 343 µs, 0.83 of the default's 412 µs (95 %: 0.81 to 0.85)
    # …

It answers what is asked of every tuner: what is in the space, why did this candidate fail, what
does the model believe, is this the best one, will it come out the same tomorrow. Reads TaskResults,
writes text. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import math
import re
import statistics
import textwrap
from collections.abc import Iterator

from minidlc.loop.nodes import LoopFunction
from minidlc.support.errors import CompileError
from minidlc.support.timing import readable
from minidlc.tuning.differences import trace_rows
from minidlc.tuning.gather import Results, results_of
from minidlc.tuning.model import explain as cycles_of
from minidlc.tuning.outcome import Tuning
from minidlc.tuning.result import TaskResult
from minidlc.tuning.summary import (
    Summary,
    believed,
    failures,
    improvements,
    learning,
    percent,
    shares,
    tried_ways,
)
from minidlc.tuning.trial import Fate, best, fates, why_none

WIDTH = 100
_LABEL = 10  # columns of the words at the left
_WAYS, _STEPS = 6, 12  # lines of a list
_CANDIDATES = re.compile(r", candidates=\[[^]]*]")  # of a knob: "tried" has them
_BULLETS = ("- ", "≠ ", "− ", "+ ")

Section = tuple[str, list[str]]


def explain(results: Results) -> str:
    """The story of each task as text, at most 100 columns wide; of a model its table first.

    `results` is a TaskResult, a list of them, what mc.tune returned, or a database or its path.
    OptionError (MDLC1001) for something else, TuneError for no such file (MDLC1341) or no result
    (MDLC1360).
    """
    stories = map(_story, results_of("explain", results))
    return "\n\n".join([*([str(results)] if isinstance(results, Tuning) else ()), *stories])


def _story(result: TaskResult) -> str:
    task = result.task
    threads = f"{task.threads} thread{'s' * (task.threads != 1)}"
    lines = [f"{cut(task.name, 60)}: {task.kind}, {threads} on {task.target}"]
    for label, texts in sections(result):
        for number, text in enumerate(texts):
            start = ("" if number else label).ljust(_LABEL)
            rest = " " * (_LABEL + 2 * text.startswith(_BULLETS))
            lines += textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=rest)
    return "\n".join(lines)


def cut(text: str, most: int) -> str:
    """A text on one line, of at most `most` letters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def sections(result: TaskResult) -> list[Section]:
    """The story as (word, sentences): terminal and report show the same."""
    s = Summary.of(result)
    found: list[Section] = [
        ("result", [outcome(result)]),
        ("tried", list(_tried(result, s))),
        ("failed", list(_failed(result))),
        ("search", [learning(result)]),
        ("model", [_model(result, s)]),
        ("knobs", list(_knobs(result))),
        ("changed", list(_changed(result))),
        ("best?", list(_best(s))),
        ("tomorrow", _tomorrow(result, s)),
    ]
    return [(word, texts) for word, texts in found if texts]


def outcome(result: TaskResult) -> str:
    """The winner against the default, and how sure that is."""
    if result.trials and best(result.trials) is None:
        return f"no trial ran, the default {result.task.default} stays: {why_none(result.trials)}"
    if not result.is_checked:
        seen = best(result.trials)
        fastest = f"the fastest seen is {seen.config}, {readable(seen.cost)}; " if seen else ""
        return f"{fastest}it was not measured again beside the default"
    before, after = map(statistics.median, (result.default_seconds, result.best_seconds))
    if not result.is_better:
        lost = f"; what won alone lost {result.lost}" if result.lost else ""
        return f"the default {result.best} stays: {readable(before)}{lost}"
    low, high = result.interval
    sure = "" if high <= 1 else "; the interval reaches over 1, so they may be equal"
    return (
        f"{result.best}: {readable(after)}, {result.ratio:.2f} of the {readable(before)} of the "
        f"default {result.task.default} (95 % interval {low:.2f} to {high:.2f}{sure})"
    )


def _tried(result: TaskResult, s: Summary) -> Iterator[str]:
    about = "" if s.exact else "about "
    ways = tried_ways(result.task.space, result.trials)
    share = percent(s.tried / s.points) if s.points else "all"
    yield f"{s.tried:,} of {about}{s.points:,} points ({share}), ways: {len(ways)}"
    for way, count, least in ways[:_WAYS]:
        knobs = result.task.space.ways[way]
        axes = ", ".join(f"{knob} {len(values)}" for knob, values in knobs.items())
        end = f", best {readable(least)}" if math.isfinite(least) else ""
        yield f"- {way} ({f'candidates: {axes}' if axes else 'no knobs'}): {count} tried{end}"
    if len(ways) > _WAYS:
        yield f"- and {len(ways) - _WAYS} more"


def _failed(result: TaskResult) -> Iterator[str]:
    if not any(t.fate is not Fate.OK for t in result.trials):
        return
    yield ", ".join(f"{count} {fate}" for fate, count in fates(result.trials).items())
    for f in failures(result.trials):
        reason = cut(f.first.reason or "no reason given", 300)
        yield f"- {f.fate}, first at trial {f.number}, {f.first.config}: {reason}"


def _model(result: TaskResult, s: Summary) -> str:
    known = len(believed(result.trials))
    if not known:
        return "no model was asked, or no trial that it had spoken of ran"
    if s.correlation is None:
        return f"{known} predictions: too few to compare"
    worth = "orders them well" if s.correlation >= 0.7 else "is a rough guide"
    worth = worth if s.correlation >= 0.3 else "is little better than chance"
    late = "" if s.late is None else f", {s.late:.2f} in the newer half"
    return f"it {worth}: rank correlation {s.correlation:.2f} over {known} predictions{late}"


def _knobs(result: TaskResult) -> Iterator[str]:
    found = shares(result.trials)
    words = {"way": "the choice of the way", "rest": "several together, and noise"}
    parts = [f"{words.get(n, n)} {percent(share)}" for n, share in found.items() if share >= 0.005]
    if parts:
        yield f"what the spread of the times comes from: {', '.join(parts[:_WAYS])}"


def _changed(result: TaskResult) -> Iterator[str]:
    """Which steps differ from the default's, and which terms of the analytic model."""
    if not result.is_better:
        return
    try:
        before, after = (result.task.lower(c) for c in (result.task.default, result.best))
    except CompileError as error:
        yield f"the schedules cannot be compared: {error.message}"
        return
    rows = trace_rows(before.schedule.trace, after.schedule.trace)
    rows = [r for r in rows if r.sign in ("≠", "−", "+")]
    yield f"{len(rows)} steps of the schedule differ from the default's" + ":" * bool(rows)
    for row in rows[:_STEPS]:
        sides = (_CANDIDATES.sub("", text) for text in (row.left, row.right) if text)
        yield f"{row.sign} {' → '.join(sides)}"
    if len(rows) > _STEPS:
        yield f"… and {len(rows) - _STEPS} more"
    yield from _terms(result, before.loops, after.loops)


def _terms(result: TaskResult, before: LoopFunction, after: LoopFunction) -> Iterator[str]:
    """The terms of the analytic model that changed most."""
    target, threads = result.task.target, result.task.threads
    a, b = (
        {row.term: row.cycles for row in cycles_of(fn, target, threads).rows}
        for fn in (before, after)
    )
    change = {term: b.get(term, 0.0) - a.get(term, 0.0) for term in {**a, **b}}
    total = max(sum(a.values()), 1e-9)
    order = sorted(change, key=lambda term: -abs(change[term]))
    large = [term for term in order if abs(change[term]) > 0.01 * total]
    if not large:
        yield "why: not by a term of the analytic model, all of them stay as they are"
        return
    parts = (f"{t} {a.get(t, 0.0):.3g} → {b.get(t, 0.0):.3g}" for t in large[:4])
    yield f"why, as the analytic model has it, in cycles of a call: {', '.join(parts)}"


def _best(s: Summary) -> Iterator[str]:
    if s.exact and s.tried >= s.points:
        yield "every point was tried: nothing in this space is faster, up to the noise of the times"
        return
    left = s.points - s.tried
    yield f"not proved: {left:,} points were not tried"
    if s.gap is None:
        return
    if s.spread is not None and s.gap <= s.spread:
        yield (
            f"the two fastest differ by {percent(s.gap)}, less than the winner's repeats do "
            f"(±{percent(s.spread)}): noise hides what may be left"
        )
        return
    yield (
        f"an estimate from the two fastest: the best may be about {percent(s.gap)} faster "
        "(as if trials were drawn at random)"
    )


def _tomorrow(result: TaskResult, s: Summary) -> list[str]:
    spread = "" if s.spread is None else f" (repeats of the winner: ±{percent(s.spread)})"
    gains = improvements(result.trials)
    guided = any(t.predicted is not None for t in result.trials)
    order = "the seed and, through the model, the measured times" if guided else "the seed"
    found = [
        "same: the space, and the code of a point, with this version and this machine",
        f"not the same: times{spread}; the order of trials depends on {order}",
    ]
    if gains:
        found.append("a database keeps the winner: compile(database=…) takes it without measuring")
    return found
