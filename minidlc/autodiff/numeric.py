"""A derivative by small steps: what the other ways are checked with, and no way to train.

    [dx, dw] = numeric_gradient(g, {"x": x, "w": w})    # two runs of g for each number in x and w
    step_errors(g, inputs, [1e-2, 1e-6, 1e-12])         # too long a step, a good one, too short

Reads a graph and arrays, runs the interpreter, writes arrays. It knows no rule, so that it finds a
wrong one; and it knows no kink, so that at one it says the mean of both sides. Treated in course
chapter 03_autodiff.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import ml_dtypes
import numpy as np

from minidlc.autodiff.reverse import grad, inputs_named
from minidlc.expr.types import Array
from minidlc.graph.graph import Graph, tensor_type
from minidlc.graph.interpret import interpret
from minidlc.support.arguments import expect
from minidlc.support.errors import GradientError


def numeric_gradient(
    graph: Graph,
    inputs: Mapping[str, Array],
    wrt: str | Sequence[str] | None = None,
    step: float | None = None,
) -> list[Array]:
    """The gradients of a loss by central differences: (f(x + h) - f(x - h)) / 2h, for each number.

    The error has two parts: the curvature that the quotient leaves out grows as h², what f loses by
    rounding is divided by h and grows as ε/h. Their sum is least near h = ε^⅓, which is taken
    times max(1, |x|) where no `step` is given: 6e-6 in f64, 5e-3 in f32. Then about two thirds of
    the digits are right. The cost is two runs for each number in `wrt`.

    Raises GradientError as `grad` does, MDLC1285 if the graph is no loss (one output of one
    element), MDLC1289 for a step that is not positive; CallError as `interpret` does.
    """
    names = [i.name for i in inputs_named("numeric_gradient", graph, wrt)]
    expect_loss("numeric_gradient", graph)
    if step is not None and not step > 0:
        text = f"numeric_gradient: the step is {step}, expected a positive number"
        raise GradientError(text, hint="None takes one that fits the type", code="MDLC1289")
    expect("numeric_gradient", "inputs", inputs, Mapping, hint='{"x": x}')
    arrays = {name: np.array(a) for name, a in inputs.items()}
    interpret(graph, arrays)  # what is wrong with the inputs is said here
    found: list[Array] = []
    for name in names:
        x = arrays[name]
        dx = np.zeros_like(x)
        for place in np.ndindex(x.shape):
            dx[place] = _quotient(graph, arrays, x, place, step)
        found.append(dx)
    return found


def _quotient(
    graph: Graph, arrays: dict[str, Array], x: Array, place: tuple[int, ...], step: float | None
) -> float:
    """How the loss changes with the number in one place of `x`, which is put back."""
    before = x[place]
    rounding = float(cast(Any, ml_dtypes.finfo(x.dtype)).eps)  # finfo knows bf16 too
    h = step or rounding ** (1 / 3) * max(1.0, abs(float(before)))
    losses: list[float] = []
    places: list[float] = []
    for moved in (float(before) + h, float(before) - h):
        x[place] = moved
        places.append(float(x[place]))  # x rounds: this is how far it really moved
        losses.append(interpret(graph, arrays)[0].item())
    x[place] = before
    way = places[0] - places[1]
    return (losses[0] - losses[1]) / way if way else 0.0


def step_errors(
    graph: Graph,
    inputs: Mapping[str, Array],
    steps: Sequence[float],
    wrt: str | Sequence[str] | None = None,
) -> list[float]:
    """How far the numeric gradient is from the automatic one, for each step.

    The largest difference, as a part of the largest number in the gradient. Raises as
    `numeric_gradient` does.
    """
    exact = [np.asarray(a, np.float64) for a in interpret(grad(graph, wrt), inputs)]
    largest = max((float(np.abs(a).max(initial=0)) for a in exact), default=0.0) or 1.0
    errors: list[float] = []
    for step in steps:
        found = numeric_gradient(graph, inputs, wrt, step)
        pairs = zip(found, exact, strict=True)
        errors.append(max(float(np.abs(f - e).max(initial=0)) for f, e in pairs) / largest)
    return errors


def expect_loss(what: str, graph: Graph) -> None:
    """Raise GradientError (MDLC1285) unless the graph returns one real number."""
    types = [tensor_type(o) for o in graph.outputs]
    if len(types) != 1 or types[0].size != 1 or not types[0].dtype.is_float:
        got = ", ".join(map(str, types)) or "nothing"
        text = f"{what}: {graph.name} returns {got}, expected a loss: one real number"
        raise GradientError(text, hint="sum what it returns", code="MDLC1285")
