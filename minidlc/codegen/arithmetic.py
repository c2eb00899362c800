"""Operators on values: + - * /, comparisons, bit operations, conversions, integer division.

    ops = Operators(builder)
    ops.binary("+", x, y)                           # a scalar meets a vector: it is splatted
    ops.cast(x, i8)                                 # truncates, saturates, NaN gives 0

The meanings are those of expr/nodes.py and expr/functions.py. `contract` lets a product and a sum
become one FMA, `reassoc` lets the lanes of a sum be added in any order: not in strict precision.
Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

from minidlc.codegen.halves import narrow_half, widen_half
from minidlc.codegen.values import (
    Builder,
    Value,
    register_type,
    splat_number,
    suffix,
    vector_type,
)
from minidlc.expr.nodes import Number
from minidlc.expr.types import DType, bool_
from minidlc.support.errors import CodegenError
from minidlc.target import Target

_FLOAT = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_INT = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor"}
_BOOL = {"+": "or", "*": "and", "&": "and", "|": "or", "^": "xor", "min": "and", "max": "or"}
_ORDERED = {"==": "oeq", "!=": "une", "<": "olt", "<=": "ole", ">": "ogt", ">=": "oge"}
_ORDER = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


class Operators:
    """Emits operators; the results are written once for equal operands."""

    def __init__(self, builder: Builder, target: Target) -> None:
        self.b = builder
        self.target = target
        self.strict = target.precision == "strict"

    # values

    def const(self, value: Number, dtype: DType, width: int = 0) -> Value:
        """A constant in every lane."""
        return Value(splat_number(value, register_type(dtype), width), dtype, width)

    def splat(self, x: Value, width: int) -> Value:
        """The scalar `x` in each of `width` lanes; a vector or width 0 leaves it alone."""
        if x.width or not width:
            return x
        element = register_type(x.dtype)
        if not x.text.startswith("%"):
            return Value(f"splat ({element} {x.text})", x.dtype, width)
        vector = f"<{width} x {element}>"
        one = self.b.pure(f"insertelement {vector} poison, {element} {x.text}, i64 0", x.text)
        spread = f"shufflevector {vector} {one}, {vector} poison, <{width} x i32> zeroinitializer"
        return Value(self.b.pure(spread, one), x.dtype, width)

    def together(self, *values: Value) -> tuple[Value, ...]:
        """The values with the same number of lanes."""
        width = max(v.width for v in values)
        return tuple(self.splat(v, width) for v in values)

    def op(self, text: str, dtype: DType, width: int) -> Value:
        """An instruction without effects, as a value."""
        return Value(self.b.same(text), dtype, width)

    def call(self, name: str, *args: Value, dtype: DType | None = None, flags: str = "") -> Value:
        """An LLVM intrinsic named `llvm.name`, overloaded on its first argument."""
        result = dtype or args[0].dtype
        type = vector_type(register_type(result), args[0].width)
        full = f"@llvm.{name}.{suffix(register_type(args[0].dtype), args[0].width)}"
        text = f"call {flags} {type} {full}({', '.join(map(str, args))})".replace("call  ", "call ")
        return self.op(text, result, args[0].width)

    # operators

    def binary(self, op: str, a: Value, b: Value) -> Value:
        """`a op b` of ARITHMETIC or BITWISE."""
        a, b = self.together(a, b)
        kind = a.dtype.kind
        if op in ("min", "max") and kind != "bool":
            if kind == "float":
                return self.call("minimum" if op == "min" else "maximum", a, b, flags="nsz")
            return self.call(("s" if kind == "int" else "u") + op, a, b)
        if op in ("<<", ">>"):
            return self._shift(op, a, b)
        table = {"float": _FLOAT, "bool": _BOOL}.get(kind, _INT)
        if op not in table:
            raise CodegenError(f"no operator {op!r} on {a.dtype}", code="MDLC0807")
        fused = kind == "float" and op != "/" and not self.strict
        flags = " contract" if fused else ""
        return self.op(f"{table[op]}{flags} {a}, {b.text}", a.dtype, a.width)

    def _shift(self, op: str, a: Value, b: Value) -> Value:
        """Shifts by the width or more give 0 (or -1, as NumPy); LLVM leaves them undefined."""
        if not a.dtype.is_integer:
            raise CodegenError(f"no operator {op!r} on {a.dtype}", code="MDLC0807")
        limit = self.const(a.dtype.bits, a.dtype, a.width)
        fits = self.op(f"icmp ult {b}, {limit.text}", bool_, a.width)
        if op == ">>" and a.dtype.kind == "int":
            last = self.const(a.dtype.bits - 1, a.dtype, a.width)
            return self.op(f"ashr {a}, {self.select(fits, b, last).text}", a.dtype, a.width)
        zero = self.const(0, a.dtype, a.width)
        by = self.select(fits, b, zero)
        moved = self.op(f"{'shl' if op == '<<' else 'lshr'} {a}, {by.text}", a.dtype, a.width)
        return self.select(fits, moved, zero)

    def compare(self, op: str, a: Value, b: Value) -> Value:
        """`a op b` of COMPARISONS: bool; comparisons with NaN are false, but != is true."""
        a, b = self.together(a, b)
        if a.dtype.is_float:
            return self.op(f"fcmp {_ORDERED[op]} {a}, {b.text}", bool_, a.width)
        if op in ("==", "!="):
            test = "eq" if op == "==" else "ne"
        else:
            test = ("s" if a.dtype.kind == "int" else "u") + _ORDER[op]
        return self.op(f"icmp {test} {a}, {b.text}", bool_, a.width)

    def select(self, cond: Value, a: Value, b: Value) -> Value:
        """`a` where `cond`, else `b`."""
        a, b = self.together(a, b)
        if cond.width:
            a, b = self.splat(a, cond.width), self.splat(b, cond.width)
        return self.op(f"select {cond}, {a}, {b}", a.dtype, a.width)

    def logic(self, op: str, a: Value, b: Value) -> Value:
        """`and`, `or`, `xor` of integers or bools."""
        a, b = self.together(a, b)
        return self.op(f"{op} {a}, {b.text}", a.dtype, a.width)

    def invert(self, a: Value) -> Value:
        """Every bit flipped; logical not of a bool."""
        ones = self.const(True if a.dtype.kind == "bool" else -1, a.dtype, a.width)
        return self.logic("xor", a, ones)

    # conversions

    def cast(self, a: Value, to: DType) -> Value:
        """Conversion as expr.nodes.Cast says."""
        source, element = a.dtype, register_type(to)
        if source == to:
            return a
        if to.kind == "bool":
            return self._is_not_zero(a)
        if source.is_float and to.is_float:
            how = _resize("fp", source, to)
            wide = self._convert(how, a, to) if how else Value(a.text, to, a.width)
            return self.round_half(wide) if to.bits == 16 else wide
        if source.is_float:
            sign = "si" if to.kind == "int" else "ui"
            result = suffix(element, a.width)
            name = f"@llvm.fpto{sign}.sat.{result}.{suffix(register_type(source), a.width)}"
            return self.op(f"call {vector_type(element, a.width)} {name}({a})", to, a.width)
        if to.is_float:
            made = self._convert("sitofp" if source.kind == "int" else "uitofp", a, to)
            return self.round_half(made) if to.bits == 16 else made
        how = _resize("sint" if source.kind == "int" else "uint", source, to)
        return self._convert(how, a, to) if how else Value(a.text, to, a.width)

    def _convert(self, how: str, a: Value, to: DType) -> Value:
        type = vector_type(register_type(to), a.width)
        return self.op(f"{how} {a} to {type}", to, a.width)

    def _is_not_zero(self, a: Value) -> Value:
        return self.compare("!=", a, self.const(0, a.dtype, a.width))

    def round_half(self, a: Value) -> Value:
        """An f16 or bf16 value held as f32, rounded to what its type can hold."""
        return widen_half(self.b, narrow_half(self.b, a, self.target), self.target)

    def reinterpret(self, a: Value, to: DType) -> Value:
        """The same bits as another type of the same size."""
        return self._convert("bitcast", a, to)

    # division of integers: never a trap

    def divide(self, fn: str, a: Value, b: Value) -> Value:
        """truncdiv, floormod or fmod of integers; by 0 gives 0, and MIN by -1 gives MIN or 0."""
        a, b = self.together(a, b)
        dtype, width = a.dtype, a.width
        zero, one = self.const(0, dtype, width), self.const(1, dtype, width)
        by_zero = self.compare("==", b, zero)
        unsafe, letter = by_zero, "u"
        if dtype.kind == "int":
            letter = "s"
            least = self.const(-(1 << (dtype.bits - 1)), dtype, width)
            minus = self.compare("==", b, self.const(-1, dtype, width))
            overflow = self.logic("and", self.compare("==", a, least), minus)
            unsafe = self.logic("or", by_zero, overflow)
        divisor = self.select(unsafe, one, b)
        name = "div" if fn == "truncdiv" else "rem"
        result = self.op(f"{letter}{name} {a}, {divisor.text}", dtype, width)
        if fn == "floormod" and dtype.kind == "int":
            other_sign = self.compare("<", self.logic("xor", result, b), zero)
            fix = self.logic("and", self.compare("!=", result, zero), other_sign)
            result = self.select(fix, self.binary("+", result, b), result)
        return self.select(by_zero, zero, result)

    # across lanes

    def reduce(self, op: str, start: Value, lanes: Value) -> Value:
        """`start op lane0 op lane1 …`, in any order unless precision is strict."""
        element, kind = register_type(lanes.dtype), lanes.dtype.kind
        over = suffix(element, lanes.width)
        if kind == "float" and op in ("+", "*"):
            name = f"@llvm.vector.reduce.{'fadd' if op == '+' else 'fmul'}.{over}"
            flags = "" if self.strict else "reassoc contract "
            text = f"call {flags}{element} {name}({start}, {lanes})"
            return Value(self.b.value(text), lanes.dtype)
        if kind == "float":
            name = "fmaximum" if op == "max" else "fminimum"
        elif kind == "bool":
            name = _BOOL[op]
        else:
            name = ("s" if kind == "int" else "u") + op if op in ("min", "max") else _INT[op]
        flags = "nsz " if kind == "float" else ""
        text = f"call {flags}{element} @llvm.vector.reduce.{name}.{over}({lanes})"
        return self.binary(op, start, Value(self.b.value(text), lanes.dtype))

    def any(self, lanes: Value) -> str:
        """The name of an i1: some lane holds."""
        return self.b.same(f"call i1 @llvm.vector.reduce.or.v{lanes.width}i1({lanes})")

    def identity(self, op: str, dtype: DType, width: int) -> Value:
        """The value that changes nothing under `op`, in every lane."""
        if op in ("+", "|", "^"):
            return self.const(-0.0 if dtype.is_float else 0, dtype, width)
        if op == "*":
            return self.const(1, dtype, width)
        if op == "&":
            return self.const(True if dtype.kind == "bool" else -1, dtype, width)
        return self.const(extreme(dtype, largest=op == "min"), dtype, width)


def extreme(dtype: DType, *, largest: bool) -> Number:
    """The largest or smallest value of an element type."""
    if dtype.is_float:
        return float("inf") if largest else float("-inf")
    if dtype.kind == "bool":
        return largest
    if dtype.kind == "uint":
        return (1 << dtype.bits) - 1 if largest else 0
    return (1 << (dtype.bits - 1)) - 1 if largest else -(1 << (dtype.bits - 1))


def _resize(kind: str, source: DType, to: DType) -> str | None:
    """The instruction that changes the width in registers; None if it does not change."""
    before, after = register_type(source), register_type(to)
    if before == after:
        return None
    if kind == "fp":
        return "fpext" if after == "double" else "fptrunc"
    bits = 1 if before == "i1" else int(before[1:])
    if bits > int(after[1:]):
        return "trunc"
    return "sext" if kind == "sint" else "zext"
