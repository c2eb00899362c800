"""The compiled step: it trains, in place, the same numbers each time; and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc import f32, i64
from minidlc.expr.types import Array
from minidlc.graph import Graph
from minidlc.graph.graph import Input, Value, apply
from minidlc.graph.types import result_types
from minidlc.support.errors import CallError, CompileError, GradientError, OptionError, TrainError
from minidlc.train import TrainStep

pytestmark = [pytest.mark.ch03, pytest.mark.llvm]

ROWS, FEATURES, HIDDEN, CLASSES = 32, 10, 24, 3


def classifier(element: Any = f32) -> Graph:
    """Two layers with dropout between; the logits are handed back beside the loss."""

    def loss(x: Any, y: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        h = mc.dropout(mc.relu(x @ w1 + b1), ratio=0.1, seed=3)[0]
        logits = h @ w2 + b2
        return mc.train.cross_entropy(logits, y), logits

    types = [element[FEATURES, HIDDEN], element[HIDDEN], element[HIDDEN, CLASSES], element[CLASSES]]
    return mc.trace(loss, element[ROWS, FEATURES], i64[ROWS], *types)


def parameters() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    return {
        "w1": rng.normal(0, 0.4, (FEATURES, HIDDEN)).astype(np.float32),
        "b1": np.zeros(HIDDEN, np.float32),
        "w2": rng.normal(0, 0.3, (HIDDEN, CLASSES)).astype(np.float32),
        "b2": np.zeros(CLASSES, np.float32),
    }


def batches(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Points of three overlapping clouds."""
    rng = np.random.default_rng(4)
    centres = rng.normal(0, 1, (CLASSES, FEATURES))
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for _ in range(count):
        y = rng.integers(0, CLASSES, ROWS)
        x = centres[y] + rng.normal(0, 0.7, (ROWS, FEATURES))
        found.append((x.astype(np.float32), y))
    return found


def compiled(threads: int = 1, **options: Any) -> TrainStep:
    optimizer = options.pop("optimizer", mc.train.adam(1e-2))
    return mc.compile_train_step(classifier(), parameters(), optimizer, threads=threads, **options)


@pytest.fixture(scope="module")
def trained() -> tuple[TrainStep, list[np.ndarray]]:
    step = compiled()
    return step, [step(x, y)[0] for x, y in batches(60)]


def test_the_loss_falls_and_every_update_counts(
    trained: tuple[TrainStep, list[np.ndarray]],
) -> None:
    step, losses = trained
    assert step.steps == 60
    assert np.mean(losses[:3]) > 0.9
    assert np.mean(losses[-5:]) < 0.35
    assert losses[0].dtype == np.float32
    assert losses[0].shape == ()


def test_the_same_seed_gives_the_same_bits(trained: tuple[TrainStep, list[np.ndarray]]) -> None:
    step, losses = trained
    again = compiled()
    np.testing.assert_array_equal([again(x, y)[0] for x, y in batches(60)], losses)
    for key, array in again.state().items():
        np.testing.assert_array_equal(array, step.state()[key])


def test_threads_change_no_bit(trained: tuple[TrainStep, list[np.ndarray]]) -> None:
    step, losses = trained
    two = compiled(threads=2)
    np.testing.assert_array_equal([two(x, y)[0] for x, y in batches(60)], losses)
    np.testing.assert_array_equal(two.params["w1"], step.params["w1"])


def test_everything_is_updated_in_place(trained: tuple[TrainStep, list[np.ndarray]]) -> None:
    step, _ = trained
    before, state = dict(step.params), step.state()
    step(*batches(1)[0])
    for name, array in step.params.items():
        assert array is before[name]
        assert (array != state[f"parameters/{name}"]).any()
    updates = step.executable.memory_plan.updates
    assert len(updates) == 4 * 3 + 2  # each parameter with m and v; counters of updates and calls
    in_place = {u.input for u in updates if u.how.startswith("in place")}
    assert {"w1", "w1_m", "w1_v", "w2", "w2_m", "w2_v", "steps", "key"} <= in_place
    with pytest.raises(TypeError):
        step.params["w1"] = before["w1"]  # type: ignore[index]


def test_an_update_that_may_be_left_out_happens_in_place_too() -> None:
    loss = mc.trace(lambda x, w: (x @ w).sum(), f32[2, 64], f32[64, 32])
    start = {"w": np.ones((64, 32), np.float32)}
    rule = mc.train.DynamicScale()
    step = mc.compile_train_step(loss, start, mc.train.adam(0.1), loss_scale=rule, threads=1)
    updates = {u.input: u.how for u in step.executable.memory_plan.updates}
    assert updates.keys() == {"w", "w_m", "w_v", "scale", "good", "steps"}
    assert all(how.startswith("in place") for how in updates.values()), updates
    x = np.ones((2, 64), np.float32)
    step(x * np.inf)
    np.testing.assert_array_equal(step.params["w"], start["w"])
    assert not step.state()["m/w"].any()
    step(x)
    np.testing.assert_allclose(step.params["w"], 0.9, rtol=1e-6)


def test_an_update_is_one_kernel_unless_the_caller_chooses_passes() -> None:
    loss = mc.trace(lambda x, w: (x @ w).sum(), f32[2, 64], f32[64, 32])
    start = {"w": np.zeros((64, 32), np.float32)}
    results: dict[str, int] = {}
    for name, options in (
        ("step", {}),
        ("plain", {"pipeline": mc.Pipeline.default()}),
        ("unfused", {"opt_level": 1}),
    ):
        step = mc.compile_train_step(loss, start, mc.train.adam(0.1), threads=1, **options)
        kernels = step.executable.kernels
        results[name] = max(len(result_types(kernel.origin.type)) for kernel in kernels)
        step(np.ones((2, 64), np.float32))
        np.testing.assert_allclose(step.params["w"], -0.1, rtol=1e-6)
    assert results == {"step": 3, "plain": 1, "unfused": 1}
    with pytest.raises(OptionError, match="opt_level"):
        mc.compile_train_step(loss, start, opt_level=7)
    with pytest.raises(OptionError, match="target is a str"):
        mc.compile_train_step(loss, start, target="x86")
    with pytest.raises(OptionError, match="precision"):
        mc.compile_train_step(loss, start, precision="exact")


def deep() -> tuple[Graph, dict[str, np.ndarray]]:
    """Six layers of one width: what their gradients need is most of the memory."""

    def loss(x: Any, y: Any, w: list[Any]) -> Any:
        for matrix in w:
            x = mc.tanh(x @ matrix)
        return mc.train.mse(x, y)

    rng = np.random.default_rng(8)
    arrays = {f"w_{n}": rng.normal(0, 0.3, (16, 16)).astype(np.float32) for n in range(6)}
    return mc.trace(loss, f32[128, 16], f32[128, 16], [f32[16, 16]] * 6), arrays


def test_rematerialisation_takes_memory_and_changes_no_bit() -> None:
    graph, arrays = deep()
    x, y = np.random.default_rng(9).standard_normal((2, 128, 16)).astype(np.float32)
    plain = mc.compile_train_step(graph, arrays, threads=1)
    arena = plain.executable.memory_plan.arena_bytes
    small = mc.compile_train_step(graph, arrays, threads=1, remat=arena * 3 // 4)
    assert small.executable.memory_plan.arena_bytes <= arena * 3 // 4
    for _ in range(5):
        np.testing.assert_array_equal(plain(x, y)[0], small(x, y)[0])
    with pytest.raises(GradientError, match=r"needs .* bytes at least") as e:
        mc.compile_train_step(graph, arrays, remat=arena // 8)
    assert e.value.code == "MDLC1240"


def test_a_state_goes_on_bit_for_bit() -> None:
    one, other = compiled(seed=5), compiled(seed=6)
    data = batches(8)
    for x, y in data[:4]:
        one(x, y)
    other.load_state(one.state())
    for x, y in data[4:]:
        np.testing.assert_array_equal(one(x, y)[0], other(x, y)[0])
    np.testing.assert_array_equal(one.params["w2"], other.params["w2"])


def test_data_come_by_position_by_name_or_as_a_dict() -> None:
    x, y = batches(1)[0]
    step = compiled(optimizer=mc.train.sgd(0.0), seed=1)
    key = step.state()
    found = []
    for call in (lambda: step(x, y), lambda: step(y=y, x=x), lambda: step({"x": x, "y": y})):
        step.load_state(key)
        loss, logits = call()
        assert logits.shape == (ROWS, CLASSES)
        found.append(loss)
    assert found[0] == found[1] == found[2]


def test_the_learning_rate_is_an_input() -> None:
    x, y = batches(1)[0]
    step = compiled(optimizer=mc.train.sgd(0.5))
    assert step.learning_rate == 0.5
    step.learning_rate = 0.0
    step(x, y)
    np.testing.assert_array_equal(step.params["w1"], parameters()["w1"])
    with pytest.raises(TrainError, match="learning_rate is nan") as e:
        step.learning_rate = float("nan")
    assert e.value.code == "MDLC1254"
    for rate in (1e39, 10**400, 1e-50, -1, -np.inf):
        with pytest.raises(TrainError, match="expected a finite number of") as e:
            step.learning_rate = rate
        assert e.value.code == "MDLC1254"
    assert step.learning_rate == 0.0
    with pytest.raises(OptionError, match="learning_rate is a str"):
        step.learning_rate = "fast"  # type: ignore[assignment]
    step.learning_rate = np.float32(0.25)  # type: ignore[assignment]
    assert step.learning_rate == 0.25
    step.learning_rate = 1e-3
    assert repr(step.learning_rate) == "0.001"  # the number that was set, not that of f32


def test_a_step_of_f64_has_a_rate_of_f64() -> None:
    loss = mc.trace(lambda w, b: w.sum() + b.sum().astype("f64"), mc.f64[3], f32[2])
    start = {"w": np.ones(3), "b": np.ones(2, np.float32)}
    step = mc.compile_train_step(loss, start, mc.train.sgd(0.1), threads=1)
    step()
    np.testing.assert_array_equal(step.params["w"], 0.9)
    np.testing.assert_array_equal(step.params["b"], np.float32(0.9))
    for rate in (1e100, 1e-50):  # b would be infinite, or stand still
        with pytest.raises(TrainError, match="learning_rate is") as e:
            step.learning_rate = rate
        assert str(e.value.hint).startswith("f32 holds 0 and ")
    step = mc.compile_train_step(loss, start, mc.train.sgd(0.1), frozen=["b"], threads=1)
    for rate in (1e100, 1e-50):
        before = step.params["w"].copy()
        step.learning_rate = rate
        step()
        np.testing.assert_array_equal(step.params["w"], before - rate)
    with pytest.raises(TrainError, match="learning_rate is 1e-320") as e:
        step.learning_rate = 1e-320
    assert str(e.value.hint).startswith("f64 holds 0 and ")


def test_constants_are_trained_by_the_names_that_the_text_gives_them() -> None:
    graph = mc.trace(lambda x: ((x * 2.0 + 1.0) ** 2.0).sum(), f32[3])
    step = mc.compile_train_step(graph, ["c_1"], mc.train.sgd(0.5), threads=1)
    step(np.zeros(3, np.float32))
    assert step.params["c_1"].tolist() == -2.0  # 1 - 0.5 * (2 * 1 * 3)
    with pytest.raises(OptionError, match="no constant 'c_9'") as e:
        mc.compile_train_step(graph, ["c_9"])
    assert e.value.code == "MDLC1050"


def test_a_batch_without_labels_moves_nothing() -> None:
    """Its loss is NaN, which a Trainer sees; the gradients of others are kept."""

    def loss(x: Any, y: Any, w: Any) -> Any:
        return mc.train.cross_entropy(x @ w, y, ignore_index=-1)

    start = {"w": parameters()["w1"]}
    graph = mc.trace(loss, f32[ROWS, FEATURES], i64[ROWS], f32[FEATURES, HIDDEN])
    x, y = batches(1)[0]
    half, whole = (
        mc.compile_train_step(graph, start, mc.train.sgd(rate), accumulate=calls, threads=1)
        for rate, calls in ((1.0, 2), (0.5, 1))
    )
    assert np.isnan(half(x, np.full(ROWS, -1))[0])
    half(x, y)
    whole(x, y)
    assert (half.params["w"] != start["w"]).any()
    np.testing.assert_allclose(half.params["w"], whole.params["w"], rtol=1e-6)


def test_a_loss_of_nan_is_reported_not_raised() -> None:
    x, y = batches(1)[0]
    step = compiled()
    assert np.isnan(step(np.full_like(x, np.nan), y)[0])


def test_constants_become_parameters() -> None:
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(3, 1)).astype(np.float32)
    loss = mc.trace(
        lambda x, y: mc.train.mse(x @ mc.Constant("weight", weight), y), f32[4, 3], f32[4, 1]
    )
    step = mc.compile_train_step(loss, ["weight"], mc.train.sgd(0.1), loss_scale=16.0, threads=1)
    assert step.loss_scale == 16
    x = rng.normal(size=(4, 3)).astype(np.float32)
    step(x=x, y=x[:, :1])
    assert not np.array_equal(step.params["weight"], weight)  # the caller's array is his
    wanted = weight - 0.1 * 2 / 4 * x.T @ (x @ weight - x[:, :1])
    np.testing.assert_allclose(step.params["weight"], wanted, rtol=1e-5)


def test_names_of_the_model_that_a_step_uses_too_are_kept_apart() -> None:
    def loss(key: Any, steps: Any, learning_rate: Any) -> Any:
        dropped = mc.dropout(key * steps * learning_rate, ratio=0.5)[0]
        return {"steps_new": dropped.sum(), "learning_rate_new": learning_rate}

    ones = np.ones(4, np.float32)
    graph = mc.trace(loss, f32[4], f32[4], f32[4])
    start = {"steps": ones, "learning_rate": ones}
    step = mc.compile_train_step(graph, start, mc.train.momentum(0.5), threads=1)
    total, before = step(key=ones)
    assert total in range(0, 9, 2)
    np.testing.assert_array_equal(before, ones)
    np.testing.assert_array_equal(step.params["steps"], step.params["learning_rate"])
    assert step.params["steps"].sum() == 4 - 0.5 * total
    assert step.steps == 1


def test_a_gradient_of_the_readers_own_is_called_and_counted() -> None:
    def leaky(op: Any, y: Any, dy: Value) -> tuple[Value, ...]:
        return (apply("where", y.inputs[0] > 0.0, dy, dy * 0.5),)

    x, w = np.array([-1, 2], np.float32), np.zeros(2, np.float32)
    loss = mc.trace(lambda x, w: mc.relu(x + w).sum(), f32[2], f32[2])
    with mc.use(**{"gradient.relu": leaky}):
        step = mc.compile_train_step(loss, {"w": w}, mc.train.sgd(1.0), threads=1)
    assert step.executable.report().overrides == {"gradient.relu": 1}
    step(x)
    np.testing.assert_array_equal(step.params["w"], [-0.5, -1])


OPTIMIZERS = [
    mc.train.sgd(0.1),
    mc.train.momentum(0.1, nesterov=True),
    mc.train.adam(0.01),
    mc.train.adamw(0.01, exclude=("b*",)),
    mc.train.rmsprop(0.01),
]


@pytest.mark.long
@pytest.mark.parametrize("number", range(10))
def test_machine_code_does_what_the_graph_says(number: int) -> None:
    """Options at random; overflows among the batches; in place, fused and on two threads."""
    rng = np.random.default_rng(number)
    options: dict[str, Any] = {
        "optimizer": OPTIMIZERS[number % 5],
        "accumulate": int(rng.integers(1, 4)),
        "clip_norm": [None, 0.5][number // 5],
        "loss_scale": [None, 64.0, mc.train.DynamicScale(64.0, interval=2)][rng.integers(3)],
        "frozen": [[], ["w1"], ["b2"]][rng.integers(3)],
    }
    step = compiled(threads=1 + number % 2, **options)
    given = [i.name for i in step.graph.inputs][3:]
    state = dict(zip(given, step.state().values(), strict=True))
    updated = {u.input for u in step.executable.memory_plan.updates}
    for x, y in batches(6):
        if isinstance(options["loss_scale"], mc.train.DynamicScale) and rng.random() < 0.3:
            x[0, 0] = np.inf
        rate = np.float32(step.learning_rate)
        wanted = mc.interpret(step.graph, [x, y, rate, *state.values()])
        found = step(x, y)
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
        state |= dict(zip((n for n in given if n in updated), wanted[2:], strict=True))
        for name, array in zip(given, step.state().values(), strict=True):
            np.testing.assert_allclose(array, state[name], rtol=2e-4, atol=2e-6, err_msg=name)


class TwoValues:
    learning_rate = 0.1

    def slots(self, type: Any) -> dict[str, Array]:
        return {}

    def update(self, parameter: Value, gradient: Value) -> Any:
        return parameter - gradient, {}


class NoUpdate(TwoValues):
    update = 3  # type: ignore[assignment]


def refusal(kind: type[CompileError], make: Callable[[], Any]) -> CompileError:
    with pytest.raises(kind) as e:
        make()
    assert e.value.loc is not None
    return e.value


def simple() -> Graph:
    return mc.trace(lambda x, w: mc.train.mse(x, w), f32[3], f32[3])


WEIGHTS = {"w": np.zeros(3, np.float32)}
BAD: dict[str, tuple[Callable[[], Any], type[CompileError], str, str]] = {
    "no graph": (lambda: mc.compile_train_step(len, {}), OptionError, "MDLC1001", "loss is a"),  # type: ignore[arg-type]
    "no scalar": (
        lambda: mc.compile_train_step(mc.trace(lambda x, w: x * w, f32[3], f32[3]), WEIGHTS),
        GradientError,
        "MDLC1250",
        "is f32[3]: a loss is one real number",
    ),
    "integers": (
        lambda: mc.compile_train_step(mc.trace(lambda x: x.sum(), i64[3]), {}),
        GradientError,
        "MDLC1250",
        "is i64[()]: a loss is one real number",
    ),
    "unknown name": (
        lambda: mc.compile_train_step(simple(), {"v": WEIGHTS["w"]}),
        TrainError,
        "MDLC1251",
        "has no input 'v'",
    ),
    "no names": (
        lambda: mc.compile_train_step(simple(), {}),
        TrainError,
        "MDLC1251",
        "there is nothing to train",
    ),
    "all frozen": (
        lambda: mc.compile_train_step(simple(), WEIGHTS, frozen=["w"]),
        TrainError,
        "MDLC1251",
        "there is nothing to train",
    ),
    "frozen data": (
        lambda: mc.compile_train_step(simple(), WEIGHTS, frozen=["x"]),
        TrainError,
        "MDLC1251",
        "frozen: 'x' is no parameter",
    ),
    "no constant": (
        lambda: mc.compile_train_step(simple(), ["w"]),
        OptionError,
        "MDLC1050",
        "has no constant 'w'",
    ),
    "a shape": (
        lambda: mc.compile_train_step(simple(), {"w": np.zeros(4, np.float32)}),
        TrainError,
        "MDLC1252",
        "parameter 'w' is f32[4], expected f32[3]",
    ),
    "an element type": (
        lambda: mc.compile_train_step(simple(), {"w": np.zeros(3)}),
        TrainError,
        "MDLC1252",
        "parameter 'w' is f64[3], expected f32[3]",
    ),
    "no array": (
        lambda: mc.compile_train_step(simple(), {"w": [[1.0], [2.0, 3.0]]}),  # type: ignore[dict-item]
        TrainError,
        "MDLC1252",
        "parameter 'w' is a list, expected f32[3]",
    ),
    "a class": (
        lambda: mc.compile_train_step(simple(), WEIGHTS, mc.train.adam),  # type: ignore[arg-type]
        TrainError,
        "MDLC1253",
        "which has no slots and update",
    ),
    "a rate": (
        lambda: mc.compile_train_step(simple(), WEIGHTS, 0.1),  # type: ignore[arg-type]
        TrainError,
        "MDLC1253",
        "optimizer is 0.1",
    ),
    "an update that takes two values": (
        lambda: mc.compile_train_step(simple(), WEIGHTS, TwoValues()),  # type: ignore[arg-type]
        TrainError,
        "MDLC1253",
        "TwoValues.update cannot be called: too many positional arguments",
    ),
    "an update that is no function": (
        lambda: mc.compile_train_step(simple(), WEIGHTS, NoUpdate()),  # type: ignore[arg-type]
        TrainError,
        "MDLC1253",
        "NoUpdate.update cannot be called: 3 is not a callable object",
    ),
    "accumulate": (
        lambda: mc.compile_train_step(simple(), WEIGHTS, accumulate=0),
        TrainError,
        "MDLC1254",
        "accumulate is 0, expected at least 1",
    ),
    "clip_norm": (
        lambda: mc.compile_train_step(simple(), WEIGHTS, clip_norm=-1.0),
        TrainError,
        "MDLC1254",
        "clip_norm is -1.0, expected a positive number",
    ),
    "loss_scale": (
        lambda: mc.compile_train_step(simple(), WEIGHTS, loss_scale=float("inf")),
        TrainError,
        "MDLC1254",
        "loss_scale is inf",
    ),
    "a clip_norm that f32 cannot hold": (
        lambda: mc.compile_train_step(simple(), WEIGHTS, clip_norm=1e39),
        TrainError,
        "MDLC1254",
        "clip_norm is 1e+39",
    ),
    "a loss_scale that f32 cannot hold": (
        lambda: mc.compile_train_step(simple(), WEIGHTS, loss_scale=1e60),
        TrainError,
        "MDLC1254",
        "loss_scale is 1e+60",
    ),
    "a loss_scale whose inverse f32 cannot hold": (
        lambda: mc.compile_train_step(simple(), WEIGHTS, loss_scale=1e-39),
        TrainError,
        "MDLC1254",
        "loss_scale is 1e-39",
    ),
    "a largest scale that f32 cannot hold": (
        lambda: mc.train.DynamicScale(initial=2.0**120, interval=1, largest=2.0**200),
        TrainError,
        "MDLC1254",
        "largest is 1.6",
    ),
    "an unknown option": (
        lambda: mc.compile_train_step(simple(), WEIGHTS, thread=1),
        TrainError,
        "MDLC1259",
        "there is no option 'thread'",
    ),
    "a misspelt option": (
        lambda: mc.compile_train_step(simple(), WEIGHTS, clip=1.0),
        TrainError,
        "MDLC1259",
        "there is no option 'clip'",
    ),
    "seed": (
        lambda: mc.compile_train_step(simple(), WEIGHTS, seed=-1),
        TrainError,
        "MDLC1254",
        "seed is -1",
    ),
    "scale": (
        lambda: mc.train.DynamicScale(initial=0.5),
        TrainError,
        "MDLC1254",
        "makes no sense",
    ),
    "autocast": (
        lambda: mc.compile_train_step(simple(), WEIGHTS, autocast="f8"),
        TrainError,
        "MDLC1257",
        "'f8' is no type to compute in",
    ),
    "donate": (
        lambda: mc.compile_train_step(simple(), WEIGHTS, donate={"w": "out"}),
        OptionError,
        "MDLC1006",
        "the step donates what it updates",
    ),
    "remat": (
        lambda: mc.compile_train_step(simple(), WEIGHTS, remat=1 << 20, pipeline="cse"),
        TrainError,
        "MDLC1258",
        "remat is a pass, and pipeline= names all of them",
    ),
    "a budget": (
        lambda: mc.compile_train_step(simple(), WEIGHTS, remat=0.5),  # type: ignore[arg-type]
        OptionError,
        "MDLC1001",
        "remat is a float, expected int",
    ),
    "open sizes": (
        lambda: mc.compile_train_step(
            mc.trace(lambda x, w: mc.train.mse(x * w, x), f32["N", 3], f32[3]), WEIGHTS
        ),
        GradientError,
        "MDLC1205",
        "sizes that are not known: N",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_trained_is_refused(what: str) -> None:
    make, kind, code, text = BAD[what]
    found = refusal(kind, make)
    assert found.code == code
    assert text in found.message


def test_a_state_of_another_model_changes_nothing() -> None:
    step = mc.compile_train_step(simple(), WEIGHTS, mc.train.momentum(), threads=1)
    good = step.state()
    shaped = good | {"m/w": np.zeros(4, np.float32)}
    for state, text in (
        ({k: v for k, v in good.items() if k != "m/w"}, "the state lacks 'm/w'"),
        (good | {"v/w": good["m/w"]}, "this step has no 'v/w'"),
        (shaped | {"parameters/w": np.ones(3, np.float32)}, "'m/w' is f32[4], expected f32[3]"),
        (good | {"counters/steps": np.array(1.0)}, "'counters/steps' is f64[()], expected i64[()]"),
    ):
        found = refusal(TrainError, lambda state=state: step.load_state(state))
        assert found.code == "MDLC1255"
        assert text in found.message
    assert not step.params["w"].any()
    refusal(OptionError, lambda: step.load_state([1]))  # type: ignore[arg-type]
    renamed = {k.replace("m/w", "m/w1"): v for k, v in good.items()}
    found = refusal(TrainError, lambda: step.load_state(renamed))
    assert (found.message, found.hint) == (
        "load_state: the state lacks 'm/w'",
        "did you mean 'm/w1'?",
    )


@pytest.mark.parametrize(
    ("key", "number", "wanted"),
    [
        ("steps", np.array(-5), "at least 0"),
        ("good", np.array(-1), "at least 0"),
        ("accumulated", np.array(2), "0 to 1, as accumulate is 2"),
        ("accumulated", np.array(-1), "0 to 1, as accumulate is 2"),
        ("scale", np.float32(0), "a positive number"),
        ("scale", np.float32("inf"), "a positive number"),
        ("scale", np.float32("nan"), "a positive number"),
    ],
)
def test_a_counter_that_no_training_leaves_is_refused(
    key: str, number: np.ndarray, wanted: str
) -> None:
    rule = mc.train.DynamicScale()
    step = mc.compile_train_step(simple(), WEIGHTS, accumulate=2, loss_scale=rule, threads=1)
    good = step.state()
    changed = good | {f"counters/{key}": np.asarray(number), "parameters/w": np.ones(3, np.float32)}
    found = refusal(TrainError, lambda: step.load_state(changed))
    assert found.code == "MDLC1255"
    assert found.message.endswith(f"'counters/{key}' is {number}, expected {wanted}")
    assert not step.params["w"].any()
    step.load_state(good)


def test_calls_that_do_not_fit_are_refused() -> None:
    step = mc.compile_train_step(simple(), WEIGHTS, threads=1)
    x = np.zeros(3, np.float32)
    for call, code, text in (
        (lambda: step(), "MDLC0902", "missing input 'x'"),
        (lambda: step(x, x), "MDLC0902", "takes 1 inputs, got 2"),
        (lambda: step(x=x, w=x), "MDLC0902", "unknown input 'w'"),
        (lambda: step(x.astype(np.float64)), "MDLC0903", "input 'x': expected f32[3]"),
        (lambda: step(np.zeros(4, np.float32)), "MDLC0904", "input 'x': expected f32[3]"),
    ):
        found = refusal(CallError, call)
        assert found.code == code
        assert text in found.message
    assert step.steps == 0


def test_a_step_says_what_it_is() -> None:
    step = mc.compile_train_step(simple(), WEIGHTS, threads=1)
    step(np.ones(3, np.float32))
    assert repr(step) == "<traced_step(x: f32[3]), 1 parameters, 1 updates>"
    assert [i.name for i in step.loss_graph.inputs] == ["x", "w"]
    assert isinstance(step.graph.inputs[0], Input)
