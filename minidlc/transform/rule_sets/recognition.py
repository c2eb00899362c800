"""Composite ops found again in chains that exporters write: norms, gelu, hard_swish, softmax.

    d = x - mean(x); d / sqrt(mean(d * d) + 1e-5) * w + b -> layer_norm(x, w, b)
    x * (1 + erf(x / sqrt(2))) * 0.5 -> gelu(x)

A norm is found without scale and bias, then takes them one after the other, so that each spelling
needs one rule. The result is rounded in other places than the chain, so the pass is not exact:
precision="strict" leaves it out. D. Hendrycks and K. Gimpel, "Gaussian Error Linear Units", 2016;
J. Ba et al., "Layer Normalization", 2016; B. Zhang and R. Sennrich, "Root Mean Square Layer
Normalization", 2019; A. Howard et al., "Searching for MobileNetV3", 2019. Treated in course chapter
02_frontend_opt.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from minidlc.graph.graph import Constant, Node, Value, tensor_type
from minidlc.ops import functional
from minidlc.ops.composing import scalar
from minidlc.transform.rule_sets.conditions import (
    Verdict,
    both,
    is_float,
    number,
    same_type,
)
from minidlc.transform.rules.rules import Rule, near, rule_set

clip = functional("clip")
erf = functional("erf")
exp = functional("exp")
gelu = functional("gelu")
hard_sigmoid = functional("hard_sigmoid")
hard_swish = functional("hard_swish")
layer_norm = functional("layer_norm")
maximum = functional("max")
mean = functional("mean")
pow = functional("pow")
reciprocal = functional("reciprocal")
rms_norm = functional("rms_norm")
softmax = functional("softmax")
sqrt = functional("sqrt")
stop_gradient = functional("stop_gradient")
total = functional("sum")
tanh = functional("tanh")


@rule_set("recognise")
@cache
def recognised_rules() -> tuple[Rule, ...]:
    """Chains that one op stands for."""
    return (
        *(
            Rule(f"layer-norm-by-{how}", norm, as_layer_norm, when=both(over_last, same), benefit=2)
            for how, norm in divided_by_root(lambda x, a: x - mean(x, axes=a, keepdims=True))
        ),
        *(
            Rule(f"rms-norm-by-{how}", without_centre(norm), as_rms_norm, when=over_last)
            for how, norm in divided_by_root(lambda x, a: x)
        ),
        Rule("layer-norm-scale", scaled("layer_norm"), with_scale, when=scale_stays_inside),
        Rule("layer-norm-bias", shifted, with_bias, when=bias_stays_inside),
        Rule("rms-norm-scale", scaled("rms_norm"), with_scale, when=scale_stays_inside),
        *(Rule(f"gelu-erf-{n}", f, lambda x: gelu(x)) for n, f in enumerate(gelu_chains())),
        *(Rule(f"gelu-tanh-{n}", f, as_tanh) for n, f in enumerate(gelu_tanh_chains())),
        Rule("hard-sigmoid", shifted_relu6, as_sixth, when=is_float),
        Rule("hard-swish", swish, lambda x: hard_swish(x), when=a_sixth, benefit=2),
        Rule("hard-swish-late", swish_late, lambda x: hard_swish(x), when=is_float, benefit=3),
        Rule("softmax", softmax_chain, as_softmax, when=one_axis),
        Rule("softmax-stopped", softmax_of_stopped, as_softmax, when=one_axis),
        Rule("pow-two", lambda x: pow(x, 2), lambda x: x * x, when=both(is_float, same_type)),
    )


# ---- norms ---------------------------------------------------------------------------------------


def divided_by_root(top: Callable[[Any, Any], Any]) -> list[tuple[str, Callable[..., Any]]]:
    """Patterns of `top` divided by the root of the mean of its squares: each spelling.

    A power of two is a product by then: the rule `pow-two` came first.
    """

    def root(x: Any, a: Any, b: Any, e: Any) -> Any:
        return sqrt(mean(top(x, a) * top(x, a), axes=b, keepdims=True) + e)

    return [
        ("quotient", lambda x, a, b, e: top(x, a) / root(x, a, b, e)),
        ("reciprocal", lambda x, a, b, e: top(x, a) * reciprocal(root(x, a, b, e))),
        ("inverse", lambda x, a, b, e: top(x, a) * (1 / root(x, a, b, e))),
    ]


def without_centre(norm: Callable[..., Any]) -> Callable[..., Any]:
    """The pattern without a mean of x, and so without its axes."""
    return lambda x, b, e: norm(x, None, b, e)


def over_last(x: Value, b: tuple[int, ...] | None, e: Value) -> Verdict:
    """The mean is over the last axes, and e a number that a norm may add."""
    if not tensor_type(x).dtype.is_float:
        return "its elements are no floats"
    rank = tensor_type(x).rank
    axes = axes_of(b, rank)
    if not axes or axes != list(range(axes[0], rank)):
        return f"the mean is over axes {axes} of {rank}"
    epsilon = number(e)
    return (epsilon is not None and epsilon >= 0) or "what is added is no number from 0 on"


def same(x: Value, a: tuple[int, ...] | None, b: tuple[int, ...] | None) -> Verdict:
    """Both means are over the same axes."""
    rank = tensor_type(x).rank
    return axes_of(a, rank) == axes_of(b, rank) or f"means over {a} and {b}"


def axes_of(axes: tuple[int, ...] | None, rank: int) -> list[int]:
    """The axes counted from the front, in order."""
    return sorted(range(rank) if axes is None else (d % rank for d in axes))


def as_layer_norm(x: Value, b: tuple[int, ...] | None, e: Value) -> Value:
    """Replacement: a norm with scale 1."""
    return _norm_of(layer_norm, x, b, e)


def as_rms_norm(x: Value, b: tuple[int, ...] | None, e: Value) -> Value:
    """Replacement: a norm with scale 1."""
    return _norm_of(rms_norm, x, b, e)


def _norm_of(op: Callable[..., Value], x: Value, b: tuple[int, ...] | None, e: Value) -> Value:
    one, first = scalar(1, tensor_type(x).dtype), axes_of(b, tensor_type(x).rank)[0]
    return op(x, one, axis=first, epsilon=number(e))


def scaled(op: str) -> Callable[..., Any]:
    """Pattern: a norm of scale 1, times a value."""
    norm: Callable[..., Any] = functional(op)
    return lambda x, a, e, w: norm(x, 1, axis=a, epsilon=e) * w


def stays_inside(norm: Node, w: Value) -> Verdict:
    """The value is a parameter of the norm: it broadcasts to it and does not enlarge it."""
    result, own = tensor_type(norm), tensor_type(w)
    if own == result and not isinstance(w, Constant):
        return "it has the shape of the norm: another branch of the net, no parameter"
    if own.rank > result.rank:
        return f"{own} has more axes than {result}"
    pairs = zip(own.shape, result.shape[result.rank - own.rank :], strict=True)
    return all(d in (1, n) for d, n in pairs) or f"{own} enlarges {result}"


def _norm(root: Node) -> tuple[Node, Value]:
    """The norm among the inputs of a match, and the other input."""
    for v, w in (root.inputs, root.inputs[::-1]):
        if isinstance(v, Node) and v.op.name in ("layer_norm", "rms_norm") and w is not None:
            return v, w
    raise AssertionError("the pattern has a norm")


def scale_stays_inside(x: Value, w: Value, root: Node) -> Verdict:
    """The scale is one for each element of a row, and does not enlarge the norm."""
    return stays_inside(_norm(root)[0], w)


def with_scale(x: Value, w: Value, root: Node) -> Value:
    """Replacement: the norm scales."""
    norm = _norm(root)[0]
    return functional(norm.op.name)(x, w, **norm.op.attributes())


def shifted(x: Any, a: Any, e: Any, w: Any, b: Any) -> Any:
    """Pattern: a norm without bias, plus a value."""
    return layer_norm(x, w, axis=a, epsilon=e) + b


def bias_stays_inside(b: Value, root: Node) -> Verdict:
    """The bias is a parameter too, not a residual."""
    return stays_inside(_norm(root)[0], b)


def with_bias(x: Value, a: int, e: float, w: Value, b: Value) -> Value:
    """Replacement: the norm shifts."""
    return layer_norm(x, w, b, axis=a, epsilon=e)


# ---- activations ---------------------------------------------------------------------------------


def gelu_chains() -> list[Callable[[Any], Any]]:
    """x * (1 + erf(x / sqrt(2))) * 0.5 in each order."""
    root = math.sqrt(2)
    insides: tuple[Callable[[Any], Any], ...] = (
        lambda x: x / near(root),
        lambda x: x * near(1 / root),
    )
    return [f for inner in insides for f in halved(lambda x, inner=inner: erf(inner(x)) + 1)]


def gelu_tanh_chains() -> list[Callable[[Any], Any]]:
    """x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) * 0.5 in each order."""
    cubes: tuple[Callable[[Any], Any], ...] = (
        lambda x: pow(x, 3) * near(0.044715),
        lambda x: x * x * x * near(0.044715),
        lambda x: x * (x * (x * near(0.044715))),
    )

    def curve(x: Any, cube: Callable[[Any], Any]) -> Any:
        return tanh((x + cube(x)) * near(math.sqrt(2 / math.pi))) + 1

    return [f for cube in cubes for f in halved(lambda x, cube=cube: curve(x, cube))]


def halved(curve: Callable[..., Any]) -> list[Callable[[Any], Any]]:
    """x * curve(x) * 0.5 in each order."""
    return [
        lambda x: x * curve(x) * 0.5,
        lambda x: x * 0.5 * curve(x),
        lambda x: x * (curve(x) * 0.5),
    ]


def as_tanh(x: Value) -> Value:
    """Replacement: gelu by tanh."""
    return gelu(x, approximate="tanh")


def swish(x: Any, a: Any, b: Any) -> Any:
    """Pattern: x times a hard sigmoid of it."""
    return x * hard_sigmoid(x, alpha=a, beta=b)


def a_sixth(a: float, b: float) -> Verdict:
    """The slope is 1 / 6 as f32 or shorter literals have it, the middle 1 / 2."""
    return (abs(a - 1 / 6) < 1e-6 and b == 0.5) or f"alpha is {a}, beta {b}"


def shifted_relu6(x: Any) -> Any:
    """Pattern: x + 3 kept in [0, 6], divided by 6."""
    return clip(x + 3, min=0.0, max=6.0) / 6


def as_sixth(x: Value) -> Value:
    """Replacement: one op."""
    return hard_sigmoid(x, alpha=1 / 6, beta=0.5)


def swish_late(x: Any) -> Any:
    """Pattern: x times (x + 3 kept in [0, 6]), then divided by 6."""
    return x * clip(x + 3, min=0.0, max=6.0) / 6


# ---- softmax -------------------------------------------------------------------------------------


def softmax_chain(x: Any, a: Any) -> Any:
    """Pattern: exponentials of x less its largest element, divided by their sum."""
    e = exp(x - maximum(x, axes=a, keepdims=True))
    return e / total(e, axes=a, keepdims=True)


def softmax_of_stopped(x: Any, a: Any) -> Any:
    """Pattern: the same without a derivative of the largest element, which cancels out anyway."""
    e = exp(x - stop_gradient(maximum(x, axes=a, keepdims=True)))
    return e / total(e, axes=a, keepdims=True)


def one_axis(x: Value, a: tuple[int, ...] | None) -> Verdict:
    """The row is one axis."""
    count = tensor_type(x).rank if a is None else len(a)
    return count == 1 or f"it is over {count} axes"


def as_softmax(x: Value, a: tuple[int, ...] | None) -> Value:
    """Replacement: softmax along the axis."""
    return softmax(x, axis=0 if a is None else a[0])
