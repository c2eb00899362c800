"""The tape: the same gradients as those of the graph, in 60 lines."""

from __future__ import annotations

import ast
import inspect

import numpy as np
import pytest

import minidlc as mc
from minidlc.autodiff import tape
from minidlc.autodiff.tape import Variable, gradients
from minidlc.graph import apply
from minidlc.support.errors import GradientError, OptionError

pytestmark = pytest.mark.ch03


def test_an_mlp_has_the_gradients_of_the_graph() -> None:
    names = {"x": (5, 4), "w1": (4, 8), "b1": (8,), "w2": (8, 3), "b2": (1, 3), "t": (5, 3)}
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape) for name, shape in names.items()}
    x, w1, b1, w2, b2, t = (mc.Input(name, mc.f64[shape]) for name, shape in names.items())
    h = apply("relu", apply("matmul", x, w1) + b1)
    e = apply("matmul", h, w2) + b2 - t
    loss = apply("sum", e * e * 0.5, axes=(0, 1), keepdims=False)
    graph = mc.value_and_grad(mc.Graph.of("mlp", [x, w1, b1, w2, b2, t], [loss]))
    value, *wanted = mc.interpret(graph, arrays)

    v = {name: Variable(a) for name, a in arrays.items()}
    error = (v["x"] @ v["w1"] + v["b1"]).relu() @ v["w2"] + v["b2"] - v["t"]
    total = (error * error * 0.5).sum()
    assert total.array == pytest.approx(float(value))
    for dx, right in zip(gradients(total, list(v.values())), wanted, strict=True):
        assert dx.shape == right.shape
        np.testing.assert_allclose(dx, right, rtol=1e-12, atol=1e-12)


def test_a_value_that_is_read_twice_gets_both_parts() -> None:
    x = Variable(3.0)
    h = x * x
    [dx] = gradients(h * h + h, [x])
    assert dx == 4 * 3**3 + 2 * 3


def test_broadcasts_are_summed_back_in_every_direction() -> None:
    rng = np.random.default_rng(1)
    for shape in ((), (1,), (3,), (1, 3), (2, 1), (1, 2, 1)):
        a, b = Variable(rng.standard_normal(shape)), Variable(rng.standard_normal((2, 3)))
        [da, db] = gradients((a * b).sum(), [a, b])
        assert da.shape == shape
        broadcast = np.broadcast_to(a.array, np.broadcast_shapes(shape, (2, 3)))
        assert da.sum() == pytest.approx(b.array.sum())
        np.testing.assert_allclose(db, broadcast.reshape(2, 3))


def test_arrays_and_numbers_are_taken_on_both_sides() -> None:
    x = Variable([1.0, 2.0])
    y = 9.0 - (np.array([3.0, 4.0]) * x + 2 * x + 1.0)
    assert list(y.array) == [3.0, -4.0]
    [dx] = gradients(y.tanh().sum(), [x])
    np.testing.assert_allclose(dx, (np.tanh(y.array) ** 2 - 1) * [5.0, 6.0])


def test_a_long_tape_and_an_unused_variable() -> None:
    x, unused = Variable(1.0), Variable([1, 2])
    y = x
    for _ in range(5000):
        y = y + x
    [dx, nothing] = gradients(y, [x, unused])
    assert dx == 5001
    assert list(nothing) == [0.0, 0.0]


def test_errors_name_what_is_wrong() -> None:
    x = Variable([1.0, 2.0])
    with pytest.raises(GradientError, match=r"shape \(2,\), expected one number") as error:
        gradients(x * x, [x])
    assert error.value.code == "MDLC1287"
    with pytest.raises(GradientError, match="matrices only") as error:
        x @ x
    assert error.value.code == "MDLC1288"
    with pytest.raises(OptionError, match="expected Variable"):
        gradients(x.sum(), [x.array])  # pyright: ignore[reportArgumentType]


def test_it_is_sixty_lines_of_code() -> None:
    tree = ast.parse(inspect.getsource(tape))
    for part in ast.walk(tree):
        body = getattr(part, "body", None)
        if isinstance(body, list) and body and isinstance(part, (ast.Module, ast.FunctionDef)):
            first = body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                body[:1] = [] if len(body) > 1 else [ast.Pass()]
    tree.body = [part for part in tree.body if not isinstance(part, (ast.Import, ast.ImportFrom))]
    lines = [line for line in ast.unparse(tree).splitlines() if line.strip()]
    assert len(lines) <= 60
