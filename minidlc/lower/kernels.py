"""Kernels: tensor expressions, the schedule chosen for them, and the loops it lowers to.

    kernel = lower_node(node, "k0_conv", target, fast=True)
    print(kernel.schedule.trace)                    # one primitive per line
    print(kernel.loops)                             # the loop nest as Python text

Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from minidlc.expr.types import Array, TensorType, bf16, f16, u16
from minidlc.graph import Constant, Node, Value, build, result_types
from minidlc.loop.dependence import check_parallel
from minidlc.loop.inside import check_inside
from minidlc.loop.nodes import LoopFunction
from minidlc.loop.verify import verify_function
from minidlc.lower.express import Expressed, express_copy, express_node
from minidlc.lower.packing import Packing
from minidlc.ops.shape import BitCast
from minidlc.schedules import Choice, Group, Implementation, candidates, schedule_group
from minidlc.support.errors import CompileError, LoweringError
from minidlc.support.extension import active, overridden
from minidlc.support.locations import Loc
from minidlc.target import Target
from minidlc.te import Schedule, create_schedule, lower
from minidlc.te.lower import cut


@dataclass(frozen=True)
class NotTaken:
    """Why what was found for a kernel is not used; `code` names the fault, "" if it is none.

    `brief` is what kernels of one kind are counted as.
    """

    reason: str
    code: str = ""
    brief: str = "with a record that is refused"

    def __str__(self) -> str:
        return f"refused: {self.reason} [{self.code}]" if self.code else self.reason


# What was found to be best for the stages of a kernel; None if nobody looked.
Tuned: TypeAlias = Callable[[Expressed], Choice | NotTaken | None]


@dataclass(frozen=True)
class LoweredKernel:
    """One kernel before code generation.

    Parameters of `loops` are the `inputs` (graph values) and then the results, in order. `reads`
    are the values of the model that it needs: where a weight was packed at compile time it stands
    there, and the packed constant in `inputs`. An op that writes its loops itself has neither
    `group` nor `schedule`.
    """

    name: str
    origin: Value
    inputs: tuple[Value, ...]
    group: Group | None
    kind: str
    schedule: Schedule | None
    loops: LoopFunction
    reads: tuple[Value, ...]
    implementation: str = ""  # name of the one chosen for the kind
    source: str = ""  # who chose it, if not the least estimated cost
    refused: tuple[str, ...] = ()  # those before it whose loops were no good: "name: code"
    not_taken: NotTaken | None = None  # what `tuned` had found, and could not give

    @property
    def loc(self) -> Loc | None:
        """Where the node came from."""
        return self.origin.loc

    @property
    def is_copy(self) -> bool:
        """True if it only copies a value: into an output, or into the state of a loop."""
        return self.origin in self.inputs

    def with_inputs(self, others: Mapping[Constant, Constant]) -> LoweredKernel:
        """The kernel with other constants of the same elements."""
        inputs = tuple(others.get(v, v) if isinstance(v, Constant) else v for v in self.inputs)
        return self if inputs == self.inputs else replace(self, inputs=inputs)

    def arrays(self, values: Mapping[Value, Array]) -> dict[str, Array]:
        """An array for each parameter that is read, by name; `values` need not hold constants."""
        return {
            p.name: v.array if isinstance(v, Constant) else values[v]
            for p, v in zip(self.loops.params, self.inputs, strict=False)
        }

    @property
    def results(self) -> tuple[TensorType, ...]:
        """Types of the results, in order."""
        return tuple(p.type for p in self.loops.params[len(self.inputs) :])


def lower_node(
    node: Node,
    name: str,
    target: Target,
    *,
    fast: bool,
    packing: Packing | None = None,
    refused: str = "",
    tuned: Tuned | None = None,
) -> LoweredKernel:
    """Express, schedule and lower one node; `fast=False` leaves the plain loops.

    Constants that the schedule prepacks are packed here, unless `packing` has them already.
    `refused`: what code generation could not take, "name: code"; then the loops are plain too.
    `tuned` names a better implementation than the estimates do, if it knows one.
    """
    if hasattr(type(node.op), "loops"):
        return _written_by_op(node, name)
    packing = packing or Packing()
    return _lower(express_node(node), node, name, target, fast, packing, refused, tuned)


def lower_copy(
    value: Value, name: str, target: Target, *, fast: bool, refused: str = ""
) -> LoweredKernel:
    """A kernel that copies a value into an output; f16 and bf16 as bits: a NaN keeps its own."""
    halves = isinstance(value.type, TensorType) and value.type.dtype in (f16, bf16)
    source = build(BitCast(u16), [value]) if halves else value
    return _lower(express_copy(source), value, name, target, fast, Packing(), refused)


def _lower(
    expressed: Expressed,
    origin: Value,
    name: str,
    target: Target,
    fast: bool,
    packing: Packing,
    refused: str,
    tuned: Tuned | None = None,
) -> LoweredKernel:
    """By the cheapest implementation that can; what could not is noted, and is a fault of ours.

    Where a reader's part runs, its errors are the reader's to see: nothing takes its place.
    """
    kind = expressed.kind if fast else "plain"
    noted = [refused] if refused else []
    try:
        ways: list[Implementation | Choice] = [*candidates(kind, expressed.group, target)]
        known = tuned(expressed) if tuned is not None and kind != "plain" else None
        not_taken = known if isinstance(known, NotTaken) else None
        if isinstance(known, Choice) and not overridden(f"schedule.{kind}"):
            ways.insert(0, known)
        for chosen in ways[-1:] if refused else ways:
            try:
                kernel = lower_as(chosen, expressed, kind, origin, name, target, packing)
                return replace(kernel, refused=tuple(noted), not_taken=not_taken)
            except CompileError as e:
                if chosen is ways[-1] or active():
                    raise
                noted.append(f"{_name(chosen)}: {e.code}")
    except CompileError as e:
        raise e.at(origin.loc) from None
    raise AssertionError("the plain loops always apply")


def _name(chosen: Implementation | Choice) -> str:
    if isinstance(chosen, Choice):
        return f"{chosen.implementation.name} of {chosen.source or 'a choice'}"
    return chosen.name


def lower_as(
    chosen: Implementation | Choice,
    expressed: Expressed,
    kind: str,
    origin: Value,
    name: str,
    target: Target,
    packing: Packing,
) -> LoweredKernel:
    """By one implementation; raises what its primitives or the checks of its loops raise."""
    group, choice = expressed.group, chosen if isinstance(chosen, Choice) else None
    way = chosen.implementation if isinstance(chosen, Choice) else chosen
    values = dict(zip(expressed.names, expressed.inputs, strict=True))
    if not overridden(f"schedule.{kind}"):  # a reader's schedule gets the ops' own expressions
        variant = way.variant(group)
        group = replace(variant, constants=group.constants, made_for=way.name)
    sch = create_schedule(group.outputs, constants=group.constants, checked=False)
    schedule_group(sch, group, kind, target, choice)
    values = _packed(sch, values, name, packing)
    outputs = {t.name: t.type for t in group.outputs}
    loops = lower(sch, name=name, params=(*values, *outputs))
    _check(loops, values, outputs)
    inputs, reads = tuple(values.values()), expressed.inputs
    source = choice.source if choice else ""
    return LoweredKernel(name, origin, inputs, group, kind, sch, loops, reads, way.name, source)


def _packed(
    sch: Schedule, values: dict[str, Value], name: str, packing: Packing
) -> dict[str, Value]:
    """What the loops are given: `values`, constants packed where the schedule says so."""
    if not sch.state.prepacked():
        return values
    known = values | packing.constants(sch.lower_init(name), values)
    return {p.name: known[p.name] for p in sch.state.part(sch.state.outputs).placeholders}


def _written_by_op(node: Node, name: str) -> LoweredKernel:
    """The kernel of an op that states its loops itself: no stages, nothing to schedule."""
    given = tuple(v for v in node.inputs if v is not None)
    types = result_types(node.type)
    try:
        loops = node.op.loops(*(None if v is None else v.type for v in node.inputs))
        loops = cut(replace(loops, name=name))
        names = [p.name for p in loops.params]
        inputs, outputs = names[: len(given)], names[len(given) :]
        if len(outputs) != len(types):
            text = f"the loops of {node.op.name} have {len(outputs)} results, not {len(types)}"
            raise LoweringError(text, code="MDLC0709")
        _check(
            loops,
            dict(zip(inputs, given, strict=True)),
            dict(zip(outputs, types, strict=True)),
            trusted=False,
        )
    except CompileError as e:
        raise e.at(node.loc) from None
    return LoweredKernel(name, node, given, None, "loops", None, loops, given)


def _check(
    loops: LoopFunction,
    values: Mapping[str, Value],
    outputs: Mapping[str, TensorType],
    trusted: bool = True,
) -> None:
    """Loops that an override had a part in must not reach machine code unchecked.

    Raises VerifyError for broken loops (MDLC045x) and racing ones (MDLC0462), LoweringError
    (MDLC0709) for parameters of other types, inputs that are written and outputs that are not.
    """
    verify_function(loops)
    inputs = {n: v.type for n, v in values.items() if isinstance(v.type, TensorType)}
    found = {p.name: p.type for p in loops.params}
    if found != inputs | dict(outputs):
        raise LoweringError(
            f"the loops take {_listed(found)}, expected {_listed(inputs | dict(outputs))}",
            code="MDLC0709",
        )
    wanted = [name for name, type in outputs.items() if type.nbytes]  # no loops where no element
    if sorted(loops.outputs) != sorted(wanted):
        written = ", ".join(loops.outputs) or "nothing"
        text = f"the loops write {written}, expected {', '.join(wanted)}"
        raise LoweringError(text, code="MDLC0709")
    check_inside(loops)
    if overridden("lower") or not trusted:  # primitives make no races
        check_parallel(loops.body, {})


def _listed(params: Mapping[str, TensorType]) -> str:
    return ", ".join(f"{name}: {type}" for name, type in params.items())
