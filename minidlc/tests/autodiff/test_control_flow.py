"""Gradients of branches and loops: differences, second derivatives, what is kept and refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc.autodiff.numeric import numeric_gradient
from minidlc.expr.types import bool_, f32, f64, i64
from minidlc.graph import Constant, Graph, Input, Node, Value, apply, build, getitem
from minidlc.graph.graph import bodies
from minidlc.ops.control_flow import Loop
from minidlc.ops.scan_loop import Scan
from minidlc.support.errors import GradientError

pytestmark = pytest.mark.ch03

RUN, C = Input("i", i64[()]), Input("c", bool_[()])
T = Constant("t", np.array(True))


def body(inputs: Sequence[Input], *outputs: Value, go: Value = C) -> Graph:
    return Graph.of("step", [RUN, C, *inputs], [go, *outputs])


def loop(given: Sequence[Value], step: Graph, **attributes: Any) -> Node:
    return apply("loop", None, None, *given, body=step, **attributes)


def total(*values: Value) -> Value:
    """A loss that depends on every element of each value in its own way."""
    parts = []
    for n, v in enumerate(values):
        weights = np.random.default_rng(n).uniform(0.5, 1.5, v.shape)
        parts.append(apply("sum", v * Constant("w", weights.astype(v.dtype.numpy)), keepdims=False))
    loss = parts[0]
    for part in parts[1:]:
        loss = loss + part
    return loss


def numbers(g: Graph, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {i.name: rng.uniform(0.2, 0.9, i.type.dims).astype(i.type.dtype.numpy) for i in g.inputs}


def agrees(g: Graph, given: dict[str, Any] | None = None) -> list[Any]:
    """The gradient, and the gradient of the gradient, are the differences of what they are of."""
    given = given or numbers(g)
    first = mc.grad(g)
    found = mc.interpret(first, given)
    close(found, numeric_gradient(g, given))
    twice = Graph.of("twice", first.inputs, [total(*first.outputs)])
    close(mc.interpret(mc.grad(twice), given), numeric_gradient(twice, given))
    return found


def close(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7)


def loops_in(g: Graph) -> list[Loop]:
    return [n.op for n in g.nodes if isinstance(n.op, Loop)]


# --- branches ---


def choice(element: mc.DType = f64) -> Graph:
    """x * x * y where c, else sin(x): y is used by one branch only; two results."""
    c, x, y = Input("c", bool_[()]), Input("x", element[3]), Input("y", element[3])
    yes = Graph.of("yes", [x, y], [x * x * y, x])
    no = Graph.of("no", [x, y], [apply("sin", x), apply("exp", x)])
    node = apply("if_", c, x, y, then_branch=yes, else_branch=no)
    return Graph.of("f", [c, x, y], [total(getitem(node, 0), getitem(node, 1) * x)])


@pytest.mark.parametrize("way", [True, False])
def test_a_branch_becomes_its_gradient(way: bool) -> None:
    g = choice()
    given = numbers(g) | {"c": np.array(way)}
    _, dy = agrees(g, given)
    assert dy.any() == way  # the other branch does not read y: zeros


def test_the_branch_that_does_not_run_adds_nothing_not_even_nan() -> None:
    x = Input("x", f64[()])
    positive = apply("greater", x, 0.0)
    yes, no = Graph.of("yes", [x], [apply("sqrt", x)]), Graph.of("no", [x], [x * 3.0])
    g = Graph.of("f", [x], [apply("if_", positive, x, then_branch=yes, else_branch=no)])
    (dx,) = mc.interpret(mc.grad(g), [np.array(-1.0)])
    assert dx == 3.0


def test_branches_that_use_nothing_of_real_numbers_have_no_gradient() -> None:
    x, c = Input("x", f64[2]), Input("c", bool_[()])
    one = Graph.of("one", [x], [Constant("one", np.ones(2))])
    g = Graph.of("f", [x, c], [total(apply("if_", c, x, then_branch=one, else_branch=one))])
    (dx,) = mc.interpret(mc.grad(g, ["x"]), [np.ones(2), np.array(True)])
    assert not dx.any()


# --- loops ---


def rnn(steps: int, element: mc.DType = f64, *, stacked: bool = True) -> Graph:
    """h = tanh(h @ u + x[t] @ w + b), every h kept or only the last."""
    h, x = Input("h", element[2, 3]), Input("x", element[2, 4])
    u, w, b = Input("u", element[3, 3]), Input("w", element[4, 3]), Input("b", element[3])
    new = apply("tanh", h @ u + x @ w + b)
    step = body([h, x, u, w, b], new, *([new] if stacked else []))
    xs = Input("xs", element[steps, 2, 4])
    node = loop([h, xs, u, w, b], step, carried=1, scanned=1, trips=steps)
    results = [getitem(node, 0), getitem(node, 1)] if stacked else [node]
    return Graph.of("rnn", [h, xs, u, w, b], [total(*results)])


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize("steps", [3, 1, 0])
def test_a_recurrent_net_backwards_in_time(steps: int, stacked: bool) -> None:
    agrees(rnn(steps, stacked=stacked))


@pytest.mark.parametrize("stacked", [True, False])
def test_the_loop_forward_runs_once_and_keeps_what_is_read(stacked: bool) -> None:
    g = mc.value_and_grad(rnn(3, stacked=stacked))
    forward, backward = loops_in(g)
    kept = len(forward.body.outputs) - 2 - stacked  # besides c, the state and its stack
    assert kept == (1 if stacked else 2)  # h before a run, for u; behind it, for tanh
    assert backward.body.name == "step_gradient"


def test_a_scan_runs_once_too_and_results_keep_their_names() -> None:
    h, x = Input("h", f64[3]), Input("x", f64[3])
    new = apply("exp", h * x)
    cell = Graph.of("cell", [h, x], [new, new])
    node = apply("scan", h, Input("xs", f64[3, 4]), body=cell, states=1, input_axes=(1,))
    last, rows = (
        replace(getitem(node, n), name=name) for n, name in enumerate(("last", "rows"))
    )  # fmt: skip
    g = mc.value_and_grad(Graph.of("f", [h, node.inputs[1]], [last, rows]))
    assert [o.name for o in g.outputs] == ["last", "rows", "dh", "dxs"]
    assert len(loops_in(g)) == 2
    assert not any(n.op.name == "scan" for n in g.nodes)
    row = Input("x", f64[()])
    alone = Graph.of("cell", [row], [apply("exp", row)])
    y = build(Scan(alone), [Input("xs", f64[3])], name="y")
    assert mc.value_and_grad(Graph.of("f", [y.inputs[0]], [y])).outputs[0].name == "y"


def test_constants_get_no_gradient_and_cost_nothing() -> None:
    x, w = Input("x", f64[3]), Input("w", f64[3])
    step = body([x, w], apply("sin", x * w))
    node = loop([x, Constant("w", np.ones(3))], step, carried=1, trips=4)
    backward = loops_in(mc.grad(Graph.of("f", [x], [total(node)])))[-1]
    assert backward.carried == 1  # dx, and no sum for w


def test_a_loop_computes_only_the_gradients_that_are_asked_for() -> None:
    backward = loops_in(mc.grad(rnn(3), ["u"]))[-1]
    assert backward.carried == 2  # dh, and the sum for u
    assert len(backward.body.outputs) == 3  # with c: no row of dxs
    forward, tangents = loops_in(mc.jvp(rnn(3)))
    assert (forward.trips, tangents.trips) == (3, 3)


def test_a_state_that_the_loss_does_not_see_is_not_differentiated() -> None:
    x, seen, bits = Input("x", f64[3]), Input("s", f64[3]), Input("b", f64[3])
    rounded = apply("bit_cast", apply("bit_cast", bits, to="i64"), to="f64")  # has no gradient
    step = body([seen, bits, x], seen * x, rounded)
    node = loop([x, x, x], step, carried=2, trips=3)
    agrees(Graph.of("f", [x], [total(getitem(node, 0))]))


def test_states_change_places_and_integers_count() -> None:
    a, b, w, n = Input("a", f64[2]), Input("b", f64[2]), Input("w", f64[2]), Input("n", i64[()])
    number = apply("cast", n + RUN, to="f64")
    step = body([a, b, n, w], apply("sin", b) * number, a * w, n + 2, b, n)
    given = [a, b, Constant("n", np.array(1)), w]
    node = loop(given, step, carried=3, trips=4)
    results = [getitem(node, k) for k in (0, 1, 3)]
    agrees(Graph.of("f", [a, b, w], [total(*results)]))


def test_the_number_of_the_run_is_the_one_of_the_run_forward() -> None:
    x = Input("x", f64[()])
    power = apply("cast", RUN + 1, to="f64")
    g = Graph.of("f", [x], [loop([x], body([x], x * power), carried=1, trips=5)])
    (dx,) = agrees(g, {"x": np.array(0.5)})
    assert dx == 120.0


def test_scanned_rows_get_their_own_gradient_and_captures_the_sum() -> None:
    s, x, w = Input("s", f64[()]), Input("x", f64[()]), Input("w", f64[()])
    xs = Input("xs", f64[4])
    node = loop([s, xs, w], body([s, x, w], s + x * w), carried=1, scanned=1, trips=4)
    g = Graph.of("f", [s, xs, w], [node])
    given = {"s": np.array(1.0), "xs": np.array([1.0, 2.0, 3.0, 4.0]), "w": np.array(0.5)}
    ds, dxs, dw = agrees(g, given)
    assert (ds, dw) == (1.0, 10.0)
    np.testing.assert_array_equal(dxs, np.full(4, 0.5))


def test_only_stacked_results_and_no_state() -> None:
    w, row = Input("w", f64[2]), Input("x", f64[2])
    xs = Input("xs", f64[3, 2])
    node = loop([xs, w], body([row, w], apply("exp", row * w)), scanned=1, trips=3)
    agrees(Graph.of("f", [xs, w], [total(node)]))


def test_a_constant_number_of_runs_is_as_good_as_trips() -> None:
    x = Input("x", f64[3])
    step = body([x], apply("sin", x), go=Constant("f", np.array(False)))  # n decides, not the body
    for runs in (3, 0, -2):
        node = apply("loop", Constant("n", np.array(runs)), None, x, body=step, carried=1)
        agrees(Graph.of("f", [x], [total(node)]))


def newton(most: int | None, element: mc.DType = f64) -> Graph:
    """The root of a by Newton's method: at most so many steps, fewer if it is near enough."""
    a, x = Input("a", element[()]), Input("x", element[()])
    better = (x + a / x) * 0.5
    far = apply("greater", apply("abs", better * better - a), 0.1)
    step = body([x, a], better, go=far)
    limit = None if most is None else Constant("n", np.array(most))
    node = apply("loop", limit, T, a, a, body=step, carried=1)
    return Graph.of("root", [a], [node])


@pytest.mark.parametrize(("a", "runs"), [(1.2, 1), (3.0, 2), (30.0, 5), (1e4, 9)])
def test_a_loop_that_ends_early_has_the_gradient_of_the_runs_it_made(a: float, runs: int) -> None:
    x = Input("x", f64[()])
    step = newton(9).nodes[-1].op.body
    fixed = loop([x, x], body(step.inputs[2:], *step.outputs[1:]), carried=1, trips=runs)
    (wanted,) = mc.interpret(mc.grad(Graph.of("f", [x], [fixed])), [np.array(a)])
    (found,) = agrees(newton(9), {"a": np.array(a)})
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


def test_a_loop_whose_condition_is_false_at_once() -> None:
    a = Input("a", f64[()])
    node = newton(9).nodes[-1]
    never = apply("loop", node.inputs[0], np.array(False), a, a, body=node.op.body, carried=1)
    (da,) = mc.interpret(mc.grad(Graph.of("f", [a], [never])), [np.array(3.0)])
    assert da == 1.0


def refused(g: Graph, text: str, **options: Any) -> None:
    with pytest.raises(GradientError, match=text) as caught:
        mc.grad(g, **options)
    assert caught.value.code == "MDLC1206"
    assert "trips=" in str(caught.value.hint)


def test_a_loop_that_only_data_end_is_refused_by_name() -> None:
    refused(newton(None), "loop: how often the loop runs is decided by its condition")
    refused(newton(1 << 40), "decided by its condition")
    x, n = Input("x", f64[()]), Input("n", i64[()])
    node = apply("loop", n, None, x, body=body([x], x * 2.0), carried=1)
    refused(Graph.of("f", [x, n], [node]), "decided by an input", wrt="x")


# --- one in another ---


def test_a_loop_in_a_loop() -> None:
    x, w = Input("x", f64[2]), Input("w", f64[2])
    inner = loop([x, w], body([x, w], apply("sin", x * w)), carried=1, trips=2)
    outer = loop([x, w], body([x, w], inner + x, inner), carried=1, trips=3)
    agrees(Graph.of("f", [x, w], [total(getitem(outer, 0), getitem(outer, 1))]))


def test_an_if_in_a_loop() -> None:
    x, w = Input("x", f64[()]), Input("w", f64[()])
    yes, no = Graph.of("yes", [x, w], [x * w]), Graph.of("no", [x, w], [apply("exp", x)])
    odd = apply("equal", apply("mod", RUN, 2), 1)
    new = apply("if_", odd, x, w, then_branch=yes, else_branch=no)
    node = loop([x, w], body([x, w], new, x), carried=1, trips=3)
    agrees(Graph.of("f", [x, w], [total(getitem(node, 0), getitem(node, 1))]))


@pytest.mark.parametrize("way", [True, False])
def test_a_loop_in_an_if(way: bool) -> None:
    c, x = Input("c", bool_[()]), Input("x", f64[2])
    yes = Graph.of("yes", [x], [loop([x], body([x], apply("sin", x)), carried=1, trips=3)])
    no = Graph.of("no", [x], [x * x])
    node = apply("if_", c, x, then_branch=yes, else_branch=no)
    g = Graph.of("f", [c, x], [total(node)])
    agrees(g, {"c": np.array(way), "x": np.array([0.3, 0.8])})


def test_forward_mode_through_a_loop_is_the_transpose() -> None:
    g = rnn(3)
    given = numbers(g)
    dxs = {f"d{name}": np.cos(a) for name, a in given.items()}
    moved = mc.interpret(mc.jvp(g), given | dxs)[1]
    pulled = mc.interpret(mc.grad(g), given)
    wanted = sum(float(np.sum(a * b)) for a, b in zip(pulled, dxs.values(), strict=True))
    np.testing.assert_allclose(moved, wanted, rtol=1e-12)


def test_the_gradient_of_a_loop_prints_and_reads_back() -> None:
    g = mc.value_and_grad(rnn(3))
    assert mc.parse(str(g)) == g
    assert "step_gradient" in str(g)


# --- scan ---


def lstm(steps: int, element: mc.DType = f32) -> Graph:
    """A long short-term memory by scan: two states, the gates side by side in one product."""
    h, c, x = (Input(n, element[s]) for n, s in (("h", (2, 3)), ("c", (2, 3)), ("x", (2, 4))))
    w, u = Input("w", element[4, 12]), Input("u", element[3, 12])
    gates = x @ w + h @ u
    i, f, o, g = (
        apply("slice", gates, starts=(3 * k,), ends=(3 * k + 3,), axes=(1,)) for k in range(4)
    )
    new_c = apply("sigmoid", f) * c + apply("sigmoid", i) * apply("tanh", g)
    new_h = apply("sigmoid", o) * apply("tanh", new_c)
    cell = Graph.of("cell", [h, c, x, w, u], [new_h, new_c, new_h])
    xs = Input("xs", element[2, steps, 4])
    node = apply("scan", h, c, xs, w, u, body=cell, states=2, scanned=1, input_axes=(1,))
    results = [getitem(node, n) for n in range(3)]
    return Graph.of("lstm", [h, c, xs, w, u], [total(*results)])


def test_a_scan_is_differentiated_through_its_loop() -> None:
    agrees(lstm(3, f64))


# --- machine code ---


@pytest.mark.llvm
@pytest.mark.parametrize(
    "g",
    [rnn(4, f32), rnn(3, f32, stacked=False), rnn(0, f32), lstm(3), newton(9, f32)],
    ids=["rnn", "last", "no step", "lstm", "early end"],
)
def test_compiled_gradients_are_the_interpreted_ones(g: Graph) -> None:
    step = mc.value_and_grad(g)
    given = numbers(g)
    wanted = mc.interpret(step, given)
    for a, b in zip(mc.compile(step)(given), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.llvm
@pytest.mark.parametrize("way", [True, False])
def test_a_compiled_branch_of_gradients(way: bool) -> None:
    g = mc.value_and_grad(choice(f32))
    given = numbers(g) | {"c": np.array(way)}
    for a, b in zip(mc.compile(g)(given), mc.interpret(g, given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.llvm
def test_the_second_derivative_of_three_steps_compiles() -> None:
    first = mc.grad(rnn(3, f32))
    twice = mc.grad(Graph.of("twice", first.inputs, [total(*first.outputs)]))
    given = numbers(twice)
    for a, b in zip(mc.compile(twice)(given), mc.interpret(twice, given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_bodies_hold_no_second_use_of_a_name() -> None:
    for node in mc.grad(rnn(3)).nodes:
        for inner in bodies(node):
            names = [i.name for i in inner.inputs]
            assert len({*names}) == len(names)
