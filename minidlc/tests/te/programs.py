"""Small programs of every shape that schedules must keep right, with their meaning in NumPy.

Inputs hold small integers, so sums are exact in any order; only softmax needs a tolerance.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from minidlc import te
from minidlc.expr.types import Array, f32, i32
from minidlc.te.tensor import Tensor


@dataclass(frozen=True)
class Case:
    """Outputs to schedule, arrays for the placeholders, and what must come out."""

    name: str
    outputs: tuple[Tensor, ...]
    inputs: dict[str, Array]
    expected: dict[str, Array]


def numbers(shape: tuple[int, ...], seed: int, dtype: type = np.float32) -> Array:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def gemm(n: int, m: int, depth: int) -> Case:
    """relu(A @ B + bias): a reduction and an epilogue."""
    A, B = te.placeholder(f32[n, depth], "A"), te.placeholder(f32[depth, m], "B")
    bias = te.placeholder(f32[m], "bias")
    k = te.reduce_axis(depth, "k")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], k), name="C")
    D = te.compute((n, m), lambda i, j: te.maximum(C[i, j] + bias[j], 0.0), name="D")
    x = {"A": numbers((n, depth), 1), "B": numbers((depth, m), 2), "bias": numbers((m,), 3)}
    return Case("gemm", (D,), x, {"D": np.maximum(x["A"] @ x["B"] + x["bias"], 0)})


def stencil(n: int, m: int) -> Case:
    """Three stages with halos; the first is read by both others, the second is an output too."""
    X = te.placeholder(f32[n + 4, m], "X")
    a = te.compute((n + 4, m), lambda i, j: X[i, j] * 2.0 + 1.0, name="a")
    b = te.compute((n + 2, m), lambda i, j: a[i, j] + a[i + 1, j] - a[i + 2, j], name="b")
    c = te.compute((n, m), lambda i, j: b[i, j] + b[i + 2, j] * a[i + 1, j], name="c")
    x = numbers((n + 4, m), 1)
    a_ = x * 2 + 1
    b_ = a_[:-2] + a_[1:-1] - a_[2:]
    return Case("stencil", (c,), {"X": x}, {"c": b_[:-2] + b_[2:] * a_[1 : n + 1]})


def pyramid(n: int, m: int) -> Case:
    """A stage that one reader takes every second row of, and another one whole."""
    X = te.placeholder(f32[2 * n, m], "X")
    a = te.compute((2 * n, m), lambda i, j: X[i, j] * 2.0 + 1.0, name="a")
    b = te.compute((n, m), lambda i, j: a[2 * i, m - 1 - j] * 3.0, name="b")
    c = te.compute((2 * n, m), lambda i, j: b[i // 2, j] + a[i, j], name="c")
    x = numbers((2 * n, m), 1)
    a_ = x * 2 + 1
    return Case("pyramid", (c,), {"X": x}, {"c": np.repeat(a_[::2, ::-1] * 3, 2, 0) + a_})


def conv(channels: int, size: int, filters: int, kernel: int, stride: int, pad: int) -> Case:
    """Convolution with a zero border by a producer stage, then relu."""
    X = te.placeholder(f32[channels, size, size], "X")
    W = te.placeholder(f32[filters, channels, kernel, kernel], "W")
    whole = size + 2 * pad
    out = (whole - kernel) // stride + 1

    def inside(h: te.Index) -> te.Cond:
        return (h >= pad) & (h < size + pad)

    p = te.compute(
        (channels, whole, whole),
        lambda c, h, w: te.select(inside(h) & inside(w), X[c, h - pad, w - pad], 0.0),
        name="p",
    )
    c, u, v = (te.reduce_axis(n, a) for n, a in ((channels, "c"), (kernel, "u"), (kernel, "v")))
    y = te.compute(
        (filters, out, out),
        lambda o, h, w: te.sum(p[c, h * stride + u, w * stride + v] * W[o, c, u, v], c, u, v),
        name="y",
    )
    z = te.compute((filters, out, out), lambda o, h, w: te.maximum(y[o, h, w], 0.0), name="z")
    x = {"X": numbers((channels, size, size), 1), "W": numbers(W.shape, 2)}
    padded = np.pad(x["X"], ((0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (1, 2))
    taken = windows[:, ::stride, ::stride][:, :out, :out]
    expected = np.einsum("chwuv,ocuv->ohw", taken, x["W"])
    return Case("conv", (z,), x, {"z": np.maximum(expected, 0).astype(np.float32)})


def softmax(rows: int, columns: int) -> Case:
    """Two reductions over the rows and two readers of each."""
    X = te.placeholder(f32[rows, columns], "X")
    k, l = te.reduce_axis(columns, "k"), te.reduce_axis(columns, "l")  # noqa: E741
    mx = te.compute((rows,), lambda i: te.max(X[i, k], k), name="mx")
    e = te.compute((rows, columns), lambda i, j: te.exp(X[i, j] - mx[i]), name="e")
    s = te.compute((rows,), lambda i: te.sum(e[i, l], l), name="s")
    y = te.compute((rows, columns), lambda i, j: e[i, j] / s[i], name="y")
    x = numbers((rows, columns), 1)
    powers = np.exp(x - x.max(1, keepdims=True)) if columns else x
    return Case("softmax", (y,), {"X": x}, {"y": powers / powers.sum(1, keepdims=True)})


def resample(n: int, m: int) -> Case:
    """Integers; positions that run backwards, are divided and wrap around; two outputs."""
    X = te.placeholder(i32[n, m], "X")
    a = te.compute((n, m), lambda i, j: X[i, j] * 3, name="a")
    b = te.compute((2 * n, m), lambda i, j: a[i // 2, j] - a[n - 1 - i // 2, m - 1 - j], name="b")
    c = te.compute((2 * n, 2 * m), lambda i, j: b[2 * n - 1 - i, j % m] + b[i, j // 2], name="c")
    k = te.reduce_axis(2 * n, "k")
    d = te.compute((m,), lambda j: te.max(b[k, j], k), name="d")
    x = numbers((n, m), 1, np.int32)
    b_ = np.repeat(x * 3, 2, 0) - np.repeat(x[::-1, ::-1] * 3, 2, 0)
    c_ = np.tile(b_[::-1], (1, 2)) + np.repeat(b_, 2, 1)
    return Case("resample", (c, d), {"X": x}, {"c": c_, "d": b_.max(0)})


def lookups(n: int, m: int, count: int) -> Case:
    """Rows and elements at positions that are values, many of them outside; two outputs."""
    X, ids = te.placeholder(f32[n, m], "X"), te.placeholder(i32[count], "ids")
    p = te.compute(
        (n + 2, m),
        lambda i, j: te.select(
            (i >= 1) & (i <= n), X[i - 1, j] * 2.0, te.cast("f32", te.index(i + j))
        ),
        name="p",
    )
    w = te.compute((count,), lambda i: te.cast("i64", ids[i]) + 1, name="w")
    g = te.compute((count, m), lambda i, j: te.lookup(p, w[i], j) + 1.0, name="g")
    h = te.compute(
        (count, m), lambda i, j: te.lookup(g, w[i], w[j % count]) - te.lookup(p, w[i], j), name="h"
    )
    k = te.reduce_axis(count, "k")
    s = te.compute((m,), lambda j: te.sum(te.lookup(p, w[k], j) * h[k, j], k), name="s")
    x, places = numbers((n, m), 1), numbers((count,), 2, np.int32)
    p_ = np.add.outer(np.arange(n + 2), np.arange(m)).astype(np.float32)
    p_[1:-1] = x * 2
    w_ = places + 1
    rows = p_[w_.clip(0, n + 1)]
    columns = w_[np.arange(m) % count].clip(0, m - 1)
    h_ = (rows + 1)[np.ix_(w_.clip(0, count - 1), columns)] - rows
    return Case("lookups", (h, s), {"X": x, "ids": places}, {"h": h_, "s": (rows * h_).sum(0)})


def recurrent(steps: int, n: int) -> Case:
    """Each step of h needs the one before; a reader takes them forwards and backwards."""
    x, U = te.placeholder(f32[steps, n], "x"), te.placeholder(f32[n, n], "U")
    first, j = te.placeholder(f32[n], "first"), te.reduce_axis(n, "j")
    past = te.state(f32[steps, n], lambda i: first[i], "h")
    z = te.compute((steps, n), lambda t, i: te.sum(past[t - 1, j] * U[j, i], j), name="z")
    h = te.scan(past, lambda t, i: te.maximum(z[t, i] + x[t, i], 0.0))
    y = te.compute((steps, n), lambda t, i: h[t, i] * 2.0 - h[steps - 1 - t, i], name="y")
    data = {"x": numbers((steps, n), 1), "U": numbers((n, n), 2), "first": numbers((n,), 3)}
    row, rows = data["first"], []
    for step in data["x"]:
        row = np.maximum(row @ data["U"] + step, 0)
        rows.append(row)
    h_ = np.stack(rows)
    return Case("recurrent", (y,), data, {"y": h_ * 2 - h_[::-1]})


def random_case(rng: random.Random) -> Case:
    """One of the programs, at sizes of 1 to 13 with at most a few thousand steps."""

    def size(limit: int) -> int:
        return rng.randint(1, limit)

    def convolution() -> Case:
        kernel, pad = rng.randint(1, 3), rng.randint(0, 2)
        edge = max(size(6), kernel - 2 * pad)
        return conv(size(3), edge, size(3), kernel, rng.randint(1, 2), pad)

    makers: list[Callable[[], Case]] = [
        lambda: gemm(size(13), size(7), size(6)),
        lambda: stencil(size(13), size(6)),
        convolution,
        lambda: softmax(size(5), size(13)),
        lambda: resample(size(5), size(5)),
        lambda: lookups(size(5), size(9), size(5)),
        lambda: pyramid(size(6), size(6)),
    ]
    return rng.choice(makers)()
