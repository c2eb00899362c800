"""Families of ops that are made of others: normalisations, attention, transposed convolutions.

    normalization(m); attention(m)                  # m: Maker, holding the values so far

Their bounds follow the formula of the op step by step.
"""

from __future__ import annotations

import math

from minidlc.expr.types import bool_, f32
from minidlc.graph import apply, getitem
from minidlc.tests.graph_maker.facts import UNIT, Fact, accumulate, arithmetic, total
from minidlc.tests.graph_maker.pointwise import clipped
from minidlc.tests.graph_maker.values import MAX_SIZE, Maker, tensor

MAX_WORK = 60_000


def normalization(m: Maker) -> None:
    """layer_norm, rms_norm or instance_norm: statistics, a scale, a bias or none.

    With epsilon 1 and |x| <= 4 a change e of x changes the deviation by at most 4 * 4 * e, so the
    quotient by at most (2 + 8 * 16) * e; statistics of n terms are rounded n times.
    """
    x = clipped(m, m.pick_float(2, 3, 4), -4.0, 4.0)
    t, f = tensor(x), m.facts[x]
    name = m.one("layer_norm", "rms_norm", "instance_norm")
    if 0 in t.dims or (name == "instance_norm" and t.rank < 3):
        return
    axis = m.one(-1, t.rank - 1, 1)
    terms = math.prod(t.dims[2:] if name == "instance_norm" else t.dims[axis % t.rank :])
    rounded = f.error + UNIT[t.dtype.name] * f.size * (terms + 4)
    size = 2 * f.size
    y = Fact(-size, size, (2 + 8 * f.size**2) * rounded + UNIT[t.dtype.name] * size)
    shape = t.dims[1:2] if name == "instance_norm" else t.dims[axis % t.rank :]
    scale = m.leaf(t.dtype, shape)
    fact = arithmetic(t.dtype, "mul", y, m.facts[scale])
    if name == "rms_norm":
        return m.add(name, x, scale, axis=axis, epsilon=1.0, fact=fact)
    bias = m.leaf(t.dtype, shape)
    fact = arithmetic(t.dtype, "add", fact, m.facts[bias])
    attributes = {} if name == "instance_norm" else {"axis": axis}
    return m.add(name, x, scale, bias, **attributes, epsilon=1.0, fact=fact)


def attention(m: Maker) -> None:
    """softmax(q · k / sqrt(d)) · v, causal or not, of one value and new keys and values."""
    q = clipped(m, m.pick_float(4), -2.0, 2.0)
    t, f = tensor(q), m.facts[q]
    if t.dtype != f32 or 0 in t.dims:
        return
    batch, heads, rows, depth = t.dims
    length = rows if m.one(False, True) else m.one(3, 8, 17)
    if batch * heads * rows * length * depth > MAX_WORK:
        return
    k, v = (m.leaf(t.dtype, (batch, heads, length, depth)) for _ in range(2))
    if tensor(k).size > MAX_SIZE:
        return
    scores = accumulate(t.dtype, f, m.facts[k], depth)
    spread = scores.high - scores.low + length
    share = 2 * scores.error + UNIT[t.dtype.name] * (1 + spread)
    largest = m.facts[v].size
    error = largest * (length * share + UNIT[t.dtype.name] * (length + 2))
    causal = m.one(False, True)
    node = apply("attention", q, k, v, is_causal=causal)
    m.keep(getitem(node, 0), Fact(-largest, largest, error))


def conv_transpose(m: Maker) -> None:
    """A convolution the other way round, with new weights."""
    x = m.pick_float(3, 4)
    t, f = tensor(x), m.facts[x]
    if 0 in t.dims:
        return
    spatial = t.rank - 2
    kernel = tuple(m.one(2, 3, 1) for _ in range(spatial))
    outputs = m.one(1, 2, 3)
    w = m.leaf(t.dtype, (t.dims[1], outputs, *kernel))
    terms = t.dims[1] * math.prod(kernel)
    if t.size * outputs * math.prod(kernel) > MAX_WORK or tensor(w).size > MAX_SIZE:
        return
    strides = tuple(m.one(1, 2, 3) for _ in range(spatial))
    fact = accumulate(t.dtype, f, m.facts[w], terms)
    m.add("conv_transpose", x, w, strides=strides, fact=fact)


def composite_reduction(m: Maker) -> None:
    """A sum of absolute values or of squares."""
    x = m.pick(lambda t, f: t.dtype.is_float and t.dtype != bool_)
    if x is None:
        return
    t, f = tensor(x), m.facts[x]
    axes = tuple(a for a in range(t.rank) if m.one(False, True)) or None
    terms = math.prod(t.dims[a] for a in (range(t.rank) if axes is None else axes))
    keep = m.one(True, False)
    if m.one(True, False):
        positive = Fact(0.0, f.size, f.error, f.whole)
        fact = total(t.dtype, positive, terms)
        return m.add("reduce_l1", x, axes=axes, keepdims=keep, fact=fact)
    fact = accumulate(t.dtype, f, f, terms)
    return m.add("reduce_sum_square", x, axes=axes, keepdims=keep, fact=fact)
