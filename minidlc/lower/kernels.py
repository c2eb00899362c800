"""Kernels: tensor expressions, the schedule chosen for them, and the loops it lowers to.

    kernel = lower_node(node, "k0_conv", target, fast=True)
    print(kernel.schedule.trace)                    # one primitive per line
    print(kernel.loops)                             # the loop nest as Python text

Treated in course chapter 04_schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minidlc.expr.types import TensorType
from minidlc.graph import Node, Value
from minidlc.loop.dependence import check_parallel
from minidlc.loop.inside import check_inside
from minidlc.loop.nodes import LoopFunction
from minidlc.loop.verify import verify_function
from minidlc.lower.express import Expressed, express_copy, express_node
from minidlc.schedules import Group, schedule_group
from minidlc.support.errors import CompileError, LoweringError
from minidlc.support.extension import overridden
from minidlc.support.locations import Loc
from minidlc.target import Target
from minidlc.te import Schedule, create_schedule, lower


@dataclass(frozen=True)
class LoweredKernel:
    """One kernel before code generation.

    Parameters of `loops` are the `inputs` (graph values) and then the results, in order.
    """

    name: str
    origin: Value
    inputs: tuple[Value, ...]
    group: Group
    kind: str
    schedule: Schedule
    loops: LoopFunction

    @property
    def loc(self) -> Loc | None:
        """Where the node came from."""
        return self.origin.loc


def lower_node(node: Node, name: str, target: Target, *, fast: bool) -> LoweredKernel:
    """Express, schedule and lower one node; `fast=False` leaves the plain loops."""
    return _lower(express_node(node), node, name, target, fast)


def lower_copy(value: Value, name: str, target: Target, *, fast: bool) -> LoweredKernel:
    """A kernel that copies a value into an output."""
    return _lower(express_copy(value), value, name, target, fast)


def _lower(
    expressed: Expressed, origin: Value, name: str, target: Target, fast: bool
) -> LoweredKernel:
    group = expressed.group
    kind = expressed.kind if fast else "plain"
    params = (*expressed.names, *(t.name for t in group.outputs))
    try:
        sch = create_schedule(group.outputs, checked=False)
        schedule_group(sch, group, kind, target)
        loops = lower(sch, name=name, params=params)
        _check(loops, expressed)
    except CompileError as e:
        raise e.at(origin.loc) from None
    return LoweredKernel(name, origin, expressed.inputs, group, kind, sch, loops)


def _check(loops: LoopFunction, expressed: Expressed) -> None:
    """Loops that an override had a part in must not reach machine code unchecked.

    Raises VerifyError for broken loops (MDLC045x) and racing ones (MDLC0462), LoweringError
    (MDLC0709) for parameters of other types, inputs that are written and outputs that are not.
    """
    verify_function(loops)
    outputs = {t.name: t.type for t in expressed.group.outputs}
    given = zip(expressed.names, expressed.inputs, strict=True)
    inputs = {n: v.type for n, v in given if isinstance(v.type, TensorType)}
    found = {p.name: p.type for p in loops.params}
    if found != inputs | outputs:
        raise LoweringError(
            f"the loops take {_listed(found)}, expected {_listed(inputs | outputs)}",
            code="MDLC0709",
        )
    wanted = [name for name, type in outputs.items() if type.nbytes]  # no loops where no element
    if sorted(loops.outputs) != sorted(wanted):
        written = ", ".join(loops.outputs) or "nothing"
        text = f"the loops write {written}, expected {', '.join(wanted)}"
        raise LoweringError(text, code="MDLC0709")
    check_inside(loops)
    if overridden("lower"):  # primitives make no races
        check_parallel(loops.body, {})


def _listed(params: Mapping[str, TensorType]) -> str:
    return ", ".join(f"{name}: {type}" for name, type in params.items())
