"""Rules of arithmetic: neutral elements, signs, powers, chains of bounds.

    x * 1 -> x        -(-x) -> x        clip(clip(x, 1, 3), 0, 4) -> clip(x, 1, 3)

Each holds for every value of every element type it admits, to the bit, the sign of zeros included:
x * 0, x - x and x / x are no rules for floats (NaN, infinity), x + 0.0 is none (it turns -0.0 into
0.0), x + -0.0 is one. Sums of integers wrap, so their constants may be added first; those of floats
may not. Where a guard asks `facts`, the analysis has proved what the rule needs. The set `fast` has
what holds for finite numbers up to rounding, for precision="fast". Treated in course chapter
02_frontend_opt.
"""

# Rules are lambdas over holes, which stand for values of any kind: nothing to infer from.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from minidlc.graph.graph import Constant, Node, Value, tensor_type
from minidlc.ops import functional
from minidlc.transform.rule_sets.conditions import (
    Facts,
    Verdict,
    both,
    constants,
    filled_with,
    integer,
    is_float,
    is_signed,
    is_static,
    number,
    same_type,
)
from minidlc.transform.rules.rules import Rule, rule_set

absolute = functional("abs")
clip = functional("clip")
exp = functional("exp")
log = functional("log")
maximum = functional("maximum")
minimum = functional("minimum")
neg = functional("neg")
pow = functional("pow")
reciprocal = functional("reciprocal")
relu = functional("relu")
sqrt = functional("sqrt")


@rule_set("arithmetic")
def arithmetic_rules() -> tuple[Rule, ...]:
    """Exact rules of arithmetic."""
    return (
        constant_right("add"),
        constant_right("mul"),
        *map(idempotent, ("relu", "abs", "floor", "ceil", "round", "sign")),
        Rule("add-zero", lambda x: x + 0, lambda x: x, when=both(integer, same_type)),
        Rule("add-minus-zero", lambda x: x + -0.0, lambda x: x, when=same_type),
        Rule("sub-zero", lambda x: x - 0, lambda x: x, when=same_type),
        Rule("mul-one", lambda x: x * 1, lambda x: x, when=same_type),
        Rule("div-one", lambda x: x / 1, lambda x: x, when=same_type),
        Rule("mul-minus-one", lambda x: x * -1, lambda x: neg(x), when=same_type),
        Rule("div-minus-one", lambda x: x / -1, lambda x: neg(x), when=same_type),
        Rule("zero-minus", lambda x: 0 - x, lambda x: neg(x), when=both(integer, same_type)),
        Rule("minus-zero-minus", lambda x: -0.0 - x, lambda x: neg(x), when=same_type),
        Rule("mul-zero", lambda x: x * 0, filled_with(0), when=both(is_static, zero_times)),
        Rule("sub-itself", lambda x: x - x, filled_with(0), when=both(is_static, minus_itself)),
        Rule("double-neg", lambda x: neg(neg(x)), lambda x: x),
        Rule("add-neg", lambda x, y: x + (-y), lambda x, y: x - y),
        Rule("sub-neg", lambda x, y: x - (-y), lambda x, y: x + y),
        Rule("mul-of-negs", lambda x, y: (-x) * (-y), lambda x, y: x * y),
        Rule("abs-of-neg", lambda x: absolute(neg(x)), lambda x: absolute(x), when=is_signed),
        Rule("div-power-of-two", lambda x, c: x / c, times_reciprocal, when=power_of_two),
        *constants_first(both(integer, constants("c", "d"))),
        Rule("pow-one", lambda x: pow(x, 1), lambda x: x, when=same_type),
        Rule("pow-zero", lambda x: pow(x, 0), filled_with(1), when=is_static),
        Rule("sqrt-of-square", lambda x: sqrt(x * x), lambda x: absolute(x), when=no_overflow),
        Rule("clip-unbounded", lambda x: clip(x), lambda x: x),
        Rule("clip-of-clip", clipped_twice, clipped_once, when=not_zero_alone),
        Rule("clip-never", lambda x, a, b: clip(x, min=a, max=b), lambda x: x, when=inside),
        Rule("max-then-min", bounded, as_clip, when=bounded_by_numbers),
        Rule("max-of-max", *chain("maximum"), when=constants("c", "d")),
        Rule("min-of-min", *chain("minimum"), when=constants("c", "d")),
        Rule("relu-of-positive", lambda x: relu(x), lambda x: x, when=not_below_zero),
        Rule("abs-of-positive", lambda x: absolute(x), lambda x: x, when=no_sign),
    )


@rule_set("finite")
def finite_rules() -> tuple[Rule, ...]:
    """Rules that hold for finite numbers, up to rounding (part of `fast`)."""
    return (
        Rule("mul-zero-fast", lambda x: x * 0, filled_with(0), when=is_static),
        Rule("sub-itself-fast", lambda x: x - x, filled_with(0), when=is_static),
        Rule("div-itself", lambda x: x / x, filled_with(1), when=both(is_static, is_float)),
        Rule("add-zero-fast", lambda x: x + 0, lambda x: x, when=same_type),
        Rule("log-of-exp", lambda x: log(exp(x)), lambda x: x),
        Rule("exp-of-log", lambda x: exp(log(x)), lambda x: x),
        Rule("mul-by-reciprocal", lambda x, y: x * reciprocal(y), lambda x, y: x / y),
        Rule("sqrt-of-square-fast", lambda x: sqrt(x * x), lambda x: absolute(x)),
        Rule("pow-half", lambda x: pow(x, 0.5), lambda x: sqrt(x), when=both(is_float, same_type)),
        *(
            Rule(f"{r.name}-fast", r.pattern, r.replacement, when=constants("c", "d"))
            for r in constants_first(None)
        ),
    )


def constant_right(op: str) -> Rule:
    """c + x = x + c: printed graphs have their constants on one side."""
    f: Callable[..., Any] = functional(op)
    return Rule(
        f"{op}-constant-right",
        lambda c, x: f(c, x),
        lambda c, x: f(x, c),
        when=constant_on_the_left_only,
    )


def constant_on_the_left_only(c: Value, x: Value) -> Verdict:
    """The left input is a constant, the right one is not."""
    if not isinstance(c, Constant):
        return "its left input is no constant"
    return not isinstance(x, Constant) or "both inputs are constants: fold_constants takes them"


def idempotent(op: str) -> Rule:
    """f(f(x)) = f(x)."""
    f: Callable[..., Any] = functional(op)
    return Rule(f"{op}-of-{op}", lambda x: f(f(x)), lambda x: f(x))


def chain(op: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """f(f(x, c), d) = f(x, f(c, d)): pattern and replacement."""
    f: Callable[..., Any] = functional(op)
    return (lambda x, c, d: f(f(x, c), d)), (lambda x, c, d: f(x, f(c, d)))


def constants_first(when: Callable[..., Verdict] | None) -> tuple[Rule, ...]:
    """(x + c) + d = x + (c + d), and the same of products."""
    return (
        Rule("add-constants", *chain("add"), when=when),
        Rule("mul-constants", *chain("mul"), when=when),
    )


def zero_times(x: Value, root: Node, facts: Facts) -> Verdict:
    """Integers, or floats that are finite and have no sign: -1 * 0.0 is -0.0."""
    fact = facts(x)
    exact = tensor_type(root).dtype.is_integer or (fact.finite and not fact.sign_bit)
    return exact or "x may be NaN, infinite or negative"


def minus_itself(x: Value, root: Node, facts: Facts) -> Verdict:
    """Integers, or floats that are finite."""
    return tensor_type(root).dtype.is_integer or facts(x).finite or "x may be NaN or infinite"


def power_of_two(x: Value, c: Value, root: Node) -> Verdict:
    """x / c = x * (1 / c) to the bit where 1 / c is exact."""
    value = number(c)
    if not isinstance(c, Constant) or value is None or not tensor_type(x).dtype.is_float:
        return "it is not divided by a finite number"
    exact = abs(math.frexp(value)[0]) == 0.5 and 2.0**-13 <= abs(value) <= 2.0**13
    return (exact and abs(value) != 1) or f"1 / {value} is rounded"


def times_reciprocal(x: Value, c: Constant) -> Value:
    """x * (1 / c)."""
    return x * Constant(f"{c.name}_reciprocal", (1 / c.array).astype(c.array.dtype), c.loc)


def no_overflow(x: Value, facts: Facts) -> Verdict:
    """sqrt(x * x) is |x| to the bit where the square neither over- nor underflows.

    S. Boldo, "Stupid is as stupid does: Taking the square root of the square of a floating-point
    number", 2015.
    """
    if tensor_type(x).dtype.name not in ("f32", "f64"):
        return "the square is rounded to a narrow type"
    fact = facts(x)
    safe = fact.low >= 1e-15 and fact.high <= 1e15
    return safe or "the square may overflow, or be rounded to 0"


def clipped_twice(x: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Pattern: clip of clip."""
    return clip(clip(x, min=a, max=b), min=c, max=d)


def clipped_once(x: Value, root: Node) -> Value:
    """Replacement: the two bounds of a chain are where -inf and inf would end.

    So no saturation inside the chain is lost: [1, 3], then [0, 4], then [2, 4] is [2, 3].
    """
    low, high = ends(root)
    bounds = {"min": low, "max": high}
    return clip(x, **{n: v for n, v in bounds.items() if math.isfinite(v)})


def ends(root: Node) -> tuple[float, float]:
    """Where a chain of two clips takes -inf and inf."""
    low: float = -math.inf
    high: float = math.inf
    for step in (root.inputs[0], root):
        assert isinstance(step, Node)
        least, most = step.op.attributes().values()
        low, high = (_clipped(v, least, most) for v in (low, high))
    return low, high


def not_zero_alone(root: Node) -> Verdict:
    """Something besides 0 is left: of 0 and -0.0 either may come first in the chain."""
    return ends(root) != (0, 0) or "the only number left is 0, of either sign"


def _clipped(value: float, least: float | None, most: float | None) -> float:
    value = value if least is None else max(value, least)
    return value if most is None else min(value, most)


def inside(x: Value, a: float | None, b: float | None, facts: Facts) -> Verdict:
    """The analysis says that x never leaves the bounds (a bound 0 would change -0.0)."""
    fact = facts(x)
    low, high = (_in_type(v, x, none) for v, none in ((a, -math.inf), (b, math.inf)))
    zero = fact.negative_zero and 0 in (low, high)
    within = low <= fact.low and fact.high <= high and not zero
    return within or f"x is in [{fact.low}, {fact.high}]"


def _in_type(bound: float | None, x: Value, none: float) -> float:
    """A bound as the element type of x has it."""
    kind: Any = tensor_type(x).dtype.numpy.type
    return none if bound is None else kind(bound).item()


def bounded(x: Any, c: Any, d: Any) -> Any:
    """Pattern: a lower bound, then an upper one."""
    return minimum(maximum(x, c), d)


def bounded_by_numbers(x: Value, c: Value, d: Value, root: Node) -> Verdict:
    """Both bounds are finite numbers, and x has the shape of the result."""
    if number(c) is None or number(d) is None:
        return "the bounds are no finite numbers"
    return same_type(x, root)


def as_clip(x: Value, c: Value, d: Value) -> Value:
    """Replacement: one clip."""
    return clip(x, min=number(c), max=number(d))


def not_below_zero(x: Value, facts: Facts) -> Verdict:
    """The analysis says that no element is below 0."""
    return facts(x).low >= 0 or "x may be negative"


def no_sign(x: Value, facts: Facts) -> Verdict:
    """The analysis says that no element is below 0, nor -0.0."""
    return not facts(x).sign_bit or "x may be negative, or -0.0"
