"""Scaled dot product attention: masks, windows, caches, shared heads; as ONNX's Attention has it.

    y, key, value, scores = (getitem(a, n) for n in range(4))   # a = apply("attention", q, k, v)
    apply("attention", q, k, v, is_causal=True)                 # f32[batch, heads, queries, depth]
    apply("attention", q, k, v, q_num_heads=8, kv_num_heads=2)  # f32[batch, queries, 8 * depth]

Composed of matmul, where and softmax; what nobody reads of its results is dropped by dce. f16 and
bf16 are computed in f32 and rounded once. Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, TypeVar

import numpy as np

from minidlc.expr.types import DType, TensorType, dtype, f32, f64
from minidlc.graph.graph import Constant, Value, apply, tensor_type
from minidlc.graph.op import Example, Op, OpKind, register_op
from minidlc.graph.types import TupleType
from minidlc.ops import rules
from minidlc.ops.attention_examples import attention_examples
from minidlc.ops.attention_sizes import Sizes, check_optional, sizes_of
from minidlc.ops.composing import cast_to, reshaped, scalar
from minidlc.ops.rules import Values

RAW, CAPPED, MASKED, WEIGHTS = range(4)  # what the fourth result holds
PRECISIONS = ("", "f16", "bf16", "f32", "f64")
FARTHEST = 1 << 40  # a window beyond any sequence, without overflow of a position


@register_op
@dataclass(frozen=True)
class Attention(Op):
    """attention(q, k, v, mask, …) = softmax(scale * q @ k.T + mask) @ v.

    Inputs after v may be omitted: mask, past_key, past_value, lengths. Results: y; keys and values
    with the past before them; scores, by `qk_matmul_output_mode` raw, after the softcap, masked, or
    after softmax; with lengths y and scores alone. q head h reads k head h // (heads / kv_heads).
    Query i has position i + past, or i + lengths[b] - queries; causal: keys at j <= position;
    windows: position - left <= j <= position + right, -1 being no bound; with lengths:
    j < lengths[b]. A bool mask says which keys count, a float mask is added; a mask short of keys
    hides the rest. A row without keys is 0. scale 0 is not the default: that is None, and
    1 / sqrt(depth). softcap c > 0 makes a score s c * tanh(s / c).

    Its gradient is that of its parts. cse finds that they are computed forward already, so that the
    weights are kept and nothing is computed twice; where memory is short, rematerialisation gives
    them up, as a rule of its own that computes them again would always do.
    """

    kind = OpKind.COMPOSITE
    onnx = "Attention"
    optional = (3, 4, 5, 6)
    is_causal: bool = False
    q_num_heads: int = 0
    kv_num_heads: int = 0
    scale: float | None = None
    softcap: float = 0.0
    left_window_size: int = -1
    right_window_size: int = -1
    qk_matmul_output_mode: int = RAW
    softmax_precision: str = ""  # f64 is computed in f64; others never in less than f32

    def type_rule(
        self, q: TensorType, k: TensorType, v: TensorType, *optional: TensorType | None
    ) -> TupleType:
        self._check_attributes()
        if len(optional) > 4:
            rules.fail(self, f"takes 3 to 7 inputs, got {3 + len(optional)}", "MDLC0201")
        mask, past_key, past_value, lengths = _four(optional)
        rules.elements(self, "float", *(t for t in (q, k, past_key) if t is not None))
        rules.elements(self, "float", *(t for t in (v, past_value) if t is not None))
        s = self._sizes(q, k, v, past_key)
        check_optional(self, s, mask, (past_key, past_value), lengths)
        key = k.with_shape(s.cache(s.keys, s.depth))
        value = v.with_shape(s.cache(s.keys, s.value_depth))
        cache = (key, value) if lengths is None else ()
        return TupleType((q.with_shape(s.y), *cache, q.with_shape(s.scores)))

    def _sizes(
        self, q: TensorType, k: TensorType, v: TensorType, past_key: TensorType | None
    ) -> Sizes:
        return sizes_of(self, (self.q_num_heads, self.kv_num_heads), q, k, v, past_key)

    def _check_attributes(self) -> None:
        rules.finite(self, scale=self.scale, softcap=self.softcap)
        if self.softcap < 0:
            rules.fail(self, f"softcap must not be negative, got {self.softcap}", rules.RANGE)
        if not RAW <= self.qk_matmul_output_mode <= WEIGHTS:
            text = f"qk_matmul_output_mode must be 0 to 3, got {self.qk_matmul_output_mode}"
            rules.fail(self, text, rules.RANGE)
        if min(self.left_window_size, self.right_window_size) < -1:
            text = "window sizes must be -1 (no bound) or more, got"
            text += f" {self.left_window_size} and {self.right_window_size}"
            rules.fail(self, text, rules.RANGE)
        if self.softmax_precision not in PRECISIONS:
            text = f"softmax_precision must be one of {PRECISIONS}, got {self.softmax_precision!r}"
            rules.fail(self, text, rules.RANGE)

    def _scale(self, s: Sizes) -> float:
        return 1 / math.sqrt(max(s.depth, 1)) if self.scale is None else self.scale

    def conditions(self, s: Sizes, key: Any, query: Any, lengths: Any) -> list[Any]:
        """What must hold for a key to count: of arrays and graph values alike.

        `key` holds 0, 1, … along the last axis, `query` along the one before; `lengths` has rank 4.
        """
        position = query + s.past if lengths is None else lengths + (query - s.queries)
        left, right = (min(w, FARTHEST) for w in (self.left_window_size, self.right_window_size))
        found: list[Any] = []
        if self.is_causal:
            found.append(key <= position)
        if left >= 0:
            found.append(key >= position - left)
        if right >= 0:
            found.append(key <= position + right)
        if lengths is not None:
            found.append(key < lengths)
        return found

    def reference(
        self, q: Values, k: Values, v: Values, *optional: Values | None
    ) -> tuple[Values, ...]:
        mask, past_key, past_value, lengths = _four(optional)
        past = None if past_key is None else _type(past_key)
        s = self._sizes(_type(q), _type(k), _type(v), past)
        element, result = _element(_type(q), _type(v)), q.dtype
        if s.packed:
            q, k, v = (
                a.reshape(*a.shape[:2], n, a.shape[2] // n).transpose(0, 2, 1, 3)
                for a, n in ((q, s.heads), (k, s.kv_heads), (v, s.kv_heads))
            )
        key = k if past_key is None else np.concatenate((past_key, k), axis=2)
        value = v if past_value is None else np.concatenate((past_value, v), axis=2)
        shared = s.heads // s.kv_heads
        keys, values = (_as(element, np.repeat(a, shared, axis=1)) for a in (key, value))
        kind = keys.dtype.type
        raw = (_as(element, q) @ keys.swapaxes(2, 3)) * kind(self._scale(s))
        capped = raw
        if self.softcap:
            capped = np.tanh(raw / kind(self.softcap)) * kind(self.softcap)
        masked = self._masked(s, capped, mask, lengths)
        weights = self._weights(masked)
        y = weights @ values
        y = y.transpose(0, 2, 1, 3).reshape(s.y) if s.packed else y
        shown = (raw, capped, masked, weights)[self.qk_matmul_output_mode]
        cache = (key, value) if lengths is None else ()
        return y.astype(result), *cache, shown.astype(result)

    def _masked(
        self, s: Sizes, scores: Values, mask: Values | None, lengths: Values | None
    ) -> Values:
        """NumPy: scores with what the mask adds; -inf where a key does not count."""
        if lengths is not None:
            lengths = lengths.reshape(-1, 1, 1, 1)
        query = np.arange(s.queries).reshape(-1, 1)
        found = self.conditions(s, np.arange(s.keys), query, lengths)
        if mask is not None:
            missing = [(0, 0)] * (mask.ndim - 1) + [(0, s.keys - mask.shape[-1])]
            hidden = False if mask.dtype == bool else -np.inf
            mask = np.pad(mask, missing, constant_values=hidden)
            found.append(mask if mask.dtype == bool else mask != -np.inf)
            scores = scores if mask.dtype == bool else scores + mask.astype(scores.dtype)
        return np.where(reduce(np.logical_and, found, True), scores, -np.inf).astype(scores.dtype)

    def _weights(self, masked: Values) -> Values:
        """NumPy: softmax of each row; a row of -inf alone is 0."""
        wide = masked.astype(np.float64) if self.softmax_precision == "f64" else masked
        largest = np.max(wide, axis=-1, keepdims=True, initial=-np.inf)
        shifted = np.exp(wide - largest)
        shares = shifted / np.sum(shifted, axis=-1, keepdims=True)
        return np.where(largest == -np.inf, 0, shares).astype(masked.dtype)

    def decompose(self, q: Value, k: Value, v: Value, *optional: Value | None) -> tuple[Value, ...]:
        mask, past_key, past_value, lengths = _four(optional)
        past = None if past_key is None else tensor_type(past_key)
        s = self._sizes(tensor_type(q), tensor_type(k), tensor_type(v), past)
        element, result = _element(tensor_type(q), tensor_type(v)), tensor_type(q).dtype
        if s.packed:
            q, k, v = _heads(q, s.heads), _heads(k, s.kv_heads), _heads(v, s.kv_heads)
        key = k if past_key is None else apply("concat", past_key, k, axis=2)
        value = v if past_value is None else apply("concat", past_value, v, axis=2)
        columns = apply("transpose", cast_to(key, element), perm=(0, 1, 3, 2))
        raw = reshaped(cast_to(q, element), s.grouped(s.depth)) @ columns
        raw = reshaped(raw * self._scale(s), s.scores)
        capped = apply("tanh", raw / self.softcap) * self.softcap if self.softcap else raw
        masked = self._hidden(s, capped, mask, lengths)
        weights = self._shares(masked)
        y = reshaped(weights, s.grouped(s.keys)) @ cast_to(value, element)
        y = reshaped(y, (s.batch, s.heads, s.queries, s.value_depth))
        if s.packed:
            y = reshaped(apply("transpose", y, perm=(0, 2, 1, 3)), s.y)
        shown = (raw, capped, masked, weights)[self.qk_matmul_output_mode]
        cache = (key, value) if lengths is None else ()
        return cast_to(y, result), *cache, cast_to(shown, result)

    def _hidden(self, s: Sizes, scores: Value, mask: Value | None, lengths: Value | None) -> Value:
        """Graph side of `_masked`."""
        key = Constant("key", np.arange(s.keys))
        query = Constant("query", np.arange(s.queries).reshape(-1, 1))
        if lengths is not None:
            lengths = reshaped(lengths, (s.batch, 1, 1, 1))
        found: list[Value] = self.conditions(s, key, query, lengths)
        if mask is not None:
            mask = _padded(mask, s.keys)
            if tensor_type(mask).dtype.kind == "bool":
                found.append(mask)
            else:
                found.append(apply("logical_not", apply("equal", mask, -math.inf)))
                scores = scores + cast_to(mask, tensor_type(scores).dtype)
        if not found:
            return scores
        seen = reduce(partial(apply, "logical_and"), found)
        least = scalar(-np.inf, tensor_type(scores).dtype)
        return apply("where", seen, scores, least)

    def _shares(self, masked: Value) -> Value:
        """Graph side of `_weights`."""
        element = tensor_type(masked).dtype
        wide = cast_to(masked, f64) if self.softmax_precision == "f64" else masked
        shares: Value = apply("softmax", wide, axis=-1)
        empty = apply("equal", apply("max", wide, axes=(-1,)), -math.inf)
        zero = scalar(0, tensor_type(wide).dtype)
        return cast_to(apply("where", empty, zero, shares), element)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Ranks, shared heads, causal, windows, caches, lengths, masks, every fourth result."""
        return attention_examples(cls)


T = TypeVar("T")


def _four(optional: Sequence[T | None]) -> tuple[T | None, T | None, T | None, T | None]:
    """mask, past_key, past_value, lengths; None if omitted."""
    mask, past_key, past_value, lengths = (*optional, None, None, None, None)[:4]
    return mask, past_key, past_value, lengths


def _type(a: Values) -> TensorType:
    return TensorType(dtype(a.dtype), a.shape)


def _element(q: TensorType, v: TensorType) -> DType:
    """The type it is computed in."""
    return f64 if f64 in (q.dtype, v.dtype) else f32


def _as(element: DType, a: Values) -> Values:
    return a.astype(element.numpy, copy=False)


def _heads(v: Value, heads: int) -> Value:
    """[batch, sequence, heads * depth] -> [batch, heads, sequence, depth]."""
    batch, sequence, hidden = tensor_type(v).dims
    split = apply("reshape", v, shape=(batch, sequence, heads, hidden // heads))
    return apply("transpose", split, perm=(0, 2, 1, 3))


def _padded(mask: Value, keys: int) -> Value:
    """A mask for every key: one that it does not reach is hidden."""
    type = tensor_type(mask)
    missing = keys - type.dims[-1]
    if not missing:
        return mask
    hidden = scalar(-np.inf if type.dtype.is_float else 0, type.dtype)
    return apply("pad", mask, hidden, pads=(*[0] * (2 * type.rank - 1), missing))
