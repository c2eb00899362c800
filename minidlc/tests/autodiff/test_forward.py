"""Forward mode of deep graphs, and what has no Hessian; its numbers are in test_gradients.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc.autodiff import forward
from minidlc.graph import Graph, Node, Value, interpret
from minidlc.graph.inline import nodes_made
from minidlc.support.errors import OptionError
from minidlc.tests.autodiff.test_api import refusal

pytestmark = pytest.mark.ch03

V = mc.f64[3]


def chain(length: int) -> Graph:
    def loss(x: Any) -> Any:
        for _ in range(length):
            x = mc.sin(x)
        return x.sum()

    return mc.trace(loss, V)


def looked_at(length: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many nodes the tangents of a chain are searched in."""
    count = 0

    def counting(result: Value, placed: Any) -> list[Node]:
        nonlocal count
        found = nodes_made(result, placed)
        count += len(found)
        return found

    monkeypatch.setattr(forward, "nodes_made", counting)
    mc.jvp(chain(length))
    return count


def test_a_tangent_does_not_look_at_what_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work grows with the length of a chain, not with its square."""
    short, long = looked_at(20, monkeypatch), looked_at(200, monkeypatch)
    assert 0 < short <= 20 * 10
    assert long <= 10 * short


def test_no_order_of_the_whole_graph_is_made_for_one_node() -> None:
    lengths: list[int] = []

    def counting(outputs: Any) -> list[Node]:
        found: dict[Node, None] = {}
        for output in outputs:
            found |= dict.fromkeys(nodes_made(output, found))
        lengths.append(len(found))
        return list(found)

    graph = chain(50)
    with mc.use(toposort=counting):
        mc.hvp(graph)
    assert sum(lengths) <= 50 * 10


@pytest.mark.parametrize(
    "function", [lambda x: x * x, lambda x: (x.sum(), x.sum()), lambda x: mc.arg_max(x)]
)
def test_what_is_no_loss_has_no_hessian(function: Any) -> None:
    error = refusal(lambda: mc.hvp(mc.trace(function, V)))
    assert (error.code, "no loss" in error.message) == ("MDLC1213", True)


def test_where_nan_parts_the_two_modes() -> None:
    """As the docstring says: a mask that comes last hides an infinite slope behind it."""
    graph = mc.trace(lambda x: mc.where(x > 0.0, mc.sqrt(x), x).sum(), V)
    x = np.array([0.0, 1.0, 4.0])
    np.testing.assert_array_equal(interpret(mc.grad(graph), [x])[0], [np.nan, 0.5, 0.25])
    assert interpret(mc.jvp(graph), [x, np.ones(3)])[1] == 1.75


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda x: mc.exp(x), [np.e, np.nan, 1]),
        (lambda x: mc.abs(x), [1, np.nan, 0]),
        (lambda x: mc.relu(x), [1, 0, 0]),
        (lambda x: mc.clip(x, min=0.5), [1, 0, 0]),
        (lambda x: mc.max(x), [0, 0, 0]),
        (lambda x: mc.min(x), [0, 0, 0]),
        (lambda x: mc.max_pool(x.reshape(1, 1, 3), kernel_shape=(3,)), [1 / 3, 1 / 3, 1 / 3]),
    ],
)
def test_what_a_gradient_is_at_nan(function: Any, wanted: list[float]) -> None:
    """The convention in the docstring of ops/gradients.py."""
    graph = mc.trace(lambda x: function(x).sum(), V)
    x = np.array([1.0, np.nan, 0.0])
    np.testing.assert_allclose(interpret(mc.grad(graph), [x])[0], wanted)


@pytest.mark.parametrize("call", [mc.grad, mc.value_and_grad, mc.jvp, mc.hvp])
def test_a_graph_is_differentiated_while_another_is_traced(call: Any) -> None:
    def loss(x: Any, y: Any) -> Any:
        return (mc.sin(x) * y * x).sum()

    inside: list[Graph] = []

    def traced(x: Any) -> Any:
        inside.append(call(mc.trace(loss, V, V)))
        return x

    mc.trace(traced, V)
    assert str(inside[0]) == str(call(mc.trace(loss, V, V)))


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (mc.compile, "exe.source"),
        (str, "mc.parse(text)"),
        (lambda _: mc.jit(lambda x: x), "mc.trace(fn"),
    ],
)
def test_what_is_no_graph_is_told_how_to_become_one(make: Any, hint: str) -> None:
    thing = make(mc.trace(lambda x: x * 2.0, V))
    error = refusal(lambda: mc.grad(thing), OptionError)
    assert hint in str(error.hint)
