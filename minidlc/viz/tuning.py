"""The picture of tuning: does the search still learn, what is in the space, what did the winner
change.

    mc.viz.tuning(result)                           # one kernel: trials, fates, the model
    mc.viz.tuning(mc.tune(model))                   # a model: its kernels; a click opens one
    mc.viz.tuning(result).parts                     # the space; both loop nests; Pareto fronts

Reads TaskResults, writes a Picture. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from minidlc.support.errors import CompileError
from minidlc.tuning.gather import Results, results_of
from minidlc.tuning.outcome import Tuning
from minidlc.tuning.result import TaskResult
from minidlc.viz.drawing import Drawing
from minidlc.viz.picture import Picture
from minidlc.viz.theme import ThemeName
from minidlc.viz.tuning_nests import nests_picture
from minidlc.viz.tuning_pareto import pareto_picture
from minidlc.viz.tuning_progress import SHOWN, progress
from minidlc.viz.tuning_space import space_picture
from minidlc.viz.tuning_tasks import LISTED, by_time, key, tasks_picture


def tuning(results: Results, theme: ThemeName | None = None) -> Picture:
    """Draw what tuning did: the trials of one kernel, or the kernels of a model.

    `results` is a TaskResult, a list of them, what mc.tune returned, or a database or its path; the
    `parts` of the picture hold the rest. OptionError for an unknown theme (MDLC1021) or another
    type (MDLC1001), TuneError for no such file (MDLC1341) or no result (MDLC1360).
    """
    found = results_of("viz.tuning", results)
    if len(found) == 1:
        return _of_task(found[0], theme)

    def opened() -> list[tuple[str, Picture]]:
        return [(key(n), _of_task(r, theme)) for n, r in enumerate(by_time(found)[:LISTED])]

    whole = results if isinstance(results, Tuning) else None
    return Picture(tasks_picture(found, whole), theme, opened)


def _of_task(result: TaskResult, theme: ThemeName | None) -> Picture:
    def opened() -> list[tuple[str, Picture]]:
        return [(name, Picture(drawing, theme)) for name, drawing in details(result)]

    return Picture(progress(result), theme, opened)


def details(result: TaskResult, most: int = SHOWN) -> Iterator[tuple[str, Drawing]]:
    """What stands below the picture of a kernel: its space, the two nests, Pareto fronts.

    Nests are left out where a point no longer lowers: tuning/explain.py says why. Plots have about
    `most` marks.
    """
    yield "space", space_picture(result)
    with suppress(CompileError):
        yield "nests", nests_picture(result)
    if pareto := pareto_picture(result, most):
        yield "objectives", pareto
