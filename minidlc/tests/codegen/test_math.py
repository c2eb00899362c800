"""Functions against NumPy: largest error in units of the last place, and every special value.

The bounds of the polynomials here are the ones codegen/polynomials.py states.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable

import numpy as np
import pytest

from minidlc import target
from minidlc.codegen.compile import compile_kernel
from minidlc.expr.functions import FUNCTIONS
from minidlc.expr.types import DTYPES
from minidlc.loop.text import parse_function
from minidlc.runtime.native import NativeLibrary
from minidlc.target import Target
from minidlc.tests.codegen.helpers import WIDTHS

pytestmark = pytest.mark.llvm

ULP = {"exp": 1.1, "log": 0.8, "tanh": 4.7, "sigmoid": 2.3, "erf": 5.6}
N = 1 << 15
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, 88.72, 88.73, -87.4, -103.9]
SPECIAL += [-104.5, 1.0, -1.0, 3.83, -3.84, 7.9, -9.0, 0.5, 2.0**-126, 3e38, -3e38]


def compiled(fn: str, machine: Target, dtype: str, arity: int = 1) -> Callable[..., np.ndarray]:
    args = ["A[i]", "B[i]"][:arity]
    source = f"""
def f(A: {dtype}[{N}], B: {dtype}[{N}], C: {dtype}[{N}]):
    for i in vectorized(0, {N}):
        C[i] = {fn}({", ".join(args)})
"""
    kernel = compile_kernel(parse_function(source), machine, cache=False)
    library = NativeLibrary((kernel.object,), (kernel.symbol,))
    types = [ctypes.c_void_p] * 4 + [ctypes.c_int32]
    function = ctypes.CFUNCTYPE(None, *types)(library.address(kernel.symbol))

    def run(a: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
        _ = library
        result = np.zeros(N, DTYPES[dtype].numpy)
        b = a if b is None else b
        function(a.ctypes.data, b.ctypes.data, result.ctypes.data, None, 1)
        return result

    return run


def exact(fn: str, x: np.ndarray) -> np.ndarray:
    """The function in f64."""
    with np.errstate(all="ignore"):
        x = x.astype(np.float64)
        if fn == "sigmoid":
            return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))
        if fn == "erf":
            return np.array([math.erf(v) for v in x])
        return FUNCTIONS[fn].numpy(x)


def error_in_ulp(got: np.ndarray, want: np.ndarray, dtype: type = np.float32) -> float:
    """Largest distance of `got`, after checking that inf and NaN are where they belong."""
    with np.errstate(over="ignore"):
        rounded = want.astype(dtype)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
    finite = np.isfinite(rounded) & np.isfinite(got)
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
    unit = np.spacing(np.abs(rounded[finite])).astype(np.float64)
    return float(np.max(np.abs(got[finite].astype(np.float64) - want[finite]) / unit, initial=0.0))


def floats(step: int) -> np.ndarray:
    """Every `step`-th f32 of all bit patterns, and the special ones, in whole arrays of N."""
    bits = np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32)
    every = np.concatenate([np.array(SPECIAL, np.float32), bits.view(np.float32)])
    return np.resize(every, -(-len(every) // N) * N)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("fn", ULP)
def test_polynomials(fn: str, width: int) -> None:
    run = compiled(fn, target.host(width), "f32")
    x = floats(31_337 if fn != "erf" else 131_071)
    got = np.concatenate([run(part) for part in x.reshape(-1, N)])
    assert error_in_ulp(got, exact(fn, x)) <= ULP[fn]


@pytest.mark.parametrize("fn", ["tanh", "erf", "sigmoid"])
def test_limits_are_reached(fn: str) -> None:
    x = np.resize(np.array([9.02, 20, 200, 3e38, np.inf], np.float32), N)
    run = compiled(fn, target.host(), "f32")
    if fn == "sigmoid":
        np.testing.assert_array_equal(run(np.maximum(x, 20)), 1)
        return
    np.testing.assert_array_equal(run(x), 1)
    np.testing.assert_array_equal(run(-x), -1)


@pytest.mark.slow
@pytest.mark.parametrize("fn", ULP)
def test_polynomials_densely(fn: str) -> None:
    run = compiled(fn, target.host(), "f32")
    for part in floats(211 if fn != "erf" else 4_099).reshape(-1, N):
        assert error_in_ulp(run(part), exact(fn, part)) <= ULP[fn]


def test_polynomials_are_no_calls() -> None:
    for fn in ULP:
        source = f"def f(A: f32[64]):\n    for i in vectorized(0, 64):\n        A[i] = {fn}(A[i])\n"
        kernel = compile_kernel(parse_function(source), target.host(), cache=False)
        assert "call" not in kernel.asm


@pytest.mark.parametrize("fn", ULP)
def test_scalar_code_gives_the_same_bits(fn: str) -> None:
    x = np.resize(np.array(SPECIAL, np.float32), N)
    vector = compiled(fn, target.host(), "f32")(x)
    source = f"def f(A: f32[1], C: f32[1]):\n    C[0] = {fn}(A[0])\n"
    kernel = compile_kernel(parse_function(source), target.host(), cache=False)
    library = NativeLibrary((kernel.object,), (kernel.symbol,))
    types = [ctypes.c_void_p] * 3 + [ctypes.c_int32]
    function = ctypes.CFUNCTYPE(None, *types)(library.address(kernel.symbol))
    for a, want in zip(x[: len(SPECIAL)], vector, strict=False):
        one, got = np.array([a], np.float32), np.zeros(1, np.float32)
        function(one.ctypes.data, got.ctypes.data, None, 1)
        np.testing.assert_array_max_ulp(got, np.array([want]), maxulp=1)


UNARY = [n for n, f in FUNCTIONS.items() if f.arity == 1 and f.result == "same" and n != "invert"]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("fn", UNARY)
def test_every_function_of_one_argument(fn: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([np.array(SPECIAL), rng.standard_normal(2000), 30 * rng.random(2000) - 10])
    x = np.resize(x, N).astype(DTYPES[dtype].numpy)
    with np.errstate(all="ignore"):
        want = FUNCTIONS[fn].numpy(x.astype(np.float64))
    got = compiled(fn, target.host(), dtype)(x)
    if dtype == "f32":
        assert error_in_ulp(got, want) <= max(ULP.get(fn, 0.0), 2.0)
    else:
        assert error_in_ulp(got, want, np.float64) <= 4.0


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_functions_of_halves(dtype: str) -> None:
    x = np.resize(np.linspace(-4, 4, 999), N).astype(DTYPES[dtype].numpy)
    got = compiled("exp", target.host(), dtype)(x)
    np.testing.assert_array_equal(got, np.exp(x.astype(np.float32)).astype(DTYPES[dtype].numpy))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("fn", ["pow", "fmod", "floormod"])
def test_functions_of_two_arguments(fn: str, dtype: str) -> None:
    rng = np.random.default_rng(2)
    kind = DTYPES[dtype].numpy
    special = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -3.0, 0.5, np.inf, -np.inf, np.nan])
    a = np.concatenate([np.repeat(special, 10), 4 * rng.standard_normal(3000)])
    b = np.concatenate([np.tile(special, 10), 3 * rng.standard_normal(3000)])
    a, b = np.resize(a, N).astype(kind), np.resize(b, N).astype(kind)
    got = compiled(fn, target.host(), dtype, 2)(a, b)
    want = FUNCTIONS[fn].numpy(a, b)
    np.testing.assert_allclose(got, want, rtol=4e-7 if dtype == "f32" else 1e-14)
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


def test_square_is_a_product() -> None:
    source = "def f(A: f32[64]):\n    for i in vectorized(0, 64):\n        A[i] = pow(A[i], 2.0)\n"
    assert "call" not in compile_kernel(parse_function(source), target.host(), cache=False).asm


@pytest.mark.parametrize("fn", ["isnan", "isinf"])
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64", "i32"])
def test_classes_of_numbers(fn: str, dtype: str) -> None:
    values = [1, 0, 3] if dtype == "i32" else [1.0, np.nan, np.inf, -np.inf, 0.0]
    a = np.array(values, DTYPES[dtype].numpy)
    c = np.zeros(len(a), np.bool_)
    n = len(a)
    source = f"def f(A: {dtype}[{n}], C: bool[{n}]):\n    for i in vectorized(0, {n}):\n"
    kernel = compile_kernel(parse_function(source + f"        C[i] = {fn}(A[i])\n"), target.host())
    library = NativeLibrary((kernel.object,), (kernel.symbol,))
    types = [ctypes.c_void_p] * 3 + [ctypes.c_int32]
    function = ctypes.CFUNCTYPE(None, *types)(library.address(kernel.symbol))
    function(a.ctypes.data, c.ctypes.data, None, 1)
    np.testing.assert_array_equal(c, FUNCTIONS[fn].numpy(a.astype(np.float64)))
