"""Matrix products: matmul after NumPy's rules, gemm as ONNX has it.

    x @ w                                           # f32[4, 8] and f32[8, 3] -> f32[4, 3]
    apply("gemm", a, b, c, transB=True)             # decomposes into transpose, matmul, mul, add

Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.index import Index
from minidlc.expr.nodes import Expr
from minidlc.expr.types import TensorType
from minidlc.graph.graph import Node, Value, apply, tensor_type
from minidlc.graph.op import Example, Op, OpKind, Pattern, register_op
from minidlc.ops import rules, samples
from minidlc.ops.composing import reshaped, transposed
from minidlc.ops.elementwise import broadcast_index, load, rounded, widened
from minidlc.ops.gradients import Grads, given, summed_to
from minidlc.ops.rules import Values
from minidlc.te.tensor import Tensor, compute, reduce_axis, sum


def _matrix(x: Value, missing: int) -> Value:
    """A vector as a matrix of one row (0) or one column (-1)."""
    return x if tensor_type(x).rank > 1 else apply("unsqueeze", x, axes=(missing,))


def _transposed(x: Value) -> Value:
    """The matrices along the last two axes, transposed."""
    rank = tensor_type(x).rank
    return transposed(x, (*range(rank - 2), rank - 1, rank - 2))


@register_op
@dataclass(frozen=True)
class MatMul(Op):
    """matmul(a, b)[..., i, j] = sum over k of a[..., i, k] * b[..., k, j].

    Leading axes broadcast; an input of rank 1 is a row on the left, a column on the right, and its
    axis is missing in the result. f16 and bf16 are summed in f32, integers wrap in their type.
    """

    name = "matmul"
    onnx = "MatMul"
    pattern = Pattern.OUT_FUSABLE
    schedule = "matmul"

    def type_rule(self, a: TensorType, b: TensorType) -> TensorType:
        element = rules.elements(self, rules.NUMBERS, a, b)
        for name, t in (("a", a), ("b", b)):
            if t.rank == 0:
                rules.fail(self, f"{name} is a scalar", rules.RANK, "use mul")
        k, n = a.shape[-1], b.shape[max(b.rank - 2, 0)]
        if not rules.same_dim(k, n):
            fits = b.rank > 1 and rules.same_dim(k, b.shape[-1])
            hint = "transpose(b) would fit" if fits else None
            rules.fail(self, f"inner dimensions differ: {k} != {n}", rules.DIMS, hint)
        batch = rules.broadcast(self, *(t.with_shape(t.shape[:-2]) for t in (a, b)))
        row = a.shape[-2:-1]
        column = b.shape[-1:] if b.rank > 1 else ()
        return TensorType(element, batch + row + column)

    def reference(self, a: Values, b: Values) -> Values:
        return np.asarray(np.matmul(widened(a), widened(b))).astype(a.dtype, copy=False)

    def compute(self, a: Tensor, b: Tensor) -> Tensor:
        out = self.type_rule(a.type, b.type)
        rows, columns = len(a.shape[-2:-1]), len(b.shape[1:2])
        batch = out.dims[: out.rank - rows - columns]
        k = reduce_axis(a.shape[-1], "k")

        def body(*index: Index) -> Expr:
            lead, rest = index[: len(batch)], index[len(batch) :]
            left = (*broadcast_index(a.shape[:-2], lead, batch), *rest[:rows], k.index)
            right = (*broadcast_index(b.shape[:-2], lead, batch), k.index, *rest[rows:])
            return sum(load(a, left) * load(b, right), k)

        axes = (*(f"b{d}" for d in range(len(batch))), *"i" * rows, *"j" * columns)
        product = compute(out.dims, body, self.name, axes=axes)
        return rounded(product, out.dtype, "rounded")

    def gradient(self, y: Node, dy: Value) -> Grads:
        """da = dy b^T, db = a^T dy, on matrices; batches that were broadcast are summed."""
        a, b = given(y)
        left, right = _matrix(a, 0), _matrix(b, -1)
        batch = tensor_type(y).dims[: tensor_type(y).rank - (a.ndim > 1) - (b.ndim > 1)]
        rows, columns = tensor_type(left).dims[-2], tensor_type(right).dims[-1]
        if b.ndim <= 2:  # one matrix for all rows: the rows of all batches are rows of one matrix
            batch, rows = (), math.prod(tensor_type(left).dims[:-1])
            left = reshaped(left, (rows, tensor_type(left).dims[-1]))
        dy = reshaped(dy, (*batch, rows, columns))
        da = summed_to(apply("matmul", dy, _transposed(right)), left)
        db = summed_to(apply("matmul", _transposed(left), dy), right)
        return reshaped(da, tensor_type(a).dims), reshaped(db, tensor_type(b).dims)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Rank 1 to 4, odd sizes, size 1, broadcast batches, element types, no terms at all."""
        shapes = (
            ((4, 8), (8, 3)), ((7, 5), (5, 17)), ((1, 1), (1, 1)), ((1, 9), (9, 33)),
            ((6,), (6,)), ((6,), (6, 4)), ((3, 6), (6,)), ((2, 3, 4), (4, 5)),
            ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((4,), (3, 4, 2)), ((3, 2, 4), (4,)),
        )  # fmt: skip
        for a, b in shapes:
            inputs = samples.array(a), samples.array(b, seed=1)
            yield Example(cls(), inputs, 1e-5, 1e-5)
        for element in ("f64", "f16", "bf16", "i32", "i64", "u32", "i8"):
            inputs = samples.array((5, 7), element, -9, 9), samples.array((7, 3), element, -9, 9)
            bound = samples.tolerance(element)
            yield Example(cls(), inputs, **{key: 8 * value for key, value in bound.items()})
        infinite = np.array([[np.inf, 1], [np.nan, 0], [-np.inf, 2]], np.float32)
        yield Example(cls(), (infinite, np.array([[1, -1], [2, 3]], np.float32)))


@register_op
@dataclass(frozen=True)
class Gemm(Op):
    """gemm(a, b, c) = alpha * a' @ b' + beta * c; a' is a or its transpose; c broadcasts, or None.

    alpha and beta other than 1 need floats. With a beta of 0, c is not read: 0 * inf adds no NaN.
    """

    name = "gemm"
    onnx = "Gemm"
    kind = OpKind.COMPOSITE
    optional = (2,)
    alpha: float = 1.0
    beta: float = 1.0
    transA: bool = False
    transB: bool = False

    def type_rule(self, a: TensorType, b: TensorType, c: TensorType | None = None) -> TensorType:
        inputs = (a, b) if c is None else (a, b, c)
        element = rules.elements(self, rules.NUMBERS, *inputs)
        rules.finite(self, alpha=self.alpha, beta=self.beta)
        if not element.is_float and (self.alpha, self.beta) != (1.0, 1.0):
            rules.fail(self, f"alpha and beta scale floats only, got {element}", rules.ELEMENT)
        rules.rank(self, "a", a, 2)
        rules.rank(self, "b", b, 2)
        m, k = reversed(a.shape) if self.transA else a.shape
        rows, n = reversed(b.shape) if self.transB else b.shape
        if not rules.same_dim(k, rows):
            fits = rules.same_dim(k, n)
            hint = f"transB={not self.transB} would fit" if fits else None
            rules.fail(self, f"inner dimensions differ: {k} != {rows}", rules.DIMS, hint)
        out = TensorType(element, (m, n))
        if c is not None and not _fits(rules.broadcast(self, out, c), (m, n)):
            rules.fail(self, f"c: {c} does not broadcast to {out}", rules.DIMS)
        return out

    def reference(self, a: Values, b: Values, c: Values | None = None) -> Values:
        left, right = widened(a), widened(b)
        y = (left.T if self.transA else left) @ (right.T if self.transB else right)
        y = y if self.alpha == 1 else y * y.dtype.type(self.alpha)
        if c is not None and self.beta:
            y = y + (widened(c) if self.beta == 1 else widened(c) * y.dtype.type(self.beta))
        return y.astype(a.dtype, copy=False)

    def decompose(self, a: Value, b: Value, c: Value | None = None) -> Value:
        left = apply("transpose", a, perm=(1, 0)) if self.transA else a
        right = apply("transpose", b, perm=(1, 0)) if self.transB else b
        y = left @ right
        if self.alpha != 1:
            y = y * self.alpha
        if c is None or not self.beta:
            return y
        return y + (c if self.beta == 1 else c * self.beta)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Every transposition, biases of every rank and none, scales."""
        a, b = samples.array((5, 7)), samples.array((7, 3), seed=1)
        for left, right in ((False, False), (True, False), (False, True), (True, True)):
            inputs = (a.T.copy() if left else a, b.T.copy() if right else b)
            bias = samples.array((3,), seed=2)
            yield Example(cls(transA=left, transB=right), (*inputs, bias), 1e-5, 1e-5)
        for shape in ((), (1,), (3,), (5, 1), (1, 3), (5, 3)):
            yield Example(cls(0.5, 2.0), (a, b, samples.array(shape)), 1e-5, 1e-5)
        yield Example(cls(), (a, b), 1e-5, 1e-5)
        yield Example(cls(beta=0.0), (a, b, np.full((3,), np.inf, np.float32)), 1e-5, 1e-5)
        yield Example(cls(), tuple(samples.array(s, "i32", -9, 9) for s in ((2, 3), (3, 4), (4,))))
        wide_inputs = tuple(samples.array(s, "f64") for s in ((2, 3), (3, 4), (4,)))
        yield Example(cls(2.0), wide_inputs, 1e-11, 1e-12)


def _fits(shape: rules.Shape, wanted: rules.Shape) -> bool:
    return len(shape) == len(wanted) and all(map(rules.same_dim, shape, wanted))
