"""Sketches: schedules generated from the tensor expressions of a kernel, with knobs left open.

    for way in sketches(group, "matmul", target):
        way.name, way.knobs(group, target)          # 'sketch_tile', {'tile_i': (12, 1, 2, …), …}

Nothing here knows an op: rules look at the stages, what they read, and where that lies in memory.
Decisions about structure make sketches; decisions about sizes are knobs of theirs. The method is
that of Ansor (L. Zheng et al., Ansor: Generating High-Performance Tensor Programs for Deep
Learning, 2020). Treated in course chapter 06_autotune.
"""

from __future__ import annotations

from minidlc.schedules import Group, Implementation
from minidlc.target import Target
from minidlc.tuning.sketch.explanation import Explanation, Row, explained
from minidlc.tuning.sketch.rows import rows
from minidlc.tuning.sketch.streams import streams
from minidlc.tuning.sketch.tiling import tilings


def sketches(group: Group, kind: str, target: Target) -> tuple[Implementation, ...]:
    """The sketches of a kernel; () where no rule fits."""
    rules = (tilings, rows, streams)
    return tuple(way for rule in rules for way in rule(group, kind, target))


def explain_sketches(group: Group, kind: str, target: Target) -> Explanation:
    """Every rule, the stage and axis it looked at, whether it was taken, and why."""
    names = tuple(way.name for way in sketches(group, kind, target))
    return explained(group, target, names)


__all__ = ["Explanation", "Row", "explain_sketches", "sketches"]
