"""A loop is its runs, written one after another: so are its gradients, for random bodies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc.expr.types import f64
from minidlc.graph import Constant, Graph, Input, Value, apply, getitem
from minidlc.graph.graph import results_of
from minidlc.graph.inline import inlined
from minidlc.ops.control_flow import Loop
from minidlc.tests.autodiff.test_control_flow import RUN, T, body, loop, numbers, total

pytestmark = pytest.mark.ch03


def random_body(rng: np.random.Generator, states: int, scanned: int, captures: int) -> Graph:
    """A body of random operations on all that it reads, nested branches and loops among them."""
    count = states + scanned + captures
    inputs = [Input(f"v{n}", f64[3]) for n in range(count)]
    pool: list[Value] = [*inputs, apply("expand", apply("cast", RUN, to="f64") * 0.25, shape=(3,))]

    def pick() -> Value:
        return pool[rng.integers(len(pool))]

    def branch() -> Value:
        a, b = Input("a", f64[3]), Input("b", f64[3])
        yes, no = Graph.of("yes", [a, b], [a * b]), Graph.of("no", [a, b], [apply("sin", b)])
        odd = apply("equal", apply("mod", RUN, 2), 1)
        return apply("if_", odd, pick(), pick(), then_branch=yes, else_branch=no)

    def inner() -> Value:
        a, b = Input("a", f64[3]), Input("b", f64[3])
        step = body([a, b], apply("tanh", a * b), a + b)
        node = loop([pick(), pick()], step, carried=1, trips=2)
        return getitem(node, 0) + apply("sum", getitem(node, 1), axes=(0,), keepdims=False)

    def best() -> Value:
        return getitem(apply("topk", pick(), k=3), 0)

    for _ in range(rng.integers(3, 9)):
        pool.append(
            [
                lambda: pick() + pick(), lambda: pick() * pick(), lambda: apply("sin", pick()),
                lambda: apply("tanh", pick()), lambda: apply("max", pick()) * pick(),
                branch, inner, best,
            ][rng.integers(8)]()
        )  # fmt: skip
    results = [pick() for _ in range(states + rng.integers(1, 3))]
    return body(inputs, *results)


def unrolled(g: Graph) -> Graph:
    """The graph with the runs of its one loop in place of it."""
    (node,) = (n for n in g.nodes if isinstance(n.op, Loop))
    assert isinstance(node.op, Loop)
    assert node.op.trips is not None
    step, trips, carried = node.op.body, node.op.trips, node.op.carried
    state, scanned, captures = node.op.parts(node.inputs[2:])
    rows: list[list[Value]] = []
    for run in range(trips):
        row = [apply("gather", x, Constant("run", np.array(run))) for x in scanned]
        given = [Constant("i", np.array(run)), T, *state, *row, *captures]
        _, *found = inlined(step, dict(zip(step.inputs, given, strict=True)))
        state = found[:carried]
        rows.append(found[carried:])
    stacks = [
        apply("concat", *(apply("reshape", v, shape=(1, 3)) for v in column), axis=0)
        for column in zip(*rows, strict=True)
    ]
    return Graph.of("unrolled", g.inputs, [total(*state, *stacks)])


def looped(seed: int) -> tuple[Graph, dict[str, Any]]:
    """A loss behind a loop of a random body, and numbers for it."""
    rng = np.random.default_rng(seed)
    states, scanned, captures = (int(rng.integers(least, 3)) for least in (0, 0, 1))
    trips = int(rng.integers(1, 4))
    shapes = [(3,)] * states + [(trips, 3)] * scanned + [(3,)] * captures
    given = [Input(f"x{n}", f64[shape]) for n, shape in enumerate(shapes)]
    step = random_body(rng, states, scanned, captures)
    node = loop(given, step, carried=states, scanned=scanned, trips=trips)
    g = Graph.of("looped", given, [total(*results_of(node))])
    return g, numbers(g, seed)


@pytest.mark.parametrize("seed", range(20))
def test_the_gradient_of_a_loop_is_that_of_its_runs(seed: int) -> None:
    g, arrays = looped(seed)
    for a, b in zip(grads_twice(g, arrays), grads_twice(unrolled(g), arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.llvm
@pytest.mark.long
@pytest.mark.parametrize("seed", range(20, 32))
def test_compiled_gradients_of_random_loops(seed: int) -> None:
    g, arrays = looped(seed)
    step = mc.value_and_grad(g)
    for a, b in zip(mc.compile(step)(arrays), mc.interpret(step, arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def grads_twice(g: Graph, arrays: dict[str, Any]) -> list[Any]:
    """The loss, its gradient, and the gradient of a sum of that."""
    first = mc.value_and_grad(g)
    twice = Graph.of("twice", first.inputs, [total(*first.outputs[1:])])
    return mc.interpret(first, arrays) + mc.interpret(mc.grad(twice), arrays)
