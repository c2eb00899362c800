"""What each op makes of the facts about its inputs: one transfer function an op (see fact.py).

    TRANSFERS["relu"](node, Fact(-2.0, 5.0))        # Fact(0.0, 5.0)

    @register("double")                             # of an op of your own
    def double(node, x): return settle(node, Fact(2 * x.low, 2 * x.high, x.nan, x.negative_zero))

Reads a node and facts, gives the fact of its result, the same for every element. An op without an
entry is unknown: any value of its type, which is always right. Conditions and sums are in
transfers_rows.py, which also looks ops up here. Treated in course chapter
02_frontend_opt.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import TypeAlias

from minidlc.graph.graph import Node, tensor_type
from minidlc.transform.dataflow.fact import Fact, limits, settled, top

Transfer: TypeAlias = Callable[..., Fact]  # (node, *facts of its inputs, None if omitted)

TRANSFERS: dict[str, Transfer] = {}
ERROR = 8  # ulps by which exp, log, tanh and their like may be wrong


def register(*names: str) -> Callable[[Transfer], Transfer]:
    """Decorate the transfer function of the ops of these names."""

    def decorate(function: Transfer) -> Transfer:
        TRANSFERS.update(dict.fromkeys(names, function))
        return function

    return decorate


def settle(node: Node, fact: Fact, ulps: float = 0) -> Fact:
    """The fact after rounding to the element type of the node."""
    return settled(tensor_type(node).dtype, fact, ulps)


# ---- elements that are moved, not changed ----------------------------------------------------


@register(
    *("identity", "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "expand", "slice"),
    *("tile", "gather", "gather_elements", "gather_nd", "depth_to_space", "space_to_depth"),
    *("reverse_sequence", "stop_gradient", "custom_result"),
)
def _moved(node: Node, x: Fact, *_: Fact) -> Fact:
    return x


@register("concat")
def _either(node: Node, *facts: Fact) -> Fact:
    return reduce(Fact.__or__, facts)


@register("pad")
def _padded(node: Node, x: Fact, value: Fact | None = None) -> Fact:
    return x | (value or Fact(0, 0)) if node.op.attributes()["mode"] == "constant" else x


@register("trilu", "pack", "unpack")
def _or_zero(node: Node, x: Fact) -> Fact:
    return x | Fact(0, 0)


@register("where")
def _where(node: Node, condition: Fact, a: Fact, b: Fact) -> Fact:
    known = condition.constant
    return a | b if known is None else a if known else b


@register("max_pool")
def _max_pool(node: Node, x: Fact) -> Fact:
    attributes = node.op.attributes()
    border = limits(tensor_type(node).dtype)[0]  # a window may lie in the border alone
    return x | Fact(border, border) if any(attributes["pads"]) or attributes["ceil_mode"] else x


# ---- arithmetic --------------------------------------------------------------------------------


@register("add")
def add(node: Node, a: Fact, b: Fact) -> Fact:
    """A sum."""
    opposite = (a.high == math.inf and b.low == -math.inf) or (
        a.low == -math.inf and b.high == math.inf
    )
    nan = a.nan or b.nan or opposite
    fact = Fact(a.low + b.low, a.high + b.high, nan, a.negative_zero and b.negative_zero)
    return settle(node, fact)


@register("sub")
def _sub(node: Node, a: Fact, b: Fact) -> Fact:
    # x - y = x + (-y), and -0.0 only as -0.0 - 0.0
    zero = a.negative_zero and b.has_zero
    return add(node, a, Fact(-b.high, -b.low, b.nan, zero))


def product(a: Fact, b: Fact) -> Fact:
    """The exact product, not yet rounded."""
    ends = [times(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    undefined = (a.infinite and b.has_zero) or (b.infinite and a.has_zero)
    signs = (a.sign_bit or b.sign_bit) and min(ends) <= 0 <= max(ends)
    return Fact(min(ends), max(ends), a.nan or b.nan or undefined, signs)


def times(x: float, y: float) -> float:
    """The product of two bounds; of 0 and infinity 0, since NaN is said apart."""
    return 0 if x == 0 or y == 0 else x * y


@register("mul")
def _mul(node: Node, a: Fact, b: Fact) -> Fact:
    if node.inputs[0] is node.inputs[1]:
        return settle(node, _squared(a))
    fact = settle(node, product(a, b))
    minus = (a.sign_bit or b.sign_bit) and fact.has_zero
    return Fact(fact.low, fact.high, fact.nan, fact.negative_zero or (is_float(node) and minus))


def is_float(node: Node) -> bool:
    """The result holds floats."""
    return tensor_type(node).dtype.is_float


def _squared(x: Fact) -> Fact:
    ends = (times(x.low, x.low), times(x.high, x.high))
    return Fact(0 if x.has_zero else min(ends), max(ends), x.nan)


@register("div")
def _div(node: Node, a: Fact, b: Fact) -> Fact:
    if not is_float(node):
        size = max(abs(a.low), abs(a.high))
        least = 0 if a.low >= 0 and b.low >= 0 else -size
        return settle(node, Fact(least, size))
    undefined = (a.has_zero and b.has_zero) or (a.infinite and b.infinite)
    nan, signs = a.nan or b.nan or undefined, a.sign_bit or b.sign_bit
    if b.has_zero:
        return Fact(-math.inf if signs else 0.0, math.inf, nan, signs)
    ends = [_quotient(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    fact = settle(node, Fact(min(ends), max(ends), nan))
    return Fact(fact.low, fact.high, nan, signs and fact.has_zero)


def _quotient(x: float, y: float) -> float:
    return 0.0 if math.isinf(y) else x / y


@register("reciprocal")
def _reciprocal(node: Node, x: Fact) -> Fact:
    return _div(node, Fact(1.0, 1.0), x)


@register("pow")
def _pow(node: Node, a: Fact, b: Fact) -> Fact:
    if not is_float(node):
        return top(tensor_type(node).dtype)
    nan = a.nan or b.nan
    if b.constant == 2:
        fact = settle(node, _squared(a), ERROR)
        return Fact(max(fact.low, 0.0), fact.high, nan)
    if a.sign_bit:
        return top(tensor_type(node).dtype)
    return Fact(0.0, math.inf, nan)


@register("maximum")
def _maximum(node: Node, a: Fact, b: Fact) -> Fact:
    minus = a.negative_zero or b.negative_zero
    return Fact(max(a.low, b.low), max(a.high, b.high), a.nan or b.nan, minus)


@register("minimum")
def _minimum(node: Node, a: Fact, b: Fact) -> Fact:
    minus = a.negative_zero or b.negative_zero
    return Fact(min(a.low, b.low), min(a.high, b.high), a.nan or b.nan, minus)


@register("abs")
def _abs(node: Node, x: Fact) -> Fact:
    low = 0 if x.has_zero else min(abs(x.low), abs(x.high))
    return settle(node, Fact(low, max(abs(x.low), abs(x.high)), x.nan))


@register("neg")
def _neg(node: Node, x: Fact) -> Fact:
    zero = is_float(node) and x.has_zero
    return settle(node, Fact(-x.high, -x.low, x.nan, zero))


@register("relu")
def _relu(node: Node, x: Fact) -> Fact:
    return Fact(max(x.low, 0), max(x.high, 0), x.nan, x.negative_zero)


@register("leaky_relu")
def _leaky_relu(node: Node, x: Fact) -> Fact:
    alpha = Fact(*[node.op.attributes()["alpha"]] * 2)
    below = Fact(min(x.low, 0), min(x.high, 0), x.nan, x.negative_zero)
    return _relu(node, x) | settle(node, product(below, alpha))


@register("clip")
def _clip(node: Node, x: Fact) -> Fact:
    for name, keep in (("min", _maximum), ("max", _minimum)):
        bound = node.op.attributes()[name]
        if bound is not None:
            limit = settled(tensor_type(node).dtype, Fact(bound, bound))
            x = keep(node, x, limit)
    return x


# ---- functions of one float ----------------------------------------------------------------------


def _rising(
    function: Callable[[float], float], low: float, high: float, node: Node, x: Fact
) -> Fact:
    """A function that never falls, with values from low to high."""
    ends = (_at(function, x.low), _at(function, x.high))
    fact = settle(node, Fact(*ends, x.nan, x.negative_zero and function(0.0) == 0), ERROR)
    return Fact(max(fact.low, low), min(fact.high, high), fact.nan, fact.negative_zero)


def _at(function: Callable[[float], float], x: float) -> float:
    try:
        return function(x)
    except OverflowError:
        return math.inf


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


for _name, _function, _low, _high in (
    ("exp", math.exp, 0.0, math.inf),
    ("tanh", math.tanh, -1.0, 1.0),
    ("erf", math.erf, -1.0, 1.0),
    ("atan", math.atan, -math.inf, math.inf),
    ("sigmoid", _sigmoid, 0.0, 1.0),
):
    TRANSFERS[_name] = partial(_rising, _function, _low, _high)


@register("log")
def _log(node: Node, x: Fact) -> Fact:
    if x.high < 0:
        return top(tensor_type(node).dtype)
    low, high = (-math.inf if v <= 0 else _at(math.log, v) for v in (x.low, x.high))
    return settle(node, Fact(low, high, x.nan or x.low < 0, True), ERROR)


@register("sqrt")
def _sqrt(node: Node, x: Fact) -> Fact:
    if x.high < 0:
        return top(tensor_type(node).dtype)
    fact = settle(node, Fact(math.sqrt(max(x.low, 0)), math.sqrt(max(x.high, 0))), 1)
    return Fact(max(fact.low, 0.0), fact.high, x.nan or x.low < 0, x.negative_zero)


@register("floor", "ceil", "round")
def _whole(node: Node, x: Fact) -> Fact:
    function = {"floor": math.floor, "ceil": math.ceil, "round": round}[node.op.name]
    low, high = (v if math.isinf(v) else float(function(v)) for v in (x.low, x.high))
    return Fact(low, high, x.nan, x.negative_zero or (x.low < 0 <= high))


@register("sign")
def _sign(node: Node, x: Fact) -> Fact:
    low, high = ((v > 0) - (v < 0) for v in (x.low, x.high))
    return Fact(low, high, x.nan, x.negative_zero)


@register("sin", "cos")
def _wave(node: Node, x: Fact) -> Fact:
    return settle(node, Fact(-1.0, 1.0, x.nan or x.infinite, True), ERROR)


@register("softplus")
def _softplus(node: Node, x: Fact) -> Fact:
    high = settle(node, Fact(0.0, max(x.high, 0.0) + 1.0)).high
    return Fact(0.0, high, x.nan)


@register("hard_sigmoid")
def _hard_sigmoid(node: Node, x: Fact) -> Fact:
    zero = not node.op.attributes()["alpha"]
    return Fact(0.0, 1.0, x.nan or (zero and x.infinite), True)


@register("cast")
def _cast(node: Node, x: Fact) -> Fact:
    source, target = tensor_type(node.inputs[0]).dtype, tensor_type(node).dtype  # pyright: ignore
    if target.is_float:
        return settle(node, x)
    if target.kind == "bool":
        return Fact(int(not x.has_zero), int(x.constant != 0))
    if not source.is_float:
        return settle(node, x)
    least, most = limits(target)
    low, high = (
        least if v < least else most if v > most else math.trunc(v) for v in (x.low, x.high)
    )
    return Fact(min(low, 0), max(high, 0)) if x.nan else Fact(low, high)
