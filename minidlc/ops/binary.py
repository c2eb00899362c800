"""Elementwise ops of two inputs, of three (where), and cast; inputs broadcast as in NumPy.

    x + b                                           # add: f32[4, 3] and f32[3] -> f32[4, 3]
    apply("where", mask, a, b)

Integers wrap in their own type; division truncates toward zero, x / 0 is 0 by definition here.
Treated in course chapter 01_graph_ir.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from minidlc.expr.functions import FUNCTIONS
from minidlc.expr.nodes import Cast, Expr, binary, call, compare, const, select
from minidlc.expr.types import DType, TensorType, bool_, dtype, f32, f64, i32
from minidlc.graph.graph import Constant, Node, Value, apply, tensor_type
from minidlc.graph.op import Example, register_op
from minidlc.ops import rules, samples
from minidlc.ops.composing import cast_to, in_wide, narrowed
from minidlc.ops.elementwise import Elementwise, Unary, to
from minidlc.ops.gradients import Grads, constant, given, summed_to, where_true
from minidlc.ops.rules import Values


@register_op
@dataclass(frozen=True)
class Add(Elementwise):
    """add(a, b)[i] = a[i] + b[i]."""

    onnx = "Add"

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return a + b

    def numpy(self, a: Values, b: Values) -> Values:
        return a + b

    def gradient(self, y: Node, dy: Value) -> Grads:
        a, b = given(y)
        return summed_to(dy, a), summed_to(dy, b)


@register_op
@dataclass(frozen=True)
class Sub(Elementwise):
    """sub(a, b)[i] = a[i] - b[i]."""

    onnx = "Sub"

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return a - b

    def numpy(self, a: Values, b: Values) -> Values:
        return a - b

    def gradient(self, y: Node, dy: Value) -> Grads:
        a, b = given(y)
        return summed_to(dy, a), summed_to(-dy, b)


@register_op
@dataclass(frozen=True)
class Mul(Elementwise):
    """mul(a, b)[i] = a[i] * b[i]."""

    onnx = "Mul"

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return a * b

    def numpy(self, a: Values, b: Values) -> Values:
        return a * b

    def gradient(self, y: Node, dy: Value) -> Grads:
        a, b = given(y)
        return summed_to(dy * b, a), summed_to(dy * a, b)


@register_op
@dataclass(frozen=True)
class Div(Elementwise):
    """div(a, b)[i] = a[i] / b[i]; of integers the quotient rounded toward zero, and 0 where b is 0.

    The lowest integer divided by -1 is itself: it wraps.
    """

    onnx = "Div"

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return a / b if a.dtype.is_float else call("truncdiv", a, b)

    def numpy(self, a: Values, b: Values) -> Values:
        return a / b if dtype(a.dtype).is_float else FUNCTIONS["truncdiv"].numpy(a, b)

    def gradient(self, y: Node, dy: Value) -> Grads:
        a, b = given(y)
        da = in_wide(dy) / in_wide(b)  # db may fit in f16 where this does not
        db = -da * in_wide(y)
        return narrowed(summed_to(da, a), a), narrowed(summed_to(db, b), b)


@register_op
@dataclass(frozen=True)
class Mod(Elementwise):
    """mod(a, b)[i] = the remainder, with the sign of b; with fmod=True, with the sign of a.

    Of integers, x mod 0 is 0 by definition here; of floats NaN.
    """

    onnx = "Mod"
    fmod: bool = False

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return call("fmod" if self.fmod else "floormod", a, b)

    def numpy(self, a: Values, b: Values) -> Values:
        return FUNCTIONS["fmod" if self.fmod else "floormod"].numpy(a, b)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """y is a - b times a whole number, which changes only where y jumps."""
        a, b = given(y)
        times = apply("round", (a - y) / b)
        return summed_to(dy, a), summed_to(-dy * times, b)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Both conventions on numbers of all signs."""
        for fmod in (False, True):
            for element, arrays in samples.elementwise(2, cls.takes, (-5.0, 5.0)):
                yield Example(cls(fmod), arrays, **samples.tolerance(element))


@register_op
@dataclass(frozen=True)
class Pow(Elementwise):
    """pow(a, b)[i] = a[i] ** b[i]; the result has the type of a.

    Integer powers wrap; an integer to a negative or fractional power is computed in f64 and
    truncated: 2 ** -1 = 0, 4 ** 0.5 = 2. A float to the power of an integer of 32 or 64 bits is
    computed in f64, where exponents keep their parity up to 2 ** 53: rounded to f32, 16777217 would
    be even. Beyond, an exponent counts as its nearest f64, which is even, as in C.
    """

    onnx = "Pow"
    domain = (0.1, 3.0)

    def type_rule(self, *inputs: TensorType) -> TensorType:
        rules.arity(self, inputs, 2)
        for t in inputs:
            rules.elements(self, self.takes, t)
        return TensorType(inputs[0].dtype, rules.broadcast(self, *inputs))

    def scalar(self, a: Expr, b: Expr) -> Expr:
        if a.dtype.is_float:
            element = _holding_exponent(a.dtype, b.dtype)
            return to(a.dtype, call("pow", to(element, a), to(element, b)))
        inexact = to(a.dtype, call("pow", Cast(f64, a), to(f64, b)))
        if b.dtype.is_float:
            return inexact
        element = _holding_both(a.dtype, b.dtype)
        natural = b if b.dtype.kind == "uint" else binary("max", b, 0)
        exact = to(a.dtype, call("pow", to(element, a), to(element, natural)))
        return exact if b.dtype.kind == "uint" else select(b < 0, inexact, exact)

    def numpy(self, a: Values, b: Values) -> Values:
        if dtype(a.dtype).is_float:
            element = _holding_exponent(dtype(a.dtype), dtype(b.dtype)).numpy
            power = FUNCTIONS["pow"].numpy(a.astype(element), b)
            with np.errstate(over="ignore"):
                return np.asarray(power).astype(a.dtype)
        inexact = convert(np.power(a.astype(np.float64), b.astype(np.float64)), a.dtype)
        if dtype(b.dtype).is_float:
            return inexact
        integer = _holding_both(dtype(a.dtype), dtype(b.dtype)).numpy
        exact = np.power(a.astype(integer), np.maximum(b, 0).astype(integer)).astype(a.dtype)
        return np.where(b < 0, inexact, exact)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """da = dy * b * a ** (b - 1), 0 where b is 0; db = dy * y * log(a), 0 where a <= 0.

        So 0 ** 0 has no NaN, and a negative a with a constant exponent none either.
        """
        a, b = given(y)
        wide_dy, wide_a = in_wide(dy), in_wide(a)
        da = wide_dy * _slope_of_power(wide_a, b)
        if isinstance(b, Constant) or not tensor_type(b).dtype.is_float:
            return narrowed(summed_to(da, a), a), None
        positive = wide_a > 0.0
        logarithm = apply("log", apply("where", positive, wide_a, 1.0))
        db = where_true(positive, wide_dy * in_wide(y) * logarithm)
        return narrowed(summed_to(da, a), a), cast_to(summed_to(db, b), tensor_type(b).dtype)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Floats, then integers with negative and fractional exponents."""
        for element, arrays in samples.elementwise(2, ("float",), cls.domain):
            yield Example(cls(), arrays, **samples.tolerance(element))
        base = np.array([0, 1, -1, 2, -3, 7], np.int32).reshape(-1, 1)
        for exponents in (np.arange(-2, 5), np.array([0.5, 2.0, 1.5], np.float32)):
            yield Example(cls(), (np.abs(base), exponents.astype(exponents.dtype)), 0, 0)
        yield Example(cls(), (base, np.arange(4).astype(np.int32)), 0, 0)
        large = np.array([2**31 - 1, 2**31, 2**32 - 1, 3], np.uint32)  # larger than any i32
        for exponents in (large, large.astype(np.int64) * 2, large.astype(np.uint64) << 31):
            yield Example(cls(), (base, exponents), 0, 0)
        odd = np.array([2**24 + 1, -(2**24) - 1, 2**24, 2**31 - 1, 3, 0, -1], np.int32)
        for element in ("f32", "f64", "f16", "bf16"):
            floats = np.array([[-1.0], [1.0], [-2.0], [-0.0], [-np.inf], [np.nan]])
            for exponents in (odd, odd.astype(np.int64) * 3, odd.astype(np.uint32)):
                yield Example(cls(), (floats.astype(dtype(element).numpy), exponents), 0, 0)


def _slope_of_power(a: Value, b: Value) -> Value:
    """b * a ** (b - 1), and 0 where b is 0."""
    real = tensor_type(b).dtype.is_float
    if isinstance(b, Constant) and b.array.all():
        lower = constant(b.array.astype(np.float64) - 1, a) if real else b.array - 1
        return constant(b.array, a) * apply("pow", a, lower)
    exponent = in_wide(b) if real else b
    nothing = apply("equal", exponent, 0)
    power = apply("pow", a, apply("where", nothing, 1, exponent - 1))
    return apply("where", nothing, 0.0, cast_to(exponent, tensor_type(a).dtype) * power)


def _holding_exponent(base: DType, exponent: DType) -> DType:
    """The float type that a power of a float is computed in."""
    return f64 if exponent.is_integer and exponent.bits >= 32 else base


def _holding_both(base: DType, exponent: DType) -> DType:
    """The integer type of the two that every exponent from 0 on fits in; powers wrap in it too."""
    return max(base, exponent, key=lambda d: (d.bits, d.kind == "uint"))


@register_op
@dataclass(frozen=True)
class Maximum(Elementwise):
    """maximum(a, b)[i] = the larger; NaN if either is NaN."""

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return binary("max", a, b)

    def numpy(self, a: Values, b: Values) -> Values:
        return np.maximum(a, b)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """Of two equal numbers each gets half."""
        a, b = given(y)
        half = apply("where", apply("equal", a, b), dy * 0.5, dy)
        return summed_to(where_true(a >= b, half), a), summed_to(where_true(b >= a, half), b)


@register_op
@dataclass(frozen=True)
class Minimum(Elementwise):
    """minimum(a, b)[i] = the smaller; NaN if either is NaN."""

    def scalar(self, a: Expr, b: Expr) -> Expr:
        return binary("min", a, b)

    def numpy(self, a: Values, b: Values) -> Values:
        return np.minimum(a, b)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """Of two equal numbers each gets half."""
        a, b = given(y)
        half = apply("where", apply("equal", a, b), dy * 0.5, dy)
        return summed_to(where_true(a <= b, half), a), summed_to(where_true(b <= a, half), b)


@register_op
@dataclass(frozen=True)
class Where(Elementwise):
    """where(c, a, b)[i] = a[i] if c[i] else b[i]; c is bool."""

    onnx = "Where"
    arity = 3
    takes = rules.ANY

    def type_rule(self, *inputs: TensorType) -> TensorType:
        rules.arity(self, inputs, 3)
        rules.elements(self, "bool", inputs[0])
        element = rules.elements(self, self.takes, *inputs[1:])
        return TensorType(element, rules.broadcast(self, *inputs))

    def scalar(self, c: Expr, a: Expr, b: Expr) -> Expr:
        return select(c, a, b)

    def reference(self, *inputs: Values) -> Values:
        return np.where(*inputs)

    def gradient(self, y: Node, dy: Value) -> Grads:
        """What was not taken gets 0. That 0 times an infinite slope further back is NaN.

        where(x < 1, x, sqrt(x)) has the gradient NaN at 0: make the argument safe, not the result,
        sqrt(where(x < 1, 1, x)).
        """
        condition, a, b = given(y)
        da, db = apply("where", condition, dy, 0), apply("where", condition, 0, dy)
        return None, summed_to(da, a), summed_to(db, b)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Every element type on both sides of a random mask."""
        for _, (mask, a, b) in samples.elementwise(3, cls.takes, cls.domain, specials=False):
            yield Example(cls(), (np.asarray(mask < 0 if mask.dtype != bool else mask), a, b), 0, 0)


@register_op
@dataclass(frozen=True)
class CastTo(Unary):
    """cast(x)[i] = x[i] as an element of type `to`.

    float to integer truncates toward zero and saturates, NaN gives 0; integer to integer wraps;
    to bool: whether it is not 0. One rule, folded or run, scalar or vector.
    """

    name = "cast"
    to: DType = f32
    takes = rules.ANY

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", dtype(self.to))  # also 'f32', 'float32', np.float32

    def type_rule(self, *inputs: TensorType) -> TensorType:
        return super().type_rule(*inputs).with_dtype(self.to)

    def scalar(self, x: Expr) -> Expr:
        if self.to == bool_ and x.dtype != bool_:
            return compare("!=", x, const(0, x.dtype))
        return to(self.to, x)

    def reference(self, *inputs: Values) -> Values:
        return convert(inputs[0], self.to.numpy)

    def gradient(self, y: Node, dy: Value) -> Grads:
        (x,) = given(y)
        element = tensor_type(x).dtype
        return (cast_to(dy, element) if element.is_float else None,)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Special values of each type into each type."""
        names = ("f32", "f64", "f16", "bf16", "i32", "i8", "i64", "u8", "u32", "bool")
        yield Example(cls(i32), (samples.array((3, 5), low=-9, high=9),), 0, 0)
        for source in names:
            for target in names:
                yield Example(cls(dtype(target)), (samples.special(source),), 0, 0)


def convert(x: Values, target: np.dtype[np.generic]) -> Values:
    """NumPy's astype with the out-of-range rule of `cast`."""
    source, element = dtype(x.dtype), dtype(target)
    if source.is_float and element.is_integer:
        info = np.iinfo(target.name)
        wide_x = np.trunc(
            np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
        )
        inside = (wide_x >= float(info.min)) & (wide_x < float(info.max) + 1.0)
        limits = np.where(wide_x < 0, np.array(info.min, target), np.array(info.max, target))
        return np.where(inside, np.where(inside, wide_x, 0).astype(target), limits)
    return x.astype(target)
