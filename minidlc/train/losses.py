"""Losses: how wrong predictions are, as one number.

    mse(prediction, target)                         # f32[n, 3], f32[n, 3] -> f32[()]
    cross_entropy(logits, labels)                   # f32[n, classes], i64[n] -> f32[()]
    huber(prediction, target, reduction="none")     # one loss for each element

Functions of values that build nodes. An array beside a value is a constant of the graph; arrays
alone are computed at once, as by `mc.tensor`. f16 and bf16 are computed in f32, and so is the loss.
Shapes must be equal: a prediction f32[n, 1] beside a target f32[n] would be broadcast to all n * n
pairs. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, Never

from minidlc.graph.eager import tensor
from minidlc.graph.graph import Value, apply, tensor_type
from minidlc.graph.value_ops import Operand
from minidlc.ops.composing import in_wide
from minidlc.support.arguments import expect
from minidlc.support.errors import TrainError
from minidlc.support.locations import caller
from minidlc.train.limits import as_float

REDUCTIONS = ("mean", "sum", "none")


def mse(prediction: Operand, target: Operand, reduction: str = "mean") -> Value:
    """(prediction - target)², reduced: the mean, the sum, or "none".

    Raises TrainError (MDLC1256), as all losses here, for shapes, element types or a reduction that
    do not fit.
    """
    error = _difference("mse", prediction, target)
    return _reduced("mse", error * error, reduction)


def mae(prediction: Operand, target: Operand, reduction: str = "mean") -> Value:
    """|prediction - target|, reduced. Where they are equal the gradient is 0."""
    return _reduced("mae", abs(_difference("mae", prediction, target)), reduction)


def huber(
    prediction: Operand, target: Operand, delta: float = 1.0, reduction: str = "mean"
) -> Value:
    """d² / 2 for errors d up to `delta`, delta * (d - delta / 2) beyond (Huber, 1964)."""
    delta = as_float("huber", "delta", delta)
    if not 0 < delta < float("inf"):
        _refuse("huber", f"delta is {delta}", "a positive number")
    d = abs(_difference("huber", prediction, target))
    near = apply("minimum", d, delta)
    return _reduced("huber", near * near * 0.5 + (d - near) * delta, reduction)


def cross_entropy(
    logits: Operand,
    labels: Operand,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Value:
    """-log softmax(logits) at the label: classes along axis 1, labels i32 or i64 without it.

    `label_smoothing` e asks for 1 - e at the label and e over all classes (Szegedy et al., 2016).
    A place whose label is `ignore_index` has loss 0 and does not count in the mean; a mean over
    nothing is NaN, as in PyTorch, and its gradient 0. A label that is no class has loss NaN, so
    that it is seen, and gradient 0: an update follows the other places. Raises TypeRuleError for
    types that do not fit.
    """
    x, y = tensor(logits), tensor(labels)
    _check_reduction("cross_entropy", reduction)
    label_smoothing = as_float("cross_entropy", "label_smoothing", label_smoothing)
    if not 0 <= label_smoothing < 1:
        _refuse("cross_entropy", f"label_smoothing is {label_smoothing}", "0 up to, not with, 1")
    expect("cross_entropy", "ignore_index", ignore_index, Integral, type(None))
    own = "none" if label_smoothing else reduction
    options: dict[str, Any] = {"reduction": own, "ignore_index": ignore_index}
    loss, log_p = apply("softmax_cross_entropy", in_wide(x), y, **options)
    if not label_smoothing:
        return loss
    is_class = apply("logical_and", y >= 0, y < tensor_type(log_p).dims[1])
    even = apply("where", is_class, -apply("mean", log_p, axes=(1,), keepdims=False), 0)
    smooth = loss * (1 - label_smoothing) + even * label_smoothing
    if ignore_index is None:
        return _reduced("cross_entropy", smooth, reduction)
    counts = apply("logical_not", apply("equal", y, ignore_index))
    kept = apply("where", counts, smooth, 0)
    if reduction != "mean":
        return _reduced("cross_entropy", kept, reduction)
    count = apply(
        "sum", apply("cast", counts, to=tensor_type(kept).dtype), axes=None, keepdims=False
    )
    return _reduced("cross_entropy", kept, "sum") / count


def binary_cross_entropy(logits: Operand, target: Operand, reduction: str = "mean") -> Value:
    """-t log s(x) - (1 - t) log s(-x), s the sigmoid, x the logits: never the log of a rounded 0.

    log s(x) = -softplus(-x) is exact for large logits, and smooth at 0, where |x| is not.
    """
    x, t = _pair("binary_cross_entropy", logits, target)
    loss = t * apply("softplus", -x) + (1.0 - t) * apply("softplus", x)
    return _reduced("binary_cross_entropy", loss, reduction)


def kl_divergence(log_prediction: Operand, target: Operand, reduction: str = "mean") -> Value:
    """sum over the last axis of t * (log t - log_prediction), 0 where t is 0: one loss a row.

    `log_prediction` are log-probabilities, of log_softmax; `target` are probabilities.
    """
    name = "kl_divergence"
    log_q, t = _pair(name, log_prediction, target)
    if not tensor_type(t).rank:
        _refuse(name, f"the target is {tensor_type(t)}", "probabilities along the last axis")
    known = t > 0.0
    # the log is taken of 1 where it does not count: what flows back there is 0, not 0 * inf
    entropy = t * apply("log", apply("where", known, t, 1))
    each = apply("where", known, entropy - t * log_q, 0)
    return _reduced(name, apply("sum", each, axes=(-1,), keepdims=False), reduction)


def hinge(scores: Operand, target: Operand, reduction: str = "mean") -> Value:
    """max(0, 1 - target * score) for targets -1 and 1: the loss of a support vector machine."""
    score, t = _pair("hinge", scores, target)
    return _reduced("hinge", apply("relu", 1.0 - t * score), reduction)


def _difference(name: str, prediction: Operand, target: Operand) -> Value:
    a, b = _pair(name, prediction, target)
    return a - b


def _pair(name: str, prediction: Operand, target: Operand) -> tuple[Value, Value]:
    """Both in the type that is computed in; refused unless they have one type of real numbers."""
    x, y = tensor(prediction), tensor(target)
    a, b = tensor_type(x), tensor_type(y)
    if a != b or not a.dtype.is_float:
        _refuse(name, f"the prediction is {a}, the target {b}", "one type of real numbers for both")
    return in_wide(x), in_wide(y)


def _reduced(name: str, loss: Value, reduction: str) -> Value:
    _check_reduction(name, reduction)
    return loss if reduction == "none" else apply(reduction, loss, axes=None, keepdims=False)


def _check_reduction(name: str, reduction: str) -> None:
    if reduction not in REDUCTIONS:
        _refuse(name, f"reduction is {reduction!r}", f"one of {', '.join(REDUCTIONS)}")


def _refuse(name: str, got: str, wanted: str) -> Never:
    hint = (
        "reshape or cast one of them; nothing is broadcast in a loss" if "target" in got else None
    )
    raise TrainError(f"{name}: {got}, expected {wanted}", loc=caller(), hint=hint, code="MDLC1256")
