"""How each kind of kernel is looped over: the fast schedules, one file a family.

    schedule_group(Schedule(...), group, "matmul", target)      # extension point schedule.matmul

A schedule function takes (schedule, group, target) and applies primitives; it never writes loops.
Kinds are what `Op.schedule` names; `plain` (optimisation levels below 3) applies nothing at all.
Treated in course chapter 04_schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from minidlc.schedules.conv import schedule_conv, schedule_pool
from minidlc.schedules.group import Group
from minidlc.schedules.injective import schedule_injective
from minidlc.schedules.matmul import schedule_matmul
from minidlc.schedules.reduction import schedule_reduction, schedule_softmax
from minidlc.support import extension
from minidlc.support.errors import ScheduleError, nearest
from minidlc.target import Target
from minidlc.te import Schedule

ScheduleFunction: TypeAlias = Callable[[Schedule, Group, Target], None]


def plain(sch: Schedule, group: Group, target: Target) -> None:
    """No primitive: the loops as the tensor expressions state them."""


SCHEDULES: dict[str, ScheduleFunction] = {
    "plain": plain,
    "injective": schedule_injective,
    "matmul": schedule_matmul,
    "conv": schedule_conv,
    "pool": schedule_pool,
    "reduction": schedule_reduction,
    "softmax": schedule_softmax,
}

extension.declare(
    "schedule.KIND", "(schedule, group, target) -> None", "schedule of a kind", lambda: SCHEDULES
)


def schedule_group(sch: Schedule, group: Group, kind: str, target: Target) -> None:
    """Apply the schedule of `kind` to the group; ScheduleError (MDLC0622) if there is none."""
    if kind not in SCHEDULES:
        raise ScheduleError(
            f"no schedule of the kind {kind!r}",
            hint=nearest(kind, SCHEDULES),
            code="MDLC0622",
        )
    extension.dispatch(f"schedule.{kind}", SCHEDULES[kind])(sch, group, target)


__all__ = ["SCHEDULES", "Group", "ScheduleFunction", "plain", "schedule_group"]
