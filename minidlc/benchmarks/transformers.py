"""Transformer benchmark models: a BERT encoder layer, a small BERT, a GPT-2 block.

    model, feeds = bert_layer()                     # f32[1, 128, 768] -> the same
    model, feeds = bert_tiny()                      # i64[1, 128] token numbers -> f32[1, 128, 256]

J. Devlin et al., "BERT", 2018; A. Radford et al., "Language Models are Unsupervised Multitask
Learners", 2019. Ops are spelt as exporters spell them at opset 17. Treated in course chapter
05_backend_opt.
"""

from __future__ import annotations

import numpy as np

from minidlc.benchmarks.builder import Builder, Model

SEQUENCE = 128


def bert_layer() -> Model:
    """One BERT-base encoder layer: hidden 768, 12 heads, feed-forward 3072."""
    b = Builder("bert_layer")
    x = b.input("x", [1, SEQUENCE, 768])
    return b.build(_encoder_layer(b, x, 768, heads=12, wide=3072))


def bert_tiny() -> Model:
    """Embeddings and four encoder layers: hidden 256, 4 heads, vocabulary of 4,000."""
    b = Builder("bert_tiny")
    ids = b.tokens("input_ids", [1, SEQUENCE], 4000)
    words = b.constant(0.5 * b.rng.standard_normal((4000, 256)))
    places = b.constant(0.1 * b.rng.standard_normal((1, SEQUENCE, 256)))
    x = b.layer_norm(b.op("Add", b.op("Gather", words, ids, axis=0), places), 256)
    for _ in range(4):
        x = _encoder_layer(b, x, 256, heads=4, wide=1024)
    return b.build(x)


def gpt2_block() -> Model:
    """One GPT-2-small block: norms in front, causal mask, tanh gelu."""
    b = Builder("gpt2_block")
    x = b.input("x", [1, SEQUENCE, 768])
    x = b.op("Add", x, _attention(b, b.layer_norm(x, 768), 768, heads=12, causal=True))
    y = gelu_tanh(b, b.linear(b.layer_norm(x, 768), 768, 3072))
    return b.build(b.op("Add", x, b.linear(y, 3072, 768)))


def _encoder_layer(b: Builder, x: str, size: int, heads: int, wide: int) -> str:
    x = b.layer_norm(b.op("Add", x, _attention(b, x, size, heads)), size)
    y = b.linear(_gelu_erf(b, b.linear(x, size, wide)), wide, size)
    return b.layer_norm(b.op("Add", x, y), size)


def _attention(b: Builder, x: str, size: int, heads: int, causal: bool = False) -> str:
    """Multi-head self-attention from products, transposes and a softmax."""
    depth = size // heads

    def split(t: str, perm: list[int]) -> str:
        t = b.op("Reshape", t, b.shape(1, SEQUENCE, heads, depth))
        return b.op("Transpose", t, perm=perm)

    q = split(b.linear(x, size, size), [0, 2, 1, 3])
    k = split(b.linear(x, size, size), [0, 2, 3, 1])
    v = split(b.linear(x, size, size), [0, 2, 1, 3])
    scores = b.op("Div", b.op("MatMul", q, k), b.scalar(np.sqrt(depth)))
    if causal:
        mask = b.constant(np.tril(np.ones((1, 1, SEQUENCE, SEQUENCE), np.bool_)))
        scores = b.op("Where", mask, scores, b.scalar(-1e4))
    y = b.op("MatMul", b.op("Softmax", scores, axis=-1), v)
    y = b.op("Transpose", y, perm=[0, 2, 1, 3])
    return b.linear(b.op("Reshape", y, b.shape(1, SEQUENCE, size)), size, size)


def _gelu_erf(b: Builder, x: str) -> str:
    """x * (1 + erf(x / sqrt 2)) * 0.5."""
    y = b.op("Add", b.op("Erf", b.op("Div", x, b.scalar(np.sqrt(2.0)))), b.scalar(1.0))
    return b.op("Mul", b.op("Mul", x, y), b.scalar(0.5))


def gelu_tanh(b: Builder, x: str) -> str:
    """x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x³))) * 0.5."""
    cube = b.op("Mul", b.op("Pow", x, b.scalar(3.0)), b.scalar(0.044715))
    y = b.op("Tanh", b.op("Mul", b.op("Add", x, cube), b.scalar(np.sqrt(2 / np.pi))))
    return b.op("Mul", b.op("Mul", x, b.op("Add", y, b.scalar(1.0))), b.scalar(0.5))
