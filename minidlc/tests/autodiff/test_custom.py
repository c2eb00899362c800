"""stop_gradient and custom_gradient: how they are called, what they refuse, what passes leave."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import minidlc as mc
from minidlc.graph import Graph, Input, apply, interpret, parse, verify
from minidlc.graph.graph import results_of
from minidlc.support.errors import GradientError
from minidlc.tests.autodiff.test_api import refusal
from minidlc.transform import Pipeline, with_key

pytestmark = pytest.mark.ch03

V = mc.f64[3]
X = np.array([0.5, -1.0, 2.0])


def run(graph: Graph, *inputs: Any) -> list[Any]:
    return interpret(graph, [np.asarray(x) for x in inputs])


@mc.custom_gradient
def thrice(a: Any, b: Any) -> Any:
    """A product whose gradient is three times that of a product."""
    return a * b, lambda dy: (dy * b * 3.0, dy * a * 3.0)


@mc.custom_gradient
def clipped(x: Any) -> Any:
    """x, and dy between -0.1 and 0.1."""
    return x * 1.0, lambda dy: mc.clip(dy, min=-0.1, max=0.1)


# ------------------------------------------------------------------------------------ calls, names


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda x: thrice(x, x), 6 * X),
        (lambda x: thrice(x * 2.0, x * 3.0), 36 * X),
        (lambda x: thrice(x, b=x * 2.0), 12 * X),
        (lambda x: thrice(thrice(x, x), x), 3 * (X * X + X * 6 * X)),
    ],
    ids=["one tensor twice", "two of a name", "by keyword", "nested"],
)
def test_arguments_may_have_equal_names(function: Any, wanted: Any) -> None:
    graph = mc.trace(lambda x: function(x).sum(), V)
    np.testing.assert_allclose(run(mc.grad(graph), X)[0], wanted)
    assert str(parse(str(graph))) == str(graph)


def test_an_argument_may_be_named_like_a_dy() -> None:
    graph = mc.trace(lambda dmul: thrice(dmul, dmul + 1.0).sum(), V)
    np.testing.assert_allclose(run(mc.grad(graph), X)[0], 3 * (2 * X + 1))


def test_results_may_have_equal_names() -> None:
    both = mc.custom_gradient(lambda x: ((x * 2.0, x * 3.0), lambda a, b: a * 10.0 + b))
    graph = mc.trace(lambda x: both(x)[0].sum() + both(x)[1].sum() * 2.0, V)
    np.testing.assert_array_equal(run(mc.grad(graph), X)[0], np.full(3, 12.0))


class Pair(NamedTuple):
    first: Any
    second: Any


@pytest.mark.parametrize("container", [list, tuple, dict, Pair])
def test_tensors_inside_containers_are_arguments(container: Any) -> None:
    def product(things: Any, number: float) -> Any:
        a, b = things.values() if isinstance(things, dict) else things
        assert isinstance(things, container)
        return a * b * number, lambda dy: [dy * 5.0, dy * 7.0]

    def loss(a: Any, b: Any) -> Any:
        given = {list: [a, b], tuple: (a, b), dict: {"b": a, "a": b}, Pair: Pair(a, b)}
        return mc.custom_gradient(product)(given[container], 2.0).sum()

    da, db = run(mc.grad(mc.trace(loss, V, V)), X, X)
    np.testing.assert_array_equal(da, np.full(3, 5.0))
    np.testing.assert_array_equal(db, np.full(3, 7.0))


@pytest.mark.parametrize(
    ("function", "call"),
    [
        (lambda a, b: (a * b, lambda dy: (dy * 5.0, dy * 7.0)), lambda f, x, y: f(b=y, a=x)),
        (lambda a, *, b: (a * b, lambda dy: (dy * 5.0, dy * 7.0)), lambda f, x, y: f(b=y, a=x)),
        (lambda *, a, b: (a * b, lambda dy: (dy * 5.0, dy * 7.0)), lambda f, x, y: f(b=y, a=x)),
        (lambda a, n=2, b=1: (a * b, lambda dy: (dy * 5.0, dy * 7.0)), lambda f, x, y: f(x, b=y)),
    ],
    ids=["keywords", "one keyword-only", "keyword-only", "with a default"],
)
def test_gradients_are_in_the_order_of_the_parameters(function: Any, call: Any) -> None:
    f = mc.custom_gradient(function)
    dx, dy = run(mc.grad(mc.trace(lambda x, y: call(f, x, y).sum(), V, V)), X, X)
    np.testing.assert_array_equal(dx, np.full(3, 5.0))
    np.testing.assert_array_equal(dy, np.full(3, 7.0))


def test_arguments_that_do_not_fit_are_refused_by_python() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'c'"):
        mc.trace(lambda x: thrice(x, c=x), V)


@pytest.mark.parametrize("container", [list, tuple, Pair])
def test_results_keep_their_container(container: Any) -> None:
    def function(x: Any) -> Any:
        results = (x * 2.0, x * 3.0)
        return Pair(*results) if container is Pair else container(results), lambda a, b: a + b

    def loss(x: Any) -> Any:
        results = mc.custom_gradient(function)(x)
        assert type(results) is container
        return results[0].sum() + results[1].sum() * 2.0

    np.testing.assert_array_equal(run(mc.grad(mc.trace(loss, V)), X)[0], np.full(3, 3.0))


def test_results_in_a_dict_are_refused_in_a_graph_and_beside_it() -> None:
    f = mc.custom_gradient(lambda x: ({"y": x * 2.0}, lambda dy: dy))
    errors = [refusal(lambda: mc.trace(f, V))]
    with mc.eager():
        errors.append(refusal(lambda: f(mc.tensor(X))))
    assert [e.code for e in errors] == ["MDLC1210"] * 2
    assert all("a dict of" in e.message for e in errors)


def test_a_gradient_may_be_grouped_as_the_arguments_are() -> None:
    f = mc.custom_gradient(lambda x, ys: (x, lambda dy: (dy, [dy * 2.0, None])))
    graph = mc.trace(lambda x, y, z: f(x, [y, z]).sum(), V, V, V)
    assert [g[0] for g in run(mc.grad(graph), X, X, X)] == [1, 2, 0]


def test_a_container_that_holds_itself() -> None:
    endless: list[Any] = []
    endless.append(endless)
    error = refusal(lambda: clipped(endless))
    assert (error.code, "containers inside each other" in error.message) == ("MDLC1212", True)


def test_what_was_computed_outside_is_named() -> None:
    def loss(x: Any) -> Any:
        z = x * 2.0
        return mc.custom_gradient(lambda y: (y + z, lambda dy: dy))(x).sum()

    error = refusal(lambda: mc.trace(loss, V))
    assert error.code == "MDLC1211"
    assert f"reads mul, made at {__file__}" in error.message


def test_a_tensor_hidden_from_the_call_is_not_lost() -> None:
    """With no tensor among its arguments there is no node that could have a gradient."""
    holder = type("Holder", (), {})()

    def loss(x: Any) -> Any:
        holder.x = x
        return mc.custom_gradient(lambda h: (h.x * 2.0, lambda dy: dy))(holder).sum()

    assert refusal(lambda: mc.trace(loss, V)).code == "MDLC1211"


@pytest.mark.parametrize("gradient", [lambda: 0, lambda a, b: a, lambda *, dy: dy])
def test_a_gradient_of_other_parameters(gradient: Any) -> None:
    error = refusal(lambda: mc.trace(mc.custom_gradient(lambda x: (x, gradient)), V))
    assert (error.code, "has 1 result, but a gradient" in error.message) == ("MDLC1210", True)


def test_what_was_returned_is_said_in_words() -> None:
    error = refusal(lambda: mc.trace(mc.custom_gradient(lambda x: mc.round(x)), V))
    assert error.message.endswith("returned round: f64[3]")


# ---------------------------------------------------------------------------- not linear, in passes


def test_a_clipped_gradient_has_no_forward_mode() -> None:
    graph = mc.trace(lambda x: (clipped(x) * 5.0).sum(), V)
    np.testing.assert_array_equal(run(mc.grad(graph), X)[0], np.full(3, 0.1))
    error = refusal(lambda: mc.jvp(graph))
    assert (error.code, "custom_gradient" in error.message) == ("MDLC1214", True)
    assert refusal(lambda: mc.hvp(mc.trace(lambda x: (clipped(x) ** 2.0).sum(), V))).code == (
        "MDLC1214"
    )


def test_the_hessian_of_a_clipped_gradient_is_that_of_what_it_became() -> None:
    graph = mc.trace(lambda x: (clipped(x) * 5.0).sum(), V)
    assert not run(mc.hvp(graph), X, X)[0].any()


@pytest.mark.parametrize(
    "rule",
    [
        lambda dy: dy * dy,
        lambda dy: mc.tanh(dy),
        lambda dy: mc.sign(dy),
        lambda dy: mc.mod(dy, 0.3, fmod=True),
        lambda dy: dy + mc.stop_gradient(dy),
        lambda dy: mc.where(dy > 1.0, 1.0, dy),
        lambda dy: mc.cast(mc.cast(dy, to="i32"), to="f64"),
    ],
    ids=["square", "tanh", "sign", "rest", "stop_gradient", "where", "integers"],
)
def test_a_rule_that_is_not_linear(rule: Any) -> None:
    with mc.use(**{"gradient.sin": lambda _op, _y, dy: (rule(dy),)}):
        error = refusal(lambda: mc.jvp(mc.trace(lambda x: mc.sin(x), V)))
    assert error.code == "MDLC1214"


@pytest.mark.parametrize(
    "rule",
    [
        lambda x, dy: dy + 0.01 * x,
        lambda x, dy: x - dy,
        lambda x, dy: x * 1.0,
        lambda x, dy: (dy + 1.0) * x,
    ],
    ids=["a sum", "a difference", "nothing of dy", "times a sum"],
)
def test_a_gradient_with_a_part_that_does_not_follow_dy(rule: Any) -> None:
    f = mc.custom_gradient(lambda x: (mc.sin(x), lambda dy: rule(x, dy)))
    assert refusal(lambda: mc.jvp(mc.trace(f, V))).code == "MDLC1214"


@pytest.mark.parametrize(
    ("rule", "slope"),
    [
        (lambda x, dy: dy + 0.0, np.ones(3)),
        (lambda x, dy: dy * x + 0.0 * x, X),
        (lambda x, dy: None, np.zeros(3)),
        (lambda x, dy: mc.where(x > 0.0, dy + dy, 0.0), np.array([2.0, 0.0, 2.0])),
        (lambda x, dy: (x + 1.0) * dy, X + 1),
    ],
    ids=["zero", "times zero", "none", "where", "a sum of no dy"],
)
def test_what_is_zero_or_a_factor_may_stand_still(rule: Any, slope: Any) -> None:
    f = mc.custom_gradient(lambda x: (mc.sin(x), lambda dy: rule(x, dy)))
    np.testing.assert_array_equal(run(mc.jvp(mc.trace(f, V)), X, np.ones(3))[1], slope)


def test_a_loop_is_as_linear_as_its_body() -> None:
    """Its gradient carries dy next to rows that do not depend on dy, or, clipped, do."""

    def in_a_loop(function: Any) -> Graph:
        i, go = Input("i", mc.i64[()]), Input("go", mc.bool_[()])
        state = Input("s", V)
        step = Graph.of("step", [i, go, state], [go, function(state), mc.sin(state)])
        x = Input("x", V)
        node = apply("loop", None, None, x, body=step, carried=1, trips=3)
        return Graph.of("f", [x], [v.sum() for v in results_of(node)])

    graph = in_a_loop(mc.sin)
    _, _, *moved = run(mc.jvp(graph), X, np.ones(3))
    ahead, behind = (run(graph, X + h) for h in (1e-6, -1e-6))
    for found, a, b in zip(moved, ahead, behind, strict=True):
        np.testing.assert_allclose(found, (a - b) / 2e-6, rtol=1e-6)
    assert refusal(lambda: mc.jvp(in_a_loop(clipped))).code == "MDLC1214"


@pytest.mark.parametrize("opt_level", range(4))
def test_passes_keep_what_stop_gradient_says(opt_level: int) -> None:
    graph = mc.trace(lambda x: (mc.stop_gradient(mc.sin(x)) * x).sum(), V)
    optimised, _ = Pipeline.default(opt_level).run(graph)
    for g in (optimised, parse(str(optimised))):
        np.testing.assert_allclose(run(mc.grad(g), X)[0], np.sin(X), rtol=1e-12)


@pytest.mark.parametrize("opt_level", range(4))
def test_passes_do_not_lose_a_custom_gradient_in_silence(opt_level: int) -> None:
    graph = mc.trace(lambda x, y: (thrice(x, x) * y).sum(), V, V)
    optimised, _ = Pipeline.default(opt_level).run(graph)
    np.testing.assert_allclose(run(optimised, X, X)[0], run(graph, X, X)[0])
    for g in (optimised, parse(str(optimised))):
        for call in (mc.grad, mc.jvp):
            error = refusal(lambda g=g, call=call: call(g, "x"))
            assert (error.code, "after the passes" in error.message) == ("MDLC1201", True)
        np.testing.assert_allclose(run(mc.grad(g, "y"), X, X)[0], X * X)


def test_integers_of_a_custom_gradient_are_not_marked() -> None:
    f = mc.custom_gradient(lambda x: ((x, mc.arg_max(x)), lambda dy, _: dy))
    optimised, _ = Pipeline.default(0).run(mc.trace(lambda x: f(x), V))
    assert str(optimised).count("custom_result(") == 1


@pytest.mark.llvm
def test_a_copy_shares_the_kernel_of_what_reads_it() -> None:
    graph = mc.trace(lambda x: mc.stop_gradient(mc.sin(x)) * x, V)
    exe = mc.compile(graph)
    assert len(exe.kernels) == 1
    np.testing.assert_allclose(exe(X)[0], np.sin(X) * X, rtol=1e-12)


@pytest.mark.llvm
@pytest.mark.parametrize("mark", ["stop_gradient", "custom_result"])
def test_a_copy_that_a_product_reads_has_no_kernel(mark: str) -> None:
    graph = mc.trace(lambda x, w: x @ apply(mark, w), mc.f32[4, 8], mc.f32[8, 3])
    exe = mc.compile(graph)
    assert len(exe.kernels) == 1
    x, w = np.ones((4, 8), np.float32), np.arange(24, dtype=np.float32).reshape(8, 3)
    np.testing.assert_array_equal(exe(x, w)[0], x @ w)


@pytest.mark.llvm
def test_a_copy_that_is_a_result_has_bytes_of_its_own() -> None:
    exe = mc.compile(mc.trace(lambda x: (mc.stop_gradient(x), mc.stop_gradient(x) * 2.0), V))
    copied, doubled = exe(X)
    copied[:] = 0.0
    np.testing.assert_array_equal(X, [0.5, -1.0, 2.0])
    np.testing.assert_array_equal(doubled, 2 * X)


@pytest.mark.llvm
def test_a_copy_of_a_donated_input_is_read_before_it_is_written_over() -> None:
    def step(x: Any, w: Any) -> Any:
        old = mc.stop_gradient(w)
        new = w - 0.5 * (x @ w)
        return new, new @ old  # the old value is read after the new one is there

    graph = mc.trace(step, mc.f64[3, 3], mc.f64[3, 3])
    x, w = np.arange(9.0).reshape(3, 3) / 8, np.arange(9.0).reshape(3, 3)[::-1] / 4
    new, product = run(graph, x, w)
    exe = mc.compile(graph, donate={"w": graph.outputs[0].name})
    given = w.copy()
    found, last = exe(x, given)
    np.testing.assert_allclose(last, product, rtol=1e-12)
    np.testing.assert_allclose(found, new, rtol=1e-12)
    np.testing.assert_array_equal(found, given)


def test_draws_inside_a_custom_gradient_take_the_key_in_both_graphs() -> None:
    """What the gradient reads of the mask is the mask of the same call."""

    def dropped(x: Any) -> Any:
        kept, mask = mc.dropout(x, ratio=0.5, seed=3)
        return kept, lambda dy: mc.where(mask, dy * 2.0, 0.0)

    many = mc.f64[64]
    graph = with_key(mc.trace(lambda x: mc.custom_gradient(dropped)(x).sum(), many))
    verify(graph)
    gradient = mc.grad(graph, "x")
    plain = mc.grad(with_key(mc.trace(lambda x: mc.dropout(x, ratio=0.5, seed=3)[0].sum(), many)))
    x = np.ones(64)
    found = [run(gradient, x, np.array(k))[0] for k in (1, 1, 2)]
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[0], run(plain, x, np.array(1))[0])


@pytest.mark.llvm
def test_a_custom_gradient_with_dropout_in_it_is_trained() -> None:
    def dropped(x: Any) -> Any:
        kept, mask = mc.dropout(x, ratio=0.5, seed=3)
        return kept, lambda dy: mc.where(mask, dy * 2.0, 0.0)

    f = mc.custom_gradient(dropped)
    graph = mc.trace(lambda x, w: f(x * w).sum(), mc.f32[64], mc.f32[64])
    weights = {"w": np.ones(64, np.float32)}
    step = mc.compile_train_step(graph, weights, mc.train.sgd(0.25), threads=1)
    (loss,) = step(np.ones(64, np.float32))
    kept = step.params["w"] == 0.5  # 1 - 0.25 * 2
    np.testing.assert_array_equal(step.params["w"], np.where(kept, 0.5, 1.0))
    assert loss == 2.0 * kept.sum()
    assert 0 < kept.sum() < 64


def test_a_custom_result_is_refused_by_its_own_name() -> None:
    with pytest.raises(GradientError, match="custom_result has no gradient"):
        mc.grad(parse("def f(x: f64[3]):\n    y: f64[3] = custom_result(x)\n    return y\n"))


def test_copies_are_written_to_onnx_and_an_identity_read_from_it_is_none() -> None:
    graph = mc.trace(lambda x: thrice(mc.stop_gradient(x), x), V)
    optimised, _ = Pipeline.default(0).run(graph)
    read = mc.load_onnx(mc.to_onnx(optimised))
    assert [n.op.name for n in read.nodes] == ["identity", "mul", "identity"]
    np.testing.assert_allclose(run(read, X)[0], X * X)
