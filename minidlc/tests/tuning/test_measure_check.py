"""What candidates are run on, what counts as equal, and memory that shows who leaves it."""

from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from minidlc import te
from minidlc.expr.types import DTYPES, bf16, bool_, f16, f32, f64, i8, i32, u8
from minidlc.schedules import Group
from minidlc.tuning.measure.check import differs, finite, inputs, tolerance, tolerances, unknown
from minidlc.tuning.measure.guard import Guarded

pytestmark = pytest.mark.ch06


def test_inputs_are_exact_and_follow_from_the_seed() -> None:
    types = {t.name: t[64, 33] for t in DTYPES.values()}
    first, again, other = inputs(types, 1), inputs(types, 1), inputs(types, 2)
    for name, x in first.items():
        assert x.dtype == DTYPES[name].numpy
        assert x.tobytes() == again[name].tobytes()
        assert x.tobytes() != other[name].tobytes()
    for dtype in (f16, bf16, f32, f64):
        x = first[dtype.name].astype(np.float64)
        assert set(np.unique(x)) == {n / 8 for n in range(-8, 9)}
        positive = inputs({"a": dtype[99]}, 0, 1, 8)["a"].astype(np.float64)
        assert set(np.unique(positive)) == {n / 8 for n in range(1, 9)}
    assert first["i32"].min() == 0
    assert first["i32"].max() < 64
    assert (first["i8"].min(), first["u8"].min()) == (-8, 0)
    assert set(np.unique(first["bool"])) == {False, True}


def test_sums_of_such_products_do_not_depend_on_the_order() -> None:
    x = inputs({"a": f32[8, 4096], "b": f32[4096, 8]}, 0)
    exact = x["a"].astype(np.float64) @ x["b"].astype(np.float64)
    backwards = x["a"][:, ::-1] @ x["b"][::-1]
    assert (backwards == exact).all()


def test_tolerances_go_by_the_narrowest_type_and_the_longest_sum() -> None:
    def group(dtype, terms):
        x = te.placeholder(dtype[8, terms], "x")
        axis = te.reduce_axis(terms, "k")
        return Group((te.compute((8,), lambda i: te.sum(x[i, axis], axis), "y"),))

    assert tolerance(group(f32, 4)) == pytest.approx(32 * 2.0**-23)
    assert tolerance(group(f32, 400)) == pytest.approx(160 * 2.0**-23)
    assert tolerance(group(f64, 4)) < 1e-14
    assert tolerance(group(f16, 400)) == pytest.approx(4 * 2.0**-10)
    assert tolerance(group(i32, 400)) == 0


def test_one_term_left_out_of_thousands_shows() -> None:
    x = inputs({"a": f32[64, 4096], "b": f32[4096, 64]}, 3)
    whole, less = x["a"] @ x["b"], x["a"][:, 1:] @ x["b"][1:]
    assert differs("y", less, whole, 8 * 2.0**-23 * 4096**0.5)


def f(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("got", "wanted", "text"),
    [
        (f(1, 2, 3), f(1, 2, 3), ""),
        (f(1, 2, 3), f(1, 2, 3.00002), ""),
        (f(1, 2, 3), f(1, 2, 3.5), "y[2] is 3.0, expected 3.5"),
        (f(0, 2, 3), f(1e-6, 2, 3), ""),  # small beside the others
        (f(np.nan, 1), f(np.nan, 1), ""),
        (f(np.nan, 1), f(1, 1), "y[0] is nan, expected 1.0; 1 of 2 elements differ"),
        (f(1, 1), f(np.nan, 1), "y[0] is 1.0, expected nan"),
        (f(np.inf, 1), f(np.inf, 1), ""),
        (f(-np.inf, 1), f(np.inf, 1), "y[0] is -inf"),
        (f(1e30, 1), f(np.inf, 1), "y[0] is"),
        (f(), f(), ""),
        (np.float32(2).reshape(()), np.float32(1).reshape(()), "y is 2.0, expected 1.0"),
        (np.array([-0.0], np.float16), np.array([0.0], np.float16), ""),
        (np.array([2], ml_dtypes.bfloat16), np.array([1], ml_dtypes.bfloat16), "y[0] is 2"),
        (np.array([5, 7], np.uint8), np.array([5, 7], np.uint8), ""),
        (np.array([5, 5], np.uint8), np.array([5, 7], np.uint8), "y[1] is 5, expected 7"),
        (np.array([-128], np.int8), np.array([127], np.int8), "y[0] is -128"),
        (np.array([2**63 - 1]), np.array([-(2**63)]), "y[0] is 9223372036854775807"),
        (np.array([True]), np.array([False]), "y[0] is True"),
        (np.array([0xFF], np.uint8).view(bool), np.array([True]), "y[0] is"),  # no bool at all
    ],
)
def test_where_results_differ(got: np.ndarray, wanted: np.ndarray, text: str) -> None:
    found = differs("y", got, wanted, 1e-5)
    assert found.startswith(text)
    assert bool(found) == bool(text)


def test_whole_numbers_are_exact_or_one_apart() -> None:
    one, two, three = np.array([1]), np.array([2]), np.array([3])
    assert differs("y", one, two, 0.0)
    assert not differs("y", one, two, 1.0)
    assert differs("y", one, three, 1.0)


@pytest.mark.parametrize("fill", [-3.4028235e38, -1e30, -1e9, -1e4])
@pytest.mark.parametrize("masked", [0.01, 0.5, 0.99])
def test_a_mask_does_not_hide_that_the_others_are_wrong(fill: float, masked: float) -> None:
    rng = np.random.default_rng(0)
    real = inputs({"x": f32[40, 100]}, 0)["x"]
    away = rng.random((40, 100)) < masked
    wanted = np.where(away, np.float32(fill), real)
    assert not differs("y", np.where(away, wanted, real * np.float32(1 + 1e-6)), wanted, 1e-5)
    assert differs("y", np.where(away, wanted, real * 3 + 100), wanted, 1e-5)
    assert differs("y", np.where(away, wanted, real + np.float32(0.01)), wanted, 1e-5)


def test_the_rounding_of_a_difference_is_no_error() -> None:
    wanted = inputs({"x": f32[1000]}, 0)["x"]
    wanted[:500] = np.arange(500, dtype=np.float32) * np.float32(1e-9)
    assert not differs("y", wanted + np.float32(1e-6), wanted, 1e-5)
    assert differs("y", wanted + np.float32(1e-4), wanted, 1e-5)


def test_only_floats_made_into_whole_numbers_may_be_one_apart() -> None:
    x, n = te.placeholder(f32[8, 9], "x"), te.placeholder(i32[8, 9], "n")
    axis = te.reduce_axis(9, "k")

    def allowed(value) -> float:
        return tolerances(Group((te.compute((8, 9), value, "y"),)))["y"]

    rounded = te.compute((8, 9), lambda i, j: te.cast("i32", te.floor(x[i, j] * 3.0)), "rounded")
    top = te.compute((8,), lambda i: te.max(x[i, axis], axis), "top")
    assert allowed(lambda i, j: rounded[i, j] + n[i, j]) == 1
    assert allowed(lambda i, j: n[i, j] * 2) == 0
    assert allowed(lambda i, j: te.where(rounded[i, j] > 2, n[i, j], 0)) == 0
    assert allowed(lambda i, j: te.where(te.equal(x[i, j], top[i]), te.index(j), 9)) == 0
    assert allowed(lambda i, j: x[i, j] > 0.0) == 0
    assert 0 < allowed(lambda i, j: x[i, j] * 2.0) < 1e-5


def test_finite_and_unknown() -> None:
    assert finite({"a": f(1), "b": np.array([1])}) == 1
    assert finite({"a": f(1, 2, 3), "b": np.array([np.inf], ml_dtypes.bfloat16)}) == 0.75
    assert finite({"a": f()}) == 1
    assert unknown({"a": f(1, np.nan), "b": f(np.inf), "c": f(), "d": np.array([1])}) == ""
    assert unknown({"a": f(1), "b": f(np.nan, np.nan)}) == "b"


@pytest.mark.parametrize("type", [f32[7], u8[4096], i8[3], bool_[()], f64[0], bf16[100, 41]])
def test_guarded_memory(type) -> None:
    block = Guarded.empty(type)
    assert block.array.shape == type.dims
    assert block.array.ctypes.data % 64 == 0
    assert block.is_intact()
    values = inputs({"x": type}, 0)["x"]
    copy = Guarded.like(values)
    assert copy.array.tobytes() == values.tobytes()
    assert copy.is_intact()


def test_what_has_no_room_is_out_of_memory() -> None:
    with pytest.raises(MemoryError):
        Guarded.empty(u8[1 << 55])


@pytest.mark.skipif(sys.platform == "win32", reason="no such limit there")
def test_a_worker_cannot_take_all_memory() -> None:
    code = (
        "import os; from minidlc.tuning.measure.worker import _limit_memory\n"
        "from minidlc.tuning.measure.guard import Guarded; from minidlc.expr.types import u8\n"
        "_limit_memory(); whole = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')\n"
        "Guarded.empty(u8[whole // 10 * 9])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.rstrip().splitlines()[-1].startswith("MemoryError")


def test_a_byte_beside_the_array_shows() -> None:
    block = Guarded.like(f(1, 2, 3))
    address = block.array.ctypes.data
    np.lib.stride_tricks.as_strided(block.array, (4,), (4,))[3] = 7
    assert not block.is_intact()
    assert address == block.array.ctypes.data


@pytest.mark.skipif(sys.platform == "win32", reason="pages are not protected there")
@pytest.mark.parametrize("offset", ["block.array.nbytes + 64", "-4096 - 64"])
def test_a_page_away_is_the_end(offset: str) -> None:
    code = (
        "import ctypes; from minidlc.expr.types import f32\n"
        "from minidlc.tuning.measure.guard import Guarded\n"
        "block = Guarded.empty(f32[16]); print('before', flush=True)\n"
        f"print(ctypes.string_at(block.array.ctypes.data + {offset}, 1))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "before\n"
    assert done.returncode == -11
