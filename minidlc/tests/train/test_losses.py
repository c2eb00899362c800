"""Losses and learning rates against their formulas in f64, also where a formula would overflow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minidlc as mc
from minidlc import f16, f32, f64, i64
from minidlc.support.errors import OptionError, TrainError, TypeRuleError

pytestmark = pytest.mark.ch03

N = 6
rng = np.random.default_rng(5)
PREDICTION, TARGET = rng.standard_normal((2, N, 3))
SIGN = np.sign(TARGET)
PROBABILITY = rng.dirichlet(np.ones(3), N)
LOG_Q = np.log(rng.dirichlet(np.ones(3), N))
LABELS = rng.integers(0, 3, N)


def huber(p: np.ndarray, t: np.ndarray) -> np.ndarray:
    d = np.abs(p - t)
    return np.where(d <= 0.75, d * d / 2, 0.75 * (d - 0.375))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


FORMULAS: dict[
    str, tuple[Callable[..., Any], Callable[..., np.ndarray], np.ndarray, np.ndarray]
] = {
    "mse": (mc.train.mse, lambda p, t: (p - t) ** 2, PREDICTION, TARGET),
    "mae": (mc.train.mae, lambda p, t: np.abs(p - t), PREDICTION, TARGET),
    "huber": (
        lambda p, t, reduction: mc.train.huber(p, t, 0.75, reduction),
        huber,
        PREDICTION * 2,
        TARGET,
    ),
    "hinge": (mc.train.hinge, lambda p, t: np.maximum(0, 1 - t * p), PREDICTION, SIGN),
    "binary_cross_entropy": (
        mc.train.binary_cross_entropy,
        lambda p, t: -t * np.log(sigmoid(p)) - (1 - t) * np.log(1 - sigmoid(p)),
        PREDICTION,
        PROBABILITY,
    ),
    "kl_divergence": (
        mc.train.kl_divergence,
        lambda p, t: (t * (np.log(t) - p)).sum(-1),
        LOG_Q,
        PROBABILITY,
    ),
}


def evaluated(loss: Callable[..., Any], *arrays: np.ndarray) -> list[np.ndarray]:
    """The loss and its gradient with respect to the first array."""
    types = [mc.TensorType(mc.expr.types.dtype(a.dtype), a.shape) for a in arrays]
    graph = mc.trace(loss, *types)
    return list(mc.interpret(mc.value_and_grad(graph, [graph.inputs[0].name]), arrays))


def differences(f: Callable[[np.ndarray], float], x: np.ndarray) -> np.ndarray:
    """Central differences of a NumPy formula."""
    found = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        h = np.zeros_like(x)
        h[place] = 1e-6
        found[place] = (f(x + h) - f(x - h)) / 2e-6
    return found


@pytest.mark.parametrize("name", FORMULAS)
def test_a_loss_and_its_gradient_are_those_of_the_formula(name: str) -> None:
    loss, formula, p, t = FORMULAS[name]
    for reduction, reduce in (("mean", np.mean), ("sum", np.sum)):
        value, gradient = evaluated(lambda a, b, r=reduction: loss(a, b, reduction=r), p, t)
        np.testing.assert_allclose(value, reduce(formula(p, t)), rtol=1e-12)
        wanted = differences(lambda x, r=reduce: r(formula(x, t)), p)
        np.testing.assert_allclose(gradient, wanted, rtol=1e-6, atol=1e-8)
    each = mc.trace(lambda a, b: loss(a, b, reduction="none"), f64[p.shape], f64[t.shape])
    np.testing.assert_allclose(mc.interpret(each, [p, t])[0], formula(p, t), rtol=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("ignored", [None, 1])
def test_cross_entropy_smooths_and_ignores(smoothing: float, ignored: int | None) -> None:
    counts = ignored != LABELS
    assert 0 < counts.sum() < N or ignored is None

    def formula(x: np.ndarray, reduction: str) -> np.ndarray:
        log_p = x - np.log(np.exp(x).sum(1, keepdims=True))
        wanted = np.eye(3)[LABELS] * (1 - smoothing) + smoothing / 3
        each = np.where(counts, -(wanted * log_p).sum(1), 0)
        return {"none": each, "sum": each.sum(), "mean": each.sum() / counts.sum()}[reduction]

    def loss(x: Any, y: Any, reduction: str = "mean") -> Any:
        return mc.train.cross_entropy(x, y, smoothing, ignored, reduction)

    value, gradient = evaluated(loss, PREDICTION, LABELS)
    np.testing.assert_allclose(value, formula(PREDICTION, "mean"), rtol=1e-12)
    wanted = differences(lambda x: float(formula(x, "mean")), PREDICTION)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-6, atol=1e-8)
    for reduction in ("none", "sum"):
        graph = mc.trace(lambda x, y, r=reduction: loss(x, y, r), f64[N, 3], i64[N])
        found = mc.interpret(graph, [PREDICTION, LABELS])[0]
        np.testing.assert_allclose(found, formula(PREDICTION, reduction), rtol=1e-12)


def test_extreme_logits_give_exact_losses_and_gradients() -> None:
    x = np.array([-1e4, -100.0, -20.0, 0.0, 20.0, 100.0, 1e4], np.float32)
    for label in (0.0, 1.0):
        t = np.full(7, label, np.float32)
        value, gradient = evaluated(
            lambda a, b: mc.train.binary_cross_entropy(a, b, reduction="sum"), x, t
        )
        signed = (x if label == 0 else -x).astype(np.float64)
        np.testing.assert_allclose(value, np.logaddexp(0, signed).sum(), rtol=1e-6)
        with np.errstate(over="ignore"):
            wanted = 1 / (1 + np.exp(-signed)) * (1 if label == 0 else -1)
        np.testing.assert_allclose(gradient, wanted, rtol=1e-5, atol=1e-44)
    logits = np.array([[1e4, -1e4, 0], [-1e4, 1e4, 0], [88, 89, 90]], np.float32)
    value, gradient = evaluated(mc.train.cross_entropy, logits, np.array([0, 0, 2]))
    last = np.exp([-2.0, -1.0, 0.0]) / np.exp([-2.0, -1.0, 0.0]).sum()
    np.testing.assert_allclose(value, (0 + 2e4 - np.log(last[2])) / 3, rtol=1e-6)
    wanted = np.array([[0, 0, 0], [-1, 1, 0], last - [0, 0, 1]]) / 3
    np.testing.assert_allclose(gradient, wanted, rtol=1e-5, atol=1e-7)


def test_kl_divergence_counts_no_zeros() -> None:
    t = np.array([[0, 1, 0], [0.5, 0.5, 0]], np.float32)
    with np.errstate(divide="ignore"):
        log_q = np.log(np.array([[0, 1, 0], [0.5, 0.25, 0.25]], np.float32))
    value, gradient = evaluated(
        lambda a, b: mc.train.kl_divergence(a, b, reduction="sum"), log_q, t
    )
    np.testing.assert_allclose(value, 0.5 * math.log(2), rtol=1e-6)
    np.testing.assert_allclose(gradient, -t, rtol=1e-6)


def test_losses_of_f16_are_computed_in_f32() -> None:
    graph = mc.trace(mc.train.mse, f16[4], f16[4])
    assert graph.outputs[0].type == f32[()]
    x = np.full(4, 600, np.float16)  # 600² is no f16
    assert mc.interpret(graph, [x, np.zeros(4, np.float16)])[0] == 360000


@pytest.mark.parametrize("name", FORMULAS)
def test_losses_take_arrays(name: str) -> None:
    """Computed at once, in `eager` or not; beside a value of a graph they are its constants."""
    loss, formula, p, t = FORMULAS[name]
    wanted = formula(p, t).mean()
    np.testing.assert_allclose(np.asarray(loss(p, t, reduction="mean")), wanted, rtol=1e-12)
    with mc.eager():
        np.testing.assert_allclose(np.asarray(loss(p, t, reduction="mean")), wanted, rtol=1e-12)
    for graph, array in (
        (mc.trace(lambda x: loss(x, t, reduction="mean"), f64[p.shape]), p),
        (mc.trace(lambda x: loss(p, x, reduction="mean"), f64[t.shape]), t),
    ):
        np.testing.assert_allclose(mc.interpret(graph, [array])[0], wanted, rtol=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_takes_arrays(smoothing: float) -> None:
    wanted, _ = evaluated(
        lambda x, y: mc.train.cross_entropy(x, y, smoothing, 1), PREDICTION, LABELS
    )
    found = [mc.train.cross_entropy(PREDICTION, LABELS, smoothing, 1)]
    with mc.eager():
        found.append(mc.train.cross_entropy(PREDICTION, LABELS, smoothing, 1))
    graph = mc.trace(lambda x: mc.train.cross_entropy(x, LABELS, smoothing, 1), f64[N, 3])
    found += mc.interpret(graph, [PREDICTION])
    np.testing.assert_allclose([np.asarray(each) for each in found], wanted, rtol=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_mean_over_nothing_has_no_gradient(smoothing: float) -> None:
    """As in PyTorch: else one batch without labels would turn every weight into NaN."""
    value, gradient = evaluated(
        lambda x, y: mc.train.cross_entropy(x, y, smoothing, -1), PREDICTION, np.full(N, -1)
    )
    assert np.isnan(value)
    np.testing.assert_array_equal(gradient, np.zeros((N, 3)))


def test_a_mean_over_weights_of_zero_has_no_gradient() -> None:
    def loss(x: Any, y: Any, weight: Any) -> Any:
        return mc.graph.apply("softmax_cross_entropy", x, y, weight)[0]

    value, gradient = evaluated(loss, PREDICTION, np.zeros(N, np.int64), np.array([0.0, 1, 1]))
    assert np.isnan(value)
    np.testing.assert_array_equal(gradient, np.zeros((N, 3)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("ignored", [None, 1])
def test_a_label_that_is_no_class_is_seen_and_moves_nothing(
    smoothing: float, ignored: int | None
) -> None:
    def loss(x: Any, y: Any) -> Any:
        return mc.train.cross_entropy(x, y, smoothing, ignored)

    _, wanted = evaluated(loss, PREDICTION, LABELS)
    labels = LABELS.copy()
    labels[LABELS != 1] = np.resize([-2, 3, 0], (LABELS != 1).sum())
    bad = (labels < 0) | (labels >= 3)
    assert 2 <= bad.sum() < N
    value, gradient = evaluated(loss, PREDICTION, labels)
    assert np.isnan(value)
    np.testing.assert_array_equal(gradient[bad], 0)
    same = labels == LABELS
    assert same.any()
    np.testing.assert_allclose(gradient[same], wanted[same], rtol=1e-12)


@pytest.mark.parametrize(
    ("loss", "types", "text"),
    [
        (mc.train.mse, (f32[4, 1], f32[4]), "mse: the prediction is f32[4, 1], the target f32[4]"),
        (mc.train.mae, (f32[4], f64[4]), "mae: the prediction is f32[4], the target f64[4]"),
        (mc.train.hinge, (i64[4], i64[4]), "hinge: the prediction is i64[4]"),
        (mc.train.kl_divergence, (f32[()], f32[()]), "kl_divergence: the target is f32[()]"),
        (
            lambda p, t: mc.train.mse(p, t, reduction="avg"),
            (f32[4], f32[4]),
            "mse: reduction is 'avg', expected one of mean, sum, none",
        ),
        (
            lambda p, t: mc.train.huber(p, t, delta=0.0),
            (f32[4], f32[4]),
            "huber: delta is 0.0, expected a positive number",
        ),
        (
            lambda p, t: mc.train.mse(p, np.zeros(4)),
            (f32[4], f32[4]),
            "mse: the prediction is f32[4], the target f64[4]",
        ),
        (
            lambda p, t: mc.train.cross_entropy(p, t, label_smoothing=1.0),
            (f32[4, 2], i64[4]),
            "cross_entropy: label_smoothing is 1.0",
        ),
        (
            lambda p, t: mc.train.cross_entropy(p, t, reduction="avg"),
            (f32[4, 2], i64[4]),
            "cross_entropy: reduction is 'avg'",
        ),
    ],
)
def test_what_does_not_fit_is_refused(loss: Any, types: Any, text: str) -> None:
    with pytest.raises(TrainError) as e:
        mc.trace(loss, *types)
    assert e.value.code == "MDLC1256"
    assert e.value.message.startswith(text)


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (lambda p, t: mc.train.huber(p, p, delta="a"), "huber: delta is a str, expected Real"),
        (
            lambda p, t: mc.train.cross_entropy(p, t, label_smoothing="a"),
            "cross_entropy: label_smoothing is a str, expected Real",
        ),
        (
            lambda p, t: mc.train.cross_entropy(p, t, ignore_index=1.0),
            "cross_entropy: ignore_index is a float, expected Integral or NoneType",
        ),
    ],
)
def test_what_is_no_number_is_refused(loss: Any, text: str) -> None:
    with pytest.raises(OptionError) as e:
        mc.trace(loss, f32[4, 2], i64[4])
    assert e.value.message == text


def test_labels_of_real_numbers_are_refused_by_the_op() -> None:
    with pytest.raises(TypeRuleError, match="takes int elements, got f32"):
        mc.trace(mc.train.cross_entropy, f32[4, 2], f32[4])


def test_learning_rates() -> None:
    assert [mc.train.constant(0.1)(n) for n in (0, 9)] == [0.1, 0.1]
    assert mc.train.decay(1.0, every=10, factor=0.5)(25) == 0.25
    assert mc.train.decay(1.0, every=1)(37) == pytest.approx(1e-37)
    assert mc.train.decay(1.0, every=1)(38) == 0.0  # a step refuses what no f32 holds
    rate = mc.train.cosine(1.0, steps=100, final=0.2)
    np.testing.assert_allclose([rate(n) for n in (0, 50, 100, 500)], [1.0, 0.6, 0.2, 0.2])
    warm = mc.train.warmup(mc.train.constant(0.4), steps=4)
    np.testing.assert_allclose([warm(n) for n in range(6)], [0.1, 0.2, 0.3, 0.4, 0.4, 0.4])


def test_learning_rates_over_no_steps_are_refused() -> None:
    with pytest.raises(TrainError, match="decay: every is 0, expected at least 1") as e:
        mc.train.decay(1.0, every=0)
    assert e.value.code == "MDLC1254"
    with pytest.raises(TrainError, match="cosine: steps is -1"):
        mc.train.cosine(1.0, steps=-1)
    with pytest.raises(OptionError, match="warmup: steps is a float"):
        mc.train.warmup(mc.train.constant(1.0), steps=2.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: mc.train.constant("a"), "constant: rate is a str, expected Real"),
        (lambda: mc.train.cosine("a", 10), "cosine: rate is a str, expected Real"),
        (lambda: mc.train.cosine(1, 10, None), "cosine: final is None, expected Real"),
        (lambda: mc.train.decay(1, 10, "a"), "decay: factor is a str, expected Real"),
        (lambda: mc.train.warmup(5, 3), "warmup: schedule is a int, expected function"),
    ],
)
def test_learning_rates_of_no_number_are_refused(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(OptionError) as e:
        make()
    assert e.value.message == text


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: mc.train.decay(0.1, 1, 10.0), "decay: factor is 10.0, expected a number from 0"),
        (lambda: mc.train.decay(1e39, 1), "decay: rate is 1e+39, expected a finite number"),
        (lambda: mc.train.cosine(1.0, 9, float("inf")), "cosine: final is inf, expected a finite"),
        (lambda: mc.train.constant(10**400), "constant: rate is inf, expected a finite number"),
    ],
)
def test_learning_rates_that_grow_out_of_f32_are_refused(
    make: Callable[[], Any], text: str
) -> None:
    with pytest.raises(TrainError) as e:
        make()
    assert e.value.code == "MDLC1254"
    assert e.value.message.startswith(text)
