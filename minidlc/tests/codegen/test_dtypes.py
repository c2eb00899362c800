"""Element types: arithmetic, conversions, integer division, against the interpreter's NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from minidlc import target
from minidlc.codegen.compile import compile_kernel, run_kernel
from minidlc.expr.types import DTYPES
from minidlc.loop.text import parse_function
from minidlc.tests.codegen.helpers import WIDTHS, check

pytestmark = pytest.mark.llvm

ALL = sorted(DTYPES)
INTEGERS = [t for t in ALL if DTYPES[t].is_integer]
WIDTH = pytest.mark.parametrize("width", [WIDTHS[0], WIDTHS[-1]])
TOLERANCE = {"f16": 2e-3, "bf16": 2e-2}


def loops(body: str, n: int = 21, kind: str = "vectorized", **types: str) -> str:
    params = ", ".join(f"{name}: {t}[{n}]" for name, t in types.items())
    return f"def f({params}):\n    for i in {kind}(0, {n}):\n        {body}\n"


@WIDTH
@pytest.mark.parametrize("kind", ["vectorized", "serial"])
@pytest.mark.parametrize("dtype", ALL)
def test_arithmetic(dtype: str, kind: str, width: int) -> None:
    ops = "&|^" if dtype == "bool" else "+-*"
    value = f"(A[i] {ops[0]} B[i]) {ops[2]} (A[i] {ops[1]} B[i])"
    source = loops(f"C[i] = {value}", kind=kind, A=dtype, B=dtype, C=dtype)
    check(source, target.host(width), rtol=TOLERANCE.get(dtype, 1e-5))


@pytest.mark.parametrize("dtype", [t for t in ALL if t != "bool"])
def test_order(dtype: str) -> None:
    body = "C[i] = max(A[i], B[i]) - min(A[i], B[i])"
    check(loops(body, A=dtype, B=dtype, C=dtype), target.host())
    for op in ("==", "!=", "<", "<=", ">", ">="):
        source = loops(f"C[i] = A[i] {op} B[i]", A=dtype, B=dtype, C="bool")
        check(source, target.host())


@pytest.mark.parametrize("op", ["==", "!=", "<", "<=", ">", ">="])
def test_comparisons_with_nan(op: str) -> None:
    a = np.array([1.0, np.nan, np.nan, 2.0], np.float32)
    b = np.array([1.0, 1.0, np.nan, np.nan], np.float32)
    source = loops(f"C[i] = A[i] {op} B[i]", n=4, A="f32", B="f32", C="bool")
    check(source, target.host(), arrays={"A": a, "B": b, "C": np.zeros(4, np.bool_)})


@WIDTH
@pytest.mark.parametrize("kind", ["vectorized", "serial"])
@pytest.mark.parametrize("source", ALL)
def test_every_conversion(source: str, kind: str, width: int) -> None:
    stores = [f'C_{to}[i] = cast("{to}", A[i])' for to in ALL]
    results = {f"C_{to}": to for to in ALL}
    loop = loops("\n        ".join(stores), n=9, kind=kind, A=source, **results)
    check(loop, target.host(width), rtol=1e-6)


@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("source", ["f32", "f64"])
def test_float_to_integer_saturates(source: str, to: str) -> None:
    values = [np.nan, np.inf, -np.inf, 1e30, -1e30, 300.7, -300.7, 2.5, -2.5, -0.5]
    a = np.array(values, DTYPES[source].numpy)
    c = np.zeros(len(a), DTYPES[to].numpy)
    loop = loops(f'C[i] = cast("{to}", A[i])', n=len(a), A=source, C=to)
    check(loop, target.host(), arrays={"A": a, "C": c})


@WIDTH
@pytest.mark.parametrize("fn", ["truncdiv", "floormod", "fmod"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_division_never_traps(dtype: str, fn: str, width: int) -> None:
    info = np.iinfo(DTYPES[dtype].numpy)
    edge = [0, 1, 2, 7, info.min, info.min + 1, info.max, *([-1, -2, -7] if info.min else [])]
    a = np.repeat(np.array(edge, DTYPES[dtype].numpy), len(edge))
    b = np.tile(np.array(edge, DTYPES[dtype].numpy), len(edge))
    arrays = {"A": a, "B": b, "C": np.zeros_like(a)}
    loop = loops(f"C[i] = {fn}(A[i], B[i])", n=len(a), A=dtype, B=dtype, C=dtype)
    check(loop, target.host(width), arrays=arrays)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts_by_too_much(dtype: str) -> None:
    bits = DTYPES[dtype].bits
    shifts = [0, 1, bits - 1, bits, bits + 3]
    a = np.array([5, -5 if dtype[0] == "i" else 200, 1], DTYPES[dtype].numpy)
    x, y = np.repeat(a, len(shifts)), np.tile(np.array(shifts, DTYPES[dtype].numpy), len(a))
    for op in ("<<", ">>"):
        loop = loops(f"C[i] = A[i] {op} B[i]", n=len(x), A=dtype, B=dtype, C=dtype)
        check(loop, target.host(), arrays={"A": x, "B": y, "C": np.zeros_like(x)})


@pytest.mark.parametrize("dtype", [*INTEGERS, "bool"])
def test_integer_functions(dtype: str) -> None:
    names = ["invert"] if dtype == "bool" else ["invert", "sign", "abs", "floor"]
    for fn in names:
        check(loops(f"C[i] = {fn}(A[i])", A=dtype, C=dtype), target.host())


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_power(dtype: str) -> None:
    a = np.array([0, 1, 2, 3, 7, 11, 2, 5], DTYPES[dtype].numpy)
    b = np.array([0, 5, 6, 4, 2, 1, 0, 2], DTYPES[dtype].numpy)
    loop = loops("C[i] = pow(A[i], B[i])", n=8, A=dtype, B=dtype, C=dtype)
    check(loop, target.host(), arrays={"A": a, "B": b, "C": np.zeros_like(a)})


@pytest.mark.parametrize("dtype", ["i8", "u8", "i32", "i64", "bool", "f64", "f16"])
@pytest.mark.parametrize("n", [5, 16])
def test_horizontal_reduction_of_each_type(dtype: str, n: int) -> None:
    updates = ["S[0] | A[i]", "S[0] & A[i]"] if dtype == "bool" else ["S[0] + A[i]"]
    if dtype != "bool":
        updates += ["max(S[0], A[i])", "min(S[0], A[i])"]
    if dtype.startswith(("i", "u")):
        updates += ["S[0] & A[i]", "S[0] ^ A[i]", "S[0] * A[i]"]
    for update in updates:
        source = f"def f(A: {dtype}[{n}], S: {dtype}[1]):\n"
        source += f"    for i in vectorized(0, {n}):\n        S[0] = {update}\n"
        check(source, target.host(), rtol=TOLERANCE.get(dtype, 1e-5))


def convert(source: str, to: str, values: np.ndarray, features: str | None = None) -> np.ndarray:
    machine = target.host()
    if features is not None:
        machine = target.Target(machine.triple, machine.cpu, features, 128)
    loop = loops(f'C[i] = cast("{to}", A[i])', n=len(values), A=source, C=to)
    kernel = compile_kernel(parse_function(loop), machine, cache=False)
    result = np.zeros(len(values), DTYPES[to].numpy)
    run_kernel(kernel, [values, result])
    return result


@pytest.mark.parametrize("hardware", [True, False])
@pytest.mark.parametrize(("name", "dtype"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_halves_are_exact_and_round_to_even(name: str, dtype: type, hardware: bool) -> None:
    features = None if hardware else "-f16c,-avx512f,-avx512fp16,-avx,-avx2"
    if not hardware and not target.host().is_x86:
        pytest.skip("every 64-bit ARM converts halves in hardware")
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    wide = convert(name, "f32", every, features)
    np.testing.assert_array_equal(wide, every.astype(np.float32))
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 40_000, dtype=np.uint64).astype(np.uint32)
    ties = (every.view(np.uint16).astype(np.uint32) << 16) | 0x8000
    halves = every.astype(np.float32)
    with np.errstate(all="ignore"):
        between = (halves[:-1] + halves[1:]) / 2
    values = np.concatenate([bits.view(np.float32), ties.view(np.float32), between])
    values = values[~np.isnan(values)]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(convert("f32", name, values, features), values.astype(dtype))
    nan = convert("f32", name, np.array([np.nan] * 4, np.float32), features)
    assert np.isnan(nan.astype(np.float32)).all()
