"""Gradients of random graphs of all families, in f64: those of differences, and the same compiled.

A difference tells how good it is: to the left and to the right, with a step four times as long, it
must be the same. By as much as these differ (a kink, a jump, numbers that cancel) a gradient may.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings

import minidlc as mc
from minidlc.graph import Graph, interpret
from minidlc.support.errors import GradientError
from minidlc.tests.autodiff.cases import NO_GRADIENT, in_f64, is_float, weighted
from minidlc.tests.autodiff.checks import H
from minidlc.tests.random_graphs import Case, cases

pytestmark = pytest.mark.ch03

BOUND = 1e-5  # relative; more than for one op: third derivatives of a chain are larger


def loss_of(case: Case) -> tuple[Graph, list[Any]]:
    """The sum of random multiples of all real outputs, as a graph in f64, and its inputs."""
    rng = np.random.default_rng(5)
    graph = in_f64(case.graph)
    real = [o for o in graph.outputs if o.type.dtype.is_float]
    assume(real and any(i.type.dtype.is_float for i in graph.inputs))
    total = weighted(real[0], rng.uniform(0.5, 1.5, real[0].type.dims))
    for o in real[1:]:
        total = total + weighted(o, rng.uniform(0.5, 1.5, o.type.dims))
    arrays = [
        a.astype(np.float64) + rng.uniform(0.01, 0.05, a.shape) if is_float(a) else a
        for a in case.arrays  # moved off the round numbers, where kinks and ties are
    ]
    return Graph.of("loss", graph.inputs, [total]), arrays


def gradient_of(loss: Graph) -> Graph:
    try:
        return mc.grad(loss)
    except GradientError as e:
        assume(not any(e.message.startswith(name) for name in NO_GRADIENT))
        raise


@settings(max_examples=60)
@given(cases(8))
def test_the_gradient_is_the_difference(case: Case) -> None:
    loss, arrays = loss_of(case)
    gradients = interpret(gradient_of(loss), arrays)
    rng = np.random.default_rng(6)
    moves = [rng.standard_normal(a.shape) if a.dtype == np.float64 else None for a in arrays]

    def at(step: float) -> float:
        moved = (a if v is None else a + step * v for a, v in zip(arrays, moves, strict=True))
        return float(interpret(loss, list(moved))[0])

    left, right = (at(0) - at(-H)) / H, (at(H) - at(0)) / H
    near, far = (left + right) / 2, (at(4 * H) - at(-4 * H)) / (8 * H)
    assume(np.isfinite([near, far]).all())
    directions = [v for v in moves if v is not None]
    slope = sum(float(np.sum(g * v)) for g, v in zip(gradients, directions, strict=True))
    bound = BOUND * (1 + abs(near)) + 4 * abs(near - far) + abs(left - right)
    assert abs(slope - near) <= bound, f"{slope} is not {near} ({far})\n{loss}"


@pytest.mark.llvm
@pytest.mark.long
@settings(max_examples=25)
@given(cases(6))
def test_compiled_it_is_the_same(case: Case) -> None:
    loss, arrays = loss_of(case)
    graph = gradient_of(loss)
    wanted = interpret(graph, arrays)
    got = mc.compile(graph)(*arrays)
    for a, b in zip(got if isinstance(got, (tuple, list)) else (got,), wanted, strict=True):
        largest = np.max(np.abs(b), initial=1.0, where=np.isfinite(b))
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * largest)
