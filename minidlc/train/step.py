"""`mc.compile_train_step`: a training step as one compiled call.

    loss = mc.trace(lambda x, y, w: mc.train.mse(x @ w, y), f32[8, 3], f32[8, 1], f32[3, 1])
    step = mc.compile_train_step(loss, {"w": w}, optimizer=mc.train.adam(1e-3))
    value, = step(x=x, y=y)                         # forward, backward, update
    step.params["w"]                                # the array that is trained, as it is now

Reads the graph of a loss and the arrays to start with, writes a `TrainStep`. The graph of the step
is made by step_graph.py, compiled by driver.py. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from minidlc.calling import match_arguments, output_names
from minidlc.driver import compile as compile_graph
from minidlc.executable import Executable
from minidlc.expr.types import Array, f32, f64
from minidlc.graph.graph import Graph, building
from minidlc.graph.verify import verify
from minidlc.levels import Later
from minidlc.support import extension
from minidlc.support.arguments import expect
from minidlc.support.errors import OptionError, TrainError, nearest
from minidlc.support.locations import caller
from minidlc.train.limits import checked, in_f32
from minidlc.train.mixed_precision import autocast as in_mixed_precision
from minidlc.train.optimizers import Optimizer
from minidlc.train.scaling import DynamicScale
from minidlc.train.step_graph import Plan, StepGraph, step_graph
from minidlc.train.step_options import (
    check_names,
    checked_plan,
    fitting,
    frozen_names,
    parameters,
    type_of,
    with_passes,
)


class TrainStep:
    """A compiled training step and the arrays that it updates in place. One call at a time."""

    graph: Graph
    """The whole step, before the passes."""
    loss_graph: Graph
    """Forward alone, as the step computes it."""
    executable: Executable
    """The machine code of `graph`, with all its levels."""

    def __init__(self, loss: Graph, built: StepGraph, executable: Executable, plan: Plan) -> None:
        self.graph, self.loss_graph, self.executable = built.graph, loss, executable
        self._built, self._plan = built, plan
        self._arrays = {v.key: v.initial for v in built.variables}  # nobody else has them
        trained = (v.initial for v in built.variables if v.is_trained)
        self._narrowest = f64 if all(a.dtype == np.float64 for a in trained) else f32
        self.learning_rate = plan.optimizer.learning_rate

    def __call__(self, /, *arrays: object, **named: object) -> list[Array]:
        """One step on a batch: data inputs by position, by name, or as one dict.

        Returns the loss before the update, f32[()] (f64 if it is of f64) and not scaled, then the
        further outputs of the loss graph. A loss that is NaN is returned as it is. Raises CallError
        (MDLC09xx) for inputs that do not fit; a call that is refused or interrupted has changed all
        variables or none.
        """
        built = self._built
        given = match_arguments(built.graph.name, built.data, arrays, named)
        data = (given[i.name] for i in built.data)
        # the arrays of variables are donated: the call writes their new values over them
        results = self.executable(*data, self._rate, *self._arrays.values())
        return results[: built.results]

    def __repr__(self) -> str:
        data = ", ".join(f"{i.name}: {i.type}" for i in self._built.data)
        return f"<{self.graph.name}({data}), {len(self.params)} parameters, {self.steps} updates>"

    @property
    def params(self) -> Mapping[str, Array]:
        """The parameters by name: the arrays that the step changes, not copies of them."""
        of, arrays = "parameters/", self._arrays
        found = {k.removeprefix(of): a for k, a in arrays.items() if k.startswith(of)}
        return MappingProxyType(found)  # setting one would change nothing

    @property
    def steps(self) -> int:
        """How many updates were made; those left out for an overflow do not count."""
        return int(self._arrays["counters/steps"])

    @property
    def learning_rate(self) -> float:
        """The rate of the next updates. It may be set at any time: nothing is compiled again.

        TrainError (MDLC1254) below 0, or where the type of a parameter that is trained holds it
        not: f64 has smaller and larger numbers than f32, in which f16 and bf16 are updated.
        """
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        number = checked(
            "a training step",
            "learning_rate",
            rate,
            "a finite number of at least 0",
            lambda n: 0 <= n < math.inf,
            element=self._narrowest,
        )
        self._learning_rate = number
        self._rate = np.array(number, self._built.rate.type.dtype.numpy)

    @property
    def loss_scale(self) -> float:
        """What the loss is multiplied by, now: 1 where nothing is scaled."""
        scale = self._plan.loss_scale
        dynamic = isinstance(scale, DynamicScale)
        return float(self._arrays["counters/scale"]) if dynamic else float(scale)

    def state(self) -> dict[str, Array]:
        """A copy of all that the step remembers: parameters, slots, gradients so far, counters.

        With it `load_state` goes on bit for bit. The learning rate is not part of it: a schedule
        computes it from `steps`.
        """
        return {key: array.copy() for key, array in self._arrays.items()}

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Go on from a `state()`, which is copied into the arrays that are there.

        Raises TrainError (MDLC1255) for the state of another model or optimiser, and for a counter
        that no training leaves; then nothing has changed.
        """
        expect("load_state", "state", state, Mapping, hint="what state() returned")
        for key in (*self._arrays, *state):
            if key not in state or key not in self._arrays:
                where = "the state lacks" if key not in state else "this step has no"
                hint = nearest(key, state if key not in state else self._arrays, most=20)
                raise _misfit(f"{where} {key!r}", hint)
        found = {
            key: fitting(f"load_state: {key!r}", type_of(old), state[key], "MDLC1255")
            for key, old in self._arrays.items()
        }
        self._check_counters(found)
        for key, array in found.items():
            np.copyto(self._arrays[key], array)

    def _check_counters(self, state: Mapping[str, Array]) -> None:
        """Updates are counted from 0, calls up to `accumulate`; a scale is not 0."""
        fits: dict[str, tuple[Callable[[float], bool], str]] = {
            "counters/steps": (lambda n: n >= 0, "at least 0"),
            "counters/good": (lambda n: n >= 0, "at least 0"),
            "counters/accumulated": (
                lambda n: 0 <= n < self._plan.accumulate,
                f"0 to {self._plan.accumulate - 1}, as accumulate is {self._plan.accumulate}",
            ),
            "counters/scale": (lambda n: n > 0 and in_f32(n), "a positive number"),
        }
        for key, (holds, wanted) in fits.items():
            if key in state and not holds(state[key].item()):
                raise _misfit(f"{key!r} is {state[key]}, expected {wanted}", None)


def _misfit(text: str, hint: str | None) -> TrainError:
    return TrainError(f"load_state: {text}", loc=caller(), hint=hint, code="MDLC1255")


def donated(built: StepGraph) -> dict[str, str]:
    """Which output goes over which input: the new value of each variable over the old."""
    names = output_names(o.name for o in built.graph.outputs)[built.results :]
    changing = (v.input.name for v in built.variables if v.changes)
    return dict(zip(changing, names, strict=True))


def _compiled(built: StepGraph, options: Mapping[str, Any]) -> Executable:
    """The machine code of a step."""
    executable = compile_graph(built.graph, donate=donated(built), **options)
    assert isinstance(executable, Executable), "all sizes are known"
    return executable


def compile_train_step(
    loss: Graph,
    params: Mapping[str, Array] | Sequence[str],
    optimizer: Optimizer | None = None,
    *,
    accumulate: int = 1,
    clip_norm: float | None = None,
    autocast: str | None = None,
    loss_scale: DynamicScale | float | None = None,
    remat: int | None = None,
    frozen: Sequence[str] = (),
    seed: int = 0,
    **compile_options: Any,
) -> TrainStep:
    """Compile forward, backward and update of a loss into one call.

    `loss`: its first output, of one element, is what is to fall; others are handed back. `params`:
    the inputs that are trained, each with the array to start with; or names of constants of the
    graph, such as the weights of an ONNX model. Arrays are copied. The other inputs are data.
    `optimizer`: default `adam(1e-3)`. `accumulate`: an update follows the mean gradient of so many
    calls. `clip_norm`: the gradients are shortened together where their length exceeds it.
    `autocast`: "f16" or "bf16": products are computed in that type (mixed_precision.py).
    `loss_scale`: a factor that stays, with every update made; or a DynamicScale, which leaves out
    those that overflow: the default for f16. `remat`: so many bytes at most are alive between
    kernels, values are computed again for that. `frozen`: parameters that are not trained. `seed`:
    of dropout and other draws, which differ from call to call. `compile_options` are those of
    `mc.compile`.

    Raises GradientError: MDLC1250 a loss that is no single real number, 1240 a budget of `remat`
    that cannot be met, and as `mc.grad` does; TrainError: MDLC1251 names that do not fit, 1252 an
    array of another type, 1253 no optimiser, 1254 a number out of range, or one that f32 cannot
    hold, 1257 another `autocast`, 1259 an option that there is not.
    """
    check_names(compile_options, compile_train_step, compile_graph)
    expect("compile_train_step", "loss", loss, Graph, hint="mc.trace(fn, mc.f32[4, 8]) makes one")
    if "donate" in compile_options:
        text = "compile_train_step: donate is not for the caller: the step donates what it updates"
        raise OptionError(text, loc=caller(), hint="leave it out", code="MDLC1006")
    with building(), extension.counting() as overrides:
        verify(loss)
        loss, arrays = parameters(loss, params)
        if autocast is not None:
            loss = in_mixed_precision(loss, autocast)
            loss_scale = DynamicScale() if loss_scale is None and autocast == "f16" else loss_scale
        plan = checked_plan(
            optimizer, accumulate, clip_norm, loss_scale, frozen_names(arrays, frozen), seed
        )
        built = step_graph(loss, arrays, plan)
        executable = _compiled(built, with_passes(compile_options, remat))
    if overrides:  # those of the gradient too, which were called before `compile`
        levels = replace(executable.later(), overrides=overrides)
        executable = replace(executable, later=Later.now(levels))
    return TrainStep(loss, built, executable, plan)
