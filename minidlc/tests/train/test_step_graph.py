"""The graph of a training step, run by the interpreter: what each option does to the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc import f16, f32, f64, i64
from minidlc.graph import Graph
from minidlc.support.errors import GradientError, TrainError
from minidlc.train.optimizers import Sgd
from minidlc.train.step_graph import Plan, StepGraph, step_graph

pytestmark = pytest.mark.ch03

rng = np.random.default_rng(11)
X, Y = rng.standard_normal((12, 3)), rng.standard_normal((12, 2))
W, B = rng.standard_normal((3, 2)), rng.standard_normal(2)


class Run:
    """What `TrainStep` does, without machine code."""

    def __init__(self, built: StepGraph) -> None:
        self.built = built
        self.state = {v.key: v.initial for v in built.variables}

    def __call__(self, *data: np.ndarray, rate: float = 0.1) -> list[np.ndarray]:
        in_its_type = np.array(rate, self.built.rate.type.dtype.numpy)
        given = [*data, in_its_type, *self.state.values()]
        results = mc.interpret(self.built.graph, given)
        changing = [v.key for v in self.built.variables if v.changes]
        self.state |= dict(zip(changing, results[self.built.results :], strict=True))
        return list(results[: self.built.results])


def linear(rows: int, element: Any = f64) -> Graph:
    """The mean squared error of x @ w + b; the prediction is handed back too."""

    def loss(x: Any, y: Any, w: Any, b: Any) -> Any:
        prediction = x @ w + b
        return mc.train.mse(prediction, y), prediction

    return mc.trace(loss, element[rows, 3], element[rows, 2], element[3, 2], element[2])


def started(plan: Plan, rows: int = 12, element: Any = f64) -> Run:
    arrays = {"w": W.astype(element.numpy), "b": B.astype(element.numpy)}
    return Run(step_graph(linear(rows, element), arrays, plan))


def gradients(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By hand."""
    error = 2 * (x @ W + B - y) / y.size
    return x.T @ error, error.sum(0)


def test_a_step_of_gradient_descent_is_that_by_hand() -> None:
    run = started(Plan(mc.train.sgd()))
    loss, prediction = run(X, Y)
    np.testing.assert_allclose(loss, ((X @ W + B - Y) ** 2).mean(), rtol=1e-12)
    np.testing.assert_allclose(prediction, X @ W + B, rtol=1e-12)
    dw, db = gradients(X, Y)
    np.testing.assert_allclose(run.state["parameters/w"], W - 0.1 * dw, rtol=1e-14)
    np.testing.assert_allclose(run.state["parameters/b"], B - 0.1 * db, rtol=1e-14)
    assert run.state["counters/steps"] == 1


@pytest.mark.parametrize("element", ["f16", "f32"])
def test_a_loss_of_any_rank_and_element_type_is_handed_back_as_a_number(element: str) -> None:
    type = {"f16": f16, "f32": f32}[element]
    loss = mc.trace(lambda x, w: (x * w).reshape(1, 3).sum(axis=1, keepdims=True), type[3], type[3])
    assert loss.outputs[0].type == type[1, 1]
    start = np.ones(3, type.numpy)
    run = Run(step_graph(loss, {"w": start}, Plan(mc.train.sgd(), loss_scale=8.0)))
    (found,) = run(np.arange(3).astype(type.numpy), rate=1.0)
    assert (found.dtype, found.shape, found) == (np.float32, (), 3)
    np.testing.assert_array_equal(run.state["parameters/w"], [1, 0, -1])


def test_calls_that_accumulate_are_one_call_of_a_larger_batch() -> None:
    whole, parts = started(Plan(mc.train.adam())), started(Plan(mc.train.adam(), 3), rows=4)
    for _ in range(2):
        whole(X, Y)
        for n in range(3):
            assert parts.state["counters/accumulated"] == n
            parts(X[4 * n : 4 * n + 4], Y[4 * n : 4 * n + 4])
    assert parts.state["counters/steps"] == 2
    for key in ("parameters/w", "parameters/b", "m/w", "v/b"):
        np.testing.assert_allclose(parts.state[key], whole.state[key], rtol=1e-12)
    assert not parts.state["gradients/w"].any()


def test_gradients_so_far_are_kept_and_nothing_moves_before_the_last_call() -> None:
    run = started(Plan(mc.train.momentum(), 2))
    run(X, Y)
    np.testing.assert_array_equal(run.state["parameters/w"], W)
    assert not run.state["m/w"].any()
    np.testing.assert_allclose(run.state["gradients/w"], gradients(X, Y)[0] / 2, rtol=1e-12)
    assert run.state["counters/steps"] == 0


def test_gradients_are_clipped_by_the_length_of_all_of_them() -> None:
    dw, db = gradients(X, Y)
    length = np.sqrt((dw**2).sum() + (db**2).sum())
    run = started(Plan(mc.train.sgd(), clip_norm=float(length) / 4))
    run(X, Y, rate=1.0)
    np.testing.assert_allclose(W - run.state["parameters/w"], dw / 4, rtol=1e-6)
    np.testing.assert_allclose(B - run.state["parameters/b"], db / 4, rtol=1e-6)
    loose, plain = started(Plan(mc.train.sgd(), clip_norm=1e3)), started(Plan(mc.train.sgd()))
    loose(X, Y)
    plain(X, Y)
    np.testing.assert_array_equal(loose.state["parameters/w"], plain.state["parameters/w"])


@pytest.mark.parametrize(("element", "size"), [(f32, 1e20), (f32, 1e38), (f64, 1e20), (f64, 1e170)])
def test_a_length_is_found_where_squares_are_infinite(element: Any, size: float) -> None:
    loss = mc.trace(lambda w: w.sum() * size, element[4])
    start = {"w": np.ones(4, element.numpy)}
    run = Run(step_graph(loss, start, Plan(mc.train.sgd(), clip_norm=0.5)))
    run(rate=1.0)
    np.testing.assert_allclose(run.state["parameters/w"], 0.75, rtol=1e-6)


def test_large_gradients_of_f64_are_no_overflow() -> None:
    loss = mc.trace(lambda w: w.sum() * 1e60, f64[4])
    rule = mc.train.DynamicScale(initial=8.0)
    run = Run(step_graph(loss, {"w": np.ones(4)}, Plan(mc.train.sgd(), loss_scale=rule)))
    run(rate=1e-60)
    np.testing.assert_allclose(run.state["parameters/w"], 0, atol=1e-12)
    assert (run.state["counters/steps"], run.state["counters/scale"]) == (1, 8)


def test_a_scale_that_the_loss_cannot_be_multiplied_by_is_refused() -> None:
    loss = mc.trace(lambda w: w.sum(), f16[4])
    start = {"w": np.ones(4, np.float16)}
    with pytest.raises(TrainError, match="and the loss is of f16") as e:
        step_graph(loss, start, Plan(mc.train.sgd(), loss_scale=1e5))
    assert e.value.code == "MDLC1254"


def test_gradients_of_zero_are_not_divided_by_their_length() -> None:
    run = started(Plan(mc.train.sgd(), clip_norm=1.0))
    run(X, X @ W + B)
    np.testing.assert_allclose(run.state["parameters/w"], W, rtol=1e-12)


def test_a_fixed_scale_is_divided_out_again() -> None:
    scaled = started(Plan(mc.train.adam(), loss_scale=4096.0))
    plain = started(Plan(mc.train.adam()))
    assert scaled(X, Y)[0] == plain(X, Y)[0]  # the loss is handed back as it is
    np.testing.assert_array_equal(scaled.state["parameters/w"], plain.state["parameters/w"])


def test_a_dynamic_scale_leaves_out_what_overflows_and_grows_back() -> None:
    rule = mc.train.DynamicScale(initial=8.0, interval=2, smallest=2.0, largest=16.0)
    run = started(Plan(mc.train.adam(), loss_scale=rule))
    bad = Y.copy()
    bad[5, 1] = np.inf
    scales = []
    for target in (bad, bad, bad, Y, Y, Y, bad, Y, Y, Y, Y, Y, Y, Y, Y):
        before = dict(run.state)
        run(X, target)
        scales.append(float(run.state["counters/scale"]))
        kept = all(
            np.array_equal(run.state[key], before[key])
            for key in ("parameters/w", "parameters/b", "m/w", "v/b", "counters/steps")
        )
        assert kept == (target is bad)
    assert scales == [4, 2, 2, 2, 4, 4, 2, 2, 4, 4, 8, 8, 16, 16, 16]
    assert run.state["counters/steps"] == 11
    assert np.isfinite(run.state["parameters/w"]).all()


def test_a_nan_anywhere_in_the_mean_leaves_out_the_update() -> None:
    rule = mc.train.DynamicScale(initial=8.0)
    run = started(Plan(mc.train.momentum(), 2, loss_scale=rule))
    bad = Y.copy()
    bad[0, 0] = np.nan
    run(X, bad)
    assert run.state["counters/scale"] == 8  # the scale stays while gradients are added
    run(X, Y)
    assert run.state["counters/scale"] == 4
    assert run.state["counters/steps"] == 0
    np.testing.assert_array_equal(run.state["parameters/w"], W)
    run(X, Y)  # nothing of the NaN is left
    run(X, Y)
    np.testing.assert_allclose(run.state["m/w"], gradients(X, Y)[0], rtol=1e-12)


def test_frozen_parameters_are_read_and_stay() -> None:
    run = started(Plan(mc.train.adam(), frozen=("w",)))
    run(X, Y)
    assert [v.key for v in run.built.variables if not v.changes] == ["parameters/w"]
    assert "m/w" not in run.state
    assert (run.state["parameters/b"] != B).all()


def test_a_parameter_that_the_loss_does_not_read_has_a_gradient_of_zero() -> None:
    loss = mc.trace(lambda x, w, unused: mc.train.mse(x, w), f32[3], f32[3], f32[2])
    arrays = {"w": np.zeros(3, np.float32), "unused": np.ones(2, np.float32)}
    run = Run(step_graph(loss, arrays, Plan(mc.train.adam())))
    run(np.ones(3, np.float32))
    np.testing.assert_array_equal(run.state["parameters/unused"], np.ones(2))
    assert (run.state["parameters/w"] > 0).all()


def dropping(seed: int) -> Run:
    def loss(x: Any, w: Any) -> Any:
        kept = mc.dropout(x * w, ratio=0.5, seed=4)[0]
        return kept.sum(), kept

    graph = mc.trace(loss, f32[64], f32[64])
    arrays = {"w": np.ones(64, np.float32)}
    return Run(step_graph(graph, arrays, Plan(mc.train.sgd(), seed=seed)))


def test_dropout_has_fresh_masks_that_the_seed_decides() -> None:
    ones = np.ones(64, np.float32)

    def masks(seed: int) -> list[np.ndarray]:
        run = dropping(seed)
        return [run(ones, rate=0.0)[1] != 0 for _ in range(3)]

    first = masks(0)
    assert all(16 < mask.sum() < 48 for mask in first)
    assert not np.array_equal(first[0], first[1])
    np.testing.assert_array_equal(first, masks(0))
    assert not np.array_equal(first, masks(1))


def test_the_gradient_sees_the_mask_of_its_own_step_and_resumes_with_the_next() -> None:
    ones = np.ones(64, np.float32)
    run = dropping(7)
    for _ in range(3):
        before = run.state["parameters/w"]
        _, kept = run(ones, rate=1.0)
        np.testing.assert_array_equal(before - run.state["parameters/w"], np.where(kept, 2, 0))
    again = dropping(7)
    again.state = dict(run.state)
    np.testing.assert_array_equal(again(ones)[1], run(ones)[1])


def test_a_parameter_is_updated_after_all_that_reads_it() -> None:
    """So the update may be written over it, and a gradient does not wait for the others."""

    def loss(x: Any, a: Any, b: Any, c: Any) -> Any:
        h = mc.relu(mc.relu(x @ a) @ b)
        return mc.train.mse(h @ c, h)

    graph = mc.trace(loss, f32[4, 8], *[f32[8, 8]] * 3)
    arrays = {name: np.zeros((8, 8), np.float32) for name in "abc"}
    built = step_graph(graph, arrays, Plan(mc.train.momentum()))
    place: dict[Any, int] = {node: n for n, node in enumerate(built.graph.nodes)}
    updated = {v.input: place[v.new] for v in built.variables if v.key.startswith("parameters")}
    for x, at in updated.items():
        turned = [n for n in built.graph.nodes if n.op.name == "transpose" and x in n.inputs]
        reads = [n for n in built.graph.nodes if {x, *turned} & set(n.inputs)]
        assert len(reads) >= 2 + len(turned)
        assert max(place[n] for n in reads) == at  # the update itself reads it last
    assert list(updated.values()) == sorted(updated.values(), reverse=True)  # c, b, a
    gradient = next(n for n in built.graph.nodes if n.name == "da")
    assert place[gradient] > sorted(updated.values())[1]  # begun when c and b are done


def test_the_graph_of_a_step_is_text_that_parses_back() -> None:
    rule = mc.train.DynamicScale()
    built = step_graph(
        linear(4, f32),
        {"w": W.astype(np.float32), "b": B.astype(np.float32)},
        Plan(mc.train.adamw(exclude=("b",)), 2, 1.0, rule),
    )
    assert mc.parse(str(built.graph)) == built.graph
    names = [i.name for i in built.graph.inputs]
    assert names[:5] == ["x", "y", "learning_rate", "w", "b"]
    assert {"w_m", "w_v", "w_gradients", "steps", "scale", "good"} <= set(names)


def test_inputs_of_integers_have_no_gradient() -> None:
    loss = mc.trace(lambda x, w: mc.train.mse(x, w.astype("f32")), f32[3], i64[3])
    with pytest.raises(GradientError) as e:
        step_graph(loss, {"w": np.zeros(3, np.int64)}, Plan(mc.train.sgd()))
    assert e.value.code == "MDLC1202"
    assert e.value.message == (
        "compile_train_step: parameter 'w' is i64[3]: no derivative by integers"
    )


class Halving(Sgd):
    """An update of another type."""

    def update(self, parameter: Any, *rest: Any) -> Any:
        return parameter.astype("f16"), {}


class Forgetful(Sgd):
    def slots(self, type: Any) -> dict[str, np.ndarray]:
        return {"m": np.zeros(type.dims, type.dtype.numpy)}


class Wordless(Sgd):
    def update(self, parameter: Any, *rest: Any) -> Any:
        return parameter


class Remembering(Sgd):
    """Any slots at all."""

    def __init__(self, found: Any) -> None:
        super().__init__()
        object.__setattr__(self, "found", found)

    def slots(self, type: Any) -> Any:
        return self.found  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (None, "Remembering.slots returned None"),
        ([np.zeros(2)], "Remembering.slots returned [array([0., 0.])]"),
        ({"parameters": np.zeros(2)}, "Remembering.slots calls a slot 'parameters'"),
        ({"gradients": np.zeros(2)}, "Remembering.slots calls a slot 'gradients'"),
        ({"counters": np.zeros(2)}, "Remembering.slots calls a slot 'counters'"),
        ({"m/b": np.zeros(2)}, "Remembering.slots calls a slot 'm/b'"),
        ({1: np.zeros(2)}, "Remembering.slots calls a slot 1"),
        ({"m": "zeros"}, "Remembering.slots gives 'zeros' for m"),
        ({"m": None}, "Remembering.slots gives None for m"),
        ({"m": [[1.0], [2.0, 3.0]]}, "Remembering.slots gives [[1.0], [2.0, 3.0]] for m"),
    ],
)
def test_slots_that_no_state_can_hold_are_refused(found: Any, text: str) -> None:
    with pytest.raises(TrainError) as e:
        started(Plan(Remembering(found), accumulate=2))
    assert e.value.code == "MDLC1253"
    assert e.value.message.startswith(text)


@pytest.mark.parametrize(
    ("optimizer", "text"),
    [
        (Wordless(), "Wordless.update returned Input(name='b'"),
        (Halving(), "Halving.update gives f16[2] for b, not f64[2]"),
        (Forgetful(), "Forgetful.update gives None for m of b, not f64[2]"),
    ],
)
def test_an_update_that_does_not_fit_is_refused(optimizer: Any, text: str) -> None:
    with pytest.raises(TrainError) as e:
        started(Plan(optimizer))
    assert e.value.code == "MDLC1253"
    assert e.value.message.startswith(text)
