"""Results of tuning, in whatever form a person has them: one, several, or all of a model.

    results_of("viz.tuning", tuning)                # a Tuning of mc.tune, its `results`
    results_of("viz.tuning", [a, b])                # TaskResults

Reads what was given, writes a tuple of TaskResults. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from minidlc.support.arguments import expect, expect_each
from minidlc.support.errors import TuneError
from minidlc.tuning.result import TaskResult


@runtime_checkable
class HasResults(Protocol):
    """What tuning a whole model gave."""

    @property
    def results(self) -> Sequence[TaskResult]:
        """One for each task."""
        ...


Results: TypeAlias = TaskResult | Sequence[TaskResult] | HasResults


def results_of(function: str, given: Results) -> tuple[TaskResult, ...]:
    """The results, at least one.

    OptionError (MDLC1001) for something else, TuneError (MDLC1360) if there is none.
    """
    hint = "what mc.tune returned, or a list of TaskResult"
    if isinstance(given, TaskResult):
        return (given,)
    if isinstance(given, HasResults):
        given = given.results
    expect(function, "results", given, list, tuple, hint=hint)
    found = expect_each(function, "results", given, TaskResult, hint=hint)
    if not found:
        raise TuneError(
            f"{function}: no results to show: nothing was tuned",
            hint="a model whose kernels all have one way and no knobs has nothing to tune",
            code="MDLC1360",
        )
    return found
