"""Transfer functions of conditions, sums and what is made of rows (see transfers.py).

    TRANSFERS["less"](node, Fact(0.0, 1.0), Fact(2.0, 2.0))       # Fact(1, 1): always true
    total(node, Fact(0.0, 1.0), terms=100)                        # [0, 100.001]: with rounding
    transfer(node, (Fact(-2.0, 5.0),))                            # by op; top for an unknown one

A sum of n terms, in whatever order, is at most n units in the last place of n times the largest
term away from the exact one (N. Higham, "Accuracy and Stability of Numerical Algorithms", 2002,
section 4.2). Treated in course chapter 02_frontend_opt.
"""

from __future__ import annotations

import math
from typing import Any

from minidlc.graph.graph import Node, tensor_type
from minidlc.graph.op import OpKind
from minidlc.graph.types import result_types
from minidlc.transform.dataflow.fact import Fact, largest, limits, settled, top, unit
from minidlc.transform.dataflow.transfers import TRANSFERS, add, product, register, times

# ---- conditions ----------------------------------------------------------------------------------


def _truth(always: bool, never: bool) -> Fact:
    return Fact(int(always), int(not never))


@register("less")
def _less(node: Node, a: Fact, b: Fact) -> Fact:
    return _truth(a.high < b.low and not a.nan and not b.nan, a.low >= b.high)


@register("less_or_equal")
def _less_or_equal(node: Node, a: Fact, b: Fact) -> Fact:
    return _truth(a.high <= b.low and not a.nan and not b.nan, a.low > b.high)


@register("greater")
def _greater(node: Node, a: Fact, b: Fact) -> Fact:
    return _less(node, b, a)


@register("greater_or_equal")
def _greater_or_equal(node: Node, a: Fact, b: Fact) -> Fact:
    return _less_or_equal(node, b, a)


@register("equal")
def _equal(node: Node, a: Fact, b: Fact) -> Fact:
    same = a.low == a.high == b.low == b.high and not a.nan and not b.nan
    return _truth(same, a.high < b.low or b.high < a.low)


@register("isnan")
def _isnan(node: Node, x: Fact) -> Fact:
    return Fact(0, int(x.nan))


@register("isinf")
def _isinf(node: Node, x: Fact) -> Fact:
    return Fact(0, int(x.infinite))


@register("logical_not")
def _not(node: Node, x: Fact) -> Fact:
    return Fact(1 - x.high, 1 - x.low)


@register("logical_and")
def _and(node: Node, a: Fact, b: Fact) -> Fact:
    return Fact(min(a.low, b.low), min(a.high, b.high))


@register("logical_or")
def _or(node: Node, a: Fact, b: Fact) -> Fact:
    return Fact(max(a.low, b.low), max(a.high, b.high))


# ---- sums and what is made of rows ---------------------------------------------------------------


def total(node: Node, x: Fact, terms: int | None) -> Fact:
    """A sum of `terms` elements in any order, each partial sum rounded; None: of any number."""
    element = tensor_type(node).dtype
    if terms is None:
        low, high = (0 if x.low >= 0 else -math.inf), (0 if x.high <= 0 else math.inf)
        nan = x.nan or (math.isinf(low) and math.isinf(high))
        return settled(element, Fact(low, high, nan, x.negative_zero))
    size = terms * max(abs(x.low), abs(x.high)) if terms else 0
    slack = 2 * terms * unit(element) * size if element.is_float else 0
    low, high = (times(terms, v) for v in (x.low, x.high))
    low, high = (
        (max(low - slack, 0) if x.low >= 0 else low - slack),
        (min(high + slack, 0) if x.high <= 0 else high + slack),
    )
    if not element.is_float:
        return settled(element, Fact(low, high))
    opposite = x.low < 0 < x.high and size * 1.01 > largest(element)
    if opposite:  # a partial sum may overflow upward, another downward
        return Fact(-math.inf, math.inf, True, True)
    return settled(element, Fact(low, high, x.nan, x.negative_zero))


def _terms(node: Node) -> int | None:
    """How many elements a reduction takes together; None if that is not known."""
    x = node.inputs[0]
    assert x is not None
    shape, axes = tensor_type(x).shape, node.op.attributes()["axes"]
    taken = [d for a, d in enumerate(shape) if axes is None or a in _from_front(axes, len(shape))]
    numbers = [d for d in taken if isinstance(d, int)]
    return math.prod(numbers) if len(numbers) == len(taken) else None


def _from_front(axes: tuple[int, ...], rank: int) -> list[int]:
    return [a % rank for a in axes]


@register("sum")
def _sum(node: Node, x: Fact) -> Fact:
    return total(node, x, _terms(node))


@register("mean")
def _mean(node: Node, x: Fact) -> Fact:
    return average(node, x, _terms(node))


@register("average_pool")
def _average_pool(node: Node, x: Fact) -> Fact:
    """A window at the border has fewer elements, or zeros beside them; without any it is 0 / 0."""
    attributes = node.op.attributes()
    empty = any(attributes["pads"]) or attributes["ceil_mode"]
    return average(node, x | Fact(0, 0, empty), math.prod(attributes["kernel_shape"]))


@register("global_average_pool")
def _global_average_pool(node: Node, x: Fact) -> Fact:
    image = node.inputs[0]
    assert image is not None
    type = tensor_type(image)
    return average(node, x, math.prod(type.dims[2:]) if type.is_static else None)


def average(node: Node, x: Fact, terms: int | None) -> Fact:
    """A sum of at most `terms` floats, divided by their number."""
    element = tensor_type(node).dtype
    if not terms or not element.is_float:
        return top(element)
    whole = total(node, x, terms)
    if whole.nan or whole.infinite:
        return Fact(-math.inf, math.inf, True, True)
    slack = 2 * (terms + 1) * unit(element) * max(abs(x.low), abs(x.high))
    fact = settled(element, Fact(x.low - slack, x.high + slack, x.nan, x.negative_zero), 1)
    low = max(fact.low, 0.0) if x.low >= 0 else fact.low
    high = min(fact.high, 0.0) if x.high <= 0 else fact.high
    return Fact(low, high, x.nan, x.negative_zero or x.sign_bit)


@register("max", "min")
def _extreme(node: Node, x: Fact) -> Fact:
    if _terms(node):
        return x
    least, most = limits(tensor_type(node).dtype)
    return x | (Fact(least, least) if node.op.name == "max" else Fact(most, most))


@register("softmax")
def _softmax(node: Node, x: Fact) -> Fact:
    return Fact(0.0, 1.0, x.nan or x.infinite)


@register("log_softmax")
def _log_softmax(node: Node, x: Fact) -> Fact:
    return Fact(-math.inf, 0.0, x.nan or x.infinite, True)


@register("matmul")
def _matmul(node: Node, a: Fact, b: Fact) -> Fact:
    x = node.inputs[0]
    assert x is not None
    depth = tensor_type(x).shape[-1]
    return total(node, product(a, b), depth if isinstance(depth, int) else None)


@register("conv")
def _conv(node: Node, x: Fact, w: Fact, bias: Fact | None = None) -> Fact:
    weights = node.inputs[1]
    assert weights is not None
    shape = tensor_type(weights).dims
    inside = x | Fact(0, 0) if any(node.op.attributes()["pads"]) else x
    sums = total(node, product(inside, w), math.prod(shape[1:]))
    return sums if bias is None else add(node, sums, bias)


@register("dequantize_linear")
def _dequantize(node: Node, q: Fact, scale: Fact, zero: Fact | None = None) -> Fact:
    zero = zero or Fact(0, 0)
    distance = Fact(q.low - zero.high, q.high - zero.low)
    return settled(tensor_type(node).dtype, product(distance, scale))


@register("arg_max", "arg_min")
def _position(node: Node, x: Fact) -> Fact:
    source = node.inputs[0]
    assert source is not None
    axis: int = node.op.attributes()["axis"]
    size = tensor_type(source).shape[axis]
    most = max(size - 1, 0) if isinstance(size, int) else limits(tensor_type(node).dtype)[1]
    return Fact(0, most)


def transfer(node: Node, facts: tuple[Any, ...]) -> Fact | tuple[Fact, ...]:
    """The fact of a node's result, a tuple of them if it has several."""
    types = result_types(node.type)
    known = TRANSFERS.get(node.op.name)
    if known is None or len(types) > 1 or node.op.kind is OpKind.CONTROL:
        unknown = tuple(top(t.dtype) for t in types)
        return unknown if types != (node.type,) else unknown[0]
    return known(node, *facts)
