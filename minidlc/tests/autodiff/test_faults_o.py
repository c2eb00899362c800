"""Faults that other systems had in derivatives (class O), as gradients that are right here.

Each row: where it was reported, a function, its inputs, the gradients. The same must come from the
interpreter, from the graph after the default passes, and from machine code; forward mode agrees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import Graph, interpret
from minidlc.tests.ops.checks import type_of
from minidlc.transform import Pipeline

pytestmark = pytest.mark.ch03

F = np.float32
NAN, INF = np.nan, np.inf


def f(*values: float) -> Any:
    return np.array(values, F)


def plain_root(x: Any) -> Any:
    return mc.where(x < 1.0, x, mc.sqrt(x)).sum()


def safe_root(x: Any) -> Any:
    return mc.where(x < 1.0, x, mc.sqrt(mc.where(x < 1.0, 1.0, x))).sum()


def masked_root(x: Any) -> Any:
    return mc.where(x > 0.0, mc.sqrt(x), 0.0).sum()


def safely_masked_root(x: Any) -> Any:
    return mc.where(x > 0.0, mc.sqrt(mc.where(x > 0.0, x, 1.0)), 0.0).sum()


def norm(x: Any) -> Any:
    return mc.reduce_l2(x, keepdims=False)


def log_sum_exp(x: Any) -> Any:
    return mc.reduce_log_sum_exp(x, keepdims=False)


def cross_entropy(x: Any) -> Any:
    loss, _ = mc.softmax_cross_entropy(x, np.array([0, 1]))
    return loss


def wrong_target(x: Any) -> Any:
    loss, _ = mc.softmax_cross_entropy(x, np.array([5, 0]), reduction="sum")
    return loss


def argmax_loss(x: Any) -> Any:
    return mc.arg_max(x, keepdims=False).astype("f32") + 0.0 * x.sum()


def prod(x: Any) -> Any:
    return mc.prod(x, keepdims=False)


def squared_ties(x: Any) -> Any:
    return mc.max(x * x, keepdims=False)


# row of the table, function, inputs, the gradient by each input
ROWS: list[tuple[str, Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = [
    ("159 jax#5798 the safe form", safe_root, (f(0, 1, 4),), (f(1, 0.5, 0.25),)),
    ("159 jax#1052 the plain form is NaN: documented at where", plain_root, (f(0, 1, 4),),
     (f(NAN, 0.5, 0.25),)),
    ("161 jax#12409 x ** 0", lambda x: (x ** np.zeros(3, np.int32)).sum(), (f(0, 2, -3),),
     (f(0, 0, 0),)),
    ("161 x ** 0.0", lambda x: (x**0.0).sum(), (f(0, 2, -3),), (f(0, 0, 0),)),
    ("161 both move", lambda x, y: (x**y).sum(), (f(0, 0, -2, 2), f(0, 2, 2, 3)),
     (f(0, 0, -4, 12), f(0, 0, 0, 8 * np.log(2)))),
    ("162 tinygrad#155 (-2) ** 3", lambda x: (x**3.0).sum(), (f(-2, 0, 2),), (f(12, 0, 12),)),
    ("162 a square", lambda x: (x**2.0).sum(), (f(-2, 0, 3),), (f(-4, 0, 6),)),
    ("162 an exponent of integers", lambda x: (x ** np.array(3)).sum(), (f(-2, 0),), (f(12, 0),)),
    ("164 Theano#4568 max of equals", lambda x: mc.max(x, keepdims=False), (f(1, 1),),
     (f(0.5, 0.5),)),
    ("164 some are equal", lambda x: mc.max(x, keepdims=False), (f(2, 1, 2),), (f(0.5, 0, 0.5),)),
    ("164 min of equals", lambda x: mc.min(x, keepdims=False), (f(1, 1, 1, 1),), (f(*[0.25] * 4),)),
    ("164 jax#37821 through a square", squared_ties, (f(2, -2, 1),), (f(2, -2, 0),)),
    ("164 maximum(x, 0) at 0: half", lambda x: mc.maximum(x, 0.0).sum(), (f(0, -1, 1),),
     (f(0.5, 0, 1),)),
    ("164 minimum of equals: half", lambda x, y: mc.minimum(x, y).sum(), (f(1, 2), f(1, 3)),
     (f(0.5, 1), f(0.5, 0))),
    ("164 relu at 0: 0", lambda x: mc.relu(x).sum(), (f(0, -0.0, -1, 1),), (f(0, 0, 0, 1),)),
    ("164 clip at its bounds: 0", lambda x: mc.clip(x, min=0.0, max=6.0).sum(), (f(0, 6, 3, 7),),
     (f(0, 0, 1, 0),)),
    ("166 jax#37820 abs at 0", lambda x: mc.abs(x).sum(), (f(0, -0.0, -2, 3),), (f(0, 0, -1, 1),)),
    ("167 haiku#442 arg_max in a loss", argmax_loss, (f(1, 3, 2),), (f(0, 0, 0),)),
    ("167 TrenTorch#58 ReduceMax in a loss", lambda x: mc.max(x, axes=(1,)).sum(),
     (np.array([[1, 3], [5, 2]], F),), (np.array([[0, 1], [1, 0]], F),)),
    ("169 tinygrad#3108", lambda x, y: (x @ y).sum(), (np.ones((3, 4), F), np.ones((4, 0), F)),
     (np.zeros((3, 4), F), np.ones((4, 0), F))),
    ("169 nothing between", lambda x, y: (x @ y).sum(), (np.ones((3, 0), F), np.ones((0, 2), F)),
     (np.ones((3, 0), F), np.ones((0, 2), F))),
    ("169 nothing in a batch", lambda x, y: (x @ y).sum(),
     (np.ones((2, 2, 0), F), np.ones((0, 3), F)), (np.ones((2, 2, 0), F), np.ones((0, 3), F))),
    ("170 broadcast sums", lambda x, y, z: (x + y + z).sum(),
     (np.ones((3, 1), F), np.ones((1, 4), F), F(1)),
     (np.full((3, 1), 4, F), np.full((1, 4), 3, F), F(12))),
    ("170 of an empty tensor", lambda x, y: (x * y).sum(), (np.ones((0, 3), F), f(1, 2, 3)),
     (np.ones((0, 3), F), f(0, 0, 0))),
    ("172 jax#383 the plain form is NaN: documented at sqrt", masked_root, (f(0, 4),),
     (f(NAN, 0.25),)),
    ("172 the safe form", safely_masked_root, (f(0, 4),), (f(0, 0.25),)),
    ("log-sum-exp of large numbers", log_sum_exp, (f(1000, 1000, -1000),), (f(0.5, 0.5, 0),)),
    ("log-sum-exp with -inf", log_sum_exp, (f(-INF, 0),), (f(0, 1),)),
    ("log-sum-exp of -inf alone", log_sum_exp, (f(-INF, -INF),), (f(0, 0),)),
    ("cross-entropy of large logits", cross_entropy, (np.array([[1e4, 0], [1e4, 0]], F),),
     (np.array([[0, 0], [0.5, -0.5]], F),)),
    ("cross-entropy with a target that is no class", wrong_target, (np.array([[1, 2], [0, 0]], F),),
     (np.array([[0, 0], [-0.5, 0.5]], F),)),
    ("gelu far from 0", lambda x: mc.gelu(x).sum(), (f(1e20, -1e20, INF, 0),), (f(1, 0, 1, 0.5),)),
    ("gelu by tanh far from 0", lambda x: mc.gelu(x, approximate="tanh").sum(),
     (f(1e20, -1e20, INF, 0),), (f(1, 0, 1, 0.5),)),
    ("norm at 0", norm, (f(0, 0),), (f(0, 0),)),
    ("norm", norm, (f(3, -4),), (f(0.6, -0.8),)),
    ("a vector of norm 0, divided by it", lambda x: mc.lp_normalization(x).sum(), (f(0, 0),),
     (f(0, 0),)),
    ("prod without a zero", prod, (f(2, 3, 4),), (f(12, 8, 6),)),
    ("prod with a zero", prod, (f(2, 0, 4),), (f(0, 8, 0),)),
    ("prod with two", prod, (f(0, 3, 0),), (f(0, 0, 0),)),
    ("cumprod with a zero", lambda x: mc.cumprod(x, axis=0).sum(), (f(2, 0, 3),), (f(1, 8, 0),)),
    ("max of nothing", lambda x: mc.max(x, axes=(0,)).sum(), (np.ones((0, 2), F),),
     (np.ones((0, 2), F),)),
    ("mean of nothing", lambda x: mc.mean(x, axes=(1,)).sum(), (np.ones((2, 0), F),),
     (np.ones((2, 0), F),)),
    ("mean of more than f16 can count", lambda x: mc.mean(x, keepdims=False),
     (np.ones(70_000, np.float16),), (np.full(70_000, 1 / 70_000, np.float16),)),
    ("softmax of nothing", lambda x: mc.softmax(x).sum(), (np.ones((2, 0), F),),
     (np.ones((2, 0), F),)),
]  # fmt: skip
# composites with a rule that is safer than those of their parts: NaN once they are taken apart
BY_A_RULE = ("log-sum-exp of -inf alone", "norm at 0", "a vector of norm 0, divided by it")
of_each_row = pytest.mark.parametrize(
    ("function", "inputs", "wanted"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)


def traced(function: Callable[..., Any], inputs: tuple[Any, ...]) -> Graph:
    return mc.trace(function, *map(type_of, inputs))


def assert_same(got: Any, wanted: Any) -> None:
    """NaN equals NaN; the numbers are a few roundings apart at most."""
    for a, b in zip(got, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-7)


@of_each_row
def test_the_gradient_is_right(
    function: Callable[..., Any], inputs: tuple[Any, ...], wanted: tuple[Any, ...]
) -> None:
    assert_same(interpret(mc.grad(traced(function, inputs)), list(inputs)), wanted)


@of_each_row
def test_it_is_the_same_after_the_passes(
    function: Callable[..., Any], inputs: tuple[Any, ...], wanted: tuple[Any, ...]
) -> None:
    graph, _ = Pipeline.default().run(mc.grad(traced(function, inputs)))
    assert_same(interpret(graph, list(inputs)), wanted)


@pytest.mark.parametrize(
    ("function", "inputs", "wanted"),
    [row[1:] for row in ROWS if row[0] not in BY_A_RULE],
    ids=[row[0] for row in ROWS if row[0] not in BY_A_RULE],
)
def test_the_graph_after_the_passes_has_the_same_gradient(
    function: Callable[..., Any], inputs: tuple[Any, ...], wanted: tuple[Any, ...]
) -> None:
    graph, _ = Pipeline.default().run(traced(function, inputs))
    assert_same(interpret(mc.grad(graph, [i.name for i in graph.inputs]), list(inputs)), wanted)


@of_each_row
def test_forward_mode_agrees(
    function: Callable[..., Any], inputs: tuple[Any, ...], wanted: tuple[Any, ...]
) -> None:
    """Where reverse mode is NaN, it is the number: a tangent that is not taken is dropped."""
    wanted = tuple(np.where(np.isnan(dx), function is plain_root, dx) for dx in wanted)
    rng = np.random.default_rng(3)
    moves = [rng.uniform(1, 2, np.shape(x)).astype(x.dtype) for x in inputs]
    moved = interpret(mc.jvp(traced(function, inputs)), [*inputs, *moves])[1]
    right = sum(float(np.sum(dx * move)) for dx, move in zip(wanted, moves, strict=True))
    bound = 1e-5 if moved.dtype == F else 4e-3  # a step of small numbers of f16, 1 / 70000
    np.testing.assert_allclose(moved, right, rtol=bound, atol=1e-6)


@pytest.mark.llvm
@of_each_row
def test_it_is_the_same_as_machine_code(
    function: Callable[..., Any], inputs: tuple[Any, ...], wanted: tuple[Any, ...]
) -> None:
    got = mc.compile(mc.grad(traced(function, inputs)))(*inputs)
    assert_same(got if isinstance(got, (tuple, list)) else (got,), wanted)


def test_dropout_has_one_mask_forward_and_backward() -> None:
    """Row 105, raf#33: the gradient of a sum is the factor that each element was multiplied by."""

    def thinned(x: Any) -> Any:
        y, _ = mc.dropout(x, stream=1)
        return y.sum(), y

    graph = mc.trace(thinned, mc.f32[64])
    x = np.linspace(1, 2, 64, dtype=F)
    _, y, dx = interpret(mc.value_and_grad(graph), [x, F(1), np.zeros(64, F)])
    np.testing.assert_array_equal(y, x * dx)
    assert 0 < np.count_nonzero(dx) < 64
