"""How each function of FUNCTIONS is computed: instruction, polynomial, or call of the C library.

    Functions(ops, external).call("exp", (x,))      # Value

f32 exp, log, tanh, erf, sigmoid, sin, cos and pow are vector polynomials (polynomials.py,
trigonometry.py), the same ones in every precision, but for tanh and the exp of weights
(`exp_negative`): there strict code takes a slower, more exact one. The rest of the transcendental
functions, and all of f64, call libm once per lane: right, but slow. f16 and bf16 are computed in
f32. Treated in course chapter 05_backend_opt.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from minidlc.codegen import polynomials, trigonometry
from minidlc.codegen.arithmetic import Operators
from minidlc.codegen.reals import Real, has_fma
from minidlc.codegen.values import Value, register_type
from minidlc.expr.types import bool_, f32
from minidlc.runtime.symbols import LIBM
from minidlc.support.errors import CodegenError

_INTRINSIC = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "rint", "abs": "fabs"}
_POLYNOMIAL = {
    "exp": polynomials.exp,
    "exp_negative": polynomials.exp,
    "log": polynomials.log,
    "tanh": polynomials.tanh,
    "erf": polynomials.erf,
    "sigmoid": polynomials.sigmoid,
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
}
_QUICK = {"exp_negative": polynomials.exp_negative, "tanh": polynomials.quick_tanh}  # to 5 ulp


def _square_root(x: Real) -> Real:
    """x**0.5: of -0 it is 0, of -inf it is inf."""
    return x.choose("==", -math.inf, math.inf, x.sqrt() + 0.0)


_POWERS: dict[float, Callable[[Real], Real]] = {
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    4.0: lambda x: (x * x) * (x * x),
    1.0: lambda x: x,
    0.5: _square_root,
    -0.5: lambda x: 1.0 / _square_root(x),
    -1.0: lambda x: 1.0 / x,
}


class Functions:
    """Emits calls; `declare` takes the declaration of a C function that is needed."""

    def __init__(self, ops: Operators, declare: Callable[[str], None]) -> None:
        self.ops = ops
        self.declare = declare
        exact = replace(ops.target, precision="strict")  # formulas say themselves what is fused
        self._exact = Operators(ops.b, exact)

    def call(self, fn: str, args: tuple[Value, ...]) -> Value:
        """`fn(*args)`; CodegenError MDLC0807 if the function has no meaning on that type."""
        a = args[0]
        if a.dtype.is_float and a.dtype.bits == 16:
            wide = tuple(Value(x.text, f32, x.width) for x in args)
            result = self._float(fn, wide)
            return result if result.dtype == bool_ else Value(result.text, a.dtype, result.width)
        return self._float(fn, args) if a.dtype.is_float else self._integer(fn, args)

    def _float(self, fn: str, args: tuple[Value, ...]) -> Value:
        a, dtype = args[0], args[0].dtype
        if fn in _INTRINSIC:
            return self.ops.call(_INTRINSIC[fn], a)
        if fn in _POLYNOMIAL and dtype.bits == 32:
            return self._formula(fn)(Real(self._exact, a)).value
        if fn in ("isnan", "isinf", "sign"):
            return self._classify(fn, a)
        if fn == "sigmoid":
            return self._wide_sigmoid(a)
        if fn == "exp_negative":
            return self._libm("exp", args)
        if fn == "pow":
            return self._power(*args)
        if fn == "floormod":
            return self._floormod(*self.ops.together(*args))
        if fn in LIBM:
            return self._libm(fn, self.ops.together(*args))
        raise CodegenError(f"no function {fn!r} on {dtype}", code="MDLC0807")

    def _formula(self, fn: str) -> Callable[[Real], Real]:
        """The accurate formula in strict code, else the quick one where there is one."""
        needs_fma = fn == "tanh"  # without, it is beyond its bound
        quick = not self.ops.strict and (has_fma(self.ops) or not needs_fma)
        return _QUICK.get(fn, _POLYNOMIAL[fn]) if quick else _POLYNOMIAL[fn]

    def _classify(self, fn: str, a: Value) -> Value:
        zero = self.ops.const(0.0, a.dtype, a.width)
        if fn == "isnan":
            return self.ops.compare("!=", a, a)
        if fn == "isinf":
            inf = self.ops.const(math.inf, a.dtype, a.width)
            return self.ops.compare("==", self.ops.call("fabs", a), inf)
        one = self.ops.const(1.0, a.dtype, a.width)
        minus = self.ops.const(-1.0, a.dtype, a.width)
        below = self.ops.select(self.ops.compare("<", a, zero), minus, a)
        either = self.ops.select(self.ops.compare(">", a, zero), one, below)
        return self.ops.binary("+", either, zero)  # of -0.0 it is 0.0

    def _wide_sigmoid(self, a: Value) -> Value:
        one = self.ops.const(1.0, a.dtype, a.width)
        zero = self.ops.const(0.0, a.dtype, a.width)
        size = self.ops.call("fabs", a)
        negative = self.ops.binary("*", size, self.ops.const(-1.0, a.dtype, a.width))
        t = self._libm("exp", (negative,))
        top = self.ops.select(self.ops.compare("<", a, zero), t, one)
        return self.ops.binary("/", top, self.ops.binary("+", t, one))

    def _power(self, a: Value, b: Value) -> Value:
        for exponent, formula in _POWERS.items():
            if b.text in (self.ops.const(exponent, b.dtype, w).text for w in (0, b.width)):
                return formula(Real(self.ops, a)).value
        a, b = self.ops.together(a, b)
        if a.dtype.bits == 32:
            return polynomials.power(Real(self._exact, a), Real(self._exact, b)).value
        return self._libm("pow", (a, b))

    def _floormod(self, a: Value, b: Value) -> Value:
        """fmod, moved to the sign of the divisor; a zero takes that sign too."""
        rest = self._libm("fmod", (a, b))
        zero = self.ops.const(0.0, a.dtype, a.width)
        negative = self.ops.compare("<", rest, zero)
        differs = self.ops.logic("xor", negative, self.ops.compare("<", b, zero))
        fix = self.ops.logic("and", self.ops.compare("!=", rest, zero), differs)
        moved = self.ops.select(fix, self.ops.binary("+", rest, b), rest)
        is_zero = self.ops.compare("==", rest, zero)
        return self.ops.select(is_zero, self.ops.call("copysign", zero, b), moved)

    def _libm(self, fn: str, args: tuple[Value, ...]) -> Value:
        """One call of the C library per lane."""
        dtype, width = args[0].dtype, args[0].width
        element = register_type(dtype)
        name = fn + ("f" if element == "float" else "")
        params = ", ".join([element] * len(args))
        self.declare(f"declare {element} @{name}({params}) nounwind memory(none)")
        if not width:
            return self.ops.op(f"call {element} @{name}({_list(args)})", dtype, 0)
        result = Value("poison", dtype, width)
        for lane in range(width):
            parts = [self.ops.op(f"extractelement {a}, i64 {lane}", dtype, 0) for a in args]
            one = self.ops.op(f"call {element} @{name}({_list(tuple(parts))})", dtype, 0)
            result = self.ops.op(f"insertelement {result}, {one}, i64 {lane}", dtype, width)
        return result

    # integers and bools

    def _integer(self, fn: str, args: tuple[Value, ...]) -> Value:
        a, kind = args[0], args[0].dtype.kind
        if fn == "invert":
            return self.ops.invert(a)
        if fn in ("isnan", "isinf"):
            return self.ops.const(False, bool_, a.width)
        if fn in ("floor", "ceil", "round") or (fn == "abs" and kind != "int"):
            return a
        if fn == "abs":
            return self.ops.call("smax", a, self.ops.binary("-", self._zero(a), a))
        if fn == "sign" and kind != "bool":
            return self._integer_sign(a)
        if fn in ("truncdiv", "floormod", "fmod") and kind != "bool":
            return self.ops.divide(fn, *args)
        if fn == "pow" and kind != "bool":
            return self._integer_power(*self.ops.together(*args))
        raise CodegenError(
            f"no function {fn!r} on {a.dtype}", hint="cast to a float first", code="MDLC0807"
        )

    def _zero(self, a: Value) -> Value:
        return self.ops.const(0, a.dtype, a.width)

    def _integer_sign(self, a: Value) -> Value:
        one = self.ops.const(1, a.dtype, a.width)
        if a.dtype.kind == "uint":
            return self.ops.binary("min", a, one)
        minus = self.ops.const(-1, a.dtype, a.width)
        return self.ops.binary("max", self.ops.binary("min", a, one), minus)

    def _integer_power(self, a: Value, b: Value) -> Value:
        """Squaring, one step per bit of the exponent; exponents below 0 round 1 / a**-b to 0."""
        dtype, width = a.dtype, a.width
        zero, one = self._zero(a), self.ops.const(1, dtype, width)
        result, base = one, a
        for bit in range(dtype.bits):
            mask = self.ops.const(1 << bit, dtype, width)
            is_set = self.ops.compare("!=", self.ops.logic("and", b, mask), zero)
            result = self.ops.select(is_set, self.ops.binary("*", result, base), result)
            base = self.ops.binary("*", base, base)
        if dtype.kind == "uint":
            return result
        minus = self.ops.const(-1, dtype, width)
        unit = self.ops.logic(
            "or", self.ops.compare("==", a, one), self.ops.compare("==", a, minus)
        )
        small = self.ops.select(unit, result, zero)  # (-1)**b: the low bit of b decides
        return self.ops.select(self.ops.compare("<", b, zero), small, result)


def _list(args: tuple[Value, ...]) -> str:
    return ", ".join(map(str, args))
