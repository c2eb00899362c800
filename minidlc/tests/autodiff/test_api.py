"""grad, value_and_grad, jvp, hvp, custom_gradient, promote: what they give, what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import Graph, Input, apply, interpret
from minidlc.graph.graph import Constant
from minidlc.support.errors import CompileError, GradientError, OptionError

pytestmark = pytest.mark.ch03

MLP = """
def mlp(x: f64[4, 3], w: f64[3, 2], b: f64[2], target: i64[4]):
    h: f64[4, 2] = matmul(x, w)
    z: f64[4, 2] = add(h, b)
    loss: f64[()] = sum(z, keepdims=False)
    return loss
"""
X = np.array([0.5, -1.0, 2.0])


def types(values: Sequence[Any]) -> list[str]:
    return [str(v.type) for v in values]


def run(graph: Graph, *inputs: Any) -> list[Any]:
    return interpret(graph, [np.asarray(x) for x in inputs])


def cubes(x: Any) -> Any:
    return (x * x * x).sum()


# ------------------------------------------------------------------------------ inputs and outputs


def test_one_output_for_each_input_of_real_numbers() -> None:
    graph = mc.grad(mc.parse(MLP))
    assert [i.name for i in graph.inputs] == ["x", "w", "b", "target"]
    assert types(graph.outputs) == ["f64[4, 3]", "f64[3, 2]", "f64[2]"]
    assert graph.name == "mlp_grad"


def test_wrt_chooses_and_orders() -> None:
    assert types(mc.grad(mc.parse(MLP), ["b", "x"]).outputs) == ["f64[2]", "f64[4, 3]"]
    assert types(mc.grad(mc.parse(MLP), "w").outputs) == ["f64[3, 2]"]
    assert types(mc.value_and_grad(mc.parse(MLP), "b").outputs) == ["f64[()]", "f64[2]"]


def test_gradients_are_called_d_and_the_name_of_the_input() -> None:
    text = str(mc.grad(mc.parse(MLP), ["w"]))
    assert "    dw: f64[3, 2] = matmul(" in text
    assert text.rstrip().endswith("return dw")


def test_an_unused_input_has_zeros_of_its_type() -> None:
    graph = mc.trace(lambda x, y, z: (x.sum(), z), mc.f32[2], mc.f64[2, 3], mc.f16[()])
    dx, dy, dz = run(
        mc.grad(graph),
        *(np.ones(s, t) for s, t in ((2, "f4"), ((2, 3), "f8"), ((), "f2"))),
        np.float32(1),
        np.float16(3),
    )
    np.testing.assert_array_equal(dx, np.ones(2, np.float32))
    np.testing.assert_array_equal(dy, np.zeros((2, 3)))
    assert (dy.dtype, dz.dtype, dz) == (np.float64, np.float16, 3)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_loss_of_one_element_has_any_rank(shape: tuple[int, ...]) -> None:
    graph = mc.trace(lambda x: cubes(x).reshape(*shape) if shape else cubes(x), mc.f64[3])
    [dx] = run(mc.grad(graph), X)
    np.testing.assert_allclose(dx, 3 * X**2)


def test_another_output_asks_for_dy() -> None:
    graph = mc.grad(mc.trace(lambda x: x * x, mc.f64[3]))
    assert [(i.name, str(i.type)) for i in graph.inputs] == [("x", "f64[3]"), ("dy", "f64[3]")]
    np.testing.assert_allclose(run(graph, X, [1.0, 10, 100])[0], 2 * X * [1, 10, 100])


def test_several_outputs_ask_for_one_each() -> None:
    text = """
def f(x: f64[3], dy: f64[3]):
    a: f64[3] = mul(x, dy)
    b: i64[3] = cast(x, to=i64)
    c: f64[3] = exp(x)
    return a, b, c
"""
    graph = mc.grad(mc.parse(text), "x")
    assert [i.name for i in graph.inputs] == ["x", "dy", "da", "dc"]
    [dx] = run(graph, X, [1.0, 2, 3], [1.0, 1, 1], [0.0, 1, 0])
    np.testing.assert_allclose(dx, [1, 2 + np.exp(-1), 3])


def test_the_name_dy_may_be_taken() -> None:
    graph = mc.grad(mc.parse("def f(dy: f64[3]):\n    y: f64[3] = exp(dy)\n    return y\n"))
    assert [i.name for i in graph.inputs] == ["dy", "dy_1"]


def test_an_output_that_is_an_input_or_stands_twice() -> None:
    graph = mc.trace(lambda x: (x, x, x * x), mc.f64[3])
    [dx] = run(mc.grad(graph), X, *np.eye(3))
    np.testing.assert_allclose(dx, [1, 1, 2 * X[2]])


def test_results_of_one_node_that_nobody_reads() -> None:
    graph = mc.trace(lambda x: mc.topk(x, k=2)[0].sum(), mc.f64[3])
    np.testing.assert_array_equal(run(mc.grad(graph), X)[0], [1, 0, 1])


def test_a_value_read_twice_is_due_both() -> None:
    graph = mc.trace(lambda x, y: (x * y + x).sum(), mc.f64[3], mc.f64[3])
    dx, dy = run(mc.grad(graph), X, 2 * X)
    np.testing.assert_allclose(dx, 2 * X + 1)
    np.testing.assert_allclose(dy, X)


def test_nodes_of_the_gradient_say_of_what_they_are() -> None:
    graph = mc.grad(mc.parse(MLP), "w")
    assert "gradient" in str(graph.outputs[0].loc)


# ---------------------------------------------------------------------- forward mode, higher orders


def test_forward_mode_gives_the_outputs_and_how_they_move() -> None:
    graph = mc.jvp(mc.trace(lambda x, y: (x * y, mc.arg_max(x)), mc.f64[3], mc.f64[3]), ["y"])
    assert [i.name for i in graph.inputs][2:] == ["dy"]
    product, place, moved = run(graph, X, 2 * X, [1.0, 0, 1])
    np.testing.assert_allclose(product, 2 * X * X)
    np.testing.assert_allclose(moved, [X[0], 0, X[2]])
    assert place == [2]


def test_an_output_that_does_not_move_has_zeros() -> None:
    graph = mc.jvp(mc.trace(lambda x, y: (x.sum(), y), mc.f64[3], mc.f32[2]), "x")
    assert types(graph.outputs) == ["f64[()]", "f32[2]", "f64[()]", "f32[2]"]
    assert not run(graph, X, np.ones(2, np.float32), X)[3].any()


def test_the_hessian_times_a_vector() -> None:
    def loss(x: Any, y: Any) -> Any:
        return (x * x * y).sum() + mc.exp(y).sum()

    graph = mc.hvp(mc.trace(loss, mc.f64[3], mc.f64[3]), ["x", "y"])
    y, v, u = 2 * X, np.array([1.0, 2, 3]), np.array([-1.0, 0, 1])
    hx, hy = run(graph, X, y, v, u)
    np.testing.assert_allclose(hx, 2 * y * v + 2 * X * u)
    np.testing.assert_allclose(hy, 2 * X * v + np.exp(y) * u)


def test_the_gradient_three_times() -> None:
    graph = mc.trace(lambda x: mc.sin(x * x), mc.f64[()])
    for wanted in (
        lambda x: 2 * x * np.cos(x * x),
        lambda x: 2 * np.cos(x * x) - 4 * x**2 * np.sin(x * x),
        lambda x: -12 * x * np.sin(x * x) - 8 * x**3 * np.cos(x * x),
    ):
        graph = mc.grad(graph, "x")
        np.testing.assert_allclose(run(graph, 0.7)[0], wanted(0.7), rtol=1e-12)


def test_forward_over_forward_is_forward_over_reverse() -> None:
    graph = mc.trace(lambda x: (mc.softmax(x * x, axis=0) * x).sum() * x.sum(), mc.f64[3])
    v, u = np.array([1.0, 2, 3]), np.array([0.5, -1.0, 0])
    twice = mc.jvp(mc.jvp(graph, "x"), "x")
    [product] = run(mc.hvp(graph, "x"), X, v)
    np.testing.assert_allclose(run(twice, X, v, u)[-1], product @ u, rtol=1e-10)


# ------------------------------------------------------------------- stop_gradient, custom_gradient


def test_stop_gradient_is_a_constant_to_both_modes() -> None:
    graph = mc.trace(lambda x: (x * mc.stop_gradient(x * x)).sum(), mc.f64[3])
    np.testing.assert_allclose(run(mc.grad(graph), X)[0], X * X)
    np.testing.assert_allclose(run(mc.jvp(graph), X, np.ones(3))[1], (X * X).sum())


def test_a_custom_gradient_is_taken_as_said() -> None:
    @mc.custom_gradient
    def rounded(x: Any) -> Any:
        return mc.round(x), lambda dy: dy * 2.0

    graph = mc.trace(lambda x: (rounded(x) * x).sum(), mc.f64[3])
    np.testing.assert_array_equal(run(graph, X)[0], (np.round(X) * X).sum())
    np.testing.assert_allclose(run(mc.grad(graph), X)[0], 2 * X + np.round(X))
    np.testing.assert_allclose(run(mc.jvp(graph), X, X)[1], (2 * X + np.round(X)) @ X)


def test_a_custom_gradient_of_several_tensors_and_results() -> None:
    @mc.custom_gradient
    def scaled(x: Any, factor: float, *, by: Any) -> Any:
        product = x * by

        def gradient(dy: Any, dz: Any) -> Any:
            return dy * by * factor, None

        return (product, product + 1.0), gradient

    def loss(x: Any, y: Any) -> Any:
        a, b = scaled(x, 3.0, by=y)
        return a.sum() + (b * b).sum()

    dx, dy = run(mc.grad(mc.trace(loss, mc.f64[3], mc.f64[3])), X, 2 * X)
    np.testing.assert_allclose(dx, 6 * X)
    assert not dy.any()


def test_a_custom_gradient_on_arrays_runs_the_function() -> None:
    @mc.custom_gradient
    def rounded(x: Any) -> Any:
        return mc.round(x), lambda dy: dy

    with mc.eager():
        np.testing.assert_array_equal(np.asarray(rounded(X)), np.round(X))


def refusal(call: Callable[[], object], kind: type[CompileError] = GradientError) -> CompileError:
    """The error of a call, which must say what to do."""
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("function", "code", "text"),
    [
        (lambda x: x, "MDLC1210", "returned"),
        (lambda x: (x, 1), "MDLC1210", "returned"),
        (lambda x: ("x", lambda dy: dy), "MDLC1210", "as a result"),
        (lambda x: (x, lambda dy: (dy, dy)), "MDLC1204", "2 values for 1 tensors"),
        (lambda x: (x, lambda dy: dy.sum()), "MDLC1204", "returns f64[()] for x: f64[3]"),
        (lambda x: (x, lambda dy: "dy"), "MDLC1204", "returns 'dy' for x: f64[3]"),
        (lambda x: (x * OUTSIDE, lambda dy: dy), "MDLC1211", "reads y, which is no argument"),
        (lambda x: (x, lambda dy: dy * OUTSIDE), "MDLC1211", "reads y, which is no argument"),
    ],
)
def test_a_custom_gradient_that_does_not_fit(function: Any, code: str, text: str) -> None:
    call = mc.custom_gradient(function)
    error = refusal(lambda: call(Input("x", mc.f64[3])))
    assert error.code == code
    assert text in error.message
    assert __file__ in str(error)


OUTSIDE = Input("y", mc.f64[3])


# ----------------------------------------------------------------------------------------- refusals


def refused(text: str, wrt: Any = None) -> CompileError:
    return refusal(lambda: mc.grad(mc.parse(text), wrt))


def test_integers_are_refused_by_name() -> None:
    error = refused(MLP, ["w", "target"])
    assert (error.code, "'target' is i64[4]" in error.message) == ("MDLC1202", True)


@pytest.mark.parametrize(("wrt", "text"), [("W", "no input 'W'"), (["b", "b"], "'b' stands twice")])
def test_names_that_are_not_there_or_twice(wrt: Any, text: str) -> None:
    with pytest.raises(GradientError, match=text) as caught:
        mc.grad(mc.parse(MLP), wrt)
    assert caught.value.code == "MDLC1203"


@pytest.mark.parametrize("wrt", [[], ()])
@pytest.mark.parametrize("call", [mc.grad, mc.value_and_grad, mc.jvp, mc.hvp])
def test_no_names_at_all(call: Callable[..., Any], wrt: Any) -> None:
    error = refusal(lambda: call(mc.parse(MLP), wrt))
    assert (error.code, "wrt names no input" in error.message) == ("MDLC1203", True)


def test_no_input_of_real_numbers() -> None:
    error = refused("def f(x: i64[3]):\n    y: f64[3] = cast(x, to=f64)\n    return y\n")
    assert (error.code, "no input of real numbers" in error.message) == ("MDLC1203", True)


def test_no_output_of_real_numbers() -> None:
    error = refused("def f(x: f64[3]):\n    y: i64[1] = arg_max(x)\n    return y\n")
    assert (error.code, "i64[1]" in error.message) == ("MDLC1207", True)


def test_sizes_that_are_symbols() -> None:
    error = refused('def f(x: f64["n"]):\n    y: f64["n"] = exp(x)\n    return y\n')
    assert (error.code, "sizes that are not known: n" in error.message) == ("MDLC1205", True)


def test_an_op_without_a_gradient_is_named_with_its_place() -> None:
    error = refused("def f(x: f32[3]):\n    y: f32[3] = bit_cast(x, to=f32)\n    return y\n")
    assert error.code == "MDLC1201"
    assert str(error.loc).endswith("2:17")


@pytest.mark.parametrize("thing", [None, "def f(): …", lambda x: x])
@pytest.mark.parametrize("call", [mc.grad, mc.value_and_grad, mc.jvp, mc.hvp])
def test_what_is_no_graph(call: Callable[..., Any], thing: Any) -> None:
    assert refusal(lambda: call(thing), CompileError).code.startswith("MDLC10")


@pytest.mark.parametrize("wrt", [3, {"x": 1}, lambda: 0])
def test_what_is_no_name(wrt: Any) -> None:
    assert refusal(lambda: mc.grad(mc.parse(MLP), wrt), CompileError).code.startswith("MDLC10")


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (lambda _op, _y, dy: (dy, dy), "has 2 values for 1 inputs"),
        (lambda _op, _y, _dy: (), "has 0 values for 1 inputs"),
        (lambda _op, _y, dy: (dy.sum(),), "gives f64[()] for input 0, which is f64[3]"),
    ],
)
def test_a_rule_that_does_not_fit(rule: Any, text: str) -> None:
    graph = mc.trace(lambda x: mc.exp(x), mc.f64[3])
    with mc.use(**{"gradient.exp": rule}):
        error = refusal(lambda: mc.grad(graph))
    assert (error.code, text in error.message) == ("MDLC1204", True)


def test_a_rule_of_ones_own_is_used_in_both_modes() -> None:
    graph = mc.trace(lambda x: mc.softmax(x, axis=0).sum(), mc.f64[3])
    with mc.use(**{"gradient.softmax": lambda _op, _y, dy: (dy * 7.0,)}):
        np.testing.assert_array_equal(run(mc.grad(graph), X)[0], np.full(3, 7.0))
        np.testing.assert_allclose(run(mc.jvp(graph), X, X)[1], 7 * X.sum())
    assert not np.allclose(run(mc.grad(graph), X)[0], 7)


# ----------------------------------------------------------------------------------------- promote


def constants(*names: str) -> Graph:
    x = Input("x", mc.f64[3])
    y: Any = x
    for n, name in enumerate(names):
        y = apply("mul", y, Constant(name, np.full(3, n + 2.0)))
    return Graph.of("f", [x], [apply("sum", y, keepdims=False)])


def test_a_promoted_constant_has_a_gradient() -> None:
    graph = constants("w", "b").promote(["b"])
    assert [i.name for i in graph.inputs] == ["x", "b"]
    np.testing.assert_allclose(run(mc.grad(graph, "b"), X, np.full(3, 3.0))[0], 2 * X)


@pytest.mark.parametrize(
    ("names", "asked", "text"),
    [
        (("w",), ["b"], "no constant 'b'"),
        (("w", "w"), ["w"], "2 constants of f are named 'w'"),
        (("w",), ["w", "w"], "'w' stands twice"),
        (("x",), ["x"], "has an input 'x' already"),
    ],
)
def test_what_cannot_be_promoted(names: Any, asked: Any, text: str) -> None:
    with pytest.raises(OptionError) as caught:
        constants(*names).promote(asked)
    assert (caught.value.code, text in caught.value.message) == ("MDLC1050", True)


def test_a_constant_without_a_name_is_called_as_it_is_printed() -> None:
    graph = mc.trace(lambda x: x * 2.0 * 3.0 + 1.0, mc.f64[3]).promote(["c_2", "c_1"])
    assert [i.name for i in graph.inputs] == ["x", "c_2", "c_1"]
    np.testing.assert_array_equal(run(graph, X, 10.0, 5.0)[0], X * 10 + 10)
    with pytest.raises(OptionError) as caught:
        mc.trace(lambda x: x * 2.0 * 3.0 + 1.0, mc.f64[3]).promote(["c"])
    assert "print(g) calls the others c_1, c_2" in str(caught.value.hint)


def test_det_of_a_large_matrix_is_refused() -> None:
    graph = mc.trace(lambda x: mc.det(x), mc.f64[65, 65])
    error = refusal(lambda: mc.grad(graph))
    assert (error.code, "65**4 numbers" in error.message) == ("MDLC1220", True)
