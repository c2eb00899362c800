"""One training step as a graph: forward, backward, the update, and all that a step remembers.

    built = step_graph(loss, {"w": array}, Plan(adam(1e-3), accumulate=4))
    built.graph                                     # inputs: data, learning rate, variables
    [v.key for v in built.variables]                # parameters/w, m/w, v/w, counters/steps, …

Reads the graph of a loss, writes a graph whose outputs are the loss, what else the loss graph
gives, and the new value of each variable. It is a graph like any other: print it, run it with
`mc.interpret`. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from minidlc.autodiff.chain import backward
from minidlc.autodiff.reverse import assembled, inputs_named, last_used_first
from minidlc.expr.types import Array, DType, TensorType, f16, f32, f64, i64
from minidlc.graph.graph import Constant, Graph, Input, Node, Value, apply, located, tensor_type
from minidlc.graph.inline import nodes_made, with_inputs
from minidlc.graph.op import Pattern
from minidlc.ops.composing import cast_to, in_wide, narrowed, reshaped, scalar
from minidlc.ops.elementwise import wide
from minidlc.ops.gradients import zeros_like
from minidlc.support.errors import GradientError, TrainError
from minidlc.support.locations import Derived
from minidlc.support.names import Names
from minidlc.train.optimizers import Optimizer, Slots, Updated
from minidlc.train.scaling import DynamicScale, is_finite, largest, next_scale
from minidlc.train.variables import Variable, Variables, zeros
from minidlc.transform.draw_key import with_key

OF_THE_STEP = ("parameters", "gradients", "counters")
UPDATES = "it returns the new parameter and a dict of new slots, each of its type"


@dataclass(frozen=True)
class Plan:
    """How to train: what the options of `compile_train_step` say, checked."""

    optimizer: Optimizer
    accumulate: int = 1
    clip_norm: float | None = None
    loss_scale: DynamicScale | float = 1.0
    frozen: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True)
class StepGraph:
    """The graph of a step. Inputs: data, the learning `rate`, variables.

    Outputs: `results` of them, the loss first, then the new value of each variable that changes.
    """

    graph: Graph
    data: tuple[Input, ...]
    rate: Input
    variables: tuple[Variable, ...]
    results: int


def step_graph(loss: Graph, parameters: Mapping[str, Array], plan: Plan) -> StepGraph:
    """The step that trains `parameters`, inputs of `loss`, except those that are frozen.

    The first output of `loss` is what is to fall; it has one element. Raises GradientError as
    `mc.value_and_grad` does; TrainError: MDLC1253 slots or an update that do not fit, 1254 a
    `loss_scale` that the type of the loss cannot hold.
    """
    trained = [name for name in parameters if name not in plan.frozen]
    _check_real(loss, trained)
    wrt = last_used_first(loss, inputs_named("compile_train_step", loss, trained))
    kept = Variables(Names(i.name for i in loss.inputs))
    data = tuple(i for i in loss.inputs if i.name not in parameters)
    for i in loss.inputs:
        if i.name in parameters:
            kept.add(f"parameters/{i.name}", parameters[i.name], i)
    in_f64 = any(x.type.dtype == f64 for x in wrt)  # a rate of f32 would be wrong by 6e-8 of it
    rate = Input(kept.names.fresh("learning_rate"), (f64 if in_f64 else f32)[()])
    names: dict[Value, str] = {}
    with located(Derived("training step", loss.outputs[0].loc)):
        loss = _with_fresh_draws(loss, kept, plan.seed)
        scale = _scale(kept, plan, tensor_type(loss.outputs[0]).dtype)
        found = _gradients(loss, wrt, scale, names)
        gradients, due = _accumulated(kept, found, plan.accumulate)
        allowed = _allowed(kept, gradients, due, scale, plan)
        _update(kept, _clipped(gradients, plan.clip_norm), allowed, rate, plan.optimizer)
        results = (reshaped(in_wide(loss.outputs[0]), ()), *loss.outputs[1:])
    order = (*loss.nodes, *_order(loss, kept, found))
    return _assembled(loss, data, rate, results, order, kept.all(), names)


def _check_real(loss: Graph, trained: Sequence[str]) -> None:
    """GradientError (MDLC1202) for a parameter of integers."""
    for x in loss.inputs:
        if x.name in trained and not x.type.dtype.is_float:
            text = (
                f"compile_train_step: parameter {x.name!r} is {x.type}: no derivative by integers"
            )
            hint = f"leave it out of params, or freeze it: frozen=[{x.name!r}]"
            raise GradientError(text, loc=x.loc, hint=hint, code="MDLC1202")


def _with_fresh_draws(loss: Graph, kept: Variables, seed: int) -> Graph:
    """Draws, such as those of dropout, take a key that grows by one with every call."""
    keyed = with_key(loss, kept.names.fresh("key"))
    if keyed is loss:
        return loss
    key = kept.add("counters/key", np.array(seed << 32, np.int64), keyed.inputs[-1])
    kept.new[key] = key + 1
    return keyed


def _scale(kept: Variables, plan: Plan, element: DType) -> Value | None:
    """What the loss is multiplied by so that small gradients are not rounded to 0; None: by 1.

    A fixed scale that the loss, in its type, cannot be multiplied by would make all gradients NaN.
    """
    if isinstance(plan.loss_scale, DynamicScale):
        return kept.add("counters/scale", np.array(plan.loss_scale.initial, np.float32))
    if plan.loss_scale > float(np.finfo(np.float16).max) and element == f16:
        text = f"compile_train_step: loss_scale is {plan.loss_scale}, and the loss is of f16"
        hint = "up to 65504, or a loss of f32: loss.astype('f32')"
        raise TrainError(text, hint=hint, code="MDLC1254")
    return None if plan.loss_scale == 1 else scalar(plan.loss_scale, f32)


def _gradients(
    loss: Graph, wrt: Sequence[Input], scale: Value | None, names: dict[Value, str]
) -> dict[Input, Value]:
    """How the loss changes with each parameter, in the type that it is updated in.

    What flows back is that of the loss times `scale`; it is divided out here.
    """
    type = tensor_type(loss.outputs[0])
    seed = scalar(1, type.dtype) if scale is None else cast_to(scale, type.dtype)
    seed = apply("expand", seed, shape=type.dims) if type.rank else seed
    dys = (seed, *[None] * (len(loss.outputs) - 1))
    found = backward(loss.nodes, loss.outputs, dys, wrt, names)
    back = None if scale is None else 1.0 / scale
    gradients: dict[Input, Value] = {}
    for x, dx in zip(wrt, found, strict=True):
        dx = zeros_like(x) if dx is None else dx
        names[dx] = f"d{x.name}"
        gradients[x] = in_wide(dx) if back is None else in_wide(dx) * _in_type_of(x, back)
    for node in loss.nodes:
        names.pop(node, None)  # of the reader's own names none is changed
    return gradients


def _in_type_of(x: Value, number: Value) -> Value:
    """A number in the type that `x` is updated in: f32 where `x` is f16 or bf16."""
    return cast_to(number, wide(tensor_type(x).dtype))


def _accumulated(
    kept: Variables, gradients: dict[Input, Value], calls: int
) -> tuple[dict[Input, Value], Value | None]:
    """The mean over `calls` calls, and whether this is the last of them (None: it always is)."""
    if calls == 1:
        return gradients, None
    count = kept.add("counters/accumulated", np.array(0, np.int64))
    due = apply("equal", count, calls - 1)
    kept.new[count] = apply("where", due, 0, count + 1)
    totals: dict[Input, Value] = {}
    for x, dx in gradients.items():
        before = kept.add(f"gradients/{x.name}", zeros(tensor_type(dx)))
        totals[x] = before + dx * (1 / calls)
        kept.new[before] = apply("where", due, 0, totals[x])
    return totals, due


def _allowed(
    kept: Variables,
    gradients: Mapping[Input, Value],
    due: Value | None,
    scale: Value | None,
    plan: Plan,
) -> Value | None:
    """Whether this call updates: None for always. A dynamic scale is moved here."""
    if not isinstance(plan.loss_scale, DynamicScale):
        return due
    scale_, good = cast(Input, scale), kept.add("counters/good", np.array(0, np.int64))
    finite = is_finite([*gradients.values()])
    moved = next_scale(plan.loss_scale, finite, scale_, good)
    for variable, new in zip((scale_, good), moved, strict=True):
        kept.new[variable] = new if due is None else apply("where", due, new, variable)
    return finite if due is None else apply("logical_and", due, finite)


def _clipped(gradients: dict[Input, Value], norm: float | None) -> dict[Input, Value]:
    """The gradients, shortened together where the length of all of them exceeds `norm`."""
    if norm is None:
        return gradients
    factor = norm / apply("maximum", _length([*gradients.values()]), norm)
    return {x: dx * _in_type_of(x, factor) for x, dx in gradients.items()}


def _length(gradients: Sequence[Value]) -> Value:
    """The length of all of them together, f64[()]. No square of f32 is too large for f64."""
    unit: Value = scalar(1, f64)
    if any(tensor_type(dx).dtype == f64 for dx in gradients):  # their squares may be: of shares
        unit = apply("maximum", largest(gradients), float(np.finfo(np.float64).tiny))
    total: Value = scalar(0, f64)
    for dx in gradients:
        share = cast_to(dx, f64) / unit
        total = total + apply("sum", share * share, axes=None, keepdims=False)
    return unit * apply("sqrt", total)


def _update(
    kept: Variables,
    gradients: Mapping[Input, Value],
    allowed: Value | None,
    rate: Value,
    optimizer: Optimizer,
) -> None:
    """Set the new values of parameters, their slots, and the counter of updates."""
    steps = kept.add("counters/steps", np.array(0, np.int64))
    number = steps + 1
    kept.new[steps] = number if allowed is None else steps + cast_to(allowed, i64)
    for x, dx in gradients.items():
        wide_x = in_wide(x)
        if isinstance(wide_x, Node):  # an optimiser may ask what the parameter is called
            wide_x = replace(wide_x, name=x.name)
        initial = _slots(optimizer, tensor_type(dx))
        slots = {what: kept.add(f"{what}/{x.name}", array) for what, array in initial.items()}
        found = optimizer.update(wide_x, dx, slots, number, _in_type_of(x, rate))
        new, new_slots = _checked(optimizer, wide_x, slots, found)
        for what, slot in slots.items():
            kept.new[slot] = _if(allowed, new_slots[what], slot)
        # the parameter is computed from the slots as they are kept: an update that is left out
        # then reads no slot after it was written, and may happen in place
        final = {new_slots[what]: kept.new[slot] for what, slot in slots.items()}
        kept.new[x] = _if(allowed, narrowed(_reading(new, final), x), x)


def _slots(optimizer: Optimizer, type: TensorType) -> dict[str, Array]:
    """Copies of what an optimiser wants to remember; refused unless keys of the state can hold it.

    A key is "slot/parameter", so a slot has no "/" in its name, nor a name that the step uses.
    """
    found = cast(object, optimizer.slots(type))  # an optimiser may be anybody's
    who = f"{optimizer.__class__.__name__}.slots"
    if not isinstance(found, Mapping):
        raise _misfit(f"{who} returned {found!r:.60}", "a dict of arrays to start with")
    arrays: dict[str, Array] = {}
    for name, thing in cast("Mapping[object, object]", found).items():
        if not isinstance(name, str) or not name or "/" in name or name in OF_THE_STEP:
            hint = f"names without '/', other than {', '.join(OF_THE_STEP)}"
            raise _misfit(f"{who} calls a slot {name!r:.60}", hint)
        arrays[name] = _numbers(thing, f"{who} gives {thing!r:.60} for {name}")
    return arrays


def _numbers(thing: object, otherwise: str) -> Array:
    """A copy of an array of numbers; TrainError (MDLC1253) if it is none."""
    try:
        array = np.array(thing)
    except ValueError:  # lists of different lengths
        array = None
    if array is None or array.dtype.kind not in "biuf":
        raise _misfit(otherwise, "an array to start with")
    return array


def _if(allowed: Value | None, new: Value, old: Value) -> Value:
    return new if allowed is None else apply("where", allowed, new, old)


def _reading(value: Value, new: dict[Value, Value]) -> Value:
    """The value computed from other values in place of the keys of `new`."""
    for node in nodes_made(value, new):
        new[node] = with_inputs(node, new)
    return new.get(value, value)


def _checked(optimizer: Optimizer, x: Value, slots: Slots, found: object) -> Updated:
    """What an update returned, refused unless it has the types of what was handed to it."""
    parts = cast("tuple[object, ...]", found) if isinstance(found, tuple) else ()
    if len(parts) != 2 or not isinstance(parts[1], Mapping):
        raise _misfit(f"{type(optimizer).__name__}.update returned {found!r:.60}", UPDATES)
    new_slots = cast("Mapping[str, object]", parts[1])
    wanted = {x.name: x, **{f"{what} of {x.name}": slot for what, slot in slots.items()}}
    values = [parts[0], *(new_slots.get(what) for what in slots)]
    for (name, old), value in zip(wanted.items(), values, strict=True):
        if not isinstance(value, (Input, Constant, Node)) or value.type != old.type:
            got = value.type if isinstance(value, (Input, Constant, Node)) else repr(value)[:60]
            text = f"{type(optimizer).__name__}.update gives {got} for {name}, not {old.type}"
            raise _misfit(text, UPDATES)
    return cast(Updated, found)


def _misfit(text: str, hint: str) -> TrainError:
    return TrainError(text, hint=hint, code="MDLC1253")


def _order(loss: Graph, kept: Variables, gradients: Mapping[Input, Value]) -> list[Value]:
    """The order in which the backward half is best computed, parameters that are used last first.

    A parameter is updated as soon as its gradient is there, and after all that reads it: then its
    gradient is not alive for long, and the update may be written over it.
    """
    made: dict[Node, None] = {}
    for dx in gradients.values():
        made |= dict.fromkeys(nodes_made(dx, made))
    forward = set(loss.nodes)
    backward_nodes = [node for node in made if node not in forward]
    order: list[Value] = []
    for x, dx in gradients.items():
        order += [*_readers(x, backward_nodes), dx]
        order += [kept.new[i] for i, (key, _) in kept.kept.items() if key.endswith(f"/{x.name}")]
    return order


def _readers(x: Input, nodes: Sequence[Node]) -> list[Node]:
    """The nodes that read a parameter, be it turned: a product reads through a transpose."""
    same: set[Value | None] = {x}
    found: list[Node] = []
    for node in nodes:
        if any(v in same for v in node.inputs):
            found.append(node)
            if node.op.is_view or node.op.pattern is Pattern.INJECTIVE:
                same.add(node)
    return found


def _assembled(
    loss: Graph,
    data: tuple[Input, ...],
    rate: Input,
    results: tuple[Value, ...],
    order: Sequence[Value],
    variables: tuple[Variable, ...],
    names: dict[Value, str],
) -> StepGraph:
    """The graph of all that; the variables point to its outputs."""
    changing = [v for v in variables if v.changes]
    names |= {v.new: f"{v.input.name}_new" for v in changing}
    outputs = (*results, *(v.new for v in changing))
    inputs = (*data, rate, *(v.input for v in variables))
    graph = assembled(f"{loss.name}_step", inputs, order, outputs, names)
    made = iter(graph.outputs[len(results) :])
    moved = tuple(replace(v, new=next(made)) if v.changes else v for v in variables)
    return StepGraph(graph, data, rate, moved, len(results))
