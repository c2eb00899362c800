"""Functions against NumPy: largest error in units of the last place, and every special value.

The bounds of the polynomials here are the ones codegen/polynomials.py states.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import replace

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

STRICT = {"exp": 1.1, "log": 0.9, "tanh": 1.4, "erf": 1.5, "sigmoid": 1.8, "sin": 1.6, "cos": 1.6}
ULP = STRICT | {"tanh": 4.9}
CASES = [*((fn, "strict") for fn in STRICT), ("tanh", "default")]  # the others are the same code
POWER = 0.9
N = 1 << 15
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, 88.72, 88.73, -87.4, -103.9]
SPECIAL += [-104.5, 1.0, -1.0, 3.83, -3.84, 7.9, -9.0, 0.5, 2.0**-126, 3e38, -3e38]
HARD = [
    0.5625,
    1.125,
    3.84,
    7.95,
    9.02,
    16.6355,
    88.7228,
    87.3365,
    103.972,
    65536.0,
    1.0,
    0.70710678,
]
HARD += [np.pi / 2, np.pi, 1e5 * np.pi, 16367173 * 2.0**72, 1e22, 3.4e38, 2.0**-126, 1e-45]


def compiled(
    fn: str, machine: Target, dtype: str, arity: int = 1, loop: str = "vectorized"
) -> Callable[..., np.ndarray]:
    """`fn` of arrays of N; its name, or an expression with {0} and {1} for the arguments."""
    args = ["A[i]", "B[i]"][:arity]
    value = fn.format(*args) if "{" in fn else f"{fn}({', '.join(args)})"
    source = f"""
def f(A: {dtype}[{N}], B: {dtype}[{N}], C: {dtype}[{N}]):
    for i in {loop}(0, {N}):
        C[i] = {value}
"""
    kernel = compile_kernel(parse_function(source), machine, cache=False)
    library = NativeLibrary((kernel.object,), (kernel.symbol,))
    types = [ctypes.c_void_p] * 4 + [ctypes.c_int32]
    function = ctypes.CFUNCTYPE(None, *types)(library.address(kernel.symbol))

    def run(a: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
        _ = library
        b = a if b is None else b
        result = np.zeros(a.shape, DTYPES[dtype].numpy)
        for part in range(0, len(a), N):
            x, y, z = (v[part : part + N].ctypes.data for v in (a, b, result))
            function(x, y, z, None, 1)
        return result

    return run


def exact(fn: str, x: np.ndarray) -> np.ndarray:
    """The function in f64; erf by the C library."""
    with np.errstate(all="ignore"):
        x = x.astype(np.float64)
        if fn == "sigmoid":
            return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))
        if fn == "erf":
            return compiled("erf", target.host(), "f64")(x)
        return FUNCTIONS[fn].numpy(x)


def error_in_ulp(got: np.ndarray, want: np.ndarray, dtype: type = np.float32) -> float:
    """Largest distance of `got`, after checking that inf and NaN are where they belong."""
    with np.errstate(over="ignore"):
        rounded = want.astype(dtype)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
    zero = rounded == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(rounded[zero]))
    finite = np.isfinite(rounded) & np.isfinite(got)
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
    unit = np.spacing(np.abs(rounded[finite])).astype(np.float64)
    return float(np.max(np.abs(got[finite].astype(np.float64) - want[finite]) / unit, initial=0.0))


def floats(step: int, around: int = 1 << 9) -> np.ndarray:
    """Every `step`-th f32 of all bit patterns, those near the hard points, the special ones."""
    bits = np.arange(0, 1 << 32, step, dtype=np.uint64).astype(np.uint32)
    hard = np.array(HARD, np.float32).view(np.int32)[:, None] + np.arange(-around, around)
    hard = np.maximum(hard, 0).astype(np.int32).view(np.float32).ravel()
    parts = [np.array(SPECIAL, np.float32), bits.view(np.float32), hard, -hard]
    every = np.concatenate(parts)
    return np.resize(every, -(-len(every) // N) * N)


def old() -> Target:
    """A CPU without FMA and without rounding instructions."""
    return Target(target.host().triple, "x86-64", "", vector_bits=128)


def machines() -> list[Target]:
    wide = [target.host(w) for w in WIDTHS]
    return [*wide, old()] if target.host().is_x86 else wide


def bits(array: np.ndarray) -> np.ndarray:
    """The bits of each number; of a NaN, whose sign and payload say nothing, those of one NaN."""
    return np.where(np.isnan(array), np.float32(np.nan), array).view(np.int32)


@pytest.mark.parametrize(("fn", "precision"), CASES)
def test_polynomials(fn: str, precision: str) -> None:
    """Within the stated error on every machine; the same bits at every width and in a scalar."""
    x = floats(5_003)
    want = exact(fn, x)
    bound = (STRICT if precision == "strict" else ULP)[fn]
    machine = replace(target.host(), precision=precision)
    scalar = compiled(fn, machine, "f32", loop="serial")(x)
    assert error_in_ulp(scalar, want) <= bound
    for narrower in machines():
        got = compiled(fn, replace(narrower, precision=precision), "f32")(x)
        if narrower.has("fma") or narrower.is_arm:
            np.testing.assert_array_equal(bits(got), bits(scalar))
        else:
            assert error_in_ulp(got, want) <= bound


@pytest.mark.parametrize("fn", sorted(STRICT.keys() - {"tanh"}))
def test_strict_is_the_default(fn: str) -> None:
    source = f"def f(A: f32[64]):\n    for i in vectorized(0, 64):\n        A[i] = {fn}(A[i])\n"
    host = target.host()
    texts = [
        compile_kernel(parse_function(source), replace(host, precision=p), cache=False).llvm
        for p in ("strict", "default")
    ]
    assert texts[0].split("{", 1)[1] == texts[1].split("{", 1)[1]


@pytest.mark.parametrize("fn", ["tanh", "erf", "sigmoid"])
@pytest.mark.parametrize("precision", ["strict", "default"])
def test_limits_are_reached(fn: str, precision: str) -> None:
    x = np.resize(np.array([9.02, 20, 200, 3e38, np.inf], np.float32), N)
    run = compiled(fn, replace(target.host(), precision=precision), "f32")
    if fn == "sigmoid":
        np.testing.assert_array_equal(run(np.maximum(x, 20)), 1)
        np.testing.assert_array_equal(run(-np.maximum(x, 104)), 0)
        return
    np.testing.assert_array_equal(run(x), 1)
    np.testing.assert_array_equal(run(-x), -1)


@pytest.mark.slow
@pytest.mark.parametrize(("fn", "precision"), [*CASES, ("1.0 / sqrt({0})", "default")])
def test_all_floats(fn: str, precision: str) -> None:
    run = compiled(fn, replace(target.host(), precision=precision), "f32")
    bounds = STRICT if precision == "strict" else ULP
    for first in range(0, 1 << 32, 32 * N):
        bits = np.arange(first, first + 32 * N, dtype=np.uint64)
        x = bits.astype(np.uint32).view(np.float32)
        with np.errstate(all="ignore"):
            want = 1 / np.sqrt(x.astype(np.float64)) if "{" in fn else exact(fn, x)
        assert error_in_ulp(run(x), want) <= bounds.get(fn, 1.5)


def test_a_far_lane_does_not_change_its_neighbours() -> None:
    """Far arguments of sin take a branch of their own; the near lanes keep their bits."""
    x = np.linspace(-30, 30, N, dtype=np.float32)
    run = compiled("sin", target.host(), "f32")
    mixed = x.copy()
    mixed[::5] = 1e30
    near = np.arange(N) % 5 != 0
    np.testing.assert_array_equal(run(mixed)[near], run(x)[near])
    np.testing.assert_array_equal(run(mixed)[::5], np.sin(np.float64(np.float32(1e30))).astype("f"))


@pytest.mark.skipif(not target.host().is_x86, reason="a CPU of another kind")
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("fn", ["floor", "ceil", "round"])
def test_rounding_without_instructions_for_it(fn: str, dtype: str) -> None:
    x = np.resize(np.linspace(-9, 9, 73), N).astype(DTYPES[dtype].numpy)
    np.testing.assert_array_equal(compiled(fn, old(), dtype)(x), FUNCTIONS[fn].numpy(x))


def test_reciprocal_square_root() -> None:
    x = np.abs(floats(31_337))
    with np.errstate(all="ignore"):
        want = 1 / np.sqrt(x.astype(np.float64))
    assert error_in_ulp(compiled("1.0 / sqrt({0})", target.host(), "f32")(x), want) <= 1.5


# instructions: what one vector of the loop costs, for AVX2, AVX-512 and NEON

OTHERS = {
    "avx2": Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16),
    "avx512": Target(
        "x86_64-unknown-linux-gnu",
        "skylake-avx512",
        "+avx512f,+avx512vl,+avx512dq,+avx2,+fma",
        512,
        32,
    ),
    "neon": Target("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon", 128, 32),
}
COST = {"exp": 26, "log": 48, "tanh": 23, "erf": 39, "sigmoid": 39}


def assembly(fn: str, machine: Target, args: str = "A[i]") -> str:
    source = (
        f"def f(A: f32[4096]):\n    for i in vectorized(0, 4096):\n        A[i] = {fn}({args})\n"
    )
    return compile_kernel(parse_function(source), machine, cache=False).asm


@pytest.mark.parametrize("machine", OTHERS)
@pytest.mark.parametrize("fn", [*ULP, "pow"])
def test_polynomials_are_no_calls(fn: str, machine: str) -> None:
    asm = assembly(fn, OTHERS[machine], "A[i], A[i]" if fn == "pow" else "A[i]")
    assert not re.search(r"^\t(call|bl)", asm, re.M)


@pytest.mark.parametrize("fn", COST)
def test_instructions_of_one_vector(fn: str) -> None:
    """The loop of AVX2: constants are loaded before it, so it is one formula and its counter."""
    asm = assembly(fn, OTHERS["avx2"])
    loop = asm[asm.index("\n.LBB") :].split("\tj", 1)[0]
    lines = re.findall(r"^\t([a-z]\w+)", loop, re.M)
    assert sum(x.startswith("v") for x in lines) <= COST[fn]


def test_scalef_on_avx512() -> None:
    assert "vscalefps" in assembly("exp", OTHERS["avx512"])
    assert "vscalefps" not in assembly("exp", OTHERS["avx2"])


OWN_TESTS = ("invert", "exp_negative")
UNARY = [
    n for n, f in FUNCTIONS.items() if f.arity == 1 and f.result == "same" and n not in OWN_TESTS
]


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
        assert error_in_ulp(got, want) <= ULP.get(fn, 2.0)
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


def powers() -> tuple[np.ndarray, np.ndarray]:
    """Bases and exponents: all pairs of special ones, all sizes, bases near 1, whole exponents."""
    rng = np.random.default_rng(3)
    special = np.array(
        [0, 1, 2, 3, 0.5, 1.5, np.inf, np.nan, 1e-45, 1e38, 2**24, 2**24 - 1, 127, 150]
    )
    special = np.concatenate([special, -special, [1 + 2**-23, 1 - 2**-24]])
    a, b = (v.ravel() for v in np.meshgrid(special, special))
    bits = rng.integers(0, 1 << 32, (2, N), dtype=np.uint64).astype(np.uint32).view(np.float32)
    bits = np.where(np.isfinite(bits), bits, 1)
    size = np.exp(rng.uniform(-100, 88, 8 * N))
    near = 1 + rng.standard_normal(8 * N) * 10.0 ** rng.uniform(-7, -1, 8 * N)
    whole = rng.integers(-20, 20, 8 * N)
    sized = rng.uniform(-104, 104, 8 * N) / np.abs(np.log(size))
    steep = rng.standard_normal(8 * N) * 10.0 ** rng.uniform(0, 8, 8 * N)
    bases = np.concatenate([a, bits[0], size, near, 9 * rng.standard_normal(8 * N)])
    exponents = np.concatenate([b, bits[1], sized, steep, whole])
    count = -(-len(bases) // N) * N
    with np.errstate(over="ignore"):
        return np.resize(bases, count).astype("f"), np.resize(exponents, count).astype("f")


def test_powers() -> None:
    a, b = powers()
    with np.errstate(all="ignore"):
        want = np.power(a.astype(np.float64), b.astype(np.float64))
    scalar = compiled("pow", target.host(), "f32", 2, loop="serial")(a, b)
    assert error_in_ulp(scalar, want) <= POWER
    for machine in machines():
        got = compiled("pow", machine, "f32", 2)(a, b)
        assert error_in_ulp(got, want) <= POWER
        if machine.has("fma") or machine.is_arm:
            np.testing.assert_array_equal(bits(got), bits(scalar))


@pytest.mark.parametrize("exponent", [2.0, 3.0, 4.0, 1.0, 0.5, -0.5, -1.0, 0.0, -2.0, 0.75])
def test_constant_exponents(exponent: float) -> None:
    x = floats(70_001)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), np.full(x.shape, exponent))
    text = f"pow({{0}}, {exponent})"
    assert error_in_ulp(compiled(text, target.host(), "f32")(x), want) <= 1.9
    source = text.format("A[i]")
    asm = assembly("", target.host(), source)
    products = 12 if exponent in (2.0, 3.0, 4.0) else 400
    assert "call" not in asm
    assert asm.count("vmul") <= products


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


def weights_of_softmax() -> np.ndarray:
    """Arguments of exp_negative: every 499th f32 from -110 to -0, and the ends."""
    bits = np.arange(0x80000000, np.float32(-110.0).view(np.uint32), 499, dtype=np.uint64)
    ends = np.array([0.0, -0.0, -np.inf, np.nan, -17.0, -87.3365, -88.0, -3e38], np.float32)
    every = np.concatenate([ends, bits.astype(np.uint32).view(np.float32)])
    return np.resize(every, -(-len(every) // N) * N)


@pytest.mark.parametrize("width", WIDTHS)
def test_exp_negative_keeps_its_bound(width: int) -> None:
    x = weights_of_softmax()
    got = compiled("exp_negative", target.host(vector_width=width), "f32")(x)
    want = exact("exp", x)
    near, normal = x >= -17, want >= 2.0**-126
    assert error_in_ulp(got[near], want[near]) <= 1.6
    assert error_in_ulp(got[normal], want[normal]) <= 4.6
    tiny = ~normal & ~np.isnan(x)
    assert np.all((got[tiny] >= 0) & (got[tiny] <= 2.0**-125))
    assert np.array_equal(np.isnan(got), np.isnan(x))
    assert got[2] == 0.0  # of -inf


def test_strict_exp_negative_is_exp() -> None:
    machine = replace(target.host(), precision="strict")
    x = weights_of_softmax()
    got = compiled("exp_negative", machine, "f32")(x)
    np.testing.assert_array_equal(got, compiled("exp", machine, "f32")(x))
