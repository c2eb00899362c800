"""Results of tuning, in whatever form a person has them: one, several, a model's, or a database.

    results_of("viz.tuning", tuning)                # a Tuning of mc.tune, its `results`
    results_of("viz.tuning", [a, b])                # TaskResults
    results_of("viz.tuning", "tune.jsonl")          # what the records of a database tell

Reads what was given, writes a tuple of TaskResults. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from minidlc.support.arguments import expect, expect_each
from minidlc.support.errors import TuneError
from minidlc.tuning import layouts
from minidlc.tuning.database import Database, best_of, existing
from minidlc.tuning.outcome import Tuning
from minidlc.tuning.records import Record, canonical_task
from minidlc.tuning.result import TaskResult

Results: TypeAlias = TaskResult | Sequence[TaskResult] | Tuning | Database | os.PathLike[str] | str


def results_of(function: str, given: Results) -> tuple[TaskResult, ...]:
    """The results, at least one; layouts of whole models that a database knows are left out.

    OptionError (MDLC1001) for something else, TuneError for a database that is not there (MDLC1341)
    or no result (MDLC1360).
    """
    hint = "what mc.tune returned, a list of TaskResult, or the path of a database"
    if isinstance(given, TaskResult):
        return (given,)
    if isinstance(given, (str, os.PathLike)):
        given = existing(given, function)
    if isinstance(given, Database):
        kernels = given.workloads().values()
        given = [_rebuilt(rs) for rs in kernels if rs[0].workload.kind != layouts.KIND]
    expect(function, "results", given, list, tuple, Tuning, hint=hint)
    listed = given.results if isinstance(given, Tuning) else given
    found = expect_each(function, "results", listed, TaskResult, hint=hint)
    if not found:
        text = f"{function}: no results to show: nothing was tuned"
        raise TuneError(text, hint=_why_none(given), code="MDLC1360")
    return found


def _why_none(given: Sequence[TaskResult] | Tuning) -> str:
    """The first kernel that failed, if one did, else the first that was left out."""
    known = {**given.failed, **given.left_out} if isinstance(given, Tuning) else {}
    for name, reason in known.items():
        return f"{name}: {reason}"
    return "a model whose kernels all have one way and no knobs has nothing to tune"


def _rebuilt(records: Sequence[Record]) -> TaskResult:
    """The result that the records of one kernel tell; the last re-check gives the times.

    How often a model has the kernel is in no record: `count` is 1.
    """
    task = replace(canonical_task(records[-1].workload), name=records[-1].op)
    trials = tuple(r.trial for r in records if not r.is_check)
    checks = [r for r in records if r.is_check and r.default_seconds]
    winner = best_of(records)
    if winner is None:
        searched = next((t.seconds for t in trials if t.config == task.default), ())
        seconds = checks[-1].default_seconds if checks else searched
        last = checks[-1].trial if checks else None
        lost = f"{last.by}: {last.reason}" if last and last.reason else ""
        return TaskResult(task, trials, task.default, seconds, seconds, 1, bool(checks), lost)
    return TaskResult(task, trials, winner.config, winner.default_seconds, winner.trial.seconds)
