"""The examples of the attention op: what its tests run over.

    for example in attention_examples(Attention): ...

Sizes that differ in every axis; each feature alone, then together; rows without any key.
Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from minidlc.graph.op import Example, Op
from minidlc.ops import samples
from minidlc.ops.rules import Values

Make = Callable[..., Op]


def _qkv(
    kv_heads: int = 2, queries: int = 3, keys: int = 5, element: str = "f32"
) -> tuple[Values, Values, Values]:
    """Batch 2, two query heads at least, depth 4, value depth 7."""
    heads = max(kv_heads, 2)
    q = samples.array((2, heads, queries, 4), element)
    k = samples.array((2, kv_heads, keys, 4), element, seed=1)
    return q, k, samples.array((2, kv_heads, keys, 7), element, seed=2)


def _example(op: Op, *inputs: Values | None) -> Example:
    return Example(op, inputs, 1e-5, 1e-5)


def attention_examples(cls: Make) -> Iterator[Example]:
    """Everything, in the order of the functions below."""
    yield from _shapes(cls)
    yield from _masks(cls)
    yield from _caches(cls)
    yield from _results(cls)
    for element in ("f64", "f16", "bf16"):
        bound = samples.tolerance(element)
        yield Example(cls(is_causal=True), _qkv(element=element), **bound)


def _shapes(cls: Make) -> Iterator[Example]:
    """Heads shared or not, packed, one element, no keys, another scale."""
    yield _example(cls(), *_qkv())
    yield _example(cls(), *_qkv(kv_heads=1))
    yield _example(cls(scale=0.25), *_qkv(queries=1, keys=1))
    yield _example(cls(), *_qkv(keys=0))
    packed = tuple(
        samples.array(s, seed=n) for n, s in enumerate(((2, 3, 12), (2, 5, 6), (2, 5, 4)))
    )
    yield _example(cls(q_num_heads=4, kv_num_heads=2), *packed)


def _masks(cls: Make) -> Iterator[Example]:
    """bool and float masks of rank 1 to 4, short ones, rows without keys, causal, windows."""
    q, k, v = _qkv()
    for shape in ((5,), (3, 5), (2, 3, 5), (2, 1, 3, 5), (1, 1, 1, 5), (3, 4)):
        yield _example(cls(), q, k, v, samples.array(shape))
        yield _example(cls(), q, k, v, samples.array(shape, "bool", seed=1))
    empty = np.zeros((3, 5), bool)
    empty[1:, 0] = True
    yield _example(cls(), q, k, v, empty)
    yield _example(cls(is_causal=True), q, k, v, np.where(empty, 0.5, -np.inf).astype(np.float32))
    yield _example(cls(is_causal=True), *_qkv(queries=7))
    for left, right in ((0, 0), (1, -1), (-1, 1), (2, 1)):
        op = cls(left_window_size=left, right_window_size=right)
        yield _example(op, *_qkv(queries=9))
    yield _example(cls(is_causal=True, left_window_size=1, right_window_size=2), q, k, v)


def _caches(cls: Make) -> Iterator[Example]:
    """A past in front of the keys; lengths of a cache kept outside, also below the queries."""
    q, k, v = _qkv(kv_heads=1)
    past = samples.array((2, 1, 4, 4), seed=3), samples.array((2, 1, 4, 7), seed=4)
    yield _example(cls(), q, k, v, None, *past)
    yield _example(cls(is_causal=True), q, k, v, samples.array((3, 9)), *past)
    yield _example(cls(left_window_size=2), q, k, v, None, *past)
    for causal in (False, True):
        for lengths in ((5, 3), (0, 1), (4, 2)):
            given = np.array(lengths, np.int64)
            yield _example(cls(is_causal=causal), q, k, v, None, None, None, given)
    given = np.array((5, 2), np.int64)
    yield _example(cls(left_window_size=1), q, k, v, samples.array((3, 5)), None, None, given)


def _results(cls: Make) -> Iterator[Example]:
    """Each fourth result, with a softcap, a mask and a row without keys; the precisions."""
    q, k, v = _qkv()
    mask = np.array([[True] * 5, [False] * 5, [True, False] * 2 + [True]])
    for mode, given in ((0, mask), (1, mask), (2, samples.array((3, 5))), (3, mask)):
        capped = 1.5 if mode else 0.0  # onnx.reference gives the capped ones as raw scores too
        yield _example(cls(softcap=capped, qk_matmul_output_mode=mode), q, k, v, given)
    for precision in ("f32", "f64"):
        op = cls(softmax_precision=precision, qk_matmul_output_mode=3)
        yield _example(op, q, k, v, mask)
