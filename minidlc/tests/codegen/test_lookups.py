"""Gathers, scatters and tests of values: machine code, interpreter and NumPy agree."""

from __future__ import annotations

import random

import numpy as np
import pytest

from minidlc import target
from minidlc.codegen.compile import compile_kernel
from minidlc.expr.types import DTYPES, Array
from minidlc.loop.text import parse_function
from minidlc.support.errors import CodegenError
from minidlc.target import Target
from minidlc.tests.codegen.helpers import WIDTHS, both, check

pytestmark = pytest.mark.llvm

KINDS = ("serial", "vectorized", "unrolled", "parallel")


def values(rng: np.random.Generator, shape: tuple[int, ...], element: str) -> Array:
    return rng.integers(0, 2 if element == "bool" else 50, shape).astype(DTYPES[element].numpy)


def places(rng: np.random.Generator, shape: tuple[int, ...], extent: int, element: str) -> Array:
    """Positions, a third of them outside the axis."""
    return rng.integers(-extent, 2 * extent, shape).astype(DTYPES[element].numpy)


def gather(seed: int) -> None:
    """y[i, j] = x at three positions, some of them values in memory."""
    r, rng = random.Random(seed), np.random.default_rng(seed)
    element = r.choice(["f32", "f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64", "bool"])
    rows, columns = r.randint(1, 4), r.choice([1, 3, 8, 13, 16, 17, 35])
    shape = (r.randint(1, 5), r.randint(1, 4), columns)
    x, names, positions = values(rng, shape, element), [], []
    arrays, params = {"x": x}, [f"x: {element}{list(shape)}"]
    i, j = np.ix_(np.arange(rows), np.arange(columns))
    for axis, extent in enumerate(shape):
        place, at = r.choice([("i, j", (i, j)), ("i", (i,)), ("j", (j,))])
        if axis == 2 and r.random() < 0.4:
            names.append("j")
            positions.append(j)
            continue
        index = r.choice(["i32", "i64"])
        sizes = tuple({"i": rows, "j": columns}[v] for v in place.split(", "))
        ids = arrays[f"p{axis}"] = places(rng, sizes, extent, index)
        params.append(f"p{axis}: {index}{list(sizes)}")
        value = f"p{axis}[{place}]" if index == "i64" else f'cast("i64", p{axis}[{place}])'
        names.append(f"at({value}, {extent})")
        positions.append(ids[at].clip(0, extent - 1))
    arrays["y"] = np.zeros((rows, columns), x.dtype)
    source = f"""
def f({", ".join(params)}, y: {element}[{rows}, {columns}]):
    for i in {r.choice(("serial", "parallel", "unrolled"))}(0, {rows}):
        for j in {r.choice(("serial", "vectorized", "vectorized", "unrolled"))}(0, {columns}):
            y[i, j] = x[{", ".join(names)}]
"""
    _, got, _ = both(source, target.host(WIDTHS[seed % len(WIDTHS)]), 1 + seed % 2, arrays)
    want = np.broadcast_to(x[tuple(positions)], (rows, columns))
    np.testing.assert_array_equal(got["y"], want, err_msg=source)


def scatter(seed: int) -> None:
    """y[places] = x, the last of several values for one place stays."""
    r, rng = random.Random(seed), np.random.default_rng(seed)
    element = r.choice(["f32", "f64", "f16", "i8", "i32", "i64", "bool"])
    rows, columns = r.randint(1, 4), r.choice([1, 3, 8, 13, 16, 17, 35])
    shape = (rows, r.randint(1, 4), r.randint(1, 20))
    x, y = values(rng, (rows, columns), element), values(rng, shape, element)
    p, q = (places(rng, (columns,), extent, "i64") for extent in shape[1:])
    kind, rowwise = r.choice(("serial", "vectorized")), r.choice(("serial", "parallel"))
    params = f"x: {element}[{rows}, {columns}], p: i64[{columns}], q: i64[{columns}]"
    source = f"""
def f({params}, y: {element}{list(shape)}):
    for i in {rowwise}(0, {rows}):
        for j in {kind}(0, {columns}):
            y[i, at(p[j], {shape[1]}), at(q[j], {shape[2]})] = x[i, j]
"""
    arrays = {"x": x, "p": p, "q": q, "y": y}
    want = y.copy()
    for j in range(columns):
        want[:, p[j].clip(0, shape[1] - 1), q[j].clip(0, shape[2] - 1)] = x[:, j]
    _, got, _ = both(source, target.host(WIDTHS[seed % len(WIDTHS)]), 1 + seed % 2, arrays)
    np.testing.assert_array_equal(got["y"], want, err_msg=source)


def test_random_gathers() -> None:
    for seed in range(45):
        gather(seed)


def test_random_scatters() -> None:
    for seed in range(30):
        scatter(seed)


@pytest.mark.slow
def test_many_random_gathers_and_scatters() -> None:
    for seed in range(1000, 2500):
        gather(seed)
        scatter(seed)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_lookups_under_conditions(kind: str, width: int) -> None:
    """What a lazy select or a test guards is never loaded, the positions of positions neither."""
    check(
        f"""
def f(ids: i64[20], x: f32[5, 20], y: f32[20], z: f32[20]):
    for j in {kind}(0, 20):
        y[j] = select(j - 3 >= 0, x[at(ids[j - 3], 5), j - 3], 2.0)
        if x[0, j] > 0.0:
            z[j] = select(16 - j >= 0, x[at(ids[j + 3], 5), j], 1.0)
""",
        target.host(width),
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_a_uniform_position_that_only_some_iterations_may_read(width: int) -> None:
    """ids[i + 3] exists for i <= 1, which the test of the lanes implies: j >= 0 and 1 - i >= j."""
    kernel = check(
        """
def f(ids: i64[5], x: f32[5, 20], y: f32[9, 20]):
    for i in serial(0, 9):
        for j in vectorized(0, 20):
            y[i, j] = select(1 - i - j >= 0, x[at(ids[i + 3], 5), j], 2.0)
""",
        target.host(width),
    )
    assert "masked.gather" in kernel.llvm


@pytest.mark.parametrize("width", WIDTHS)
def test_top_two_by_insertion(width: int) -> None:
    x = np.random.default_rng(0).permutation(60).reshape(4, 15).astype(np.float32)
    arrays = {"x": x, "best": np.full((4, 2), -1, np.float32)}
    source = """
def top(x: f32[4, 15], best: f32[4, 2]):
    for i in parallel(0, 4):
        for j in serial(0, 15):
            if x[i, j] > best[i, 0]:
                best[i, 1] = best[i, 0]
                best[i, 0] = x[i, j]
            if x[i, j] > best[i, 1]:
                if x[i, j] < best[i, 0]:
                    best[i, 1] = x[i, j]
"""
    _, got, _ = both(source, target.host(width), 2, arrays)
    np.testing.assert_array_equal(got["best"], np.sort(x)[:, :-3:-1])


def test_rows_are_loaded_as_vectors() -> None:
    kernel = compile_kernel(
        parse_function("""
def f(ids: i64[6], x: f32[5, 64], y: f32[6, 64]):
    for i in serial(0, 6):
        for j in vectorized(0, 64):
            y[i, j] = x[at(ids[i], 5), j]
"""),
        target.host(),
        cache=False,
    )
    assert "masked.gather" not in kernel.llvm
    assert "load <" in kernel.llvm


@pytest.mark.parametrize(
    "body",
    [
        "y[at(ids[j], 20)] = y[at(ids[j], 20)] + x[j]",
        "y[at(ids[j], 20)] = x[at(ids[j], 20)] + y[j]",
        "y[j] = y[at(ids[j], 20)]",
        "y[at(ids[j], 20)] = 1.0\n        if x[j] > 0.0:\n            y[at(ids[j], 20)] = 2.0",
        "for u in unrolled(0, 2):\n            y[at(ids[(j + u)//2], 20)] = x[j]",
        "if y[0] > x[j]:\n            y[0] = 1.0",
    ],
)
def test_lanes_that_may_meet_are_refused(body: str) -> None:
    fn = parse_function(f"""
def f(ids: i64[20], x: f32[20], y: f32[20]):
    for j in vectorized(0, 20):
        {body}
""")
    with pytest.raises(CodegenError, match="may meet at one element of 'y'") as error:
        compile_kernel(fn, target.host(), cache=False)
    assert error.value.code == "MDLC0823"


def test_one_element_that_all_lanes_look_up_may_be_summed() -> None:
    check(
        """
def f(ids: i64[1], x: f32[20], y: f32[5]):
    for j in vectorized(0, 20):
        y[at(ids[0], 5)] = y[at(ids[0], 5)] + x[j]
""",
        target.host(),
    )


@pytest.mark.parametrize("bits", [128, 256, 512])
def test_machines_that_are_not_here(bits: int) -> None:
    """Gathers and scatters become machine code at every width, on x86 and on ARM."""
    x86 = {128: ("x86-64", ""), 256: ("haswell", "+avx2"), 512: ("skylake-avx512", "+avx512f")}
    machines = [Target("x86_64-unknown-linux-gnu", *x86[bits], bits, 32)]
    if bits == 128:
        machines.append(Target("aarch64-unknown-linux-gnu", "cortex-a76", "+neon", bits, 32))
    fn = parse_function("""
def f(ids: i64[37], x: f32[5, 37], y: f32[37], z: f32[37]):
    for j in vectorized(0, 37):
        y[j] = x[at(ids[j], 5), j]
        if ids[j] > i64(0):
            z[at(ids[j], 37)] = y[j]
""")
    for machine in machines:
        kernel = compile_kernel(fn, machine, cache=False)
        assert kernel.object
        assert f"masked.scatter.v{bits // 32}f32" in kernel.llvm
