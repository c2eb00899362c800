"""Pointwise families: what random graphs put before, behind and between the heavy ops.

    unary(m); binary(m); chain(m)                   # m: Maker, holding the values so far

Functions with a jump (floor, comparisons, casts to integers) only follow values that every right
program computes to the bit; the others stay where they are well-conditioned.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minidlc.expr.types import TensorType, bool_, f32, f64, i32, i64, u8
from minidlc.graph import Constant, Value
from minidlc.tests.graph_maker.facts import (
    Fact,
    arithmetic,
    cast,
    curve,
    limits,
    settle,
    union,
)
from minidlc.tests.graph_maker.values import Maker, broadcasts, tensor

ANYWHERE = (-math.inf, math.inf)
CURVES = {  # name: where it is well-conditioned, its steepest slope there, its range
    "tanh": (*ANYWHERE, 1.0, -1.0, 1.0), "sigmoid": (*ANYWHERE, 0.25, 0.0, 1.0),
    "sin": (-50, 50, 1.0, -1.0, 1.0), "cos": (-50, 50, 1.0, -1.0, 1.0),
    "atan": (*ANYWHERE, 1.0, -1.6, 1.6), "erf": (*ANYWHERE, 1.2, -1.0, 1.0),
    "hard_sigmoid": (*ANYWHERE, 0.2, 0.0, 1.0), "softsign": (*ANYWHERE, 1.0, -1.0, 1.0),
    "exp": (-20, 4, 55.0, 0.0, 55.0), "log": (0.1, 1e4, 10.0, -2.4, 9.3),
    "sqrt": (0.05, 1e4, 2.3, 0.2, 100.0), "reciprocal": (0.1, 1e4, 100.0, 0.0, 10.0),
    "sinh": (-4, 4, 28.0, -28.0, 28.0), "cosh": (-4, 4, 28.0, 0.0, 28.0),
    "tan": (-1.2, 1.2, 8.0, -2.6, 2.6), "asin": (-0.9, 0.9, 2.3, -1.2, 1.2),
    "acos": (-0.9, 0.9, 2.3, 0.4, 2.7), "atanh": (-0.9, 0.9, 5.3, -1.5, 1.5),
    "asinh": (-1e4, 1e4, 1.0, -10.0, 10.0), "acosh": (1.1, 1e4, 2.2, 0.4, 10.0),
}  # fmt: skip
GROWING = ("gelu", "softplus", "elu", "leaky_relu", "hard_swish")  # slope < 1.5, |f(x)| <= |x| + 1
SIMPLE = ("relu", "neg", "abs", "identity", "clip")
JUMPS = ("floor", "ceil", "round", "sign")
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")
COMPARISONS = ("less", "less_or_equal", "greater", "greater_or_equal", "equal")


def clipped(m: Maker, x: Value, low: float, high: float) -> Value:
    """x itself if it is between the bounds, else a new value that is."""
    f = m.facts[x]
    if low <= f.low and f.high <= high:
        return x
    bounds = {"min": None if low == -math.inf else low, "max": None if high == math.inf else high}
    least, most = (min(max(v, low), high) for v in (f.low, f.high))
    m.add("clip", x, **bounds, fact=Fact(least, most, f.error))
    return m.values[-1]


def curved(m: Maker, x: Value, name: str) -> None:
    """One of CURVES, of x where it is well-conditioned."""
    low, high, *behaviour = CURVES[name]
    x = clipped(m, x, low, high)
    m.add(name, x, fact=curve(tensor(x).dtype, m.facts[x], *behaviour))


def unary(m: Maker, latest: bool = False) -> None:
    """A function of one float where it is well-conditioned, or one of integers or bools."""
    x = m.pick(latest=latest)
    if x is None:
        return
    t, f = tensor(x), m.facts[x]
    if t.dtype == bool_:
        return m.add("logical_not", x, fact=f)
    if not t.dtype.is_float:
        names = ("relu", "sign") if t.dtype.kind == "int" else ("bitwise_not",)
        name = m.one("neg", "abs", "bitwise_not", *names)
        return m.add(name, x, fact=settle(t.dtype, *limits(t.dtype), 0.0, True))
    jumps = JUMPS if f.exact else ()
    name = m.one(*SIMPLE, *GROWING, *jumps, m.one(*CURVES), m.one(*CURVES), "isnan", "pow")
    if name in CURVES:
        return curved(m, x, name)
    if name == "isnan":
        return m.add(m.one("isnan", "isinf"), x, fact=Fact(0.0, 1.0, 0.0, True))
    if name == "pow":
        base = clipped(m, x, 0.1, 10.0)
        fact = curve(t.dtype, m.facts[base], 300.0, 0.0, 1000.0)
        power = Constant("power", np.asarray(m.one(2.0, 0.5, 3.0, -1.0), t.dtype.numpy))
        return m.add("pow", base, power, fact=fact)
    if name in GROWING:
        return m.add(name, x, fact=curve(t.dtype, f, 1.5, -f.size - 1, f.size + 1))
    if name == "clip":
        low, high = m.one((0.0, 6.0), (-1.0, 1.0), (None, 0.5), (0.5, None))
        limit = max(f.size, 6.0)
        whole = f.whole and low != 0.5 != high
        return m.add(name, x, min=low, max=high, fact=Fact(-limit, limit, f.error, whole))
    size = f.size + 1
    return m.add(name, x, fact=Fact(-size, size, f.error, f.whole or name in JUMPS))


def binary(m: Maker, latest: bool = False) -> None:
    """Arithmetic of a value and something that broadcasts with it, in either order."""
    x = m.pick(latest=latest)
    if x is None:
        return
    t = tensor(x)
    if t.dtype == bool_:
        name = m.one("logical_and", "logical_or", "logical_xor", "equal")
        return m.add(name, x, m.partner(x), fact=Fact(0, 1, 0, True))
    a, b = (x, m.partner(x)) if m.one(True, False) else (m.partner(x), x)
    fa, fb = m.facts[a], m.facts[b]
    if not t.dtype.is_float:
        shift = ("shift_left", "shift_right") if t.dtype.kind == "uint" else ()
        name = m.one("add", "sub", "mul", "div", "mod", "minimum", "maximum", *BITS, *shift)
        return m.add(name, a, b, fact=settle(t.dtype, *limits(t.dtype), 0.0, True))
    name = m.one("add", "mul", "sub", "maximum", "minimum", "div")
    if name == "div":
        divisor = m.leaf(t.dtype, m.broadcast_shape(t.dims), low=0.5)
        return m.add(name, x, divisor, fact=curve(t.dtype, m.facts[x], 2.0, *_around(m.facts[x])))
    known = union(fa, fb) if name.endswith("imum") else arithmetic(t.dtype, name, fa, fb)
    return m.add(name, a, b, fact=known)


def _around(f: Fact) -> tuple[float, float]:
    return -2 * f.size, 2 * f.size


def compare(m: Maker) -> None:
    """A comparison of two values that are exact: a bool."""
    x = m.pick(lambda t, f: f.exact and t.dtype != bool_)
    if x is None:
        return
    y = m.partner(x, exact=True)
    m.add(m.one(*COMPARISONS), x, y, fact=Fact(0.0, 1.0, 0.0, True))


def where(m: Maker) -> None:
    """One of two values by a mask, new or computed."""
    x = m.pick()
    if x is None:
        return
    y = m.partner(x)
    both = TensorType(bool_, np.broadcast_shapes(tensor(x).dims, tensor(y).dims))
    mask = m.pick(lambda t, f: t.dtype == bool_ and broadcasts(t, both))
    if mask is None:
        mask = m.leaf(bool_, m.broadcast_shape(both.dims))
    m.add("where", mask, x, y, fact=union(m.facts[x], m.facts[y]))


def convert(m: Maker) -> None:
    """A cast; only what is exact becomes an integer."""
    x = m.pick()
    if x is None:
        return
    t, f = tensor(x), m.facts[x]
    targets = (f32, f64, i32, i64, u8, bool_) if f.exact else (f32, f64)
    to = m.one(*targets)
    m.add("cast", x, to=to, fact=cast(f, t.dtype, to))


def gate(m: Maker) -> None:
    """x * sigmoid(x): a diamond, both sides of which read the latest value."""
    x = m.pick_float()
    t, f = tensor(x), m.facts[x]
    name = m.one("sigmoid", "tanh")
    curved(m, x, name)
    side = m.values[-1]
    m.add("mul", x, side, fact=arithmetic(t.dtype, "mul", f, m.facts[side]))


def chain(m: Maker) -> None:
    """Ops on the latest value, as they follow a convolution: bias, activation, residual."""
    for _ in range(m.one(2, 3, 4)):
        m.one(unary, binary, binary)(m, latest=True)


def rewritable(m: Maker) -> None:
    """What a rule of canonicalize looks for."""
    x = m.pick(lambda t, f: t.dtype != bool_ and t.dtype.kind != "uint")
    if x is None:
        return
    t, f = tensor(x), m.facts[x]

    def again(op: str, fact: Fact, *more: Value, **attributes: Any) -> None:
        m.add(op, m.values[-1], *more, **attributes, fact=fact)

    def negated(value: Value) -> Value:
        known = m.facts[value]
        m.add("neg", value, fact=settle(t.dtype, -known.high, -known.low, known.error, known.whole))
        return m.values[-1]

    match m.one("neg", "add", "sub", "relu", "transpose", "reshape", "number", "cast", "expand"):
        case "neg":
            negated(negated(x))
        case "add" | "sub" as op:
            y = negated(m.partner(x))
            m.add(op, x, y, fact=arithmetic(t.dtype, op, f, m.facts[y]))
        case "relu":
            name = m.one("relu", "abs")
            positive = settle(t.dtype, -f.size - 1, f.size + 1, f.error, f.whole)
            m.add(name, x, fact=positive)
            again(name, positive)
        case "transpose":
            m.add("transpose", x, perm=m.permutation(t.rank), fact=f)
            again("transpose", f, perm=m.permutation(t.rank))
        case "reshape":
            m.add("reshape", x, shape=(-1,) if t.size else (0,), fact=f)
            again("reshape", f, shape=t.dims)
        case "number":
            op = m.one("add", "mul", "sub")
            number = m.scalar(t.dtype)
            m.add(op, x, number, fact=arithmetic(t.dtype, op, f, m.facts[number]))
        case "cast":
            m.add("cast", x, to=t.dtype, fact=f)
        case _:
            m.add("expand", x, shape=t.dims, fact=f)
