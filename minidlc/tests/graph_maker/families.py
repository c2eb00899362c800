"""Families of ops that random graphs are made of: each adds one node that fits, or none.

    matmul(m)                                       # m: Maker, holding the values so far

What an op does to range, exactness and error of its input stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from minidlc.expr.types import TensorType, bool_, f32
from minidlc.graph import apply
from minidlc.tests.graph_maker.facts import (
    UNIT,
    Fact,
    accumulate,
    arithmetic,
    curve,
    mean,
    settle,
    total,
    union,
)
from minidlc.tests.graph_maker.heavy import (
    attention,
    composite_reduction,
    conv_transpose,
    normalization,
)
from minidlc.tests.graph_maker.moving import (
    choosing,
    gathering,
    ordering,
    padding,
    repeating,
    resizing,
    running,
    scattering,
    slicing,
    splitting,
)
from minidlc.tests.graph_maker.pointwise import (
    binary,
    chain,
    compare,
    convert,
    gate,
    rewritable,
    unary,
    where,
)
from minidlc.tests.graph_maker.values import MAX_SIZE, SIZES, Maker, broadcasts, tensor

MAX_WORK = 60_000  # multiply-adds of an op: the tests stay fast


def matmul(m: Maker) -> None:
    """A product of matrices, batches or vectors."""
    a = m.pick(lambda t, f: t.rank >= 1 and t.dtype != bool_)
    if a is None:
        a = m.leaf(f32, m.shape(2))
    t = tensor(a)
    k = t.dims[-1]

    def fits(u: TensorType, f: Fact) -> bool:
        return u.dtype == t.dtype and u.rank >= 1 and u.dims[max(u.rank - 2, 0)] == k and (
            u.rank <= 2 or t.rank <= 2 or u.dims[:-2] == t.dims[:-2]
        )  # fmt: skip

    b = m.pick(fits) if m.one(True, False) else None
    if b is None:
        column = m.one((m.one(*SIZES),), ()) if k < 100 else ()
        batch = m.one((), (), m.broadcast_shape(t.dims[:-2]), (2,)) if column else ()
        batch = batch if math.prod(batch) <= 8 and _fit(batch, t.dims[:-2]) else ()
        b = m.leaf(t.dtype, (*batch, k, *column))
    node = apply("matmul", a, b)
    if tensor(node).size * k <= MAX_WORK:
        m.add("matmul", a, b, fact=accumulate(t.dtype, m.facts[a], m.facts[b], k))


def _fit(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return broadcasts(TensorType(f32, a), TensorType(f32, b))


def gemm(m: Maker) -> None:
    """gemm of a value and new weights: transposed or not, scaled or not."""
    a = m.pick_float(2)
    t, f = tensor(a), m.facts[a]
    left, right = m.one(False, True), m.one(False, True)
    rows, k = t.dims[::-1] if left else t.dims
    columns = m.one(*SIZES) if k < 100 else 1
    b = m.leaf(t.dtype, (columns, k) if right else (k, columns))
    c = m.one(None, (columns,), (rows, 1), (), (rows, columns))
    bias = None if c is None else m.leaf(t.dtype, c)
    scales = {} if m.one(True, False) else {"alpha": 0.5, "beta": 2.0}
    fact = accumulate(t.dtype, f, m.facts[b], k)
    if scales:
        fact = curve(t.dtype, fact, 0.5, fact.low, fact.high)
    if bias is not None:
        known = m.facts[bias]
        scaled = curve(t.dtype, known, 2.0, -4.0, 4.0) if scales else known
        fact = arithmetic(t.dtype, "add", fact, scaled)
    m.add("gemm", a, b, bias, transA=left, transB=right, fact=fact, **scales)


def window(m: Maker, dims: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """kernel, strides, dilations and pads that fit spatial `dims`."""
    n = len(dims)
    kernel, pads = [m.one(1, 2, 3) for _ in dims], [m.one(0, 0, 1, 2) for _ in range(2 * n)]
    dilations = [m.one(1, 1, 2) for _ in dims]
    for d in range(n):
        extent = (kernel[d] - 1) * dilations[d] + 1
        pads[d], pads[n + d] = (min(p, extent - 1) for p in (pads[d], pads[n + d]))
        if extent > dims[d] + pads[d] + pads[n + d]:
            kernel[d], pads[d], pads[n + d] = 1, 0, 0
    return {
        "kernel": tuple(kernel),
        "pads": tuple(pads),
        "strides": tuple(m.one(1, 1, 2, 3) for _ in dims),
        "dilations": tuple(dilations),
    }


def conv(m: Maker) -> None:
    """A convolution with new weights: groups, strides, dilations, borders, a bias or none."""
    x = m.pick_float(3, 4, 4, 5)
    t, f = tensor(x), m.facts[x]
    channels = t.dims[1]
    group = m.one(*(g for g in (1, channels, 2, 3) if g and channels % g == 0))
    outputs = group * m.one(1, 2, 3, 5, *(16,) * (group == 1))
    w = window(m, t.dims[2:])
    per_group = channels // group
    kernel = w.pop("kernel")
    if 0 in t.dims or outputs * per_group * math.prod(kernel) > MAX_SIZE:
        return
    weight = m.leaf(t.dtype, (outputs, per_group, *kernel))
    bias = m.leaf(t.dtype, (outputs,)) if m.one(True, False) else None
    terms = per_group * math.prod(kernel)
    node = apply("conv", x, weight, bias, group=group, **w)
    if tensor(node).size * terms <= MAX_WORK:
        fact = accumulate(t.dtype, f, m.facts[weight], terms)
        if bias is not None:
            fact = arithmetic(t.dtype, "add", fact, m.facts[bias])
        m.add("conv", x, weight, bias, group=group, **w, fact=fact)


def pool(m: Maker) -> None:
    """A maximum or an average over windows."""
    x = m.pick_float(3, 4, 4, 5)
    t, f = tensor(x), m.facts[x]
    if 0 in t.dims[2:]:
        return
    w = window(m, t.dims[2:])
    kernel = w.pop("kernel")
    rounding = m.one(False, False, True)
    name = m.one("max_pool", "average_pool")
    counted = {"count_include_pad": True} if name == "average_pool" and m.one(False, True) else {}
    fact = f if name == "max_pool" else mean(t.dtype, f, math.prod(kernel))
    m.add(name, x, kernel_shape=kernel, ceil_mode=rounding, **w, **counted, fact=fact)


def reduction(m: Maker) -> None:
    """A sum, mean, maximum, minimum or product over some axes, or all, or none."""
    x = m.pick(lambda t, f: t.dtype != bool_)
    if x is None:
        return
    t, f = tensor(x), m.facts[x]
    chosen = tuple(a for a in range(t.rank) if m.one(False, True))
    axes = m.one(chosen, chosen, None)
    terms = math.prod(t.dims[a] for a in (range(t.rank) if axes is None else axes))
    products = ("prod",) if terms * math.log(max(f.size, 1.0)) < 9 else ()
    name = m.one("sum", "max", "min", "mean", *products)
    if name in ("max", "min"):
        fact = f if terms else Fact(-math.inf, math.inf)
    elif name == "mean":
        fact = mean(t.dtype, f, terms) if terms else Fact(-math.inf, math.inf)
    elif name == "sum":
        fact = total(t.dtype, f, terms)
    else:
        limit = max(f.size, 1.0) ** terms
        error = terms * limit * f.error
        fact = settle(t.dtype, -limit, limit, error, f.whole)
        fact = fact if fact.exact else replace(fact, error=fact.error * terms)
    m.add(name, x, axes=axes, keepdims=m.one(True, False), fact=fact)


def softmax(m: Maker) -> None:
    """softmax or its logarithm along an axis."""
    x = m.pick_float(1, 2, 3, 4)
    t, f = tensor(x), m.facts[x]
    axis = m.one(*range(-1, t.rank - 1))
    spread = f.high - f.low + t.dims[axis]
    error = 2 * f.error + UNIT[t.dtype.name] * (1 + spread)
    if m.one(True, True, False):
        return m.add("softmax", x, axis=axis, fact=Fact(0.0, 1.0, error))
    return m.add("log_softmax", x, axis=axis, fact=Fact(-spread, 0.0, 2 * error))


def batch_norm(m: Maker) -> None:
    """batch_norm with new statistics, or a global pool."""
    x = m.pick_float(2, 3, 4)
    t, f = tensor(x), m.facts[x]
    if t.rank > 2 and m.one(False, False, True):
        terms = math.prod(t.dims[2:])
        if m.one(True, False):
            fact = mean(t.dtype, f, terms) if terms else Fact(-math.inf, math.inf)
            return m.add("global_average_pool", x, fact=fact)
        return m.add("global_max_pool", x, fact=f if terms else Fact(-math.inf, math.inf))
    shape = t.dims[1:2]
    scale, bias, shift = (m.leaf(t.dtype, shape) for _ in range(3))
    variance = m.leaf(t.dtype, shape, low=0.5)
    size = 3 * (f.size + 2) + 2  # scale / sqrt(var) is at most 2 / sqrt(0.5)
    fact = curve(t.dtype, f, 3.0, -size, size)
    return m.add("batch_norm", x, scale, bias, shift, variance, fact=fact)


def transpose(m: Maker) -> None:
    """Axes in another order."""
    x = m.pick(lambda t, f: t.rank >= 1)
    if x is not None:
        perm = m.permutation(tensor(x).rank)
        m.add("transpose", x, perm=m.one(None, perm, perm), fact=m.facts[x])


def view(m: Maker) -> None:
    """The same elements under another shape."""
    x = m.pick()
    if x is None:
        return
    dims, fact = tensor(x).dims, m.facts[x]
    match m.one("reshape", "flatten", "unsqueeze", "squeeze"):
        case "flatten":
            m.add("flatten", x, axis=m.one(*range(len(dims) + 1)), fact=fact)
        case "unsqueeze" if len(dims) < 5:
            m.add("unsqueeze", x, axes=(m.one(*range(len(dims) + 1)),), fact=fact)
        case "squeeze":
            ones = tuple(a for a, d in enumerate(dims) if d == 1 and m.one(True, False))
            m.add("squeeze", x, axes=m.one(ones, ones, None), fact=fact)
        case _:
            m.add("reshape", x, shape=_other_shape(m, dims), fact=fact)


def _other_shape(m: Maker, dims: tuple[int, ...]) -> tuple[int, ...]:
    """Two neighbours merged, one axis split, or everything in one or two axes."""
    size, rank = math.prod(dims), len(dims)
    choices = [(size,)] + [(d, size // d) for d in (2, 3, 4, 8, 16) if size % d == 0]
    choices += [(*dims[:a], dims[a] * dims[a + 1], *dims[a + 2 :]) for a in range(rank - 1)]
    choices += [
        (*dims[:a], part, dims[a] // part, *dims[a + 1 :])
        for a in range(rank)
        for part in (2, 3, 4)
        if rank < 5 and dims[a] % part == 0
    ]
    return m.one(*choices)


def expand(m: Maker) -> None:
    """A broadcast to a larger shape."""
    x = m.pick()
    if x is not None:
        dims = tensor(x).dims
        larger = tuple(m.one(*SIZES) if d == 1 else d for d in dims)
        m.add("expand", x, shape=m.one((), (2,), (3, 1))[: 5 - len(dims)] + larger, fact=m.facts[x])


def concat(m: Maker) -> None:
    """Two or three values one after another: old ones, new ones, the same twice."""
    x = m.pick(lambda t, f: t.rank >= 1)
    if x is None:
        return
    t = tensor(x)
    axis = m.one(*range(t.rank))

    def rest(u: TensorType) -> tuple[int, ...]:
        return u.dims[:axis] + u.dims[axis + 1 :]

    parts = [x]
    for _ in range(m.one(1, 2)):
        same = m.pick(lambda u, f: u.dtype == t.dtype and u.rank == t.rank and rest(u) == rest(t))
        length = min(m.one(*SIZES), max(1, t.dims[axis]))
        dims = (*t.dims[:axis], length, *t.dims[axis + 1 :])
        parts.append(same if same is not None and m.one(True, False) else m.leaf(t.dtype, dims))
    if m.one(False, True):
        parts.reverse()
    m.add("concat", *parts, axis=axis, fact=union(*(m.facts[p] for p in parts)))


FAMILIES: tuple[Callable[[Maker], None], ...] = (
    unary,
    binary,
    chain,
    matmul,
    conv,
    chain,
    binary,
    compare,
    where,
    convert,
    matmul,
    gemm,
    conv,
    chain,
    pool,
    reduction,
    reduction,
    softmax,
    batch_norm,
    transpose,
    view,
    expand,
    concat,
    gate,
    rewritable,
    slicing,
    splitting,
    padding,
    repeating,
    gathering,
    scattering,
    ordering,
    running,
    resizing,
    choosing,
    normalization,
    attention,
    conv_transpose,
    composite_reduction,
)
