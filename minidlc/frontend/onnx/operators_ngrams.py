"""TfIdfVectorizer → comparisons and sums: how often the n-grams of a pool stand in rows of tokens.

    tokens [5, 7, 5, 7]         pool [5], [5, 7], [7, 7]
    TF                          [2, 2, 0]
    TF, up to 1 token skipped   [2, 2, 1]       7 _ 7
    IDF                         [1, 1, 0] * weights

A window of x for each token of an n-gram, compared with the pool; a sum over the windows; a matrix
product puts the counts at their places. Reads ONNX nodes, writes graph values. Treated in course
chapter 01_graph_ir.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from minidlc.expr.types import Array
from minidlc.frontend.onnx.registry import OnnxNode, onnx_op
from minidlc.graph.graph import Value, apply, tensor_type


@dataclass(frozen=True)
class _Grams:
    """The n-grams of one length: tokens i64[count, n], and f32[count, outputs], which holds the
    weight of each at the place of its count."""

    tokens: Array
    weights: Array


@onnx_op("TfIdfVectorizer")
def tf_idf_vectorizer(node: OnnxNode, x: Value) -> Value:
    """Of a row of tokens, or of several; tokens are integers."""
    if node.has("pool_strings"):
        raise node.unsupported("a pool of strings", "tokens must be integers: pool_int64s")
    type = tensor_type(x)
    if type.rank not in (1, 2) or not type.dtype.is_integer:
        raise node.wrong(f"takes integer tokens, in a row or in rows, got {type}")
    dims = node.dims(x)
    mode, skips = node.attr_str("mode", ""), node.attr_int("max_skip_count", 0)
    if mode not in ("TF", "IDF", "TFIDF"):
        raise node.wrong(f"mode {mode!r} is none of TF, IDF, TFIDF")
    size, pool = _pool(node, mode)
    rows = apply("cast", x if type.rank == 2 else apply("unsqueeze", x, axes=(0,)), to="i64")
    shape = (*dims[:-1], size)
    result = apply("expand", np.zeros((), np.float32), shape=(tensor_type(rows).dims[0], size))
    for grams in pool:
        counts = _counted(rows, grams.tokens, skips)
        if counts is not None:
            if mode == "IDF":
                counts = apply("minimum", counts, np.ones((), np.float32))
            result = result + apply("matmul", counts, grams.weights)
    return apply("reshape", result, shape=shape)


def _pool(node: OnnxNode, mode: str) -> tuple[int, list[_Grams]]:
    """How many counts there are, and the n-grams of each length that is asked for."""
    tokens = np.array(node.attr_ints("pool_int64s"), np.int64)
    places, starts = node.attr_ints("ngram_indexes"), node.attr_ints("ngram_counts")
    shortest, longest = node.attr_int("min_gram_length", 1), node.attr_int("max_gram_length", 1)
    weights = np.array(node.attr_floats("weights") or [1.0] * len(places), np.float32)
    ends = [*starts, len(tokens)]
    whole = all(a <= b and (b - a) % n == 0 for n, (a, b) in enumerate(pairwise(ends), 1))
    count = sum((b - a) // n for n, (a, b) in enumerate(pairwise(ends), 1))
    if not starts or starts[0] or not whole or count != len(places) or min(places, default=0) < 0:
        text = f"a pool of {len(tokens)} tokens, ngram_counts {starts}, ngram_indexes {places}"
        raise node.wrong(f"{text} do not fit together")
    if len(weights) != count or not np.isfinite(weights).all():
        raise node.wrong(f"weights must be {count} finite numbers, got {weights.tolist()}")
    if mode == "TF":
        weights = np.ones_like(weights)
    size, first, pool = max(places, default=-1) + 1, 0, list[_Grams]()
    for n, (a, b) in enumerate(pairwise(ends), 1):
        here = np.arange(first, first + (b - a) // n)
        first += len(here)
        if shortest <= n <= longest and len(here):
            matrix = np.zeros((len(here), size), np.float32)
            matrix[np.arange(len(here)), np.array(places)[here]] = weights[here]
            pool.append(_Grams(tokens[a:b].reshape(-1, n), matrix))
    return size, pool


def _counted(rows: Value, grams: Array, skips: int) -> Value | None:
    """f32[rows, grams]: how often each n-gram is found, `skips` tokens or fewer between its own.

    None where the rows are shorter than the n-grams.
    """
    total: Value | None = None
    n = grams.shape[1]
    for step in range(1, skips + 2 if n > 1 else 2):
        windows = tensor_type(rows).dims[1] - (n - 1) * step
        if windows < 1:
            break
        hits: Value | None = None
        for k in range(n):
            first = k * step
            token = apply("slice", rows, starts=(first,), ends=(first + windows,), axes=(1,))
            hit = apply("equal", apply("unsqueeze", token, axes=(2,)), grams[:, k])
            hits = hit if hits is None else apply("logical_and", hits, hit)
        assert hits is not None
        found = apply("sum", apply("cast", hits, to="f32"), axes=(1,), keepdims=False)
        total = found if total is None else total + found
    return total
