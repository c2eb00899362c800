"""f16 and bf16: 16-bit floats in memory, f32 in registers.

    wide = widen_half(builder, raw, target)         # i16 -> f32
    raw = narrow_half(builder, wide, target)        # f32 -> i16, to nearest even

Machines with the conversion in hardware use it for f16; elsewhere, and for bf16, it is done with
integers, because LLVM would call helpers of a compiler's run-time library that is not there.
Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from minidlc.codegen.values import Builder, Value, splat_number, vector_type
from minidlc.target import Target


def _has_half(target: Target) -> bool:
    return target.is_arm or target.has("f16c") or target.has("avx512f")


class _Bits:
    """Integer arithmetic on i32 lanes."""

    def __init__(self, builder: Builder, width: int) -> None:
        self.b, self.width = builder, width
        self.type, self.mask = vector_type("i32", width), vector_type("i1", width)

    def number(self, value: int) -> str:
        return splat_number(value, "i32", self.width)

    def op(self, name: str, a: str, b: str | int) -> str:
        other = self.number(b) if isinstance(b, int) else b
        return self.b.same(f"{name} {self.type} {a}, {other}")

    def select(self, cond: str, a: str, b: str) -> str:
        return self.b.same(f"select {self.mask} {cond}, {self.type} {a}, {self.type} {b}")

    def convert(self, name: str, a: str, source: str, result: str) -> str:
        source, result = vector_type(source, self.width), vector_type(result, self.width)
        return self.b.same(f"{name} {source} {a} to {result}")


def widen_half(b: Builder, raw: Value, target: Target) -> Value:
    """The f32 value of 16 bits loaded as an integer."""
    x = _Bits(b, raw.width)
    if raw.dtype.name == "bf16":
        high = x.op("shl", x.convert("zext", raw.text, "i16", "i32"), 16)
        return Value(x.convert("bitcast", high, "i32", "float"), raw.dtype, raw.width)
    if _has_half(target):
        half = x.convert("bitcast", raw.text, "i16", "half")
        return Value(x.convert("fpext", half, "half", "float"), raw.dtype, raw.width)
    bits = x.convert("zext", raw.text, "i16", "i32")
    sign = x.op("shl", x.op("and", bits, 0x8000), 16)
    shifted = x.op("shl", x.op("and", bits, 0x7FFF), 13)
    # Multiplying by 2**112 moves the exponent and makes denormals right; inf and NaN keep 255.
    as_float = x.convert("bitcast", shifted, "i32", "float")
    scale = splat_number(2.0**112, "float", raw.width)
    scaled = b.same(f"fmul {vector_type('float', raw.width)} {as_float}, {scale}")
    finite = x.convert("bitcast", scaled, "float", "i32")
    special = x.op("or", shifted, 0x7F800000)
    is_special = x.op("icmp uge", shifted, 0x0F800000)
    joined = x.op("or", x.select(is_special, special, finite), sign)
    return Value(x.convert("bitcast", joined, "i32", "float"), raw.dtype, raw.width)


def narrow_half(b: Builder, value: Value, target: Target) -> Value:
    """The 16 bits to store for an f32 value, rounded to nearest even; NaN stays NaN."""
    x = _Bits(b, value.width)
    if value.dtype.name == "f16" and _has_half(target):
        half = x.convert("fptrunc", value.text, "float", "half")
        return Value(x.convert("bitcast", half, "half", "i16"), value.dtype, value.width)
    bits = x.convert("bitcast", value.text, "float", "i32")
    nan = b.same(f"fcmp uno {value}, {value.text}")
    rounded = _round_bf16(x, bits) if value.dtype.name == "bf16" else _round_f16(x, bits)
    quiet = x.op("or", x.op("and", x.op("lshr", bits, 16), 0x8000), 0x7FC0)
    if value.dtype.name == "f16":
        quiet = x.op("or", x.op("and", x.op("lshr", bits, 16), 0x8000), 0x7E00)
    result = x.select(nan, quiet, rounded)
    return Value(x.convert("trunc", result, "i32", "i16"), value.dtype, value.width)


def _round_bf16(x: _Bits, bits: str) -> str:
    odd = x.op("and", x.op("lshr", bits, 16), 1)
    return x.op("lshr", x.op("add", bits, x.op("add", odd, 0x7FFF)), 16)


def _round_f16(x: _Bits, bits: str) -> str:
    """Round to 10 bits of mantissa; below 2**-14, adding 0.5 lets the adder round the denormal."""
    sign = x.op("and", x.op("lshr", bits, 16), 0x8000)
    size = x.op("and", bits, 0x7FFFFFFF)
    odd = x.op("and", x.op("lshr", size, 13), 1)
    moved = x.op("add", size, x.op("add", odd, 0xFFF - (112 << 23)))
    normal = x.op("lshr", moved, 13)
    float_type = vector_type("float", x.width)
    half = splat_number(0.5, "float", x.width)
    as_float = x.convert("bitcast", size, "i32", "float")
    summed = x.b.same(f"fadd {float_type} {as_float}, {half}")
    denormal = x.op("sub", x.convert("bitcast", summed, "float", "i32"), 0x3F000000)
    small = x.op("icmp ult", size, 113 << 23)
    huge = x.op("icmp uge", size, 0x47800000)  # 65536 and above; 65520 rounds up by itself
    kept = x.select(huge, x.number(0x7C00), x.select(small, denormal, normal))
    return x.op("or", kept, sign)
