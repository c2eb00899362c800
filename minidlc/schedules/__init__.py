"""How each kind of kernel is looped over: the fast schedules, one file a family.

    schedule_group(Schedule(...), group, "matmul", target)      # extension point schedule.matmul
    implementation("matmul", group, target).name                # which of several was chosen

A schedule function takes (schedule, group, target) and applies primitives; it never writes loops.
Kinds are what `Op.schedule` names; `plain` (optimisation levels below 3) applies nothing at all.
Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from minidlc.schedules import conv
from minidlc.schedules.conv_channels import CHANNELS
from minidlc.schedules.conv_direct import DIRECT
from minidlc.schedules.conv_weight import WEIGHTS
from minidlc.schedules.conv_weight_channels import CHANNELS as WEIGHT_CHANNELS
from minidlc.schedules.depthwise import DEPTHWISE, POOL
from minidlc.schedules.gemm import GEMM
from minidlc.schedules.gemm_deep import DEEP
from minidlc.schedules.gemv import GEMV
from minidlc.schedules.group import Group
from minidlc.schedules.implementation import Choice, Implementation, Knobs, choose, ranked
from minidlc.schedules.injective import INJECTIVE
from minidlc.schedules.layernorm import NORM
from minidlc.schedules.pool_gradient import SPREAD
from minidlc.schedules.rows import REDUCTION
from minidlc.schedules.softmax import SOFTMAX
from minidlc.schedules.transpose import TRANSPOSE
from minidlc.support import extension
from minidlc.support.errors import ScheduleError, nearest
from minidlc.target import Target
from minidlc.te import Schedule

ScheduleFunction: TypeAlias = Callable[[Schedule, Group, Target], None]


def plain(sch: Schedule, group: Group, target: Target) -> None:
    """No primitive: the loops as the tensor expressions state them."""


def _plain(sch: Schedule, group: Group, target: Target, knobs: Knobs) -> None:
    plain(sch, group, target)


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    Implementation("plain", "plain", _plain),
    TRANSPOSE,
    INJECTIVE,
    *GEMV,
    *GEMM,
    DEEP,
    CHANNELS,
    conv.ROWS,
    DIRECT,
    *WEIGHTS,
    WEIGHT_CHANNELS,
    conv.CONV_NCHWC,
    DEPTHWISE,
    conv.DEPTHWISE_NCHWC,
    POOL,
    conv.POOL,
    SPREAD,
    *REDUCTION,
    *SOFTMAX,
    *NORM,
)


def implementation(kind: str, group: Group, target: Target) -> Implementation:
    """What computes a group of `kind`; ScheduleError (MDLC0622) if there is no such kind."""
    _check_kind(kind)
    return choose(IMPLEMENTATIONS, kind, group, target)


def candidates(kind: str, group: Group, target: Target) -> list[Implementation]:
    """What may compute a group of `kind`: the cheapest first, last of all the plain loops.

    ScheduleError (MDLC0622) if there is no such kind.
    """
    _check_kind(kind)
    fast = [] if kind == "plain" else ranked(IMPLEMENTATIONS, kind, group, target)
    return [*fast, *ranked(IMPLEMENTATIONS, "plain", group, target)]


def _check_kind(kind: str) -> None:
    kinds = dict.fromkeys(i.kind for i in IMPLEMENTATIONS)
    if kind not in kinds:
        raise ScheduleError(
            f"no schedule of the kind {kind!r}",
            hint=nearest(kind, kinds),
            code="MDLC0622",
        )


def _schedule(kind: str, sch: Schedule, group: Group, target: Target) -> None:
    if group.made_for:
        named = (i for i in IMPLEMENTATIONS if i.kind in (kind, "plain"))
        chosen = next(i for i in named if i.name == group.made_for)
    else:  # a reader's schedule asks for ours, on the ops' own stages
        chosen = implementation(kind, group, target)
        plainer = (i for i in IMPLEMENTATIONS if i.kind == kind and i.compute is None)
        fitting = [i for i in plainer if i.applies(group, target)]
        chosen = choose(fitting, kind, group, target) if fitting else chosen
    chosen.schedule(sch, group, target, chosen.defaults(group, target))


SCHEDULES: dict[str, ScheduleFunction] = {
    kind: partial(_schedule, kind) for kind in dict.fromkeys(i.kind for i in IMPLEMENTATIONS)
}

extension.declare(
    "schedule.KIND", "(schedule, group, target) -> None", "schedule of a kind", lambda: SCHEDULES
)


def schedule_group(
    sch: Schedule, group: Group, kind: str, target: Target, choice: Choice | None = None
) -> None:
    """Apply the schedule of `kind` to the group, or the `choice` that was made for it.

    ScheduleError (MDLC0622) if there is no such kind.
    """
    if kind not in SCHEDULES:
        _check_kind(kind)
    shipped = SCHEDULES[kind] if choice is None else choice.apply
    extension.dispatch(f"schedule.{kind}", shipped)(sch, group, target)


__all__ = [
    "IMPLEMENTATIONS",
    "SCHEDULES",
    "Choice",
    "Group",
    "Implementation",
    "Knobs",
    "ScheduleFunction",
    "candidates",
    "choose",
    "implementation",
    "plain",
    "schedule_group",
]
