"""Each optimiser against its formula written by hand in NumPy, over many updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc import f16, f32, f64, i64
from minidlc.graph import Graph, Input
from minidlc.support.errors import OptionError, TrainError
from minidlc.train.optimizers import Optimizer

pytestmark = pytest.mark.ch03

STEPS = 12
Update = Callable[[np.ndarray, np.ndarray, int, float], np.ndarray]


def sgd() -> Update:
    return lambda w, dw, t, rate: w - rate * dw


def momentum(nesterov: bool) -> Update:
    m = np.zeros(1)

    def update(w: np.ndarray, dw: np.ndarray, t: int, rate: float) -> np.ndarray:
        nonlocal m
        m = 0.8 * m + dw
        return w - rate * (dw + 0.8 * m if nesterov else m)

    return update


def adam(decay: float) -> Update:
    m, v = np.zeros(1), np.zeros(1)

    def update(w: np.ndarray, dw: np.ndarray, t: int, rate: float) -> np.ndarray:
        nonlocal m, v
        m, v = 0.9 * m + 0.1 * dw, 0.99 * v + 0.01 * dw**2
        w = w - rate * decay * w
        return w - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-6)

    return update


def rmsprop() -> Update:
    v = np.zeros(1)

    def update(w: np.ndarray, dw: np.ndarray, t: int, rate: float) -> np.ndarray:
        nonlocal v
        v = 0.95 * v + 0.05 * dw**2
        return w - rate * dw / (np.sqrt(v) + 1e-6)

    return update


CASES: dict[str, tuple[Optimizer, Callable[[], Update]]] = {
    "sgd": (mc.train.sgd(0.1), sgd),
    "momentum": (mc.train.momentum(0.1, 0.8), lambda: momentum(False)),
    "nesterov": (mc.train.momentum(0.1, 0.8, nesterov=True), lambda: momentum(True)),
    "adam": (mc.train.adam(0.1, 0.9, 0.99, 1e-6), lambda: adam(0.0)),
    "adamw": (mc.train.adamw(0.1, 0.9, 0.99, 1e-6, weight_decay=0.3), lambda: adam(0.3)),
    "adamw_excluded": (
        mc.train.adamw(0.1, 0.9, 0.99, 1e-6, weight_decay=0.3, exclude=("b*", "w")),
        lambda: adam(0.0),
    ),
    "rmsprop": (mc.train.rmsprop(0.1, 0.95, 1e-6), rmsprop),
}


def updates(optimizer: Optimizer, start: np.ndarray, gradients: np.ndarray) -> Iterator[np.ndarray]:
    """The parameter after each update, by the interpreter; the rate falls on the way."""
    type = f64[start.shape]
    w, dw = Input("w", type), Input("dw", type)
    step, rate = Input("step", i64[()]), Input("rate", f64[()])
    arrays = optimizer.slots(type)
    slots = {name: Input(name, type) for name in arrays}
    new, new_slots = optimizer.update(w, dw, slots, step, rate)
    assert list(new_slots) == list(slots)
    graph = Graph.of("update", [w, dw, step, rate, *slots.values()], [new, *new_slots.values()])
    for t, gradient in enumerate(gradients, 1):
        given = [start, gradient, np.array(t), np.array(0.1 / t), *arrays.values()]
        start, *found = mc.interpret(graph, given)
        arrays = dict(zip(arrays, found, strict=True))
        yield start


@pytest.mark.parametrize("name", CASES)
def test_an_optimiser_is_its_formula(name: str) -> None:
    optimizer, by_hand = CASES[name]
    rng = np.random.default_rng(3)
    w, gradients = rng.standard_normal((2, 3)), rng.standard_normal((STEPS, 2, 3))
    gradients[4] = 0  # an unused parameter goes on moving by its velocity alone
    update = by_hand()
    for t, found in enumerate(updates(optimizer, w, gradients), 1):
        w = update(w, gradients[t - 1], t, 0.1 / t)
        np.testing.assert_allclose(found, w, rtol=1e-9, atol=1e-12)


def test_the_first_step_of_adam_is_exact_in_f32() -> None:
    """1 - 0.999 in f32 has three digits less; the step would be wrong by 3e-5 of itself."""
    w, dw = Input("w", f32[3]), Input("dw", f32[3])
    step, rate = Input("step", i64[()]), Input("rate", f32[()])
    slots = {name: Input(name, f32[3]) for name in "mv"}
    new, _ = mc.train.adam(epsilon=0.0).update(w, dw, slots, step, rate)
    graph = Graph.of("update", [w, dw, step, rate, *slots.values()], [new])
    zeros, gradient = np.zeros(3, np.float32), np.array([1e-3, 1, -1e3], np.float32)
    moved = mc.interpret(graph, [zeros, gradient, np.array(1), np.float32(1), zeros, zeros])[0]
    np.testing.assert_allclose(moved, [-1, -1, 1], rtol=5e-7)


def test_parameters_of_f16_are_updated_in_f32() -> None:
    from minidlc.train.step_graph import Plan, step_graph

    loss = mc.trace(lambda w: mc.train.mse(w, mc.Constant("t", np.ones(3, np.float16))), f16[3])
    built = step_graph(loss, {"w": np.full(3, 3, np.float16)}, Plan(mc.train.adam(0.25)))
    keys = {v.key: v for v in built.variables}
    assert keys["v/w"].initial.dtype == np.float32  # epsilon = 1e-8 is 0 in f16
    assert keys["parameters/w"].new.type == f16[3]
    given = [np.float32(0.25), *(v.initial for v in built.variables)]
    found = mc.interpret(built.graph, given)
    np.testing.assert_array_equal(found[1], np.full(3, 2.75, np.float16))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: mc.train.sgd(-0.1), "sgd: learning_rate is -0.1, expected a finite number of at"),
        (lambda: mc.train.adam(float("nan")), "adam: learning_rate is nan, expected a finite"),
        (lambda: mc.train.adam(1e39), "adam: learning_rate is 1e+39, expected a finite number"),
        (lambda: mc.train.adam(10**400), "adam: learning_rate is inf, expected a finite number"),
        (lambda: mc.train.rmsprop(epsilon=1e-60), "rmsprop: epsilon is 1e-60, expected a finite"),
        (lambda: mc.train.adam(1e-3, beta2=1.0), "adam: beta2 is 1.0, expected a number from 0"),
        (lambda: mc.train.adamw(1e-3, -1), "adamw: beta1 is -1.0, expected a number from 0"),
        (lambda: mc.train.momentum(0.1, momentum=-1), "momentum: momentum is -1.0, expected"),
        (lambda: mc.train.adamw(weight_decay=-1.0), "adamw: weight_decay is -1.0, expected a fin"),
        (lambda: mc.train.rmsprop(decay=2.0), "rmsprop: decay is 2.0, expected a number from 0"),
    ],
)
def test_numbers_that_cannot_work_are_refused(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(TrainError) as e:
        make()
    assert e.value.code == "MDLC1254"
    assert e.value.message.startswith(text)


def test_what_f32_cannot_hold_is_said() -> None:
    with pytest.raises(TrainError) as e:
        mc.train.sgd(1e39)
    assert e.value.hint == "f32 holds 0 and 1.18e-38 to 3.4e+38"


@pytest.mark.parametrize(
    ("make", "text", "hint"),
    [
        (lambda: mc.train.sgd("fast"), "sgd: learning_rate is a str", "the learning rate comes"),
        (lambda: mc.train.adam([1e-3]), "adam: learning_rate is a list", "the learning rate comes"),
        (lambda: mc.train.adam(epsilon=None), "adam: epsilon is None, expected Real", None),
        (lambda: mc.train.adam(True), "adam: learning_rate is a bool", "the learning rate comes"),
        (lambda: mc.train.adamw(exclude="*_bias"), "adamw: exclude is a str", "exclude=("),
        (lambda: mc.train.adamw(exclude=5), "adamw: exclude is a int", "exclude=("),
        (lambda: mc.train.adamw(exclude=(5,)), "adamw: exclude[0] is a int", "exclude=("),
    ],
)
def test_what_is_no_number_and_no_names_is_refused(
    make: Callable[[], Any], text: str, hint: str | None
) -> None:
    with pytest.raises(OptionError) as e:
        make()
    assert e.value.code == "MDLC1001"
    assert e.value.message.startswith(text)
    assert (e.value.hint is None) if hint is None else str(e.value.hint).startswith(hint)


def test_numbers_of_numpy_become_those_of_python() -> None:
    """An op of a value and a number of NumPy would be NumPy's."""
    optimizer = mc.train.adamw(np.float32(0.5), np.float64(0.9), exclude=["b"])
    assert type(optimizer.learning_rate) is type(optimizer.beta1) is float
    assert optimizer == mc.train.adamw(0.5, exclude=("b",))
    assert mc.train.momentum(1, momentum=0) == mc.train.momentum(1.0, 0.0)
