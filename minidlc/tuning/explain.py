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
    counted,
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
    threads = counted(task.threads, "thread")
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
        lost = f"; what won alone is out, {result.lost}" if result.lost else ""
        return f"the default {result.best} stays: {readable(before)}{lost}"
    low, high = result.interval
    sure = "" if high <= 1 else "; the interval reaches over 1, so they may be equal"
    return (
        f"{result.best}: {readable(after)}, {result.ratio:.2f} of the {readable(before)} of the "
        f"default {result.task.default} (95 % interval {low:.2f} to {high:.2f}{sure})"
    )


def _tried(result: TaskResult, s: Summary) -> Iterator[str]:
    ways = tried_ways(result.task.space, result.trials)
    share = percent(s.tried / s.points) if s.points else "all"
    yield f"{s.tried:,} of {s.about}{counted(s.points, 'point')} ({share}), ways: {len(ways)}"
    for way, count, least in ways[:_WAYS]:
        knobs = result.task.space.ways[way]
        axes = ", ".join(f"{knob} {len(values)}" for knob, values in knobs.items())
        end = f", best {readable(least)}" if math.isfinite(least) else ""
        choice = f"{s.points_of(way)}; candidates: {axes}" if axes else "no knobs"
        yield f"- {way} ({choice}): {count} tried{end}"
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
        return f"{counted(known, 'prediction')}: too few to compare"
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
    differ = "step of the schedule differs" if len(rows) == 1 else "steps of the schedule differ"
    yield f"{len(rows)} {differ} from the default's" + ":" * bool(rows)
    for row in rows[:_STEPS]:
        yield f"{row.sign} {' → '.join(text for text in (row.left, row.right) if text)}"
    if len(rows) > _STEPS:
        yield f"… and {len(rows) - _STEPS} more"
    yield from _terms(result, before.loops, after.loops)


def _terms(result: TaskResult, before: LoopFunction, after: LoopFunction) -> Iterator[str]:
    """The terms of the analytic model that changed most; whether it has the winner faster at all.

    The model knows neither the whole machine nor this kernel's times: where it disagrees, the times
    are right, and its terms are no reason.
    """
    target, threads = result.task.target, result.task.threads
    stories = [cycles_of(fn, target, threads) for fn in (before, after)]
    a, b = ({row.term: row.cycles for row in story.rows} for story in stories)
    old, new = (story.cycles for story in stories)
    change = {term: b.get(term, 0.0) - a.get(term, 0.0) for term in {**a, **b}}
    total = max(sum(a.values()), 1e-9)
    order = sorted(change, key=lambda term: -abs(change[term]))
    large = [term for term in order if abs(change[term]) > 0.01 * total]
    if not large:
        yield "why: not by a term of the analytic model, all of them stay as they are"
        return
    parts = [f"{t} {_cycles(a.get(t, 0.0))} → {_cycles(b.get(t, 0.0))}" for t in large[:4]]
    terms = f"{_cycles(old)} → {_cycles(new)} cycles of a call: {', '.join(parts)}"
    if new < old:
        yield f"why, as the analytic model has it: {terms}"
    else:
        yield f"why: unknown, the analytic model disagrees with the times: it has {terms}"


def _cycles(count: float) -> str:
    """'1,720', '3.4'."""
    return f"{count:,.0f}" if count >= 10 else f"{count:.2g}"


def _best(s: Summary) -> Iterator[str]:
    if s.exact and s.tried >= s.points:
        yield "every point was tried: nothing in this space is faster, up to the noise of the times"
        return
    left = max(s.points - s.tried, 1)  # of an estimate
    were = "was" if left == 1 else "were"
    yield f"not proved: {s.about}{counted(left, 'point')} {were} not tried"
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
        call = f"mc.compile(model, threads={result.task.threads}, database=…)"
        found.append(f"a database keeps the winner: {call} takes it without measuring")
    return found
