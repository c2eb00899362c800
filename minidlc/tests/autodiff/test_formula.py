"""The derivative by formulas: right, as one writes it, and as long as it gets."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc.autodiff.formula import (
    OF_ONE,
    OF_TWO,
    Formula,
    Swell,
    derivative,
    formula_of,
    operations,
    swell,
)
from minidlc.graph import apply
from minidlc.support.errors import GradientError

pytestmark = pytest.mark.ch03

MATH = {name: getattr(math, name) for name in ("exp", "log", "sin", "cos", "tanh")}
MATH["sigmoid"] = lambda a: 1 / (1 + math.exp(-a))


def logistic(n: int) -> mc.Graph:
    """x ← 4x(1 - x), n times."""

    def f(x: Any) -> Any:
        for _ in range(n):
            x = 4.0 * x * (1.0 - x)
        return x

    return mc.trace(f, mc.f64[()])


def product(n: int) -> mc.Graph:
    """Speelpenning's: x0 x1 … of n inputs."""
    xs = [mc.Input(f"x{k}", mc.f64[()]) for k in range(n)]
    y: Any = xs[0]
    for x in xs[1:]:
        y = y * x
    return mc.Graph.of("product", xs, [y])


def test_formulas_are_written_as_on_paper() -> None:
    f = formula_of(logistic(1))
    assert str(f) == "4*x*(1 - x)"
    assert str(derivative(f, "x")) == "(1 - x)*4 - 4*x"
    assert str(derivative(f, "y")) == "0"
    assert str(derivative(formula_of(product(3)), "x1")) == "x2*x0"


@pytest.mark.parametrize("name", [*OF_ONE, *OF_TWO])
def test_every_line_of_the_tables_agrees_with_a_difference(name: str) -> None:
    x, y = Formula("x"), Formula("y")
    f = Formula(name, (x, y) if name in OF_TWO else (x,))
    at, h = {"x": 0.7, "y": 1.3}, 1e-6

    def value(formula: Formula, **letters: float) -> float:
        return eval(str(formula), MATH | at | letters)

    for letter in at:
        low, high = (value(f, **{letter: at[letter] + way}) for way in (-h, h))
        assert value(derivative(f, letter)) == pytest.approx((high - low) / (2 * h), abs=1e-8)


SMOOTH: dict[str, Callable[[Any], Any]] = {
    "tanh of a quotient": lambda x: apply("tanh", (x * x - 2.0) / (x + 3.0)),
    "exp and log": lambda x: apply("exp", -x) * apply("log", x + 2.0) - x,
    "waves": lambda x: apply("sin", x * apply("cos", x)) / 3.0 - (x - (1.0 - x)),
    "sigmoid": lambda x: apply("sigmoid", 2.0 * x) * apply("sigmoid", -x),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_text_of_a_formula_and_of_its_derivative_mean_what_the_graphs_do(name: str) -> None:
    g = mc.trace(SMOOTH[name], mc.f64[()])
    f = formula_of(g)
    for x in (0.3, 1.7):
        [value] = mc.interpret(g, [np.array(x)])
        [dx] = mc.interpret(mc.grad(g), [np.array(x)])
        assert eval(str(f), MATH | {"x": x}) == pytest.approx(float(value))
        assert eval(str(derivative(f, "x")), MATH | {"x": x}) == pytest.approx(float(dx))


def test_operations_are_those_of_the_text() -> None:
    f = formula_of(logistic(3))
    for formula in (f, derivative(f, "x")):
        text = str(formula)
        counted = text.count("*") + text.count(" + ") + text.count(" - ") + text.count("(-")
        assert operations(formula) == counted


def test_the_logistic_map_swells_as_a_formula_and_not_as_a_graph() -> None:
    assert [swell(logistic(n)) for n in (1, 4, 8)] == [
        Swell(formula=3, symbolic=4, shared=4, automatic=7),
        Swell(formula=45, symbolic=183, shared=28, automatic=31),
        Swell(formula=765, symbolic=6015, shared=60, automatic=63),
    ]
    for n in range(2, 12):
        less, more = swell(logistic(n)), swell(logistic(n + 1))
        assert more.automatic - less.automatic == more.shared - less.shared == 8
        assert more.symbolic > 2 * less.symbolic


def test_all_gradients_of_a_product_are_three_operations_an_input() -> None:
    counts = [swell(product(n)) for n in (8, 16, 32)]
    assert [c.automatic for c in counts] == [20, 44, 92]  # 3n - 4
    assert [c.symbolic for c in counts] == [48, 224, 960]  # n² - 2n


def test_a_formula_too_long_to_be_written_is_counted_all_the_same() -> None:
    assert swell(logistic(60)).symbolic > 10**18
    deep = mc.trace(lambda x: sum((x for _ in range(3000)), x), mc.f64[()])
    assert str(derivative(formula_of(deep), "x")).count("+") == 3000


def test_what_is_no_formula_is_refused_by_name() -> None:
    tensors = mc.trace(lambda x: apply("sum", x * x, axes=(0,), keepdims=False), mc.f64[3])
    relu = mc.trace(lambda x: apply("relu", x), mc.f64[()])
    for g, name in ((tensors, "mul"), (relu, "relu")):
        with pytest.raises(GradientError, match=f"no formula for {name}") as error:
            formula_of(g)
        assert error.value.code == "MDLC1286"
    with pytest.raises(GradientError) as error:
        swell(mc.trace(lambda x: x * x, mc.f64[3]))
    assert error.value.code == "MDLC1285"
