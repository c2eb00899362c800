"""Loops under names that are free: what the rules build their primitives with.

    split(sch, "relu", "i", sizes["tile_i"], "ti")  # ('it', 'ii'), or others if those are taken
    fuse(sch, "relu", ("n", "h"))                   # 'nh'

Writes primitives to a schedule; the number may be a knob. Treated in course chapter 06_autotune.
"""

from __future__ import annotations

import keyword
from collections.abc import Sequence

from minidlc.support.names import Names
from minidlc.te import Schedule


def split(sch: Schedule, stage: str, axis: str, factor: int, parts: str) -> tuple[str, str]:
    """Split a loop; the two are named after it, each with a letter of `parts`."""
    names = _names(sch, stage)
    made = names.fresh(f"{axis}{parts[0]}"), names.fresh(f"{axis}{parts[1]}")
    return sch[stage].split(axis, factor, names=made)


def fuse(sch: Schedule, stage: str, axes: Sequence[str]) -> str:
    """Make one loop of loops inside each other; its name."""
    whole, *rest = axes
    for axis in rest:
        whole = sch[stage].fuse(whole, axis, _names(sch, stage).fresh(f"{whole}{axis}"))
    return whole


def _names(sch: Schedule, stage: str) -> Names:
    """Names that are no loop of the stage, and no word of Python: the texts are Python."""
    return Names((*sch.state.stage(stage).variables, *keyword.kwlist))
