"""Losses: how wrong predictions are, as one number.

    mse(prediction, target)                         # f32[n, 3], f32[n, 3] -> f32[()]
    cross_entropy(logits, labels)                   # f32[n, classes], i64[n] -> f32[()]
    huber(prediction, target, reduction="none")     # one loss for each element

Functions of values that build nodes; in `mc.eager()` they take arrays. f16 and bf16 are computed in
f32, and so is the loss. Shapes must be equal: a prediction f32[n, 1] beside a target f32[n] would
be broadcast to all n * n pairs. Treated in course chapter 03_autodiff.
"""

from __future__ import annotations

from typing import Any, Never

from minidlc.graph.graph import Value, apply, tensor_type
from minidlc.ops.composing import in_wide
from minidlc.support.errors import TrainError
from minidlc.support.locations import caller

REDUCTIONS = ("mean", "sum", "none")


def mse(prediction: Value, target: Value, reduction: str = "mean") -> Value:
    """(prediction - target)², reduced: the mean, the sum, or "none".

    Raises TrainError (MDLC1256), as all losses here, for shapes, element types or a reduction that
    do not fit.
    """
    error = _difference("mse", prediction, target)
    return _reduced("mse", error * error, reduction)


def mae(prediction: Value, target: Value, reduction: str = "mean") -> Value:
    """|prediction - target|, reduced. Where they are equal the gradient is 0."""
    return _reduced("mae", abs(_difference("mae", prediction, target)), reduction)


def huber(prediction: Value, target: Value, delta: float = 1.0, reduction: str = "mean") -> Value:
    """d² / 2 for errors d up to `delta`, delta * (d - delta / 2) beyond (Huber, 1964)."""
    if not 0 < delta < float("inf"):
        _refuse("huber", f"delta is {delta}", "a positive number")
    d = abs(_difference("huber", prediction, target))
    near = apply("minimum", d, delta)
    return _reduced("huber", near * near * 0.5 + (d - near) * delta, reduction)


def cross_entropy(
    logits: Value,
    labels: Value,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Value:
    """-log softmax(logits) at the label: classes along axis 1, labels i32 or i64 without it.

    `label_smoothing` e asks for 1 - e at the label and e over all classes (Szegedy et al., 2016).
    A place whose label is `ignore_index` has loss 0 and does not count in the mean. A label that is
    no class gives NaN. Raises TypeRuleError for types that do not fit.
    """
    _check_reduction("cross_entropy", reduction)
    if not 0 <= label_smoothing < 1:
        _refuse("cross_entropy", f"label_smoothing is {label_smoothing}", "0 up to, not with, 1")
    own = "none" if label_smoothing else reduction
    options: dict[str, Any] = {"reduction": own, "ignore_index": ignore_index}
    loss, log_p = apply("softmax_cross_entropy", in_wide(logits), labels, **options)
    if not label_smoothing:
        return loss
    even = -apply("mean", log_p, axes=(1,), keepdims=False)
    smooth = loss * (1 - label_smoothing) + even * label_smoothing
    if ignore_index is None:
        return _reduced("cross_entropy", smooth, reduction)
    counts = apply("logical_not", apply("equal", labels, ignore_index))
    kept = apply("where", counts, smooth, 0)
    if reduction != "mean":
        return _reduced("cross_entropy", kept, reduction)
    count = apply(
        "sum", apply("cast", counts, to=tensor_type(kept).dtype), axes=None, keepdims=False
    )
    return _reduced("cross_entropy", kept, "sum") / count


def binary_cross_entropy(logits: Value, target: Value, reduction: str = "mean") -> Value:
    """-t log s(x) - (1 - t) log s(-x), s the sigmoid, x the logits: never the log of a rounded 0.

    log s(x) = -softplus(-x) is exact for large logits, and smooth at 0, where |x| is not.
    """
    x, t = _pair("binary_cross_entropy", logits, target)
    loss = t * apply("softplus", -x) + (1.0 - t) * apply("softplus", x)
    return _reduced("binary_cross_entropy", loss, reduction)


def kl_divergence(log_prediction: Value, target: Value, reduction: str = "mean") -> Value:
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


def hinge(scores: Value, target: Value, reduction: str = "mean") -> Value:
    """max(0, 1 - target * score) for targets -1 and 1: the loss of a support vector machine."""
    score, t = _pair("hinge", scores, target)
    return _reduced("hinge", apply("relu", 1.0 - t * score), reduction)


def _difference(name: str, prediction: Value, target: Value) -> Value:
    a, b = _pair(name, prediction, target)
    return a - b


def _pair(name: str, prediction: Value, target: Value) -> tuple[Value, Value]:
    """Both in the type that is computed in; refused unless they have one type of real numbers."""
    a, b = tensor_type(prediction), tensor_type(target)
    if a != b or not a.dtype.is_float:
        _refuse(name, f"the prediction is {a}, the target {b}", "one type of real numbers for both")
    return in_wide(prediction), in_wide(target)


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
