"""Rules of quantised values: what is exact, and what loses the saturation and is not done.

    quantize(dequantize(q, s, z), s, z) -> q            # to the bit, for 2**-100 < |s| < 2**100
    dequantize(quantize(x, s, z), s, z) stays           # it rounds and saturates: that is its use
    matmul(dequantize(a, …), dequantize(b, …)) -> dequantized matmul_integer(a, b, …)

Products of dequantised integers equal those of the integers where nothing is rounded: scales are
powers of two, and every sum is below 2**24 (a sum of zeros may lose its sign). precision="fast"
drops dequantize-of-quantize. Treated in course chapter 02_frontend_opt.
"""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minidlc.expr.types import DType, f32
from minidlc.graph.graph import Constant, Node, Value, apply, tensor_type
from minidlc.ops import functional
from minidlc.transform.dataflow.fact import limits, of_array
from minidlc.transform.rule_sets.conditions import Verdict, number, same_type
from minidlc.transform.rules.rules import Rule, rule_set

dequantize = functional("dequantize_linear")
quantize = functional("quantize_linear")
matmul = functional("matmul")
conv = functional("conv")

EXACT = 2**24  # integers up to here are exact in f32, and so are their sums in any order


@rule_set("quantised")
def quantised_rules() -> tuple[Rule, ...]:
    """Exact rules of quantised values."""
    return (
        Rule("quantize-of-dequantize", quantized_again, lambda q: q, when=recovers),
        Rule("matmul-of-dequantized", products, integer_products, when=exact_products),
        Rule("conv-of-dequantized", convolved, integer_conv, when=exact_conv),
    )


@rule_set("quantised_fast")
def fast_quantised_rules() -> tuple[Rule, ...]:
    """What drops a rounding and a saturation (part of `fast`)."""
    return (Rule("dequantize-of-quantize", dequantized_again, lambda x: x, when=same_type),)


def quantized_again(q: Any, s: Any, a: Any, b: Any, t: Any, u: Any, *z: Any) -> Any:
    """Pattern: the same scale and zero point in both directions."""
    x = dequantize(q, s, *z, axis=a, block_size=b, to=t)
    return quantize(x, s, *z, axis=a, block_size=b, to=u)


def recovers(q: Value, s: Value, t: DType, u: DType) -> Verdict:
    """(q - z) * s / s is q - z up to 1 / 64, which rounding takes away; nothing overflows."""
    if tensor_type(q).dtype != u:
        return f"{tensor_type(q).dtype} is not {u}: it saturates"
    if t != f32 or tensor_type(s).dtype != f32:
        return "in f16 and bf16 the quotient may round to another integer"
    return between(s, 2.0**-100, 2.0**100) or "the scale is not known, or may over- or underflow"


def between(scale: Value, least: float, most: float) -> bool:
    """The scale is a constant whose sizes all lie in a range."""
    if not isinstance(scale, Constant):
        return False
    sizes = np.abs(scale.array.astype(np.float64))
    return bool(((sizes > least) & (sizes < most)).all())


def dequantized_again(x: Any, s: Any, a: Any, b: Any, t: Any, u: Any, *z: Any) -> Any:
    """Pattern: the pair that rounds and saturates."""
    q = quantize(x, s, *z, axis=a, block_size=b, to=u)
    return dequantize(q, s, *z, axis=a, block_size=b, to=t)


def products(a: Any, sa: Any, za: Any, b: Any, sb: Any, zb: Any, i: Any, j: Any) -> Any:
    """Pattern: a product of two dequantised matrices, without blocks."""
    return matmul(dequantize(a, sa, za, axis=i), dequantize(b, sb, zb, axis=j))


def exact_products(a: Value, sa: Value, za: Value, b: Value, sb: Value, zb: Value) -> Verdict:
    """Nothing is rounded in the product of two matrices."""
    for matrix in (a, b):
        if tensor_type(matrix).rank < 2 or not tensor_type(matrix).is_static:
            return "it is no matrix of known size"
    return never_rounded((a, sa, za), (b, sb, zb), tensor_type(a).dims[-1])


def never_rounded(
    left: tuple[Value, Value, Value], right: tuple[Value, Value, Value], terms: int
) -> Verdict:
    """8-bit integers, scales that are powers of two, sums of products below 2**24."""
    for matrix, scale, _ in (left, right):
        if tensor_type(matrix).dtype.name not in ("u8", "i8"):
            return f"{tensor_type(matrix).dtype} is no 8-bit integer"
        value = number(scale)
        if value is None or not 2.0**-40 <= abs(value) <= 2.0**40:
            return "a scale is no constant number"
        if abs(math.frexp(value)[0]) != 0.5:
            return f"the scale {value} is no power of two"
    largest = _largest(left[0], left[2]) * _largest(right[0], right[2]) * terms
    return largest <= EXACT or f"sums of products reach {largest}, not exact in f32"


def _largest(matrix: Value, zero: Value) -> int:
    """The largest |element - zero|."""
    least, most = limits(tensor_type(matrix).dtype)
    fact = of_array(zero.array) if isinstance(zero, Constant) else None
    low, high = (fact.low, fact.high) if fact else (least, most)
    return int(max(abs(least - high), abs(most - low)))


def integer_products(
    a: Value, sa: Value, za: Value, b: Value, sb: Value, zb: Value, root: Node
) -> Value:
    """Replacement: the product of integers, times both scales."""
    return _dequantized(apply("matmul_integer", a, b, _scalar(za), _scalar(zb)), sa, sb, root)


def convolved(
    x: Any, sx: Any, zx: Any, w: Any, sw: Any, zw: Any, i: Any, j: Any,
    p: Any, s: Any, d: Any, g: Any, *b: Any,
) -> Any:  # fmt: skip
    """Pattern: a convolution of dequantised values, with a bias or without."""
    image, weights = dequantize(x, sx, zx, axis=i), dequantize(w, sw, zw, axis=j)
    return conv(image, weights, *b, pads=p, strides=s, dilations=d, group=g)


def exact_conv(x: Value, sx: Value, zx: Value, w: Value, sw: Value, zw: Value) -> Verdict:
    """Nothing is rounded before the bias is added."""
    if not tensor_type(x).is_static or not tensor_type(w).is_static:
        return "its sizes are not known"
    return never_rounded((x, sx, zx), (w, sw, zw), math.prod(tensor_type(w).dims[1:]))


def integer_conv(
    root: Node, x: Value, sx: Value, zx: Value, w: Value, sw: Value, zw: Value,
    b: tuple[Value | None, ...],
) -> Value:  # fmt: skip
    """Replacement: a convolution of integers, times both scales, plus the bias."""
    total = apply("conv_integer", x, w, _scalar(zx), _scalar(zw), **root.op.attributes())
    y = _dequantized(total, sx, sw, root)
    bias = b[0] if b else None
    if bias is None:
        return y
    return y + apply("reshape", bias, shape=(-1, *[1] * (tensor_type(x).rank - 2)))


def _dequantized(total: Value, s: Value, t: Value, root: Node) -> Value:
    """Sums of integers, times both scales."""
    scale = np.asarray((number(s) or 0) * (number(t) or 0), np.float32)
    return apply("cast", total, to=f32) * Constant("scale", scale, root.loc)


def _scalar(value: Value) -> Any:
    """The one number, without axes."""
    if isinstance(value, Constant):
        return Constant(value.name, value.array.reshape(()), value.loc)
    return apply("reshape", value, shape=())
