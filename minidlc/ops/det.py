"""The determinant of square matrices: det.

    apply("det", x)                                 # f32[5, 3, 3] -> f32[5]

Elimination with row exchanges: which row is taken depends on values, so the loops are written by
hand. Treated in course chapter 04_lowering.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import TensorType
from minidlc.graph.graph import Constant, Node, Value, apply, tensor_type
from minidlc.graph.op import Example, Op, register_op
from minidlc.loop.nodes import LoopFunction
from minidlc.ops import rules, samples
from minidlc.ops.elementwise import wide, widened
from minidlc.ops.gradients import Grads, chained, given
from minidlc.ops.nests import function, nest, serial
from minidlc.ops.rules import Values
from minidlc.support.errors import GradientError

LARGEST = 64  # rows of a matrix whose determinant has a gradient

_MATRIX = """
a = alloc({element}[{n}, {n}], "arena")
product = alloc({element}[1], "stack")
kept = alloc({element}[1], "stack")
best = alloc(i64[1], "stack")
for i in serial(0, {n}):
    for j in serial(0, {n}):
        a[i, j] = cast("{element}", x[{batch}i, j])
product[0] = {element}(1)
for k in serial(0, {n}):
    best[0] = index(k)
    for i in serial(0, {n} - 1 - k):
        if abs(a[i + k + 1, k]) > abs(a[at(best[0], {n}), k]):
            best[0] = index(i + k + 1)
    product[0] = where(best[0] == index(k), product[0], product[0] * {element}(-1))
    for j in serial(0, {n}):
        kept[0] = a[k, j]
        a[k, j] = a[at(best[0], {n}), j]
        a[at(best[0], {n}), j] = kept[0]
    product[0] = product[0] * a[k, k]
    for i in serial(0, {n} - 1 - k):
        kept[0] = where(a[k, k] == {element}(0), {element}(0), a[i + k + 1, k] / a[k, k])
        for j in serial(0, {n}):
            a[i + k + 1, j] = a[i + k + 1, j] - kept[0] * a[k, j]
y[{result}] = cast("{out}", product[0])
"""


@register_op
@dataclass(frozen=True)
class Det(Op):
    """det(x)[…] = the determinant of the matrix x[…, :, :]; of a matrix without elements it is 1.

    f16 and bf16 are computed in f32 and rounded once.
    """

    onnx = "Det"

    def type_rule(self, x: TensorType) -> TensorType:
        rules.elements(self, "float", x)
        if x.rank < 2 or not rules.same_dim(x.shape[-1], x.shape[-2]):
            rules.fail(self, f"takes square matrices, got {x}", rules.DIMS)
        return x.with_shape(x.shape[:-2])

    def reference(self, x: Values) -> Values:
        return np.asarray(np.linalg.det(widened(x))).astype(x.dtype)

    def loops(self, x: TensorType) -> LoopFunction:
        y = self.type_rule(x)
        batch = [f"b{d}" for d in range(y.rank)]
        text = _MATRIX.format(
            element=wide(x.dtype), out=x.dtype, n=x.dims[-1],
            batch="".join(f"{b}, " for b in batch), result=", ".join(batch) or "()",
        )  # fmt: skip
        if not x.dims[-1]:
            text = text[text.index("y[") :].replace("product[0]", f"{wide(x.dtype)}(1)")
        lines = nest(serial(batch, y.dims), *text.strip().splitlines()) if y.size else []
        return function(self.name, {"x": x, "y": y}, lines)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """dx[…, i, j] = dy * the determinant of x with row i replaced by 1 at j and 0 elsewhere.

        These cofactors exist for singular matrices too. There are n * n of them, each of a matrix
        of n * n: GradientError (MDLC1220) for more than 64 rows.
        """
        n = tensor_type(given(y)[0]).dims[-1]
        if n > LARGEST:
            text = f"the gradient of det of {n} rows would take {n}**4 numbers"
            hint = f"it is meant for small matrices, up to {LARGEST} rows"
            raise GradientError(text, loc=y.loc, hint=hint, code="MDLC1220")

        def rule(dy: Value, x: Value, _y: Value) -> Value:
            rank = tensor_type(x).rank
            eye = Constant("eye", np.eye(n, dtype=tensor_type(x).dtype.numpy))
            row = apply("unsqueeze", eye, axes=(1, 3))  # [i, 1, row, 1]
            unit = apply("unsqueeze", eye, axes=(0, 2))  # [1, j, 1, column]
            each = apply("unsqueeze", x, axes=(rank - 2, rank - 1))  # […, 1, 1, row, column]
            cofactors = apply("where", apply("equal", row, 1.0), unit, each)
            return apply("unsqueeze", dy, axes=(rank - 2, rank - 1)) * apply("det", cofactors)

        return chained(y, dy, rule)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Every size from 0, batches, singular matrices, a zero pivot, element types."""
        for shape in (
            (1, 1), (2, 2), (3, 3), (7, 7), (5, 3, 3), (2, 3, 4, 4), (0, 2, 2), (2, 0, 0),
        ):  # fmt: skip
            yield Example(cls(), (samples.array(shape),), 1e-4, 1e-4)
        rows = [[[0, 1], [1, 0]], [[1, 2], [2, 4]], [[0, 0], [0, 0]], [[0, 2], [0, 3]]]
        yield Example(cls(), (np.array(rows, np.float32),), 1e-5, 1e-6)
        yield Example(cls(), (np.eye(5, dtype=np.float32)[[4, 0, 1, 2, 3]],), 1e-5, 1e-6)
        for element, bound in (("f64", 1e-11), ("f16", 1e-2), ("bf16", 5e-2)):
            yield Example(cls(), (samples.array((3, 4, 4), element),), bound, bound)
