"""Rotary positions: pairs of features turned by an angle that depends on the position.

    apply("rotary_embedding", x, cos, sin)              # x: f32[batch, heads, sequence, depth]
    apply("rotary_embedding", x, cos, sin, num_heads=8) # x: f32[batch, sequence, 8 * depth]

cos and sin hold the angles of each position: f32[batch, sequence, depth / 2]. f16 and bf16 are
computed in f32 and rounded once. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.types import TensorType, dtype
from minidlc.graph.graph import Value, apply, tensor_type
from minidlc.graph.op import Example, Op, OpKind, register_op
from minidlc.ops import rules, samples
from minidlc.ops.composing import in_wide, narrowed
from minidlc.ops.elementwise import widened
from minidlc.ops.rules import Values


@dataclass(frozen=True)
class _Sizes:
    """x as [batch, sequence, heads, depth] or [batch, heads, sequence, depth]; turned features."""

    shape: tuple[int, int, int, int]
    heads_axis: int
    turned: int


@register_op
@dataclass(frozen=True)
class RotaryEmbedding(Op):
    """rotary_embedding(x, cos, sin): pairs (a, b) of features become (a', b').

    a' = a * cos - b * sin, b' = a * sin + b * cos. Pair i is the features i and i + n / 2 of each
    head, or 2 i and 2 i + 1 if interleaved; n is `rotary_embedding_dim`, 0 meaning all; features
    from n on are kept. x has rank 4, or rank 3 with the heads side by side (`num_heads`).
    """

    onnx = "RotaryEmbedding"
    kind = OpKind.COMPOSITE
    interleaved: bool = False
    num_heads: int = 0
    rotary_embedding_dim: int = 0

    def type_rule(self, x: TensorType, cos: TensorType, sin: TensorType) -> TensorType:
        rules.elements(self, "float", x, cos, sin)
        rules.rank(self, "x", x, 3, 4)
        s = self._sizes(x)
        batch, sequence = s.shape[0], s.shape[3 - s.heads_axis]
        for name, t in (("cos", cos), ("sin", sin)):
            if t.dims != (batch, sequence, s.turned // 2):
                wanted = t.with_shape((batch, sequence, s.turned // 2))
                rules.fail(self, f"{name} must be {wanted}, got {t}", rules.DIMS)
        return x

    def _sizes(self, x: TensorType) -> _Sizes:
        if x.rank == 3:
            batch, sequence, hidden = x.dims
            if self.num_heads < 1 or hidden % self.num_heads:
                text = f"x {x} cannot be split into heads: num_heads is {self.num_heads}"
                rules.fail(self, text, rules.RANGE, "num_heads must divide the last dim")
            shape = batch, sequence, self.num_heads, hidden // self.num_heads
        else:
            shape = x.dims[0], x.dims[1], x.dims[2], x.dims[3]
        turned = self.rotary_embedding_dim or shape[3]
        if not 0 <= turned <= shape[3] or turned % 2:
            text = f"{turned} features cannot be turned in pairs, of {shape[3]}"
            rules.fail(self, text, rules.RANGE, "rotary_embedding_dim is even, at most the depth")
        return _Sizes(shape, 2 if x.rank == 3 else 1, turned)

    def reference(self, x: Values, cos: Values, sin: Values) -> Values:
        s = self._sizes(TensorType(dtype(x.dtype), x.shape))
        y = widened(x).reshape(s.shape).copy()
        cos, sin = (np.expand_dims(widened(t), s.heads_axis) for t in (cos, sin))
        half = s.turned // 2
        first, second = slice(0, half), slice(half, s.turned)
        if self.interleaved:
            first, second = slice(0, s.turned, 2), slice(1, s.turned, 2)
        a, b = y[..., first].copy(), y[..., second].copy()
        y[..., first] = a * cos - b * sin
        y[..., second] = a * sin + b * cos
        return y.reshape(x.shape).astype(x.dtype)

    def decompose(self, x: Value, cos: Value, sin: Value) -> Value:
        s = self._sizes(tensor_type(x))
        wide = apply("reshape", in_wide(x), shape=s.shape)
        cos, sin = (apply("unsqueeze", in_wide(t), axes=(s.heads_axis,)) for t in (cos, sin))
        half = s.turned // 2
        a, b = _part(wide, 0, half), _part(wide, half, s.turned)
        if self.interleaved:
            a, b = _part(wide, 0, s.turned, 2), _part(wide, 1, s.turned, 2)
        pair = a * cos - b * sin, a * sin + b * cos
        if self.interleaved:
            columns = (apply("unsqueeze", v, axes=(4,)) for v in pair)
            turned = apply("concat", *columns, axis=4)
            turned = apply("reshape", turned, shape=(*s.shape[:3], s.turned))
        else:
            turned = apply("concat", *pair, axis=3)
        if s.turned < s.shape[3]:
            turned = apply("concat", turned, _part(wide, s.turned, s.shape[3]), axis=3)
        return narrowed(apply("reshape", turned, shape=tensor_type(x).dims), x)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Ranks 3 and 4, both pairings, all features and some, element types."""
        for interleaved in (False, True):
            for turned in (0, 4, 2):
                angles = _angles((2, 3, (turned or 6) // 2))
                op = cls(interleaved, 0, turned)
                yield Example(op, (samples.array((2, 4, 3, 6)), *angles), 1e-5, 1e-5)
                op = cls(interleaved, 4, turned)
                yield Example(op, (samples.array((2, 3, 24)), *angles), 1e-5, 1e-5)
        for element in ("f16", "bf16"):
            inputs = samples.array((2, 4, 3, 6), element), *_angles((2, 3, 3), element)
            yield Example(cls(), inputs, **samples.tolerance(element))


def _part(v: Value, start: int, end: int, step: int = 1) -> Value:
    return apply("slice", v, starts=(start,), ends=(end,), axes=(3,), steps=(step,))


def _angles(shape: tuple[int, ...], element: str = "f32") -> tuple[Values, Values]:
    angle = samples.array(shape)
    return tuple(f(angle).astype(dtype(element).numpy) for f in (np.cos, np.sin))  # pyright: ignore
