"""The derivative by small steps: right to two thirds of the digits, and its errors."""

from __future__ import annotations

import numpy as np
import pytest

import minidlc as mc
from minidlc.autodiff.numeric import numeric_gradient, step_errors
from minidlc.graph import apply
from minidlc.support.errors import CallError, GradientError

pytestmark = pytest.mark.ch03


def loss_of(element: mc.DType = mc.f64) -> mc.Graph:
    """The sum of relu(x @ w + b)², by hand so that it may be of any element type."""
    x, w, b = (mc.Input(n, element[s]) for n, s in (("x", (3, 4)), ("w", (4, 2)), ("b", (2,))))
    h = apply("relu", apply("matmul", x, w) + b)
    return mc.Graph.of("loss", [x, w, b], [apply("sum", h * h, axes=(0, 1), keepdims=False)])


def numbers(g: mc.Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {i.name: rng.standard_normal(i.type.shape).astype(i.type.dtype.numpy) for i in g.inputs}


@pytest.mark.parametrize(("element", "bound"), [(mc.f64, 1e-9), (mc.f32, 2e-3)])
def test_it_agrees_with_the_automatic_one(element: mc.DType, bound: float) -> None:
    g = loss_of(element)
    given = numbers(g)
    exact = mc.interpret(mc.grad(g), given)
    for found, wanted in zip(numeric_gradient(g, given), exact, strict=True):
        assert found.dtype == wanted.dtype
        assert found.shape == wanted.shape
        assert np.abs(found - wanted).max() <= bound * np.abs(wanted).max()


def test_only_what_was_asked_for_and_the_inputs_stay_as_they_were() -> None:
    g = loss_of()
    given = numbers(g)
    before = {name: a.copy() for name, a in given.items()}
    [db] = numeric_gradient(g, given, "b")
    assert db.shape == (2,)
    assert all(np.array_equal(given[name], before[name]) for name in given)


def test_the_error_falls_with_the_step_and_rises_again() -> None:
    def f(x: mc.Graph) -> object:
        return apply("sum", x * x * x, axes=(0,), keepdims=False)

    g = mc.trace(f, mc.f64[3])
    given = {"x": np.array([0.7, -1.3, 2.1])}
    errors = step_errors(g, given, [1e-1, 1e-3, 1e-5, 1e-9, 1e-13])
    assert errors[0] > 50 * errors[1] > 2500 * errors[2]  # as h², nearly
    assert errors[2] < errors[3] < errors[4]  # as rounding over h
    assert errors[2] < 1e-9


def test_a_step_that_rounds_away_says_zero() -> None:
    g = mc.trace(lambda x: x * x, mc.f32[()])
    assert numeric_gradient(g, {"x": np.float32(3)}, step=1e-9) == [np.float32(0)]


def test_at_a_kink_it_says_the_mean_of_both_sides() -> None:
    g = mc.trace(lambda x: apply("relu", x), mc.f64[()])
    [found] = numeric_gradient(g, {"x": np.array(0.0)})
    assert found == pytest.approx(0.5)
    assert mc.interpret(mc.grad(g), {"x": np.array(0.0)}) == [0.0]


def test_what_is_no_loss_is_refused() -> None:
    g = mc.trace(lambda x: x * x, mc.f64[3])
    with pytest.raises(GradientError, match=r"returns f64\[3\], expected a loss") as error:
        numeric_gradient(g, {"x": np.zeros(3)})
    assert error.value.code == "MDLC1285"
    assert "sum what it returns" in str(error.value)


@pytest.mark.parametrize("step", [0.0, -1e-3, float("nan")])
def test_a_step_that_leads_nowhere_is_refused(step: float) -> None:
    g = loss_of()
    with pytest.raises(GradientError, match="expected a positive number") as error:
        numeric_gradient(g, numbers(g), step=step)
    assert error.value.code == "MDLC1289"


def test_wrong_names_and_inputs_are_refused_as_elsewhere() -> None:
    g = loss_of()
    with pytest.raises(GradientError, match="no input 'v'") as error:
        numeric_gradient(g, numbers(g), ["v"])
    assert error.value.code == "MDLC1203"
    with pytest.raises(CallError):
        numeric_gradient(g, {"x": np.zeros((3, 4))})
