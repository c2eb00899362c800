"""Five kinds of kernels at any size and element type, with what they compute in NumPy.

Sums are exact where the data are small integers (`exact`); otherwise the reference is computed in
f64 and each element may be as far from it as rounding every term allows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from minidlc import te
from minidlc.expr.nodes import Expr
from minidlc.expr.types import Array, DType, bf16, f16, f32, f64, i8, i32, u8
from minidlc.te.tensor import Tensor
from minidlc.tests.te.programs import Case, lookups, pyramid, recurrent, resample

KINDS = {
    "f32": (f32, f32, f32),
    "f64": (f64, f64, f64),
    "f16": (f16, f16, f16),
    "bf16": (bf16, bf16, bf16),
    "i32": (i32, i32, i32),
    "u8": (u8, u8, u8),
    "i8": (i8, i8, i32),
    "u8i8": (u8, i8, i32),
    "i8u8": (i8, u8, i32),
}
"""Element types of the left operand, the right one and the result."""

FLOATS = ("f32", "f32", "f64", "f16", "bf16")


@dataclass(frozen=True)
class Kernel:
    """A program, its data and what must come out; the rest says how such kernels are scheduled.

    `anchor` is the stage that sums up, in tiles of `rows` (one of them) times `column` of `last`.
    `packs` are operands that can be copied: (tensor, dimension, the axis it runs along).
    `reductions` are pairs (stage, loop) over whole rows; `pointwise` are stages between them.
    """

    text: str
    outputs: tuple[Tensor, ...]
    inputs: dict[str, Array]
    expected: dict[str, Array]
    tolerance: dict[str, Array]
    constants: tuple[str, ...]
    last: str
    column: str
    rows: tuple[str, ...]
    anchor: str = ""
    packs: tuple[tuple[str, int, str], ...] = ()
    reductions: tuple[tuple[str, str], ...] = ()
    pointwise: tuple[str, ...] = ()
    schedules: str = field(default="tiles")


def gemm(n: int, m: int, depth: int, kind: str, exact: bool, epilogue: bool) -> Kernel:
    """A @ B, or relu(A @ B + bias)."""
    left, right, result = KINDS[kind]
    A, B = te.placeholder(left[n, depth], "A"), te.placeholder(right[depth, m], "B")
    bias, k = te.placeholder(result[m], "bias"), te.reduce_axis(depth, "k")
    C = te.compute((n, m), lambda i, j: te.sum(_product(A[i, k], B[k, j], result), k), name="C")
    D = te.compute((n, m), lambda i, j: te.maximum(C[i, j] + bias[j], 0), name="D")
    x = {"A": _data(A, 1, exact), "B": _data(B, 2, exact), "bias": _data(bias, 3, exact)}
    a, b, c = (_wide(v) for v in x.values())
    value, size = a @ b, abs(a) @ abs(b)
    if epilogue:
        value, size = np.maximum(_wrapped(value + c, result), 0), size + abs(c)
    else:
        del x["bias"]
    last = "D" if epilogue else "C"
    expected, tolerance = _rounded(last, value, result, (depth + 4) * size, exact)
    return Kernel(
        text=f"gemm({n}, {m}, {depth}, {kind!r}, {exact}, {epilogue})",
        outputs=(D if epilogue else C,),
        inputs=x,
        expected=expected,
        tolerance=tolerance,
        constants=("B",),
        last=last,
        column="j",
        rows=("i",),
        anchor="C",
        packs=(("B", 1, "j"), ("A", 0, "i")),
    )


def conv(
    channels: int,
    size: tuple[int, int],
    filters: int,
    window: tuple[int, int],
    stride: int,
    pad: int,
    kind: str,
    exact: bool,
    channels_last: bool,
) -> Kernel:
    """relu(conv(x)) with a zero border by a stage of its own, channels first or last."""
    left, right, result = KINDS[kind]
    (height, width), (tall, wide) = size, window
    high, long = height + 2 * pad, width + 2 * pad
    out = (high - tall) // stride + 1, (long - wide) // stride + 1
    X = te.placeholder(left[_order(channels, *size, channels_last)], "X")
    weights = (*window, channels, filters) if channels_last else (filters, channels, *window)
    W = te.placeholder(right[weights], "W")

    def border(c: te.Index, h: te.Index, w: te.Index) -> Expr:
        inside = (h >= pad) & (h < height + pad) & (w >= pad) & (w < width + pad)
        return te.select(inside, X[_order(c, h - pad, w - pad, channels_last)], 0)

    def padded(*at: te.Index) -> Expr:
        c, h, w = at[-1:] + at[:-1] if channels_last else at
        return border(c, h, w)

    p = te.compute(_order(channels, high, long, channels_last), padded, name="p")
    c, u, v = (te.reduce_axis(n, a) for n, a in ((channels, "c"), (tall, "u"), (wide, "v")))

    def element(o: te.Index, h: te.Index, w: te.Index) -> Expr:
        x = p[_order(c, h * stride + u, w * stride + v, channels_last)]
        return te.sum(
            _product(x, W[(u, v, c, o) if channels_last else (o, c, u, v)], result), c, u, v
        )

    shape = _order(filters, *out, channels_last)
    if channels_last:
        y = te.compute(shape, lambda h, w, o: element(o, h, w), name="y")
        z = te.compute(shape, lambda h, w, o: te.maximum(y[h, w, o], 0), name="z")
    else:
        y = te.compute(shape, element, name="y")
        z = te.compute(shape, lambda o, h, w: te.maximum(y[o, h, w], 0), name="z")
    x = {"X": _data(X, 1, exact), "W": _data(W, 2, exact)}
    value = _convolved(x["X"], x["W"], stride, pad, channels_last, _wide)
    total = _convolved(x["X"], x["W"], stride, pad, channels_last, lambda a: abs(_wide(a)))
    value = np.maximum(_wrapped(value, result), 0)
    terms = channels * tall * wide
    expected, tolerance = _rounded("z", value, result, (terms + 4) * total, exact)
    packs = (("W", 3, "o"),) if channels_last else (("W", 0, "o"),)
    return Kernel(
        text=f"conv({channels}, {size}, {filters}, {window}, {stride}, {pad}, {kind!r}, {exact}, "
        f"{channels_last})",
        outputs=(z,),
        inputs=x,
        expected=expected,
        tolerance=tolerance,
        constants=("W",),
        last="z",
        column="o" if channels_last else "w",
        rows=("w", "h") if channels_last else ("o", "h"),
        anchor="y",
        packs=packs,
        pointwise=("p",),
    )


def softmax(rows: int, columns: int, kind: str, largest: bool) -> Kernel:
    """Two reductions over each row, and e with two readers; `largest` is an output too."""
    result = KINDS[kind][0]
    X = te.placeholder(result[rows, columns], "X")
    k, l = te.reduce_axis(columns, "k"), te.reduce_axis(columns, "l")  # noqa: E741
    mx = te.compute((rows,), lambda i: te.max(X[i, k], k), name="mx")
    e = te.compute((rows, columns), lambda i, j: te.exp(X[i, j] - mx[i]), name="e")
    s = te.compute((rows,), lambda i: te.sum(e[i, l], l), name="s")
    y = te.compute((rows, columns), lambda i, j: e[i, j] / s[i], name="y")
    x = {"X": _data(X, 1, exact=True)}
    x["X"] += np.resize([-3, 0, 3], (rows, 1)).astype(result.numpy)  # rows below zero as well
    powers = np.exp(_wide(x["X"]) - _wide(x["X"]).max(1, keepdims=True))
    value = powers / powers.sum(1, keepdims=True)
    expected, tolerance = _rounded("y", value, result, (columns + 12) * value, exact=False)
    if largest:
        expected["mx"], tolerance["mx"] = x["X"].max(1), np.zeros(rows)
    return Kernel(
        text=f"softmax({rows}, {columns}, {kind!r}, {largest})",
        outputs=(y, mx) if largest else (y,),
        inputs=x,
        expected=expected,
        tolerance=tolerance,
        constants=(),
        last="y",
        column="j",
        rows=("i",),
        reductions=(("s", "l"), ("mx", "k")),
        pointwise=("e",),
        schedules="rows",
    )


def layernorm(rows: int, columns: int, kind: str) -> Kernel:
    """(x - mean) / sqrt(variance + 1) * gain + bias, over each row."""
    result = KINDS[kind][0]
    X, g = te.placeholder(result[rows, columns], "X"), te.placeholder(result[columns], "gain")
    bias = te.placeholder(result[columns], "bias")
    k, l = te.reduce_axis(columns, "k"), te.reduce_axis(columns, "l")  # noqa: E741
    part = 1.0 / columns
    total = te.compute((rows,), lambda i: te.sum(X[i, k], k), name="total")
    d = te.compute((rows, columns), lambda i, j: X[i, j] - total[i] * part, name="d")
    q = te.compute((rows,), lambda i: te.sum(d[i, l] * d[i, l], l), name="q")
    r = te.compute((rows,), lambda i: te.sqrt(q[i] * part + 1.0), name="r")
    y = te.compute((rows, columns), lambda i, j: d[i, j] / r[i] * g[j] + bias[j], name="y")
    x = {"X": _data(X, 1, False), "gain": _data(g, 2, False), "bias": _data(bias, 3, False)}
    a, gain, b = (_wide(v) for v in x.values())
    mean = a.mean(1, keepdims=True)
    spread = a - mean
    root = np.sqrt((spread**2).mean(1, keepdims=True) + 1)
    value = spread / root * gain + b
    off = (columns + 4) * abs(a).mean(1, keepdims=True) + abs(spread)  # of d, in roundings
    squares = (spread**2).mean(1, keepdims=True)
    of_root = (columns + 6) * squares + 2 * (abs(spread) * off).mean(1, keepdims=True)
    of_root = of_root / (2 * root**2) + 4  # relative
    size = abs(gain) / root * (off + abs(spread) * (of_root + 6)) + 3 * abs(b)
    expected, tolerance = _rounded("y", value, result, 2 * size, exact=False)
    return Kernel(
        text=f"layernorm({rows}, {columns}, {kind!r})",
        outputs=(y,),
        inputs=x,
        expected=expected,
        tolerance=tolerance,
        constants=("gain", "bias"),
        last="y",
        column="j",
        rows=("i",),
        reductions=(("q", "l"), ("total", "k")),
        pointwise=("d", "r"),
        schedules="rows",
    )


def blur(n: int, m: int, kind: str, exact: bool, both: bool) -> Kernel:
    """Three stages with halos in both directions; the first has two readers, `both` are outputs."""
    result = KINDS[kind][2]
    X = te.placeholder(result[n + 3, m + 2], "X")
    a = te.compute((n + 3, m + 2), lambda i, j: X[i, j] * 2 + 1, name="a")
    b = te.compute((n + 1, m), lambda i, j: a[i, j] + a[i + 1, j + 1] - a[i + 2, j + 2], name="b")
    c = te.compute((n, m), lambda i, j: b[i, j] + b[i + 1, j] - a[i + 3, j + 1], name="c")
    x = {"X": _data(X, 1, exact)}
    expected: dict[str, Array] = {}
    tolerance: dict[str, Array] = {}
    value, size = _blurred(_wide(x["X"]), -1), _blurred(abs(_wide(x["X"])), 1)
    for name in ("c", "b") if both else ("c",):
        right, off = _rounded(name, value[name], result, 8 * size[name], exact)
        expected |= right
        tolerance |= off
    return Kernel(
        text=f"blur({n}, {m}, {kind!r}, {exact}, {both})",
        outputs=(c, b) if both else (c,),
        inputs=x,
        expected=expected,
        tolerance=tolerance,
        constants=(),
        last="c",
        column="j",
        rows=("i",),
        pointwise=("b", "a"),
        schedules="stencil",
    )


def of_case(program: Callable[..., Case], *sizes: int) -> Kernel:
    """One of programs.py: positions that run backwards, wrap around or are looked up."""
    case = program(*sizes)
    return Kernel(
        text=f"of_case({program.__name__}, {', '.join(map(str, sizes))})",
        outputs=case.outputs,
        inputs=case.inputs,
        expected=case.expected,
        tolerance={name: np.zeros(x.shape) for name, x in case.expected.items()},
        constants=(),
        last=case.outputs[0].name,
        column=case.outputs[0].axes[-1],
        rows=case.outputs[0].axes[:1],
        schedules="anything",
    )


def random_kernel(rng: random.Random) -> Kernel:
    """One of the five, or now and then of programs.py, at sizes of 1 to 13, now and then above."""

    def size(limit: int = 13) -> int:
        return rng.randint(1, limit) if rng.random() < 0.9 else rng.randint(14, 24)

    def some_conv() -> Kernel:
        window, pad = (rng.randint(1, 3), rng.randint(1, 3)), rng.randint(0, 2)
        edges = (max(rng.randint(1, 6), window[0]), max(rng.randint(1, 9), window[1]))
        filters, stride = rng.randint(1, 9), rng.randint(1, 2)
        return conv(rng.randint(1, 4), edges, filters, window, stride, pad, kind, exact, flag)

    kind, exact, flag = rng.choice(list(KINDS)), rng.random() < 0.6, rng.random() < 0.5
    some_float = rng.choice(FLOATS)
    makers: list[Callable[[], Kernel]] = [
        *4 * [lambda: gemm(size(), size(), size(), kind, exact, flag)],
        *4 * [some_conv],
        lambda: softmax(size(5), size(), some_float, flag),
        lambda: layernorm(size(5), size(), some_float),
        *2 * [lambda: blur(size(), size(9), kind, exact, flag)],
        lambda: rng.choice(
            [
                of_case(resample, rng.randint(1, 5), rng.randint(1, 5)),
                of_case(pyramid, rng.randint(1, 6), rng.randint(1, 6)),
                of_case(recurrent, rng.randint(1, 4), rng.randint(1, 3)),
                of_case(lookups, rng.randint(1, 5), rng.randint(1, 9), rng.randint(1, 5)),
            ]
        ),
    ]
    return rng.choice(makers)()


def _order(channel: object, h: object, w: object, channels_last: bool) -> tuple:
    return (h, w, channel) if channels_last else (channel, h, w)


def _product(a: Expr, b: Expr, result: DType) -> Expr:
    """a * b in the type of the result."""
    same = a.dtype == b.dtype == result
    return a * b if same else te.cast(result, a) * te.cast(result, b)


def _data(tensor: Tensor, seed: int, exact: bool) -> Array:
    """Numbers of at most 2, whole ones if `exact` or of an integer type."""
    rng, element = np.random.default_rng(seed), tensor.dtype
    if element.is_float and not exact:
        return rng.uniform(-2, 2, tensor.shape).astype(element.numpy)
    return rng.integers(0 if element.kind == "uint" else -2, 3, tensor.shape).astype(element.numpy)


def _wide(x: Array) -> Array:
    return x.astype(np.int64 if x.dtype.kind in "iu" else np.float64)


def _wrapped(x: Array, result: DType) -> Array:
    """Integers as their type holds them."""
    return x if result.is_float else _wide(x.astype(result.numpy))


def _rounded(
    name: str, value: Array, result: DType, terms: Array, exact: bool
) -> tuple[dict[str, Array], dict[str, Array]]:
    """What must come out and how far it may be off: `terms` roundings, the least float beside."""
    expected = value.astype(result.numpy)
    if exact or not result.is_float:
        return {name: expected}, {name: np.zeros(value.shape)}
    info = ml_dtypes.finfo(result.numpy)
    off = float(info.eps) * terms + 4 * float(info.smallest_subnormal)
    return {name: expected}, {name: np.broadcast_to(off, value.shape)}


def _convolved(
    x: Array, w: Array, stride: int, pad: int, channels_last: bool, wide: Callable[[Array], Array]
) -> Array:
    """The convolution in NumPy, in the layout of x."""
    first = wide(x.transpose(2, 0, 1) if channels_last else x)
    weights = wide(w.transpose(3, 2, 0, 1) if channels_last else w)
    padded = np.pad(first, ((0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weights.shape[2:], (1, 2))
    value = np.einsum("chwuv,ocuv->ohw", windows[:, ::stride, ::stride], weights)
    return value.transpose(1, 2, 0) if channels_last else value


def _blurred(x: Array, sign: int) -> dict[str, Array]:
    a = x * 2 + 1
    b = a[:-2, :-2] + a[1:-1, 1:-1] + sign * a[2:, 2:]
    return {"b": b, "c": b[:-1] + b[1:] + sign * a[3:, 1:-1]}
