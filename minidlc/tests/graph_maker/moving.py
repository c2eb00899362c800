"""Families that move elements: slices, borders, repetition, positions that are values, orders.

    slicing(m); gathering(m); ordering(m)           # m: Maker, holding the values so far

What they give is what they were given, so facts stay what they are; only where order decides (the
largest element) do the values have to be exact.
"""

from __future__ import annotations

import math

import numpy as np

from minidlc.expr.types import TensorType, bool_, f32, f64, i32, i64
from minidlc.graph import Constant, Value, apply, getitem
from minidlc.tests.graph_maker.facts import Fact, curve, total, union
from minidlc.tests.graph_maker.values import MAX_SIZE, SIZES, Maker, tensor

NOTHING = Fact(0.0, 0.0, 0.0, True)


def some_axis(m: Maker, t: TensorType) -> int:
    """An axis from the front or from the end."""
    return m.one(*range(t.rank), *range(-t.rank, 0))


def slicing(m: Maker) -> None:
    """A part of some axes: from either end, in steps, backwards, rarely nothing."""
    x = m.pick(lambda t, f: t.rank >= 1)
    if x is None:
        return
    t = tensor(x)
    axes = [a for a in range(t.rank) if m.one(True, False)] or [t.rank - 1]
    starts, ends, steps = [], [], []
    for a in axes:
        size, step = t.dims[a], m.one(1, 1, 2, -1, -3, 5)
        low, high = m.one(0, 1, size // 2), m.one(size, size - 1, size + 7, size // 2 + 1)
        first, last = (low, high) if step > 0 else (high - 1, low - 1 if low else -size - 9)
        starts.append(first - size if m.one(False, True) and 0 < first < size else first)
        ends.append(last)
        steps.append(step)
    m.add("slice", x, starts=starts, ends=ends, axes=axes, steps=steps, fact=m.facts[x])


def splitting(m: Maker) -> None:
    """Both parts of an axis, the second one read again: as Split gives them."""
    x = m.pick(lambda t, f: t.rank >= 1)
    if x is None:
        return
    t, f = tensor(x), m.facts[x]
    axis = m.one(*range(t.rank))
    cut = t.dims[axis] // m.one(2, 3)
    m.add("slice", x, starts=(0,), ends=(cut,), axes=(axis,), fact=f)
    m.add("slice", x, starts=(cut,), ends=(t.dims[axis],), axes=(axis,), fact=f)


def padding(m: Maker) -> None:
    """A border of zeros, of a number, or of what is there; edges cut off."""
    x = m.pick(lambda t, f: t.rank >= 1)
    if x is None:
        return
    t, f = tensor(x), m.facts[x]
    pads = [m.one(0, 0, 1, 2, 5, -1) for _ in range(2 * t.rank)]
    for a, size in enumerate(t.dims):
        if size + min(pads[a], 0) + min(pads[a + t.rank], 0) < 1:
            pads[a] = pads[a + t.rank] = 0
    mode = m.one("constant", "constant", "edge", "reflect", "wrap")
    if mode != "constant" or t.dtype == bool_:
        return m.add("pad", x, pads=pads, mode=mode, fact=union(f, NOTHING))
    value = m.scalar(t.dtype) if m.one(False, True) else None
    if value is None or tensor(value).rank:
        return m.add("pad", x, pads=pads, fact=union(f, NOTHING))
    m.add("pad", x, value, pads=pads, fact=union(f, m.facts[value]))


def repeating(m: Maker) -> None:
    """tile, or the upper or lower triangle, or space for depth."""
    x = m.pick(lambda t, f: t.rank >= 1)
    if x is None:
        return
    t, f = tensor(x), m.facts[x]
    square = t.rank == 4 and t.dims[1] % 4 == 0
    match m.one("tile", "trilu", "depth"):
        case "trilu" if t.rank >= 2:
            k = m.one(0, 1, -1, 3)
            m.add("trilu", x, upper=m.one(True, False), k=k, fact=union(f, NOTHING))
        case "depth" if square:
            m.add("depth_to_space", x, blocksize=2, fact=f)
        case "depth" if t.rank == 4 and t.dims[2] % 2 == t.dims[3] % 2 == 0:
            m.add("space_to_depth", x, blocksize=2, fact=f)
        case _:
            m.add("tile", x, repeats=[m.one(1, 2, 1, 3) for _ in t.dims], fact=f)


def gathering(m: Maker) -> None:
    """Rows by positions, from either end, that are constants or an input; or one by one."""
    x = m.pick(lambda t, f: t.rank >= 1 and t.size > 0)
    if x is None:
        return
    t, f = tensor(x), m.facts[x]
    axis = some_axis(m, t)
    size, kind = t.dims[axis], m.one(i64, i32)
    if m.one(True, True, False):
        shape = m.one((3,), (), (1,), (2, 4), (17,))
        at = m.leaf(kind, shape, -size, size - 1)
        return m.add("gather", x, at, axis=axis, fact=f)
    shape = [m.one(d, max(1, d - 1)) for d in t.dims]
    shape[axis] = m.one(*SIZES)
    if math.prod(shape) <= MAX_SIZE:
        at = m.leaf(kind, shape, -size, size - 1)
        m.add("gather_elements", x, at, axis=axis, fact=f)


def scattering(m: Maker) -> None:
    """Elements written to other places of an axis, each place once."""
    x = m.pick(lambda t, f: t.rank >= 1 and t.size > 0)
    if x is None:
        return
    t, f = tensor(x), m.facts[x]
    axis = m.one(*range(t.rank))
    count = m.one(1, max(1, t.dims[axis] // 2), t.dims[axis])
    shape = (*t.dims[:axis], count, *t.dims[axis + 1 :])
    order = np.random.default_rng(len(m.values)).permutation(t.dims[axis])[:count]
    column = [1] * t.rank
    column[axis] = count
    places = np.broadcast_to(order.reshape(column), shape).astype(np.int64)
    at = m.keep(Constant(f"at{len(m.values)}", places), Fact(0, t.dims[axis], 0.0, True))
    updates = m.leaf(t.dtype, shape)
    m.add("scatter_elements", x, at, updates, axis=axis, fact=union(f, m.facts[updates]))


def ordering(m: Maker) -> None:
    """Where the extremum is, or the k largest and their places: of exact values."""
    x = m.pick(lambda t, f: f.exact and t.dtype != bool_ and t.rank >= 1 and t.size > 0)
    if x is None:
        return
    t, f = tensor(x), m.facts[x]
    axis = some_axis(m, t)
    place = Fact(0.0, t.dims[axis] - 1.0, 0.0, True)
    match m.one("arg_max", "arg_min", "topk", "hardmax"):
        case "topk":
            node = apply("topk", x, k=m.one(1, t.dims[axis]), axis=axis, largest=m.one(True, False))
            m.keep(getitem(node, 0), f)
            m.keep(getitem(node, 1), place)
        case "hardmax" if t.dtype.is_float:
            m.add("hardmax", x, axis=axis, fact=Fact(0.0, 1.0, 0.0, True))
        case name:
            name = "arg_max" if name == "hardmax" else name
            last = m.one(False, True)
            kept = m.one(True, False)
            m.add(name, x, axis=axis, keepdims=kept, select_last_index=last, fact=place)


def running(m: Maker) -> None:
    """Sums of all elements so far."""
    x = m.pick(lambda t, f: t.rank >= 1 and t.dtype != bool_)
    if x is None:
        return
    t, f = tensor(x), m.facts[x]
    axis = some_axis(m, t)
    both = {"exclusive": m.one(False, True), "reverse": m.one(False, True)}
    m.add("cumsum", x, axis=axis, **both, fact=total(t.dtype, f, max(1, t.dims[axis])))


def resizing(m: Maker) -> None:
    """The last axes larger or smaller: the nearest elements, or what lies between two."""
    x = m.pick_float(3, 4, 2)
    t, f = tensor(x), m.facts[x]
    axes = tuple(range(max(0, t.rank - 2), t.rank))
    if 0 in t.dims:
        return
    sizes = tuple(m.one(*SIZES) for _ in axes)
    how = m.one("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    mode = m.one("nearest", "linear")
    known = f if mode == "nearest" else curve(t.dtype, f, 4.0, -4 * f.size, 4 * f.size)
    if mode == "linear":
        known = Fact(f.low, f.high, known.error)
    m.add("resize", x, sizes=sizes, axes=axes, mode=mode, fact=known,
          coordinate_transformation_mode=how)  # fmt: skip


def choosing(m: Maker) -> None:
    """one_hot of positions that a value holds."""
    depth = m.one(*SIZES)
    at: Value = m.leaf(m.one(i64, i32), m.shape(m.one(1, 2)), -depth, depth - 1)
    values = m.leaf(m.one(f32, i32, f64), (2,))
    m.add("one_hot", at, values, depth=depth, axis=m.one(-1, 0), fact=m.facts[values])
