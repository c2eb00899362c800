"""Losses of a classification: nll_loss, and softmax_cross_entropy, which takes logits.

    loss = apply("nll_loss", log_p, target)                     # f32[n, classes], i64[n] -> f32[]
    loss = getitem(apply("softmax_cross_entropy", x, target, reduction="none"), 0)

The element at a target is taken by comparing: where(class == target, x, 0), summed over classes. An
infinity at another class is not multiplied by 0. f16 and bf16 are computed in f32 and rounded once.
Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minidlc.expr.types import DType, TensorType
from minidlc.graph.graph import Constant, Node, Value, apply, getitem, tensor_type
from minidlc.graph.op import Example, Op, OpKind, register_op
from minidlc.graph.types import TupleType
from minidlc.ops import rules, samples
from minidlc.ops.composing import in_wide, narrowed, scalar
from minidlc.ops.elementwise import widened
from minidlc.ops.gradients import Grads, where_true
from minidlc.ops.rules import Values

REDUCTIONS = ("none", "sum", "mean")


class Places(NamedTuple):
    """What a target says, place by place."""

    chosen: Value  # bool[n, classes, …]: the class of each place that counts
    wrong: Value  # bool[n, …]: it counts, but its target is no class
    counts: Value | None  # bool[n, …]: its target is not `ignore_index`; None: all count


@dataclass(frozen=True)
class Loss(Op):
    """Base: x holds a value for each class along axis 1, target the right class of each place.

    A place whose target is `ignore_index` does not count: its loss is 0. A target that is no class
    gives NaN. The mean is the sum of losses over the sum of the weights that were applied; where
    nothing counts it is NaN, as in ONNX and PyTorch.
    """

    kind = OpKind.COMPOSITE
    optional = (2,)
    reduction: str = "mean"
    ignore_index: int | None = None

    def loss_type(self, x: TensorType, target: TensorType, weight: TensorType | None) -> TensorType:
        """Check the inputs; the type of the loss."""
        if self.reduction not in REDUCTIONS:
            text = f"reduction {self.reduction!r} is none of {', '.join(REDUCTIONS)}"
            rules.fail(self, text, rules.RANGE)
        rules.elements(self, "float", x, *(() if weight is None else (weight,)))
        rules.elements(self, "int", target)
        if target.dtype.name not in ("i32", "i64"):
            text = f"the target takes i32 or i64 elements, got {target.dtype}"
            rules.fail(self, text, rules.ELEMENT, "use cast")
        if x.rank < 2:
            rules.fail(self, f"x must have its classes along axis 1, got {x}", rules.RANK)
        places = (x.shape[0], *x.shape[2:])
        if target.rank != len(places) or not all(map(rules.same_dim, target.shape, places)):
            wanted = target.with_shape(places)
            rules.fail(self, f"the target must be {wanted}, got {target}", rules.DIMS)
        if weight is not None and (
            weight.rank != 1 or not rules.same_dim(weight.shape[0], x.shape[1])
        ):
            text = f"the weight must be {x.dtype}[{x.shape[1]}], got {weight}"
            rules.fail(self, text, rules.DIMS)
        if not isinstance(x.shape[1], int):
            text = f"the number of classes of {x} is not known"
            rules.fail(self, text, rules.SYMBOLIC, "give the sizes: shapes={…}")
        return x.with_shape(places if self.reduction == "none" else ())

    def loss_of(self, x: Values, target: Values, weight: Values | None) -> Values:
        """NumPy: the loss of log-probabilities, in their type."""
        classes = x.shape[1]
        counts = np.full(target.shape, True) if self.ignore_index is None else (
            target != self.ignore_index
        )  # fmt: skip
        known = (target >= 0) & (target < classes)
        place = np.where(counts & known, target, 0)
        weights = np.ones(classes, x.dtype) if weight is None else weight.astype(x.dtype)
        if classes:
            picked = np.take_along_axis(x, np.expand_dims(place, 1), 1).squeeze(1)
            applied = np.where(counts, weights[place], x.dtype.type(0))
        else:
            picked = applied = np.zeros(target.shape, x.dtype)
        loss = np.where(counts, -picked * applied, x.dtype.type(0))
        loss = np.where(counts & ~known, x.dtype.type(np.nan), loss)
        if self.reduction == "none":
            return loss
        total = np.sum(loss, dtype=x.dtype)
        return total if self.reduction == "sum" else total / np.sum(applied, dtype=x.dtype)

    def loss_value(self, x: Value, target: Value, weight: Value | None) -> Value:
        """Graph side of `loss_of`."""
        element = tensor_type(x).dtype
        places = self.places(x, target)
        applied = self.applied(places, weight, element)
        loss = -_sum(apply("where", places.chosen, x, scalar(0, element)), (1,))
        if weight is not None and applied is not None:
            loss = loss * applied
        loss = apply("where", places.wrong, scalar(np.nan, element), loss)
        if self.reduction == "none":
            return loss
        total = _sum(loss, None)
        return total if self.reduction == "sum" else self.mean(total, target, applied)

    def places(self, x: Value, target: Value) -> Places:
        """Which class each place of the target chooses, compared with every class."""
        classes = tensor_type(x).dims[1]
        column = (classes, *[1] * (tensor_type(x).rank - 2))
        numbers = np.arange(classes, dtype=tensor_type(target).dtype.numpy).reshape(column)
        wanted = apply("unsqueeze", target, axes=(1,))
        chosen = apply("equal", wanted, Constant("classes", numbers))
        wrong = apply("logical_or", target < 0, target >= classes)
        ignored = self._ignored(target)
        if ignored is None:
            return Places(chosen, wrong, None)
        counts = apply("logical_not", apply("equal", target, ignored))
        chosen = apply("logical_and", chosen, apply("unsqueeze", counts, axes=(1,)))
        return Places(chosen, apply("logical_and", wrong, counts), counts)

    def applied(self, places: Places, weight: Value | None, element: DType) -> Value | None:
        """The weight of each place; None where every one is 1."""
        one, zero = scalar(1, element), scalar(0, element)
        if weight is not None:
            rank = tensor_type(places.chosen).rank
            column = apply("reshape", weight, shape=(-1, *[1] * (rank - 2)))
            return _sum(apply("where", places.chosen, column, zero), (1,))
        return None if places.counts is None else apply("where", places.counts, one, zero)

    def mean(self, total: Value, target: Value, applied: Value | None) -> Value:
        """The total divided by the sum of the weights applied."""
        if applied is not None:
            return total / _sum(applied, None)
        return total / scalar(tensor_type(target).size, tensor_type(total).dtype)

    def _ignored(self, target: Value) -> Constant | None:
        """`ignore_index` in the target's type; None for a number that no target can be."""
        kind = tensor_type(target).dtype.numpy
        info = np.iinfo(kind.name)
        if self.ignore_index is None or not info.min <= self.ignore_index <= info.max:
            return None
        return Constant("ignored", np.array(self.ignore_index, kind))


def _column(x: Value) -> Value:
    """One value a place, to broadcast over the classes."""
    return apply("unsqueeze", x, axes=(1,))


def _sum(x: Value, axes: tuple[int, ...] | None) -> Value:
    return apply("sum", x, axes=axes, keepdims=False)


@register_op
@dataclass(frozen=True)
class NllLoss(Loss):
    """nll_loss(x, target, weight)[n, …] = -x[n, target[n, …], …] * weight[target[n, …]], reduced.

    weight is 1 if omitted. reduction "none", "sum", or "mean": over the weights applied.
    """

    onnx = "NegativeLogLikelihoodLoss"

    def type_rule(
        self, x: TensorType, target: TensorType, weight: TensorType | None = None
    ) -> TensorType:
        return self.loss_type(x, target, weight)

    def reference(self, x: Values, target: Values, weight: Values | None = None) -> Values:
        return np.asarray(self.loss_of(widened(x), target, weight)).astype(x.dtype, copy=False)

    def decompose(self, x: Value, target: Value, weight: Value | None = None) -> Value:
        wide = None if weight is None else in_wide(weight)
        return narrowed(self.loss_value(in_wide(x), target, wide), x)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Those of every loss; no places at all; infinities at other classes."""
        yield from _examples(cls)
        for reduction in ("none", "sum"):
            yield Example(cls(reduction), (samples.array((0, 3)), np.zeros(0, np.int64)))
        x = np.array([[-np.inf, -1, -2], [-3, np.nan, -np.inf], [-1, -2, -np.inf]], np.float32)
        weight = np.array([0, 1, 2], np.float32)
        for reduction in REDUCTIONS:
            target = np.array([1, 0, 2], np.int64)
            yield Example(cls(reduction), (x, target))
            yield Example(cls(reduction, 2), (x, target, weight))


@register_op
@dataclass(frozen=True)
class SoftmaxCrossEntropy(Loss):
    """softmax_cross_entropy(x, target, weight) = nll_loss(y, target, weight) and y.

    y = log_softmax(x) along axis 1. Two results.
    """

    onnx = "SoftmaxCrossEntropyLoss"

    def type_rule(
        self, x: TensorType, target: TensorType, weight: TensorType | None = None
    ) -> TupleType:
        return TupleType((self.loss_type(x, target, weight), x))

    def reference(
        self, x: Values, target: Values, weight: Values | None = None
    ) -> tuple[Values, Values]:
        v = widened(x)
        shifted = v - np.max(v, axis=1, keepdims=True, initial=-np.inf)
        y = shifted - np.log(np.sum(np.exp(shifted), axis=1, keepdims=True, dtype=v.dtype))
        loss = np.asarray(self.loss_of(y, target, weight))
        return loss.astype(x.dtype, copy=False), y.astype(x.dtype, copy=False)

    def decompose(
        self, x: Value, target: Value, weight: Value | None = None
    ) -> tuple[Value, Value]:
        y = apply("log_softmax", in_wide(x), axis=1)
        wide = None if weight is None else in_wide(weight)
        return narrowed(self.loss_value(y, target, wide), x), narrowed(y, x)

    def gradient(self, y: Node, dy: tuple[Value | None, ...]) -> Grads:
        """dx = (softmax(x) - 1 at the target) * what its place counts: nothing is divided by it.

        A place whose target is no class gets 0, its loss being NaN; so do all where nothing counts.
        """
        x, target, weight = (*y.inputs, None)[:3]
        assert x is not None
        assert target is not None
        log_p = in_wide(getitem(y, 1))
        p, dx, dweight = apply("exp", log_p), None, None
        if dy[1] is not None:
            dx = in_wide(dy[1]) - p * apply("sum", in_wide(dy[1]), axes=(1,))
        if dy[0] is not None:
            places = self.places(x, target)
            wide = None if weight is None else in_wide(weight)
            applied = self.applied(places, wide, tensor_type(log_p).dtype)
            share = in_wide(dy[0])
            if self.reduction == "mean":
                share = self._share_of_mean(share, target, applied)
            each = share if applied is None else share * applied
            each = _column(apply("where", places.wrong, 0.0, each))
            toward = p * each - where_true(places.chosen, each)
            dx = toward if dx is None else dx + toward
            if weight is not None:
                dweight = narrowed(self._to_weight(y, places, log_p, share), weight)
        return (None if dx is None else narrowed(dx, x), None, dweight)[: len(y.inputs)]

    def _share_of_mean(self, dy: Value, target: Value, applied: Value | None) -> Value:
        """What a place of weight 1 has of a mean's dy. Of a mean over nothing it has 0, not dy / 0:
        else one batch of ignored targets would turn every weight into NaN.
        """
        if applied is None:
            return self.mean(dy, target, None)
        total = _sum(applied, None)
        nothing = apply("equal", total, 0)
        return apply("where", nothing, 0.0, dy / apply("where", nothing, 1.0, total))

    def _to_weight(self, y: Node, places: Places, log_p: Value, share: Value) -> Value:
        """How the loss changes with the weight of a class: each of its places is due -log(p)."""
        due = -_sum(where_true(places.chosen, log_p), (1,))
        if self.reduction == "mean":  # a weight is in the divisor, too
            due = due - in_wide(getitem(y, 0))
        due = where_true(places.chosen, _column(due * share))
        axes = tuple(d for d in range(tensor_type(due).rank) if d != 1)
        return _sum(due, axes)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Those of every loss."""
        return _examples(cls)


def _examples(cls: Any) -> Iterator[Example]:
    """Ranks, reductions, weights, ignored targets (classes or not), element types."""
    for shape in ((3, 5), (1, 1), (2, 3, 4), (2, 4, 1, 3)):
        places = (shape[0], *shape[2:])
        x = samples.array(shape)
        target = samples.array(places, "i64", 0, shape[1] - 1)
        weight = samples.array(shape[1:2], low=0.1)
        for reduction in REDUCTIONS:
            yield Example(cls(reduction), (x, target), 1e-5, 1e-5)
            for ignored in (None, 0, -7):
                yield Example(cls(reduction, ignored), (x, target, weight), 1e-5, 1e-5)
    target = np.array([2, -2, -2, 0], np.int32)
    for reduction in REDUCTIONS:
        yield Example(cls(reduction, -2), (samples.array((4, 3)), target))
    for element in ("f64", "f16", "bf16"):
        inputs = samples.array((4, 3), element), np.abs(target) % 3
        yield Example(cls(), inputs, **samples.tolerance(element))
